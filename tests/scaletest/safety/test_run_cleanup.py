"""Cleanup: exactly the run's objects, none left, nothing else touched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scaletest.conftest import fresh_namespace
from tests.scaletest.local_cluster.asking import on
from tests.scaletest.making_scenarios import RUN, scenario
from workbench.core.errors import ConfigError, InputError
from workbench.kubernetes.client import Target
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import PODS
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.safety.cluster_setup import set_up_cluster
from workbench.scaletest.safety.run_cleanup import list_run_records, write_run_record
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan

NOWHERE = Connection(Target("http://127.0.0.1:9", "nowhere", None, dict))


def plan(namespace: str, *entries: dict[str, Any], count: int = 40, run: str | None = None) -> Plan:
    """Jobs and pods in a namespace."""
    arrival = {"process": "constant", "rate_per_s": 10, "n": count}
    made = list(entries) or [{"kind": "Job", "gpus": 0}, {"kind": "Pod", "gpus": 0}]
    limits = {"objects": 10_000, "rate_per_s": 1000}
    return draw_plan(scenario(*made, namespace=namespace, arrival=arrival, limits=limits), run)


async def submit(api: Connection, made: Plan) -> None:
    """Make all of a plan, at once, with its record."""
    await write_run_record(api, made)
    gate = asyncio.Semaphore(16)

    async def one(path: str, body: bytes) -> None:
        async with gate:
            answer = await api.request("POST", path, body=body)
            assert answer.status == 201, answer.body

    await asyncio.gather(*(one(r.path, r.body) for workload in made.iterate_workloads() for r in workload.requests()))


async def versions(api: Connection, space: str | None = None) -> dict[tuple[str, str, str], str]:
    """Resource versions of what is there, by kind, namespace and name."""
    found = {}
    for kind in ("/api/v1/{}pods", "/apis/batch/v1/{}jobs", "/api/v1/{}configmaps", "/api/v1/{}serviceaccounts"):
        for one in (await api.json("GET", kind.format(f"namespaces/{space}/" if space else "")))["items"]:
            head = one["metadata"]
            found[kind, head["namespace"], head["name"]] = head["resourceVersion"]
    return found


async def _settled(api: Connection, space: str, count: int) -> None:
    """Wait until the pods run: nothing changes them after that."""
    deadline = time.monotonic() + 60
    while True:
        found = (await api.json("GET", f"/api/v1/namespaces/{space}/pods"))["items"]
        if sum(one["status"].get("phase") == "Running" for one in found) == count:
            return
        assert time.monotonic() < deadline, "the pods do not run"
        await asyncio.sleep(0.1)


@pytest.fixture
def bystander(local_cluster: LocalCluster) -> Iterator[str]:
    """Another namespace for tests."""
    yield from fresh_namespace(local_cluster)


@pytest.mark.parametrize("run", ["", "*", "st-", "st-0123abcd,a=b", "st-0123abcd\n"])
def test_a_run_id_that_could_match_anything_is_refused_before_anything_is_asked(run: str) -> None:
    with pytest.raises(ConfigError, match="where: run"):
        asyncio.run(run_cleanup.delete_run_objects(NOWHERE, run, ["a"], []))


def test_no_namespace_is_not_every_namespace() -> None:
    with pytest.raises(ConfigError, match="where: run"):
        asyncio.run(run_cleanup.delete_run_objects(NOWHERE, RUN, [], [PODS]))


@pytest.mark.parametrize("space", ["default", "kube-system", "", "a/../b", "A"])
def test_a_namespace_of_the_clusters_own_is_refused(space: str) -> None:
    with pytest.raises(InputError, match="not a namespace of tests"):
        asyncio.run(run_cleanup.delete_run_objects(NOWHERE, RUN, [space], [PODS]))


def test_a_kind_that_would_lead_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match="not a resource"):
        asyncio.run(run_cleanup.delete_run_objects(NOWHERE, RUN, ["a"], [ApiResource("", "v1/namespaces/b", "pods")]))


@pytest.mark.cluster
def test_exactly_the_runs_objects_go_and_all_of_them(
    local_cluster: LocalCluster, namespace: str, bystander: str
) -> None:
    ours, others = plan(namespace, count=150), plan(namespace, count=6)
    on(local_cluster, lambda api: set_up_cluster(api, ours, quota=False), admin=True)
    on(local_cluster, lambda api: submit(api, others))
    on(local_cluster, lambda api: submit(api, ours))

    # A bystander that even carries the run's own label, in a namespace that the run never had.
    beside = plan(bystander, {"kind": "Pod"}, count=5, run=ours.run)
    on(local_cluster, lambda api: submit(api, beside), admin=True)
    alive = (bystander, "default", "kube-system")

    async def outside(api: Connection) -> dict[tuple[str, str, str], str]:
        await _settled(api, bystander, 5)
        return {key: at for key, at in (await versions(api)).items() if key[1] in alive}

    before = on(local_cluster, outside, admin=True)
    told: list[run_cleanup.CleanupProgress] = []
    # On any machine: all that is known is the run's id and where to look. Under the measuring identity.
    found = on(local_cluster, lambda api: run_cleanup.delete_recorded_run(api, ours.run, [namespace], told.append))
    assert found.complete
    assert found.found[f"{namespace}/jobs"] == 75
    assert found.found[f"{namespace}/pods"] >= 75
    assert told[-1].left == 0
    assert on(local_cluster, outside, admin=True) == before
    assert sum(key[1] == bystander for key in before) >= 5
    left = on(local_cluster, lambda api: versions(api, namespace), admin=True)
    assert not [key for key in left if ours.run in key[2]]
    assert len([key for key in left if f"{others.run}-" in key[2]]) >= 6
    assert [record.run for record in on(local_cluster, lambda api: list_run_records(api, (namespace,)))] == [others.run]
    again = on(local_cluster, lambda api: run_cleanup.delete_recorded_run(api, ours.run, [namespace]))
    assert again.complete
    assert not again.found


@pytest.mark.cluster
def test_what_a_finalizer_holds_is_told_and_goes_next_time(local_cluster: LocalCluster, namespace: str) -> None:
    made = plan(namespace, {"kind": "Pod", "gpus": 0}, count=3)
    held = f"/api/v1/namespaces/{namespace}/pods/{made.workload_at(1).name}"
    merge = "application/merge-patch+json"

    async def finalizers(api: Connection, value: list[str]) -> None:
        await api.json("PATCH", held, {"metadata": {"finalizers": value}}, content_type=merge)

    on(local_cluster, lambda api: set_up_cluster(api, made, quota=False), admin=True)
    on(local_cluster, lambda api: submit(api, made))
    on(local_cluster, lambda api: finalizers(api, ["example.org/held"]), admin=True)
    clean = lambda api: run_cleanup.delete_run_objects(api, made.run, [namespace], [PODS], stalled_s=1)  # noqa: E731
    found = on(local_cluster, clean)
    assert not found.complete
    assert found.left == {f"{namespace}/pods": 1}
    assert found.examples == {f"{namespace}/pods": [made.workload_at(1).name]}
    assert found.stuck == {f"{namespace}/pods {made.workload_at(1).name}": ("example.org/held",)}
    assert [one.run for one in on(local_cluster, lambda api: list_run_records(api, (namespace,)))] == [made.run]
    on(local_cluster, lambda api: finalizers(api, []), admin=True)
    assert on(local_cluster, clean).complete
    assert on(local_cluster, lambda api: list_run_records(api, (namespace,))) == []


@pytest.mark.cluster
def test_a_namespace_that_is_not_for_tests_is_not_cleaned(local_cluster: LocalCluster, namespace: str) -> None:
    async def unlabel(api: Connection) -> None:
        change = {"metadata": {"labels": {api_discovery.ALLOW: None}}}
        path = f"/api/v1/namespaces/{namespace}"
        await api.json("PATCH", path, change, content_type="application/merge-patch+json")

    on(local_cluster, unlabel, admin=True)
    with pytest.raises(ConfigError, match="the test was not begun"):
        on(local_cluster, lambda api: run_cleanup.delete_run_objects(api, RUN, [namespace], [PODS]), admin=True)
