"""Operator tables of the engines: which operator a plan node is, and which of its metrics are times.

An operator has one name on all engines: Spark's own, without "Exec" and numbers ("HashAggregate", "Scan parquet").
To add an engine, write its table here and list it in `OPERATOR_TABLES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from workbench.eventlog.engine_detection import find_node_engine

FORMATS = frozenset({"parquet", "orc", "csv", "json", "avro", "text", "delta", "iceberg", "hive", "jdbc"})
# Mark of an operator that an accelerator runs, behind its name.
ACCELERATED = "*"
_CONDITIONAL, _WITH_CONDITION = "SortMergeJoin", " with condition"
# Keys of both sides, the kind of join, and what else pairs of rows have to meet.
_JOIN_CONDITION = re.compile(r"\], (?:Inner|Cross|Left\w+|RightOuter|FullOuter|ExistenceJoin\([^)]*\)), \S")
# Behind a name: the number of a codegen span, and how the operator runs, as in "SortMergeJoin(skew=true)".
NUMBER = re.compile(r"\s*\(\d+\)$")
_BRACKETED = re.compile(r"^(\w+)[(\[].*$", re.DOTALL)
# What only the text of a scan says: its format, and that Iceberg plans it.
_TEXT_FORMAT = re.compile(r"\bFormat: (?:gpu)?(\w+)", re.IGNORECASE)
_ICEBERG = re.compile(r"\(branch=|\b(?:Gpu)?(?:IcebergScan|SparkBatchQueryScan|SparkCopyOnWriteScan)\b")
# Scans by the first word behind "Scan", where that is no format.
_SOURCES = {"JDBCRelation": "jdbc", "ExistingRDD": "ExistingRDD"}
# Nodes of DataSource V2 that write, or that change rows to be written; and the one that does the work of V1's commands.
_WRITES = (
    "AppendData OverwriteByExpression OverwritePartitionsDynamic AppendDataExecV1 OverwriteByExpressionExecV1"
    " CreateTableAsSelect AtomicCreateTableAsSelect ReplaceTableAsSelect AtomicReplaceTableAsSelect"
    " MergeRows ReplaceData WriteDelta WriteFiles"
)
# Operators that hand rows to Python, which tell its time since Spark 4.1.
_PYTHON = (
    "ArrowEvalPython BatchEvalPython ArrowEvalPythonUDTF BatchEvalPythonUDTF MapInPandas MapInArrow PythonMapInArrow"
    " FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow AggregateInPandas"
    " ArrowAggregatePython WindowInPandas ArrowWindowPython"
)
# plain: runs in a task; exchange: written in one stage, read in another; broadcast: runs on the driver;
# transition: converts rows to columns or back; none: takes no own time.
Kind = Literal["plain", "exchange", "broadcast", "transition", "none"]
# Kinds that are work of the query itself.
WORK = frozenset({"plain", "exchange", "broadcast"})


@dataclass(frozen=True)
class Operator:
    """A plan node as its engine's table describes it.

    Times are names of metrics, added up: `own_times` of its own task time, without its inputs; `span_times` of task
    time that includes its inputs in the same stage; `read_times`, for exchanges, of the reading stage.
    """

    engine: str
    name: str
    kind: Kind = "plain"
    own_times: tuple[str, ...] = ()
    span_times: tuple[str, ...] = ()
    read_times: tuple[str, ...] = ()

    @property
    def accelerated(self) -> bool:
        """Whether it runs on an accelerator."""
        return self.engine != "spark"


@dataclass(frozen=True)
class Engine:
    """Operator table of one engine.

    `name`: Name of the engine, as in the column `engine` of event log tables.
    `prefixes`: Operators by the beginning of the name, for nodes whose name goes on (with a file format).
    `list_supported`: Operators that the engine supports, by Spark's names; null if unknown.
    """

    name: str
    nodes: dict[str, Operator]
    prefixes: dict[str, Operator]
    list_supported: Callable[[], frozenset[str]] | None = None

    def find_operator(self, node_name: str) -> Operator | None:
        """The operator of a node; null for a node of another engine."""
        if (operator := self.nodes.get(node_name)) is not None:
            return operator
        for prefix, operator in self.prefixes.items():
            if node_name.startswith(prefix):
                name = _scan_name(node_name) if operator.name == "Scan" else operator.name
                return replace(operator, name=name)
        return None


def _scan_name(node_name: str) -> str:
    """A scan with its format, without the table's name.

    >>> [_scan_name(name) for name in ("Scan parquet default.t", "CometScan [native] parquet", "BatchScan orders")]
    ['Scan parquet', 'Scan parquet', 'Scan']
    >>> [_scan_name(name) for name in ("Scan JDBCRelation(t) [numPartitions=1]", "Scan ExistingRDD Delta Table State")]
    ['Scan jdbc', 'Scan ExistingRDD']
    """
    words = node_name.split()[1:]
    if words and (source := _SOURCES.get(words[0].partition("(")[0])):
        return f"Scan {source}"
    scanned_format = next((word for word in map(str.lower, words) if word in FORMATS), None)
    return f"Scan {scanned_format}" if scanned_format else "Scan"


def _name_operators(engine: str, pattern: str, names: str, own_times: tuple[str, ...] = ()) -> dict[str, Operator]:
    """Operators whose nodes are called after Spark's: `pattern` with the name in it."""
    return {pattern.format(name): Operator(engine, name, own_times=own_times) for name in names.split()}


