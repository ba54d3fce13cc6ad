"""Gangs on a real KAI: its scheduler takes what the plan makes, and cleanup takes its groups along."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.scaletest.making_scenarios import scenario
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.safety.cluster_facts import inspect_cluster
from workbench.scaletest.safety.cluster_setup import set_up_cluster
from workbench.scaletest.safety.preflight import run_preflight
from workbench.scaletest.safety.run_cleanup import write_run_record
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan

pytestmark = pytest.mark.cluster


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 120
    while not await holds():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.2)


async def bodies(api: Connection, path: str) -> list[dict[str, Any]]:
    """Objects of a collection."""
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


async def submitted(api: Connection, made: Plan) -> None:
    """Make all of a plan."""
    await write_run_record(api, made)
    for one in made.iterate_workloads():
        for request in one.requests():
            answer = await api.request("POST", request.path, body=request.body)
            assert answer.status == 201, answer.body


def test_gangs_run_on_kai_and_go_with_their_groups(kai_cluster: LocalCluster, kai_namespace: str) -> None:
    entries = [{"kind": "Gang", "pods": 4, "name": "gang"}, {"kind": "Pod"}, {"kind": "Job"}]
    arrival = {"process": "constant", "rate_per_s": 3, "n": 3}
    made = draw_plan(scenario(*entries, scheduler="kai", namespace=kai_namespace, arrival=arrival))
    groups = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{kai_namespace}/podgroups"
    pods = f"/api/v1/namespaces/{kai_namespace}/pods"

    async def measuring() -> None:
        async with Connection(load_target(kai_cluster.measure_kubeconfig, kai_cluster.measure_context)) as api:
            findings = await run_preflight(api, made, await inspect_cluster(api))
            assert {one.level for one in findings} == {"ok"}, findings
            await submitted(api, made)

            async def placed() -> bool:
                return all(one["spec"].get("nodeName") for one in await bodies(api, pods))

            await until("KAI did not place all pods", placed)
            gang = next(
                one for one in made.iterate_workloads() if one.index == made.schedule["entry"].to_list().index("gang")
            )
            found = {one["metadata"]["name"]: one["spec"]["minMember"] for one in await bodies(api, groups)}
            assert found[gang.name] == 4
            assert len(found) == 3  # the others' are of KAI's own pod grouper
            done = await run_cleanup.delete_recorded_run(api, made.run, [kai_namespace])
            assert done.complete, done

            async def none() -> bool:
                return not await bodies(api, groups)

            await until("pod groups are left", none)

    async def administrator() -> None:
        async with Connection(load_target(kai_cluster.kubeconfig, kai_cluster.context)) as api:
            await set_up_cluster(api, made, quota=False)

    asyncio.run(administrator())
    asyncio.run(measuring())
