"""Tables of plans, replays and inspected dumps."""

from __future__ import annotations

from dataclasses import replace

from workbench.core.tables import Column, Table

SIDES = Table(
    "sides",
    "One row per side of a replay: a set of settings, or an engine.",
    ("side",),
    (
        Column("side", "str", "Name of the side: replay, or A and B."),
        Column("settings", "str", "Settings of this side, key=value each."),
        Column(
            "accelerated",
            "bool",
            "Whether the engine's operator ran; null without an engine.",
            nullable=True,
        ),
        Column("n", "int", "Repeats."),
        Column(
            "operator_s",
            "float",
            "Elapsed: median of total minus scan; null when not resolved.",
            unit="s",
            nullable=True,
        ),
        Column("low_s", "float", "Lower end of its interval.", unit="s", nullable=True),
        Column("high_s", "float", "Upper end of its interval.", unit="s", nullable=True),
        Column("scan_s", "float", "Median time of reading the inputs alone.", unit="s", nullable=True),
        Column("total_s", "float", "Median time of operator and scan.", unit="s", nullable=True),
        Column("below_s", "float", "Upper end of the elapsed time where it is not resolved.", unit="s", nullable=True),
        Column(
            "operator_cpu_s",
            "float",
            "CPU time of its tasks with Python workers (A/B of engines: of all processes), in task-seconds: median of "
            "total minus scan; null when not resolved.",
            unit="s",
            nullable=True,
        ),
        Column("low_cpu_s", "float", "Lower end of its interval.", unit="s", nullable=True),
        Column("high_cpu_s", "float", "Upper end of its interval.", unit="s", nullable=True),
        Column("below_cpu_s", "float", "Upper end of the CPU time where it is not resolved.", unit="s", nullable=True),
        Column("operator_run_s", "float", "Run time of its tasks, in task-seconds.", unit="s", nullable=True),
        Column("peak_memory_bytes", "int", "Execution memory of a stage, largest run.", unit="bytes", nullable=True),
        Column("spill_bytes", "int", "Spilled to disk, largest run.", unit="bytes", nullable=True),
    ),
)

TIMINGS = Table(
    "timings",
    "One row per run of a replayed operator.",
    ("side", "repeat"),
    (
        Column("side", "str", "Name of the side."),
        Column("repeat", "int", "Number of the run, from 1; the verified run is not timed."),
        Column("scan_s", "float", "Time of reading the inputs alone (with an engine: also converting them).", unit="s"),
        Column("total_s", "float", "Time of reading them and running the operator.", unit="s"),
        Column("operator_s", "float", "total_s minus scan_s, as measured.", unit="s"),
        Column("scan_cpu_s", "float", "CPU time of reading, task-seconds.", unit="s", nullable=True),
        Column("total_cpu_s", "float", "CPU time of both, task-seconds.", unit="s", nullable=True),
        Column("operator_cpu_s", "float", "total_cpu_s minus scan_cpu_s.", unit="s", nullable=True),
        Column("scan_run_s", "float", "Run time of the tasks of reading.", unit="s", nullable=True),
        Column("total_run_s", "float", "Run time of the tasks of both.", unit="s", nullable=True),
        Column("operator_run_s", "float", "total_run_s minus scan_run_s.", unit="s", nullable=True),
        Column("peak_memory_bytes", "int", "Execution memory of a stage.", unit="bytes", nullable=True),
        Column("spill_bytes", "int", "Spilled to disk.", unit="bytes", nullable=True),
    ),
)

METRICS = Table(
    "metrics",
    "Spark's metrics of one run of the replayed plan.",
    ("side", "metric"),
    (
        Column("side", "str", "Name of the side."),
        Column("metric", "str", "Node and metric in Spark's names."),
        Column("value", "int", "Sum over tasks."),
        Column("unit", "str", "ms, ns, bytes or tenths; empty for a number of things.", nullable=True),
    ),
)

TREE = Table(
    "tree",
    "One row per operator of the tagged plan, root first.",
    ("position",),
    (
        Column("position", "int", "From the root down."),
        Column("lore_id", "int", "The id; null for a reference to a reused exchange.", nullable=True),
        Column("parent", "int", "Position of the operator above; null for the root.", nullable=True),
        Column("depth", "int", "Depth below the root."),
        Column("operator", "str", "Spark's name of the operator."),
        Column("text", "str", "Spark's line for it."),
        Column("n_rows", "int", "Output rows; null without a metric.", nullable=True),
        Column(
            "time_ms",
            "float",
            "Sum of its time metrics over tasks; null without any.",
            unit="ms",
            nullable=True,
        ),
        Column("refused", "str", "Reason why it cannot be dumped; null when it can.", nullable=True),
    ),
)

