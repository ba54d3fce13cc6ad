"""The final physical plan as a tree of operators with LORE ids, the hash of its shape, and the difference of two.

Ids are given in post-order from 0: subqueries before children, children left to right. Looked through are AQE's root
and query stages and the codegen wrappers. A reused exchange is a reference to the one that has the id.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.lore.bridge import CODEGEN_WRAPPERS, Bridge, class_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_FIELDS = 25
_LOCATION = re.compile(r"(?:, )?Location: \w+ ?(?:\(\d+ paths\))?\[[^\]]*\]")
# Where a command writes: no business of whom a dump is passed on to.
_PATH = re.compile(r"\b[a-z][a-z0-9+.-]*:/[^\s,\])]*")
# Tells nobody anything, and is another in every run.
_PLAN_ID = re.compile(r",? ?\[plan_id=\d+\]")
_VOLATILE = (
    (re.compile(r",? ?\[?(?:plan_id|id)=#?\d+\]?"), ""),
    (re.compile(r"\b0x[0-9a-f]+\b|@[0-9a-f]{4,}"), "@"),
    (re.compile(r"\$\$Lambda[^\s,)]*"), "Lambda"),
    # What Spark cuts at so many characters is cut elsewhere when ids of expressions have more digits.
    (re.compile(r"(?<=: )(?:(?!, \w+: ).)*?\.\.\."), "..."),
    (re.compile(r"RDD\[\d+\] at [^,\])]*"), "RDD"),
)
_EXPR_ID = re.compile(r"#(\d+)L?")


@dataclass(eq=False)
class Node:
    """An operator of the plan.

    Attributes
    ----------
    lore_id
        Its id; null for a reference to a reused exchange.
    kind, name
        Spark's class, and the same as people call it.
    text
        Spark's own line for it, without locations of files.
    rows, time_ms
        What its metrics say after a run, added over tasks; null where they say nothing, 0 rows where they say so.
    span, span_ms
        The code-generated stage that begins with it, and the time of all operators in it.
    codegen_id
        Number of the code-generated stage that it is fused into; null when it runs by itself.
    """

    lore_id: int | None
    kind: str
    text: str
    java: Any
    children: list[Node] = field(default_factory=list)
    subqueries: list[Node] = field(default_factory=list)
    rows: int | None = None
    time_ms: float | None = None
    span: Any = None
    span_ms: float | None = None
    codegen_id: int | None = None

    @property
    def name(self) -> str:
        """The operator's name without Spark's ending."""
        return self.kind.removesuffix("Exec")

    def walk(self) -> Iterator[Node]:
        """This node and all below, in the order of their ids."""
        for below in (*self.subqueries, *self.children):
            yield from below.walk()
        yield self


@dataclass(eq=False)
class Tree:
    """A plan with ids.

    Attributes
    ----------
    root
        The topmost operator.
    provisional
        True until AQE is done with it: ids may still change.
    """

    root: Node
    provisional: bool
    bridge: Bridge

    @classmethod
    def of(cls, frame: DataFrame) -> Tree:
        """The plan of a DataFrame as it stands now; nothing is run."""
        from workbench.lore.bridge import bridge as find

        found = find(frame.sparkSession)
        return cls.of_plan(found, found.final_plan(frame._jdf.queryExecution()))

    @classmethod
    def of_plan(cls, found: Bridge, plan: Any) -> Tree:
        """The tree of a physical plan."""
        return cls(_Builder(found).build(plan), not found.is_final(plan), found)

    @property
    def nodes(self) -> dict[int, Node]:
        """Operators by id."""
        return {node.lore_id: node for node in self.root.walk() if node.lore_id is not None}

    def node(self, lore_id: int) -> Node:
        """The operator of an id.

        Raises
        ------
        ConfigError
            No operator has it.
        """
        found = self.nodes
        if lore_id not in found:
            raise ConfigError(
                "no operator has this id", found=lore_id, allowed=f"0 to {max(found)}", do="workbench lore tag"
            )
        return found[lore_id]

    def lines(self) -> list[tuple[int, Node, str]]:
        """(depth, node, text) from the root down, as people read plans."""
        found: list[tuple[int, Node, str]] = []

        def visit(node: Node, depth: int, before: str = "") -> None:
            mark = "[reused]" if node.lore_id is None else f"[loreId={node.lore_id}]"
            found.append((depth, node, f"{before}{mark} {node.text}"))
            for subquery in node.subqueries:
                visit(subquery, depth + 1, "subquery: ")
            for child in node.children:
                visit(child, depth + 1)

        visit(self.root, 0)
        return found

    def render(self, *, width: int = 160, metrics: bool = True) -> str:
        """The tree as text, an operator a line, with rows and time where they are known."""
        lines = []
        for depth, node, text in self.lines():
            told = _told(node) if metrics else ""
            room = max(width - 2 * depth - len(told), 40)
            lines.append("  " * depth + (text if len(text) <= room else text[: room - 1] + "…") + told)
        if self.provisional:
            lines.insert(0, "provisional: AQE may still change this plan, and with it the ids")
        return "\n".join(lines)

    def shape(self) -> str:
        """The tree as text that repeated runs of a query give alike: ids of expressions and objects taken out."""
        numbers: dict[str, int] = {}
        lines = []
        for depth, _, text in self.lines():
            for pattern, instead in _VOLATILE:
                text = pattern.sub(instead, text)
            text = _EXPR_ID.sub(lambda match: f"#{numbers.setdefault(match.group(1), len(numbers))}", text)
            lines.append("  " * depth + text)
        return "\n".join(lines)

    @property
    def plan_hash(self) -> str:
        """sha256 of the shape."""
        return hashlib.sha256(self.shape().encode()).hexdigest()


def require_same(expected_shape: str, tree: Tree) -> None:
    """Refuse a plan that is not the tagged one any more: its ids mean other operators.

    Raises
    ------
    ConfigError
        With the difference of the two trees.
    """
    shape = tree.shape()
    if shape == expected_shape:
        return
    lines = difflib.unified_diff(expected_shape.splitlines(), shape.splitlines(), "tagged", "now", lineterm="", n=1)
    difference = "\n    ".join(line[:200] for line in list(lines)[:40])
    raise ConfigError(
        "the plan is another than the one that was tagged, so ids mean other operators",
        found="\n    " + difference,
        do="tag it again and choose ids anew; with AQE sizes of stages can change a plan from run to run",
    )


def _unwrapped(plan: Any, codegen_id: int | None) -> tuple[Any, int | None]:
    """The operator behind its wrappers, and the code-generated stage that it is in."""
    while (below := looked_through(plan, most=1)) is not plan:
        kind = class_of(plan)
        codegen_id = int(plan.codegenStageId()) if kind == "WholeStageCodegenExec" else None
        plan = below
    return plan, codegen_id


def looked_through(plan: Any, *, most: int = 1_000_000) -> Any:
    """The operator behind AQE's root, query stages, codegen wrappers, commands' results and our own hooks."""
    for _ in range(most):
        kind = class_of(plan)
        if kind == "AdaptiveSparkPlanExec":
            plan = plan.executedPlan()
        elif kind in CODEGEN_WRAPPERS or kind in HOOKS:
            plan = plan.child()
        elif kind.endswith("QueryStageExec"):
            plan = plan.plan()
        elif kind == "CommandResultExec":
            plan = plan.commandPhysicalPlan()
        else:
            break
    return plan


# Interpreted, it has the metric and never counts.
_UNCOUNTED = ("SampleExec",)
# Nodes of the inline jar.
HOOKS = ("LoreDumpExec", "LoreFingerprintExec")


class _Builder:
    def __init__(self, found: Bridge) -> None:
        self.bridge = found
        self.next_id = 0

    def build(self, plan: Any, codegen_id: int | None = None) -> Node:
        """A node with all below it; ids are given on the way up."""
        span = plan if class_of(plan) == "WholeStageCodegenExec" else None
        plan, codegen_id = _unwrapped(plan, codegen_id)
        kind = class_of(plan)
        node = Node(None, kind, "", plan, span=span, codegen_id=codegen_id)
        if kind != "ReusedExchangeExec":
            for subquery in self.bridge.listed(plan.subqueries()):
                if not class_of(subquery).startswith("ReusedSubquery"):
                    node.subqueries.append(self.build(subquery))
            node.children = [self.build(child, codegen_id) for child in self.bridge.listed(plan.children())]
            node.lore_id = self.next_id
            self.next_id += 1
        text = _PATH.sub("(path)", _LOCATION.sub("", str(plan.simpleString(MAX_FIELDS))))
        node.text = _PLAN_ID.sub("", text).replace("\n", " ").strip()
        return node


def with_metrics(tree: Tree, *, ran: bool = False) -> Tree:
    """Fill in rows and times from the metrics that the plan's own objects gathered in this session.

    Parameters
    ----------
    tree
        The plan.
    ran
        It is known to have run. Else it has when some operator counted rows or time: only then 0 rows are 0 rows.
    """
    counted: list[tuple[Node, int]] = []
    for node in tree.root.walk():
        if node.lore_id is None:
            continue
        metrics = dict(_metrics(node.java))
        if (rows := metrics.get("numOutputRows")) is not None:
            counted.append((node, int(rows.value())))
        node.time_ms = _added(metrics)
        node.span_ms = _added(dict(_metrics(node.span))) if node.span is not None else None
    ran = ran or any(count for _, count in counted) or any(node.time_ms is not None for node in tree.root.walk())
    for node, count in counted:
        if count or (ran and node.kind not in _UNCOUNTED):
            node.rows = count
    return tree


def _added(metrics: dict[str, Any]) -> float | None:
    times = {name: time for name, metric in metrics.items() if (time := _time_ms(metric)) is not None}
    # Python's boot and start are parts of its total.
    totals = {name: time for name, time in times.items() if "Total" in name}
    return sum((totals or times).values()) if times else None


def _metrics(plan: Any) -> Iterator[tuple[str, Any]]:
    entries = plan.metrics().iterator()
    while entries.hasNext():
        entry = entries.next()
        yield str(entry._1()), entry._2()


def _time_ms(metric: Any) -> float | None:
    scale = {"timing": 1.0, "nsTiming": 1e-6}.get(str(metric.metricType()))
    return None if scale is None or metric.isZero() else float(metric.value()) * scale


def _told(node: Node) -> str:
    told = []
    if node.rows is not None:
        told.append(f"{node.rows:,} rows".replace(",", " "))
    if node.time_ms is not None:
        told.append(f"{node.time_ms:.0f} ms")
    if node.span_ms is not None:
        told.append(f"with what is fused below {node.span_ms:.0f} ms")
    return f"  ({', '.join(told)})" if told else ""
