"""Controller of simulated-runai: a retrying work queue, workloads to jobs to pods, claims to volumes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Hashable
from datetime import UTC, datetime
from typing import Any

import orjson

from workbench.core.errors import ConfigError, WorkbenchError
from workbench.kubernetes.client import Target
from workbench.kubernetes.manifests import Object, build_object
from workbench.scaletest.cluster_api.connection import ApiError, Connection, UnreachableError
from workbench.scaletest.cluster_api.list_watch import ResourceFollower
from workbench.scaletest.simulated_runai import NAME, runai_objects
from workbench.scaletest.simulated_runai.runai_objects import (
    JOBS,
    MARK,
    OURS,
    POD_GROUP,
    PROVISIONER,
    WORKLOADS,
    UnfitError,
    install_kinds,
)

MAX_CONCURRENT_TASKS = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
# Refused for good: the namespace ends, or is gone, or the body is no such thing.
_FINAL = (400, 403, 404, 422)
Task = Callable[[], Awaitable[None]]
_ASKED = "volume.kubernetes.io/storage-provisioner"
MARK_SELECTOR = f"{MARK}=true"
KAI = "kai-scheduler"
PODS = "/api/v1/pods"
_MERGE = "application/merge-patch+json"
_CONFLICT = 409
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"


class LaterError(Exception):
    """Cannot be done yet: what is in the way will go."""


class WorkQueue:
    """A queue of tasks by key; a key that waits already is not added again."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[Hashable, Task, int]] = asyncio.Queue()
        self._keys: set[Hashable] = set()
        self.refused: dict[str, int] = {}
        self.done = 0

    def add(self, key: Hashable, task: Task) -> None:
        """Have it done soon."""
        if key not in self._keys:
            self._keys.add(key)
            self._waiting.put_nowait((key, task, 0))

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_TASKS):
                group.create_task(self._run_worker())

    async def _run_worker(self) -> None:
        while True:
            key, task, tries = await self._waiting.get()
            # Taken off before it is done: what changes meanwhile is added again.
            self._keys.discard(key)
            try:
                await task()
                self.done += 1
            except (UnreachableError, LaterError):
                self._retry_later(key, task, tries)
            except ApiError as error:
                if error.status in _FINAL:
                    reason = f"{error.status} {error.reason}"
                    self.refused[reason] = self.refused.get(reason, 0) + 1
                else:
                    self._retry_later(key, task, tries)

    def _retry_later(self, key: Hashable, task: Task, tries: int) -> None:
        def put_back() -> None:
            if key not in self._keys:
                self._keys.add(key)
                self._waiting.put_nowait((key, task, tries + 1))

        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 10))
        asyncio.get_running_loop().call_later(pause_s, put_back)


def build_volume(claim: Object) -> Object:
    """The volume of a claim; named by its uid, so that it is made once."""
    metadata, spec = claim["metadata"], claim["spec"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"]}
    name = f"pvc-{metadata['uid']}"
    volume = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": spec["accessModes"],
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": spec.get("storageClassName", ""),
        "claimRef": {**reference, "name": metadata["name"], "uid": metadata["uid"]},
        "csi": {"driver": PROVISIONER.replace("/", "."), "volumeHandle": name},
    }
    return build_object("v1", "PersistentVolume", name, labels=OURS | {MARK: "true"}, spec=volume)


def build_event(claim: Object) -> Object:
    """Build the event that a provisioner emits when it is done."""
    metadata = claim["metadata"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {**about, "name": metadata["name"], "uid": metadata["uid"]},
        "reason": "ProvisioningSucceeded",
        "message": f"simulated volume pvc-{metadata['uid']}",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": PROVISIONER},
    }