def _list_rapids_operators() -> frozenset[str]:
    """Operators and scan formats of the plugin's own support tables (release 26.08)."""
    from workbench.speedup.rapids_facts import list_supported_execs, list_supported_formats

    execs = {row.name.removesuffix("Exec") for row in list_supported_execs() if row.level in ("S", "PS", "TON")}
    scans = {f"Scan {row['Format'].lower()}" for row in list_supported_formats() if row["Direction"] == "read"}
    # Plans call a shuffle exchange "Exchange".
    return frozenset(execs | scans | ({"Exchange"} if "ShuffleExchange" in execs else set()))


def _build_spark_table() -> Engine:
    """Spark's own operators; most report time only as part of a codegen span."""
    name, build, scan = "spark", ("time in aggregation build",), ("scan time",)
    untimed = (
        "WholeStageCodegen AdaptiveSparkPlan AQEShuffleRead CustomShuffleReader InputAdapter ReusedExchange Subquery"
        # What Spark 4 found to be empty, with the logical plan that it did not run.
        " ReusedSubquery Union EmptyRelation LogicalQueryStage LogicalRelation Join Aggregate"
    )
    operators = [
        *(Operator(name, node, "none") for node in untimed.split()),
        *(Operator(name, node, "transition") for node in ("ColumnarToRow", "RowToColumnar")),
        *(Operator(name, node, span_times=build) for node in ("HashAggregate", "ObjectHashAggregate")),
        *(Operator(name, node, "broadcast") for node in ("BroadcastExchange", "SubqueryBroadcast")),
        *(Operator(name, node) for node in ("SortAggregate", *_WRITES.split())),
        *(Operator(name, node, own_times=("time to run Python workers",)) for node in _PYTHON.split()),
        Operator(name, "Sort", own_times=("sort time",)),
        Operator(name, "ShuffledHashJoin", own_times=("time to build hash map",)),
        Operator(name, "Exchange", "exchange", own_times=("shuffle write time",), read_times=("fetch wait time",)),
    ]
    named_scan = Operator(name, "Scan", own_times=scan)
    nodes = {operator.name: operator for operator in operators} | {"BatchScan": named_scan}
    prefixes = dict.fromkeys(("Scan ", "BatchScan ", "FileScan "), named_scan)
    # The first prefix that a name begins with decides.
    first = {
        "Scan In-memory": Operator(name, "InMemoryTableScan"),
        "Execute InsertIntoHoodie": Operator(name, "InsertIntoHoodieTableCommand"),
    }
    commands = ("InsertInto", "CreateDataSourceTableAsSelect", "CreateHiveTableAsSelect", "OptimizedCreateHiveTable")
    last = {f"Execute {command}": Operator(name, "DataWritingCommand") for command in commands}
    return Engine(name, nodes, {**first, **prefixes, **last})


