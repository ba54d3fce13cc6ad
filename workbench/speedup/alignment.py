"""Two runs of a query side by side: nodes of both final plans matched, each with the wall time that it took.

Matched from the scans upwards: nodes belong together when they are the same operator over the same tables, then when
they are of one family (joins, aggregates, exchanges) over the same tables, then when they are the same operator over
tables of which most are the same. Codegen spans, adaptive wrappers and shuffle reads are looked through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from workbench.errors import InputError
from workbench.speedup.attribution import pieces
from workbench.speedup.execution import Execution, Node, columns_read, table_name
from workbench.speedup.work import operator_name, work
from workbench.tables import Column, Table

ALIGNED = Table(
    "aligned",
    "Operators of two runs of a query, matched; `baseline_wall_s` and `candidate_wall_s` add up to the runs' wall "
    "times.",
    ("row",),
    (
        Column("row", "int", "Number of the row, in the order of the plans from the result down."),
        Column("operator", "str", "Operator by Spark's name for it, or a kind of time such as idle."),
        Column("change", "str", "same, replaced, removed, added, or left on CPU; time: no operator."),
        Column("baseline_node", "int", "Node in the baseline's final plan; null for none.", nullable=True),
        Column("candidate_node", "int", "Node in the candidate's final plan; null for none.", nullable=True),
        Column("baseline_name", "str", "Its name there.", nullable=True),
        Column("candidate_name", "str", "Its name there.", nullable=True),
        Column("baseline_wall_s", "float", "Wall time on the baseline; null without a node.", "s", nullable=True),
        Column("candidate_wall_s", "float", "Wall time on the candidate; null without a node.", "s", nullable=True),
        Column(
            "ratio", "float", "Baseline over candidate; null where either took no time or is missing.", nullable=True
        ),
        Column("baseline_rows", "float", "Rows that it gave; null where not told.", nullable=True),
        Column("candidate_rows", "float", "Rows that it gave; null where not told.", nullable=True),
        Column("basis", "str", "What the times rest on; a shared time is split by the rows that each handled."),
    ),
)
PLAN_SIDES = Table(
    "plan_sides",
    "The same as two trees, one row a node and side.",
    ("side", "node_id"),
    (
        Column("side", "str", "baseline or candidate."),
        Column("node_id", "int", "Node in the final plan."),
        Column("parent_id", "int", "Node that it feeds; null at the root.", nullable=True),
        Column("row", "int", "Row of `aligned`: equal on both sides for nodes that belong together."),
        Column("name", "str", "Name of the node."),
        Column("wall_s", "float", "Wall time.", "s"),
        Column("change", "str", "As in `aligned`."),
        Column("rows", "float", "Rows that it gave; null where not told.", nullable=True),
    ),
)
SHARED = "shared, split by work"
# Operators of one family may stand for each other.
_FAMILIES = ("Join", "Aggregate", "Exchange", "Scan", "Sort", "Limit", "Window", "Filter", "Project")
LEAST_COMMON = 0.5


@dataclass(frozen=True)
class Alignment:
    """`aligned` and `sides` as declared; wall times of both runs."""

    aligned: pl.DataFrame
    sides: pl.DataFrame
    baseline_s: float
    candidate_s: float


@dataclass(frozen=True)
class _Cost:
    wall_s: float
    basis: str


@dataclass(frozen=True)
class _Plan:
    """An execution's plan without the nodes that only wrap others."""

    execution: Execution

    @cached_property
    def nodes(self) -> dict[int, Node]:
        return {key: node for key, node in self.execution.nodes.items() if node.operator.kind != "none"}

    @cached_property
    def parents(self) -> dict[int, int | None]:
        return {key: self._parent(key) for key in self.nodes}

    def _parent(self, key: int) -> int | None:
        seen: set[int] = set()
        todo = list(self.execution.nodes[key].parent_ids)
        while todo:
            parent = todo.pop(0)
            if parent in self.nodes:
                return parent
            if parent in self.execution.nodes and parent not in seen:
                seen.add(parent)
                todo += self.execution.nodes[parent].parent_ids
        return None

    @cached_property
    def order(self) -> list[int]:
        """From the result down, each node before its inputs."""
        below: dict[int | None, list[int]] = defaultdict(list)
        for key in sorted(self.nodes):
            below[self.parents[key]].append(key)
        found, todo = [], list(reversed(below[None]))
        while todo:
            found.append(todo.pop())
            todo += reversed(below[found[-1]])
        return found

    @cached_property
    def tables(self) -> dict[int, tuple[str, ...]]:
        """Names of what is scanned at or below each node, sorted, with repetition."""
        found: dict[int, Counter[str]] = {key: Counter() for key in self.nodes}
        for key, node in self.nodes.items():
            if not _is_leaf(node):
                continue
            above: int | None = key
            while above is not None:
                found[above][_source(node)] += 1
                above = self.parents[above]
        return {key: tuple(sorted(counts.elements())) for key, counts in found.items()}


