"""Final physical plan as a tree of operators with LORE ids, its shape hash and its metrics.

Ids are numbered in post-order from 0: subqueries before children, children left to right. AQE's root, query stages and
codegen wrappers have no id. A reused exchange refers to the original one.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError
from workbench.core.formats import cut_text
from workbench.lore.spark_bridge.spark_internals import CODEGEN_WRAPPERS, Bridge, connect_bridge, simple_class_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_PLAN_FIELDS = 25
_LOCATION = re.compile(r"(?:, )?Location: \w+ ?(?:\(\d+ paths\))?\[[^\]]*\]")
# Paths that a command writes to are private.
_PATH = re.compile(r"\b[a-z][a-z0-9+.-]*:/[^\s,\])]*")
# Differs in every run.
_PLAN_ID = re.compile(r",? ?\[plan_id=\d+\]")
_VOLATILE = (
    (re.compile(r",? ?\[?(?:plan_id|id)=#?\d+\]?"), ""),
    (re.compile(r"\b0x[0-9a-f]+\b|@[0-9a-f]{4,}"), "@"),
    (re.compile(r"\$\$Lambda[^\s,)]*"), "Lambda"),
    # Spark cuts long texts, at another place when expression ids have more digits.
    (re.compile(r"(?<=: )(?:(?!, \w+: ).)*?\.\.\."), "..."),
    (re.compile(r"RDD\[\d+\] at [^,\])]*"), "RDD"),
)
_EXPR_ID = re.compile(r"#(\d+)L?")
# Has the metric, but does not count when it is interpreted.
_UNCOUNTED_OPERATORS = ("SampleExec",)
# One row out for each row in, without a metric of their own.
_ROW_PRESERVING_OPERATORS = ("ProjectExec", "SortExec", "WindowExec", "ColumnarToRowExec", "RowToColumnarExec")
# Nodes of the inline jar.
HOOK_OPERATORS = ("LoreDumpExec", "LoreFingerprintExec")
SUBQUERY_CLASSES = ("org.apache.spark.sql.execution.ScalarSubquery", "org.apache.spark.sql.execution.InSubqueryExec")
Replace = Callable[[Any], Any]


@dataclass(eq=False)
class PlanNode:
    """An operator of the plan.

    `lore_id`: Its id; null for a reference to a reused exchange.
    `rows`, `time_ms`: Metrics after a run, summed over tasks; null where there are none.
    `span`, `span_ms`: The code-generated stage that starts with it, and the time of all operators in it.
    `codegen_id`: Number of the code-generated stage that it is fused into; null when it runs alone.
    `refused`: Why it cannot be dumped; null when it can, or before it was looked at.
    `runs`: How often it ran in the query, where that is more than once: its times are those of all runs, its rows of
    one.
    """

    lore_id: int | None
    kind: str
    text: str
    java: Any
    children: list[PlanNode] = field(default_factory=list)
    subqueries: list[PlanNode] = field(default_factory=list)
    rows: int | None = None
    time_ms: float | None = None
    span: Any = None
    span_ms: float | None = None
    codegen_id: int | None = None
    runs: int = 1
    refused: str | None = None

    @property
    def name(self) -> str:
        """The operator's name without Spark's ending."""
        return self.kind.removesuffix("Exec")

    def iter_nodes(self) -> Iterator[PlanNode]:
        """Iterate over this node and all nodes below it, in the order of their ids."""
        for below in (*self.subqueries, *self.children):
            yield from below.iter_nodes()
        yield self


@dataclass(eq=False)
class PlanTree:
    """A plan with ids."""

    root: PlanNode
    provisional: bool
    bridge: Bridge

    @classmethod
    def from_frame(cls, frame: DataFrame) -> PlanTree:
        """The current plan of a DataFrame; nothing is run."""
        bridge = connect_bridge(frame.sparkSession)
        return cls.from_plan(bridge, bridge.final_plan(frame._jdf.queryExecution()))

    @classmethod
    def from_plan(cls, bridge: Bridge, plan: Any) -> PlanTree:
        """The tree of a physical plan."""
        return cls(_TreeBuilder(bridge).build_node(plan), not bridge.is_final(plan), bridge)

    @property
    def nodes(self) -> dict[int, PlanNode]:
        """Operators by id."""
        return {node.lore_id: node for node in self.root.iter_nodes() if node.lore_id is not None}

    def find_node(self, lore_id: int) -> PlanNode:
        """The operator of an id."""
        nodes = self.nodes
        if lore_id not in nodes:
            raise ConfigError(
                "no operator has this id", found=lore_id, allowed=f"0 to {max(nodes)}", do="workbench lore tag"
            )
        return nodes[lore_id]

    def list_lines(self) -> list[tuple[int, PlanNode, str]]:
        """(depth, node, text) from the root down."""
        lines: list[tuple[int, PlanNode, str]] = []

        def add_lines(node: PlanNode, depth: int, before: str = "") -> None:
            mark = "[reused]" if node.lore_id is None else f"[loreId={node.lore_id}]"
            lines.append((depth, node, f"{before}{mark} {node.text}"))
            for subquery in node.subqueries:
                add_lines(subquery, depth + 1, "subquery: ")
            for child in node.children:
                add_lines(child, depth + 1)

        add_lines(self.root, 0)
        return lines

    def render_text(self, *, width: int = 160, metrics: bool = True, texts: bool = True) -> str:
        """The tree as text, one operator per line, with rows and times where known, and what cannot be dumped."""
        lines = []
        for depth, node, full_text in self.list_lines():
            text = full_text if texts else f"{full_text.partition('] ')[0]}] {node.name}"
            measured = _format_measurements(node) if metrics else ""
            room = max(width - 2 * depth - len(measured), 40)
            lines.append("  " * depth + cut_text(text, room) + measured)
        if self.provisional:
            lines.insert(0, "provisional: AQE may still change this plan, and with it the ids")
        return "\n".join(lines)

    def plan_shape(self) -> str:
        """The tree as text without expression and object ids: equal for repeated runs of a query."""
        numbers: dict[str, int] = {}
        lines = []
        for depth, _, text in self.list_lines():
            for pattern, instead in _VOLATILE:
                text = pattern.sub(instead, text)
            text = _EXPR_ID.sub(lambda match: f"#{numbers.setdefault(match.group(1), len(numbers))}", text)
            lines.append("  " * depth + text)
        return "\n".join(lines)

    @property
    def plan_hash(self) -> str:
        """sha256 of the shape."""
        return hashlib.sha256(self.plan_shape().encode()).hexdigest()


def check_same_shape(expected_shape: str, tree: PlanTree) -> None:
    """Refuse a plan that differs from the tagged one, since its ids mean other operators."""
    shape = tree.plan_shape()
    if shape == expected_shape:
        return
    lines = difflib.unified_diff(expected_shape.splitlines(), shape.splitlines(), "tagged", "now", lineterm="", n=1)
    difference = "\n    ".join(line[:200] for line in list(lines)[:40])
    raise ConfigError(
        "the plan differs from the tagged one, so ids mean other operators",
        found="\n    " + difference,
        do="tag the query again and choose new ids; with AQE the plan can change from run to run",
    )


def _unwrap_codegen(plan: Any, codegen_id: int | None) -> tuple[Any, int | None]:
    """The operator inside its wrappers, and its code-generated stage."""
    while (below := unwrap_operator(plan, max_steps=1)) is not plan:
        kind = simple_class_name(plan)
        codegen_id = int(plan.codegenStageId()) if kind == "WholeStageCodegenExec" else None
        plan = below
    return plan, codegen_id


def unwrap_operator(plan: Any, *, max_steps: int = 1_000_000) -> Any:
    """The operator inside AQE's root, query stages, codegen wrappers, results of commands and our hooks."""
    for _ in range(max_steps):
        kind = simple_class_name(plan)
        if kind == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan()
        elif kind in CODEGEN_WRAPPERS or kind in HOOK_OPERATORS:
            plan = plan.child()
        elif kind.endswith("QueryStageExec"):
            plan = plan.plan()
        elif kind == "CommandResultExec":
            plan = plan.commandPhysicalPlan()
        else:
            break
    return plan


