"""What goes into an operator: its children and subqueries, each as rows that can be computed again on their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from workbench.errors import ConfigError
from workbench.lore.bridge import CODEGEN_WRAPPERS, Bridge, class_of
from workbench.lore.plan import HOOKS, Node, looked_through

Kind = Literal["rows", "columnar", "broadcast", "subquery"]
# Refused as targets, with the reason that the user reads.
REFUSED = {
    "AQEShuffleReadExec": "it only says how shuffle partitions are put together; dump the operator above it",
    "BroadcastExchangeExec": "it makes the other side's table; dump the join above it, whose input that table is",
    "SubqueryExec": "it only carries a subquery's result; dump the operator that uses it",
    "SubqueryBroadcastExec": "it only carries a subquery's result; dump the operator that uses it",
    "ReusedSubqueryExec": "it only points to another subquery",
    "SubqueryAdaptiveBroadcastExec": "it only carries a subquery's result; dump the operator that uses it",
    "DataWritingCommandExec": "it writes data, and a replay would write it again",
    "WriteFilesExec": "it writes data, and a replay would write it again",
    "ExecutedCommandExec": "it is a command, and a replay would do it again",
    "EventTimeWatermarkExec": "streaming queries have state that a replay lacks",
}
_WRITES = re.compile(r"(Command|Write\w*|OverwriteBy\w+|AppendData|ReplaceData|CreateTable\w*|V1Writes?)Exec$")
_STREAMING = re.compile(r"(StateStore|Stateful|Streaming|MicroBatch|GroupState)")
# What Parquet and a replay cannot hold: JVM objects of typed operators, and intervals of months, days and times in one.
_OBJECTS = "ObjectType"
_ILLEGAL_NAME = re.compile(r"[ ,;{}()\n\t=]")


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes
    ----------
    kind
        rows, columnar (batches, dumped as rows), broadcast or subquery.
    output
        Its attributes as the operator refers to them, a Scala Seq.
    source
        The plan that gives its rows, ready to be executed.
    exchange
        Of a broadcast input the exchange that stands in the plan.
    """

    kind: Kind
    output: Any
    source: Any
    exchange: Any = None


def refusal(node: Node, bridge: Bridge) -> str | None:
    """Why can this operator not be dumped? Null when it can."""
    kind = node.kind
    if kind in REFUSED:
        return REFUSED[kind]
    if node.lore_id is None:
        return "it is a reference to a reused exchange; dump the original"
    if _STREAMING.search(kind):
        return "streaming queries have state that a replay lacks"
    if _WRITES.search(kind):
        return "it is a command or a write, and a replay would do it again"
    if node.java.children().isEmpty():
        return "it is a leaf: it has no input but its source"
    below = [*bridge.listed(node.java.children()), *bridge.listed(node.java.subqueries())]
    going_in = [one for plan in below for one in bridge.listed(plan.output())]
    attributes = [*((one, False) for one in bridge.listed(node.java.output())), *((one, True) for one in going_in)]
    return next((reason for one, stored in attributes if (reason := _type_refusal(one, stored=stored))), None)


def _type_refusal(attribute: Any, *, stored: bool) -> str | None:
    """Why values of a column cannot be dumped or compared; `stored` are those of inputs, which go into files."""
    if class_of(attribute.dataType()).rstrip("$") == _OBJECTS:
        return "it passes JVM objects of a typed Dataset, which no file can hold; dump the operator above or below"
    kinds = list(_types_within(json.loads(attribute.dataType().json())))
    if "interval" in kinds:
        return f"column {attribute.name()} is a calendar interval, which Parquet cannot hold"
    if "void" in kinds and stored:
        return f"column {attribute.name()} has no type but null (void), which Parquet cannot hold; cast it in the query"
    if stored and any(_has_names_twice(kind) for kind in kinds):
        return f"column {attribute.name()} has fields of one name, which no reader of Parquet can tell apart"
    return None


def _types_within(kind: Any) -> Iterator[Any]:
    """A type and all within it, from Spark's JSON; plain ones as their names (a field may be named like a type)."""
    yield kind
    if isinstance(kind, str):
        return
    below = [kind.get(key) for key in ("elementType", "keyType", "valueType", "sqlType")]
    below += [field["type"] for field in kind.get("fields", [])]
    for one in below:
        if one is not None:
            yield from _types_within(one)