def _build_comet_table() -> Engine:
    """Apache DataFusion Comet, releases 0.12 to 1.2; each operator reports its own time."""
    name, total = "comet", ("total time (in ms) spent in this operator",)
    join = ("Total time for joining", "Total time for collecting build-side of join")
    read = ("decoding and decompression time", "fetch wait time")
    # Its total wall time of scanning includes that of the operators which take the batches.
    native_scan = (
        "Wall clock time elapsed for data decompression + decoding",
        "Wall clock time elapsed for file opening",
    )
    timed = (
        "Filter Project HashAggregate ObjectHashAggregate SortAggregate Sort TakeOrderedAndProject Expand Window"
        " LocalLimit GlobalLimit CollectLimit Coalesce Sample Range LocalTableScan"
    )
    joins = {
        "BroadcastHashJoin": "BroadcastHashJoin",
        "BroadcastNestedLoopJoin": "BroadcastNestedLoopJoin",
        "HashJoin": "ShuffledHashJoin",
        "SortMergeJoin": "SortMergeJoin",
    }
    supported = "Union Exchange BroadcastExchange WindowGroupLimit Generate"
    return Engine(
        name,
        _name_operators(name, "Comet{}", timed, total)
        | {f"Comet{node}": Operator(name, spark_name, own_times=join) for node, spark_name in joins.items()}
        | {
            "CometWindowExec": Operator(name, "Window", own_times=total),
            "CometWindowGroupLimitExec": Operator(name, "WindowGroupLimit", own_times=total),
            "CometExplode": Operator(name, "Generate", own_times=total),
            "CometUnion": Operator(name, "Union", "none"),
            "CometEmptyRelation": Operator(name, "EmptyRelation", "none"),
            "CometExchange": Operator(name, "Exchange", "exchange", ("native shuffle writer time",), (), read),
            "CometColumnarExchange": Operator(name, "Exchange", "exchange", ("shuffle write time",), (), read),
            "CometBroadcastExchange": Operator(name, "BroadcastExchange", "broadcast"),
            "CometSubqueryBroadcast": Operator(name, "SubqueryBroadcast", "broadcast"),
            "CometColumnarToRow": Operator(name, "ColumnarToRow", "transition"),
            "CometNativeColumnarToRow": Operator(name, "ColumnarToRow", "transition"),
            "CometSparkRowToColumnar": Operator(name, "RowToColumnar", "transition"),
            "CometSparkColumnarToColumnar": Operator(name, "RowToColumnar", "transition"),
        },
        {
            "CometNativeScan": Operator(name, "Scan", own_times=native_scan),
            "CometScan": Operator(name, "Scan", own_times=("scan time",)),
            "CometBatchScan": Operator(name, "Scan", own_times=("scan time",)),
            "CometIcebergNativeScan": Operator(name, "Scan iceberg"),
            "CometNativeWrite": Operator(name, "DataWritingCommand"),
        },
        list_supported=lambda: frozenset(["Scan parquet", *timed.split(), *joins.values(), *supported.split()]),
    )


