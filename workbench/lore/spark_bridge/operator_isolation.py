"""Serialize an operator alone (plan.meta), and rebuild it over given inputs."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.dump_folder import SUBTREE_PREFIX, ZERO_COLUMN, InputEntry, Sidecar
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.spark_bridge.operator_inputs import (
    OperatorInput,
    build_child_input,
    build_subquery_input,
    find_refusal,
    find_storage_refusal,
    keep_partitioning,
    strip_hooks,
)
from workbench.lore.spark_bridge.physical_plan import PlanNode, is_stub, rebuild_part
from workbench.lore.spark_bridge.spark_internals import Bridge, simple_class_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The only variable of a Python worker that changes results.
KEPT_ENVIRONMENT = ("PYTHONHASHSEED",)
# Operators whose output partition P needs other input partitions than P.
PARTITION_MIXING_OPERATORS = (
    "ShuffleExchange",
    "Coalesce",
    "Union",
    "CartesianProduct",
    "CollectLimit",
    "CollectTail",
    "TakeOrderedAndProject",
)
# Of Spark's types of metrics; an average is kept times ten.
METRIC_UNITS = {"size": "bytes", "timing": "ms", "nsTiming": "ns", "average": "tenths"}
# Returns the RDD of an input and its number of partitions.
RowSource = Callable[[int], tuple[Any, int]]
SubtreeKind = Literal["stage", "scans"]
# Where a stage begins: its input is what was shuffled, as AQE regrouped it, or broadcast.
_STAGE_BORDERS = ("ShuffleExchangeExec", "AQEShuffleReadExec", "BroadcastExchangeExec", "ReusedExchangeExec")
EQUI_JOINS = ("SortMergeJoinExec", "ShuffledHashJoinExec", "BroadcastHashJoinExec")
JOINS = (*EQUI_JOINS, "BroadcastNestedLoopJoinExec", "CartesianProductExec")
_VOLATILE = (
    (re.compile(r",? ?\[?plan_id=\d+\]?"), ""),
    (re.compile(r"#\d+L?"), "#"),
    (re.compile(r"isFinalPlan=\w+"), ""),
)


def serialize_plan_meta(
    operator: Any,
    inputs: list[OperatorInput],
    bridge: Bridge,
    *,
    is_input: Callable[[Any], bool] = lambda _: True,
) -> bytes:
    """Serialize the operator over empty inputs."""
    bridge.activate()
    stubs = iter(
        [_build_stub(operator_input, bridge) for operator_input in inputs if operator_input.kind != "subquery"]
    )
    plan = rebuild_part(
        operator,
        bridge,
        is_input=is_input,
        on_input=lambda _: next(stubs),
        on_subquery=lambda expression: _build_stub_subquery(bridge, expression),
    )
    data = bridge.serialize(plan)
    if not any(True for _ in iter_python_functions(plan, bridge)):
        return data
    # On a copy: the session still uses its plan.
    copy = bridge.deserialize(data)
    for _, function in iter_python_functions(copy, bridge):
        # Remove from a Python function what belongs to this session: interpreter path, environment, accumulator.
        if not function.broadcastVars().isEmpty():
            raise ConfigError(
                "a Python function uses broadcast values, which are gone after this session",
                do="pass small values into the function itself; functions above 1 MB are also broadcast",
            )
        environment = bridge.jvm.java.util.HashMap()
        for name in KEPT_ENVIRONMENT:
            if (value := function.envVars().get(name)) is not None:
                environment.put(name, value)
        bridge.set_field(function, "pythonExec", "python3")
        bridge.set_field(function, "envVars", environment)
        bridge.set_field(function, "accumulator", None)
    return bridge.serialize(copy)


def _build_stub(operator_input: OperatorInput, bridge: Bridge) -> Any:
    leaf = bridge.build_empty_leaf(operator_input.output, operator_input.partitioning)
    if operator_input.kind == "broadcast":
        return bridge.execution.exchange.BroadcastExchangeExec(operator_input.exchange.mode(), leaf)
    return bridge.execution.RowToColumnarExec(leaf) if operator_input.kind == "columnar" else leaf


def _build_stub_subquery(bridge: Bridge, expression: Any) -> Any:
    plan = expression.plan()
    if simple_class_name(plan).startswith("ReusedSubquery"):
        plan = plan.child()
    return expression.withNewPlan(
        plan.withNewChildren(bridge.to_scala_seq([bridge.build_empty_leaf(plan.child().output())]))
    )


def iter_python_functions(plan: Any, bridge: Bridge) -> Iterator[tuple[str, Any]]:
    """(name, function) of every Python function in the expressions of the operators of a plan."""

    def iter_expression_functions(expression: Any) -> Iterator[Any]:
        yield expression
        for child in bridge.to_list(expression.children()):
            yield from iter_expression_functions(child)

    for expression in bridge.to_list(plan.expressions()):
        for part in iter_expression_functions(expression):
            if simple_class_name(part).startswith("Python") and hasattr(part, "func"):
                yield str(part.name()), part.func()
    for child in bridge.to_list(plan.children()):
        yield from iter_python_functions(child, bridge)


def rebind_python_functions(plan: Any, bridge: Bridge) -> None:
    """Give the Python functions of a loaded plan this session's interpreter and accumulator."""
    for name, function in iter_python_functions(plan, bridge):
        if str(function.pythonVer()) != str(bridge.context.pythonVer):
            raise InputError(
                "a Python function was pickled by another Python version",
                where=name,
                found=function.pythonVer(),
                allowed=bridge.context.pythonVer,
                do=f"replay it with Python {function.pythonVer()}",
            )
        bridge.set_field(function, "pythonExec", bridge.context.pythonExec)
        bridge.set_field(function, "accumulator", bridge.context._javaAccumulator)


