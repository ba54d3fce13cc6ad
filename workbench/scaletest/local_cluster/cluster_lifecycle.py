"""Lifecycle of a local cluster: start, find, restart parts, stop and remove."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, WorkbenchError
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.local_cluster import (
    cluster_record,
    component_processes,
    control_plane,
    identities,
    kai_scheduler,
    program_providers,
    simulated_nodes,
)
from workbench.scaletest.local_cluster.cluster_record import (
    ClientLimit,
    ClusterPart,
    ClusterRecord,
    ClusterSettings,
    NodePool,
    Scheduler,
    check_api_arguments,
    check_client_limits,
    check_cluster_name,
)
from workbench.scaletest.observation.run_conditions import Component
from workbench.scaletest.scenario.scenario_file import GANG_SCHEDULING

KUBECONFIG, MEASURE_KUBECONFIG = "kubeconfig", "measure.kubeconfig"
_MARKER = ".workbench-cluster"


def start_from_nothing(
    name: str,
    settings: ClusterSettings,
    found: program_providers.Binaries,
    folder: Path | None,
    owner: tuple[int, float],
    timeout_s: float,
    tell: Callable[[str], None],
) -> ClusterRecord:
    """Start a new cluster; after a failure or an interrupt everything is removed.

    Raises
    ------
    ConfigError
        The data folder is not empty.
    RunFailedError
        The cluster did not start; `found` has the end of a log.
    """
    place = _make_data_folder(name, folder)
    begun = ClusterRecord(
        name=name,
        state="starting",
        folder=place,
        settings=settings,
        provider=found.provider,
        kubectl=found.kubectl,
        owner_pid=owner[0],
        owner_started=owner[1],
    )
    cluster_record.write_record(begun)
    try:
        made = _start_parts(begun, found, timeout_s, tell)
        cluster_record.write_record(made)
    except BaseException:  # also on Ctrl-C
        remove_cluster(name)
        raise
    return made


def _make_data_folder(name: str, folder: Path | None) -> Path:
    """Create the data folder of a cluster, private, with a marker that allows its removal."""
    place = (cluster_record.find_cluster_folder(name) if folder is None else folder.expanduser()).absolute()
    if place.exists() and any(place.iterdir()):
        raise ConfigError("the folder is not empty", where=place, do="give an empty or new folder")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.chmod(0o700)
    (place / _MARKER).write_text(name, encoding="utf-8")
    return place


def _start_parts(
    begun: ClusterRecord, found: program_providers.Binaries, timeout_s: float, tell: Callable[[str], None]
) -> ClusterRecord:
    folder, name, since = begun.folder, begun.name, time.monotonic()
    # Imports take a second; the wait hides that.
    threading.Thread(target=importlib.import_module, args=("kubernetes.config",), daemon=True).start()
    parts = control_plane.create_control_plane(folder, name, begun.settings, found, timeout_s=timeout_s)
    tell(f"control plane is up after {time.monotonic() - since:.1f} s")
    server = _write_admin_kubeconfig(folder, name, parts)
    with_kai = begun.settings.scheduler == "kai"
    server_version = run_coroutine(_furnish_cluster(begun, server, found.kai if with_kai else None, timeout_s, tell))
    versions = control_plane.read_versions(folder, name)
    if with_kai:
        added = kai_scheduler.start_kai(folder, begun.settings, found.require_kai(), folder / KUBECONFIG)
        control_plane.wait_until_healthy(folder, added, timeout_s=timeout_s)
        versions |= dict.fromkeys(kai_scheduler.KAI_PROCESSES, found.kai_version)
        parts += added
    tell(f"ready after {time.monotonic() - since:.1f} s")
    return begun.model_copy(
        update={
            "state": "up",
            "server": server,
            "kubernetes_version": server_version,
            "audited": True,
            "parts": parts,
            "components": tuple(control_plane.describe_component(one, folder, versions.get(one.name)) for one in parts),
        }
    )


def _write_admin_kubeconfig(folder: Path, name: str, parts: tuple[ClusterPart, ...]) -> str:
    server = next(part.health for part in parts if part.name == "kube-apiserver").removesuffix("/readyz")
    keys = control_plane.find_workdir(folder, name) / "pki"
    identities.write_kubeconfig(
        folder / KUBECONFIG,
        server=server,
        authority=keys / "ca.crt",
        context=identities.admin_context(name),
        user={"client-certificate": str(keys / "admin.crt"), "client-key": str(keys / "admin.key")},
    )
    return server


async def _furnish_cluster(
    begun: ClusterRecord, server: str, kai_programs: Path | None, timeout_s: float, tell: Callable[[str], None]
) -> str:
    """Create nodes, identities and KAI's objects; returns the server version."""
    folder, name = begun.folder, begun.name
    async with Connection(load_target(folder / KUBECONFIG, identities.admin_context(name))) as api:
        since = time.monotonic()
        count = await simulated_nodes.create_nodes(api, begun.settings.pools)
        tell(f"{count} simulated nodes created in {time.monotonic() - since:.1f} s")
        token = await identities.create_measuring_identity(api)
        identities.write_kubeconfig(
            folder / MEASURE_KUBECONFIG,
            server=server,
            authority=control_plane.find_workdir(folder, name) / "pki" / "ca.crt",
            context=identities.measure_context(name),
            user={"token": token},
        )
        await kai_scheduler.create_kai_objects(api, kai_programs, timeout_s=timeout_s)
        await simulated_nodes.wait_for_nodes(api, count, timeout_s=timeout_s)
        return str((await api.json("GET", "/version"))["gitVersion"])