PLAN_TREE = replace(
    TREE,
    columns=(
        *TREE.columns,
        Column("rows_in", "int", "Input rows, as far as metrics have them.", nullable=True),
        Column("span", "int", "Number of its code-generated stage; null when it runs alone.", nullable=True),
        Column(
            "span_ms",
            "float",
            "For the top operator of a fused stage: time of the whole stage, over tasks.",
            unit="ms",
            nullable=True,
        ),
    ),
)
RATIOS = Table(
    "ratios",
    "One row per quantity with times of both sides.",
    ("quantity",),
    (
        Column("quantity", "str", "operator, operator and scan, or scan (control: the same on both sides)."),
        Column(
            "speed_ratio", "float", "Time of A over that of B, paired by repeat; above 1, B is faster.", unit="ratio"
        ),
        Column("low_ratio", "float", "Lower end of its interval.", unit="ratio", nullable=True),
        Column("high_ratio", "float", "Upper end of its interval.", unit="ratio", nullable=True),
        Column("n", "int", "Pairs of runs."),
        Column("verdict", "str", "B compared with A: FASTER, SLOWER, SAME or UNDECIDED."),
    ),
)

TIMES = Table(
    "times",
    "One row per side and timed quantity.",
    ("side", "quantity"),
    (
        Column("side", "str", "Name of the side."),
        Column("quantity", "str", "operator (total minus reading) or reading its inputs."),
        Column("median_s", "float", "Median over repeats.", unit="s"),
        Column("low_s", "float", "Lower end of its interval.", unit="s", nullable=True),
        Column("high_s", "float", "Upper end of its interval.", unit="s", nullable=True),
        Column("n", "int", "Repeats."),
    ),
)

DIFFERENCES = Table(
    "differences",
    "First rows that only one of two outputs has.",
    ("compared", "position"),
    (
        Column("compared", "str", "The compared outputs, and the one with the row."),
        Column("position", "int", "From 1."),
        Column("row", "str", "The row as JSON, columns c0, c1 and so on."),
    ),
)


_INPUT_KEY = (
    Column("lore_id", "int", "Number of the folder loreId-N."),
    Column("input", "str", "Its folder: input-K, or output where the answer was kept."),
)

BATCHES = Table(
    "batches",
    "One row per batch of an input: a Parquet file.",
    ("lore_id", "input", "partition", "batch"),
    (
        *_INPUT_KEY,
        Column("partition", "int", "Number of the partition in the original."),
        Column("batch", "int", "Number of the batch, in the order of reading."),
        Column("n_rows", "int", "Rows; null for an unreadable file.", nullable=True),
        Column("n_bytes", "int", "Size of the file.", unit="bytes", nullable=True),
        Column("unpacked_bytes", "int", "Uncompressed size by the footer.", unit="bytes", nullable=True),
        Column("n_columns", "int", "Top-level columns.", nullable=True),
        Column("fault", "str", "Why it cannot be read; null when it can.", nullable=True),
    ),
)

PARTITIONS = Table(
    "partitions",
    "One row per dumped partition, most rows first within an input.",
    ("lore_id", "input", "partition"),
    (
        *_INPUT_KEY,
        Column("partition", "int", "Number of the partition in the original."),
        Column("n_batches", "int", "Batches in the dump."),
        Column("promised_batches", "int", "Batches by partition.meta; null without it.", nullable=True),
        Column("n_rows", "int", "Rows of readable batches; null without any.", nullable=True),
        Column("n_bytes", "int", "Size of its files.", unit="bytes"),
        Column("rows_share", "float", "Share of the dumped rows of the input.", nullable=True),
        Column(
            "skew_ratio",
            "float",
            "Rows over the median of the input's dumped partitions; null where that is 0.",
            unit="ratio",
            nullable=True,
        ),
        Column("note", "str", "Remarks and faults; empty without any."),
    ),
)

COLUMNS = Table(
    "columns",
    "One row per column of an input, with statistics of its values.",
    ("lore_id", "input", "position"),
    (
        *_INPUT_KEY,
        Column("position", "int", "Position, from 0; names may repeat."),
        Column("name", "str", "Name for the operator."),
        Column("type", "str", "SQL type; from the Parquet files where no meta has it."),
        Column("nullable", "bool", "Whether it may have nulls; null without a meta.", nullable=True),
        Column("masked", "str", "hash, null or dropped; null for original values.", nullable=True),
        Column("n_rows", "int", "Rows that were read."),
        Column("n_nulls", "int", "Nulls among them; null where the values were not read.", nullable=True),
        Column("n_nan", "int", "NaNs; null for other types.", nullable=True),
        Column("minimum", "str", "Smallest value, cut; null for nested types and without values.", nullable=True),
        Column("maximum", "str", "Largest value, cut; null for nested types and without values.", nullable=True),
        Column("n_distinct", "int", "Distinct values without null; from 1,024 on within about 10 %.", nullable=True),
        Column("distinct_exact", "bool", "Whether n_distinct is exact.", nullable=True),
    ),
)

INSPECTION_TABLES = (BATCHES, PARTITIONS, COLUMNS)
