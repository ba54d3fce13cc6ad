"""A local cluster from start to end: brought up, found again, restarted in parts, and gone without a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError
from workbench.scaletest.facts import Component
from workbench.scaletest.localcluster import binaries, control_plane, identity, kai, processes, record, starting
from workbench.scaletest.localcluster.record import Part, Record
from workbench.scaletest.localcluster.settings import (
    Limit,
    Pool,
    Scheduler,
    Settings,
    checked_arguments,
    checked_limits,
    checked_name,
)

UP = "workbench scaletest cluster up"
_ATTEMPTS = 3


@dataclass(frozen=True)
class LocalCluster:
    """A control plane on this machine that is up.

    Attributes
    ----------
    kubeconfig, context
        Its administrator's, for making namespaces and rights. Never for measuring: an administrator is not throttled.
    measure_kubeconfig, measure_context
        A service account's.
    schedulers
        schedulerName of pods that somebody schedules here.
    components
        Its parts with the limits that they put on their own requests.
    audit_log
        One JSON document a request; null where it is not kept.
    kubectl
        Kubernetes' own client; null where this machine has none.
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


def up(
    name: str = "local",
    *,
    pools: Sequence[Pool] = (Pool(nodes=200, gpus=8),),
    scheduler: Scheduler = "default",
    client_limits: Mapping[str, Limit] | None = None,
    api_arguments: Mapping[str, str] | None = None,
    programs: Path | None = None,
    provider: binaries.Provider | None = None,
    folder: Path | None = None,
    owner: tuple[int, float] = (0, 0.0),
    timeout_s: float = 120,
    tell: Callable[[str], None] = lambda _: None,
) -> LocalCluster:
    """Bring a cluster up; one of this name that is up already is given back when it was asked for the same.

    Parameters
    ----------
    pools
        Its simulated nodes.
    scheduler
        `kai`: KAI runs beside the stock scheduler, and pods choose by their schedulerName.
    client_limits
        Requests a second (and at once) that a component may send; Kubernetes' defaults for all others.
    api_arguments
        Further arguments of the API server.
    programs, provider
        Where the programs are, see `binaries.find`.
    folder
        Where its data goes, empty or not there yet; below the user's cache without it.
    owner
        Process id and start time of whose end should be the cluster's.
    timeout_s
        How long each of its stages may take.
    tell
        Is told each stage.

    Raises
    ------
    ConfigError
        The name or a setting cannot be, or a cluster of this name is up and differs.
    MissingToolError
        There are no programs.
    RunFailedError
        It did not start; nothing of it is left.
    """
    checked_name(name)
    settings = Settings(
        pools=tuple(pools),
        scheduler=scheduler,
        client_limits=checked_limits(client_limits or {}, scheduler),
        api_arguments=checked_arguments(api_arguments or {}),
    )
    with record.locked(name):
        if (known := _known(name)) is not None:
            if known.state == "up" and not lost(known):
                _refuse_other(known, settings)
                tell("it is up already, as asked for")
                return _of(known)
            tell("what is left of an earlier cluster of this name is removed")
            starting.remove(name)
        found = binaries.find(programs, provider)
        if scheduler == "kai":
            found.need_kai()
        for attempt in range(_ATTEMPTS):
            try:
                return _of(starting.started(name, settings, found, folder, owner, timeout_s, tell))
            except control_plane.PortTakenError:
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError("unreachable")


def find(name: str = "local") -> LocalCluster:
    """A cluster that is up.

    Raises
    ------
    ConfigError
        There is none of this name, or parts of it are gone.
    """
    known = record.read(name)
    again = UP if name == "local" else f"{UP} --name {name}"
    if known is None or known.state != "up":
        raise ConfigError(
            "no such local cluster", where="--cluster", found=name, allowed=record.names() or None, do=again
        )
    if gone := lost(known):
        raise ConfigError("parts of the local cluster are gone", where=name, found=gone, do=again)
    return _of(known)


def down(name: str = "local") -> bool:
    """End a cluster: its processes, ports and folders are gone afterwards. Was there anything of it?"""
    checked_name(name)
    with record.locked(name):
        return starting.remove(name)


def kill(cluster: LocalCluster, component: str) -> None:
    """Kill a component as a crash would, and leave it so.

    Raises
    ------
    ConfigError
        The cluster has no such component.
    """
    _parts(cluster, component)
    processes.end(processes.running(cluster.folder).get(component, []))


def restart(cluster: LocalCluster, component: str, *, timeout_s: float = 120) -> None:
    """Stop a component (if it runs), start it as it was started, and wait until it is well.

    Parts that end because it was away are started again: the controller-manager and the scheduler give up when they
    cannot renew their lease for 10 s. One that comes back is idle until its old lease has run out, 15 s at most.

    Raises
    ------
    ConfigError
        The cluster has no such component.
    RunFailedError
        It does not come back: the end of its log is told.
    """
    parts = _parts(cluster, component)
    before = processes.running(cluster.folder)
    processes.end(before.get(component, []), grace_s=2)
    _again(cluster, parts[component], timeout_s)
    for name in sorted(set(before) - set(processes.running(cluster.folder))):
        _again(cluster, parts[name], timeout_s)


def lost(known: Record) -> list[str]:
    """Parts that should run, and do not."""
    alive = processes.running(known.folder)
    return [part.name for part in known.parts if part.name not in alive]


def _parts(cluster: LocalCluster, component: str) -> dict[str, Part]:
    """All parts by name, this one among them."""
    known = record.read(cluster.name)
    parts = {part.name: part for part in known.parts} if known else {}
    if component not in parts:
        raise ConfigError("no such component", where=cluster.name, found=component, allowed=sorted(parts))
    return parts


def _again(cluster: LocalCluster, part: Part, timeout_s: float) -> None:
    processes.start(
        cluster.folder, part.command, control_plane.log_of(cluster.folder, part.name), environment=part.environment
    )
    control_plane.wait_healthy(cluster.folder, (part,), timeout_s=timeout_s)


def _known(name: str) -> Record | None:
    try:
        return record.read(name)
    except ConfigError:
        # What it was cannot be told: it is treated as the rest of a cluster.
        return Record(name=name, state="starting", folder=record.home(name), settings=Settings(), provider="")


def _refuse_other(known: Record, settings: Settings) -> None:
    differing = [
        f"{key}: {getattr(known.settings, key)!r}"
        for key in Settings.model_fields
        if getattr(known.settings, key) != getattr(settings, key)
    ]
    if differing:
        raise ConfigError(
            "a cluster of this name is up, and was asked for something else",
            where=known.name,
            found=differing,
            do=f"workbench scaletest cluster down --name {known.name}, or take another --name",
        )


def _of(known: Record) -> LocalCluster:
    folder = known.folder
    return LocalCluster(
        name=known.name,
        folder=folder,
        kubeconfig=folder / starting.KUBECONFIG,
        measure_kubeconfig=folder / starting.MEASURE,
        context=identity.context(known.name),
        measure_context=identity.measure_context(known.name),
        schedulers=("default-scheduler", kai.SCHEDULER_NAME)
        if known.settings.scheduler == "kai"
        else ("default-scheduler",),
        components=known.components,
        audit_log=control_plane.audit_log(folder, known.name) if known.audited else None,
        server=known.server,
        nodes=known.settings.nodes,
        provider=known.provider,
        kubectl=known.kubectl,
    )