@dataclass(frozen=True)
class RebuiltOperator:
    """An operator over its inputs, ready to run.

    `scans`: Leaves that read the inputs, where the plan does not show them.
    """

    bridge: Bridge
    plan: Any
    operator: Any
    attributes: list[Any]
    scans: tuple[Any, ...] = ()

    def output_rdd(self) -> Any:
        """RDD of the output rows; each call computes them again."""
        self.bridge.activate()
        return self.plan.execute()

    def copy_plan(self) -> RebuiltOperator:
        """The same over new nodes, which have no shuffle files or broadcasts of an earlier run."""
        self.bridge.activate()
        return replace(self, plan=self.plan.clone())

    def read_metrics(self) -> dict[str, tuple[int, str]]:
        """Metrics of the plan's nodes: node.metric → (value, unit); the unit of a number of things is empty.

        Nodes of one name are added up; of averages the largest is taken.
        """
        metrics: dict[str, tuple[int, str]] = {}

        def add_metrics(node: Any) -> None:
            entries = node.metrics().iterator()
            while entries.hasNext():
                entry = entries.next()
                if not entry._2().isZero():
                    unit = METRIC_UNITS.get(str(entry._2().metricType()), "")
                    name, value = f"{node.nodeName().strip()}.{entry._1()}", int(entry._2().value())
                    before = metrics.get(name, (0, unit))[0]
                    metrics[name] = (max(before, value) if unit == METRIC_UNITS["average"] else before + value, unit)
            if simple_class_name(node) == "AdaptiveSparkPlanExec":
                add_metrics(node.executedPlan())
            if simple_class_name(node).endswith("QueryStageExec"):
                add_metrics(node.plan())
            for child in self.bridge.to_list(node.children()):
                add_metrics(child)

        add_metrics(self.plan)
        return metrics


def is_one_to_one(operator: str, n_inputs: Iterable[int], n_output: int) -> bool:
    """Does partition P of the output come from partition P of each input alone?

    `n_inputs`: Partitions of each input that is neither broadcast nor a subquery.

    >>> is_one_to_one("Project", [4], 4), is_one_to_one("Project", [4], 2)
    (True, False)
    """
    if operator in PARTITION_MIXING_OPERATORS or operator.startswith(SUBTREE_PREFIX):
        return False
    return set(n_inputs) == {n_output}


