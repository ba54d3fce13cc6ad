"""Plans of queries with the metrics that their nodes report."""

from __future__ import annotations

from collections.abc import Sequence

from tests.worlds.spark_run import ROWS
from tests.worlds.spark_truth import Node

SCAN = (
    "FileScan parquet [k#1L,v#2,{column}#3] Batched: true, DataFilters: [], Format: Parquet, "
    "Location: InMemoryFileIndex(1 paths)[hdfs:/lake/{table}], PartitionFilters: [], PushedFilters: [], "
    "ReadSchema: struct<k:bigint,v:double,{column}:int>"
)
EXCHANGE = [
    ("shuffle records written", "sum"),
    ("shuffle write time", "nsTiming"),
    ("shuffle bytes written", "size"),
    ("records read", "sum"),
]
ENGINE_NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "rapids": ("Gpu{}", {"SortMergeJoin": "GpuShuffledHashJoin"}),
    "comet": ("Comet{}", {}),
    "photon": ("Photon{}", {"HashAggregate": "PhotonGroupingAgg"}),
    "gluten": ("{}ExecTransformer", {"HashAggregate": "RegularHashAggregateExecTransformer"}),
    "auron": ("Native{}", {}),
}
PYTHON_METRICS = (
    ("time to run Python workers", "timing"),
    ("time to start Python workers", "timing"),
    ("data sent to Python workers", "size"),
)
SCALA = (
    ("Project", "Project [k#1L, UDF(v#2) AS score#9, c#3]"),
    ("Project", "Project [k#1L, score(abs(v#2)) AS score(v)#9, c#3]"),
)
PYTHONS = (
    ("ArrowEvalPython", "ArrowEvalPython [score(v#2)#9], [pythonUDF0#10], 200"),
    ("BatchEvalPython", "BatchEvalPython [score(v#2)#9], [pythonUDF0#10]"),
    ("MapInPandas", "MapInPandas score(k#1L, v#2), [k#11L]"),
    ("MapInArrow", "MapInArrow score(k#1L, v#2), [k#11L]"),
    ("FlatMapGroupsInPandas", "FlatMapGroupsInPandas [k#1L], score(k#1L, v#2), [k#11L]"),
)
SOURCES = (
    (
        "BatchScan lake.sales.{table}",
        "BatchScan lake.sales.{table}[k#1L, v#2] lake.sales.{table} (branch=null) [filters=k IS NOT NULL, groupedBy=]"
        " RuntimeFilters: []",
    ),
    (
        "Scan JDBCRelation((select * from {table}) x) [numPartitions=8] ",
        "Scan JDBCRelation((select * from {table}) x) [numPartitions=8] [k#1L,v#2] PushedFilters: [], "
        "ReadSchema: struct<k:bigint,v:double>",
    ),
    ("Scan ExistingRDD", "Scan ExistingRDD[k#1L,v#2,{table}#3]"),
    (
        "Scan hive db.{table}",
        "Scan hive db.{table} [k#1L, v#2], HiveTableRelation [`db`.`{table}`, "
        "org.apache.hadoop.hive.ql.io.orc.OrcSerde]",
    ),
    (
        "Scan csv ",
        "FileScan csv [k#1L,v#2] Batched: false, Format: CSV, Location: InMemoryFileIndex(1 paths)"
        "[hdfs:/lake/{table}], ReadSchema: struct<k:bigint,v:double>",
    ),
)


def build_scan(table: str, rows: int, column: str = "c", share: float = 0.2, stage: int = 0) -> Node:
    """A scan of a table, with the conversion to rows above it."""
    scan = Node(
        "Scan parquet ",
        SCAN.format(table=table, column=column),
        [],
        [ROWS, ("scan time", "timing")],
        stage,
        rows,
        {"scan time": share},
    )
    below = Node("InputAdapter", "InputAdapter", [scan])
    return Node("ColumnarToRow", "ColumnarToRow", [below], [ROWS], stage, rows)


