"""What is said of a cluster: after it came up, and how it is now."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import psutil

from workbench.errors import ConfigError, WorkbenchError
from workbench.scaletest.connection import Connection, target
from workbench.scaletest.localcluster import cluster, identity, nodes, processes, record, starting
from workbench.scaletest.localcluster.cluster import LocalCluster
from workbench.scaletest.localcluster.record import Part, Record


@dataclass(frozen=True)
class Process:
    """A part of the cluster: `pid` and `rss_bytes` null when it is not there."""

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
class Status:
    """How a cluster is. `nodes_ready` is null when its API server does not answer."""

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
    processes: tuple[Process, ...]

    @property
    def well(self) -> bool:
        """All is as it should be."""
        return (
            self.state == "up" and self.nodes_ready == self.nodes and all(process.healthy for process in self.processes)
        )

    def as_json(self) -> str:
        """One JSON document."""
        return json.dumps({**asdict(self), "well": self.well}, indent=1)

    def as_text(self) -> str:
        """A short table."""
        ready = "?" if self.nodes_ready is None else self.nodes_ready
        lines = [
            f"{self.name}: {self.state if self.well else self.state + ', not well'}, "
            f"Kubernetes {self.kubernetes_version or '?'} at {self.server or '?'}, "
            f"{ready} of {self.nodes} simulated nodes ready",
            f"{'':24} {'pid':>8} {'health':>8} {'RSS MiB':>8} {'port':>6} {'limit/s':>10}  version",
        ]
        for one in self.processes:
            health = "well" if one.healthy else "gone" if one.pid is None else "ill"
            rss = "" if one.rss_bytes is None else f"{one.rss_bytes / 2**20:.0f}"
            limit = "" if one.client_qps is None else f"{one.client_qps:g}:{one.client_burst}"
            lines.append(
                f"{one.name:24} {one.pid or '':>8} {health:>8} {rss:>8} {one.port or '':>6} {limit:>10}  "
                f"{one.version or ''}"
            )
        return "\n".join(lines)


def status(name: str) -> Status:
    """How a cluster is now.

    Raises
    ------
    ConfigError
        There is none of this name.
    """
    known = record.read(name)
    if known is None:
        raise ConfigError(
            "no such local cluster", where="--name", found=name, allowed=record.names() or None, do=cluster.UP
        )
    alive = processes.running(known.folder)
    return Status(
        name=name,
        state=known.state,
        server=known.server,
        provider=known.provider,
        kubernetes_version=known.kubernetes_version,
        kubeconfig=str(known.folder / starting.KUBECONFIG),
        context=identity.context(name),
        measure_kubeconfig=str(known.folder / starting.MEASURE),
        measure_context=identity.measure_context(name),
        nodes=known.settings.nodes,
        nodes_ready=_nodes_ready(known),
        processes=tuple(_process(known, part, alive.get(part.name, [])) for part in known.parts),
    )


def _process(known: Record, part: Part, alive: list[psutil.Process]) -> Process:
    from workbench.scaletest.localcluster import control_plane

    about = next((one for one in known.components if one.name == part.name), None)
    pid, rss = None, None
    with contextlib.suppress(psutil.Error, IndexError):
        pid, rss = alive[0].pid, alive[0].memory_info().rss
    return Process(
        name=part.name,
        pid=pid,
        healthy=pid is not None and processes.is_healthy(part.health),
        rss_bytes=rss,
        port=urlsplit(part.health).port,
        version=about.version if about else None,
        client_qps=about.client_qps if about else None,
        client_burst=about.client_burst if about else None,
        log=str(control_plane.log_of(known.folder, part.name)),
    )


def _nodes_ready(known: Record) -> int | None:
    async def ask() -> str:
        async with Connection(target(known.folder / starting.KUBECONFIG, identity.context(known.name))) as api:
            return str((await nodes.ready(api))[0])

    try:
        return int(starting.complete(ask()))
    except WorkbenchError:
        return None


def as_text(made: LocalCluster) -> str:
    """What to do with a cluster that came up."""
    return "\n".join(
        [
            f"{made.name}: {made.nodes} simulated nodes at {made.server}, schedulers: {', '.join(made.schedulers)}",
            f"administrator  --kubeconfig {made.kubeconfig}",
            f"for measuring  --kubeconfig {made.measure_kubeconfig}",
            f"audit log      {made.audit_log or 'none'}",
            *([f"kubectl        {made.kubectl} --kubeconfig {made.kubeconfig} get nodes"] if made.kubectl else []),
            f"or say --cluster {made.name} to the commands of scaletest; end it: workbench scaletest cluster down"
            + ("" if made.name == "local" else f" --name {made.name}"),
        ]
    )


def as_json(made: LocalCluster) -> str:
    """The same as one JSON document."""
    found: dict[str, Any] = asdict(made)
    found["components"] = [one.model_dump() for one in made.components]
    return json.dumps(found, indent=1, default=str)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a request to end (SIGTERM, a closed terminal) unwind as Ctrl-C does: what was begun is taken back."""

    def raised(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    kept = {number: signal.signal(number, raised) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