def _build_rapids_table() -> Engine:
    """The RAPIDS Accelerator for Apache Spark, and its time metrics."""
    name, op, scan = "rapids", ("op time",), ("buffer time", "GPU decode time", "filter time")
    timed = (
        "Filter Project HashAggregate ObjectHashAggregate SortAggregate Sort Expand Generate Window WindowGroupLimit"
        " RunningWindow BroadcastHashJoin BroadcastNestedLoopJoin CartesianProduct LocalLimit GlobalLimit CollectLimit"
        " Sample Range"
    )
    return Engine(
        name,
        _name_operators(name, "Gpu{}", f"{timed} {_WRITES}", op)
        | {
            # The plugin replaces sort merge joins by hash joins.
            "GpuShuffledHashJoin": Operator(name, "SortMergeJoin", own_times=(*op, "build time", "join time")),
            "GpuShuffledSymmetricHashJoin": Operator(name, "SortMergeJoin", own_times=(*op, "join time")),
            "GpuTopN": Operator(name, "TakeOrderedAndProject", own_times=op),
            "GpuColumnarExchange": Operator(
                name,
                "Exchange",
                "exchange",
                own_times=("RAPIDS shuffle write time", "shuffle write time"),
                read_times=("rs. deserialization time", "fetch wait time"),
            ),
            "GpuCoalesceBatches": Operator(name, "CoalesceBatches", own_times=("concat batch time",)),
            "GpuShuffleCoalesce": Operator(name, "Exchange", own_times=(*op, "concat batch time")),
            "GpuColumnarToRow": Operator(name, "ColumnarToRow", "transition", own_times=op),
            "GpuRowToColumnar": Operator(name, "RowToColumnar", "transition", own_times=op),
            "GpuBroadcastExchange": Operator(name, "BroadcastExchange", "broadcast"),
            "GpuUnion": Operator(name, "Union", "none"),
            "GpuCustomShuffleReader": Operator(name, "AQEShuffleRead", "none"),
        },
        {
            "GpuScan": Operator(name, "Scan", own_times=scan),
            "GpuBatchScan": Operator(name, "Scan", own_times=scan),
            "Gpu": Operator(name, "other accelerated", own_times=op),
            "Execute GpuInsertInto": Operator(name, "DataWritingCommand", own_times=op),
        },
        list_supported=_list_rapids_operators,
    )


def _build_photon_table() -> Engine:
    """Databricks' Photon; each operator reports its own time."""
    name, exclusive = "photon", ("exclusive time",)
    timed = (
        "Filter Project Sort Expand Generate Window BroadcastHashJoin BroadcastNestedLoopJoin ShuffledHashJoin"
        " SortMergeJoin LocalLimit GlobalLimit"
    )
    return Engine(
        name,
        _name_operators(name, "Photon{}", timed, exclusive)
        | {
            "PhotonAgg": Operator(name, "HashAggregate", own_times=exclusive),
            "PhotonGroupingAgg": Operator(name, "HashAggregate", own_times=exclusive),
            "PhotonTopK": Operator(name, "TakeOrderedAndProject", own_times=exclusive),
            "PhotonUnion": Operator(name, "Union", "none"),
            "PhotonShuffleExchangeSink": Operator(name, "Exchange", "exchange", own_times=exclusive),
            # The reading half is a node of its own, in the reading stage.
            "PhotonShuffleExchangeSource": Operator(name, "Exchange", own_times=exclusive),
            "PhotonBroadcastExchange": Operator(name, "BroadcastExchange", "broadcast"),
            "PhotonShuffleMapStage": Operator(name, "PhotonShuffleMapStage", "none"),
            "PhotonResultStage": Operator(name, "PhotonResultStage", "none"),
            "PhotonRowToColumnar": Operator(name, "RowToColumnar", "transition"),
            "PhotonColumnarToRow": Operator(name, "ColumnarToRow", "transition"),
        },
        {"PhotonScan": Operator(name, "Scan", own_times=exclusive)},
    )


def _build_gluten_table() -> Engine:
    """Apache Gluten with Velox: names of nodes by the project's documentation and source.

    Its time metrics differ by release and are not used, so that time is split by rows.
    """
    name = "gluten"
    timed = (
        "Filter Project HashAggregate Sort Expand Generate Window WindowGroupLimit BroadcastHashJoin"
        " BroadcastNestedLoopJoin CartesianProduct ShuffledHashJoin SortMergeJoin TakeOrderedAndProject Sample Range"
    )
    scans = ("ScanTransformer", "FileSourceScanExecTransformer", "BatchScanExecTransformer", "NativeFileScan")
    return Engine(
        name,
        _name_operators(name, "{}ExecTransformer", timed)
        | {
            "RegularHashAggregateExecTransformer": Operator(name, "HashAggregate"),
            "FlushableHashAggregateExecTransformer": Operator(name, "HashAggregate"),
            "LimitExecTransformer": Operator(name, "LocalLimit"),
            "UnionExecTransformer": Operator(name, "Union", "none"),
            "ColumnarUnion": Operator(name, "Union", "none"),
            "InputIteratorTransformer": Operator(name, "InputIteratorTransformer", "none"),
            "VeloxResizeBatches": Operator(name, "CoalesceBatches"),
            "VeloxAppendBatches": Operator(name, "CoalesceBatches"),
            "ColumnarExchange": Operator(name, "Exchange", "exchange"),
            "ColumnarBroadcastExchange": Operator(name, "BroadcastExchange", "broadcast"),
            "VeloxColumnarToRow": Operator(name, "ColumnarToRow", "transition"),
            "RowToVeloxColumnar": Operator(name, "RowToColumnar", "transition"),
        },
        {"WholeStageCodegenTransformer": Operator(name, "WholeStageCodegenTransformer", "none")}
        | {prefix: Operator(name, "Scan") for prefix in scans},
    )


