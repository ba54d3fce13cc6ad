"""Tables on the API server, on nodes and on schedulers: calls, starts of pods, readiness over time, the league."""

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

LEAGUE = Table(
    "league",
    "One row per scheduler: how it did on one plan, over all of its runs, against the first.",
    ("side",),
    (
        Column("side", "str", "The scheduler."),
        Column("runs", "int", "Its runs.", unit="runs"),
        Column("invalid", "int", "Of these, invalid ones.", unit="runs"),
        Column("gangs", "int", "Gangs of all runs.", unit="gangs"),
        Column("complete", "int", "Gangs that were ever complete.", unit="gangs"),
        Column("deadlocked", "int", "Gangs that held GPUs at the end beside another such gang.", unit="gangs"),
        Column("held_gpu_s", "float", "GPU seconds held by gangs that were never complete.", unit="GPU s"),
        Column("stranded_gpus", "float", "Mean while pods waited; median of the runs.", unit="GPUs", nullable=True),
        Column("evicted", "int", "Pods evicted (preemptions).", unit="pods"),
        Column("p50_s", "float", "From due to scheduled, median of the runs' medians.", unit="s", nullable=True),
        Column("p95_s", "float", "The same at p95.", unit="s", nullable=True),
        Column("gang_p50_s", "float", "From a gang's first pod bound to its last.", unit="s", nullable=True),
        Column("rate_per_s", "float", "Sustained rate, low end; median of the runs.", unit="pods/s", nullable=True),
        Column("ratio", "float", "Median of the first over this one's: above 1, this one is faster.", nullable=True),
        Column("low", "float", "Low end of its 95 % interval.", nullable=True),
        Column("high", "float", "High end.", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED; null for the first.", nullable=True),
        Column("reason", "str", "Why it is not decided.", nullable=True),
    ),
)
