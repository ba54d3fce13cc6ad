"""Tables that replays write."""

from __future__ import annotations

from workbench.tables import Column, Table

SIDES = Table(
    "sides",
    "One row for each side of a replay: a set of settings, or an engine.",
    ("side",),
    (
        Column("side", "str", "Name of the side: replay, or A and B."),
        Column("settings", "str", "What this side has set, key=value each."),
        Column(
            "accelerated",
            "bool",
            "Did the engine's own operator run? Null where no engine was asked for.",
            nullable=True,
        ),
        Column("n", "int", "Repeats."),
        Column("operator_s", "float", "Median of total minus scan.", unit="s", nullable=True),
        Column("low_s", "float", "Lower end of its interval.", unit="s", nullable=True),
        Column("high_s", "float", "Upper end of its interval.", unit="s", nullable=True),
        Column("scan_s", "float", "Median time to read the inputs alone.", unit="s", nullable=True),
        Column("total_s", "float", "Median time of operator and scan.", unit="s", nullable=True),
    ),
)

TIMINGS = Table(
    "timings",
    "One row for each run of a replayed operator.",
    ("side", "repeat"),
    (
        Column("side", "str", "Name of the side."),
        Column("repeat", "int", "Number of the run, from 1; the verified run before them is not timed."),
        Column("scan_s", "float", "Reading (for an engine also converting) the inputs alone.", unit="s"),
        Column("total_s", "float", "Reading them and running the operator.", unit="s"),
        Column("operator_s", "float", "The difference of the two.", unit="s"),
    ),
)

METRICS = Table(
    "metrics",
    "Spark's own metrics of the replayed plan, of one run.",
    ("side", "metric"),
    (
        Column("side", "str", "Name of the side."),
        Column("metric", "str", "Node and metric, as Spark names them; times are in ms or ns as Spark counts them."),
        Column("value", "int", "Its value, added over tasks."),
    ),
)

TREE = Table(
    "tree",
    "One row for each operator of the tagged plan, root first.",
    ("position",),
    (
        Column("position", "int", "From the root down."),
        Column("lore_id", "int", "The id; null for a reference to a reused exchange.", nullable=True),
        Column("parent", "int", "Position of the operator above; null for the root.", nullable=True),
        Column("depth", "int", "How far below the root."),
        Column("operator", "str", "Spark's name of the operator."),
        Column("text", "str", "Spark's own line for it."),
        Column("n_rows", "int", "Rows it gave; null where no metric says.", nullable=True),
        Column(
            "time_ms",
            "float",
            "What its own metrics add up to over tasks; null where it has none.",
            unit="ms",
            nullable=True,
        ),
        Column("refused", "str", "Why it cannot be dumped; null when it can.", nullable=True),
    ),
)

ALL = (SIDES, TIMINGS, METRICS)
