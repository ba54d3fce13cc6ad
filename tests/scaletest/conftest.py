"""Clusters that tests share: each worker has its own, and none outlives the session, whatever ends it.

A guard process is tied to this one by a pipe: when we are killed, it takes the cluster down. What a killed guard leaves
is swept at the next start. Nothing is built here: without programs the tests are skipped, and counted by the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from tests.scaletest import owner_guard
from workbench.cli.app import main
from workbench.core.errors import MissingToolError
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import cluster_lifecycle, program_builds
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClientLimit, ClusterSettings, NodePool
from workbench.scaletest.simulated_runai import runai_objects

PREFIX = "test-"
# Ten times Kubernetes' own, so that tests wait for nothing that they do not test.
QUICK = {"kube-controller-manager": ClientLimit(qps=200, burst=400), "kube-scheduler": ClientLimit(qps=500, burst=1000)}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An asynchronous test runs in a loop of its own; the limit guards against hanging only."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**given), 240))
    return True


def programs(*, kai: bool = False) -> program_builds.Binaries:
    """The control plane's programs, or the test is skipped."""
    try:
        found = program_builds.find_binaries()
    except MissingToolError:
        pytest.skip(f"no control plane's programs ({program_builds.BUILD}, or ${program_builds.VARIABLE})")
    if kai and found.kai is None:
        pytest.skip(f"no programs of KAI ({program_builds.BUILD})")
    return found


def reasons_of_the_run(reasons: Sequence[str]) -> list[str]:
    """Why a run is invalid, but for what others do on this machine: tests run beside tests."""
    return [reason for reason in reasons if "of this machine while it was saturated" not in reason]


def unique(what: str) -> str:
    """A name that no other worker, checkout or run has."""
    return f"{PREFIX}{what}-{os.getpid()}-{secrets.token_hex(3)}"


@pytest.fixture(scope="session")
def _swept() -> list[str]:
    return owner_guard.stop_orphans(PREFIX)


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


Scaletest = Callable[..., Said]


@pytest.fixture
def scaletest(capsys: pytest.CaptureFixture[str]) -> Scaletest:
    """Runs `workbench scaletest ARGUMENTS`."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["scaletest", *map(str, arguments)])
        return Said(int(ended.value.code or 0), *capsys.readouterr())

    return run


@contextlib.contextmanager
def start_guarded_cluster(what: str, **settings: Any) -> Iterator[LocalCluster]:
    """A cluster of its own that is stopped afterwards, and with this process if that is killed."""
    name = unique(what)
    watcher = owner_guard.start_guard(name)
    try:
        yield cluster_lifecycle.start_cluster(name, ClusterSettings(**settings), timeout_s=300)
    finally:
        cluster_lifecycle.stop_cluster(name)
        owner_guard.release_guard(watcher)


async def _install_runai_kinds(on: LocalCluster) -> None:
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        await runai_objects.install_kinds(api)


# Of the package, not of the session: a control plane that nobody asks anything still takes a tenth of a core.
@pytest.fixture(scope="package")
def local_cluster(_swept: list[str]) -> Iterator[LocalCluster]:
    """50 simulated nodes with 8 GPUs each, the stock scheduler, client limits raised."""
    programs()
    with start_guarded_cluster("plain", pools=[NodePool(nodes=50, gpus=8)], client_limits=QUICK) as cluster:
        # The garbage collector looks for new kinds every 30 s: made here, no test of Run:ai's waits for it.
        asyncio.run(_install_runai_kinds(cluster))
        yield cluster


@pytest.fixture(scope="package")
def kai_cluster(_swept: list[str]) -> Iterator[LocalCluster]:
    """3 nodes with 4 GPUs each, KAI beside the stock scheduler."""
    programs(kai=True)
    pools = [NodePool(nodes=3, gpus=4)]
    with start_guarded_cluster("kai", pools=pools, scheduler="kai", client_limits=QUICK) as cluster:
        yield cluster


def fresh_namespace(on: LocalCluster, name: str | None = None) -> Iterator[str]:
    """A namespace that tests may use, gone afterwards with all that is in it."""
    name = name or f"workbench-{secrets.token_hex(5)}"
    asyncio.run(_make_namespace(on, name))
    yield name
    asyncio.run(delete_namespace(on, name))


@pytest.fixture
def namespace(local_cluster: LocalCluster) -> Iterator[str]:
    """A fresh namespace on `local_cluster` that carries the label of those where runs are allowed."""
    yield from fresh_namespace(local_cluster)


@pytest.fixture
def kai_namespace(kai_cluster: LocalCluster) -> Iterator[str]:
    """The same on `kai_cluster`."""
    yield from fresh_namespace(kai_cluster)


async def _make_namespace(on: LocalCluster, name: str) -> None:
    labels = {api_discovery.ALLOW: "true", api_discovery.MANAGED_BY: api_discovery.MANAGER}
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        await api.json("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        # Pods are refused until the controller has made the namespace's service account.
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        deadline = time.monotonic() + 60
        while (await api.request("GET", path)).status != 200:
            assert time.monotonic() < deadline, "the namespace has no service account after a minute"
            await asyncio.sleep(0.02)


async def delete_namespace(on: LocalCluster, name: str) -> None:
    """Asked for, not waited for: the controller empties it in its own time, under no other test's name."""
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        await api.request("DELETE", f"/api/v1/namespaces/{name}")
