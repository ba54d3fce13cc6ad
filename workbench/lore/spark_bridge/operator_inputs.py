"""Inputs of an operator (children and subqueries), and masks for their columns."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.physical_plan import HOOK_OPERATORS, PlanNode, PlanTree, unwrap_operator
from workbench.lore.spark_bridge.spark_internals import CODEGEN_WRAPPERS, Bridge, simple_class_name

if TYPE_CHECKING:
    from workbench.lore.config import DumpSettings

InputKind = Literal["rows", "columnar", "broadcast", "subquery"]
# Operators that cannot be dumped, with the reason for the user.
REFUSED_OPERATORS = {
    "AQEShuffleReadExec": "it only regroups shuffle partitions; dump the operator above it",
    "BroadcastExchangeExec": "it builds the table of a join; dump the join above it, which has the table as an input",
    "SubqueryExec": "it only carries a subquery's result; dump the operator that uses it",
    "SubqueryBroadcastExec": "it only carries a subquery's result; dump the operator that uses it",
    "ReusedSubqueryExec": "it only points to another subquery; dump the operator that uses it",
    "SubqueryAdaptiveBroadcastExec": "it only carries a subquery's result; dump the operator that uses it",
    "DataWritingCommandExec": "it writes data, and a replay would write it again; dump the operator below",
    "WriteFilesExec": "it writes data, and a replay would write it again; dump the operator below",
    "ExecutedCommandExec": "it is a command, and a replay would run it again; dump an operator of the query in it",
    "EventTimeWatermarkExec": "streaming queries have state that a replay lacks; run one batch with spark.read",
}
_WRITE_OPERATORS = re.compile(r"(Command|Write\w*|OverwriteBy\w+|AppendData|ReplaceData|CreateTable\w*|V1Writes?)Exec$")
_STREAMING_OPERATORS = re.compile(r"(StateStore|Stateful|Streaming|MicroBatch|GroupState)")
# JVM objects of typed operators.
_OBJECT_TYPE = "ObjectType"
# Functions of the file that a task reads: a replay reads the files of the dump.
_FILE_FUNCTIONS = re.compile(r"\b(input_file_name|input_file_block_start|input_file_block_length)\(\)")
# Types by Spark's JSON; nested ones are objects there.
_KNOWN_TYPES = re.compile(
    r"boolean|byte|short|integer|long|float|double|decimal(\(.*\))?|string( collate \S+)?|(var)?char\(\d+\)|binary|date"
    r"|timestamp(_ntz|_ltz)?|interval.*|variant|void|udt"
)
_ILLEGAL_NAME = re.compile(r"[ ,;{}()\n\t=]")
MASKED_NOTE = "masked: results differ from the original"
MaskMethod = Literal["hash", "null"]
# Keys of a hashed relation are bound by position, as are the columns of a union's inputs.
_KINDS_BY_POSITION = ("broadcast", "subquery")
# Bits of a mask that fit into each type of whole numbers.
_INTEGER_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 64}
# With fewer bits several values of a column are likely to have one mask.
_FEW_BITS = 15


@dataclass(frozen=True)
class OperatorInput:
    """One input.

    `partitioning`: How the rows are partitioned, where the operator depends on it: a union of Spark 4 zips
    partitions.
    """

    kind: InputKind
    output: Any
    source: Any
    exchange: Any = None
    partitioning: Any = None


def find_refusal(node: PlanNode, bridge: Bridge) -> str | None:
    """Reason why an operator cannot be dumped; null when it can."""
    kind = node.kind
    if kind in REFUSED_OPERATORS:
        return REFUSED_OPERATORS[kind]
    if node.lore_id is None:
        return "it is a reference to a reused exchange; dump the original"
    if _STREAMING_OPERATORS.search(kind):
        return "streaming queries have state that a replay lacks; run one batch with spark.read"
    if _WRITE_OPERATORS.search(kind):
        return "it is a command or a write, and a replay would run it again; dump the operator below"
    if node.java.children().isEmpty():
        return "it is a leaf: its only input is its source; dump the operator above it, which has its rows as an input"
    if match := _FILE_FUNCTIONS.search(str(node.java.expressions().toString())):
        return f"{match[0]} is the file of the query's scan, and a replay reads other files; dump the operator above"
    below = [*bridge.to_list(node.java.children()), *bridge.to_list(node.java.subqueries())]
    going_in = [attribute for plan in below for attribute in bridge.to_list(plan.output())]
    attributes = [
        *((attribute, False) for attribute in bridge.to_list(node.java.output())),
        *((attribute, True) for attribute in going_in),
    ]
    return next(
        (reason for attribute, stored in attributes if (reason := _find_type_refusal(attribute, stored=stored))), None
    )


def find_storage_refusal(attribute: Any) -> str | None:
    """Reason why values of a column cannot be written to files; null when they can."""
    return _find_type_refusal(attribute, stored=True)


def _find_type_refusal(attribute: Any, *, stored: bool) -> str | None:
    """Reason why values of a column cannot be compared or, with `stored`, written to files; null when they can."""
    if simple_class_name(attribute.dataType()).rstrip("$") == _OBJECT_TYPE:
        return "it passes JVM objects of a typed Dataset, which a file cannot store; dump the operator above or below"
    kinds = list(_iter_types(json.loads(attribute.dataType().json())))
    if unknown := [kind for kind in kinds if isinstance(kind, str) and not _KNOWN_TYPES.fullmatch(kind)]:
        return f"column {attribute.name()} has the type {unknown[0]}, which LORE does not know; cast it in the query"
    if "interval" in kinds:
        return f"column {attribute.name()} is a calendar interval, which Parquet cannot store; cast it in the query"
    if "void" in kinds and stored:
        return (
            f"column {attribute.name()} has only the type null (void), which Parquet cannot store; cast it in the query"
        )
    if stored and any(_has_duplicate_names(kind) for kind in kinds):
        return (
            f"column {attribute.name()} has several fields of one name, and Parquet cannot distinguish them; rename one"
        )
    return None


def _iter_types(kind: Any) -> Iterator[Any]:
    """Yield a type and all types nested in it, from Spark's JSON form; atomic types are names."""
    yield kind
    if isinstance(kind, str):
        return
    below = [kind.get(key) for key in ("elementType", "keyType", "valueType", "sqlType")]
    below += [field["type"] for field in kind.get("fields", [])]
    for nested_kind in below:
        if nested_kind is not None:
            yield from _iter_types(nested_kind)


