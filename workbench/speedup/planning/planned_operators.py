"""Operators and joins of a plan: which the engine takes over, which it leaves to Spark, and why."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import polars as pl

from workbench.eventlog.listener_events import Plan
from workbench.eventlog.plan_graph import build_graph
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup import engines
from workbench.speedup.engines import WORK, Operator

JOINS = frozenset(
    {"SortMergeJoin", "BroadcastHashJoin", "ShuffledHashJoin", "BroadcastNestedLoopJoin", "CartesianProduct"}
)
# What adaptive execution makes of a join whose input turned out to be empty, or that another query stage has done.
NOT_RUN = "not run"
_IDS = re.compile(r"#\d+L?")
_KEYS = re.compile(r"Join (\[.*?\]), (\[.*?\])(?:, |$)")
# A line of an engine's explanation: the branches of the tree, the node's name, and the reason.
_EXPLAINED = re.compile(r"^[\s:|+-]*(?P<name>\S.*?)\s*(?:\[COMET: (?P<reason>.*)\]\s*)?$")
_MAX_REASON_CHARS = 300


@dataclass(frozen=True)
class PlannedOperator:
    """An operator of a plan; `reason` is the engine's own for leaving it to Spark, null where it gives none."""

    node_id: int
    parent_ids: tuple[int, ...]
    name: str
    text: str
    operator: Operator
    reason: str | None = None

    @property
    def is_work(self) -> bool:
        """Whether it is work, and not a wrapper or a conversion of rows."""
        return self.operator.kind in WORK

    @property
    def is_join(self) -> bool:
        """Whether it is a join."""
        return self.operator.name in JOINS


def read_plan(plan_json: str, explanation: str | None = None) -> list[PlannedOperator]:
    """Operators of a plan in the order of their numbers, with the engine's reasons.

    `plan_json`: A plan as Spark writes it into event logs. `explanation`: The engine's text, a line for each node.
    """
    nodes = build_graph(msgspec.json.decode(plan_json, type=Plan))
    operators = [
        PlannedOperator(
            node.node_id, tuple(node.parent_ids), node.name, node.text, engines.classify_operator(node.name)
        )
        for node in nodes
    ]
    return list(_add_reasons(operators, explanation or ""))


def _add_reasons(operators: Sequence[PlannedOperator], explanation: str) -> Iterator[PlannedOperator]:
    """Add reasons to nodes of the same name, in the order of both; none where one side has more nodes of that name."""
    reasons: dict[str, deque[str | None]] = defaultdict(deque)
    for line in explanation.splitlines():
        if matched := _EXPLAINED.match(line):
            reasons[matched["name"].strip()].append(matched["reason"])
    counts = Counter(operator.name.strip() for operator in operators)
    for operator in operators:
        name = operator.name.strip()
        known = reasons[name]
        # One is taken out for each node: the numbers stay equal where they were.
        reason = known.popleft() if known and len(known) == counts[name] else None
        counts[name] -= 1
        yield operator if reason is None else replace(operator, reason=_IDS.sub("", reason)[:_MAX_REASON_CHARS])


def list_work(operators: Iterable[PlannedOperator]) -> list[PlannedOperator]:
    """The operators that are work."""
    return [operator for operator in operators if operator.is_work]


def list_left_to_spark(operators: Iterable[PlannedOperator]) -> list[PlannedOperator]:
    """Work that the engine leaves to Spark."""
    return [operator for operator in list_work(operators) if not operator.operator.accelerated]


def count_transitions(operators: Sequence[PlannedOperator]) -> int:
    """Borders between the engine and Spark, the collection of the result included; adaptive plans do not show them."""
    by_id = {operator.node_id: operator for operator in operators}
    borders = 0
    for operator in list_work(operators):
        # The operators that take its rows; those of a reused exchange are several.
        above, todo, seen = [], list(operator.parent_ids), set()
        while todo:
            parent = by_id[todo.pop()]
            if parent.node_id in seen:
                continue
            seen.add(parent.node_id)
            if parent.is_work:
                above.append(parent)
            else:
                todo += parent.parent_ids
        fast = operator.operator.accelerated
        borders += sum(fast != other.operator.accelerated for other in above) if above else fast
    return borders


@dataclass(frozen=True)
class RunJoin:
    """A join as it was planned, and the kind that adaptive execution made of it."""

    signature: str
    planned: str
    ran: str


def find_join_keys(operator: PlannedOperator) -> str:
    """Keys of both inputs of a join with the ids of their columns; empty for a join without keys.

    >>> join = engines.classify_operator("SortMergeJoin")
    >>> find_join_keys(PlannedOperator(1, (0,), "SortMergeJoin", "SortMergeJoin [a#1L], [b#2L], Inner", join))
    '[a#1L], [b#2L]'
    """
    matched = _KEYS.search(operator.text)
    return f"{matched[1]}, {matched[2]}" if matched else ""


def match_run_joins(planned: Sequence[PlannedOperator], final: Sequence[PlannedOperator]) -> list[RunJoin]:
    """What became of each join of the first version of a plan in its last one, matched by its keys."""
    ran: dict[str, deque[str]] = defaultdict(deque)
    for operator in final:
        if operator.is_join:
            ran[find_join_keys(operator)].append(operator.operator.name)
    joins = []
    for operator in planned:
        if operator.is_join:
            keys = find_join_keys(operator)
            kind = ran[keys].popleft() if ran[keys] else NOT_RUN
            joins.append(RunJoin(_IDS.sub("", keys), operator.operator.name, kind))
    return joins


def expect_joins(planned: Sequence[PlannedOperator], run: Sequence[RunJoin]) -> dict[int, str]:
    """Kind that each join of a plan will have when it runs, by node id: as the same join in a run of the baseline.

    Another session has other ids of columns, so joins are matched by the names of their keys, in the order of both
    plans. A join that the run lacks keeps its planned kind; so does one that the engine plans as another kind.
    """
    known: dict[str, deque[RunJoin]] = defaultdict(deque)
    for join in run:
        known[join.signature].append(join)
    kinds = {}
    for operator in planned:
        if not operator.is_join:
            continue
        kinds[operator.node_id] = operator.operator.name
        matches = known[_IDS.sub("", find_join_keys(operator))]
        if matches:
            join = matches.popleft()
            if join.planned == operator.operator.name or join.ran == NOT_RUN:
                kinds[operator.node_id] = join.ran
    return kinds


def read_run_plans(facts: EventLogFacts) -> dict[str, tuple[list[PlannedOperator], list[PlannedOperator]]]:
    """First and last version of the plan of each query's last run that succeeded, by the query's description."""
    good = facts.sql_executions.filter(pl.col("status") == "succeeded", pl.col("description").is_not_null())
    last = good.group_by("description").agg(
        pl.struct("log_id", "sql_id").sort_by("log_id", "sql_id").last().alias("key")
    )
    keys = last.unnest("key")
    nodes = facts.plan_nodes.join(keys, on=["log_id", "sql_id"]).sort("plan_version", "node_id")
    plans = {}
    for (query,), frame in nodes.group_by("description"):
        first = frame.filter(pl.col("plan_version") == pl.col("plan_version").min())
        plans[str(query)] = _read_nodes(first), _read_nodes(frame.filter("is_final"))
    return plans


def _read_nodes(frame: pl.DataFrame) -> list[PlannedOperator]:
    columns = ("node_id", "parent_ids", "node_name", "simple_string")
    return [
        PlannedOperator(node_id, tuple(parents), name, text or "", engines.classify_operator(name))
        for node_id, parents, name, text in frame.select(columns).iter_rows()
    ]
