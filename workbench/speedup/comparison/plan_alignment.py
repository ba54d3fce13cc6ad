"""Plans of two runs of a query aligned operator by operator, with the wall time of each.

Nodes are matched from the scans upwards: first the same operator over the same tables, then operators of one family
(joins, aggregates, exchanges) over the same tables, then the same operator over mostly the same tables. Codegen spans,
adaptive wrappers and shuffle reads are ignored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from workbench.core.errors import InputError
from workbench.speedup.attribution.executions import Execution, Node
from workbench.speedup.attribution.plan_identity import scan_columns, scan_table_name
from workbench.speedup.attribution.time_pieces import booked_operator, estimate_work, split_wall_time
from workbench.speedup.calibration.booked_times import NodeTimes
from workbench.speedup.tables import ALIGNED, PLAN_SIDES

SHARED = "shared, split by work"
# Operators of one family may be matched.
_FAMILIES = ("Join", "Aggregate", "Exchange", "Scan", "Sort", "Limit", "Window", "Filter", "Project")
MIN_SHARED_FRACTION = 0.5


@dataclass(frozen=True)
class PlanAlignment:
    """Tables `aligned` and `plan_sides`, and the wall times of both runs, in all and by booked operator or term."""

    aligned: pl.DataFrame
    sides: pl.DataFrame
    baseline_s: float
    candidate_s: float
    by_operator: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})


@dataclass(frozen=True)
class _Cost:
    wall_s: float
    basis: str


@dataclass(frozen=True)
class _PlanTree:
    """An execution's plan without wrapper nodes."""

    execution: Execution

    @cached_property
    def nodes(self) -> dict[int, Node]:
        return {key: node for key, node in self.execution.nodes.items() if node.operator.kind != "none"}

    @cached_property
    def parents(self) -> dict[int, int | None]:
        return {key: self._find_parent(key) for key in self.nodes}

    def _find_parent(self, key: int) -> int | None:
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
        """Nodes from the result down, each before its inputs."""
        below: dict[int | None, list[int]] = defaultdict(list)
        for key in sorted(self.nodes):
            below[self.parents[key]].append(key)
        ordered_keys, todo = [], list(reversed(below[None]))
        while todo:
            ordered_keys.append(todo.pop())
            todo += reversed(below[ordered_keys[-1]])
        return ordered_keys

    @cached_property
    def tables(self) -> dict[int, tuple[str, ...]]:
        """Tables scanned at or below each node, sorted, with repetition."""
        table_counts: dict[int, Counter[str]] = {key: Counter() for key in self.nodes}
        for key, node in self.nodes.items():
            if not (
                node.operator.name.startswith("Scan") or node.name in ("Range", "LocalTableScan", "InMemoryTableScan")
            ):
                continue
            above: int | None = key
            while above is not None:
                # Source of a scan: the last part of its path, or else its columns, or else the kind of scan.
                table_counts[above][
                    (scan_table_name(node.arguments) or scan_columns(node.arguments) or node.operator.name)
                ] += 1
                above = self.parents[above]
        return {key: tuple(sorted(counts.elements())) for key, counts in table_counts.items()}


def align_plans(
    baseline: Execution, candidate: Execution, booked: tuple[NodeTimes, NodeTimes] | None = None
) -> PlanAlignment:
    """Match the operators of two runs of a query, with the wall time of each.

    `booked`: Time and basis of each node by fitted prices (`Booking.book_nodes`); without it, shared times are split
    by rows.

    It compares one run of each side: differences of a few percent are noise.
    """
    plans = _PlanTree(baseline), _PlanTree(candidate)
    for side, plan in zip(("baseline", "candidate"), plans, strict=True):
        if not plan.nodes:
            raise InputError("the execution has no plan", where=side, found=f"SQL execution {plan.execution.sql_id}")
    matched = _match_nodes(*plans)
    costs: tuple[dict[int | str, _Cost], ...]
    if booked is None:
        costs = tuple(_sum_node_costs(plan.execution) for plan in plans)
    else:
        costs = tuple({key: _Cost(*cost) for key, cost in side.items()} for side in booked)
    accelerated = any(node.operator.accelerated for node in plans[1].nodes.values())
    rows = [
        _build_aligned_row(plans, costs, first, second, accelerated=accelerated)
        for first, second in _order_pairs(plans, matched)
    ]
    rows += _build_term_rows(costs)
    aligned = ALIGNED.frame([row | {"row": number} for number, row in enumerate(rows)])
    by_operator = _sum_by_operator(baseline, costs[0]), _sum_by_operator(candidate, costs[1])
    # Build table PLAN_SIDES: each node of both plans with its row number in `aligned`, table ALIGNED.
    rows = []
    for side, plan, cost in zip(("baseline", "candidate"), plans, costs, strict=True):
        side_rows = aligned.filter(pl.col(f"{side}_node").is_not_null())
        place = {
            node: (row, change) for node, row, change in side_rows.select(f"{side}_node", "row", "change").iter_rows()
        }
        for key in plan.order:
            row, change = place[key]
            node = plan.nodes[key]
            wall_s = cost[key].wall_s if key in cost else 0.0
            rows.append(
                {"side": side, "node_id": key, "parent_id": plan.parents[key], "row": row, "name": node.name}
                | {"wall_s": wall_s, "change": change, "rows": node.rows or None}
            )
    sides = PLAN_SIDES.frame(rows)
    return PlanAlignment(aligned, sides, baseline.wall_s, candidate.wall_s, by_operator)


