"""Run a query to its final plan and tag it, choose an operator, describe a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.operator_inputs import find_refusal, strip_hooks
from workbench.lore.spark_bridge.physical_plan import PlanNode, PlanTree, fill_in_metrics
from workbench.lore.spark_bridge.spark_internals import Bridge, connect_bridge, simple_class_name
from workbench.lore.tables import PLAN_TREE, TREE

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame

MAX_MESSAGE_CHARS = 2000
# An error of a Python worker ends with the line of the exception, after paths and line numbers.
_PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"
_LOST_TASK = re.compile(r"[Ll]ost task (\d+)\.\d+ in stage (\d+)\.(\d+)")
_VARYING = tuple(
    (re.compile(pattern), mark)
    for pattern, mark in (
        (r"\b(TID|task|stage) \d+(\.\d+)*", r"\1"),
        (r"@[0-9a-f]{5,}", "@"),
        (r"\b0x[0-9a-fA-F]+", "0x"),
        (r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"(?<![\w/])(/private)?(/var)?/(tmp|folders)/[^\s'\",;:)\]]+", "/tmp/…"),  # noqa: S108 - a mark, no file
    )
)
_ENVIRONMENT_FAULTS = tuple(
    (re.compile(pattern), remedy)
    for pattern, remedy in (
        (
            r"^(ModuleNotFoundError|ImportError):",
            "install the module, or put the folder of its file on PYTHONPATH, then run the command again",
        ),
        (
            r"(ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError|UnsupportedClassVersionError)",
            "start Spark with the jars and the version that the dump names: workbench lore inspect DUMP",
        ),
        (r"[Nn]o space left on device|Disk quota exceeded", "make room where Spark writes, or set SPARK_LOCAL_DIRS"),
        (
            r"PYTHON_VERSION_MISMATCH|Python in worker has different version|Cannot run program",
            "set PYSPARK_PYTHON to the Python that the dump names: workbench lore inspect DUMP",
        ),
    )
)
# Joins and aggregates take most of the time and cause most wrong results.
PREFERRED_OPERATORS = ("Join", "Aggregate", "CartesianProduct")

# Leaves whose rows are computed by code that Spark does not know.
_OPAQUE_LEAVES = ("RDDScanExec", "ExternalRDDScanExec", "RowDataSourceScanExec", "BatchScanExec", "ReusedSubqueryExec")
# Operators that take the first rows that arrive.
_LIMITS = ("CollectLimitExec", "LocalLimitExec", "GlobalLimitExec", "BaseLimitExec", "CollectTailExec", "SampleExec")
_KEYED_AGGREGATES = ("HashAggregateExec", "SortAggregateExec", "ObjectHashAggregateExec")
_PYTHON_OPERATORS = re.compile(r"Python|Pandas|InArrow|ArrowWindow|ArrowAggregate")
_USER_FUNCTIONS = re.compile(r"PythonUDF|ScalaUDF|ScalaAggregator|HiveSimpleUDF|HiveGenericUDF|PythonUDAF|PythonUDTF")


@dataclass(frozen=True)
class OperatorFailure:
    """An error: its class, its message without parts that differ from run to run, and its place.

    `error_class`: Class of the innermost cause; for a Python function the class of the Python exception.
    `partition`, `stage_id`: Place of the failed task; null where Spark names none.
    """

    error_class: str
    message: str
    partition: int | None = None
    stage_id: int | None = None

    def __str__(self) -> str:
        place = "" if self.partition is None else f" (partition {self.partition})"
        return f"{self.error_class}: {self.message}{place}"


def describe_failure(error: BaseException) -> OperatorFailure:
    """Class, message and task of an exception raised by Spark or py4j."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error)
    match = _LOST_TASK.search(f"{text}\n{java.getMessage() if java is not None else ''}")
    partition, stage_id = (int(match[1]), int(match[2])) if match else (None, None)
    if type(error).__name__ == "PythonException":
        name, message = _split_python_error(text)
        return OperatorFailure(name, _normalize_message(message), partition, stage_id)
    if java is None:
        return OperatorFailure(type(error).__name__, _normalize_message(text), partition, stage_id)
    cause: Any = java
    while cause.getCause() is not None:
        cause = cause.getCause()
    name, message = str(cause.getClass().getName()), str(cause.getMessage() or "")
    if name == "org.apache.spark.SparkException" and "(" in message:
        # The driver has only the text of a task's error: Job aborted …: Lost task …: CLASS: MESSAGE
        name, message = _split_error_class(message)
    if name == _PYTHON_EXCEPTION:
        name, message = _split_python_error(message)
    return OperatorFailure(name, _normalize_message(message), partition, stage_id)


