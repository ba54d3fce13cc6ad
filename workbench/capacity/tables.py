"""Declared tables of a plan, and the columns that it needs of other areas' tables (INPUT_...)."""

from __future__ import annotations

from workbench.core.tables import Column, Table

SOURCES = Table(
    "sources",
    "One row per input: its value, its interval and its source.",
    ("input",),
    (
        Column("input", "str", "Input."),
        Column("value", "float", "Its value, the median of its draws.", nullable=True),
        Column("low", "float", "Lower end of its interval; null: a point.", nullable=True),
        Column("high", "float", "Upper end.", nullable=True),
        Column("level", "float", "Confidence of the interval.", unit="share", nullable=True),
        Column("unit", "str", "Unit of value and ends."),
        Column("area", "str", "Area that measured it."),
        Column("run", "str", "Its run."),
        Column("verdict", "str", "Verdict of that run."),
        Column("note", "str", "How it is used, and its caveats."),
    ),
)
DAY = Table(
    "day",
    "One row per figure of the day.",
    ("figure",),
    (
        Column("figure", "str", "Figure."),
        Column("unit", "str", "Its unit."),
        Column("p5", "float", "5 % of the draws are at or below it."),
        Column("p50", "float", "Half of them."),
        Column("p95", "float", "95 % of them."),
    ),
)
CONSTRAINTS = Table(
    "constraints",
    "One row per constraint at the peak hour: its demand, and the nodes without it.",
    ("constraint",),
    (
        Column("constraint", "str", "Spark work, service replicas, packing, or the scheduler's rate."),
        Column("figure", "float", "Its demand.", nullable=True),
        Column("unit", "str", "Unit of the figure."),
        Column("nodes_without", "int", "Nodes at that hour without it.", nullable=True),
        Column("nodes_saved", "int", "Nodes saved without it.", nullable=True),
        Column("binding", "bool", "It is the binding constraint."),
        Column("relief", "str", "How to relax it."),
    ),
)
TORNADO = Table(
    "tornado",
    "One row per input: the plan with it at its P5 and P95, all others at their medians; largest swing first.",
    ("input",),
    (
        Column("input", "str", "The varied input."),
        Column("input_p5", "float", "Its P5."),
        Column("input_p95", "float", "Its P95."),
        Column("unit", "str", "Its unit."),
        Column("gpus_at_p5", "float", "GPUs at the peak with it at P5.", unit="GPUs"),
        Column("gpus_median", "float", "GPUs at the peak with everything at its median.", unit="GPUs"),
        Column("gpus_at_p95", "float", "GPUs at the peak with it at P95.", unit="GPUs"),
        Column("nodes_at_p5", "int", "Nodes at the peak with it at P5.", unit="nodes"),
        Column("nodes_at_p95", "int", "The same at P95.", unit="nodes"),
        Column("cost_at_p5", "float", "Cost of the day, scaled by the hour.", nullable=True),
        Column("cost_at_p95", "float", "The same at P95.", nullable=True),
        Column("swing_gpus", "float", "Difference of the GPUs.", unit="GPUs"),
    ),
)
INFORMATION = Table(
    "information",
    "One row per input: what knowing it exactly would save a day; most first.",
    ("input",),
    (
        Column("input", "str", "The input."),
        Column("kind", "str", "measurement: a run can narrow it; forecast: it varies by day."),
        Column("saving", "float", "Expected saving, the most that a measurement can be worth.", unit="a day"),
        Column("share", "float", "Share of what knowing all inputs would save."),
        Column("resolved", "bool", "It exceeds the random variation of the draws."),
    ),
)
WHAT_IF = Table(
    "what_if",
    "One row per hour, share of the jobs and share of the users: GPUs and nodes with every input at its median.",
    ("jobs_percent", "users_percent", "hour"),
    (
        Column("jobs_percent", "int", "Jobs as a share of the planned ones.", unit="%"),
        Column("users_percent", "int", "Users as a share of the planned ones.", unit="%"),
        Column("hour", "int", "The hour.", unit="h"),
        Column("gpus", "float", "GPUs of both.", unit="GPUs"),
        Column("nodes", "int", "Nodes.", unit="nodes"),
        Column("capacity_gpus", "float", "GPUs of the nodes.", unit="GPUs"),
    ),
)
INPUT_SCALING = Table(
    "scaling",
    "Of a sizing estimate on several GPU counts: scaling of the capacity.",
    ("target", "model"),
    (
        Column("target", "str", "Name of the target."),
        Column("model", "str", "linear, Amdahl, USL or falling hits; the answer of a target uses the last one."),
        Column("counts", "list[int]", "Measured GPU counts."),
        Column("contention", "float", "Serial share of the work."),
        Column("coherency", "float", "Cost of each pair of GPUs."),
        Column("miss_cost", "float", "More work without hits in a prefix cache.", nullable=True, added=True),
        Column("miss_rate", "float", "How hits fall with each further GPU.", nullable=True, added=True),
    ),
)
INPUT_STEPS = Table(
    "steps",
    "Of a sizing estimate: its steps.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("simulated", "bool", "The service was a simulator."),
        Column("time_scale", "float", "Factor on all times of the simulator.", nullable=True, added=True),
    ),
)
INPUT_EFFECTS = Table(
    "effects",
    "Of an indicator recommendation: measured metrics.",
    ("metric", "arm"),
    (Column("metric", "str", "Metric."), Column("arm", "str", "The side.")),
)


