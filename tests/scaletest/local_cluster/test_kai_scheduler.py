"""KAI beside the stock scheduler: private, limited, and it places a gang whole or not at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.scaletest.conftest import QUICK
from tests.scaletest.local_cluster.asking import answer, found, wait_for
from tests.scaletest.local_cluster.test_cluster_lifecycle import commands, listening
from workbench.scaletest.local_cluster import control_plane, kai_scheduler
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS

pytestmark = pytest.mark.cluster
GANGS, PODS = ("first", "second"), 8


def _pod(gang: str, index: int, scheduler: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{gang}-{index}",
            "labels": {"gang": gang, "kai.scheduler/queue": kai_scheduler.QUEUE},
            "annotations": {"pod-group-name": gang},
        },
        "spec": {
            "schedulerName": scheduler,
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }


def _submit(on: LocalCluster, namespace: str, scheduler: str) -> None:
    """Two gangs of eight pods with a GPU each, pod by pod in turn, onto twelve GPUs."""
    if scheduler == kai_scheduler.SCHEDULER_NAME:
        for gang in GANGS:
            group = {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": {"name": gang},
                "spec": {"minMember": PODS, "queue": kai_scheduler.QUEUE, "priorityClassName": "train"},
            }
            path = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups"
            assert answer(on, "POST", path, group).status == 201
    for index in range(PODS):
        for gang in GANGS:
            made = answer(on, "POST", f"/api/v1/namespaces/{namespace}/pods", _pod(gang, index, scheduler))
            assert made.status == 201, made.body


def _phases(on: LocalCluster, namespace: str) -> dict[str, Counter[str]]:
    items = found(on, f"/api/v1/namespaces/{namespace}/pods")["items"]
    counts: dict[str, Counter[str]] = {gang: Counter() for gang in GANGS}
    for item in items:
        counts[item["metadata"]["labels"]["gang"]][item["status"]["phase"]] += 1
    return counts


def _refused(on: LocalCluster, namespace: str) -> int:
    """Pods that a scheduler has looked at, and has no place for."""
    items = found(on, f"/api/v1/namespaces/{namespace}/pods")["items"]
    conditions = [one for item in items for one in item["status"].get("conditions") or []]
    return sum(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def _clear(on: LocalCluster, namespace: str) -> None:
    answer(on, "DELETE", f"/api/v1/namespaces/{namespace}/pods")
    wait_for(lambda: not found(on, f"/api/v1/namespaces/{namespace}/pods")["items"])


def test_kai_runs_one_gang_whole_where_the_stock_scheduler_runs_two_in_part(
    kai_cluster: LocalCluster, kai_namespace: str
) -> None:
    _submit(kai_cluster, kai_namespace, kai_scheduler.SCHEDULER_NAME)
    wait_for(lambda: sum(one["Running"] for one in _phases(kai_cluster, kai_namespace).values()) >= PODS)
    wait_for(lambda: _refused(kai_cluster, kai_namespace) >= PODS)
    phases = sorted(dict(one).popitem() for one in _phases(kai_cluster, kai_namespace).values())
    assert phases == [("Pending", PODS), ("Running", PODS)]

    _clear(kai_cluster, kai_namespace)
    _submit(kai_cluster, kai_namespace, "default-scheduler")
    wait_for(lambda: sum(one["Running"] for one in _phases(kai_cluster, kai_namespace).values()) == 12)
    wait_for(lambda: _refused(kai_cluster, kai_namespace) == 4)
    assert all(0 < one["Running"] < PODS for one in _phases(kai_cluster, kai_namespace).values())
    _clear(kai_cluster, kai_namespace)


def test_kai_listens_on_this_machine_only(kai_cluster: LocalCluster) -> None:
    at = listening(kai_cluster)
    assert set(kai_scheduler.KAI_PROCESSES) <= {name for name, _, _ in at}
    assert {address for _, address, _ in at} == {"127.0.0.1"}


def test_its_schedulers_and_the_limits_of_its_parts_are_recorded(kai_cluster: LocalCluster) -> None:
    assert kai_cluster.schedulers == ("default-scheduler", "kai-scheduler")
    known = {one.name: one for one in kai_cluster.components}
    assert set(known) == {*control_plane.COMPONENT_NAMES, *kai_scheduler.KAI_PROCESSES}
    started = commands(kai_cluster)
    for name in kai_scheduler.KAI_PROCESSES:
        limit = QUICK.get(name, DEFAULT_LIMITS[name])
        assert (known[name].client_qps, known[name].client_burst) == (limit.qps, limit.burst)
        assert f"--qps={limit.qps:.0f}" in started[name]
        assert f"--burst={limit.burst}" in started[name]
