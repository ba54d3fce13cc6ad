"""plan.meta: which operator, over which nodes, with which attributes and Python functions; nothing is loaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from workbench.lore.inspection import javastream, scala
from workbench.lore.inspection.javavalues import JavaArray, JavaObject, Value
from workbench.lore.inspection.metas import LARGEST_META_BYTES, ColumnMeta, attribute, java_root
from workbench.lore.intact import read_bounded

PLAN_CLASS = "org.apache.spark.sql.execution.SparkPlan"
ATTRIBUTE_CLASS = "org.apache.spark.sql.catalyst.expressions.AttributeReference"
MOST_NODES = 1_000
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
class PlanNode:
    """A node of the plan: how deep below the operator, its name, its class."""

    depth: int
    name: str
    class_name: str


@dataclass(frozen=True)
class PythonFunction:
    """A pickled function, which is not unpickled: its name, how it is evaluated, for which Python, its size."""

    name: str
    evaluation: str | None
    python: str | None
    n_bytes: int | None


@dataclass(frozen=True)
class PlanMeta:
    """What plan.meta holds.

    `classes` counts the objects by class, most first; `names` are all that loading it would resolve (`class_names`);
    `attributes` come in their order, each expression id once.
    """

    operator: str
    operator_class: str
    nodes: list[PlanNode]
    attributes: list[ColumnMeta]
    functions: list[PythonFunction]
    classes: dict[str, int]
    names: set[str]
    n_bytes: int


def plan_meta(path: Path) -> PlanMeta:
    """What does plan.meta hold?

    Raises
    ------
    InputError
        Kryo, a damaged stream, or something that is no plan.

    Notes
    -----
    Does not show expressions as SQL, nor anything that only the plugin's own classes would compute.
    """
    data = read_bounded(path, LARGEST_META_BYTES)
    root = java_root(data, path)
    walk = _Walk()
    walk.from_(root)
    return PlanMeta(
        operator=node_name(root.class_name),
        operator_class=root.class_name,
        nodes=walk.nodes[:MOST_NODES],
        attributes=list(walk.attributes.values()),
        functions=walk.functions,
        classes=dict(walk.classes.most_common()),
        names=javastream.class_names(data, where=path),
        n_bytes=len(data),
    )


def node_name(class_name: str) -> str:
    """What Spark calls a node of this class, as far as the class tells.

    Examples
    --------
    >>> node_name("org.apache.spark.sql.execution.joins.SortMergeJoinExec"), node_name("a.GpuFilterExec")
    ('SortMergeJoin', 'GpuFilter')
    """
    return class_name.rpartition(".")[2].removesuffix("Exec")


class _Walk:
    """Every object below a root, once."""

    def __init__(self) -> None:
        self.nodes: list[PlanNode] = []
        self.attributes: dict[object, ColumnMeta] = {}
        self.functions: list[PythonFunction] = []
        self.classes: Counter[str] = Counter()

    def from_(self, root: JavaObject) -> None:
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
                depth += self._note(value, depth)
                inner = [*value.fields.values(), *value.written]
            # What comes first is taken last from a stack.
            stack.extend((each, depth) for each in reversed(inner))

    def _note(self, value: JavaObject, depth: int) -> int:
        """Count an object; 1 where what lies below it is a level deeper."""
        name = scala.class_of(value)
        self.classes[name] += 1
        if name == ATTRIBUTE_CLASS:
            found = attribute(value)
            self.attributes.setdefault(id(value) if found.expr_id is None else found.expr_id, found)
        if (function := _function(value)) is not None and function not in self.functions:
            self.functions.append(function)
        if PLAN_CLASS not in value.descriptor.lineage:
            return 0
        self.nodes.append(PlanNode(depth, node_name(name), name))
        return 1


def _function(value: JavaObject) -> PythonFunction | None:
    """A Python UDF, Spark's or an accelerator's: an expression with a name and a function that carries a command."""
    function = value.fields.get("func")
    if not isinstance(function, JavaObject) or "command" not in function.fields:
        return None
    evaluation, python = value.fields.get("evalType"), function.fields.get("pythonVer")
    command = function.fields["command"]
    pickled = command if isinstance(command, bytes) else _wrapped(command)
    return PythonFunction(
        scala.text_of(value.fields.get("name")),
        EVALUATIONS.get(evaluation, str(evaluation)) if isinstance(evaluation, int) else None,
        scala.text_of(python) if isinstance(python, str) else None,
        len(pickled) if pickled is not None else None,
    )


def _wrapped(command: Value) -> bytes | None:
    fields = command.fields if isinstance(command, JavaObject) else {}
    found = fields.get("array", fields.get("unsafeArray"))
    return found if isinstance(found, bytes) else None
