"""Whole tests on a real control plane: begun, killed, gone on with, ended; what they leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from tests.conftest import ROOT
from tests.scaletest.conftest import reasons_of_the_run
from tests.scaletest.making_scenarios import lines_of
from workbench.kubernetes.client import load_target
from workbench.runs import run_folder
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.tables import LIMITS, SUBMISSIONS
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

pytestmark = pytest.mark.cluster
HANG_S = 180.0


def described(namespace: str, **given: object) -> dict[str, object]:
    made: dict[str, object] = {
        "name": "test",
        "namespace": namespace,
        "arrival": {"process": "constant", "rate_per_s": 20, "n": 40},
        "workloads": [{"kind": "Job", "gpus": 1, "lifetime": 1}],
    }
    return made | given


def secrets(cluster: LocalCluster) -> list[bytes]:
    """Tokens of the measuring identity and keys of the administrator: canaries that are there already."""
    found = yaml.safe_load(cluster.measure_kubeconfig.read_text())["users"][0]["user"]
    return [found["token"].encode(), found["token"].split(".")[2][:40].encode()]


def holding(folder: Path, needles: list[bytes]) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(one in path.read_bytes() for one in needles)]


def left(cluster: LocalCluster, namespace: str, run: str) -> int:
    async def body() -> int:
        async with Connection(load_target(cluster.kubeconfig, cluster.context)) as api:
            query = {"labelSelector": api_discovery.build_run_selector(run)}
            paths = [f"/apis/batch/v1/namespaces/{namespace}/jobs", f"/api/v1/namespaces/{namespace}/pods"]
            return sum([len((await api.json("GET", path, query=query))["items"]) for path in paths])

    return asyncio.run(body())


@pytest.mark.smoke
def test_a_test_is_measured_worked_out_and_cleaned_up(
    local_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    workloads = [
        {"kind": "Job", "gpus": 1, "lifetime": 1},
        {"kind": "Gang", "name": "gang", "pods": 3, "gpus": 1, "delete_after_s": 1, "weight": 0.25},
    ]
    given = scenario_file.parse_scenario(
        yaml.safe_dump(described(namespace, workloads=workloads, limits={"rate_per_s": 60}))
    )
    on = ClusterAccess(local_cluster.measure_kubeconfig, local_cluster.measure_context, local_cluster)
    found = run_test(given, RunContext(on, build_options(settle_s=10)), out=tmp_path)
    # What it measured, and whether that is valid, depends on the machine.
    assert (found.outcome.reason, found.outcome.acked, found.outcome.objects) == ("finished", 40, 56)
    assert found.exit_code == (1 if found.reasons else 0)
    assert SUBMISSIONS.read(found.folder / "tables")["status"].to_list() == ["created"] * 40
    test = run_records.read_conditions(found.folder)
    assert "system:masters" not in test.identity_groups
    assert {one.name for one in test.components} >= {"kube-apiserver", "kube-scheduler"}
    assert found.cleaned is not None
    assert found.cleaned.complete
    assert left(local_cluster, namespace, found.run) == 0
    assert run_folder.load_run(found.folder).verdict == found.verdict
    assert not holding(found.folder, secrets(local_cluster))
    assert local_cluster.server.encode() not in b"".join(
        path.read_bytes() for path in found.folder.glob("*.json*") if path.is_file()
    )


def test_jobs_whose_pods_come_one_after_the_other_are_waited_for_and_no_rate_is_claimed(
    local_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    jobs = [{"kind": "Job", "gpus": 1, "parallelism": 1, "completions": 3, "lifetime": 4}]
    arrival = {"process": "constant", "rate_per_s": 10, "n": 10}
    given = scenario_file.parse_scenario(yaml.safe_dump(described(namespace, workloads=jobs, arrival=arrival)))
    on = ClusterAccess(local_cluster.measure_kubeconfig, local_cluster.measure_context, local_cluster)
    # Less than a pod lives: nothing changes for longer than that between two of a Job's pods.
    found = run_test(given, RunContext(on, build_options(settle_s=2)), out=tmp_path)
    assert (found.pods_seen, reasons_of_the_run(found.reasons)) == (30, [])
    assert run_records.read_conditions(found.folder).in_turn
    explanation = analyse_run(found.folder).explanation
    assert "Jobs with completions above parallelism" in explanation
    assert "95 % of the workloads were scheduled" in explanation
    assert "pods made" not in LIMITS.read(found.folder / "tables")["step"].to_list()


def test_a_killed_test_leaves_no_process_and_is_gone_on_with(
    local_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "scenario.yaml"
    arrival = {"process": "constant", "rate_per_s": 10, "n": 40}
    path.write_text(yaml.safe_dump(described(namespace, arrival=arrival)))
    words = ["scaletest", "run", str(path), "--cluster", local_cluster.name, "--out", str(tmp_path / "out"), "--json"]
    first = subprocess.Popen([sys.executable, "-m", "workbench", *words], cwd=ROOT, stdout=subprocess.PIPE)
    end = time.monotonic() + HANG_S
    while not (acked := list((tmp_path / "out").rglob(run_records.JOURNAL))) or b"acked" not in acked[0].read_bytes():
        assert time.monotonic() < end
        assert first.poll() is None
        time.sleep(0.02)
    children = psutil.Process(first.pid).children(recursive=True)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert children
    assert not psutil.wait_procs(children, timeout=HANG_S)[1]
    folder = acked[0].parent
    second = subprocess.run(
        [sys.executable, "-m", "workbench", "scaletest", "run", "--resume", str(folder), "--json"],
        cwd=ROOT,
        capture_output=True,
        timeout=HANG_S,
    )
    told = json.loads(second.stdout)
    assert (told["submission"]["acked"], told["submission"]["resumed"]) == (40, True)
    assert (told["submission"]["reason"], told["cleanup"]["complete"]) == ("finished", True)
    assert second.returncode == (0 if told["verdict"] == "valid" else 1)
    assert set(SUBMISSIONS.read(folder / "tables")["status"]) <= {"created", "known"}
    # Nobody watched for a while: that is marked, and every workload was seen all the same.
    assert lines_of(folder, run_records.Gap)
    assert not [one for one in told["reasons"] if "accepted was seen" in one]
    assert [one.resumed for one in lines_of(folder, run_records.Begun)] == [False, True]
    assert not holding(folder, secrets(local_cluster))
