"""Lifecycle of a local cluster: start, find, restart parts, stop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psutil

from workbench.console.tables import format_table
from workbench.core import signals
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import (
    cluster_record,
    component_processes,
    control_plane,
    identities,
    kai_scheduler,
    kueue_queues,
    program_builds,
    second_schedulers,
    simulated_nodes,
)
from workbench.scaletest.local_cluster.cluster_record import (
    ClusterPart,
    ClusterRecord,
    ClusterSettings,
    NodePool,
    check_api_arguments,
    check_client_limits,
    check_cluster_name,
)
from workbench.scaletest.observation.run_records import Component
from workbench.scaletest.scenario.scenario_file import GANG_SCHEDULING

KUBECONFIG, MEASURE_KUBECONFIG = "kubeconfig", "measure.kubeconfig"
_MARKER = ".workbench-cluster"
UP_COMMAND = "workbench scaletest cluster up"
_ATTEMPTS = 3
Result = TypeVar("Result")


def _start_new_cluster(
    name: str,
    settings: ClusterSettings,
    binaries: program_builds.Binaries,
    folder: Path | None,
    timeout_s: float,
    tell: Callable[[str], None],
) -> ClusterRecord:
    """Start a new cluster; after a failure or an interrupt everything is removed."""
    place = (cluster_record.find_cluster_folder(name) if folder is None else folder.expanduser()).absolute()
    if place.exists() and any(place.iterdir()):
        raise ConfigError("the folder is not empty", where=place, do="give an empty or new folder")
    # Private, with a marker that allows its removal.
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.chmod(0o700)
    (place / _MARKER).write_text(name, encoding="utf-8")
    begun = ClusterRecord(
        name=name,
        state="starting",
        folder=place,
        settings=settings,
        provider=binaries.provider,
        kubectl=binaries.kubectl,
    )
    cluster_record.write_record(begun)
    try:
        with signals.interrupt_on_termination():
            record = _start_parts(begun, binaries, timeout_s, tell)
            cluster_record.write_record(record)
    except BaseException:  # also on Ctrl-C
        with signals.ignore_signals():
            remove_cluster(name)
        raise
    return record


def _start_parts(
    begun: ClusterRecord, binaries: program_builds.Binaries, timeout_s: float, tell: Callable[[str], None]
) -> ClusterRecord:
    folder, name, since = begun.folder, begun.name, time.monotonic()
    # Imports take a second; the wait hides that.
    threading.Thread(target=importlib.import_module, args=("kubernetes.config",), daemon=True).start()
    parts = control_plane.create_control_plane(folder, name, begun.settings, binaries, timeout_s=timeout_s)
    tell(f"control plane is up after {time.monotonic() - since:.1f} s")
    server = next(part.health for part in parts if part.name == "kube-apiserver").removesuffix("/readyz")
    keys = control_plane.find_workdir(folder, name) / "pki"
    identities.write_kubeconfig(
        folder / KUBECONFIG,
        server=server,
        authority=keys / "ca.crt",
        context=identities.admin_context(name),
        user={"client-certificate": str(keys / "admin.crt"), "client-key": str(keys / "admin.key")},
    )
    with_kai = begun.settings.scheduler == "kai"
    kai, kueue = binaries.kai if with_kai else None, binaries.require_kueue() if begun.settings.kueue else None
    server_version = run_coroutine(_furnish_cluster(begun, server, kai, kueue, timeout_s, tell))
    versions = control_plane.read_versions(folder, name)
    if with_kai:
        added = kai_scheduler.start_kai(folder, begun.settings, binaries.require_kai(), folder / KUBECONFIG)
        control_plane.wait_until_healthy(folder, added, timeout_s=timeout_s)
        versions |= dict.fromkeys(kai_scheduler.KAI_PROCESSES, binaries.kai_version)
        parts += added
    more = tuple(
        second_schedulers.start_second_scheduler(folder, begun.settings, recipe, binaries.require_scheduler())
        for recipe in begun.settings.recipes
    )
    if begun.settings.kueue:
        more += (kueue_queues.start_kueue(folder, name, begun.settings, binaries.require_kueue()),)
    control_plane.wait_until_healthy(folder, more, timeout_s=timeout_s)
    if begun.settings.kueue:

        async def register_kueue() -> None:
            async with Connection(load_target(folder / KUBECONFIG, identities.admin_context(name))) as api:
                programs = binaries.require_kueue()
                await kueue_queues.register(api, folder, name, begun.settings, programs, timeout_s=timeout_s)

        run_coroutine(register_kueue())
    versions |= dict.fromkeys([recipe.name for recipe in begun.settings.recipes], versions.get("kube-scheduler"))
    versions |= {kueue_queues.NAME: binaries.kueue_version} if begun.settings.kueue else {}
    parts += more
    own_limit = cluster_record.DEFAULT_LIMITS["kube-scheduler"]
    limits = {part.name: begun.settings.client_limits.get(part.name, own_limit) for part in more}
    tell(f"ready after {time.monotonic() - since:.1f} s")
    return begun.model_copy(
        update={
            "state": "up",
            "server": server,
            "kubernetes_version": server_version,
            "audited": True,
            "parts": parts,
            "components": tuple(
                control_plane.describe_component(part, folder, versions.get(part.name), limits.get(part.name))
                for part in parts
            ),
        }
    )


async def _furnish_cluster(
    begun: ClusterRecord,
    server: str,
    kai_programs: Path | None,
    kueue_programs: Path | None,
    timeout_s: float,
    tell: Callable[[str], None],
) -> str:
    """Create nodes, identities, and KAI's and Kueue's objects; returns the server version."""
    folder, name = begun.folder, begun.name
    authority = control_plane.find_workdir(folder, name) / "pki" / "ca.crt"
    async with Connection(load_target(folder / KUBECONFIG, identities.admin_context(name))) as api:
        since = time.monotonic()
        count = await simulated_nodes.create_nodes(api, begun.settings.pools)
        await simulated_nodes.create_devices(api, begun.settings.pools)
        tell(f"{count} simulated nodes created in {time.monotonic() - since:.1f} s")
        token = await identities.create_measuring_identity(api)
        identities.write_kubeconfig(
            folder / MEASURE_KUBECONFIG,
            server=server,
            authority=authority,
            context=identities.measure_context(name),
            user={"token": token},
        )
        names = [recipe.name for recipe in begun.settings.recipes]
        if kueue_programs is not None:
            names.append(kueue_queues.NAME)
            await kueue_queues.create_resources(api, kueue_programs, timeout_s=timeout_s)
        await second_schedulers.create_accounts(api, folder, server, authority, names)
        await kai_scheduler.create_kai_objects(api, kai_programs, timeout_s=timeout_s)
        await simulated_nodes.wait_for_nodes(api, count, timeout_s=timeout_s)
        return str((await api.json("GET", "/version"))["gitVersion"])


def remove_cluster(name: str) -> bool:
    """Stop all processes of a cluster and remove its folders, in any state; whether there was anything."""
    home = cluster_record.find_cluster_folder(name).absolute()
    try:
        record = cluster_record.read_record(name)
    except ConfigError:
        record = None
    places = {home, record.folder if record else home}
    has_remains = False
    for place in places:
        # A second pass: kwokctl may have started a process meanwhile.
        while alive := [process for many in component_processes.find_processes(place).values() for process in many]:
            has_remains = True
            component_processes.end_processes(alive)
        if place == home or (place / _MARKER).is_file():
            has_remains = has_remains or place.exists()
            shutil.rmtree(place, ignore_errors=True)
            if place.exists():
                shutil.rmtree(place)
    return has_remains


def run_coroutine(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine; in a thread if an event loop is already running, as in a notebook.

    Raises the first error of an exception group.
    """
    try:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()
    except BaseExceptionGroup as group:
        first = next((error for error in group.exceptions if isinstance(error, WorkbenchError)), group.exceptions[0])
        raise first from None