class RunaiController:
    """Workloads to jobs, jobs to pods and claims, the first pod to a pod group, pods to a phase, claims to volumes.

    Volumes whose claim is gone are deleted. Binding is the real controller-manager's.
    """

    def __init__(self, api: Connection, *, makes_pod_groups: bool, scheduler: str) -> None:
        self.api, self.makes_pod_groups, self.scheduler = api, makes_pod_groups, scheduler
        self.work = WorkQueue()
        self._jobs: dict[str, Object] = {}
        self._workloads: dict[str, Object] = {}
        self._pods: dict[str, dict[str, str]] = {}  # job's uid -> pod's name -> phase
        self._told: dict[str, str] = {}  # uid -> phase
        self.follows = [
            *(ResourceFollower(api, kind.path(), self._on_workload) for kind in WORKLOADS),
            *(ResourceFollower(api, kind.path(), self._on_job, selector=MARK_SELECTOR) for kind in JOBS),
            ResourceFollower(api, PODS, self._on_pod, selector=MARK_SELECTOR),
            ResourceFollower(api, CLAIMS, self._on_claim, selector=MARK_SELECTOR),
            ResourceFollower(api, VOLUMES, self._on_volume, selector=MARK_SELECTOR),
        ]

    async def run(self, ready: asyncio.Event) -> None:
        """Until it is cancelled; `ready` is set once all is watched."""
        async with asyncio.TaskGroup() as group:
            for follow in self.follows:
                group.create_task(follow.run())
            group.create_task(self.work.run())
            for follow in self.follows:
                await follow.ready.wait()
            ready.set()

    def _on_workload(self, event: str, workload: Object) -> None:
        uid = workload["metadata"]["uid"]
        if event == "DELETED" or workload["metadata"].get("deletionTimestamp"):
            self._workloads.pop(uid, None)
            return
        new = uid not in self._workloads
        self._workloads[uid] = workload
        if new or event == "ADDED":
            self.work.add(("job", uid), lambda: self._make_job(workload))

    async def _make_job(self, workload: Object) -> None:
        try:
            job = runai_objects.build_job(workload)
        except UnfitError as error:
            await self._set_phase(workload, "Failed", str(error))
            return
        await self._ensure_object(runai_objects.find_job_kind(workload).path(workload["metadata"]["namespace"]), job)

    def _on_job(self, event: str, job: Object) -> None:
        uid = job["metadata"]["uid"]
        if event == "DELETED" or job["metadata"].get("deletionTimestamp"):
            self._jobs.pop(uid, None)
            self._pods.pop(uid, None)
            return
        new = uid not in self._jobs
        self._jobs[uid] = job
        if new or event == "ADDED":
            self.work.add(("pods", uid), lambda: self._make_pods(job))

    async def _make_pods(self, job: Object) -> None:
        core = f"/api/v1/namespaces/{job['metadata']['namespace']}"
        for claim in runai_objects.build_claims(job):
            await self._ensure_object(f"{core}/persistentvolumeclaims", claim)
        for pod in runai_objects.build_pods(job, scheduler=self.scheduler):
            await self._ensure_object(f"{core}/pods", pod)

    def _on_pod(self, event: str, pod: Object) -> None:
        owner = _find_owner_uid(pod)
        job = self._jobs.get(owner)
        if event == "DELETED":
            self._pods.get(owner, {}).pop(pod["metadata"]["name"], None)
            if job is not None:  # evicted: made again, as a job's controller does
                self.work.add(("pods", owner), lambda: self._make_pods(job))
            return
        first = owner not in self._pods
        self._pods.setdefault(owner, {})[pod["metadata"]["name"]] = str((pod.get("status") or {}).get("phase"))
        if first and self.makes_pod_groups:
            self.work.add(("group", owner), lambda: self._make_group(pod))
        if job is not None:
            self._update_phase(job)

    async def _make_group(self, pod: Object) -> None:
        owner = _find_owner_uid(pod)
        job = self._jobs.get(owner)
        if job is None:
            # Pods and jobs are told by two watches: the pod's may be ahead, or the job gone.
            if owner in self._pods and await self._pod_exists(pod):
                raise LaterError
            return
        await self._ensure_object(POD_GROUP.path(pod["metadata"]["namespace"]), runai_objects.build_pod_group(pod, job))

    async def _pod_exists(self, pod: Object) -> bool:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        answer = await self.api.request("GET", path)
        return bool(answer.status == 200 and answer.json().get("metadata", {}).get("uid") == metadata["uid"])

    def _on_claim(self, event: str, claim: Object) -> None:
        metadata = claim["metadata"]
        asks_us = (metadata.get("annotations") or {}).get(_ASKED) == PROVISIONER
        if event != "DELETED" and asks_us and not claim["spec"].get("volumeName"):
            self.work.add(("volume", metadata["uid"]), lambda: self._create_volume(claim))

    async def _create_volume(self, claim: Object) -> None:
        try:
            await self.api.json("POST", VOLUMES, build_volume(claim))
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            return
        path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/events"
        await self.api.json("POST", path, build_event(claim))

    def _on_volume(self, event: str, volume: Object) -> None:
        async def delete_volume() -> None:
            await self.api.json("DELETE", f"{VOLUMES}/{name}")

        name = volume["metadata"]["name"]
        if event != "DELETED" and (volume.get("status") or {}).get("phase") == "Released":
            self.work.add(("release", name), delete_volume)

    def _update_phase(self, job: Object) -> None:
        """A job, and its workload, runs when all its pods do."""
        uid = job["metadata"]["uid"]
        phases = list(self._pods.get(uid, {}).values())
        members = 1 + int(job["spec"].get("workers", 0))
        if len(phases) < members or set(phases) != {"Running"} or self._told.get(uid) == "Running":
            return
        self._told[uid] = "Running"
        self.work.add(("phase", uid), lambda: self._set_phase(job, "Running"))
        workload = self._workloads.get(_find_owner_uid(job))
        if workload is not None:
            self.work.add(("phase", workload["metadata"]["uid"]), lambda: self._set_phase(workload, "Running"))

    async def _set_phase(self, thing: Object, phase: str, message: str = "") -> None:
        metadata = thing["metadata"]
        kind = next(candidate for candidate in (*WORKLOADS, *JOBS) if candidate.name == thing["kind"])
        body = orjson.dumps({"status": {"phase": phase, **({"message": message} if message else {})}})
        path = f"{kind.path(metadata['namespace'])}/{metadata['name']}/status"
        answer = await self.api.request("PATCH", path, body=body, content_type=_MERGE)
        if answer.status >= 300:
            raise ApiError("refused", status=answer.status, where=path)

    async def _ensure_object(self, path: str, body: Object) -> None:
        """Make it, or find it made for the same owner."""
        try:
            await self.api.json("POST", path, body)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            answer = await self.api.request("GET", f"{path}/{body['metadata']['name']}")
            if answer.status != 200 or _find_owner_uid(answer.json()) != _find_owner_uid(body):
                # An older one of the same name is still being collected.
                raise LaterError from None


