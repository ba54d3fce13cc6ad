"""`workbench scaletest when` and `record`: the sample's answer, wrong input, a real control plane left as it was."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.conftest import Scaletest
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.start_times.cluster_state import read_state

JOB, DAY = "sample:when/job", "sample:when/day"


def test_the_sample_says_when_and_why(scaletest: Scaletest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.scaletest.start_times.start_estimate.N_FUTURES", 30)
    said = scaletest("when", JOB, "--state", DAY)
    assert said.code == 0
    assert "nlp/finetune-0613 starts in 7 h" in said.out
    assert "verdict: valid" in said.out
    assert "with priority class urgent                  yes" in said.out


def test_json_has_all_of_it(scaletest: Scaletest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.scaletest.start_times.start_estimate.N_FUTURES", 20)
    document = json.loads(scaletest("when", JOB, "--state", DAY, "--json").out)
    assert document["p10_s"] <= document["p50_s"] <= document["p90_s"]
    assert sum(document["reasons"].values()) == pytest.approx(1.0)
    assert document["replay"]["n_compared"] == 97


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["when", JOB], "which cluster?"),
        (["when", JOB, "--state", DAY, "--context", "x"], "a record and a cluster"),
        (["when", DAY, "--state", DAY], "not a workload's manifest"),
        (["when", JOB, "--state", JOB], "not JSON"),
        (["when", JOB, "--state", DAY, "--run-time", "soon"], "not a run time"),
        (["record", "--cluster", "local", "--for", "soon", "--out", "x.json"], "not a time"),
    ],
)
def test_wrong_input_is_refused(scaletest: Scaletest, arguments: list[str], text: str) -> None:
    said = scaletest(*arguments)
    assert said.code == 2
    assert text in said.err


async def _apply(on: LocalCluster, namespace: str, gpus: int) -> None:
    """A pod of so many GPUs, and wait until it runs."""
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "simulated.invalid/nothing:none", "resources": resources}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    body = {"metadata": {"name": f"held-{gpus}", "namespace": namespace}, "spec": spec}
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        await api.json("POST", f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod", **body})
        path = f"/api/v1/namespaces/{namespace}/pods/held-{gpus}"
        while (await api.json("GET", path))["status"].get("phase") != "Running":
            await asyncio.sleep(0.05)


async def _list_versions(on: LocalCluster) -> dict[str, str]:
    """Version of each object, but for nodes, whose heartbeats go on."""
    versions = {}
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        for path in ("/api/v1/pods", "/apis/scheduling.k8s.io/v1/priorityclasses", "/api/v1/configmaps"):
            async for body in iterate_items(api, path):
                metadata: dict[str, Any] = body["metadata"]
                versions[metadata["uid"]] = metadata["resourceVersion"]
    return versions


@pytest.mark.cluster
@pytest.mark.slow
def test_a_live_cluster_is_read_and_left_as_it_was(
    local_cluster: LocalCluster, namespace: str, scaletest: Scaletest, tmp_path: Path
) -> None:
    asyncio.run(_apply(local_cluster, namespace, 8))
    job = tmp_path / "job.yaml"
    job.write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: ask}\nspec:\n  template:\n    spec:\n"
        "      tolerations: [{operator: Exists}]\n      containers:\n        - name: main\n"
        "          resources: {limits: {nvidia.com/gpu: 8}}\n"
    )
    before = asyncio.run(_list_versions(local_cluster))
    admin = ["--kubeconfig", local_cluster.kubeconfig, "--context", local_cluster.context]
    said = scaletest("when", job, *admin, "--no-arrivals", "--run-time", "all=1h")
    assert (said.code, said.out.splitlines()[0]) == (0, "default/ask starts now.")
    state = tmp_path / "state.json"
    assert scaletest("record", *admin, "--for", "2s", "--out", state).code == 0
    assert asyncio.run(_list_versions(local_cluster)) == before
    recorded = read_state(state)
    assert recorded.span_s == pytest.approx(2.0, abs=1.0)
    assert len(recorded.nodes) == local_cluster.nodes
    held = [one for one in recorded.workloads if one.name == f"{namespace}/held-8"]
    assert held[0].pods[0].node is not None
    # What comes and how long it runs is not known of two seconds.
    said = scaletest("when", job, "--state", state)
    assert said.code == 1
    assert "is not known" in said.out


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_record_that_is_interrupted_is_kept(local_cluster: LocalCluster, tmp_path: Path, number: int) -> None:
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "workbench", "scaletest", "record", "--for", "10m", "--out", str(state)]
    command += ["--kubeconfig", str(local_cluster.kubeconfig), "--context", local_cluster.context]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(5)
    process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "recorded" in out
    assert 1 < read_state(state).span_s < 60