@dataclass(frozen=True)
class LocalCluster:
    """A running control plane on this machine.

    `kubeconfig`, `context`: Of the administrator, for namespaces and roles. Not for measuring: an administrator is
    never throttled.
    `audit_log`: One JSON document per request; None if it is not kept.
    `kubectl`: Path of kubectl; None if it is not installed.
    """

    name: str
    folder: Path
    kubeconfig: Path
    measure_kubeconfig: Path
    context: str
    measure_context: str
    schedulers: tuple[str, ...]
    components: tuple[Component, ...]
    audit_log: Path | None
    server: str
    pools: tuple[NodePool, ...]
    provider: str
    kubectl: Path | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    queue_quotas: Mapping[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """How many nodes they are."""
        return sum(pool.nodes for pool in self.pools)


def start_cluster(
    name: str = "local",
    settings: ClusterSettings | None = None,
    *,
    programs: Path | None = None,
    provider: program_builds.Provider | None = None,
    folder: Path | None = None,
    timeout_s: float = 120,
    tell: Callable[[str], None] = lambda _: None,
) -> LocalCluster:
    """Start a cluster; a running one of this name is reused if it has the same settings.

    `folder`: Empty or new folder for its data; by default in the user's cache.
    """
    settings = settings or ClusterSettings()
    check_cluster_name(name)
    check_client_limits(settings)
    check_api_arguments(settings.api_arguments)
    check_api_arguments(settings.scheduler_arguments)
    with cluster_record.lock_cluster(name):
        is_readable = True
        try:
            record = cluster_record.read_record(name)
        except ConfigError:
            record, is_readable = None, False
        if record is not None and record.state == "up" and not list_lost_parts(record):
            differing = [
                f"{key}: {getattr(record.settings, key)!r}"
                for key in ClusterSettings.model_fields
                if getattr(record.settings, key) != getattr(settings, key)
            ]
            if differing:
                raise ConfigError(
                    "a cluster of this name is running with other settings",
                    where=record.name,
                    found=differing,
                    do=f"workbench scaletest cluster down --name {record.name}, or take another --name",
                )
            tell("the cluster is already up")
            return _build_local_cluster(record)
        if record is not None or not is_readable:
            tell("removing the remains of an earlier cluster of this name")
            remove_cluster(name)
        binaries = program_builds.find_binaries(programs, provider)
        if settings.scheduler == "kai":
            binaries.require_kai()
        if settings.kueue:
            binaries.require_kueue()
        if settings.recipes:
            binaries.require_scheduler()
        for attempt in range(_ATTEMPTS):
            try:
                return _build_local_cluster(_start_new_cluster(name, settings, binaries, folder, timeout_s, tell))
            except control_plane.PortTakenError:
                # Another process took a port meanwhile.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


def find_cluster(name: str = "local") -> LocalCluster:
    """Find a running cluster."""
    record = cluster_record.read_record(name)
    again = UP_COMMAND if name == "local" else f"{UP_COMMAND} --name {name}"
    if record is None or record.state != "up":
        raise ConfigError(
            "no such local cluster",
            where="--cluster",
            found=name,
            allowed=cluster_record.list_cluster_names() or None,
            do=again,
        )
    gone = list_lost_parts(record)
    if gone and set(gone) <= set(second_schedulers.list_switchable(record)):
        # A killed comparison had stopped these schedulers.
        second_schedulers.run_only(name, None)
        gone = list_lost_parts(record)
    if gone:
        raise ConfigError("components of the local cluster are not running", where=name, found=gone, do=again)
    return _build_local_cluster(record)


def stop_cluster(name: str = "local") -> bool:
    """Stop a cluster and remove its processes and folders; whether there was anything."""
    check_cluster_name(name)
    with cluster_record.lock_cluster(name):
        return remove_cluster(name)


def list_lost_parts(record: ClusterRecord) -> list[str]:
    """Components that should run and do not."""
    alive = component_processes.find_processes(record.folder)
    return [part.name for part in record.parts if part.name not in alive]


def _build_local_cluster(record: ClusterRecord) -> LocalCluster:
    folder = record.folder
    return LocalCluster(
        name=record.name,
        folder=folder,
        kubeconfig=folder / KUBECONFIG,
        measure_kubeconfig=folder / MEASURE_KUBECONFIG,
        context=identities.admin_context(record.name),
        measure_context=identities.measure_context(record.name),
        schedulers=(
            "default-scheduler",
            *((GANG_SCHEDULING,) if record.settings.native_gangs else ()),
            *((kai_scheduler.SCHEDULER_NAME,) if record.settings.scheduler == "kai" else ()),
            *(recipe.name for recipe in record.settings.recipes),
            *((kueue_queues.NAME,) if record.settings.kueue else ()),
        ),
        components=record.components,
        audit_log=control_plane.find_audit_log(folder, record.name) if record.audited else None,
        server=record.server,
        pools=record.settings.pools,
        provider=record.provider,
        kubectl=record.kubectl,
        metrics=control_plane.list_metrics(record.parts),
        queue_quotas=record.settings.queue_quotas,
    )


@dataclass(frozen=True)
class ComponentStatus:
    """A process of the cluster; `pid` and `rss_bytes` are None if it is not running."""

    name: str
    pid: int | None
    healthy: bool
    rss_bytes: int | None
    port: int | None
    version: str | None
    client_qps: float | None
    client_burst: int | None
    log: str


@dataclass(frozen=True)
class ClusterStatus:
    """Status of a cluster. `nodes_ready` is None if the API server does not respond."""

    name: str
    state: str
    server: str
    provider: str
    kubernetes_version: str | None
    kubeconfig: str
    context: str
    measure_kubeconfig: str
    measure_context: str
    nodes: int
    nodes_ready: int | None
    processes: tuple[ComponentStatus, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether the cluster is up, all nodes are ready and all processes are healthy."""
        return (
            self.state == "up" and self.nodes_ready == self.nodes and all(process.healthy for process in self.processes)
        )

    def to_dict(self) -> dict[str, Any]:
        """Document of `status --json`."""
        return {**asdict(self), "well": self.is_healthy}

    def format_text(self) -> str:
        """Format a line about the cluster and a table of its processes."""
        ready = "?" if self.nodes_ready is None else self.nodes_ready
        rows = [
            (
                process.name,
                process.pid,
                "healthy" if process.healthy else "gone" if process.pid is None else "unhealthy",
                None if process.rss_bytes is None else round(process.rss_bytes / 2**20),
                process.port,
                None if process.client_qps is None else f"{process.client_qps:g}:{process.client_burst}",
                process.version,
            )
            for process in self.processes
        ]
        headers = ("process", "pid", "health", "RSS MiB", "port", "limit/s", "version")
        return "\n".join(
            [
                f"{self.name}: {self.state if self.is_healthy else self.state + ', unhealthy'}, "
                f"Kubernetes {self.kubernetes_version or '?'} at {self.server or '?'}, "
                f"{ready} of {self.nodes} simulated nodes ready",
                *format_table(rows, headers, right=["limit/s"]),
            ]
        )


def read_cluster_status(name: str) -> ClusterStatus:
    """Read the status of a cluster."""
    record = cluster_record.read_record(name)
    if record is None:
        raise ConfigError(
            "no such local cluster",
            where="--name",
            found=name,
            allowed=cluster_record.list_cluster_names() or None,
            do=UP_COMMAND,
        )
    alive = component_processes.find_processes(record.folder)
    return ClusterStatus(
        name=name,
        state=record.state,
        server=record.server,
        provider=record.provider,
        kubernetes_version=record.kubernetes_version,
        kubeconfig=str(record.folder / KUBECONFIG),
        context=identities.admin_context(name),
        measure_kubeconfig=str(record.folder / MEASURE_KUBECONFIG),
        measure_context=identities.measure_context(name),
        nodes=record.settings.nodes,
        nodes_ready=_count_ready_nodes(record),
        processes=tuple(_build_component_status(record, part, alive.get(part.name, [])) for part in record.parts),
    )


def _build_component_status(record: ClusterRecord, part: ClusterPart, alive: list[psutil.Process]) -> ComponentStatus:
    about = next((component for component in record.components if component.name == part.name), None)
    pid, rss = None, None
    with contextlib.suppress(psutil.Error, IndexError):
        pid, rss = alive[0].pid, alive[0].memory_info().rss
    return ComponentStatus(
        name=part.name,
        pid=pid,
        healthy=pid is not None and component_processes.is_healthy(part.health),
        rss_bytes=rss,
        port=urlsplit(part.health).port,
        version=about.version if about else None,
        client_qps=about.client_qps if about else None,
        client_burst=about.client_burst if about else None,
        log=str(control_plane.find_log(record.folder, part.name)),
    )


def _count_ready_nodes(record: ClusterRecord) -> int | None:
    async def ask_count() -> int:
        async with Connection(load_target(record.folder / KUBECONFIG, identities.admin_context(record.name))) as api:
            return (await simulated_nodes.count_ready_nodes(api))[0]

    try:
        return run_coroutine(ask_count())
    except WorkbenchError:
        return None


def format_new_cluster(local: LocalCluster) -> str:
    """Text that describes a started cluster and its use."""
    return "\n".join(
        [
            f"{local.name}: {local.nodes} simulated nodes at {local.server}, schedulers: {', '.join(local.schedulers)}",
            f"administrator  --kubeconfig {local.kubeconfig}",
            f"for measuring  --kubeconfig {local.measure_kubeconfig}",
            f"audit log      {local.audit_log or 'none'}",
            *([f"kubectl        {local.kubectl} --kubeconfig {local.kubeconfig} get nodes"] if local.kubectl else []),
            f"use it with --cluster {local.name}; stop it: workbench scaletest cluster down"
            + ("" if local.name == "local" else f" --name {local.name}"),
        ]
    )


def format_new_cluster_json(cluster: LocalCluster) -> str:
    """The started cluster as a JSON document."""
    document: dict[str, Any] = asdict(cluster)
    document["components"] = [component.model_dump() for component in cluster.components]
    return json.dumps(document, indent=1, default=str)