def refuse_environment_fault(failure: OperatorFailure, where: object) -> None:
    """Refuse a failure that says nothing of the operator: this environment lacks what it needs."""
    text = f"{failure.error_class}: {failure.message}"
    for pattern, remedy in _ENVIRONMENT_FAULTS:
        if pattern.search(text):
            raise ConfigError("the operator cannot run in this environment", where=where, found=text[:300], do=remedy)


def _split_error_class(message: str) -> tuple[str, str]:
    """Class and message of the exception inside a Spark failure message, from its line about the executor."""
    lines = message.splitlines()
    for line in lines:
        if match := re.search(r"\(executor [^)]*\)\)?: ([\w.$]+(?:Exception|Error|Throwable)\w*)(?:: (.*))?$", line):
            later_lines = [text for text in lines[lines.index(line) + 1 :] if not re.match(r"\s*(at |\.\.\. )", text)]
            tail = []
            for later_line in later_lines:
                if later_line.startswith(("Driver stacktrace", "Caused by")):
                    break
                tail.append(later_line)
            return match[1], "\n".join([match[2] or "", *tail])
    return "org.apache.spark.SparkException", message


def _split_python_error(message: str) -> tuple[str, str]:
    r"""Class and message of the exception at the end of a Python traceback.

    >>> _split_python_error("Traceback (most recent call last):\n  ...\nValueError: bad row")
    ('ValueError', 'bad row')
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for line in reversed(lines):
        if match := re.match(r"([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\w*)(?::\s*(.*))?$", line):
            return match[1], match[2] or ""
    return _PYTHON_EXCEPTION, lines[-1] if lines else ""


def _normalize_message(message: str) -> str:
    """The message without what differs from run to run: task numbers, addresses, traces, ids, times, temporary paths.

    >>> _normalize_message("no <object at 0x7f3c> in /tmp/spark-1f2e/a.json at 2026-11-29 10:00:01, task 3.0")
    'no <object at 0x> in /tmp/… at <time>, task'
    """
    lines = [line.rstrip() for line in message.splitlines() if not re.match(r"\s*(at [\w.$]+\(|File \")", line)]
    text = "\n".join(lines).strip()
    for pattern, mark in _VARYING:
        text = pattern.sub(mark, text)
    return text[:MAX_MESSAGE_CHARS]


def tag_plan(frame: DataFrame, *, run: bool = True, labels: bool = True) -> PlanTree:
    """Tag the plan of a DataFrame with LORE ids, after a run where that is needed.

    `run`: Run the query when AQE has not finished its plan, or when rows and times are unknown. It runs the execution
    of this DataFrame, so a later dump reuses its shuffle files.
    `labels`: Show the ids in Spark's UI: marked `provisional` while AQE may change the plan, then the final ones.

    Returns: With rows and times as far as metrics have them; provisional when it did not run and AQE is on.
    """
    bridge = connect_bridge(frame.sparkSession)
    if frame.isStreaming:
        raise ConfigError(
            "a streaming query has no single plan and no single input",
            do="run one batch of it as an ordinary query over the same source (spark.read instead of spark.readStream)",
        )
    query = frame._jdf.queryExecution()
    tree = PlanTree.from_plan(bridge, query.executedPlan())
    if not run or not (tree.provisional or _has_no_metrics(tree)):
        return _mark_refusals(fill_in_metrics(tree))

    def run_query() -> None:
        execution_id = bridge.context.getLocalProperty("spark.sql.execution.id")
        if labels:
            show_ids_in_ui(tree, query.executedPlan(), execution_id)
        query.toRdd().count()
        if labels:
            show_ids_in_ui(PlanTree.from_plan(bridge, query.executedPlan()), query.executedPlan(), execution_id)

    bridge.run_in_execution(query, "lore tag", run_query)
    return _mark_refusals(fill_in_metrics(PlanTree.from_plan(bridge, query.executedPlan()), ran=True))


def _mark_refusals(tree: PlanTree) -> PlanTree:
    for node in tree.root.iter_nodes():
        node.refused = find_refusal(node, tree.bridge)
    return tree


def build_plan_document(tree: PlanTree) -> dict[str, Any]:
    """Document of a tagged plan, for comparison with later runs."""
    return {
        "format": "workbench-lore-tree/1",
        "plan_hash": tree.plan_hash,
        "shape": tree.plan_shape(),
        "tree": tree.render_text(),
    }


def tree_table(tree: PlanTree) -> pl.DataFrame:
    """Table `tables.TREE` of a tagged plan."""
    rows: list[dict[str, Any]] = []
    above: list[int] = []
    for position, (depth, node, text) in enumerate(tree.list_lines()):
        del above[depth:]
        rows.append(
            {
                "position": position,
                "lore_id": node.lore_id,
                "parent": above[-1] if above else None,
                "depth": depth,
                "operator": node.name,
                "text": text,
                "n_rows": node.rows,
                "time_ms": node.time_ms,
                "refused": node.refused,
            }
        )
        above.append(position)
    return TREE.frame(rows)


def _has_no_metrics(tree: PlanTree) -> bool:
    """Has no node counted rows or time?"""
    measured = fill_in_metrics(tree)
    return all(node.rows is None and node.time_ms is None for node in measured.root.iter_nodes())


def show_ids_in_ui(tree: PlanTree, plan: Any, execution_id: str | None) -> None:
    """Label the nodes of an open SQL execution in Spark's UI.

    Source: SparkListenerSQLAdaptiveExecutionUpdate, the event of AQE for a new plan.
    """
    if execution_id is None:
        return
    bridge = tree.bridge
    info = bridge.scala_object("org.apache.spark.sql.execution.SparkPlanInfo").fromSparkPlan(plan)
    ids = {
        _identity_hash(node.java, bridge): node.lore_id for node in tree.root.iter_nodes() if node.lore_id is not None
    }
    labelled = _label_plan_info(info, plan, ids, " provisional" if tree.provisional else "", bridge)
    event = bridge.execution.ui.SparkListenerSQLAdaptiveExecutionUpdate(
        int(execution_id), tree.render_text(metrics=False), labelled
    )
    bridge.context._jsc.sc().listenerBus().post(event)


def _identity_hash(thing: Any, bridge: Bridge) -> int:
    # By identity: equal operators may stand in several places.
    return int(bridge.jvm.java.lang.System.identityHashCode(thing))


def _label_plan_info(info: Any, plan: Any, ids: dict[int, int], mark: str, bridge: Bridge) -> Any:
    """Copy a SparkPlanInfo tree with LORE ids in the names of operators, but not of wrappers."""
    # Children of a plan node that SparkPlanInfo shows.
    kind = simple_class_name(plan)
    if kind in ("ReusedExchangeExec", "ReusedSubqueryExec"):
        shown_children = [plan.child()]
    elif kind == "AdaptiveSparkPlanExec":
        shown_children = [plan.executedPlan()]
    elif kind.endswith("QueryStageExec"):
        shown_children = [plan.plan()]
    elif kind == "InMemoryTableScanExec":
        shown_children = [plan.relation().cachedPlan()]
    elif kind == "CommandResultExec":
        shown_children = [plan.commandPhysicalPlan()]
    else:
        shown_children = [*bridge.to_list(plan.children()), *bridge.to_list(plan.subqueries())]
    infos, plans = bridge.to_list(info.children()), shown_children
    if len(infos) == len(plans):
        infos = [
            _label_plan_info(child_info, below, ids, mark, bridge)
            for child_info, below in zip(infos, plans, strict=True)
        ]
    lore_id = ids.get(_identity_hash(plan, bridge))
    label = "" if lore_id is None else f" [loreId={lore_id}{mark}]"
    kind = bridge.execution.SparkPlanInfo
    return kind(
        info.nodeName() + label,
        info.simpleString() + label,
        bridge.to_scala_seq(infos),
        info.metadata(),
        info.metrics(),
    )


@dataclass(frozen=True)
class OperatorChoice:
    """A chosen operator, and the reason."""

    lore_id: int
    reason: str


def build_plan_table(tree: PlanTree) -> pl.DataFrame:
    """Table `tables.PLAN_TREE` of a tagged plan.

    For operators that do not count rows (a sort, an exchange, a projection), the rows of their inputs are taken.
    """
    rows: list[dict[str, Any]] = []
    for row, (_, node, _) in zip(tree_table(tree).iter_rows(named=True), tree.list_lines(), strict=True):
        spanned = {"span": node.codegen_id, "span_ms": node.span_ms}
        rows.append(row | spanned | {"rows_in": _sum_known_counts([_estimate_rows(child) for child in node.children])})
    return PLAN_TREE.frame(rows)


def choose_operator(plan: pl.DataFrame) -> OperatorChoice:
    """Choose the join or aggregate with most rows (in and out); among all operators where there is none.

    `plan`: Of it lore_id, operator, rows_in, n_rows, and refused: why it cannot be dumped, null where it can.

    >>> import polars as pl
    >>> plan = {"lore_id": [7, 5], "operator": ["Sort", "SortMergeJoin"], "rows_in": [900, 400], "n_rows": [900, 300]}
    >>> choose_operator(pl.DataFrame(plan | {"refused": [None, None]}, schema_overrides={"refused": pl.String})).lore_id
    5
    """
    import polars as pl

    can = plan.filter(pl.col("refused").is_null() & pl.col("lore_id").is_not_null())
    if not can.height:
        raise ConfigError(
            "no operator of this plan can be dumped",
            found=plan["refused"].drop_nulls().unique()[:3],
            do="tag the query to see why: workbench lore tag",
        )
    worth = can.filter(pl.any_horizontal(pl.col("operator").str.contains(word) for word in PREFERRED_OPERATORS))
    kind = "joins and aggregates" if worth.height else "operators"
    through = pl.col("rows_in").fill_null(0) + pl.col("n_rows").fill_null(0)
    # With equal counts, the one that runs first.
    ranked = (
        (worth if worth.height else can)
        .with_columns(through=through)
        .sort("through", "lore_id", descending=[True, False])
    )
    best = ranked.row(0, named=True)
    counts = f"{_format_count(best['rows_in'])} rows in, {_format_count(best['n_rows'])} out"
    return OperatorChoice(
        best["lore_id"], f"of {ranked.height} {kind} that can be dumped, most rows go through it: {counts}"
    )


def _estimate_rows(node: PlanNode) -> int | None:
    return node.rows if node.rows is not None else _sum_known_counts([_estimate_rows(child) for child in node.children])


def _sum_known_counts(counts: list[int | None]) -> int | None:
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None


def _format_count(count: int | None) -> str:
    from workbench.core.formats import format_number

    return "unknown" if count is None else format_number(count)


def find_unrepeatable_part(plan: Any, bridge: Bridge) -> str | None:
    """Find the first part of a plan whose rows may differ when it is computed again; null when there is none.

    Parts are expressions that Spark marks nondeterministic, functions of users (Spark trusts those that are not
    marked), limits and samples, and leaves whose rows Spark does not compute.
    """
    plan = strip_hooks(plan)
    if simple_class_name(plan) == "ReusedExchangeExec":
        plan = plan.child()
    kind = simple_class_name(plan)
    if kind in _OPAQUE_LEAVES or kind in _LIMITS or _PYTHON_OPERATORS.search(kind):
        return kind.removesuffix("Exec")
    if kind in _KEYED_AGGREGATES and (key := _find_collated_key(plan, bridge)):
        return (
            f"{kind.removesuffix('Exec')} by {key}, which keeps one spelling of those that its collation calls equal,"
        )
    for expression in bridge.to_list(plan.expressions()):
        if not bool(expression.deterministic()):
            return f"{_first_line(expression)} of {kind.removesuffix('Exec')}"
        if part := _find_user_function(expression, bridge):
            return f"{part} of {kind.removesuffix('Exec')}"
    # What a cache holds now may not be what it held in the query: it is computed anew where blocks were dropped.
    cached = [plan.relation().cachedPlan()] if kind == "InMemoryTableScanExec" else []
    for below in (*bridge.to_list(plan.children()), *bridge.to_list(plan.subqueries()), *cached):
        if part := find_unrepeatable_part(below, bridge):
            return part
    return None


def sees_partition_number(plan: Any, bridge: Bridge) -> bool:
    """Whether the arguments of an operator's Python functions may hang on the number of the task's partition.

    Where some partitions are computed alone, tasks are numbered from 0.
    """
    if not _PYTHON_OPERATORS.search(simple_class_name(plan)):
        return False
    return any(not bool(expression.deterministic()) for expression in bridge.to_list(plan.expressions()))


def _find_collated_key(plan: Any, bridge: Bridge) -> str | None:
    for key in bridge.to_list(plan.groupingExpressions()):
        if " collate " in str(key.dataType().catalogString()).lower():
            return str(key.name())
    return None


def _find_user_function(expression: Any, bridge: Bridge) -> str | None:
    if _USER_FUNCTIONS.search(simple_class_name(expression)):
        return _first_line(expression)
    names = (_find_user_function(child, bridge) for child in bridge.to_list(expression.children()))
    return next((name for name in names if name), None)


def _first_line(expression: Any) -> str:
    return str(expression.toString()).splitlines()[0][:80]