def assemble_operator(
    operator: Any, source: RowSource, bridge: Bridge, *, engine: bool = False, distribute: bool = False
) -> RebuiltOperator:
    """Put an operator of `serialize_plan_meta` over real inputs.

    `distribute`: Insert the exchanges and sorts that the operator asks of its inputs, as the planner does: for rows
    that are not where and in which order they were dumped.
    """
    bridge.activate()

    def build_leaf(index: int, stub: Any) -> Any:
        rdd, n_partitions = source(index)
        # The session that reads the rows may be another one.
        bridge.activate()
        is_partitioned = simple_class_name(stub) == "RDDScanExec" and not distribute
        partitioning = stub.outputPartitioning() if is_partitioned else None
        name = f"LoreReplay input-{index}"
        return bridge.build_scan(stub.output(), rdd, n_partitions, name, partitioning=partitioning)

    numbers = itertools.count()

    def build_input(stub: Any) -> Any:
        index = next(numbers)
        kind = simple_class_name(stub)
        if kind == "BroadcastExchangeExec":
            return stub.withNewChildren(bridge.to_scala_seq([build_leaf(index, stub.child())]))
        if kind == "RowToColumnarExec":
            return bridge.execution.RowToColumnarExec(build_leaf(index, stub.child()))
        return build_leaf(index, stub)

    def build_subquery(expression: Any) -> Any:
        plan = expression.plan()
        below = build_leaf(next(numbers), plan.child())
        return expression.withNewPlan(plan.withNewChildren(bridge.to_scala_seq([below])))

    operator = rebuild_part(operator, bridge, is_input=is_stub, on_input=build_input, on_subquery=build_subquery)
    if distribute:
        operator = bridge.distribute_inputs(operator)
    if engine:
        plan = bridge.insert_transitions(operator)
    else:
        plan = bridge.execution.ColumnarToRowExec(operator) if bridge.is_columnar(operator) else operator
    return RebuiltOperator(bridge, bridge.fuse_codegen_stages(plan), operator, bridge.to_list(operator.output()))


def rebuild_operator(
    folder: DumpStore,
    sidecar: Sidecar,
    plan: bytes,
    bridge: Bridge,
    *,
    engine: bool = False,
    reader: Bridge | None = None,
    changed: Mapping[int, tuple[DumpStore, InputEntry]] | None = None,
) -> RebuiltOperator:
    """Load a dump's operator and put it over the dump's files.

    Call `trust_check.check_trust` first: loading plan.meta runs code of its classes.

    `engine`: Whether an accelerator runs it, and not plain Spark: the columnar rules of the session then replace the
    operator where they can. Otherwise it stays as it was dumped, and columns that it returns are turned to rows.
    `reader`: Bridge of the session that reads the files, so that settings under test do not affect reading; by
    default that of the operator.
    `changed`: Other files of an input, by its number, in the layout of a dump. Rows of all inputs are then brought to
    the partitions and the order that the operator asks for.
    """
    operator = bridge.deserialize(plan)
    rebind_python_functions(operator, bridge)
    others = dict(changed or {})

    def input_rows(index: int) -> tuple[Any, int]:
        store, entry = others.get(index, (folder, sidecar.inputs[index]))
        return read_input_rows(store, entry, reader or bridge), entry.n_partitions

    return assemble_operator(operator, input_rows, bridge, engine=engine, distribute=bool(others))


def read_input_rows(folder: DumpStore, entry: InputEntry, bridge: Bridge) -> Any:
    """Rows of a dumped input in their original partitions and order; partitions that were not dumped are empty."""
    rdd, schema = _scan_input(folder, entry, bridge)
    if not entry.zero_columns:
        return rdd
    return bridge.internal_rows(bridge.to_frame(rdd, schema).select())


def _scan_input(folder: DumpStore, entry: InputEntry, bridge: Bridge) -> tuple[Any, Any]:
    """Build a scan with one file partition for each original partition, which spark.read would regroup."""
    sources = bridge.execution.datasources
    schema = build_stored_schema(entry, bridge)
    options = bridge.to_scala_map({"returning_batch": "false"})
    empty = bridge.jvm.org.apache.spark.sql.types.StructType()
    reader = sources.parquet.ParquetFileFormat().buildReaderWithPartitionValues(
        bridge.session,
        schema,
        empty,
        schema,
        bridge.to_scala_seq([]),
        options,
        bridge.session.sessionState().newHadoopConf(),
    )
    partitions = [
        sources.FilePartition(number, _list_partition_files(folder, entry, number, bridge))
        for number in range(entry.n_partitions)
    ]
    case_insensitive = bridge.jvm.org.apache.spark.sql.catalyst.util.CaseInsensitiveMap(options)
    file_options = bridge.jvm.org.apache.spark.sql.catalyst.FileSourceOptions(case_insensitive)
    return bridge.read_files(reader, partitions, schema, file_options), schema


def build_stored_schema(entry: InputEntry, bridge: Bridge) -> Any:
    """The schema of an input's files."""
    columns = [(ZERO_COLUMN, "byte")] if entry.zero_columns else []
    columns += [(column.stored_as, column.type) for column in entry.columns if column.masked != "dropped"]
    document = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns],
    }
    return bridge.scala_object("org.apache.spark.sql.types.DataType").fromJson(json.dumps(document))


