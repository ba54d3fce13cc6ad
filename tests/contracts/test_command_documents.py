"""Every command that measures nothing answers on the samples: it ends with 0 and prints one JSON document."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.contracts import introspection

ROOT = Path(__file__).parents[2]

UPSTREAM_TIMES = (
    "workloadCreatedTimestamp",
    "jobCreatedTimestamp",
    "firstPodCreatedTimestamp",
    "lastPodCreatedTimestamp",
    "podGroupCreatedTimestamp",
    "podSchedulingDecisionTimestamp",
    "firstEvictionTimestamp",
    "firstPVCBindRequestTimestamp",
    "firstPVCBindTimestamp",
    "backendJobCreatedTimestamp",
)
LOG = "data/samples/eventlogs/failing.zstd"
PAIR = "data/samples/speedup/tpch-sf1"
CPU, GPU = f"{PAIR}/logs/spark-s1.zstd", f"{PAIR}/logs/comet-s1.zstd"
SIDES = "data/samples/scaletest/default-and-kai"
SCENARIO = "data/samples/scaletest/scenarios/first-test.yaml"
SESSION = "data/samples/indicators/numpy"
INSPECTION = f"{SESSION}/inspections/inspection-sort-587dcca0"
NAT = "data/samples/sizing/nat/calc_runner_output.json"
SMALL = "data/samples/eventlogs/small/three_queries.zstd"
PLANNED = "data/samples/capacity"
KEPT = "4b680ae9cb96"  # id of the forecast of that run

# {NAME} is the run folder below the folder NAME: it is named by its time.
COMMANDS = (
    "run all --parameters --json",
    f"runs list --out {PLANNED} --json",
    f"runs show {PLANNED}/sizing --json",
    f"runs diff {PLANNED}/sizing {PLANNED}/sizing --json",
    f"runs check {PLANNED}/sizing --thresholds kept.yaml --json",
    f"runs check {PLANNED}/sizing --thresholds broken.yaml --json",
    "runs prune --out copies --keep 1 --json",
    f"forecast add {PLANNED}/sizing --ledger mine.jsonl --json",
    f"forecast match --forecast {KEPT} --value 17.3 --ledger mine.jsonl --json",
    "forecast score --ledger mine.jsonl --json",
    "doctor --json",
    f"eventlog facts {LOG} --out facts --json",
    f"speedup profile {LOG} --json",
    f"speedup compare {SMALL} --sql-ids 3,5 --json",
    f"speedup explain 'q3 pass 0' HashAggregate --log {SMALL} --json",
    f"speedup generate --cpu {CPU} --gpu {GPU} --output factors.json --json",
    f"speedup qualify {LOG} --factors factors.json --json",
    f"speedup validate --cpu {CPU} --gpu {GPU} --json",
    "sizing import users.json --gpus 1 --goal p95<=2 --out guidellm --json",
    "sizing import aiperf --gpus 1 --goal p95<=2 --out aiperf-sweep --json",
    f"sizing import {NAT} --gpus 1 --out nat --json",
    "sizing estimate {guidellm} --target-users 100 --json",
    "sizing manifests --gpus 14 --gpus-per-replica 2 --in-flight 32 --json",
    "sizing calc --offline_mode --calc_output_dir recorded --test_gpu_count 8"
    " --target_workflow_runtime 10 --target_users 100 --json",
    f"indicators recommend {SESSION} --mix sort=0.5,matmul=0.5 --out recommended --json",
    f"indicators sync {SESSION} --database team.db --json",
    "indicators show sessions --database team.db --json",
    "indicators show stacks --database team.db --json",
    "indicators show indicators --database team.db --json",
    "indicators show runs --database team.db --limit 20 --json",
    "indicators show observations --database team.db --limit 20 --json",
    "indicators show checks --database team.db --limit 20 --json",
    "indicators show values --indicator Sort --database team.db --limit 20 --json",
    "indicators show failures --database team.db --json",
    "indicators show packages --database team.db --json",
    f"indicators export {SESSION} --out session.json --json",
    f"indicators import {INSPECTION} --out imported --json",
    f"scaletest plan {SCENARIO} --json",
    "scaletest show sides/00-default-scheduler --json",
    "scaletest compare sides --json",
    "scaletest import-upstream upstream -t training --out of-upstream --json",
    "scaletest report upstream --out reported --json",
    "scaletest export-upstream {of-upstream} --out exported --json",
    f"capacity plan --speedup {PLANNED}/speedup --sizing {PLANNED}/sizing"
    f" --indicators {PLANNED}/indicators --scaletest {PLANNED}/scaletest --json",
)
# The sweeps that are read have no level beyond the goal, and a threshold is broken on purpose.
ENDS_WITH_1 = ("runs check data/samples/capacity/sizing --thresholds broken", "sizing estimate", "sizing import users")


def prepare(folder: Path) -> None:
    """What the command lines name, beside the samples."""
    (folder / "data").mkdir()
    for name in ("data/samples", "notebooks", "docs"):
        (folder / name).symlink_to(ROOT / name)
    samples = folder / "data" / "samples"
    shutil.copytree(samples / "capacity", folder / "copies")
    # Commands that write into a folder of runs get a copy of it.
    shutil.copytree(samples / "scaletest" / "default-and-kai", folder / "sides")
    (folder / "users.json").write_bytes(gzip.decompress((samples / "sizing/guidellm/users.json.gz").read_bytes()))
    for path in sorted((samples / "sizing" / "aiperf" / "users").rglob("*.gz")):
        target = folder / "aiperf" / path.relative_to(samples / "sizing" / "aiperf" / "users").with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.decompress(path.read_bytes()))
    job = folder / "recorded" / "online" / "job_1"
    job.mkdir(parents=True)
    shutil.copy(samples / "sizing" / "nat" / "calc_runner_output.json", job)
    for name, limit in (("kept", 1000), ("broken", 0)):
        rule = {"table": "estimates", "column": "gpus", "at_most": limit}
        (folder / f"{name}.yaml").write_text(json.dumps({"sizing": [rule]}))
    write_upstream(folder / "upstream")


def write_upstream(folder: Path) -> None:
    """What Run:ai's scale-test tool leaves of three workloads."""
    folder.mkdir()
    names = [{"jobName": f"j-{number}", "projectName": "p", "jobNamespace": "runai-p"} for number in range(3)]
    day = "2026-01-01T10:00:"
    rows = [name | {"submitTimestamp": f"{day}0{number}.5+00:00"} for number, name in enumerate(names)]
    samples = [
        name | {field: f"{day}{number + second:02d}Z" for second, field in enumerate(UPSTREAM_TIMES, 1)}
        for number, name in enumerate(names)
    ]
    (folder / "submitted.json").write_text(json.dumps(rows))
    (folder / "sampled.json").write_text(json.dumps(samples))


def find_run(folder: Path, name: str) -> str:
    """The run folder below a folder of the scratch folder."""
    return next((folder / name).rglob("run.json")).parent.relative_to(folder).as_posix()


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, introspection.Said]:
    """What each command line said, in their order, each in the scratch folder as those before it left it."""
    folder = tmp_path_factory.mktemp("commands")
    prepare(folder)
    found = {}
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patched:
        # What was kept from earlier runs on this machine must not be told.
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patched.setenv("WORKBENCH_OUT", str(folder / "runs"))
        for words in COMMANDS:
            named = re.sub(r"\{(.+?)\}", lambda name: find_run(folder, name[1]), words)
            found[words] = introspection.call_command(shlex.split(named))
    return found


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_answers_with_one_document(words: str, said: dict[str, introspection.Said]) -> None:
    assert said[words].code == (1 if words.startswith(ENDS_WITH_1) else 0), said[words].err
    assert json.loads(said[words].out)