def _has_duplicate_names(kind: Any) -> bool:
    names = [] if isinstance(kind, str) else [field["name"].lower() for field in kind.get("fields", [])]
    return len(set(names)) < len(names)


def list_inputs(node: PlanNode, bridge: Bridge) -> list[OperatorInput]:
    """The inputs of an operator: children in order, then subqueries."""
    if text := find_refusal(node, bridge):
        reason, _, remedy = text.partition("; ")
        raise ConfigError(
            f"{node.name} cannot be dumped", where=f"loreId {node.lore_id}", found=reason, do=remedy or None
        )
    # Query stages around exchanges belong to the active session of the thread; a new thread has none.
    bridge.activate()
    inputs = [build_child_input(child, bridge) for child in bridge.to_list(node.java.children())]
    if node.kind == "UnionExec":
        inputs = [keep_partitioning(child_input, bridge) for child_input in inputs]
    return [*inputs, *(build_subquery_input(subquery, bridge) for subquery in bridge.to_list(node.java.subqueries()))]


def keep_partitioning(operator_input: OperatorInput, bridge: Bridge) -> OperatorInput:
    """Add to an input how its rows are partitioned, if that is known and unions of this Spark depend on it."""
    if not bridge.unions_keep_partitions or operator_input.kind != "rows":
        return operator_input
    partitioning = operator_input.source.outputPartitioning()
    return (
        operator_input
        if simple_class_name(partitioning) == "UnknownPartitioning"
        else replace(operator_input, partitioning=partitioning)
    )


def build_subquery_input(subquery: Any, bridge: Bridge) -> OperatorInput:
    """The rows of a subquery as an input."""
    inner = subquery.child()
    if simple_class_name(subquery).startswith("ReusedSubquery"):
        inner = inner.child()
    child_input = build_child_input(inner, bridge)
    return OperatorInput("subquery", child_input.output, child_input.source)