def _list_partition_files(folder: DumpStore, entry: InputEntry, number: int, bridge: Bridge) -> Any:
    """Java array with the stored files of partition `number` of an input."""
    sources = bridge.execution.datasources
    gateway = bridge.context._gateway
    count = entry.batches.get(str(number), 0)
    files = gateway.new_array(sources.PartitionedFile, count)
    if not count:
        return files
    nowhere = gateway.new_array(bridge.jvm.java.lang.String, 0)
    row = bridge.scala_object("org.apache.spark.sql.catalyst.InternalRow").empty()
    paths = bridge.scala_object("org.apache.spark.paths.SparkPath")
    for batch in range(count):
        path = folder.hadoop_path(f"input-{entry.index}/partition-{number}/batch-{batch}.parquet")
        size = int(folder.system.getFileStatus(path).getLen())
        files[batch] = sources.PartitionedFile(
            row, paths.fromPathString(str(path.toString())), 0, size, nowhere, 0, size, bridge.to_scala_map()
        )
    return files


def read_output_rows(folder: DumpStore, sidecar: Sidecar, like: DataFrame) -> DataFrame:
    """The kept output of a dump, in the schema of a replay's frame (columns c0, c1 …) and its session."""
    names = [column.stored_as for column in sidecar.output.columns] or [ZERO_COLUMN]
    wanted = tuple(f"output/partition-{number}/" for number in sidecar.output.fingerprint)
    paths = [name for name in sidecar.files if name.startswith(wanted)]
    if not paths:
        return like.limit(0)
    reader = like.sparkSession.read
    if like.columns:
        reader = reader.schema(like.schema)
    frame = reader.parquet(*(str(folder.hadoop_path(name).toString()) for name in paths))
    return frame.select(*names) if like.columns else frame.select()


def cut_subtree(node: PlanNode, kind: SubtreeKind, bridge: Bridge) -> tuple[Any, list[OperatorInput]]:
    """The part of the plan below and with an operator, without wrappers, and its inputs in order.

    AQE's shuffle reads inside it are left out: they only regroup partitions.
    """
    bridge.activate()
    inputs: list[OperatorInput] = []

    def take_input(child: Any) -> Any:
        # Regrouped partitions would not fit the others of a subtree, which are not.
        child_input = build_child_input(child if kind == "stage" else _open_child(child, kind), bridge)
        inputs.append(keep_partitioning(child_input, bridge))
        return child

    def take_subquery(expression: Any) -> Any:
        inputs.append(build_subquery_input(expression.plan(), bridge))
        return expression

    plan = rebuild_part(
        node.java,
        bridge,
        is_input=partial(is_subtree_input, kind=kind),
        open_child=partial(_open_child, kind=kind),
        on_input=take_input,
        on_subquery=take_subquery,
    )
    # Refuse a subtree with an operator, expression or input column that cannot be dumped.
    reason = find_refusal(node, bridge)
    for below in node.iter_nodes():
        reason = reason or _find_inner_refusal(below, node, bridge)
    attributes = (attribute for operator_input in inputs for attribute in bridge.to_list(operator_input.output))
    reason = reason or next((text for attribute in attributes if (text := find_storage_refusal(attribute))), None)
    if reason or plan.children().isEmpty():
        raise ConfigError(
            f"the subtree of {node.name} cannot be dumped",
            where=f"loreId {node.lore_id}",
            found=reason or "it is a leaf",
            do="dump a part of it, or one operator of it alone",
        )
    return plan, inputs


def is_subtree_input(child: Any, *, kind: SubtreeKind) -> bool:
    """Is a child of an operator in the part an input: a leaf, for a stage also what was shuffled or broadcast?"""
    plan = _open_child(child, kind)
    if kind == "stage" and simple_class_name(plan) in _STAGE_BORDERS:
        return True
    return bool(plan.children().isEmpty())


def _open_child(child: Any, kind: SubtreeKind) -> Any:
    """The operator inside a child; down to the scans also inside AQE's shuffle reads."""
    plan = strip_hooks(child)
    while kind == "scans" and simple_class_name(plan) == "AQEShuffleReadExec":
        plan = strip_hooks(plan.child())
    return plan