def align(baseline: Execution, candidate: Execution) -> Alignment:
    """What became of each operator, and what did that cost or save?

    Parameters
    ----------
    baseline, candidate
        Two runs of one query, on any two engines.

    Returns
    -------
    Alignment
        Tables `aligned` and `plan_sides`.

    Raises
    ------
    InputError
        A run has no plan.

    Notes
    -----
    One run of each: differences of some percent are noise. Where operators share one time, the plan's rows split it,
    which is a guess; calibration does better from many queries.
    """
    plans = _Plan(baseline), _Plan(candidate)
    for side, plan in zip(("baseline", "candidate"), plans, strict=True):
        if not plan.nodes:
            raise InputError("the execution has no plan", where=side, found=f"SQL execution {plan.execution.sql_id}")
    matched = _matched(*plans)
    costs = tuple(_costs(plan.execution) for plan in plans)
    accelerated = any(node.operator.accelerated for node in plans[1].nodes.values())
    rows = [_row(plans, costs, first, second, accelerated=accelerated) for first, second in _in_order(plans, matched)]
    rows += _other_times(costs)
    aligned = ALIGNED.frame([row | {"row": number} for number, row in enumerate(rows)])
    return Alignment(aligned, _sides(plans, costs, aligned), baseline.wall_s, candidate.wall_s)


def _is_leaf(node: Node) -> bool:
    return node.operator.name.startswith("Scan") or node.name in ("Range", "LocalTableScan", "InMemoryTableScan")


def _source(node: Node) -> str:
    """The table that a scan reads: the last part of its path, else its columns, else what kind of scan it is."""
    return table_name(node.arguments) or columns_read(node.arguments) or node.operator.name


def _matched(first: _Plan, second: _Plan) -> dict[int, int]:
    found: dict[int, int] = {}
    by_name: Callable[[_Plan, int], Hashable] = lambda plan, key: (_name(plan, key), plan.tables[key])  # noqa: E731
    by_family: Callable[[_Plan, int], Hashable] = lambda plan, key: (_family(plan, key), plan.tables[key])  # noqa: E731
    for signature in (by_name, by_family):
        groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        # From the leaves upwards: partial aggregates meet partial ones, final ones what is left.
        for key in reversed(first.order):
            if key not in found:
                groups[signature(first, key)][0].append(key)
        taken = set(found.values())
        for key in reversed(second.order):
            if key not in taken:
                groups[signature(second, key)][1].append(key)
        for ours, theirs in groups.values():
            found |= dict(zip(ours, theirs, strict=False))
    return found | _alike(first, second, found)


def _alike(first: _Plan, second: _Plan, matched: dict[int, int]) -> dict[int, int]:
    """Left-over nodes of one operator whose inputs are mostly the same: joins in another order."""
    free = [key for key in reversed(second.order) if key not in set(matched.values())]
    found = {}
    for key in reversed(first.order):
        if key in matched:
            continue
        scored = [
            (_common(first.tables[key], second.tables[other]), -place, other)
            for place, other in enumerate(free)
            if _name(first, key) == _name(second, other)
        ]
        best = max(scored, default=(0.0, 0, -1))
        if best[0] >= LEAST_COMMON:
            found[key] = best[2]
            free.remove(best[2])
    return found


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> float:
    ours, theirs = Counter(first), Counter(second)
    every = (ours | theirs).total()
    return (ours & theirs).total() / every if every else 1.0


def _name(plan: _Plan, key: int) -> str:
    return (
        operator_name(plan.execution, plan.nodes[key]) if plan.nodes[key].operator.kind != "transition" else "to rows"
    )


def _family(plan: _Plan, key: int) -> str:
    name = plan.nodes[key].operator.name
    return next((family for family in _FAMILIES if family in name), name)


