"""Clusters as they might be found, made by hand."""

from __future__ import annotations

from typing import Any

from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.safety.cluster_facts import ClusterFacts, NodeFacts


def node(name: str = "sim-0", *, simulated: bool = True, labelled: bool = True, gpus: int = 8) -> NodeFacts:
    """A ready node."""
    labels = {api_discovery.SIMULATED: "true"} if labelled else {}
    return NodeFacts(name, simulated, True, gpus, 64, 512 << 30, 110, labels, ())


def cluster(*nodes: NodeFacts, **more: Any) -> ClusterFacts:
    """A cluster of somebody else's, as seen by an ordinary identity."""
    known: dict[str, Any] = {
        "context": "lab",
        "server": "https://lab.example.org:6443",
        "server_version": "v1.36.3",
        "fingerprint": "0123456789",
        "own": None,
        "identity": "system:serviceaccount:workbench-system:measure",
        "groups": ("system:authenticated",),
        "nodes": nodes or (node(),),
        "other_pods": 12,
    }
    return ClusterFacts(**(known | more))