def remove_cluster(name: str) -> bool:
    """Stop all processes of a cluster and remove its folders, in any state; whether there was anything."""
    home = cluster_record.find_cluster_folder(name).absolute()
    try:
        known = cluster_record.read_record(name)
    except ConfigError:
        known = None
    places = {home, known.folder if known else home}
    found = False
    for place in places:
        # A second pass: kwokctl may have started a process meanwhile.
        while alive := [one for many in component_processes.find_processes(place).values() for one in many]:
            found = True
            component_processes.end_processes(alive)
        if place == home or (place / _MARKER).is_file():
            found = found or place.exists()
            shutil.rmtree(place, ignore_errors=True)
            if place.exists():
                shutil.rmtree(place)
    return found


def run_coroutine(work: Coroutine[Any, Any, str]) -> str:
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
        first = next((one for one in group.exceptions if isinstance(one, WorkbenchError)), group.exceptions[0])
        raise first from None


UP_COMMAND = "workbench scaletest cluster up"
_ATTEMPTS = 3


@dataclass(frozen=True)
class LocalCluster:
    """A running control plane on this machine.

    Attributes
    ----------
    kubeconfig, context
        Of the administrator, for namespaces and roles. Not for measuring: an administrator is never throttled.
    measure_kubeconfig, measure_context
        Of the measuring service account.
    schedulers
        schedulerName of each running scheduler.
    components
        Components with their client limits.
    audit_log
        One JSON document per request; None if it is not kept.
    kubectl
        Path of kubectl; None if it is not installed.
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
    nodes: int
    provider: str
    kubectl: Path | None = None


def start_cluster(
    name: str = "local",
    *,
    pools: Sequence[NodePool] = (NodePool(nodes=200, gpus=8),),
    scheduler: Scheduler = "default",
    client_limits: Mapping[str, ClientLimit] | None = None,
    api_arguments: Mapping[str, str] | None = None,
    feature_gates: Mapping[str, bool] | None = None,
    scheduler_arguments: Mapping[str, str] | None = None,
    programs: Path | None = None,
    provider: program_providers.Provider | None = None,
    folder: Path | None = None,
    owner: tuple[int, float] = (0, 0.0),
    timeout_s: float = 120,
    tell: Callable[[str], None] = lambda _: None,
) -> LocalCluster:
    """Start a cluster; a running one of this name is reused if it has the same settings.

    Parameters
    ----------
    pools
        Simulated nodes.
    scheduler
        `kai`: KAI runs beside the default scheduler, and pods choose by their schedulerName.
    feature_gates, scheduler_arguments
        Gates of API server, controller-manager and scheduler; other arguments of the default scheduler.
    client_limits
        Requests per second (and burst) of components; Kubernetes' defaults for the others.
    api_arguments
        Additional arguments of the API server.
    programs, provider
        Where the programs are, see `program_providers.find_binaries`.
    folder
        Empty or new folder for its data; by default in the user's cache.
    owner
        Process id and start time of a process; the cluster is stopped when it ends.
    timeout_s
        Time limit of each stage.
    tell
        Called with each stage.

    Raises
    ------
    ConfigError
        The name or a setting is invalid, or a running cluster of this name has other settings.
    MissingToolError
        The programs are missing.
    RunFailedError
        The cluster did not start; everything was removed.
    """
    check_cluster_name(name)
    limits = check_client_limits(client_limits or {}, scheduler)
    arguments = check_api_arguments(api_arguments or {})
    settings = ClusterSettings(
        pools=tuple(pools),
        scheduler=scheduler,
        client_limits=limits,
        api_arguments=arguments,
        feature_gates=dict(feature_gates or {}),
        scheduler_arguments=check_api_arguments(scheduler_arguments or {}),
    )
    with cluster_record.lock_cluster(name):
        if (known := _reuse_or_remove(name, settings, tell)) is not None:
            return known
        binaries = program_providers.find_binaries(programs, provider)
        if scheduler == "kai":
            binaries.require_kai()
        return _start_with_free_ports(name, settings, binaries, folder, owner, timeout_s, tell)


def _reuse_or_remove(name: str, settings: ClusterSettings, tell: Callable[[str], None]) -> LocalCluster | None:
    """The running cluster of this name; None after removing the remains of one."""
    known = _read_or_guess_record(name)
    if known is None:
        return None
    if known.state == "up" and not list_lost_parts(known):
        _check_same_settings(known, settings)
        tell("the cluster is already up")
        return _build_local_cluster(known)
    tell("removing the remains of an earlier cluster of this name")
    remove_cluster(name)
    return None


def _start_with_free_ports(
    name: str,
    settings: ClusterSettings,
    binaries: program_providers.Binaries,
    folder: Path | None,
    owner: tuple[int, float],
    timeout_s: float,
    tell: Callable[[str], None],
) -> LocalCluster:
    """Start the cluster; retried with other ports if another process took one meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            return _build_local_cluster(start_from_nothing(name, settings, binaries, folder, owner, timeout_s, tell))
        except control_plane.PortTakenError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def find_cluster(name: str = "local") -> LocalCluster:
    """Find a running cluster.

    Raises
    ------
    ConfigError
        There is no cluster of this name, or some components are not running.
    """
    known = cluster_record.read_record(name)
    again = UP_COMMAND if name == "local" else f"{UP_COMMAND} --name {name}"
    if known is None or known.state != "up":
        raise ConfigError(
            "no such local cluster",
            where="--cluster",
            found=name,
            allowed=cluster_record.list_cluster_names() or None,
            do=again,
        )
    if gone := list_lost_parts(known):
        raise ConfigError("components of the local cluster are not running", where=name, found=gone, do=again)
    return _build_local_cluster(known)


