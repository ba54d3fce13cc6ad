"""Faults of a cluster's components: killed as by a crash, and restarted."""

from __future__ import annotations

from workbench.core.errors import ConfigError
from workbench.scaletest.local_cluster import cluster_record, component_processes, control_plane
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClusterPart


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
