"""The tables of a plan. Quantiles are over the draws; what is not covered is null, never 0."""

from __future__ import annotations

from workbench.tables import Column, Table


def _quantiles(name: str, meaning: str, unit: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{name}_p{share}", "float", f"{meaning}, P{share}.", unit, nullable=True) for share in (5, 50, 95)
    )


SOURCES = Table(
    "sources",
    "One row per input: its value, its interval, and where it comes from.",
    ("input",),
    (
        Column("input", "str", "What it is."),
        Column("value", "float", "Its value; the median of its draws.", nullable=True),
        Column("low", "float", "Low end of its interval; null: a point.", nullable=True),
        Column("high", "float", "High end.", nullable=True),
        Column("level", "float", "Confidence of the interval.", unit="share", nullable=True),
        Column("unit", "str", "Unit of value and ends."),
        Column("area", "str", "Area that measured it."),
        Column("run", "str", "Its run."),
        Column("verdict", "str", "Verdict of that run."),
        Column("note", "str", "How it is used, and what to know of it."),
    ),
)

HOURS_TABLE = Table(
    "hours",
    "One row per hour: what comes in, and what it takes.",
    ("hour",),
    (
        Column("hour", "int", "The hour that begins then.", unit="h"),
        Column("jobs", "float", "Jobs that arrive, as planned.", nullable=True),
        Column("load", "float", "Load of the service, as planned.", nullable=True),
        *_quantiles("spark_gpus", "GPUs of Spark's work", "GPUs"),
        *_quantiles("replicas", "Replicas", ""),
        *_quantiles("service_gpus", "GPUs of the replicas", "GPUs"),
        *_quantiles("gpus", "GPUs of both", "GPUs"),
        *_quantiles("nodes", "Nodes", "nodes"),
        Column("capacity_gpus", "float", "GPUs of the nodes, P50.", unit="GPUs"),
        *_quantiles("cost", "Cost of the hour, nodes following it", "currency"),
        Column("pods_per_s_p95", "float", "Pods that arrive a second when it is worst, P95.", unit="pods/s"),
    ),
)

DAY = Table(
    "day",
    "One row per figure of the day.",
    ("figure",),
    (
        Column("figure", "str", "What it is."),
        Column("unit", "str", "Its unit."),
        Column("p5", "float", "5 % of the draws are at or below it."),
        Column("p50", "float", "Half of them."),
        Column("p95", "float", "95 % of them."),
    ),
)

CONSTRAINTS = Table(
    "constraints",
    "One row per constraint at the peak hour: what it asks for, and what there would be without it.",
    ("constraint",),
    (
        Column("constraint", "str", "Spark work, service replicas, packing, or the scheduler's rate."),
        Column("figure", "float", "What it asks for.", nullable=True),
        Column("unit", "str", "Unit of the figure."),
        Column("nodes_without", "int", "Nodes at that hour if it were not there.", nullable=True),
        Column("nodes_saved", "int", "How many fewer that is.", nullable=True),
        Column("binding", "bool", "It is the one that decides."),
        Column("relief", "str", "What would relax it."),
    ),
)

TORNADO = Table(
    "tornado",
    "One row per input: the plan with it at its own P5 and P95, all others at their medians; largest swing first.",
    ("input",),
    (
        Column("input", "str", "The input that moves."),
        Column("input_p5", "float", "Where it is at P5."),
        Column("input_p95", "float", "Where it is at P95."),
        Column("unit", "str", "Its unit."),
        Column("gpus_at_p5", "float", "GPUs at the peak then.", unit="GPUs"),
        Column("gpus_median", "float", "GPUs at the peak with everything at its median.", unit="GPUs"),
        Column("gpus_at_p95", "float", "GPUs at the peak with it at P95.", unit="GPUs"),
        Column("nodes_at_p5", "int", "Nodes at the peak.", unit="nodes"),
        Column("nodes_at_p95", "int", "The same at P95.", unit="nodes"),
        Column("cost_at_p5", "float", "Cost of the day, scaled by the hour.", nullable=True),
        Column("cost_at_p95", "float", "The same at P95.", nullable=True),
        Column("swing_gpus", "float", "Difference of the GPUs.", unit="GPUs"),
    ),
)

WHAT_IF = Table(
    "what_if",
    "One row per hour, share of the jobs and share of the users: GPUs and nodes with every input at its median.",
    ("jobs_percent", "users_percent", "hour"),
    (
        Column("jobs_percent", "int", "Jobs, of those that are planned.", unit="%"),
        Column("users_percent", "int", "Users, of those that are planned.", unit="%"),
        Column("hour", "int", "The hour.", unit="h"),
        Column("gpus", "float", "GPUs of both.", unit="GPUs"),
        Column("nodes", "int", "Nodes.", unit="nodes"),
        Column("capacity_gpus", "float", "GPUs of the nodes.", unit="GPUs"),
    ),
)

ALL = (SOURCES, HOURS_TABLE, DAY, CONSTRAINTS, TORNADO, WHAT_IF)
