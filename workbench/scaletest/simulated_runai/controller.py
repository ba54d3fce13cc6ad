"""The controller: each object that is seen has what follows from it made. Seen again, nothing is made twice."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.simulated_runai import objects
from workbench.scaletest.simulated_runai.definitions import JOBS, POD_GROUP, WORKLOADS, Installed, install
from workbench.scaletest.simulated_runai.objects import MARK, Json, UnfitError
from workbench.scaletest.simulated_runai.volumes import Volumes
from workbench.scaletest.simulated_runai.watch import Following
from workbench.scaletest.simulated_runai.work import LaterError, Work

MARKED = f"{MARK}=true"
KAI = "kai-scheduler"
PODS = "/api/v1/pods"
_MERGE = "application/merge-patch+json"
_CONFLICT = 409


class Controller:
    """Workloads to jobs, jobs to pods and claims, the first pod to a pod group, pods to a phase.

    Attributes
    ----------
    scheduler
        schedulerName of the pods.
    """

    def __init__(self, api: Connection, installed: Installed, *, scheduler: str) -> None:
        self.api, self.installed, self.scheduler = api, installed, scheduler
        self.work = Work()
        self._jobs: dict[str, Json] = {}
        self._workloads: dict[str, Json] = {}
        self._pods: dict[str, dict[str, str]] = {}  # job's uid -> pod's name -> phase
        self._told: dict[str, str] = {}  # uid -> phase
        volumes = Volumes(api, self.work)
        self.follows = [
            *(Following(api, kind.path(), self._workload) for kind in WORKLOADS),
            *(Following(api, kind.path(), self._job, selector=MARKED) for kind in JOBS),
            Following(api, PODS, self._pod, selector=MARKED),
            *volumes.follows(MARKED),
        ]

    async def run(self, ready: asyncio.Event) -> None:
        """Until it is cancelled; `ready` is set once all is watched."""
        async with asyncio.TaskGroup() as group:
            for one in self.follows:
                group.create_task(one.run())
            group.create_task(self.work.run())
            for one in self.follows:
                await one.ready.wait()
            ready.set()

    def _workload(self, event: str, workload: Json) -> None:
        uid = workload["metadata"]["uid"]
        if event == "DELETED" or workload["metadata"].get("deletionTimestamp"):
            self._workloads.pop(uid, None)
            return
        new = uid not in self._workloads
        self._workloads[uid] = workload
        if new or event == "ADDED":
            self.work.add(("job", uid), lambda: self._make_job(workload))

    async def _make_job(self, workload: Json) -> None:
        try:
            job = objects.job_of(workload)
        except UnfitError as error:
            await self._tell(workload, "Failed", str(error))
            return
        await self._ensure(objects.job_kind(workload).path(workload["metadata"]["namespace"]), job)

    def _job(self, event: str, job: Json) -> None:
        uid = job["metadata"]["uid"]
        if event == "DELETED" or job["metadata"].get("deletionTimestamp"):
            self._jobs.pop(uid, None)
            self._pods.pop(uid, None)
            return
        new = uid not in self._jobs
        self._jobs[uid] = job
        if new or event == "ADDED":
            self.work.add(("pods", uid), lambda: self._make_pods(job))

    async def _make_pods(self, job: Json) -> None:
        core = f"/api/v1/namespaces/{job['metadata']['namespace']}"
        for claim in objects.claims_of(job):
            await self._ensure(f"{core}/persistentvolumeclaims", claim)
        for pod in objects.pods_of(job, scheduler=self.scheduler):
            await self._ensure(f"{core}/pods", pod)

    def _pod(self, event: str, pod: Json) -> None:
        owner = _owner_uid(pod)
        job = self._jobs.get(owner)
        if event == "DELETED":
            self._pods.get(owner, {}).pop(pod["metadata"]["name"], None)
            if job is not None:  # evicted: made again, as a job's controller does
                self.work.add(("pods", owner), lambda: self._make_pods(job))
            return
        first = owner not in self._pods
        self._pods.setdefault(owner, {})[pod["metadata"]["name"]] = str((pod.get("status") or {}).get("phase"))
        if first and self.installed.makes_pod_groups:
            self.work.add(("group", owner), lambda: self._make_group(pod))
        if job is not None:
            self._phase(job)

    async def _make_group(self, pod: Json) -> None:
        owner = _owner_uid(pod)
        job = self._jobs.get(owner)
        if job is None:
            # Pods and jobs are told by two watches: the pod's may be ahead, or the job gone.
            if owner in self._pods and await self._exists(pod):
                raise LaterError
            return
        await self._ensure(POD_GROUP.path(pod["metadata"]["namespace"]), objects.group_of(pod, job))

    async def _exists(self, pod: Json) -> bool:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        answer = await self.api.request("GET", path)
        return bool(answer.status == 200 and answer.json().get("metadata", {}).get("uid") == metadata["uid"])

    def _phase(self, job: Json) -> None:
        """A job, and its workload, runs when all its pods do."""
        uid = job["metadata"]["uid"]
        phases = list(self._pods.get(uid, {}).values())
        members = 1 + int(job["spec"].get("workers", 0))
        if len(phases) < members or set(phases) != {"Running"} or self._told.get(uid) == "Running":
            return
        self._told[uid] = "Running"
        self.work.add(("phase", uid), lambda: self._tell(job, "Running"))
        workload = self._workloads.get(_owner_uid(job))
        if workload is not None:
            self.work.add(("phase", workload["metadata"]["uid"]), lambda: self._tell(workload, "Running"))

    async def _tell(self, thing: Json, phase: str, message: str = "") -> None:
        metadata = thing["metadata"]
        kind = next(one for one in (*WORKLOADS, *JOBS) if one.name == thing["kind"])
        body = orjson.dumps({"status": {"phase": phase, **({"message": message} if message else {})}})
        path = f"{kind.path(metadata['namespace'])}/{metadata['name']}/status"
        answer = await self.api.request("PATCH", path, body=body, content_type=_MERGE)
        if answer.status >= 300:
            raise ApiError("refused", status=answer.status, where=path)

    async def _ensure(self, path: str, body: Json) -> None:
        """Make it, or find it made for the same owner."""
        try:
            await self.api.json("POST", path, body)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            answer = await self.api.request("GET", f"{path}/{body['metadata']['name']}")
            if answer.status != 200 or _owner_uid(answer.json()) != _owner_uid(body):
                # An older one of the same name is still being collected.
                raise LaterError from None


def _owner_uid(thing: Any) -> str:
    owners = (thing.get("metadata") or {}).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


async def run(api: Connection, ready: asyncio.Event, *, scheduler: str | None = None) -> None:
    """Install what is missing and be the controller until cancelled.

    Parameters
    ----------
    scheduler
        schedulerName of the pods; KAI's where KAI's pod groups are installed, else the stock scheduler's.
    """
    installed = await install(api)
    chosen = scheduler or ("default-scheduler" if installed.makes_pod_groups else KAI)
    await Controller(api, installed, scheduler=chosen).run(ready)