# The first engine whose table has a node's name decides, so Spark's own table comes last.
OPERATOR_TABLES: tuple[Engine, ...] = (
    _build_rapids_table(),
    _build_comet_table(),
    _build_photon_table(),
    _build_gluten_table(),
    _build_spark_table(),
)


def strip_suffix(node_name: str) -> str:
    """The name of a node without the number of its codegen span, and without what brackets say of how it runs.

    >>> [strip_suffix(name) for name in ("SortMergeJoin(skew=true)", "WholeStageCodegen (3)", "Scan JDBCRelation(t)")]
    ['SortMergeJoin', 'WholeStageCodegen', 'Scan JDBCRelation(t)']
    """
    return _BRACKETED.sub(r"\1", NUMBER.sub("", node_name).strip())


@lru_cache(maxsize=4096)
def classify_operator(node_name: str) -> Operator:
    """The operator of a plan node, with its engine and the meaning of its metrics.

    >>> operator = classify_operator("CometBroadcastHashJoin")
    >>> operator.engine, operator.name
    ('comet', 'BroadcastHashJoin')
    >>> classify_operator("WholeStageCodegen (3)").name
    'WholeStageCodegen'
    """
    name = strip_suffix(node_name)
    for engine in OPERATOR_TABLES:
        if (operator := engine.find_operator(name)) is not None:
            return operator
    if (accelerator := find_node_engine(name)) is not None:
        return Operator(accelerator, "other accelerated")
    # A command by its own name; Databricks' editions of Delta's commands end in "Edge".
    return Operator("spark", name.removeprefix("Execute ").replace("CommandEdge", "Command"))


def refine_operator(operator: Operator, text: str) -> Operator:
    """The operator of a node by what its text says beyond its name: the source of a scan, the condition of a join.

    A sort merge join with a condition beyond its keys has a name of its own: every pair of rows with equal keys is
    tried by the condition, which engines do at other paces than merging.

    >>> join = classify_operator("SortMergeJoin")
    >>> refine_operator(join, "SortMergeJoin [a#1L], [b#2L], LeftAnti, NOT (c#3L = d#4L)").name
    'SortMergeJoin with condition'
    >>> refine_operator(join, "SortMergeJoin [a#1L], [b#2L], LeftAnti").name
    'SortMergeJoin'
    >>> refine_operator(classify_operator("BatchScan lake.t"), "BatchScan lake.t[k#1L] lake.t (branch=null)").name
    'Scan iceberg'
    """
    if operator.name == "Scan" and (source := _find_source(text)):
        return replace(operator, name=f"Scan {source}")
    if operator.name == _CONDITIONAL and _JOIN_CONDITION.search(text):
        return replace(operator, name=f"{operator.name}{_WITH_CONDITION}")
    return operator


def _find_source(text: str) -> str | None:
    """The format that the text of a scan tells; null if it tells none that is known."""
    if _ICEBERG.search(text):
        return "iceberg"
    stated = _TEXT_FORMAT.search(text)
    return stated[1].lower() if stated and stated[1].lower() in FORMATS else None


@lru_cache(maxsize=32)
def get_supported_operators(engine_name: str) -> frozenset[str] | None:
    """Operators that an engine supports, by Spark's names; null if unknown."""
    supported = next(
        (engine.list_supported() for engine in OPERATOR_TABLES if engine.name == engine_name and engine.list_supported),
        None,
    )
    if supported is None or _CONDITIONAL not in supported:
        return supported
    return supported | {_CONDITIONAL + _WITH_CONDITION}
