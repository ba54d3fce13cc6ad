"""Simulated nodes that fail, are drained and come back at a time, while a test runs on a local cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import orjson

from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection, now_ns
from workbench.scaletest.local_cluster import simulated_nodes
from workbench.scaletest.local_cluster.cluster_record import NodePool
from workbench.scaletest.scenario.scenario_file import NodeChange
from workbench.scaletest.scenario.workload_plan import Plan
from workbench.scaletest.submission.submission_journal import read_journal
from workbench.scaletest.test_run.run_options import ClusterAccess

NodeState = Literal["up", "failed", "drained"]
_LOOK_EVERY_S = 0.1
_READY_LIMIT_S = 60.0


def list_node_states(changes: Sequence[NodeChange], names: Sequence[str], at_s: float) -> dict[str, NodeState]:
    """State of each node at a moment; the same for the same plan, also after a crash.

    >>> changes = [NodeChange(at_s=1, do="fail", nodes=1), NodeChange(at_s=2, do="drain", nodes=1)]
    >>> changes.append(NodeChange(at_s=3, do="return", nodes=1))
    >>> [list(list_node_states(changes, ["a", "b", "c"], at_s).values()) for at_s in (0, 1, 2, 3)]
    [['up', 'up', 'up'], ['up', 'up', 'failed'], ['up', 'drained', 'failed'], ['up', 'drained', 'up']]
    """
    states: dict[str, NodeState] = dict.fromkeys(names, "up")
    gone: list[str] = []
    for change in changes:
        if change.at_s > at_s:
            break
        if change.do == "return":
            states |= dict.fromkeys(gone[: change.nodes], "up")
            gone = gone[change.nodes :]
            continue
        taken = [name for name in reversed(names) if states[name] == "up"][: change.nodes]
        states |= dict.fromkeys(taken, "failed" if change.do == "fail" else "drained")
        gone += taken
    return states


def check_node_changes(plan: Plan, place: ClusterAccess) -> None:
    """Refuse changes of nodes that are not simulated by us, or are not as many."""
    changes = plan.scenario.node_changes
    if not changes:
        return
    if place.own is None:
        raise ConfigError(
            "nodes can be made to fail on a local cluster only",
            where="node_changes",
            found=f"context {place.context}",
            do="remove node_changes from the scenario, or run it with --cluster",
        )
    gone = peak = 0
    for change in changes:
        gone += -change.nodes if change.do == "return" else change.nodes
        peak = max(peak, gone)
    if peak > place.own.nodes:
        raise ConfigError(
            "more nodes are removed than exist", where="node_changes", found=peak, allowed=place.own.nodes
        )


async def restore_nodes(admin: Connection, pools: Sequence[NodePool]) -> None:
    """Make all nodes of a local cluster present and ready for pods, whatever an interrupted test left of them."""
    states = await _read_states(admin, pools)
    if set(states.values()) != {"up"}:
        await _change_nodes(admin, pools, states, dict.fromkeys(states, "up"))
        await simulated_nodes.wait_for_nodes(admin, len(states), timeout_s=_READY_LIMIT_S)


async def change_nodes(
    admin: Connection, folder: Path, changes: Sequence[NodeChange], pools: Sequence[NodePool]
) -> None:
    """Make the nodes what the plan says at each moment, from what they are: also after a crash."""
    while (origin_ns := read_journal(folder).origin_ns) is None:
        await asyncio.sleep(_LOOK_EVERY_S)
    moments = sorted({change.at_s for change in changes})
    elapsed_s = (now_ns() - origin_ns) / NS_PER_S
    # Of moments that have passed, the last: a resumed run goes on from there.
    for at_s in [
        *[moment_s for moment_s in moments if moment_s <= elapsed_s][-1:],
        *[moment_s for moment_s in moments if moment_s > elapsed_s],
    ]:
        await asyncio.sleep(max(0.0, at_s - (now_ns() - origin_ns) / NS_PER_S))
        states = await _read_states(admin, pools)
        await _change_nodes(admin, pools, states, list_node_states(changes, list(states), at_s))


async def _read_states(admin: Connection, pools: Sequence[NodePool]) -> dict[str, NodeState]:
    nodes = {node["metadata"]["name"]: node for node in await simulated_nodes.list_nodes(admin)}
    states: dict[str, NodeState] = {}
    for name in (str(node["metadata"]["name"]) for node in simulated_nodes.build_nodes(pools)):
        is_cordoned = name in nodes and nodes[name]["spec"].get("unschedulable")
        states[name] = "failed" if name not in nodes else "drained" if is_cordoned else "up"
    return states


async def _change_nodes(
    admin: Connection, pools: Sequence[NodePool], states: Mapping[str, NodeState], wanted: Mapping[str, NodeState]
) -> None:
    changed = {name: state for name, state in wanted.items() if state != states[name]}
    # What failed is made anew before it is drained, too.
    if back := {name for name, state in changed.items() if states[name] == "failed"}:
        await simulated_nodes.create_nodes(admin, pools, only=back)
    async with asyncio.TaskGroup() as group:
        for name, state in changed.items():
            if state == "failed":
                group.create_task(_request(admin, "DELETE", f"/api/v1/nodes/{name}"))
            elif state == "drained":
                group.create_task(_drain_node(admin, name))
            elif states[name] == "drained":
                group.create_task(_set_unschedulable(admin, name, on=False))


async def _drain_node(admin: Connection, name: str) -> None:
    await _set_unschedulable(admin, name, on=True)
    document = await admin.json("GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={name}"})
    for pod in document["items"]:
        space, pod_name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod_name, "namespace": space}}
        await _request(admin, "POST", f"/api/v1/namespaces/{space}/pods/{pod_name}/eviction", orjson.dumps(body))


async def _set_unschedulable(admin: Connection, name: str, *, on: bool) -> None:
    body = orjson.dumps({"spec": {"unschedulable": on or None}})
    await _request(admin, "PATCH", f"/api/v1/nodes/{name}", body, "application/merge-patch+json")


async def _request(
    admin: Connection, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
) -> None:
    answer = await admin.request(method, path, body=body, content_type=kind)
    # 404: it was gone before, by a crash or its own end.
    if answer.status >= 300 and answer.status != 404:
        raise RunFailedError("a node could not be changed", where=path, found=answer.refusal)
