"""A physical plan as the graph that Spark's own UI draws: the same nodes under the same numbers.

Numbers run in pre-order; whole-stage-codegen spans are nodes around their operators; input adapters and query stages
are looked through; a reused exchange or subquery is one node with several parents (source: the numbering rule of
Spark's SparkPlanGraph, 3.0 to 3.5). Numbers change with every adaptive plan version: accumulator ids do not.
"""

from __future__ import annotations

import msgspec

from workbench.eventlog.events import Metric, Plan

LOOKED_THROUGH = frozenset({"InputAdapter"})
QUERY_STAGES = frozenset({"BroadcastQueryStage", "ShuffleQueryStage", "ResultQueryStage", "TableCacheQueryStage"})
SUBQUERIES = frozenset({"Subquery", "SubqueryBroadcast"})
# A plan deeper than this is no plan of Spark's (the JSON decoder has its own limit of 1,000 or so).
MAX_NODES = 100_000


class Node(msgspec.Struct, gc=False, array_like=True):
    """One node of the graph; `codegen_id` is the number of the codegen span that it is fused into."""

    node_id: int
    name: str
    text: str
    depth: int
    codegen_id: int | None
    parent_ids: list[int]
    metrics: list[Metric]
    metadata: dict[str, object] = {}


pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(list[Node]).decode


def graph(plan: Plan) -> list[Node]:
    """The nodes of a plan in the order of their numbers."""
    builder = _Builder()
    builder.pending.append((plan, None, None))
    # A stack instead of recursion: plans of wide unions are deeper than Python's limit.
    while builder.pending and len(builder.nodes) < MAX_NODES:
        builder.visit(*builder.pending.pop())
    return builder.nodes


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        # What is to be visited, the next one last: (plan, parent, codegen span).
        self.pending: list[tuple[Plan, Node | None, Node | None]] = []
        # By name and text, which seldom are equal: the plans below are compared only then.
        self.exchanges: dict[tuple[str, str], list[tuple[Plan, Node]]] = {}
        self.keys: dict[int, int] = {}
        self.contents: dict[tuple[str, str, tuple[int, ...]], int] = {}

    def visit(self, plan: Plan, parent: Node | None, span: Node | None) -> None:
        """Number one plan node; put what is below it on the stack."""
        child = plan.children[0] if plan.children else None
        if plan.name.startswith("WholeStageCodegen") and child is not None:
            self.pending.append((child, parent, self.add(plan, None, None)))
        elif plan.name in LOOKED_THROUGH and child is not None:
            self.pending.append((child, parent, None))
        elif plan.name in QUERY_STAGES and child is not None:
            if not self.reuse(child, parent):
                self.pending.append((child, parent, None))
        elif plan.name in SUBQUERIES and span is not None:
            self.pending.append((plan, parent, None))
        elif plan.name in SUBQUERIES and self.reuse(plan, parent):
            return
        elif plan.name == "ReusedSubquery" and child is not None:
            self.pending.append((child, parent, span))
        elif plan.name == "ReusedExchange" and child is not None and self.reuse(child, parent):
            return
        else:
            node = self.add(plan, parent, span)
            if "Exchange" in plan.name or plan.name.startswith("Subquery"):
                self.exchanges.setdefault((plan.name, plan.text), []).append((plan, node))
            for below in reversed(plan.children):
                self.pending.append((below, node, span))

    def add(self, plan: Plan, parent: Node | None, span: Node | None) -> Node:
        depth = parent.depth + 1 if parent else 0
        node = Node(
            len(self.nodes),
            plan.name,
            plan.text,
            depth,
            span.node_id if span else None,
            [parent.node_id] if parent else [],
            plan.metrics,
            plan.metadata,
        )
        self.nodes.append(node)
        return node

    def reuse(self, plan: Plan, parent: Node | None) -> bool:
        """Point to the exchange or subquery if it is in the graph already."""
        alike = self.exchanges.get((plan.name, plan.text), [])
        node = next((node for earlier, node in reversed(alike) if self.key(earlier) == self.key(plan)), None)
        if node is None:
            return False
        if parent is not None and parent.node_id not in node.parent_ids:
            node.parent_ids.append(parent.node_id)
        return True

    def key(self, plan: Plan) -> int:
        """A number that two plans share when name, text and children are equal, as Spark compares them."""
        pending = [plan]
        while pending:
            node = pending[-1]
            missing = [child for child in node.children if id(child) not in self.keys]
            if missing:
                pending += missing
                continue
            content = (node.name, node.text, tuple(self.keys[id(child)] for child in node.children))
            self.keys[id(node)] = self.contents.setdefault(content, len(self.contents))
            pending.pop()
        return self.keys[id(plan)]
