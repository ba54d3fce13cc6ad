"""States of API objects: what counts as a workload, its times, rules and queue; and what never gets into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scaletest.start_times.making_states import GPU
from workbench.core.errors import InputError
from workbench.scaletest.start_times.cluster_objects import ClusterObjects, build_state, find_family, read_job
from workbench.scaletest.start_times.cluster_state import (
    ClusterState,
    NodeState,
    PriorityClass,
    QueueState,
    read_state,
    write_state,
)
from workbench.scaletest.start_times.cluster_watch import prune

NOW_S = 1_800_000_000.0
SECRET = "hunter2-canary"


def stamp(before_s: float) -> str:
    """A time so long before now, as Kubernetes writes it."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(NOW_S - before_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_pod(name: str, *, created: float = 100, scheduled: float | None = None, **fields: Any) -> dict[str, Any]:
    """A pod as the API shows it, with a secret in each place where one may lie."""
    spec = {
        "containers": [
            {
                "name": "main",
                "image": SECRET,
                "command": [SECRET],
                "env": [{"name": "TOKEN", "value": SECRET}],
                "resources": {"requests": {"cpu": "500m", GPU: "2"}, "limits": {GPU: "2"}},
            }
        ],
        **fields.pop("spec", {}),
    }
    status: dict[str, Any] = {"phase": "Pending", "conditions": []}
    if scheduled is not None:
        spec["nodeName"] = "n0"
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(scheduled)}
        status = {"phase": "Running", "conditions": [condition]}
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "creationTimestamp": stamp(created),
        "annotations": {"note": SECRET},
        **fields.pop("metadata", {}),
    }
    return {"metadata": metadata, "spec": spec, "status": {**status, **fields.pop("status", {})}}


def make_objects(*pods: dict[str, Any], **parts: list[dict[str, Any]]) -> ClusterObjects:
    """Objects by their uids."""
    objects = ClusterObjects(pods={pod["metadata"]["uid"]: prune(pod) for pod in pods})
    for part, bodies in parts.items():
        setattr(objects, part, {body["metadata"]["name"]: prune(body) for body in bodies})
    return objects


def test_pods_of_a_job_are_one_workload() -> None:
    owner = {"ownerReferences": [{"kind": "Job", "name": "train-17", "controller": True}]}
    pods = [make_pod(f"train-17-{letter}", scheduled=60 - at, metadata=owner) for at, letter in enumerate("ab")]
    (workload,) = build_state(make_objects(*pods), now_s=NOW_S).workloads
    assert (workload.name, workload.family, workload.created_s) == ("team/train-17", "team/train", -100)
    assert (workload.started_s, workload.ended_s, workload.is_gang) == (-59, None, False)
    assert workload.pods[0].requests == {"cpu": 0.5, GPU: 2.0}


def test_ends_are_those_of_containers_or_of_the_deletion() -> None:
    ended = {"state": {"terminated": {"finishedAt": stamp(20)}}}
    done = make_pod("done-1", scheduled=90, status={"phase": "Succeeded", "containerStatuses": [ended]})
    objects = make_objects(done, make_pod("gone-1", scheduled=90), make_pod("never-1"))
    objects.gone_s = {"gone-1": NOW_S - 5, "never-1": NOW_S - 4}
    ends = {one.name: one.ended_s for one in build_state(objects, now_s=NOW_S).workloads}
    # What was deleted before it had a node is no run.
    assert ends == {"team/done-1": -20, "team/gone-1": -5}


def test_services_never_end() -> None:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-7c9f8d6b5f", "controller": True}]}
    (workload,) = build_state(make_objects(make_pod("web-x", scheduled=9, metadata=owner)), now_s=NOW_S).workloads
    assert workload.is_endless


def test_rules_and_what_is_not_simulated() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    pod = make_pod(
        "a-1",
        spec={
            "nodeSelector": {"pool": "gpu"},
            "affinity": {"nodeAffinity": required, "podAntiAffinity": apart},
            "tolerations": [{"key": "team", "operator": "Equal", "value": "x"}, {"key": "other", "operator": "Exists"}],
            "volumes": [{"persistentVolumeClaim": {"claimName": "data"}}],
        },
    )
    (workload,) = build_state(make_objects(pod), now_s=NOW_S).workloads
    rules = workload.pods[0].rules
    node = NodeState(name="n", offers={}, labels={"zone": "a", "pool": "gpu"})
    assert rules.allow(node)
    assert not rules.allow(node.model_copy(update={"labels": {"zone": "b", "pool": "gpu"}}))
    assert [toleration.value for toleration in rules.tolerations] == ["x", None]
    assert workload.unread == ("affinity to other pods", "volume claims")


@pytest.mark.parametrize(
    ("gates", "annotations", "unread"),
    [
        # Kueue's topology holds every pod that waits for quota, also where none is asked for.
        (["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"], {}, ()),
        (["example.com/license"], {}, ("scheduling gates",)),
        ([], {"kueue.x-k8s.io/podset-required-topology": "rack"}, ("Kueue's topology",)),
    ],
)
def test_gates_of_a_quota_are_simulated_and_others_are_not(
    gates: list[str], annotations: dict[str, str], unread: tuple[str, ...]
) -> None:
    pod = make_pod("a", spec={"schedulingGates": [{"name": gate} for gate in gates]})
    pod["metadata"]["annotations"] = annotations
    (workload,) = build_state(make_objects(pod), now_s=NOW_S).workloads
    assert workload.unread == unread


