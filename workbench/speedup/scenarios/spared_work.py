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

_SORTED_JOIN = ("Exchange", "Sort", "SortMergeJoin", "ShuffledHashJoin")


@dataclass(frozen=True)
class SparedWork:
    """Shares of a stage's task time that another plan would spare, at least and at most."""

    stage_id: int
    least: float
    most: float


def find_broadcast_work(facts: EventLogFacts) -> tuple[SparedWork, ...]:
    """What is spared if the smaller sides of shuffled joins are broadcast.

    At least the exchange and the sorts whose own time the log tells, at most also their share of times that operators
    have together, and the join. The exchange of the small side stays: its rows must be sent, too.
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
    totals, least_s, most_s = (defaultdict[int, float](float) for _ in range(3))
    touched: set[int] = set()
    for sql_id, stage_id, node_ids, task_s in _iterate_pieces(measured):
        totals[stage_id] += task_s
        its_nodes = spared.get(sql_id, set())
        if node_ids and its_nodes.issuperset(node_ids):
            least_s[stage_id] += task_s
        if not its_nodes.isdisjoint(node_ids) and not any((sql_id, node_id) in sent for node_id in node_ids):
            touched.add(stage_id)
    exclusive = build_exclusive_times(facts, measured).filter(
        pl.col("stage_id").is_in(touched), pl.col("operator").is_in(_SORTED_JOIN)
    )
    for stage_id, task_s in exclusive.select("stage_id", "task_time_s").iter_rows():
        most_s[stage_id] += task_s
    return tuple(
        SparedWork(stage_id, least_s[stage_id] / total_s, max(least_s[stage_id], most_s[stage_id]) / total_s)
        for stage_id, total_s in totals.items()
        if total_s and (least_s[stage_id] or most_s[stage_id])
    )


def _iterate_pieces(measured: Measured) -> Iterator[tuple[int, int, list[int], float]]:
    """Execution, stage, nodes and task time of each piece of a stage."""
    of_stages = measured.pieces.filter(pl.col("stage_id").is_not_null())
    yield from of_stages.select("sql_id", "stage_id", "node_ids", "task_s").iter_rows()