def stop_cluster(name: str = "local") -> bool:
    """Stop a cluster and remove its processes and folders; whether there was anything."""
    check_cluster_name(name)
    with cluster_record.lock_cluster(name):
        return remove_cluster(name)


def kill_component(cluster: LocalCluster, component: str) -> None:
    """Kill a component, as a crash would, without a restart.

    Raises
    ------
    ConfigError
        The cluster has no such component.
    """
    _parts_by_name(cluster, component)
    component_processes.end_processes(component_processes.find_processes(cluster.folder).get(component, []))


def restart_component(cluster: LocalCluster, component: str, *, timeout_s: float = 120) -> None:
    """Restart a component with its own command line, and wait until it is healthy.

    Components that ended meanwhile are restarted too: the controller-manager and the scheduler exit when they cannot
    renew their lease for 10 s. A restarted one is idle until its old lease expires, 15 s at most.

    Raises
    ------
    ConfigError
        The cluster has no such component.
    RunFailedError
        It does not become healthy; `found` has the end of its log.
    """
    parts = _parts_by_name(cluster, component)
    before = component_processes.find_processes(cluster.folder)
    component_processes.end_processes(before.get(component, []), grace_s=2)
    _start_part(cluster, parts[component], timeout_s)
    for name in sorted(set(before) - set(component_processes.find_processes(cluster.folder))):
        _start_part(cluster, parts[name], timeout_s)


def list_lost_parts(known: ClusterRecord) -> list[str]:
    """Components that should run and do not."""
    alive = component_processes.find_processes(known.folder)
    return [part.name for part in known.parts if part.name not in alive]


def _parts_by_name(cluster: LocalCluster, component: str) -> dict[str, ClusterPart]:
    """All components by name; an error if this one is missing."""
    known = cluster_record.read_record(cluster.name)
    parts = {part.name: part for part in known.parts} if known else {}
    if component not in parts:
        raise ConfigError("no such component", where=cluster.name, found=component, allowed=sorted(parts))
    return parts


def _start_part(cluster: LocalCluster, part: ClusterPart, timeout_s: float) -> None:
    component_processes.start_component(
        cluster.folder, part.command, control_plane.find_log(cluster.folder, part.name), environment=part.environment
    )
    control_plane.wait_until_healthy(cluster.folder, (part,), timeout_s=timeout_s)


def _read_or_guess_record(name: str) -> ClusterRecord | None:
    try:
        return cluster_record.read_record(name)
    except ConfigError:
        # Unreadable record: treat it as the remains of a cluster.
        return ClusterRecord(
            name=name,
            state="starting",
            folder=cluster_record.find_cluster_folder(name),
            settings=ClusterSettings(),
            provider="",
        )


def _check_same_settings(known: ClusterRecord, settings: ClusterSettings) -> None:
    differing = [
        f"{key}: {getattr(known.settings, key)!r}"
        for key in ClusterSettings.model_fields
        if getattr(known.settings, key) != getattr(settings, key)
    ]
    if differing:
        raise ConfigError(
            "a cluster of this name is running with other settings",
            where=known.name,
            found=differing,
            do=f"workbench scaletest cluster down --name {known.name}, or take another --name",
        )


def _build_local_cluster(known: ClusterRecord) -> LocalCluster:
    folder = known.folder
    return LocalCluster(
        name=known.name,
        folder=folder,
        kubeconfig=folder / KUBECONFIG,
        measure_kubeconfig=folder / MEASURE_KUBECONFIG,
        context=identities.admin_context(known.name),
        measure_context=identities.measure_context(known.name),
        schedulers=(
            "default-scheduler",
            *((GANG_SCHEDULING,) if known.settings.native_gangs else ()),
            *((kai_scheduler.SCHEDULER_NAME,) if known.settings.scheduler == "kai" else ()),
        ),
        components=known.components,
        audit_log=control_plane.find_audit_log(folder, known.name) if known.audited else None,
        server=known.server,
        nodes=known.settings.nodes,
        provider=known.provider,
        kubectl=known.kubectl,
    )
