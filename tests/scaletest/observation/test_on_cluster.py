"""The sampler on a real control plane: every pod is followed, through a restart of the server and an expired watch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from workbench.scaletest import observation, tables
from workbench.scaletest.cluster_api import api_discovery, object_names
from workbench.scaletest.cluster_api.clock import parse_timestamp
from workbench.scaletest.cluster_api.connection import Connection, UnreachableError, load_target
from workbench.scaletest.local_cluster import identities
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario.workload_objects import DELAY, JITTER

pytestmark = pytest.mark.cluster
LIMIT_S = 120.0


READ = ["get", "list", "watch"]
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*READ, "create"]},
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": READ},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": READ},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*READ, "create", "patch", "delete"]},
]


@pytest.fixture
def space(local_cluster: LocalCluster, namespace: str) -> str:
    """A namespace in which the measuring identity has the rights that measuring needs, and no others."""

    async def grant() -> None:
        group, root = "rbac.authorization.k8s.io", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        account = {"kind": "ServiceAccount", "name": identities.ACCOUNT, "namespace": identities.NAMESPACE}
        role = {"apiGroup": group, "kind": "Role", "name": "measure"}
        async with Connection(load_target(local_cluster.kubeconfig, local_cluster.context)) as api:
            await api.json("POST", f"{root}/roles", {"metadata": {"name": "measure"}, "rules": RULES})
            body = {"metadata": {"name": "measure"}, "roleRef": role, "subjects": [account]}
            await api.json("POST", f"{root}/rolebindings", body)
        # The authorizer learns of it by a watch of its own.
        end = time.monotonic() + LIMIT_S
        async with Connection(load_target(local_cluster.measure_kubeconfig, local_cluster.measure_context)) as api:
            while (await api.request("GET", api_discovery.JOBS.path(namespace))).status != 200:
                assert time.monotonic() < end
                await asyncio.sleep(0.02)

    asyncio.run(grant())
    return namespace


def job(run: str, index: int) -> dict[str, Any]:
    name = object_names.build_workload_name(run, index)
    labels = object_names.build_labels(run, name, 0)
    container = {"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "nodeSelector": {object_names.SIMULATED: "true"},
        "tolerations": [{"operator": "Exists"}],
    }
    # Simulated pods without a lifetime run until they are deleted.
    template = {"metadata": {"labels": labels, "annotations": {DELAY: "0.5s", JITTER: "0.5s"}}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 0, "template": template},
    }


async def submit(api: Connection, namespace: str, run: str, indices: range) -> None:
    """Make these jobs; a server that is just coming back is tried again."""
    end = time.monotonic() + LIMIT_S
    for index in indices:
        while True:
            try:
                answer = await api.request("POST", api_discovery.JOBS.path(namespace), body=_json(job(run, index)))
            except UnreachableError:
                answer = None
            if answer is not None and answer.status in (201, 409):
                break
            assert time.monotonic() < end, answer
            await asyncio.sleep(0.1)


def _json(body: dict[str, Any]) -> bytes:
    import orjson

    return orjson.dumps(body)


def submitted(on: LocalCluster, namespace: str, run: str, indices: range) -> None:
    async def now() -> None:
        async with Connection(load_target(on.measure_kubeconfig, on.measure_context)) as api:
            await submit(api, namespace, run, indices)

    asyncio.run(now())


def wait(true: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.1)


def seen(folder: Path) -> list[run_records.Seen]:
    rows = run_records.read_lines(folder / run_records.OBSERVED, run_records.ObservedLine)
    return [one for one in rows if isinstance(one, run_records.Seen)]


def of(rows: list[run_records.Seen], resource: str, transition: str) -> list[run_records.Seen]:
    return [one for one in rows if (one.resource, one.transition) == (resource, transition)]


def health(folder: Path, kind: type[Any]) -> list[Any]:
    return [
        one
        for one in run_records.read_lines(folder / run_records.HEALTH, run_records.HealthLine)
        if isinstance(one, kind)
    ]


def start(on: LocalCluster, folder: Path, run: str, namespace: str) -> observation.SamplerProcess:
    return observation.start_sampler(
        folder,
        run=run,
        namespaces=[namespace],
        kubeconfig=on.measure_kubeconfig,
        context=on.measure_context,
        audit_log=on.audit_log,
    )


def test_every_pod_is_created_scheduled_and_running_and_is_its_workloads(
    local_cluster: LocalCluster, space: str, tmp_path: Path
) -> None:
    run, count = object_names.new_run_id(), 60
    threads = threading.active_count()
    with start(local_cluster, tmp_path, run, space) as sampler:
        sampler.wait_until_ready()
        submitted(local_cluster, space, run, range(count))
        wait(lambda: len(of(seen(tmp_path), "job", "complete")) == count)
    assert threading.active_count() == threads
    assert not sampler.is_running
    rows = seen(tmp_path)
    workloads = {object_names.build_workload_name(run, index) for index in range(count)}
    for resource, transition in (
        ("job", "created"),
        ("pod", "created"),
        ("pod", "scheduled"),
        ("pod", "running"),
        ("event", "scheduled"),
    ):
        found = of(rows, resource, transition)
        # An event may come before its pod, whose workload is then not known; its owner is checked below.
        if resource != "event":
            assert {one.workload for one in found} == workloads, (resource, transition)
        assert len(found) == count
        assert not any(one.gap for one in found)
    jobs = {one.uid: one.name for one in of(rows, "job", "created")}
    assert {one.owner for one in of(rows, "pod", "created")} == set(jobs)
    pods = {one.uid for one in of(rows, "pod", "created")}
    events = of(rows, "event", "scheduled")
    assert {one.owner for one in events} == pods
    # The stock scheduler's events are the finest times that there are without the audit log; one that started before
    # the API server told of the newer kind of events writes them in whole seconds.
    resolutions = {parse_timestamp(one.server).resolution_ns for one in events}  # type: ignore[union-attr]
    assert resolutions in ({1000}, {1_000_000_000})
    assert {one.node is not None for one in of(rows, "pod", "scheduled")} == {True}
    assert health(tmp_path, run_records.Gap) == []
    # Another test may have left kinds on this cluster that this identity may not watch: told, and no more.
    assert [one.text for one in health(tmp_path, run_records.Note) if "is not watched" not in one.text] == []
    nodes = [
        one
        for one in run_records.read_lines(tmp_path / run_records.OBSERVED, run_records.ObservedLine)
        if one not in rows
    ]
    assert {(one.gpus, one.simulated, one.ready) for one in nodes} == {(8, True, True)}
    assert len(nodes) == local_cluster.nodes
    _audited(local_cluster, tmp_path, rows, pods)


def _audited(on: LocalCluster, folder: Path, rows: list[run_records.Seen], pods: set[str]) -> None:
    if on.audit_log is None:
        return
    assert {one.owner for one in of(rows, "audit", "bound")} == pods
    requests = tables.REQUESTS.read(folder / "tables")
    counts = requests.group_by("client", "verb", "resource", "subresource").agg(pl.col("requests").sum())
    makers = counts.filter((pl.col("resource") == "pods") & (pl.col("verb") == "create"))
    by = {(client, sub): number for client, _, _, sub, number in makers.rows()}
    assert next(number for (client, sub), number in by.items() if "job-controller" in client and not sub) >= len(pods)
    assert next(number for (client, sub), number in by.items() if "scheduler" in client and sub == "binding") >= len(
        pods
    )