class _TreeBuilder:
    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.next_id = 0

    def build_node(self, plan: Any, codegen_id: int | None = None) -> PlanNode:
        """A node with its subtree; ids are assigned on the way up."""
        span = plan if simple_class_name(plan) == "WholeStageCodegenExec" else None
        plan, codegen_id = _unwrap_codegen(plan, codegen_id)
        kind = simple_class_name(plan)
        node = PlanNode(None, kind, "", plan, span=span, codegen_id=codegen_id)
        if kind != "ReusedExchangeExec":
            for subquery in self.bridge.to_list(plan.subqueries()):
                if not simple_class_name(subquery).startswith("ReusedSubquery"):
                    node.subqueries.append(self.build_node(subquery))
            node.children = [self.build_node(child, codegen_id) for child in self.bridge.to_list(plan.children())]
            node.lore_id = self.next_id
            self.next_id += 1
        text = _PATH.sub("(path)", _LOCATION.sub("", str(plan.simpleString(MAX_PLAN_FIELDS))))
        node.text = _PLAN_ID.sub("", text).replace("\n", " ").strip()
        return node


def fill_in_metrics(tree: PlanTree, *, ran: bool = False) -> PlanTree:
    """Fill in rows and times from the metrics of the plan's objects in this session.

    `ran`: Whether the query has run; else this is inferred from the metrics. Only then 0 rows are known to be 0.
    """
    counted: list[tuple[PlanNode, int]] = []
    for node in tree.root.iter_nodes():
        if node.lore_id is None:
            continue
        metrics = dict(_iter_metrics(node.java))
        if (rows := metrics.get("numOutputRows")) is not None:
            counted.append((node, int(rows.value())))
        node.time_ms = _sum_times(metrics)
        node.span_ms = _sum_times(dict(_iter_metrics(node.span))) if node.span is not None else None
    ran = ran or any(count for _, count in counted) or any(node.time_ms is not None for node in tree.root.iter_nodes())
    for node, count in counted:
        if count or (ran and node.kind not in _UNCOUNTED_OPERATORS):
            node.rows = count
    for node in tree.root.iter_nodes():
        if node.kind == "ShuffleExchangeExec" and "rangepartitioning(" in node.text:
            written = dict(_iter_metrics(node.java)).get("shuffleRecordsWritten")
            if written is not None and not written.isZero():
                correct_repeated_counts(node.children[0], int(written.value()))
    return tree


