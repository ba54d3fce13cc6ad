"""Contents of rdd.meta, partition.meta and plan.meta, read without loading them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.core.errors import InputError
from workbench.lore.dump_reader import java_stream, java_values
from workbench.lore.dump_reader.function_modules import list_modules
from workbench.lore.dump_reader.java_values import JavaArray, JavaObject, Value
from workbench.lore.dumps.dump_folder import read_bounded_file

MAX_META_BYTES = 32 << 20
NOT_JAVA = "not Java serialization: Kryo, if Spark wrote it"
MetaOrigin = Literal["workbench", "gpu"]
PLAN_CLASS = "org.apache.spark.sql.execution.SparkPlan"
ATTRIBUTE_CLASS = "org.apache.spark.sql.catalyst.expressions.AttributeReference"
MAX_PLAN_NODES = 1_000
# Numbers of org.apache.spark.api.python.PythonEvalType.
EVALUATIONS = {
    100: "batched",
    101: "arrow batched",
    200: "pandas",
    201: "pandas, grouped map",
    202: "pandas, grouped aggregate",
    203: "pandas, window aggregate",
    204: "pandas iterator",
    205: "pandas, map",
    206: "pandas, cogrouped map",
    207: "arrow, map",
    209: "arrow, grouped map",
    210: "arrow, cogrouped map",
    300: "table",
    301: "arrow table",
}


@dataclass(frozen=True)
class ColumnMeta:
    """A column of an input for its operator; unknown parts are null."""

    name: str
    type: str
    nullable: bool | None = None
    expr_id: int | None = None
    masked: str | None = None


@dataclass(frozen=True)
class RddMeta:
    """rdd.meta of an input.

    In a dump of the GPU plugin, `output_partitions` has all partitions, not only dumped ones.
    """

    origin: MetaOrigin
    n_partitions: int
    output_partitions: list[int]
    columns: list[ColumnMeta] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionMeta:
    """partition.meta: number of batches, written after the last one was consumed."""

    origin: MetaOrigin
    n_batches: int
    types: list[str]


def read_rdd_meta(path: Path) -> RddMeta:
    """Read rdd.meta of an input."""
    document = _read_document(path, "LoreRDDMeta")
    if isinstance(document, dict):
        attributes = _read_list_field(document, "attrs", path)
        columns = []
        for each in attributes:
            # Parse a column of a JSON meta file; facts of a wrong type become null.
            if not isinstance(each, dict):
                raise InputError("not a column", where=path, found=type(each).__name__)
            nullable, expr_id, masked = each.get("nullable"), each.get("expr_id"), each.get("masked")
            json_column = ColumnMeta(
                java_values.to_text(each.get("name")),
                java_values.format_json_type(each.get("type")),
                nullable if isinstance(nullable, bool) else None,
                expr_id if isinstance(expr_id, int) else None,
                java_values.to_text(masked) if masked is not None else None,
            )
            columns.append(json_column)
        partition_numbers = [
            _read_number_field({"item": item}, "item", path)
            for item in _read_list_field(document, "outputPartitions", path)
        ]
        return RddMeta(
            "workbench",
            _read_number_field(document, "numPartitions", path),
            partition_numbers,
            columns,
        )
    partitions = [_check_count(item, path) for item in java_values.list_items(document.fields.get("outputPartitions"))]
    # Before September 2024 the plugin wrote no attributes.
    attrs = java_values.list_items(document.fields["attrs"]) if "attrs" in document.fields else []
    n_partitions = _check_count(document.fields.get("numPartitions"), path)
    return RddMeta("gpu", n_partitions, partitions, [parse_attribute(each) for each in attrs])


def read_partition_meta(path: Path) -> PartitionMeta:
    """Read partition.meta of a partition."""
    document = _read_document(path, "LoreRDDPartitionMeta")
    if isinstance(document, dict):
        kinds = [java_values.format_json_type(each) for each in _read_list_field(document, "dataType", path)]
        return PartitionMeta("workbench", _read_number_field(document, "numBatches", path), kinds)
    kinds = [java_values.format_java_type(each) for each in java_values.list_items(document.fields.get("dataType"))]
    return PartitionMeta("gpu", _check_count(document.fields.get("numBatches"), path), kinds)


def parse_attribute(value: Value) -> ColumnMeta:
    """A Catalyst attribute as a column."""
    fields = value.fields if isinstance(value, JavaObject) else {}
    identity = fields.get("exprId")
    expr_id = identity.fields.get("id") if isinstance(identity, JavaObject) else None
    nullable = fields.get("nullable")
    return ColumnMeta(
        java_values.to_text(fields.get("name")),
        java_values.format_java_type(fields.get("dataType")),
        nullable if isinstance(nullable, bool) else None,
        expr_id if isinstance(expr_id, int) else None,
    )


def read_java_root(data: bytes, where: object) -> JavaObject:
    """The single object of a Java stream."""
    if not data.startswith(java_stream.MAGIC):
        raise InputError(
            NOT_JAVA,
            where=where,
            found=f"first bytes {data[:4].hex(' ') or 'none'}",
            allowed="ac ed 00 05, or JSON",
            do="only the application that wrote Kryo can read it; dump again with"
            " spark.serializer=org.apache.spark.serializer.JavaSerializer",
        )
    contents = [value for value in java_stream.read_values(data, where=where) if not isinstance(value, bytes)]
    if len(contents) != 1 or not isinstance(contents[0], JavaObject):
        raise InputError("one object expected", where=where, found=f"{len(contents)} values")
    return contents[0]


def _read_document(path: Path, expected: str) -> dict[str, Any] | JavaObject:
    """Read a meta file: a JSON object, or a serialised Java object of class `expected`."""
    data = read_bounded_file(path, MAX_META_BYTES)
    if data[:1] == b"{":
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError("not JSON", where=path, found=str(error)[:100]) from error
        return dict(document)
    root = read_java_root(data, path)
    if root.class_name.rpartition(".")[2] != expected:
        raise InputError("another class than expected", where=path, found=root.class_name, allowed=f"…{expected}")
    return root


def _check_count(value: Value, path: Path) -> int:
    if (number := java_values.to_number(value)) < 0:
        raise InputError("not a count", where=path, found=number)
    return number


def _read_list_field(document: dict[str, Any], key: str, path: Path) -> list[Any]:
    if not isinstance(value := document.get(key), list):
        raise InputError("a list expected", where=f"{path}: {key}", found=type(value).__name__)
    return value


def _read_number_field(document: dict[str, Any], key: str, path: Path) -> int:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise InputError("a whole number expected", where=f"{path}: {key}", found=str(value)[:40])
    return value


@dataclass(frozen=True)
class PlanNode:
    """A node of the plan: depth below the operator, name, class."""

    depth: int
    name: str
    class_name: str


@dataclass(frozen=True)
class PythonFunction:
    """A pickled function, not unpickled: name, evaluation type, Python version, size, modules that it imports."""

    name: str
    evaluation: str | None
    python: str | None
    n_bytes: int | None
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanMeta:
    """Contents of plan.meta.

    `classes` counts objects by class, most first; `names` are the classes that loading it may resolve; `attributes` are
    in order, each expression id once.
    """

    operator: str
    operator_class: str
    nodes: list[PlanNode]
    attributes: list[ColumnMeta]
    functions: list[PythonFunction]
    classes: dict[str, int]
    names: set[str]
    n_bytes: int


def read_plan_meta(path: Path) -> PlanMeta:
    """Read plan.meta.

    Does not show expressions as SQL, nor values that only the plugin's classes can compute.
    """
    return parse_plan_meta(read_bounded_file(path, MAX_META_BYTES), path)


def parse_plan_meta(data: bytes, path: Path) -> PlanMeta:
    """Parse the content of plan.meta; `path` is its place for errors."""
    root = read_java_root(data, path)
    walk = _ObjectWalk()
    walk.walk_from(root)
    return PlanMeta(
        operator=plan_node_name(root.class_name),
        operator_class=root.class_name,
        nodes=walk.nodes[:MAX_PLAN_NODES],
        attributes=list(walk.attributes.values()),
        functions=walk.functions,
        classes=dict(walk.classes.most_common()),
        names=java_stream.list_class_names(data, where=path),
        n_bytes=len(data),
    )


def plan_node_name(class_name: str) -> str:
    """Spark's name of a node, from its class.

    >>> plan_node_name("org.apache.spark.sql.execution.joins.SortMergeJoinExec"), plan_node_name("a.GpuFilterExec")
    ('SortMergeJoin', 'GpuFilter')
    """
    return class_name.rpartition(".")[2].removesuffix("Exec")


class _ObjectWalk:
    """A walk over every object below a root, visiting each once."""

    def __init__(self) -> None:
        self.nodes: list[PlanNode] = []
        self.attributes: dict[object, ColumnMeta] = {}
        self.functions: list[PythonFunction] = []
        self.classes: Counter[str] = Counter()

    def walk_from(self, root: JavaObject) -> None:
        seen: set[int] = set()
        stack: list[tuple[Value, int]] = [(root, 0)]
        while stack:
            value, depth = stack.pop()
            if not isinstance(value, JavaObject | JavaArray) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, JavaArray):
                inner: list[Value] = list(value.items) if isinstance(value.items, list) else []
            else:
                depth += self._note_object(value, depth)
                inner = [*value.fields.values(), *value.written]
            # Reversed, since a stack is last in, first out.
            stack.extend((each, depth) for each in reversed(inner))

    def _note_object(self, value: JavaObject, depth: int) -> int:
        """Count an object; 1 where its children are a level deeper."""
        name = java_values.value_class_name(value)
        self.classes[name] += 1
        if name == ATTRIBUTE_CLASS:
            attribute = parse_attribute(value)
            self.attributes.setdefault(id(value) if attribute.expr_id is None else attribute.expr_id, attribute)
        if (function := _find_python_function(value)) is not None and function not in self.functions:
            self.functions.append(function)
        if PLAN_CLASS not in value.descriptor.lineage:
            return 0
        self.nodes.append(PlanNode(depth, plan_node_name(name), name))
        return 1


def _find_python_function(value: JavaObject) -> PythonFunction | None:
    """A Python UDF of Spark or an accelerator: an expression with a name and a function with a command."""
    function = value.fields.get("func")
    if not isinstance(function, JavaObject) or "command" not in function.fields:
        return None
    evaluation, python = value.fields.get("evalType"), function.fields.get("pythonVer")
    command = function.fields["command"]
    pickled = command if isinstance(command, bytes) else _find_wrapped_command(command)
    return PythonFunction(
        java_values.to_text(value.fields.get("name")),
        EVALUATIONS.get(evaluation, str(evaluation)) if isinstance(evaluation, int) else None,
        java_values.to_text(python) if isinstance(python, str) else None,
        len(pickled) if pickled is not None else None,
        tuple(list_modules(pickled)) if pickled is not None else (),
    )


def _find_wrapped_command(command: Value) -> bytes | None:
    fields = command.fields if isinstance(command, JavaObject) else {}
    command_bytes = fields.get("array", fields.get("unsafeArray"))
    return command_bytes if isinstance(command_bytes, bytes) else None
