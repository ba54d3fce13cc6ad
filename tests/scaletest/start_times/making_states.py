"""States of clusters for tests: nodes of eight GPUs, workloads that run, wait or have ended."""

from __future__ import annotations

from typing import Any

from workbench.scaletest.start_times.cluster_state import (
    ClusterState,
    FlavourQuotas,
    NodeState,
    PodState,
    QueueState,
    Quota,
    WorkloadState,
)

GPU = "nvidia.com/gpu"


def make_node(name: str, gpus: float = 8, **fields: Any) -> NodeState:
    """A node of an eight-GPU server."""
    offers = {"cpu": 96.0, "memory": 1e12, "pods": 110.0, GPU: gpus}
    return NodeState(name=name, offers=offers, **fields)


def make_workload(
    name: str,
    gpus: float = 1,
    *,
    pods: int = 1,
    created_s: float = 0.0,
    node: str | None = None,
    started_s: float | None = None,
    ended_s: float | None = None,
    cpus: float = 4,
    **fields: Any,
) -> WorkloadState:
    """A workload of equal pods; with a node it runs there."""
    if node is not None and started_s is None:
        started_s = created_s
    pod = PodState(
        requests={"cpu": cpus, GPU: gpus}, node=node, scheduled_s=started_s, ended_s=ended_s, **fields.pop("pod", {})
    )
    fields.setdefault("family", f"team/{name.rstrip('0123456789-')}")
    return WorkloadState(name=f"team/{name}", created_s=created_s, pods=(pod,) * pods, **fields)


def make_queue(name: str, gpus: float, *, borrowing: float | None = None, **fields: Any) -> QueueState:
    """A queue with a quota of GPUs."""
    quota = Quota(nominal=gpus, borrowing=borrowing, lending=fields.pop("lending", None))
    return QueueState(name=name, groups=((FlavourQuotas(flavour="default", quotas={GPU: quota}),),), **fields)


def make_state(*workloads: WorkloadState, n_nodes: int = 1, **fields: Any) -> ClusterState:
    """A cluster of equal nodes n0, n1, …"""
    nodes = fields.pop("nodes", tuple(make_node(f"n{number}") for number in range(n_nodes)))
    return ClusterState(moment="2026-11-30T12:00:00+00:00", nodes=nodes, workloads=workloads, **fields)
