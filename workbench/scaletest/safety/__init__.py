"""Safety checks before a test: confirmation, simulated-node fence, preflight, rights, setup and cleanup."""

from workbench.scaletest.safety.cluster_facts import (
    ClusterFacts,
    Finding,
    hash_fingerprint,
    inspect_cluster,
    raise_refusals,
)
from workbench.scaletest.safety.cluster_setup import set_up_cluster
from workbench.scaletest.safety.confirmation import confirm_cluster
from workbench.scaletest.safety.preflight import run_preflight
from workbench.scaletest.safety.run_cleanup import write_run_record

__all__ = [
    "ClusterFacts",
    "Finding",
    "confirm_cluster",
    "hash_fingerprint",
    "inspect_cluster",
    "raise_refusals",
    "run_preflight",
    "set_up_cluster",
    "write_run_record",
]
