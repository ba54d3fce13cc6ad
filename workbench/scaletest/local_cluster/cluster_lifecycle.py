"""Lifecycle of a local cluster: start, find, restart parts, stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.core.errors import ConfigError
from workbench.scaletest.local_cluster import (
    cluster_record,
    component_processes,
    control_plane,
    identities,
    kai_scheduler,
    kueue_queues,
    program_providers,
)
from workbench.scaletest.local_cluster.cluster_record import (
    ClientLimit,
    ClusterPart,
    ClusterRecord,
    ClusterSettings,
    NodePool,
    Scheduler,
    StartDelay,
    check_api_arguments,
    check_client_limits,
    check_cluster_name,
)
from workbench.scaletest.local_cluster.cluster_start import (
    KUBECONFIG,
    MEASURE_KUBECONFIG,
    remove_cluster,
    run_coroutine,
    start_from_nothing,
)
from workbench.scaletest.observation.run_conditions import Component
from workbench.scaletest.scenario.scenario_file import GANG_SCHEDULING
from workbench.scaletest.scenario.scheduler_recipes import SchedulerRecipe

__all__ = [
    "KUBECONFIG",
    "MEASURE_KUBECONFIG",
    "UP_COMMAND",
    "LocalCluster",
    "find_cluster",
    "kill_component",
    "list_lost_parts",
    "remove_cluster",
    "restart_component",
    "run_coroutine",
    "start_cluster",
    "start_from_nothing",
    "stop_cluster",
]
UP_COMMAND = "workbench scaletest cluster up"
_ATTEMPTS = 3


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
    *,
    pools: Sequence[NodePool] = (NodePool(nodes=200, gpus=8),),
    scheduler: Scheduler = "default",
    client_limits: Mapping[str, ClientLimit] | None = None,
    api_arguments: Mapping[str, str] | None = None,
    feature_gates: Mapping[str, bool] | None = None,
    scheduler_arguments: Mapping[str, str] | None = None,
    start_delay: StartDelay | None = None,
    recipes: Sequence[SchedulerRecipe] = (),
    kueue: bool = False,
    queue_quotas: Mapping[str, int] | None = None,
    programs: Path | None = None,
    provider: program_providers.Provider | None = None,
    folder: Path | None = None,
    owner: tuple[int, float] = (0, 0.0),
    timeout_s: float = 120,
    tell: Callable[[str], None] = lambda _: None,
) -> LocalCluster:
    """Start a cluster; a running one of this name is reused if it has the same settings.

    `scheduler`: `kai`: KAI runs beside the default scheduler, and pods choose by their schedulerName.
    `feature_gates`, `scheduler_arguments`: Gates of API server, controller-manager and scheduler; other arguments of
    the default scheduler.
    `start_delay`: How long simulated nodes take to start a pod; no time without it.
    `recipes`: Schedulers of program `kube-scheduler` that run beside the control plane's own.
    `kueue`, `queue_quotas`: Kueue runs, with these queues and their GPUs; one queue `default` with all GPUs without
    them.
    `client_limits`: Requests per second (and burst) of components; Kubernetes' defaults for the others.
    `folder`: Empty or new folder for its data; by default in the user's cache.
    `owner`: Process id and start time of a process; the cluster is stopped when it ends.
    """
    check_cluster_name(name)
    limits = check_client_limits(
        client_limits or {}, scheduler, [*(recipe.name for recipe in recipes), *(["kueue"] if kueue else [])]
    )
    arguments = check_api_arguments(api_arguments or {})
    settings = ClusterSettings(
        pools=tuple(pools),
        scheduler=scheduler,
        client_limits=limits,
        api_arguments=arguments,
        feature_gates=dict(feature_gates or {}),
        scheduler_arguments=check_api_arguments(scheduler_arguments or {}),
        start_delay=start_delay,
        recipes=tuple(recipes),
        kueue=kueue,
        queue_quotas=dict(queue_quotas or {}),
    )
    with cluster_record.lock_cluster(name):
        if (cluster := _reuse_or_remove(name, settings, tell)) is not None:
            return cluster
        binaries = program_providers.find_binaries(programs, provider)
        if scheduler == "kai":
            binaries.require_kai()
        if settings.kueue:
            binaries.require_kueue()
        if settings.recipes:
            binaries.require_scheduler()
        return _start_with_free_ports(name, settings, binaries, folder, owner, timeout_s, tell)


def _reuse_or_remove(name: str, settings: ClusterSettings, tell: Callable[[str], None]) -> LocalCluster | None:
    """The running cluster of this name; None after removing the remains of one."""
    record = _read_or_guess_record(name)
    if record is None:
        return None
    if record.state == "up" and not list_lost_parts(record):
        _check_same_settings(record, settings)
        tell("the cluster is already up")
        return _build_local_cluster(record)
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
    if gone := list_lost_parts(record):
        gone = _start_rested_schedulers(record, gone)
    if gone:
        raise ConfigError("components of the local cluster are not running", where=name, found=gone, do=again)
    return _build_local_cluster(record)


def stop_cluster(name: str = "local") -> bool:
    """Stop a cluster and remove its processes and folders; whether there was anything."""
    check_cluster_name(name)
    with cluster_record.lock_cluster(name):
        return remove_cluster(name)


def kill_component(cluster: LocalCluster, component: str) -> None:
    """Kill a component, as a crash would, without a restart."""
    _parts_by_name(cluster, component)
    component_processes.end_processes(component_processes.find_processes(cluster.folder).get(component, []))


def restart_component(cluster: LocalCluster, component: str, *, timeout_s: float = 120) -> None:
    """Restart a component with its own command line, and wait until it is healthy.

    Components that ended meanwhile are restarted too: the controller-manager and the scheduler exit when they cannot
    renew their lease for 10 s. A restarted one is idle until its old lease expires, 15 s at most.
    """
    parts = _parts_by_name(cluster, component)
    before = component_processes.find_processes(cluster.folder)
    component_processes.end_processes(before.get(component, []), grace_s=2)
    _start_part(cluster, parts[component], timeout_s)
    for name in sorted(set(before) - set(component_processes.find_processes(cluster.folder))):
        _start_part(cluster, parts[name], timeout_s)


def _start_rested_schedulers(record: ClusterRecord, gone: list[str]) -> list[str]:
    """Start schedulers that a comparison had stopped when it was killed; the parts that are still missing."""
    from workbench.scaletest.local_cluster import scheduler_switch

    if set(gone) <= set(scheduler_switch.list_switchable(record)):
        scheduler_switch.run_only(_build_local_cluster(record), None)
        return list_lost_parts(record)
    return gone


def list_lost_parts(record: ClusterRecord) -> list[str]:
    """Components that should run and do not."""
    alive = component_processes.find_processes(record.folder)
    return [part.name for part in record.parts if part.name not in alive]


def _parts_by_name(cluster: LocalCluster, component: str) -> dict[str, ClusterPart]:
    """All components by name; an error if this one is missing."""
    record = cluster_record.read_record(cluster.name)
    parts = {part.name: part for part in record.parts} if record else {}
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


def _check_same_settings(record: ClusterRecord, settings: ClusterSettings) -> None:
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