def _quantile_columns(name: str, meaning: str, unit: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{name}_p{share}", "float", f"{meaning}, P{share}.", unit, nullable=True) for share in (5, 50, 95)
    )


def _added_column(name: str, meaning: str, unit: str) -> Column:
    return Column(name, "float", meaning, unit, nullable=True, added=True)


HOURS_TABLE = Table(
    "hours",
    "One row per hour: load, GPUs, nodes and cost.",
    ("hour",),
    (
        Column("hour", "int", "Start of the hour.", unit="h"),
        Column("jobs", "float", "Planned job arrivals.", nullable=True),
        Column("load", "float", "Planned load of the service.", nullable=True),
        *_quantile_columns("spark_gpus", "GPUs of Spark's work", "GPUs"),
        *_quantile_columns("replicas", "Replicas", ""),
        *_quantile_columns("service_gpus", "GPUs of the replicas", "GPUs"),
        *_quantile_columns("gpus", "GPUs of both", "GPUs"),
        *_quantile_columns("nodes", "Nodes", "nodes"),
        Column("capacity_gpus", "float", "GPUs of the nodes, P50.", unit="GPUs"),
        *_quantile_columns("cost", "Cost of the hour with its own nodes", "currency"),
        _added_column("idle_gpus", "GPUs of the hour's nodes that no job or replica uses, mean.", "GPUs"),
        _added_column("idle_cost", "Their cost, mean.", "currency"),
        _added_column("idle_cost_fixed", "Cost of the idle GPUs with the peak's nodes all day, mean.", "currency"),
        Column("pods_per_s_p95", "float", "Pods per second at the worst time, P95.", unit="pods/s"),
    ),
)
PLAN_TABLES = (SOURCES, HOURS_TABLE, DAY, CONSTRAINTS, TORNADO, INFORMATION, WHAT_IF)


def _figure_column(name: str, meaning: str, unit: str = "") -> Column:
    return Column(name, "float", meaning, unit, nullable=True)


INPUT_APPLICATIONS = Table(
    "applications",
    "Of a speedup qualification: predicted time of each application on the candidate.",
    ("log",),
    (
        Column("log", "str", "Event log."),
        Column("app_name", "str", "Name of the application.", nullable=True),
        _figure_column("baseline_s", "Measured time.", "s"),
        _figure_column("predicted_s", "Predicted time; null: not judged.", "s"),
        _figure_column("predicted_low_s", "Lower end of the prediction interval.", "s"),
        _figure_column("predicted_high_s", "Upper end.", "s"),
        _figure_column("baseline_cost", "Cost on the baseline; null without prices.", "currency"),
        _figure_column("predicted_cost", "Cost on the candidate.", "currency"),
    ),
)

INPUT_ESTIMATES = Table(
    "estimates",
    "Of a sizing estimate: capacity of the test GPUs within each target.",
    ("target",),
    (
        Column("target", "str", "Name of the target."),
        Column("load_unit", "str", "users or 1/s."),
        Column("test_gpus", "int", "GPUs that the sweep ran on."),
        _figure_column("capacity", "Largest load within the target."),
        _figure_column("capacity_low", "Lower end of its interval."),
        _figure_column("capacity_high", "Upper end."),
        Column("binding", "bool", "The target that needs the most GPUs."),
        Column("reason", "str", "Why there is no capacity.", nullable=True),
        Column("served", "str", "Model and GPU type, where they are known.", nullable=True, added=True),
        Column("verdict", "str", "at least: capacity_low is all that is known of it.", nullable=True, added=True),
        _added_column("load", "Load that the run was asked for.", ""),
        _added_column("gpus", "GPUs for it, the estimate.", "GPUs"),
        _added_column("gpus_low", "Lower end of their interval.", "GPUs"),
        _added_column("gpus_high", "Upper end.", "GPUs"),
        Column("recommended", "int", "The upper end, in whole GPUs.", "GPUs", nullable=True, added=True),
        _added_column("session_s", "Mean length of a session of users; null without sessions.", "s"),
    ),
)
INPUT_RECOMMENDATIONS = Table(
    "recommendations",
    "Of an indicator recommendation: ratio of each stack to the baseline, over the mix.",
    ("stack",),
    (
        Column("stack", "str", "Name of the stack."),
        Column("baseline", "bool", "It is the baseline."),
        Column("recommended", "bool", "It is recommended."),
        _figure_column("ratio", "Ratio to the baseline."),
        _figure_column("low", "Lower end of the interval."),
        _figure_column("high", "Upper end."),
        Column("level", "float", "Confidence of the interval."),
        Column("predicted", "bool", "Predicted from other stacks, without own runs."),
        Column("verdict", "str", "Verdict on the ratio.", nullable=True, added=True),
    ),
)
INPUT_SUSTAINED_RATES = Table(
    "sustained",
    "Of a scale test: sustained rate of the cluster, by side if there are several.",
    (),
    (
        _figure_column("low_per_s", "Lower end of the rate; null: not decided.", "pods/s"),
        _figure_column("high_per_s", "Upper end; null: never reached.", "pods/s"),
        Column("level", "float", "Confidence."),
        Column("simulated_nodes", "bool", "The nodes exist in the API only."),
        Column("reason", "str", "Basis of the rate."),
    ),
)
