"""Questions to a cluster's API, one at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import orjson

from workbench.scaletest.cluster_api.connection import Answer, Connection, load_target
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster

GUARD_S = 120


def answer(of: LocalCluster, method: str, path: str, body: Any = None, *, measuring: bool = False) -> Answer:
    """Whatever the API server answers to the administrator, or to the measuring identity."""
    who = (of.measure_kubeconfig, of.measure_context) if measuring else (of.kubeconfig, of.context)

    async def ask() -> Answer:
        async with Connection(load_target(*who)) as api:
            return await api.request(method, path, body=None if body is None else orjson.dumps(body))

    return asyncio.run(ask())


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
