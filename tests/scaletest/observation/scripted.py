"""A scripted stand-in for an API server: lists and watches of objects in memory, cut and spoilt as a test says."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from aiohttp import web

from tests.scaletest.serving import served
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api.connection import Connection

NAMESPACE = "workbench-scripted"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CREATED = "2026-11-22T03:00:00Z"
LIMIT_S = 30.0


async def until(true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Wait for a condition; the limit guards against hanging only."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.005)


def pod(name: str, *, phase: str = "Pending", node: str | None = None, **meta: Any) -> dict[str, Any]:
    """A pod as the API writes it, as far as it matters."""
    conditions = [] if node is None else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "creationTimestamp": CREATED, **meta},
        "spec": {} if node is None else {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    }


@dataclass
class Stream:
    """A watch that is open: what is put into `orders` is sent as it stands; null ends it, `CUT` breaks it off."""

    version: int
    orders: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)


CUT = b"\0cut"


@dataclass
class ScriptedApi:
    """State, and what to do wrong.

    `refuse` holds statuses that the next requests of a path with `watch` or `list` in front get: "watch /api/v1/pods".
    """

    version: int = 100
    oldest: int = 0
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    log: list[tuple[str, int, bytes]] = field(default_factory=list)
    streams: dict[str, list[Stream]] = field(default_factory=dict)
    refuse: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    resources: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    url: str = ""

    def target(self) -> Target:
        """To connect to it."""
        return Target(self.url, "scripted", None, lambda: {"User-Agent": "test"})

    def put(self, path: str, thing: dict[str, Any], kind: str | None = None) -> None:
        """Make or change an object, and tell all who watch."""
        self.version += 1
        kept = self.objects.setdefault(path, {})
        uid = thing["metadata"]["uid"]
        thing["metadata"]["resourceVersion"] = str(self.version)
        kind = kind or ("MODIFIED" if uid in kept else "ADDED")
        kept[uid] = thing
        self._tell(path, kind, thing)

    def remove(self, path: str, uid: str) -> None:
        """Delete an object, and tell all who watch."""
        self.version += 1
        thing = self.objects[path].pop(uid)
        thing["metadata"]["resourceVersion"] = str(self.version)
        self._tell(path, "DELETED", thing)

    def _tell(self, path: str, kind: str, thing: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": thing}).encode() + b"\n"
        self.log.append((path, self.version, line))
        for stream in self.streams.get(path, []):
            stream.orders.put_nowait(line)

    def send(self, path: str, order: bytes | None) -> None:
        """Give an order to all who watch."""
        for stream in self.streams.get(path, []):
            stream.orders.put_nowait(order)

    def bookmark(self, path: str) -> None:
        """Tell all who watch that they are up to date."""
        self.version += 1
        thing = {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}}
        self.send(path, json.dumps({"type": "BOOKMARK", "object": thing}).encode() + b"\n")

    def forget(self) -> None:
        """Compact: who asks for what was before gets 410."""
        self.version += 1
        self.oldest = self.version

    def watches(self, path: str) -> int:
        """How many watch it."""
        return len(self.streams.get(path, []))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        path, query = request.path, dict(request.query)
        if request.method != "GET":
            return await self._write(request, path)
        self.asked.append((path, query))
        kind = "watch" if "watch" in query else "list"
        refused = self.refuse.get(f"{kind} {path}", [])
        if refused:
            return self._status(refused.pop(0))
        if path in self.resources:
            return web.json_response(self.resources[path])
        if kind == "watch":
            return await self._watch(request, path, int(query["resourceVersion"]))
        if path not in self.objects:
            return self._status(404)
        return self._list(path, query)

    async def _write(self, request: web.Request, path: str) -> web.Response:
        """Make, patch or delete one object; its uid is its name."""
        refused = self.refuse.get(f"{request.method} {path}", [])
        if refused:
            return self._status(refused.pop(0))
        if request.method == "POST":
            thing = await request.json()
            thing["metadata"] |= {"uid": thing["metadata"]["name"], "creationTimestamp": CREATED}
            self.put(path, thing)
            return web.json_response(thing, status=201)
        path, _, name = path.rpartition("/")
        if name not in self.objects.get(path, {}):
            return self._status(404)
        if request.method == "DELETE":
            self.remove(path, name)
            return web.json_response({})
        thing = self.objects[path][name]
        thing["data"] = thing.get("data", {}) | (await request.json())["data"]
        self.put(path, thing)
        return web.json_response(thing)

    def cluster(self) -> None:
        """Be a small cluster: the usual resources, one node, KAI's pod groups, one CRD of a workload."""
        root = f"/namespaces/{NAMESPACE}"
        for path in (
            PODS,
            f"/apis/batch/v1{root}/jobs",
            f"/api/v1{root}/persistentvolumeclaims",
            f"/apis/events.k8s.io/v1{root}/events",
            f"/api/v1{root}/configmaps",
            f"/apis/scheduling.run.ai/v2alpha2{root}/podgroups",
            f"/apis/example.com/v1{root}/trainings",
            "/api/v1/pods",
            "/api/v1/nodes",
        ):
            self.objects[path] = {}
        node = {
            "metadata": {"name": "n1", "uid": "n1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.put("/api/v1/nodes", node)
        self.resources |= {
            "/version": {"gitVersion": "scripted"},
            "/apis/scheduling.run.ai": {"versions": [{"version": "v2alpha2"}, {"version": "v1alpha2"}]},
            "/apis/scheduling.run.ai/v2alpha2": {"resources": [{"name": "podgroups", "kind": "PodGroup"}]},
            "/apis/scheduling.run.ai/v1alpha2": {"resources": [{"name": "queues", "kind": "Queue"}]},
            "/apis/example.com/v1": {"resources": [{"name": "trainings", "kind": "Training"}]},
        }

    def _status(self, code: int) -> web.Response:
        return web.json_response({"kind": "Status", "code": code, "message": "scripted"}, status=code)

    def _list(self, path: str, query: dict[str, str]) -> web.Response:
        begin, limit = int(query.get("continue") or 0), int(query.get("limit", 10**6))
        things = list(self.objects[path].values())
        meta = {"resourceVersion": str(self.version)}
        if begin + limit < len(things):
            meta["continue"] = str(begin + limit)
        return web.json_response({"kind": "PodList", "metadata": meta, "items": things[begin : begin + limit]})

    async def _watch(self, request: web.Request, path: str, version: int) -> web.StreamResponse:
        if version < self.oldest:
            return self._status(410)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        stream = Stream(version)
        for where, at, line in self.log:
            if where == path and at > version:
                stream.orders.put_nowait(line)
        self.streams.setdefault(path, []).append(stream)
        try:
            while (order := await stream.orders.get()) is not None:
                if order.endswith(CUT):
                    await answer.write(order.removesuffix(CUT) or b" ")
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await answer.write(order)
        finally:
            self.streams[path].remove(stream)
        return answer


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[ScriptedApi, Connection]]:
    """A scripted server on loopback, and a connection to it."""
    api = ScriptedApi()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{tail:.*}", api.handle)

    async def date(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(int(api.clock()), usegmt=True)

    app.on_response_prepare.append(date)
    async with served(app, handler_cancellation=True) as api.url:
        try:
            async with Connection(api.target()) as connection:
                yield api, connection
        finally:
            for path in api.streams:
                api.send(path, None)
