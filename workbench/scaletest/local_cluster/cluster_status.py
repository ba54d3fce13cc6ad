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
            do=cluster_lifecycle.UP_COMMAND,
        )
    alive = component_processes.find_processes(record.folder)
    return ClusterStatus(
        name=name,
        state=record.state,
        server=record.server,
        provider=record.provider,
        kubernetes_version=record.kubernetes_version,
        kubeconfig=str(record.folder / cluster_lifecycle.KUBECONFIG),
        context=identities.admin_context(name),
        measure_kubeconfig=str(record.folder / cluster_lifecycle.MEASURE_KUBECONFIG),
        measure_context=identities.measure_context(name),
        nodes=record.settings.nodes,
        nodes_ready=_count_ready_nodes(record),
        processes=tuple(_build_component_status(record, part, alive.get(part.name, [])) for part in record.parts),
    )


def _build_component_status(record: ClusterRecord, part: ClusterPart, alive: list[psutil.Process]) -> ComponentStatus:
    from workbench.scaletest.local_cluster import control_plane

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
    async def ask_count() -> str:
        async with Connection(
            load_target(record.folder / cluster_lifecycle.KUBECONFIG, identities.admin_context(record.name))
        ) as api:
            return str((await simulated_nodes.count_ready_nodes(api))[0])

    try:
        return int(cluster_lifecycle.run_coroutine(ask_count()))
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