def _find_owner_uid(thing: Any) -> str:
    owners = (thing.get("metadata") or {}).get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


async def run_in_foreground(target: Target, *, scheduler: str | None, tell: Callable[[], None]) -> None:
    """Install what is missing and be the controller until SIGINT or SIGTERM; `tell` is called when it watches.

    `scheduler`: schedulerName of the pods; KAI's where KAI's pod groups are installed, else the stock scheduler's.
    """
    if not target.is_local:
        raise ConfigError(
            f"{NAME} is for clusters on this machine",
            where=f"context {target.context}",
            do="workbench scaletest cluster up",
        )
    ended, ready = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    async def tell_when_ready() -> None:
        await ready.wait()
        tell()

    async with Connection(target, max_connections=64) as api:

        async def run_controller() -> None:
            makes_pod_groups = await install_kinds(api)
            chosen = scheduler or ("default-scheduler" if makes_pod_groups else KAI)
            await RunaiController(api, makes_pod_groups=makes_pod_groups, scheduler=chosen).run(ready)

        tasks = [asyncio.create_task(work) for work in (run_controller(), tell_when_ready(), ended.wait())]
        try:
            await asyncio.wait([tasks[0], tasks[2]], return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                await tasks[0]
        except* WorkbenchError as group:
            raise group.exceptions[0] from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
