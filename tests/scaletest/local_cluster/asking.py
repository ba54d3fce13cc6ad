"""Questions to a cluster's API, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson

from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Answer, Connection
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster

GUARD_S = 120
T = TypeVar("T")


def on(cluster: LocalCluster, work: Callable[[Connection], Awaitable[T]], *, admin: bool = False) -> T:
    """Work under the measuring identity, or the administrator's."""
    who = (cluster.kubeconfig, cluster.context) if admin else (cluster.measure_kubeconfig, cluster.measure_context)

    async def run() -> T:
        async with Connection(load_target(*who), max_connections=16) as api:
            return await work(api)

    return asyncio.run(run())


def answer(of: LocalCluster, method: str, path: str, body: Any = None, *, measuring: bool = False) -> Answer:
    """Whatever the API server answers to the administrator, or to the measuring identity."""
    sent = None if body is None else orjson.dumps(body)
    return on(of, lambda api: api.request(method, path, body=sent), admin=not measuring)


def found(of: LocalCluster, path: str) -> Any:
    """A good answer's document."""
    got = answer(of, "GET", path)
    assert got.status == 200, (got.status, got.body[:300])
    return got.json()


def wait_for(what: Callable[[], bool], *, every_s: float = 0.1) -> None:
    """Wait until it is so; the limit is a guard against hanging."""
    deadline = time.monotonic() + GUARD_S
    while not what():
        assert time.monotonic() < deadline, f"not within {GUARD_S} s"
        time.sleep(every_s)