def build_child_input(child: Any, bridge: Bridge) -> OperatorInput:
    """The rows of a child as an input."""
    plan = strip_hooks(child)
    original = plan.child() if simple_class_name(plan) == "ReusedExchangeExec" else plan
    if simple_class_name(original) == "BroadcastExchangeExec":
        return OperatorInput("broadcast", plan.output(), strip_wrappers(original.child(), bridge), original)
    source = strip_wrappers(child, bridge)
    return OperatorInput("columnar" if bridge.is_columnar(source) else "rows", source.output(), source)


def strip_hooks(plan: Any) -> Any:
    """The operator inside codegen wrappers, query stages, AQE's root and our hooks."""
    while True:
        kind = simple_class_name(plan)
        if kind in CODEGEN_WRAPPERS or kind in HOOK_OPERATORS:
            plan = plan.child()
        elif kind.endswith("QueryStageExec"):
            plan = plan.plan()
        elif kind == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan()
        else:
            return plan


def strip_wrappers(plan: Any, bridge: Bridge) -> Any:
    """The plan without codegen wrappers down to the next exchange, ready to be fused again.

    An exchange becomes a leaf (a query stage around the same object), so fusing stops there and existing shuffle files
    and broadcasts are reused.
    """
    kind = simple_class_name(plan)
    if kind in CODEGEN_WRAPPERS or kind in HOOK_OPERATORS:
        return strip_wrappers(plan.child(), bridge)
    if kind == "AdaptiveSparkPlanExec":
        return strip_wrappers(plan.executedPlan(), bridge)
    if kind.endswith("QueryStageExec"):
        return plan
    original = simple_class_name(plan.child()) if kind == "ReusedExchangeExec" else kind
    stages = bridge.execution.adaptive
    if original == "BroadcastExchangeExec":
        return stages.BroadcastQueryStageExec(0, plan, plan.canonicalized())
    if original == "ShuffleExchangeExec":
        return stages.ShuffleQueryStageExec(0, plan, plan.canonicalized())
    children = bridge.to_list(plan.children())
    if not children:
        return plan
    return plan.withNewChildren(bridge.to_scala_seq([strip_wrappers(child, bridge) for child in children]))


def execute_plan(plan: Any, bridge: Bridge) -> Any:
    """The RDD of rows of a stripped plan, with operators fused as by the planner."""
    bridge.activate()
    if bridge.is_columnar(plan):
        return bridge.execution.ColumnarToRowExec(plan).execute()
    if unwrap_operator(plan) is not plan or simple_class_name(plan).endswith("QueryStageExec"):
        return plan.execute()
    return bridge.fuse_codegen_stages(plan).execute()


def operator_output_rdd(node: PlanNode, bridge: Bridge) -> Any:
    """The RDD of the operator's output rows, at its place in the plan."""
    bridge.activate()
    plan = node.java
    if not plan.children().isEmpty():
        # The node may be an exchange itself: only exchanges below it become leaves.
        children = [strip_wrappers(child, bridge) for child in bridge.to_list(plan.children())]
        if simple_class_name(plan) not in ("ShuffleExchangeExec", "BroadcastExchangeExec"):
            return execute_plan(plan.withNewChildren(bridge.to_scala_seq(children)), bridge)
    return plan.execute()


def choose_stored_names(attributes: list[Any], *, original: bool = True) -> list[str]:
    """Column names in the files: the original ones where they are legal and unique, else c0, c1 …"""
    names = [str(attribute.name()) for attribute in attributes]
    unique = len({name.lower() for name in names}) == len(names)
    if original and unique and not any(not name or _ILLEGAL_NAME.search(name) for name in names):
        return names
    return [f"c{index}" for index in range(len(names))]


def build_key_literal() -> str:
    """SQL of a new hash key as a literal, for expressions outside of queries: plan texts show literals."""
    return f"'{secrets.token_hex(16)}'"


