"""Facts about a cluster (server, version, nodes, identity), and findings of checks."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_items
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api.api_discovery import MANAGED_BY, MANAGER, keeps_pods_off
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.scenario.workload_entries import parse_quantity
from workbench.scaletest.scenario.workload_objects import GPU, KWOK_NODE

Level = Literal["ok", "warning", "refused"]
_DIGITS = 10


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    level: Level
    check: str
    text: str
    do: str | None = None

    def format_line(self) -> str:
        """Format the finding for a terminal."""
        return f"{self.level:8} {self.check}: {self.text}" + (f"\n         do: {self.do}" if self.do else "")


def raise_refusals(findings: Iterable[Finding]) -> None:
    """Raise an error that lists all refusals, if there are any.

    >>> raise_refusals([Finding("ok", "fence", "pods can only go to 40 simulated node(s)")])
    """
    bad = [finding for finding in findings if finding.level == "refused"]
    if not bad:
        return
    if len(bad) == 1:
        raise ConfigError("the test was not begun", where=bad[0].check, found=bad[0].text, do=bad[0].do)
    refusals = "".join(
        f"\n    {finding.check}: {finding.text}" + (f"\n      do: {finding.do}" if finding.do else "")
        for finding in bad
    )
    raise ConfigError(f"the test was not begun, for {len(bad)} reasons", found=refusals)


@dataclass(frozen=True)
class NodeFacts:
    """A node, as far as a test needs it; `offers` are all its allocatable amounts."""

    name: str
    simulated: bool
    ready: bool
    gpus: int
    cpus: float
    memory_bytes: int
    pods: int
    labels: dict[str, str]
    taints: tuple[tuple[str, str], ...]
    offers: Mapping[str, float] = field(default_factory=dict)

    def offered(self, resource: str) -> float:
        """Allocatable amount of a resource."""
        known = {GPU: self.gpus, "cpu": self.cpus, "memory": self.memory_bytes, "pods": self.pods}
        return float(known.get(resource, self.offers.get(resource, 0.0)))

    @property
    def takes_pods(self) -> bool:
        """Ready, and without a taint of Kubernetes' own, such as that of a cordoned node."""
        return self.ready and not any(keeps_pods_off(*taint) for taint in self.taints)


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about a cluster.

    `own`: Name, if it is a local cluster of the workbench; None otherwise.
    `other_pods`: Number of pods without the run label; None without the permission to list them.
    `identity`, `groups`: User name and groups by which the API server knows the measuring identity.
    """

    context: str
    server: str
    server_version: str
    fingerprint: str
    own: str | None
    identity: str
    groups: tuple[str, ...]
    nodes: tuple[NodeFacts, ...]
    other_pods: int | None

    @property
    def server_sha256(self) -> str:
        """Hash of the server address, which is recorded in place of the address."""
        return hashlib.sha256(self.server.encode()).hexdigest()

    @property
    def real_nodes(self) -> int:
        """Number of real nodes."""
        return sum(not node.simulated for node in self.nodes)

    @property
    def real_gpu_nodes(self) -> int:
        """Number of real nodes with GPUs."""
        return sum(not node.simulated and node.gpus > 0 for node in self.nodes)

    def format_lines(self) -> list[str]:
        """Facts to show before a confirmation."""
        pods = "unknown (no permission to list them)" if self.other_pods is None else f"{self.other_pods:,}"
        kind = f"local cluster {self.own} of the workbench" if self.own else "not a local cluster of the workbench"
        simulated = len(self.nodes) - self.real_nodes
        return [
            f"context      {self.context}",
            f"server       {self.server}  ({kind})",
            f"version      {self.server_version}",
            f"fingerprint  {self.fingerprint}",
            f"nodes        {len(self.nodes):,}: {simulated:,} simulated, {self.real_nodes:,} real"
            f", {self.real_gpu_nodes:,} of the real ones with GPUs{self._format_closed_nodes()}",
            f"pods         {pods} without the label of a test",
            f"identity     {self.identity}",
        ]

    def _format_closed_nodes(self) -> str:
        closed = [node.name for node in self.nodes if not node.takes_pods]
        if not closed:
            return ""
        return f"; {len(closed):,} of all take no pods (cordoned, tainted or not ready: {format_items(closed, 3)})"

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        return {
            "context": self.context,
            "server": self.server,
            "server_version": self.server_version,
            "fingerprint": self.fingerprint,
            "local_cluster": self.own,
            "identity": self.identity,
            "groups": list(self.groups),
            "nodes": len(self.nodes),
            "simulated_nodes": len(self.nodes) - self.real_nodes,
            "real_nodes": self.real_nodes,
            "real_gpu_nodes": self.real_gpu_nodes,
            "gpus": sum(node.gpus for node in self.nodes if node.takes_pods),
            "other_pods": self.other_pods,
        }


def hash_fingerprint(uid: str) -> str:
    """Short hash of the uid of namespace kube-system.

    >>> hash_fingerprint("8f3c2c55-7d5c-4d5e-9a43-0e8f8f2b7d10")
    '8eb03d67f1'
    """
    return hashlib.sha256(uid.encode()).hexdigest()[:_DIGITS]


async def inspect_cluster(api: Connection) -> ClusterFacts:
    """Read the facts of a cluster; read-only."""
    target = api.target
    version = await api.json("GET", "/version")
    space = await api.json("GET", "/api/v1/namespaces/kube-system")
    review = await api.json(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    user = (review.get("status") or {}).get("userInfo") or {}
    nodes = [_build_node_facts(node) async for node in iterate_items(api, "/api/v1/nodes")]
    return ClusterFacts(
        context=target.context,
        server=target.server,
        server_version=str(version.get("gitVersion", "unknown"))[:80],
        fingerprint=hash_fingerprint(str(space["metadata"]["uid"])),
        own=_find_local_cluster(target),
        identity=str(user.get("username", "unknown"))[:200],
        groups=tuple(str(group)[:200] for group in user.get("groups") or []),
        nodes=tuple(nodes),
        other_pods=await _count_other_pods(api),
    )


def _find_local_cluster(target: Target) -> str | None:
    """Name of the local cluster at this address. A loopback address alone is no proof: tunnels use one too."""
    if not target.is_local:
        return None
    from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record

    for name in cluster_record.list_cluster_names():
        with contextlib.suppress(ConfigError, InputError):
            if cluster_lifecycle.find_cluster(name).server.rstrip("/") == target.server:
                return name
    return None


async def _count_other_pods(api: Connection) -> int | None:
    """Number of pods without the run label, counted by the server with `limit=1`."""
    query = {"limit": "1", "labelSelector": f"{MANAGED_BY}!={MANAGER}"}
    try:
        first = await api.json("GET", "/api/v1/pods", query=query)
    except ApiError as error:
        if error.status == 403:
            return None
        raise
    there = len(first.get("items") or [])
    n_remaining = (first.get("metadata") or {}).get("remainingItemCount")
    if n_remaining is not None or there == 0 or not (first.get("metadata") or {}).get("continue"):
        return there + int(n_remaining or 0)
    # The server returns remainingItemCount only for lists without a selector.
    return sum([1 async for _ in iterate_items(api, "/api/v1/pods", labelSelector=query["labelSelector"])])


def _build_node_facts(node: dict[str, Any]) -> NodeFacts:
    about, status = node.get("metadata") or {}, node.get("status") or {}
    room = status.get("allocatable") or {}
    conditions = {condition.get("type"): condition.get("status") for condition in status.get("conditions") or []}
    return NodeFacts(
        name=str(about.get("name")),
        simulated=KWOK_NODE in (about.get("annotations") or {}),
        ready=conditions.get("Ready") == "True",
        gpus=int(_parse_amount(room, GPU)),
        cpus=_parse_amount(room, "cpu"),
        memory_bytes=int(_parse_amount(room, "memory")),
        pods=int(_parse_amount(room, "pods")),
        offers={str(name): _parse_amount(room, name) for name in room},
        labels=dict(about.get("labels") or {}),
        taints=tuple(
            (str(taint.get("key")), str(taint.get("effect"))) for taint in (node.get("spec") or {}).get("taints") or []
        ),
    )


def _parse_amount(room: dict[str, Any], resource: str) -> float:
    with contextlib.suppress(ValueError):
        return parse_quantity(room.get(resource, 0))
    return 0.0