def test_what_waits_for_kueue_has_pods_before_they_are_made() -> None:
    template = {"spec": make_pod("x")["spec"]}
    suspended = {
        "metadata": {
            "name": "job-train-3-abc",
            "namespace": "team",
            "creationTimestamp": stamp(50),
            "ownerReferences": [{"kind": "Job", "name": "train-3"}],
        },
        "spec": {"queueName": "gpus", "priority": 7, "podSets": [{"count": 3, "template": template}]},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]},
    }
    local = {"metadata": {"name": "gpus", "namespace": "team"}, "spec": {"clusterQueue": "red"}}
    quota = {"name": GPU, "nominalQuota": "8", "borrowingLimit": "2"}
    red = {
        "metadata": {"name": "red"},
        "spec": {
            "cohort": "all",
            "queueingStrategy": "StrictFIFO",
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [quota]}]}],
            "preemption": {"reclaimWithinCohort": "Any"},
        },
    }
    objects = make_objects(cluster_queues=[red], local_queues=[local], kueue_workloads=[suspended])
    state = build_state(objects, now_s=NOW_S)
    (workload,) = state.workloads
    assert (workload.name, workload.queue, workload.priority, len(workload.pods)) == ("team/train-3", "red", 7, 3)
    (queue,) = state.queues
    assert (queue.cohort, queue.is_strict, queue.reclaim) == ("all", True, "Any")
    assert queue.groups[0][0].quotas[GPU].borrowing == 2


def test_nodes_that_are_closed_or_tainted() -> None:
    def node(name: str, **spec: Any) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"cpu": "8", GPU: "4"}, "conditions": [ready]}
        return {"metadata": {"name": name, "labels": {"secret": SECRET, "zone": "a"}}, "spec": spec, "status": status}

    cordoned = {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}
    tainted = {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}
    pod = make_pod("a-1", spec={"nodeSelector": {"zone": "a"}})
    objects = make_objects(pod, nodes=[node("open"), node("closed", **cordoned), node("ours", **tainted)])
    nodes = {one.name: one for one in build_state(objects, now_s=NOW_S).nodes}
    assert [one.is_open for one in nodes.values()] == [True, False, True]
    assert nodes["ours"].taints[0].value == "x"
    # Labels that no pod asks for may be confidential.
    assert nodes["open"].labels == {"zone": "a"}


def test_nodes_that_came_or_went_are_counted() -> None:
    def node(name: str, created: float) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": name, "creationTimestamp": stamp(created)}, "status": {}}

    objects = make_objects(make_pod("a-1"), nodes=[node("old", 9000), node("new", 60)])
    objects.gone_s = {"a-1": NOW_S - 5, "gone-node": NOW_S - 9}
    assert build_state(objects, now_s=NOW_S, span_s=3600.0).n_changed_nodes == 2
    assert build_state(objects, now_s=NOW_S).n_changed_nodes == 1


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    state = build_state(make_objects(make_pod("a-1", scheduled=5)), now_s=NOW_S, span_s=60.0)
    path = write_state(state, tmp_path / "state.json")
    assert SECRET not in path.read_text()
    assert read_state(path) == state


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"moment": "x"}', '{"moment": "x", "nodes": 3}', '{"nodes": [NaN]}'])
def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(InputError, match="state"):
        read_state(path)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("train-bert-0017", "a/train-bert"),
        ("eval-x7k2p", "a/eval"),
        ("web-7c9f8d6b5f-x2k9z", "a/web"),
        ("20261130", "a/*"),
        ("night-2026-11-30-sort", "a/night-sort"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert find_family("a", name) == family


def make_manifest(**spec: Any) -> dict[str, Any]:
    """A Job of two pods of four GPUs."""
    container = {"name": "main", "resources": {"limits": {GPU: "4"}}}
    pod = {"metadata": {}, "spec": {"containers": [container], **spec}}
    metadata = {"name": "ask-1", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"parallelism": 2, "template": pod}}


def test_a_job_is_read_as_it_would_wait() -> None:
    state = ClusterState(
        moment="now",
        nodes=(),
        queues=(QueueState(name="red"),),
        local_queues={"team/gpus": "red"},
        priority_classes={"high": PriorityClass(value=9, preempts=False)},
    )
    job = read_job(make_manifest(priorityClassName="high"), state, where="job.yaml", namespace="team")
    assert (job.name, job.queue, job.priority, job.preempts) == ("team/ask-1", "red", 9, False)
    assert [pod.requests for pod in job.pods] == [{GPU: 4.0}] * 2


@pytest.mark.parametrize(
    ("document", "namespace", "match"),
    [
        ("text", "team", "not a workload's manifest"),
        ({"kind": "Job", "spec": {}}, "team", "no pods|not a workload's"),
        (make_manifest(priorityClassName="none"), "team", "no such priority class"),
        (make_manifest(), "elsewhere", "no such queue"),
        (make_manifest(containers=[{"resources": {"limits": {GPU: "many"}}}]), "team", "not a workload's manifest"),
        (make_manifest(tolerations=["all"]), "team", "not a workload's manifest"),
        (make_manifest(nodeSelector={"zone": 3}), "team", "not a workload's manifest"),
    ],
)
def test_wrong_jobs_are_refused(document: Any, namespace: str, match: str) -> None:
    state = ClusterState(moment="now", nodes=(), queues=(QueueState(name="red"),), local_queues={"team/gpus": "red"})
    with pytest.raises(InputError, match=match):
        read_job(document, state, where="job.yaml", namespace=namespace)