def _find_inner_refusal(below: PlanNode, top: PlanNode, bridge: Bridge) -> str | None:
    """Reason why an operator inside cannot be replayed; leaves and exchanges can."""
    if below is top or below.lore_id is None or below.java.children().isEmpty():
        return None
    if below.kind in ("BroadcastExchangeExec", "AQEShuffleReadExec") or below.kind.startswith("Subquery"):
        return None
    reason = find_refusal(below, bridge)
    return None if reason is None else f"{below.name} (loreId {below.lore_id}) in it: {reason}"


def find_replan_refusal(operator_class: str) -> str | None:
    """Reason why an operator cannot be planned anew; null for a join."""
    name = operator_class.rpartition(".")[2]
    if name in JOINS:
        return None
    return f"{name.removesuffix('Exec')} is no join, and only joins are planned anew"


def replan_join(operator: Any, source: RowSource, n_rows: dict[int, int], bridge: Bridge) -> RebuiltOperator:
    """The join of a loaded plan over its inputs, planned under the settings of the bridge's session.

    The planner takes the size of an input from its rows, as it estimates rows of a type; an input is read once per run.
    """
    if reason := find_replan_refusal(str(operator.getClass().getName())):
        raise ConfigError("cannot be planned anew", where="--replan", found=reason, do="leave out --replan")
    if simple_class_name(operator) == "BroadcastHashJoinExec" and bool(operator.isNullAwareAntiJoin()):
        raise ConfigError(
            "cannot be planned anew",
            where="--replan",
            found="a join for NOT IN has one plan only",
            do="leave out --replan",
        )
    # New nodes take the settings of the active session.
    bridge.activate()
    scans, sides = [], []
    for index, child in enumerate(bridge.to_list(operator.children())):
        output = child.output()
        rdd, n_partitions = source(index)
        # The session that reads the rows may be another one.
        bridge.activate()
        scans.append(bridge.build_scan(output, rdd, n_partitions, f"LoreReplay input-{index}"))
        sides.append(bridge.build_logical_rows(output, rdd, n_rows[index]))
    left, right = sides
    logical = bridge.build_logical_join(left, right, operator.joinType(), _build_condition(operator, bridge))
    plan = bridge.plan_logical(logical)
    # What the planner returns is ready to run: it is both the plan and the operator.
    return RebuiltOperator(bridge, plan, plan, bridge.to_list(operator.output()), tuple(scans))


def replan_dumped_join(
    folder: DumpStore, sidecar: Sidecar, plan: bytes, bridge: Bridge, *, reader: Bridge
) -> RebuiltOperator:
    """`replan_join` over the files of a dump; parameters are those of `operator_isolation.rebuild_operator`."""
    operator = bridge.deserialize(plan)
    rebind_python_functions(operator, bridge)

    def input_rows(index: int) -> tuple[Any, int]:
        entry = sidecar.inputs[index]
        return read_input_rows(folder, entry, reader), entry.n_partitions

    return replan_join(operator, input_rows, {entry.index: entry.n_rows for entry in sidecar.inputs}, bridge)


def _build_condition(operator: Any, bridge: Bridge) -> Any:
    """Join condition of equal keys and the rest, as a Scala Option."""
    expressions = bridge.jvm.org.apache.spark.sql.catalyst.expressions
    parts = []
    if simple_class_name(operator) in EQUI_JOINS:
        pairs = zip(bridge.to_list(operator.leftKeys()), bridge.to_list(operator.rightKeys()), strict=True)
        parts = [expressions.EqualTo(left, right) for left, right in pairs]
    if not operator.condition().isEmpty():
        parts.append(operator.condition().get())
    if not parts:
        return bridge.scala_none()
    condition = parts[0]
    for part in parts[1:]:
        condition = expressions.And(condition, part)
    return bridge.jvm.scala.Option.apply(condition)


def describe_plan_shape(plan: Any) -> str:
    """The plan as text without numbers that differ in every run; that of AQE as it is now, and whether there is AQE."""
    text = str(plan.toString())
    if simple_class_name(plan) == "AdaptiveSparkPlanExec":
        text = "AdaptiveSparkPlan\n" + str(plan.executedPlan().toString())
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text


def list_join_names(plan: Any, bridge: Bridge) -> list[str]:
    """Names of the joins in a plan, from the root down."""
    if simple_class_name(plan) == "AdaptiveSparkPlanExec":
        plan = plan.executedPlan()
    if simple_class_name(plan).endswith("QueryStageExec"):
        plan = plan.plan()
    name = simple_class_name(plan)
    names = [name.removesuffix("Exec")] if name in JOINS else []
    return [*names, *(join for child in bridge.to_list(plan.children()) for join in list_join_names(child, bridge))]
