from __future__ import annotations

import asyncio

import pytest

from tests.fakes.runai_operator import run_simulated_runai
from tests.scaletest.simulated_runai.conftest import Json, admin, make, pods, running, until, workload
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.simulated_runai.runai_objects import POD_GROUP, TRAINING

pytestmark = pytest.mark.cluster
Objects = list[Json]


def test_nothing_is_lost_over_a_restart(local_cluster: LocalCluster, project: str) -> None:
    """Workloads come while nobody is there, and pods are lost; both are seen to afterwards. Nothing is made twice."""
    config = (local_cluster.kubeconfig, local_cluster.context)

    async def first() -> None:
        async with admin(local_cluster) as api:
            await make(api, TRAINING, workload("j-00000f", project))
            await until(api, pods(project), running(1))

    async def between() -> None:
        async with admin(local_cluster) as api:
            await make(api, TRAINING, workload("j-000010", project))
            await api.json("DELETE", f"{pods(project)}/j-00000f-0-0")
            await until(api, pods(project), lambda items: not items)

    async def after() -> tuple[Objects, Objects]:
        async with admin(local_cluster) as api:
            found = await until(api, pods(project), running(2))
            return found, await until(api, POD_GROUP.path(f"runai-{project}"), lambda items: len(items) == 2)

    with run_simulated_runai(*config):
        asyncio.run(first())
    asyncio.run(between())
    with run_simulated_runai(*config):
        made, groups = asyncio.run(after())
    assert [one["metadata"]["name"] for one in made] == ["j-00000f-0-0", "j-000010-0-0"]
    assert {one["metadata"]["labels"]["release"] for one in groups} == {"j-00000f", "j-000010"}
