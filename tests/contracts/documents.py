"""The `--json` documents of commands that measure nothing: their keys and types, and the values that are steady."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import json
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import introspection
from tests.contracts.writing import describe_document, flatten, write_json

ROOT = Path(__file__).parents[2]

# Of these only the types are frozen: times, paths, ids, the machine and its software.
VOLATILE = frozenset(
    {
        "as_of", "bytes", "command", "created_at", "duration_s", "ended_at", "folder", "git_commit", "host", "out",
        "output", "package_version", "path", "paths", "plan_hash", "run", "run_id", "started_at", "time_ms", "versions",
        "written",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A command line in the scratch folder, as those before it left it; `only_keys` where the rest is the machine's.

    {NAME} in it is the run folder below the folder NAME: it is named by its time.
    """

    name: str
    words: str
    only_keys: bool = False
    volatile: frozenset[str] = frozenset()


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

QUICK = (
    Asked("run-parameters", "run all --parameters --json"),
    Asked("runs-list", f"runs list --out {PLANNED} --json"),
    Asked("runs-show", f"runs show {PLANNED}/sizing --json"),
    Asked("runs-diff", f"runs diff {PLANNED}/sizing {PLANNED}/sizing --json"),
    Asked("runs-check-good", f"runs check {PLANNED}/sizing --thresholds kept.yaml --json"),
    Asked("runs-check-broken", f"runs check {PLANNED}/sizing --thresholds broken.yaml --json"),
    Asked("runs-prune", "runs prune --out copies --keep 1 --json"),
    Asked("doctor", "doctor --json", only_keys=True),
    Asked("eventlog-facts", f"eventlog facts {LOG} --out facts --json"),
    Asked("speedup-profile", f"speedup profile {LOG} --json"),
    Asked("speedup-compare", f"speedup compare {SMALL} --sql-ids 3,5 --json"),
    Asked("speedup-explain", f"speedup explain 'q3 pass 0' HashAggregate --log {SMALL} --json"),
    Asked("speedup-generate", f"speedup generate --cpu {CPU} --gpu {GPU} --output factors.json --json"),
    Asked("speedup-qualify", f"speedup qualify {LOG} --factors factors.json --json"),
    Asked("speedup-validate", f"speedup validate --cpu {CPU} --gpu {GPU} --json"),
    Asked("sizing-import-guidellm", "sizing import users.json --gpus 1 --goal p95<=2 --out guidellm --json"),
    Asked("sizing-import-aiperf", "sizing import aiperf --gpus 1 --goal p95<=2 --out aiperf-sweep --json"),
    Asked("sizing-import-nat", f"sizing import {NAT} --gpus 1 --out nat --json"),
    Asked("sizing-estimate", "sizing estimate {guidellm} --target-users 100 --json"),
    Asked("sizing-manifests", "sizing manifests --gpus 14 --gpus-per-replica 2 --in-flight 32 --json"),
    Asked("sizing-calc", "sizing calc --offline_mode --calc_output_dir recorded --test_gpu_count 8"
          " --target_workflow_runtime 10 --target_users 100 --json"),
    Asked("indicators-recommend", f"indicators recommend {SESSION} --mix sort=0.5,matmul=0.5 --out recommended --json"),
    Asked("indicators-sync", f"indicators sync {SESSION} --database team.db --json"),
    Asked("indicators-show-sessions", "indicators show sessions --database team.db --json"),
    Asked("indicators-show-stacks", "indicators show stacks --database team.db --json"),
    Asked("indicators-show-indicators", "indicators show indicators --database team.db --json"),
    Asked("indicators-show-runs", "indicators show runs --database team.db --limit 20 --json"),
    Asked("indicators-show-observations", "indicators show observations --database team.db --limit 20 --json"),
    Asked("indicators-show-checks", "indicators show checks --database team.db --limit 20 --json"),
    Asked("indicators-show-values", "indicators show values --indicator Sort --database team.db --limit 20 --json"),
    Asked("indicators-show-failures", "indicators show failures --database team.db --json"),
    Asked("indicators-show-packages", "indicators show packages --database team.db --json"),
    Asked("indicators-export", f"indicators export {SESSION} --out session.json --json"),
    Asked("indicators-import", f"indicators import {INSPECTION} --out imported --json"),
    Asked("scaletest-plan", f"scaletest plan {SCENARIO} --json"),
    Asked("scaletest-show", "scaletest show sides/00-default-scheduler --json"),
    Asked("scaletest-compare", "scaletest compare sides --json"),
    Asked("scaletest-import-upstream", "scaletest import-upstream upstream -t training --out of-upstream --json"),
    Asked("scaletest-report", "scaletest report upstream --out reported --json"),
    Asked("scaletest-export-upstream", "scaletest export-upstream {of-upstream} --out exported --json"),
    Asked("capacity-plan", f"capacity plan --speedup {PLANNED}/speedup --sizing {PLANNED}/sizing"
          f" --indicators {PLANNED}/indicators --scaletest {PLANNED}/scaletest --json"),
)  # fmt: skip

