"""From GPUs to replicas and nodes: a replica's GPUs are never split, and neither is one laid over two nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """How many replicas, on how many nodes.

    Attributes
    ----------
    gpus
        GPUs that the load needs.
    gpus_per_replica, gpus_per_node
        GPUs that one replica and one node have.
    needed
        Replicas that carry the load.
    spare
        Replicas beyond these.
    per_node
        Replicas that fit on a node.
    nodes
        Nodes that hold all replicas.
    """

    gpus: int
    gpus_per_replica: int
    gpus_per_node: int
    needed: int
    spare: int
    per_node: int
    nodes: int

    @property
    def replicas(self) -> int:
        """All replicas."""
        return self.needed + self.spare

    @property
    def used_gpus(self) -> int:
        """GPUs that replicas hold."""
        return self.replicas * self.gpus_per_replica

    @property
    def stranded_gpus(self) -> int:
        """GPUs of the nodes that are too few to hold another replica, on full nodes."""
        return (self.gpus_per_node - self.per_node * self.gpus_per_replica) * (self.replicas // self.per_node)

    @property
    def idle_gpus(self) -> int:
        """All GPUs of the nodes that no replica holds, the stranded ones among them."""
        return self.nodes * self.gpus_per_node - self.used_gpus

    def told(self) -> list[str]:
        """The way from GPUs to nodes in sentences."""
        spare = f" and {self.spare} spare" if self.spare else ", none spare"
        lines = [
            f"{self.gpus} GPUs -> {self.needed} replicas of {self.gpus_per_replica}{spare}: {self.replicas} replicas",
            f"{self.per_node} replicas on a node of {self.gpus_per_node} GPUs -> {self.nodes} nodes, "
            f"{self.idle_gpus} of their {self.nodes * self.gpus_per_node} GPUs unused",
        ]
        if self.stranded_gpus:
            lines[-1] += f" ({self.stranded_gpus} of these too few on their node for a replica)"
        return lines


def plan(
    gpus: int, *, gpus_per_replica: int = 1, gpus_per_node: int = 8, spare: int = 1, survive_node: bool = False
) -> Plan:
    """How many replicas and nodes do so many GPUs come to?

    Parameters
    ----------
    gpus
        GPUs that the load needs, rounded up already.
    gpus_per_replica
        GPUs that one copy of the model spans: tensor times pipeline parallelism.
    gpus_per_node
        GPUs of a node.
    spare
        Replicas that may be missing while the load is still carried; 1 is N+1.
    survive_node
        Spare as many as one node can hold.

    Raises
    ------
    ConfigError
        A number is out of range, or a replica does not fit on a node.

    Examples
    --------
    >>> found = plan(14, gpus_per_replica=3, gpus_per_node=8)
    >>> found.needed, found.replicas, found.per_node, found.nodes, found.idle_gpus
    (5, 6, 2, 3, 6)
    """
    for name, value, least in (
        ("gpus", gpus, 1),
        ("gpus_per_replica", gpus_per_replica, 1),
        ("gpus_per_node", gpus_per_node, 1),
        ("spare", spare, 0),
    ):
        if value < least:
            raise ConfigError("too small", where=name, found=value, allowed=f"{least} or more")
    per_node = gpus_per_node // gpus_per_replica
    if not per_node:
        raise ConfigError(
            "a replica does not fit on a node",
            where="gpus_per_replica",
            found=gpus_per_replica,
            allowed=f"up to {gpus_per_node}",
            do="lay such replicas over several nodes by a LeaderWorkerSet, which is not written here",
        )
    needed = math.ceil(gpus / gpus_per_replica)
    spare = max(spare, per_node) if survive_node else spare
    nodes = math.ceil((needed + spare) / per_node)
    return Plan(gpus, gpus_per_replica, gpus_per_node, needed, spare, per_node, nodes)
