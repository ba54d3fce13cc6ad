"""A scripted stand-in for an API server: it keeps objects, and misbehaves exactly where the test says."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.scaletest.serving import served
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.scenario.workload_objects import ObjectRequest, PlannedWorkload

NAMESPACE = "workbench-scripted"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
CREATED = "2026-11-22T03:00:00Z"

# What a POST is answered with: a status (with a Retry-After in seconds), "lost" (made, but the answer never comes),
# "reset" (not made, no answer), or "ok".
Act = str | int | tuple[int, float] | tuple[int, str, str]


@dataclass
class Post:
    """A POST as it came: when, of which object, at which attempt (from 1)."""

    at_s: float
    name: str
    attempt: int


@dataclass
class ScriptedApi:
    """The server's state and script.

    `script` gives the act for a POST; `hold` is awaited before each answer to one.
    """

    script: Callable[[Post], Act] = lambda post: "ok"
    hold: Callable[[Post], Any] | None = None
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    posts: list[Post] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    lists: list[dict[str, str]] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    in_flight: int = 0
    in_flight_most: int = 0
    url: str = ""

    def target(self, token: str = "") -> Target:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return Target(self.url, "scripted", None, lambda: headers)

    def put(self, request: ObjectRequest) -> None:
        """An object that is there already."""
        self._store(request.path, json.loads(request.body))

    def _store(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        body["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": CREATED}
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return body

    async def post(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        name = body["metadata"]["name"]
        attempt = 1 + sum(one.name == name for one in self.posts)
        post = Post(asyncio.get_running_loop().time(), name, attempt)
        self.posts.append(post)
        self.tokens.add(request.headers.get("Authorization", ""))
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            if self.hold is not None:
                await self.hold(post)
            return self._answer(request, body, self.script(post))
        finally:
            self.in_flight -= 1

    def _answer(self, request: web.Request, body: dict[str, Any], act: Act) -> web.StreamResponse:
        name = body["metadata"]["name"]
        if act == "reset":
            return _cut(request)
        if isinstance(act, tuple) and len(act) == 2:
            return _status(act[0], "TooManyRequests", "too much", {"Retry-After": f"{act[1]:g}"})
        if isinstance(act, tuple):
            return _status(act[0], act[1], act[2])
        if isinstance(act, int):
            return _status(act, "InternalError", "the script says so")
        if f"{request.path}/{name}" in self.objects:
            return _status(409, "AlreadyExists", f'configmaps "{name}" already exists')
        made = self._store(request.path, body)
        self.made.append(name)
        return _cut(request) if act == "lost" else web.json_response(made, status=201)

    async def get(self, request: web.Request) -> web.StreamResponse:
        self.gets.append(request.path)
        found = self.objects.get(request.path)
        return _status(404, "NotFound", "not found") if found is None else web.json_response(found)

    async def list(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.lists.append(query)
        wanted = [part.split("=") for part in query["labelSelector"].split(",")]
        items = [
            one
            for path, one in sorted(self.objects.items())
            if path.startswith(request.path + "/")
            and all(one["metadata"].get("labels", {}).get(key) == value for key, value in wanted)
        ]
        first, limit = int(query.get("continue", "0")), int(query["limit"])
        more = str(first + limit) if len(items) > first + limit else ""
        return web.json_response({"metadata": {"continue": more}, "items": items[first : first + limit]})


def _cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    return web.json_response(body, status=code, headers=headers)


@asynccontextmanager
async def scripted_api(
    script: Callable[[Post], Act] = lambda post: "ok", hold: Callable[[Post], Any] | None = None
) -> AsyncIterator[tuple[ScriptedApi, Connection]]:
    """The server on a port of its own, and a connection to it."""
    server = ScriptedApi(script, hold)
    app = web.Application()
    app.router.add_post("/{path:.*}s", server.post)
    app.router.add_get(PATH, server.list)
    app.router.add_get(PATH + "2", server.list)
    app.router.add_get("/{path:.*}", server.get)
    async with served(app) as server.url, Connection(server.target("canary-token-5f2c")) as api:
        yield server, api


def object_of(run: str, name: str, *, spec: str = "hash-1", path: str = PATH) -> ObjectRequest:
    """A small object with our labels."""
    metadata = {
        "name": name,
        "labels": api_discovery.build_labels(run, name.rsplit(".", 1)[0], 0),
        "annotations": {api_discovery.SPEC_HASH: spec},
    }
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return ObjectRequest(path, name, json.dumps(body).encode())


def plan(
    run: str, count: int, *, every_s: float = 0.0, members: int = 1, spec: str = "hash-1", path: str = PATH
) -> list[PlannedWorkload]:
    """So many workloads of so many objects each."""

    def one(index: int) -> PlannedWorkload:
        name = api_discovery.build_workload_name(run, index)
        parts = [f"{name}.{part}" for part in range(members - 1)] + [name]

        def requests() -> tuple[ObjectRequest, ...]:
            return tuple(object_of(run, part, spec=spec, path=path) for part in parts)

        return PlannedWorkload(index, name, NAMESPACE, index * every_s, spec, requests)

    return [one(index) for index in range(count)]
