"""Tables on the API server and on nodes: latency of calls, starts of pods, readiness of nodes over time."""

from __future__ import annotations

from workbench.core.tables import Column, Table

CALLS = Table(
    "api_calls",
    "One row per verb and resource: how long API calls took, by the audit log, against the usual objective.",
    ("verb", "resource", "subresource"),
    (
        Column("verb", "str", "As in the audit log."),
        Column("resource", "str", "Plural name."),
        Column("subresource", "str", "Empty for none."),
        Column("requests", "int", "How many.", unit="requests"),
        Column("failed", "int", "Answers of 400 and above.", unit="requests"),
        Column("p50_s", "float", "Median of the seconds' medians, weighted.", unit="s"),
        Column("p99_s", "float", "p99 of the seconds' p99, weighted: an upper estimate.", unit="s"),
        Column("allowed_s", "float", "Objective for its p99.", unit="s"),
        Column("holds", "bool", "It does."),
    ),
)

STARTUP = Table(
    "pod_startup",
    "One row per phase of a pod's start, against the usual objective.",
    ("phase",),
    (
        Column("phase", "str", "create to schedule, schedule to run, pod startup."),
        Column("n", "int", "Pods that began it.", unit="pods"),
        Column("never", "int", "Of these, pods that never completed it.", unit="pods"),
        Column("p50_s", "float", "Median; null: not reached.", unit="s", nullable=True),
        Column("p90_s", "float", "90th percentile.", unit="s", nullable=True),
        Column("p99_s", "float", "99th percentile.", unit="s", nullable=True),
        Column("allowed_s", "float", "Objective for its p99; null for none.", unit="s", nullable=True),
        Column("holds", "bool", "It does; null without an objective.", nullable=True),
    ),
)

NODE_CHANGES = Table(
    "node_changes",
    "One row per change of a node that was seen: its readiness and GPUs from then on.",
    (),
    (
        Column("at_s", "float", "Arrival at the sampler, client's clock.", unit="s"),
        Column("name", "str", "The node."),
        Column("ready", "bool", "It is ready; false for a deleted one."),
        Column("gpus", "int", "Allocatable GPUs.", unit="GPUs"),
    ),
)