def _costs(execution: Execution) -> dict[int | str, _Cost]:
    """Wall time by node, and by term where it is no operator's."""
    walls: dict[int | str, float] = defaultdict(float)
    bases: dict[int | str, dict[str, None]] = defaultdict(dict)
    for piece in pieces(execution):
        if piece.term is not None or not piece.node_ids:
            walls[piece.term or "unattributed"] += piece.wall_s
            bases[piece.term or "unattributed"][piece.basis] = None
            continue
        amounts = [work(execution, execution.nodes[node]) for node in piece.node_ids]
        total = sum(amounts)
        for node, amount in zip(piece.node_ids, amounts, strict=True):
            walls[node] += piece.wall_s * (amount / total if total else 1 / len(amounts))
            bases[node][piece.basis if len(amounts) == 1 else SHARED] = None
    return {key: _Cost(wall_s, ", ".join(bases[key])) for key, wall_s in walls.items()}


def _in_order(plans: tuple[_Plan, _Plan], matched: dict[int, int]) -> list[tuple[int | None, int | None]]:
    """Pairs in the baseline's order; what the candidate has added stands behind the node that it feeds."""
    first, second = plans
    back = {other: key for key, other in matched.items()}
    found: list[tuple[int | None, int | None]] = [(key, matched.get(key)) for key in first.order]
    for key in second.order:
        if key in back:
            continue
        parent = second.parents[key]
        place = next((i for i, pair in enumerate(found) if pair[1] == parent and parent is not None), -1)
        found.insert(place + 1, (None, key))
    return found


def _row(
    plans: tuple[_Plan, _Plan],
    costs: tuple[dict[int | str, _Cost], ...],
    first: int | None,
    second: int | None,
    *,
    accelerated: bool,
) -> dict[str, Any]:
    nodes = [None if key is None else plan.nodes[key] for plan, key in zip(plans, (first, second), strict=True)]
    known = [
        None if key is None else cost.get(key, _Cost(0.0, "")) for cost, key in zip(costs, (first, second), strict=True)
    ]
    walls = [None if cost is None else cost.wall_s for cost in known]
    one = next(node for node in nodes if node is not None)
    return {
        "operator": one.operator.name,
        "change": _change(nodes[0], nodes[1], accelerated=accelerated),
        "baseline_node": first,
        "candidate_node": second,
        "baseline_name": nodes[0].name if nodes[0] else None,
        "candidate_name": nodes[1].name if nodes[1] else None,
        "baseline_wall_s": walls[0],
        "candidate_wall_s": walls[1],
        "ratio": _ratio(*walls),
        "baseline_rows": (nodes[0].rows or None) if nodes[0] else None,
        "candidate_rows": (nodes[1].rows or None) if nodes[1] else None,
        "basis": "; ".join(dict.fromkeys(cost.basis for cost in known if cost and cost.basis)) or "no time of its own",
    }


def _change(first: Node | None, second: Node | None, *, accelerated: bool) -> str:
    if first is None:
        return "added"
    if second is None:
        return "removed"
    if accelerated and not second.operator.accelerated:
        return "left on CPU"
    return "same" if first.operator == second.operator else "replaced"


def _ratio(baseline_s: float | None, candidate_s: float | None) -> float | None:
    return baseline_s / candidate_s if baseline_s and candidate_s else None


def _other_times(costs: tuple[dict[int | str, _Cost], ...]) -> list[dict[str, Any]]:
    terms = list(dict.fromkeys(key for cost in costs for key in cost if isinstance(key, str)))
    blank = dict.fromkeys(ALIGNED.schema())
    rows = []
    for term in terms:
        walls = [cost[term].wall_s if term in cost else 0.0 for cost in costs]
        basis = next(cost[term].basis for cost in costs if term in cost)
        rows.append(
            blank
            | {"operator": term, "change": "time", "baseline_wall_s": walls[0], "candidate_wall_s": walls[1]}
            | {"ratio": _ratio(*walls), "basis": basis}
        )
    return rows


def _sides(
    plans: tuple[_Plan, _Plan], costs: tuple[dict[int | str, _Cost], ...], aligned: pl.DataFrame
) -> pl.DataFrame:
    rows = []
    for side, plan, cost in zip(("baseline", "candidate"), plans, costs, strict=True):
        known = aligned.filter(pl.col(f"{side}_node").is_not_null())
        place = {node: (row, change) for node, row, change in known.select(f"{side}_node", "row", "change").iter_rows()}
        for key in plan.order:
            row, change = place[key]
            node = plan.nodes[key]
            wall_s = cost[key].wall_s if key in cost else 0.0
            rows.append(
                {"side": side, "node_id": key, "parent_id": plan.parents[key], "row": row, "name": node.name}
                | {"wall_s": wall_s, "change": change, "rows": node.rows or None}
            )
    return PLAN_SIDES.frame(rows)