def correct_repeated_counts(top: PlanNode, n_rows: int) -> None:
    """Divide the rows of operators that ran several times in one query by the number of runs.

    Range partitioning runs its child once to sample it and once to write it, and metrics count both. Where Spark
    sampled some partitions once more, the number of rows is not known: null.

    `top`: The operator below the exchange; the operators below it down to the next exchange run as often.
    """
    counted = top
    while counted.rows is None and counted.kind in _ROW_PRESERVING_OPERATORS and counted.children:
        counted = counted.children[0]
    if counted.rows is None or counted.rows == n_rows:
        return
    runs = counted.rows // n_rows
    is_whole = counted.rows % n_rows == 0
    waiting = [top]
    while waiting:
        node = waiting.pop()
        node.runs = runs if is_whole else max(runs, 2)
        if node.rows is not None:
            node.rows = node.rows // runs if is_whole and node.rows % runs == 0 else None
        waiting += [child for child in node.children if "Exchange" not in child.kind]


def _sum_times(metrics: dict[str, Any]) -> float | None:
    times = {name: time for name, metric in metrics.items() if (time := _metric_time_ms(metric)) is not None}
    # The total of Python includes boot and start.
    totals = {name: time for name, time in times.items() if "Total" in name}
    return sum((totals or times).values()) if times else None


def _iter_metrics(plan: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the SQLMetric of each metric of a plan node."""
    entries = plan.metrics().iterator()
    while entries.hasNext():
        entry = entries.next()
        yield str(entry._1()), entry._2()


def _metric_time_ms(metric: Any) -> float | None:
    scale = {"timing": 1.0, "nsTiming": 1e-6}.get(str(metric.metricType()))
    return None if scale is None or metric.isZero() else float(metric.value()) * scale


def _format_measurements(node: PlanNode) -> str:
    parts = []
    if node.rows is not None:
        parts.append(f"{node.rows:,} rows".replace(",", " "))
    if node.time_ms is not None:
        parts.append(f"{node.time_ms:.0f} ms")
    if node.span_ms is not None:
        parts.append(f"{node.span_ms:.0f} ms with fused operators below")
    if node.runs > 1 and parts:
        parts.append(f"ran {node.runs} times: range partitioning samples it first")
    measured = f"  ({', '.join(parts)})" if parts else ""
    return measured + (
        "" if node.refused is None else f"  [no dump: {node.refused.partition('; ')[0].partition(': ')[0]}]"
    )


def rebuild_part(
    plan: Any,
    bridge: Bridge,
    *,
    is_input: Callable[[Any], bool],
    on_input: Replace,
    on_subquery: Replace,
    open_child: Replace = lambda child: child,
) -> Any:
    """The plan with its inputs and subqueries replaced.

    `on_input`, `on_subquery`: Called with each input and each subquery expression, in the order of their numbers;
    gives what stands there.
    """
    children = []
    for child in bridge.to_list(plan.children()):
        if is_input(child):
            children.append(on_input(child))
            continue
        children.append(
            rebuild_part(
                open_child(child),
                bridge,
                is_input=is_input,
                on_input=on_input,
                on_subquery=on_subquery,
                open_child=open_child,
            )
        )
    plan = plan.withNewChildren(bridge.to_scala_seq(children))
    return replace_subqueries(bridge, plan, on_subquery)


def replace_subqueries(bridge: Bridge, plan: Any, instead: Replace) -> Any:
    """The plan with each subquery expression of its topmost operator replaced, in the order of `plan.subqueries`."""
    if plan.subqueries().isEmpty():
        return plan

    def rebuild_expression(expression: Any) -> Any:
        children = bridge.to_list(expression.children())
        new = [rebuild_expression(child) for child in children]
        if any(child is not other for child, other in zip(children, new, strict=True)):
            expression = expression.withNewChildren(bridge.to_scala_seq(new))
        if expression.getClass().getName() in SUBQUERY_CLASSES:
            expression = instead(expression)
        return expression

    pairs = [(expression, rebuild_expression(expression)) for expression in bridge.to_list(plan.expressions())]
    return plan.mapExpressions(bridge.to_scala_map(keyed=pairs))


def is_stub(plan: Any) -> bool:
    """Is this the placeholder of an input in plan.meta: a leaf, also below the exchange or conversion of its input?"""
    if simple_class_name(plan) in ("BroadcastExchangeExec", "RowToColumnarExec"):
        plan = plan.child()
    return bool(plan.children().isEmpty())
