"""Where KAI is installed its own PodGroup stands: another version, made by KAI's pod grouper."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from tests.fakes.runai_operator import run_simulated_runai
from tests.scaletest.simulated_runai.conftest import Json, admin, make, pods, running, until, workload
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.compat_runai import runai_sampler
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.simulated_runai.runai_objects import POD_GROUP, TRAINING

pytestmark = pytest.mark.cluster


def test_kai_places_the_pods_and_makes_their_groups(kai_cluster: LocalCluster, tmp_path: Path) -> None:
    project = f"p{secrets.token_hex(4)}"
    space = f"runai-{project}"

    async def go() -> tuple[list[Json], int, runai_sampler.SampleResult]:
        async with admin(kai_cluster) as api:
            labels = {api_discovery.ALLOW: "true", api_discovery.MANAGED_BY: api_discovery.MANAGER}
            await api.json("POST", "/api/v1/namespaces", {"metadata": {"name": space, "labels": labels}})
            await until(api, f"/api/v1/namespaces/{space}/serviceaccounts", bool)
            await make(api, TRAINING, *(workload(f"j-00000{i}", project) for i in range(2)))
            made = await until(api, pods(project), running(2))
            old = await api.request("GET", POD_GROUP.path(space))
            path = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{space}/podgroups"
            await until(api, path, lambda items: len(items) == 2)
            found = await runai_sampler.sample_once(api, runai_sampler.SampleOptions(tmp_path, "training", space))
            await api.request("DELETE", f"/api/v1/namespaces/{space}")
            return made, old.status, found

    with run_simulated_runai(kai_cluster.kubeconfig, kai_cluster.context):
        made, old, found = asyncio.run(go())
    assert {one["spec"]["schedulerName"] for one in made} == {"kai-scheduler"}
    # What the old tool's sampler asks for is not there; ours takes the version that is.
    assert old == 404
    assert found.snapshot.counts["pod groups"] == 2
