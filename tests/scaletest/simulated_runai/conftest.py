"""A local cluster with simulated-runai beside it, and projects on it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.runai_operator import run_simulated_runai
from tests.scaletest.conftest import fresh_namespace
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.simulated_runai.runai_objects import RunaiKind

LIMIT_S = 120
Json = dict[str, Any]


@pytest.fixture(scope="module")
def runai_cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The shared cluster, with simulated-runai running beside it."""
    with run_simulated_runai(local_cluster.kubeconfig, local_cluster.context):
        yield local_cluster


@pytest.fixture
def project(local_cluster: LocalCluster) -> Iterator[str]:
    """A project of its own: its namespace is allowed, and goes with the test."""
    made = f"p{secrets.token_hex(4)}"
    for _ in fresh_namespace(local_cluster, f"runai-{made}"):
        yield made


def workload(name: str, project: str, kind: str = "TrainingWorkload", **spec: Any) -> Json:
    fields = {"name": name, "gpu": "1", "cpu": "0.05", "memory": "1Mi", "image": "none"} | spec
    shaped = {field: value if isinstance(value, dict) else {"value": value} for field, value in fields.items()}
    metadata = {"name": name, "namespace": f"runai-{project}", "labels": {"mine": "yes"}}
    return {"apiVersion": "run.ai/v2alpha1", "kind": kind, "metadata": metadata, "spec": shaped, "status": {}}


async def make(api: Connection, kind: RunaiKind, *bodies: Json) -> None:
    for body in bodies:
        await api.json("POST", kind.path(body["metadata"]["namespace"]), body)


def running(count: int) -> Callable[[list[Json]], bool]:
    return lambda items: [one.get("status", {}).get("phase") for one in items] == ["Running"] * count


def pods(project: str) -> str:
    return f"/api/v1/namespaces/runai-{project}/pods"


@asynccontextmanager
async def admin(on: LocalCluster) -> AsyncIterator[Connection]:
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        yield api


async def until(api: Connection, path: str, good: Callable[[list[Json]], bool], **query: str) -> list[Json]:
    """The objects of a path once they are as wanted."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        items = (await api.json("GET", path, query=query))["items"]
        if good(items):
            found: list[Json] = items
            return found
        assert time.monotonic() < deadline, f"{path} after {LIMIT_S} s: {len(items)} objects"
        await asyncio.sleep(0.05)