def _has_names_twice(kind: Any) -> bool:
    names = [] if isinstance(kind, str) else [field["name"].lower() for field in kind.get("fields", [])]
    return len(set(names)) < len(names)


def inputs(node: Node, bridge: Bridge) -> list[Input]:
    """The inputs of an operator: children in order, then subqueries.

    Raises
    ------
    ConfigError
        It cannot be dumped; the message says why.
    """
    if reason := refusal(node, bridge):
        raise ConfigError(f"{node.name} cannot be dumped", where=f"loreId {node.lore_id}", found=reason)
    # Stages made around exchanges belong to the thread's active session; a new thread has none.
    bridge.activate()
    found = [_child(child, bridge) for child in bridge.listed(node.java.children())]
    for subquery in bridge.listed(node.java.subqueries()):
        inner = subquery.child()
        if class_of(subquery).startswith("ReusedSubquery"):
            inner = inner.child()
        one = _child(inner, bridge)
        found.append(Input("subquery", one.output, one.source))
    return found


def _child(child: Any, bridge: Bridge) -> Input:
    plan = _behind_wrappers(child)
    original = plan.child() if class_of(plan) == "ReusedExchangeExec" else plan
    if class_of(original) == "BroadcastExchangeExec":
        return Input("broadcast", plan.output(), stripped(original.child(), bridge), original)
    source = stripped(child, bridge)
    return Input("columnar" if bridge.is_columnar(source) else "rows", source.output(), source)


def _behind_wrappers(plan: Any) -> Any:
    while True:
        kind = class_of(plan)
        if kind in CODEGEN_WRAPPERS or kind in HOOKS:
            plan = plan.child()
        elif kind.endswith("QueryStageExec"):
            plan = plan.plan()
        elif kind == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan()
        else:
            return plan


def stripped(plan: Any, bridge: Bridge) -> Any:
    """The plan without codegen wrappers down to the next exchange, ready to be fused anew.

    An exchange becomes a leaf (a query stage around the same object): fusing cannot descend into it, and what was
    shuffled or broadcast already is used again.
    """
    kind = class_of(plan)
    if kind in CODEGEN_WRAPPERS or kind in HOOKS:
        return stripped(plan.child(), bridge)
    if kind == "AdaptiveSparkPlanExec":
        return stripped(plan.executedPlan(), bridge)
    if kind.endswith("QueryStageExec"):
        return plan
    original = class_of(plan.child()) if kind == "ReusedExchangeExec" else kind
    stages = bridge.execution.adaptive
    if original == "BroadcastExchangeExec":
        return stages.BroadcastQueryStageExec(0, plan, plan.canonicalized())
    if original == "ShuffleExchangeExec":
        return stages.ShuffleQueryStageExec(0, plan, plan.canonicalized())
    children = bridge.listed(plan.children())
    if not children:
        return plan
    return plan.withNewChildren(bridge.seq([stripped(child, bridge) for child in children]))


def execute(plan: Any, bridge: Bridge) -> Any:
    """The RDD of rows of a stripped plan, its operators fused as the planner would."""
    bridge.activate()
    if bridge.is_columnar(plan):
        return bridge.execution.ColumnarToRowExec(plan).execute()
    if looked_through(plan) is not plan or class_of(plan).endswith("QueryStageExec"):
        return plan.execute()
    return bridge.collapse(plan).execute()


def output_of(node: Node, bridge: Bridge) -> Any:
    """The RDD of rows that the operator gives where it stands in its plan."""
    bridge.activate()
    plan = node.java
    if not plan.children().isEmpty():
        # The node itself may be an exchange, whose own output is wanted: only what is below becomes leaves.
        children = [stripped(child, bridge) for child in bridge.listed(plan.children())]
        if class_of(plan) not in ("ShuffleExchangeExec", "BroadcastExchangeExec"):
            return execute(plan.withNewChildren(bridge.seq(children)), bridge)
    return plan.execute()


def stored_names(attributes: list[Any], *, original: bool = True) -> list[str]:
    """Under which names columns lie in the files: their own where these are legal and unique, else c0, c1 …"""
    names = [str(attribute.name()) for attribute in attributes]
    unique = len({name.lower() for name in names}) == len(names)
    if original and unique and not any(not name or _ILLEGAL_NAME.search(name) for name in names):
        return names
    return [f"c{index}" for index in range(len(names))]
