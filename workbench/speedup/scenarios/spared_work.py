"""Work that another plan would spare, as shares of the task time of a run's stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.advice.join_sides import MAX_BROADCAST_BYTES, list_small_sides
from workbench.speedup.attribution.application_profile import build_exclusive_times
from workbench.speedup.attribution.operator_explanation import measure_single_log
from workbench.speedup.attribution.time_pieces import Measured

_SPARED = ("Exchange", "Sort")
_JOINS = ("SortMergeJoin", "ShuffledHashJoin")


@dataclass(frozen=True)
class SparedWork:
    """Shares of a stage's task time that another plan would spare: at least, most likely and at most."""

    stage_id: int
    least: float
    likely: float
    most: float


def find_broadcast_work(facts: EventLogFacts) -> tuple[SparedWork, ...]:
    """What is spared if the smaller sides of shuffled joins are broadcast.

    At least the exchange and the sorts whose own time the log tells, at most also their share of times that operators
    have together, and the join; most likely half of that share, and no join, since each row is still looked up. The
    exchange of the small side stays: its rows must be sent, too. So do sorts for something else.
    """
    spared: defaultdict[int, set[int]] = defaultdict(set)
    sent: set[tuple[int, int]] = set()
    for side in list_small_sides(facts):
        if side.size_bytes <= MAX_BROADCAST_BYTES:
            spared[side.sql_id].update(side.spared_ids, [side.node_id])
            sent.add((side.sql_id, side.exchange_id))
    if not spared:
        return ()
    measured = measure_single_log(facts)
    totals, least_s, most_s, stays_s = (defaultdict[int, float](float) for _ in range(4))
    operators = facts.plan_nodes.filter("is_final", pl.col("node_name").is_in(_SPARED)).select("sql_id", "node_id")
    staying = {(sql_id, node_id) for sql_id, node_id in operators.iter_rows() if node_id not in spared[sql_id]}
    touched: set[int] = set()
    for sql_id, stage_id, node_ids, task_s in _iterate_pieces(measured):
        totals[stage_id] += task_s
        its_nodes = spared.get(sql_id, set())
        if node_ids and its_nodes.issuperset(node_ids):
            least_s[stage_id] += task_s
        elif len(node_ids) == 1 and (sql_id, node_ids[0]) in staying:
            stays_s[stage_id] += task_s
        if not its_nodes.isdisjoint(node_ids) and not any((sql_id, node_id) in sent for node_id in node_ids):
            touched.add(stage_id)
    joins_s = defaultdict[int, float](float)
    exclusive = build_exclusive_times(facts, measured).filter(pl.col("stage_id").is_in(touched))
    for stage_id, operator, task_s in exclusive.select("stage_id", "operator", "task_time_s").iter_rows():
        most_s[stage_id] += task_s if operator in _SPARED else 0.0
        joins_s[stage_id] += task_s if operator in _JOINS else 0.0
    work = []
    for stage_id, total_s in totals.items():
        least = least_s[stage_id]
        shared = max(least, most_s[stage_id] - stays_s[stage_id])
        if total_s and (shared or joins_s[stage_id]):
            ends_s = least, (least + shared) / 2, shared + joins_s[stage_id]
            work.append(SparedWork(stage_id, *(task_s / total_s for task_s in ends_s)))
    return tuple(work)


def _iterate_pieces(measured: Measured) -> Iterator[tuple[int, int, list[int], float]]:
    """Execution, stage, nodes and task time of each piece of a stage."""
    of_stages = measured.pieces.filter(pl.col("stage_id").is_not_null())
    yield from of_stages.select("sql_id", "stage_id", "node_ids", "task_s").iter_rows()