@contextlib.contextmanager
def open_masking_key(bridge: Bridge) -> Iterator[str]:
    """SQL of a new hash key for one dump, for queries of the quiet session inside the block.

    Equal values stay equal across inputs and operators and cannot be looked up, since the key is not stored. It is the
    row of a table, so that plan texts, which go into Spark's event log and UI, do not show it.
    """
    quiet = bridge.quiet_bridge()
    table = f"lore_key_{secrets.token_hex(8)}"
    strings = quiet.jvm.org.apache.spark.sql.Encoders.STRING()
    quiet.session.createDataset([secrets.token_hex(16)], strings).createOrReplaceTempView(table)
    try:
        yield f"(SELECT value FROM {table})"  # noqa: S608 - the name is of digits
    finally:
        quiet.session.catalog().dropTempView(table)


@dataclass
class ColumnMasks:
    """Masks and selection of the columns of inputs.

    `key`: SQL of the hash key (`open_masking_key`), the same for all operators of a dump.
    `integer_bits`: Bits of the mask of a whole number, the same for all columns: an int and a bigint still match.
    """

    settings: DumpSettings
    key: str
    integer_bits: int = _INTEGER_BITS["bigint"]
    warnings: list[str] = field(default_factory=list)

    def mask_method(self, name: str) -> MaskMethod | None:
        """How a column is masked; null when it is not."""
        wanted: Mapping[str, MaskMethod] = {column.lower(): how for column, how in (self.settings.mask or {}).items()}
        return wanted.get(name.lower())

    def applies_to(self, inputs: list[OperatorInput], bridge: Bridge) -> bool:
        """Does any input have a column that is masked or left out?"""
        return bool(self.settings.columns) or any(
            self.mask_method(str(attribute.name()))
            for operator_input in inputs
            for attribute in bridge.to_list(operator_input.output)
        )

    def check_columns(self, node: PlanNode, inputs: list[OperatorInput], bridge: Bridge) -> None:
        """Refuse unknown columns; warn where the operator uses a masked one, and where masks are few."""
        names = {
            str(attribute.name()).lower()
            for operator_input in inputs
            for attribute in bridge.to_list(operator_input.output)
        }
        wanted = [*(self.settings.mask or {}), *[name for list_ in self._list_kept_columns() for name in list_]]
        if unknown := sorted({name for name in wanted if name.lower() not in names}):
            raise ConfigError(
                "no input has such a column", where=f"loreId {node.lore_id}", found=unknown, allowed=sorted(names)
            )
        used = find_used_names(node, bridge)
        for name in self.settings.mask or {}:
            if name.lower() in used:
                self.warnings.append(
                    f"loreId {node.lore_id}: {node.name} compares, sorts or computes on {name}, which is masked: "
                    "matches, order and values of rows may change"
                )
        short = {
            str(attribute.name())
            for operator_input in inputs
            for attribute in bridge.to_list(operator_input.output)
            if self.mask_method(str(attribute.name())) == "hash" and _type_name(attribute) in _INTEGER_BITS
        }
        if short and self.integer_bits <= _FEW_BITS:
            self.warnings.append(
                f"loreId {node.lore_id}: whole numbers have {2**self.integer_bits:,} masks, as many as the narrowest "
                f"masked column can hold: different values of {', '.join(sorted(short))} may get one mask"
            )

    def list_masked_ids(self, inputs: list[OperatorInput], bridge: Bridge) -> set[int]:
        """Expression ids of the masked columns of these inputs."""
        return {
            int(attribute.exprId().id())
            for operator_input in inputs
            for attribute in bridge.to_list(operator_input.output)
            if self.mask_method(str(attribute.name()))
        }

    def _list_kept_columns(self) -> list[list[str]]:
        columns = self.settings.columns
        return list(columns.values()) if isinstance(columns, dict) else [columns] if columns else []

    def reduce_input(self, node: PlanNode, index: int, operator_input: OperatorInput, bridge: Bridge) -> OperatorInput:
        """The input with only the columns to keep."""
        columns = self.settings.columns
        wanted = columns.get(index) if isinstance(columns, dict) else columns
        attributes = bridge.to_list(operator_input.output)
        if not wanted:
            return operator_input
        names = {name.lower() for name in wanted}
        wanted_attributes = [attribute for attribute in attributes if str(attribute.name()).lower() in names]
        if len(wanted_attributes) == len(attributes):
            return operator_input
        needed = sorted(find_used_names(node, bridge) & {str(a.name()).lower() for a in attributes} - names)
        by_position = operator_input.kind in _KINDS_BY_POSITION or node.kind == "UnionExec"
        if needed or by_position:
            raise ConfigError(
                "the operator needs columns that would be dropped",
                where=f"--columns, loreId {node.lore_id}, input-{index}",
                found=needed or "its columns are bound by position",
                do="keep these as well, or hide them with --mask",
            )
        return replace(operator_input, output=bridge.to_scala_seq(wanted_attributes))

    def mask_expression(self, attribute: Any, stored: str) -> str | None:
        """SQL of a masked column; null when it is not masked."""
        how = self.mask_method(str(attribute.name()))
        if how is None:
            return None
        column, kind = f"`{stored}`", str(attribute.dataType().catalogString())
        if how == "null":
            return f"CAST(NULL AS {kind})"
        if kind in _INTEGER_BITS:
            number = f"xxhash64({self.key}, CAST({column} AS BIGINT))"
            bits = min(self.integer_bits, _INTEGER_BITS[kind])
            mask = number if bits == _INTEGER_BITS["bigint"] else f"{number} & {2**bits - 1}L"
            return f"IF({column} IS NULL, NULL, CAST({mask} AS {kind}))"
        # SQL of a keyed hash of the same type.
        name = str(attribute.name())
        number = f"xxhash64({self.key}, {column})"
        plain = {
            "string": f"substring(sha2(concat({self.key}, {column}), 256), 1, 32)",
            "binary": f"unhex(sha2(concat(encode({self.key}, 'UTF-8'), {column}), 256))",
            "boolean": f"({number} & 1L) = 1L",
            "double": f"CAST({number} & 4294967295L AS DOUBLE)",
            "float": f"CAST({number} & 16777215L AS FLOAT)",
            "date": f"date_add(DATE'1970-01-01', CAST(pmod({number}, 36500L) AS INT))",
            "timestamp": f"timestamp_seconds(pmod({number}, 4102444800L))",
            "timestamp_ntz": f"CAST(timestamp_seconds(pmod({number}, 4102444800L)) AS TIMESTAMP_NTZ)",
        }
        if kind in plain:
            expression = plain[kind]
        elif kind.startswith("decimal("):
            precision, scale = (int(part) for part in kind[8:-1].split(","))
            digits = min(precision - scale, 18)
            expression = f"CAST(pmod({number}, {10**digits}L) AS {kind})" if digits else f"CAST(0 AS {kind})"
        else:
            raise ConfigError(
                "a column of this type cannot be hashed", where=f"--mask {name}", found=kind, do=f"--mask {name}=null"
            )
        return f"IF({column} IS NULL, NULL, {expression})"


def count_integer_bits(tree: PlanTree, masks: Mapping[str, MaskMethod] | None) -> int:
    """Bits that fit into every hashed column of whole numbers of a plan."""
    names = {name.lower() for name, how in (masks or {}).items() if how == "hash"}
    if not names:
        return _INTEGER_BITS["bigint"]
    attributes = [attribute for node in tree.root.iter_nodes() for attribute in tree.bridge.to_list(node.java.output())]
    kinds = [_type_name(attribute) for attribute in attributes if str(attribute.name()).lower() in names]
    return min((_INTEGER_BITS[kind] for kind in kinds if kind in _INTEGER_BITS), default=_INTEGER_BITS["bigint"])


def _type_name(attribute: Any) -> str:
    return str(attribute.dataType().catalogString())


def find_used_names(node: PlanNode, bridge: Bridge) -> set[str]:
    """Lower-case names of the columns in the operator's expressions, except those only passed on."""
    names: set[str] = set()
    for expression in bridge.to_list(node.java.expressions()):
        passes = simple_class_name(expression) == "AttributeReference" and node.kind in ("ProjectExec", "GenerateExec")
        if passes:
            continue
        for attribute in bridge.to_list(expression.references().toSeq()):
            names.add(str(attribute.name()).lower())
    return names
