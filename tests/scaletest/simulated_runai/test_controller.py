""""""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.scaletest.simulated_runai.conftest import Json, admin, make, pods, running, until, workload
from workbench.scaletest.cluster_api.connection import ApiError, UnreachableError
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.simulated_runai.controller import LaterError, WorkQueue
from workbench.scaletest.simulated_runai.runai_objects import DISTRIBUTED, POD_GROUP, PYTORCH_JOB, RUNAI_JOB, TRAINING

pytestmark = pytest.mark.cluster
Objects = list[Json]


async def test_a_training_workload_becomes_a_job_a_pod_and_a_pod_group(
    runai_cluster: LocalCluster, project: str
) -> None:
    async with admin(runai_cluster) as api:
        await make(api, TRAINING, workload("j-00000a", project))
        made = await until(api, pods(project), running(1))
        groups = await until(api, POD_GROUP.path(f"runai-{project}"), lambda items: len(items) == 1)
        await until(api, TRAINING.path(f"runai-{project}"), running(1))
        jobs = await until(api, RUNAI_JOB.path(f"runai-{project}"), running(1))
    labels = made[0]["metadata"]["labels"]
    assert (labels["release"], labels["job-name"], labels["mine"]) == ("j-00000a", "j-00000a", "yes")
    assert made[0]["metadata"]["ownerReferences"][0]["uid"] == jobs[0]["metadata"]["uid"]
    assert made[0]["spec"]["nodeSelector"] == {"workbench.local/sim": "true"}
    assert groups[0]["metadata"]["labels"]["release"] == groups[0]["metadata"]["labels"]["workloadName"] == "j-00000a"
    assert jobs[0]["metadata"]["name"] == "j-00000a"


async def test_a_distributed_workload_becomes_a_master_and_its_workers(
    runai_cluster: LocalCluster, project: str
) -> None:
    async with admin(runai_cluster) as api:
        await make(api, DISTRIBUTED, workload("j-00000b", project, "DistributedWorkload", workers="4"))
        made = await until(api, pods(project), running(5))
        await until(api, PYTORCH_JOB.path(f"runai-{project}"), running(1))
        groups = await until(api, POD_GROUP.path(f"runai-{project}"), lambda items: bool(items))
    assert sorted(one["metadata"]["name"] for one in made) == [
        "j-00000b-master-0",
        *(f"j-00000b-worker-{i}" for i in range(4)),
    ]
    assert {one["metadata"]["labels"]["training.kubeflow.org/job-name"] for one in made} == {"j-00000b"}
    assert [one["spec"]["minMember"] for one in groups] == [5]


async def test_volumes_are_provisioned_and_go_with_their_claim(runai_cluster: LocalCluster, project: str) -> None:
    volume = {"value": {"size": "1Mi", "storageClass": "openebs-lvmpv", "ephemeral": True}}
    async with admin(runai_cluster) as api:
        await make(api, TRAINING, workload("j-00000c", project, pvcs={"items": {"pvc-new-0": volume}}))
        await until(api, pods(project), running(1))
        claims = await until(api, f"/api/v1/namespaces/runai-{project}/persistentvolumeclaims", bool)
        events = await until(
            api,
            f"/api/v1/namespaces/runai-{project}/events",
            lambda items: {"ExternalProvisioning", "ProvisioningSucceeded"} <= {one["reason"] for one in items},
        )
        await api.json("DELETE", f"{TRAINING.path(f'runai-{project}')}/j-00000c")
        mine = claims[0]["metadata"]["uid"]
        await until(
            api,
            "/api/v1/persistentvolumes",
            lambda items: mine not in [one["spec"]["claimRef"]["uid"] for one in items],
        )
    assert claims[0]["status"]["phase"] == "Bound"
    about = {one["involvedObject"]["name"] for one in events if one["reason"] == "ProvisioningSucceeded"}
    assert about == {"j-00000c-pvc-new-0"}


async def test_what_is_deleted_goes_with_all_that_it_made(runai_cluster: LocalCluster, project: str) -> None:
    async with admin(runai_cluster) as api:
        await make(api, TRAINING, *(workload(f"j-00001{i}", project) for i in range(3)))
        await until(api, pods(project), running(3))
        await api.json("DELETE", TRAINING.path(f"runai-{project}"))
        for path in (pods(project), *(kind.path(f"runai-{project}") for kind in (RUNAI_JOB, POD_GROUP, TRAINING))):
            await until(api, path, lambda items: not items)


async def test_an_evicted_pod_is_made_again(runai_cluster: LocalCluster, project: str) -> None:
    async with admin(runai_cluster) as api:
        await make(api, TRAINING, workload("j-00000d", project))
        first = (await until(api, pods(project), running(1)))[0]["metadata"]["uid"]
        await api.json("DELETE", f"{pods(project)}/j-00000d-0-0")
        again = await until(
            api, pods(project), lambda items: [one["metadata"]["uid"] for one in items if one] not in ([], [first])
        )
    assert again[0]["metadata"]["uid"] != first


async def test_a_workload_that_cannot_be_understood_says_why(runai_cluster: LocalCluster, project: str) -> None:
    async with admin(runai_cluster) as api:
        await make(api, TRAINING, workload("j-00000e", project, gpu="a lot"))
        found = await until(
            api, TRAINING.path(f"runai-{project}"), lambda items: bool(items[0].get("status", {}).get("phase"))
        )
    assert found[0]["status"] == {"phase": "Failed", "message": "spec.gpu.value is no number of GPUs: 'a lot'"}


LIMIT_S = 60


def worked(add: Callable[[WorkQueue, asyncio.Event], None]) -> WorkQueue:
    """The work, once the event that it is given is set."""

    async def go() -> WorkQueue:
        work, done = WorkQueue(), asyncio.Event()
        running = asyncio.create_task(work.run())
        add(work, done)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return work

    return asyncio.run(go())


def failing(errors: list[Exception], done: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def task() -> None:
        if errors:
            raise errors.pop(0)
        done.set()

    return task


def test_what_fails_for_now_is_done_again() -> None:
    errors = [UnreachableError("gone"), LaterError(), ApiError("busy", status=429), ApiError("ill", status=500)]
    worked(lambda work, done: work.add("a", failing(errors, done)))
    assert not errors


def test_what_is_refused_for_good_is_counted_and_left() -> None:
    errors: list[Exception] = [ApiError("no", status=403, reason="Forbidden")]
    left: list[Exception] = []

    def add(work: WorkQueue, done: asyncio.Event) -> None:
        work.add("a", failing(errors, asyncio.Event()))
        work.add("b", failing(left, done))

    assert worked(add).refused == {"403 Forbidden": 1}


def test_what_waits_already_is_not_added_again() -> None:
    calls: list[int] = []

    def add(work: WorkQueue, done: asyncio.Event) -> None:
        async def count() -> None:
            calls.append(1)

        for _ in range(5):
            work.add("a", count)
        work.add("b", failing([], done))

    worked(add)
    assert len(calls) == 1
