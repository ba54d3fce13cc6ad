"""Status of a local cluster, as text and JSON."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil

from workbench.console.tables import format_table
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.local_cluster import (
    cluster_lifecycle,
    cluster_record,
    component_processes,
    identities,
    simulated_nodes,
)
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClusterPart, ClusterRecord


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
        return self.state == "up" and self.nodes_ready == self.nodes and all(one.healthy for one in self.processes)

    def to_dict(self) -> dict[str, Any]:
        """Document of `status --json`."""
        return {**asdict(self), "well": self.is_healthy}

    def format_text(self) -> str:
        """Format a line about the cluster and a table of its processes."""
        ready = "?" if self.nodes_ready is None else self.nodes_ready
        rows = [
            (
                one.name,
                one.pid,
                "healthy" if one.healthy else "gone" if one.pid is None else "unhealthy",
                None if one.rss_bytes is None else round(one.rss_bytes / 2**20),
                one.port,
                None if one.client_qps is None else f"{one.client_qps:g}:{one.client_burst}",
                one.version,
            )
            for one in self.processes
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
    known = cluster_record.read_record(name)
    if known is None:
        raise ConfigError(
            "no such local cluster",
            where="--name",
            found=name,
            allowed=cluster_record.list_cluster_names() or None,
            do=cluster_lifecycle.UP_COMMAND,
        )
    alive = component_processes.find_processes(known.folder)
    return ClusterStatus(
        name=name,
        state=known.state,
        server=known.server,
        provider=known.provider,
        kubernetes_version=known.kubernetes_version,
        kubeconfig=str(known.folder / cluster_lifecycle.KUBECONFIG),
        context=identities.admin_context(name),
        measure_kubeconfig=str(known.folder / cluster_lifecycle.MEASURE_KUBECONFIG),
        measure_context=identities.measure_context(name),
        nodes=known.settings.nodes,
        nodes_ready=_count_ready_nodes(known),
        processes=tuple(_build_component_status(known, part, alive.get(part.name, [])) for part in known.parts),
    )


def _build_component_status(known: ClusterRecord, part: ClusterPart, alive: list[psutil.Process]) -> ComponentStatus:
    from workbench.scaletest.local_cluster import control_plane

    about = next((one for one in known.components if one.name == part.name), None)
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
        log=str(control_plane.find_log(known.folder, part.name)),
    )


def _count_ready_nodes(known: ClusterRecord) -> int | None:
    async def ask_count() -> str:
        async with Connection(
            load_target(known.folder / cluster_lifecycle.KUBECONFIG, identities.admin_context(known.name))
        ) as api:
            return str((await simulated_nodes.count_ready_nodes(api))[0])

    try:
        return int(cluster_lifecycle.run_coroutine(ask_count()))
    except WorkbenchError:
        return None


def format_new_cluster(made: LocalCluster) -> str:
    """Text that describes a started cluster and its use."""
    return "\n".join(
        [
            f"{made.name}: {made.nodes} simulated nodes at {made.server}, schedulers: {', '.join(made.schedulers)}",
            f"administrator  --kubeconfig {made.kubeconfig}",
            f"for measuring  --kubeconfig {made.measure_kubeconfig}",
            f"audit log      {made.audit_log or 'none'}",
            *([f"kubectl        {made.kubectl} --kubeconfig {made.kubeconfig} get nodes"] if made.kubectl else []),
            f"use it with --cluster {made.name}; stop it: workbench scaletest cluster down"
            + ("" if made.name == "local" else f" --name {made.name}"),
        ]
    )


def format_new_cluster_json(made: LocalCluster) -> str:
    """The started cluster as a JSON document."""
    found: dict[str, Any] = asdict(made)
    found["components"] = [one.model_dump() for one in made.components]
    return json.dumps(found, indent=1, default=str)