def build_aggregate(
    table: str,
    rows: int,
    *,
    column: str = "c",
    condition: str = "isnotnull(k#1L)",
    middle: Sequence[Node] = (),
    source: Node | None = None,
    opaque: float = 0.0,
) -> Node:
    """Scan, filter, [operators], partial aggregate, exchange, final aggregate: two stages."""
    scan = source or build_scan(table, rows, column, 0.2 * (1 - opaque))
    top = Node("Filter", f"Filter {condition}", [scan], [ROWS], 0, rows // 2)
    for node in middle:
        node.children = [top]
        top = node
    part = Node(
        "HashAggregate",
        f"HashAggregate(keys=[k#1L], functions=[partial_sum({column}#3)])",
        [top],
        [ROWS, ("time in aggregation build", "timing")],
        0,
        rows // 10,
        {"time in aggregation build": opaque + 0.7 * (1 - opaque)},
    )
    span = Node(
        "WholeStageCodegen (1)",
        "WholeStageCodegen (1)",
        [part],
        [("duration", "timing")],
        0,
        None,
        {"duration": opaque + 0.9 * (1 - opaque)},
    )
    exchange = Node(
        "Exchange",
        "Exchange hashpartitioning(k#1L, 200), ENSURE_REQUIREMENTS",
        [span],
        EXCHANGE,
        0,
        None,
        {"shuffle write time": 0.04 * (1 - opaque)},
        {"shuffle records written": rows // 10, "records read": rows // 10, "shuffle bytes written": rows},
    )
    final = Node(
        "HashAggregate",
        f"HashAggregate(keys=[k#1L], functions=[sum({column}#3)])",
        [Node("InputAdapter", "InputAdapter", [exchange])],
        [ROWS, ("time in aggregation build", "timing")],
        1,
        rows // 20,
        {"time in aggregation build": 0.7},
    )
    return Node(
        "WholeStageCodegen (2)", "WholeStageCodegen (2)", [final], [("duration", "timing")], 1, None, {"duration": 0.9}
    )


def build_join(left: str, right: str, rows: int, suffix: str = "") -> Node:
    """Two scans, exchanges and sorts, and a sort merge join: three stages."""
    sides = []
    for number, table in enumerate((left, right)):
        exchange = Node(
            "Exchange",
            "Exchange hashpartitioning(k#1L, 200)",
            [build_scan(table, rows, share=0.6, stage=number)],
            EXCHANGE,
            number,
            None,
            {"shuffle write time": 0.3},
            {"shuffle records written": rows},
        )
        sides.append(
            Node(
                "Sort",
                "Sort [k#1L ASC NULLS FIRST], false, 0",
                [exchange],
                [("sort time", "timing")],
                2,
                None,
                {"sort time": 0.1},
            )
        )
    join = Node("SortMergeJoin" + suffix, f"SortMergeJoin{suffix} [k#1L], [k#11L], Inner", sides, [ROWS], 2, rows * 2)
    return Node(
        "WholeStageCodegen (5)", "WholeStageCodegen (5)", [join], [("duration", "timing")], 2, None, {"duration": 0.9}
    )


def rename_engine(plan: Node, engine: str) -> None:
    """Let an accelerator run filters, aggregates and joins, under its names."""
    pattern, others = ENGINE_NAMES[engine]
    for node in plan.walk():
        name = node.name.partition("(")[0]
        if name in ("Filter", "HashAggregate", "SortMergeJoin"):
            node.name = others.get(name, pattern.format(name))


def copy_plan(node: Node) -> Node:
    """A plan of its own, without numbers of metrics."""
    return Node(
        node.name,
        node.text,
        [copy_plan(child) for child in node.children],
        list(node.metrics),
        node.stage,
        node.rows,
        dict(node.shares),
        dict(node.counts),
    )


class _Frozen(Node):
    """Nodes below a cache that another query made: same metrics, no update of theirs."""


def freeze_plan(node: Node) -> Node:
    frozen = _Frozen(node.name, node.text, [freeze_plan(child) for child in node.children], node.metrics, -9)
    frozen.ids = node.ids
    return frozen
