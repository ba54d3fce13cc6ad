"""What a plan reads of other areas' run folders: of each table the columns that it needs, and nothing else.

Areas do not import each other: these are the plan's own declarations, checked when a run is read.
"""

from __future__ import annotations

from workbench.tables import Column, Table


def _figure(name: str, meaning: str, unit: str = "") -> Column:
    return Column(name, "float", meaning, unit, nullable=True)


APPLICATIONS = Table(
    "applications",
    "Of a speedup qualification: what each application would take on the candidate.",
    ("log",),
    (
        Column("log", "str", "Event log."),
        Column("app_name", "str", "Name of the application.", nullable=True),
        _figure("baseline_s", "What it took.", "s"),
        _figure("predicted_s", "What it would take; null: not judged.", "s"),
        _figure("predicted_low_s", "Low end of the prediction interval.", "s"),
        _figure("predicted_high_s", "High end.", "s"),
        _figure("baseline_cost", "At the price of the baseline; null without prices.", "currency"),
        _figure("predicted_cost", "At the price of the candidate.", "currency"),
    ),
)

ESTIMATES = Table(
    "estimates",
    "Of a sizing estimate: what the test GPUs carry within each target.",
    ("target",),
    (
        Column("target", "str", "Name of the target."),
        Column("load_unit", "str", "users or 1/s."),
        Column("test_gpus", "int", "GPUs that the sweep ran on."),
        _figure("capacity", "Largest load that they carry at the target."),
        _figure("capacity_low", "Low end of its interval."),
        _figure("capacity_high", "High end."),
        Column("binding", "bool", "It asks for the most GPUs of all targets."),
        Column("reason", "str", "What is missing, where there is no capacity.", nullable=True),
    ),
)

SCALING = Table(
    "scaling",
    "Of the same, where several GPU counts were measured: how what they carry grows with them.",
    ("target", "model"),
    (
        Column("target", "str", "Name of the target."),
        Column("model", "str", "linear, Amdahl or USL; the last one of a target is what its answer follows."),
        Column("counts", "list[int]", "GPU counts that were measured."),
        Column("contention", "float", "Share of the work that does not spread."),
        Column("coherency", "float", "Cost of each pair of GPUs."),
    ),
)

STEPS = Table(
    "steps",
    "Of the same: who was loaded.",
    ("step",),
    (Column("step", "int", "Number of the step."), Column("simulated", "bool", "The service was a simulator.")),
)

RECOMMENDATIONS = Table(
    "recommendations",
    "Of an indicator recommendation: how many times better each stack is than the baseline, over the mix.",
    ("stack",),
    (
        Column("stack", "str", "Name of the stack."),
        Column("baseline", "bool", "It is the baseline."),
        Column("recommended", "bool", "It is the answer."),
        _figure("ratio", "How many times better than the baseline."),
        _figure("low", "Low end of the interval."),
        _figure("high", "High end."),
        Column("level", "float", "Confidence of the interval."),
        Column("predicted", "bool", "From other stacks, not from runs of its own."),
    ),
)

EFFECTS = Table(
    "effects",
    "Of the same: what was measured.",
    ("metric", "arm"),
    (Column("metric", "str", "What is compared."), Column("arm", "str", "The side.")),
)

SUSTAINED = Table(
    "sustained",
    "Of a scale test: the rate that the cluster sustains, by side where there are several.",
    (),
    (
        _figure("low_per_s", "Low end of the rate; null: not decided.", "pods/s"),
        _figure("high_per_s", "High end; null: never reached.", "pods/s"),
        Column("level", "float", "Confidence."),
        Column("simulated_nodes", "bool", "The nodes exist in the API only."),
        Column("reason", "str", "What it rests on."),
    ),
)
