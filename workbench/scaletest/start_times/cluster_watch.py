"""A cluster's objects over the API, read only: as they are now, or as they change for some time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api.api_discovery import NODES, PODS, find_newest_resource
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.cluster_api.list_watch import ResourceFollower, iterate_items
from workbench.scaletest.start_times.cluster_objects import ClusterObjects, build_state
from workbench.scaletest.start_times.cluster_state import ClusterState

Json = dict[str, Any]
_KUEUE = "kueue.x-k8s.io"
_KUEUE_PARTS = {
    "cluster_queues": "clusterqueues",
    "local_queues": "localqueues",
    "flavours": "resourceflavors",
    "kueue_workloads": "workloads",
}
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SAVE_S = 60.0


async def look_at_cluster(target: Target) -> ClusterState:
    """State of a cluster at this moment."""
    async with Connection(target, max_connections=8) as api:
        objects, version = ClusterObjects(), await _read_version(api)
        for part, path in (await _list_paths(api)).items():
            store: dict[str, Json] = getattr(objects, part)
            async for body in iterate_items(api, path):
                store[_read_uid(body)] = prune(body)
        return build_state(objects, now_s=time.time(), version=version)


async def record_cluster(target: Target, duration_s: float, save: Callable[[ClusterState], None]) -> ClusterState:
    """State of a cluster over some time; `save` gets it every minute, and at the end or when it is cancelled."""
    async with Connection(target, max_connections=16) as api:
        objects, version = ClusterObjects(), await _read_version(api)
        followers = {
            part: ResourceFollower(api, path, _build_handler(objects, part))
            for part, path in (await _list_paths(api)).items()
        }
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(follower.run()) for follower in followers.values()]
            for follower in followers.values():
                await follower.ready.wait()
            begun_s = time.time()
            try:
                while (left_s := begun_s + duration_s - time.time()) > 0:
                    await asyncio.sleep(min(SAVE_S, left_s))
                    save(build_state(objects, now_s=time.time(), span_s=time.time() - begun_s, version=version))
            finally:
                for task in tasks:
                    task.cancel()
                state = build_state(objects, now_s=time.time(), span_s=time.time() - begun_s, version=version)
                if followers["pods"].lists > 1:
                    state = state.model_copy(update={"notes": (_BREAKS,)})
                save(state)
        return state


_BREAKS = "the watch of pods broke off: pods that were deleted meanwhile seem to run on"


def _build_handler(objects: ClusterObjects, part: str) -> Callable[[str, Json], None]:
    store: dict[str, Json] = getattr(objects, part)

    def handle(change: str, body: Json) -> None:
        uid = _read_uid(body)
        if change == "DELETED":
            # What has ended says how long it ran; of nodes it counts that they went; all else says nothing.
            if part == "pods":
                store[uid] = prune(body)
            else:
                store.pop(uid, None)
            if part in ("pods", "nodes"):
                objects.gone_s[uid] = time.time()
        else:
            store[uid] = prune(body)

    return handle


async def _list_paths(api: Connection) -> dict[str, str]:
    paths = {"nodes": NODES.path(), "pods": PODS.path(), "priority_classes": _CLASSES}
    for part, plural in _KUEUE_PARTS.items():
        if (found := await find_newest_resource(api, _KUEUE, plural)) is not None:
            paths[part] = found[0].path()
    return paths


async def _read_version(api: Connection) -> str:
    return str((await api.json("GET", "/version")).get("gitVersion", ""))[:80]


def _read_uid(body: Json) -> str:
    return str((body.get("metadata") or {}).get("uid"))


def prune(body: Json) -> Json:
    """An object without what placing it does not need: no commands, variables or images of containers."""
    pruned = dict(body)
    with contextlib.suppress(KeyError):
        pruned["metadata"] = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    spec = body.get("spec")
    if isinstance(spec, dict) and "containers" in spec:
        pruned["spec"] = _prune_pod_spec(spec)
    if isinstance(spec, dict) and "podSets" in spec:
        pruned["spec"] = {**spec, "podSets": [_prune_pod_set(part) for part in spec["podSets"] or []]}
    return pruned


def _prune_pod_set(part: Json) -> Json:
    template = part.get("template") or {}
    return {**part, "template": {**template, "spec": _prune_pod_spec(template.get("spec") or {})}}


def _prune_pod_spec(spec: Json) -> Json:
    kept = {
        kind: [{key: one.get(key) for key in ("resources", "restartPolicy")} for one in spec.get(kind) or []]
        for kind in ("containers", "initContainers")
    }
    return {**spec, **kept}