TABLES_OF = "data/samples/lore/tables"
SPARK = (
    Asked("lore-tag", f"lore tag data/samples/lore/query.sql --data {TABLES_OF} --out tagged.json --json"),
    Asked("lore-dump", f"lore dump data/samples/lore/query.sql --data {TABLES_OF} --tagged tagged.json --ids 12[*]"
          " --path dumps/q --json"),
    Asked("lore-verify", "lore verify dumps/q/loreId-12 --json"),
    Asked("lore-inspect", "lore inspect dumps/q --json"),
    Asked("lore-bundle", "lore bundle dumps/q/loreId-12 --out join.zip --json", volatile=frozenset({"sha256"})),
)  # fmt: skip


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


@functools.cache
def ask(asked: tuple[Asked, ...]) -> tuple[Path, dict[str, introspection.Said]]:
    """The scratch folder in which these command lines were run, in their order, and what each of them said."""
    folder = Path(tempfile.mkdtemp()).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prepare(folder)
    found = {}
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patched:
        if asked is QUICK:
            # What was kept from earlier runs on this machine must not be told.
            patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patched.setenv("WORKBENCH_OUT", str(folder / "runs"))
        for one in asked:
            words = shlex.split(re.sub(r"\{(.+?)\}", lambda named: find_run(folder, named[1]), one.words))
            # A replay needs a process without a Spark, and other tests may have one in this process.
            call = introspection.call_command_apart if asked is SPARK else introspection.call_command
            found[one.name] = call(words)
    return folder, found


def read_document(one: Asked, said: introspection.Said) -> Any:
    """The document that a command line printed."""
    try:
        return json.loads(said.out)
    except ValueError as error:
        told = f"workbench {one.words}\nends with {said.code} and prints no document:\n{said.out}{said.err}"
        raise AssertionError(told) from error


def describe(one: Asked, said: introspection.Said, places: tuple[str, ...]) -> str:
    """The frozen text of a command line: itself, its exit code, and a line for each path of its document."""
    document = read_document(one, said)
    told = f"$ workbench {one.words}\nexit {said.code}\n"
    if one.only_keys:
        return told + "".join(f"{path}\n" for path in sorted({path for path, _ in flatten(document)}))
    return told + describe_document(document, VOLATILE | one.volatile, places)


def freeze_documents(asked: tuple[Asked, ...] = QUICK) -> dict[str, str]:
    """`documents/<command>.txt`."""
    folder, said = ask(asked)
    places = (str(folder), str(ROOT))
    return {f"documents/{one.name}.txt": describe(one, said[one.name], places) for one in asked}


def freeze_lore_documents() -> dict[str, str]:
    """The same of the commands that start a Spark."""
    return freeze_documents(SPARK)


def freeze_parameters() -> dict[str, str]:
    """`parameters.json`: the parameters of each notebook with type and default, which files of users name."""
    (asked,) = (one for one in QUICK if one.name == "run-parameters")
    document = read_document(asked, ask(QUICK)[1][asked.name])
    found = {
        notebook: {one["name"]: {"type": one["type"], "default": one["default"]} for one in parameters}
        for notebook, parameters in document.items()
    }
    return {"parameters.json": write_json(found) + "\n"}