def _sum_by_operator(execution: Execution, costs: Mapping[int | str, _Cost]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for key, cost in costs.items():
        name = key if isinstance(key, str) else booked_operator(execution, execution.nodes[key])
        sums[name] += cost.wall_s
    return dict(sums)


def _match_nodes(first: _PlanTree, second: _PlanTree) -> dict[int, int]:
    """Map each node of the first plan to the node of the second that does the same work, if there is one."""
    matches: dict[int, int] = {}
    by_name: Callable[[_PlanTree, int], Hashable] = lambda plan, key: (_node_label(plan, key), plan.tables[key])  # noqa: E731
    by_family: Callable[[_PlanTree, int], Hashable] = lambda plan, key: (_node_family(plan, key), plan.tables[key])  # noqa: E731
    for signature in (by_name, by_family):
        groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        # From the leaves upwards, so that partial aggregates match partial ones first.
        for key in reversed(first.order):
            if key not in matches:
                groups[signature(first, key)][0].append(key)
        taken = set(matches.values())
        for key in reversed(second.order):
            if key not in taken:
                groups[signature(second, key)][1].append(key)
        for ours, theirs in groups.values():
            # Of different numbers of alike nodes, those left over on one side stay unmatched.
            matches |= dict(zip(ours, theirs, strict=False))
    return matches | _match_similar_nodes(first, second, matches)


def _match_similar_nodes(first: _PlanTree, second: _PlanTree, matched: dict[int, int]) -> dict[int, int]:
    """Match the remaining nodes of one operator that share most inputs, such as joins in another order."""
    free = [key for key in reversed(second.order) if key not in set(matched.values())]
    matches = {}
    for key in reversed(first.order):
        if key in matched:
            continue
        scored = [
            (_shared_table_fraction(first.tables[key], second.tables[other]), -place, other)
            for place, other in enumerate(free)
            if _node_label(first, key) == _node_label(second, other)
        ]
        best = max(scored, default=(0.0, 0, -1))
        if best[0] >= MIN_SHARED_FRACTION:
            matches[key] = best[2]
            free.remove(best[2])
    return matches


def _shared_table_fraction(first: tuple[str, ...], second: tuple[str, ...]) -> float:
    """Share of the tables below two nodes that both have, counted with repeats; 1 if neither has any.

    >>> _shared_table_fraction(("orders", "lineitem"), ("orders",))
    0.5
    """
    ours, theirs = Counter(first), Counter(second)
    union = (ours | theirs).total()
    return (ours & theirs).total() / union if union else 1.0


def _node_label(plan: _PlanTree, key: int) -> str:
    return (
        booked_operator(plan.execution, plan.nodes[key]) if plan.nodes[key].operator.kind != "transition" else "to rows"
    )


def _node_family(plan: _PlanTree, key: int) -> str:
    name = plan.nodes[key].operator.name
    return next((family for family in _FAMILIES if family in name), name)


def _sum_node_costs(execution: Execution) -> dict[int | str, _Cost]:
    """Sum the wall time by node id, and by name of the term for time outside operators."""
    walls: dict[int | str, float] = defaultdict(float)
    bases: dict[int | str, dict[str, None]] = defaultdict(dict)
    for piece in split_wall_time(execution):
        if piece.term is not None or not piece.node_ids:
            walls[piece.term or "unattributed"] += piece.wall_s
            bases[piece.term or "unattributed"][piece.basis] = None
            continue
        amounts = [estimate_work(execution, execution.nodes[node]) for node in piece.node_ids]
        total = sum(amounts)
        for node, amount in zip(piece.node_ids, amounts, strict=True):
            walls[node] += piece.wall_s * (amount / total if total else 1 / len(amounts))
            bases[node][piece.basis if len(amounts) == 1 else SHARED] = None
    return {key: _Cost(wall_s, ", ".join(bases[key])) for key, wall_s in walls.items()}


def _order_pairs(plans: tuple[_PlanTree, _PlanTree], matched: dict[int, int]) -> list[tuple[int | None, int | None]]:
    """Order the pairs of matched nodes like the baseline's plan.

    Nodes only in the candidate follow the node they feed.
    """
    first, second = plans
    back = {other: key for key, other in matched.items()}
    pairs: list[tuple[int | None, int | None]] = [(key, matched.get(key)) for key in first.order]
    for key in second.order:
        if key in back:
            continue
        parent = second.parents[key]
        place = next((i for i, pair in enumerate(pairs) if pair[1] == parent and parent is not None), -1)
        pairs.insert(place + 1, (None, key))
    return pairs


def _build_aligned_row(
    plans: tuple[_PlanTree, _PlanTree],
    costs: tuple[dict[int | str, _Cost], ...],
    first: int | None,
    second: int | None,
    *,
    accelerated: bool,
) -> dict[str, Any]:
    """Row of the aligned plans for one operator: the names, wall seconds and rows of both sides.

    `costs`: By node id, of the baseline and the candidate; a node without one has zero seconds.
    `first`, `second`: Node ids in the baseline's and candidate's plan, null where it has no counterpart; never both.
    `accelerated`: Whether anything of the candidate's plan is. Seconds and rows of a missing node are null; so are rows
    that are zero.
    """
    nodes = [None if key is None else plan.nodes[key] for plan, key in zip(plans, (first, second), strict=True)]
    node_costs = [
        None if key is None else cost.get(key, _Cost(0.0, "")) for cost, key in zip(costs, (first, second), strict=True)
    ]
    walls = [None if cost is None else cost.wall_s for cost in node_costs]
    present_node = next(node for node in nodes if node is not None)
    return {
        "operator": present_node.operator.name,
        "change": _classify_change(nodes[0], nodes[1], accelerated=accelerated),
        "baseline_node": first,
        "candidate_node": second,
        "baseline_name": nodes[0].name if nodes[0] else None,
        "candidate_name": nodes[1].name if nodes[1] else None,
        "baseline_wall_s": walls[0],
        "candidate_wall_s": walls[1],
        "ratio": _wall_ratio(*walls),
        "baseline_rows": (nodes[0].rows or None) if nodes[0] else None,
        "candidate_rows": (nodes[1].rows or None) if nodes[1] else None,
        "basis": "; ".join(dict.fromkeys(cost.basis for cost in node_costs if cost and cost.basis)) or "no own time",
    }


def _classify_change(first: Node | None, second: Node | None, *, accelerated: bool) -> str:
    if first is None:
        return "added"
    if second is None:
        return "removed"
    if accelerated and not second.operator.accelerated:
        return "left on CPU"
    return "same" if first.operator == second.operator else "replaced"


def _wall_ratio(baseline_s: float | None, candidate_s: float | None) -> float | None:
    return baseline_s / candidate_s if baseline_s and candidate_s else None


def _build_term_rows(costs: tuple[dict[int | str, _Cost], ...]) -> list[dict[str, Any]]:
    """Rows of table ALIGNED for time outside operators."""
    terms = list(dict.fromkeys(key for cost in costs for key in cost if isinstance(key, str)))
    blank = dict.fromkeys(ALIGNED.schema())
    rows = []
    for term in terms:
        walls = [cost[term].wall_s if term in cost else 0.0 for cost in costs]
        basis = next(cost[term].basis for cost in costs if term in cost)
        rows.append(
            blank
            | {"operator": term, "change": "time", "baseline_wall_s": walls[0], "candidate_wall_s": walls[1]}
            | {"ratio": _wall_ratio(*walls), "basis": basis}
        )
    return rows
