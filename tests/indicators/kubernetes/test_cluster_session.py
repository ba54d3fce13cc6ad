"""From a configuration to verdicts by way of a cluster; and by hand, with the commands that are printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.indicators.kubernetes.api import Plane, Server
from tests.indicators.kubernetes.making import STACKS, Good, Pod, log_of
from workbench.cli import app
from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes.cluster_session import (
    format_instructions,
    plan_cluster_session,
    resume_cluster_session,
)
from workbench.indicators.kubernetes.job_manifests import cluster_options, parse_cluster_options
from workbench.indicators.kubernetes.job_submission import connect_cluster, load_signing_key
from workbench.indicators.kubernetes.result_collection import collect_results
from workbench.indicators.measurement import session_report
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.sessions import lock_session
from workbench.indicators.measurement.stack_variants import build_stack_set
from workbench.indicators.store import archive
from workbench.kubernetes.client import Cluster
from workbench.runs import run_folder

CASES = [Case.from_parameters(Good)]


@pytest.fixture
def stacks(tmp_path: Path) -> str:
    return str(build_stack_set(STACKS, ["six==1.17.0", "six==1.16.0"]).write(tmp_path / "stacks.json"))


@pytest.fixture
def planned(tmp_path: Path, stacks: str) -> Path:
    config = session_config(stacks=stacks, rounds=(1, 2), memory_bytes=1 << 30, baseline="six-1.16.0")
    return plan_cluster_session(config, cluster_options(namespace="bench"), cases=CASES, out=tmp_path)


@pytest.fixture
def cluster(planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A control plane whose pods are the real runner, with the key that the session was given."""
    session = archive.read_session(planned)
    pod = Pod(tmp_path / "pod", session, CASES)
    made: dict[int, bytes] = {}

    def log_of_round(number: int) -> bytes:
        if number not in made:
            made[number] = log_of(pod.round(number, key=load_signing_key(planned)))
        return made[number]

    with Server(Plane(log_of=log_of_round)) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
        yield connect_cluster(None, None, "bench")


@pytest.mark.live
def test_a_session_of_a_cluster_ends_in_the_tables_of_every_session(planned: Path, cluster: Cluster) -> None:
    outcome = resume_cluster_session(planned, cluster, cases=CASES)
    assert (outcome.session.baseline, outcome.session.stop_reason) == ("six-1.16.0", "all rounds")
    assert outcome.compared.effects["n"].to_list() == [2, 2]
    assert set(outcome.compared.effects["arm"]) == {"six-1.17.0", "control"}
    assert run_folder.load_run(planned).status == "succeeded"
    assert {path.stem for path in (planned / "tables").glob("*.parquet")} >= {"runs", "effects", "judgements"}
    # One that was interrupted goes on there.
    stopped = outcome.session.model_copy(update={"stop_reason": "interrupted"})
    compared = replace(outcome.compared, observed=replace(outcome.compared.observed, session=stopped))
    told = session_report.format_session(replace(outcome, compared=compared)).splitlines()[-1]
    assert told == f"next: workbench indicators run --resume {planned} --backend kubernetes"


def test_by_hand_the_printed_commands_lead_to_the_same_archive(planned: Path, tmp_path: Path) -> None:
    commands = [line for line in format_instructions(planned).splitlines() if not line.startswith("#")]
    apply, watch, logs, collecting = map(shlex.split, commands)
    objects = list(yaml.safe_load_all(Path(apply[-1]).read_text()))
    job = next(one for one in objects if one["kind"] == "Job")
    assert watch[4] == f"job/{job['metadata']['name']}"
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert dict(pair.split("=") for pair in logs[logs.index("-l") + 1].split(",")).items() <= labels.items()
    assert {one["metadata"]["namespace"] for one in objects} == {"bench"} == {logs[logs.index("-n") + 1]}
    assert logs[-1] == collecting[-1]
    # What a cluster does with the objects: the files of its ConfigMaps, the key of its Secret.
    session = archive.read_session(planned)
    pod = Pod(tmp_path / "by-hand", session, CASES)
    files = {name: text for one in objects if one["kind"] == "ConfigMap" for name, text in one["data"].items()}
    assert files == {path.name: path.read_text() for path in pod.bundle.iterdir()}
    key = next(one["stringData"]["key"] for one in objects if one["kind"] == "Secret")
    log = b"".join(log_of(pod.round(number, key=key)) for number in range(2))
    found = collect_results(Path(collecting[3]), CASES, [[log]], key=load_signing_key(planned))
    assert (found.statuses, found.absent) == ({"ok": 6}, [])


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"python": ("a=b",)}, "--python"),
        ({"specification": "a"}, "--specification"),
        ({"network": True}, "--cluster egress="),
        ({"script": ("a.py",)}, "--script"),
        ({"pytest": ("tests",), "pyperf": ("b.py",)}, "--pytest"),
        ({"better": ("total=lower",)}, "--better"),
        ({"reference": "stacks.json"}, "--reference"),
        ({}, "--stacks FILE"),
    ],
)
def test_what_pods_cannot_do_is_refused_by_name(tmp_path: Path, config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        plan_cluster_session(session_config(**config), cluster_options(), cases=CASES, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_options_come_as_texts() -> None:
    texts = "image=python:3.11-slim node-selector=zone=a node-selector=nvidia.com/gpu.product=A100 toleration=spot "
    texts += "egress=443 egress=10.0.0.0/8:3141 scratch-bytes=1073741824"
    found = parse_cluster_options(texts.split())
    assert found.node_selector == {"zone": "a", "nvidia.com/gpu.product": "A100"}
    assert (found.tolerations, found.egress, found.scratch_bytes) == (("spot",), ("443", "10.0.0.0/8:3141"), 1 << 30)


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["gpus"], "KEY=VALUE"),
        (["gpus=1", "gpus=2"], "an option twice"),
        (["gpus=many"], "where: gpus\n  allowed: a valid integer"),
        (["nodes=1"], "nodes"),
    ],
)
def test_a_wrong_text_is_named(texts: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        parse_cluster_options(texts)


def test_what_is_collected_by_hand_is_judged_as_by_run(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = archive.read_session(planned)
    pod = Pod(tmp_path / "by-hand", session, CASES)
    (tmp_path / "pods.log").write_bytes(
        b"".join(log_of(pod.round(one, key=load_signing_key(planned))) for one in range(2))
    )
    own = f"{Good.__module__}:{Good.__name__}"
    with pytest.raises(SystemExit) as ended:
        app.main(["indicators", "collect", str(planned), str(tmp_path / "pods.log"), "--indicator", own, "--json"])
    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    run = run_folder.load_run(planned)
    # Two rounds are too few to believe in.
    assert (run.status, run.verdict, told["verdict"]) == ("succeeded", "invalid", "invalid")
    assert run.record["answer"] == told["answer"]
    assert {path.stem for path in (planned / "tables").glob("*.parquet")} >= {"runs", "effects", "judgements"}


def test_two_processes_do_not_submit_one_session(planned: Path, cluster: Cluster) -> None:
    with lock_session(planned), pytest.raises(ConfigError, match="another process is measuring this session"):
        resume_cluster_session(planned, cluster, cases=CASES)
    assert run_folder.load_run(planned).status != "failed"
