"""Plan nodes and their metrics: what plans describe, with what stages and the driver added to it.

Of many SQL executions together: columns of numpy cost less than rows of Python only when they are long. `owner` is the
place of a row's execution in the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from workbench.core.tables import Coded
from workbench.eventlog.column_slices import Ints, Rows, Slice, join_slices, list_ranges
from workbench.eventlog.fold import MAX_ID
from workbench.eventlog.plan_columns import PlanCollector
from workbench.eventlog.sql_state import SqlState
from workbench.eventlog.stage_statistics import StageFacts, Summaries, summarize_samples
from workbench.eventlog.table_sink import clamp_to_64_bits

NO_PLANS = PlanCollector().list_columns()


@dataclass(frozen=True)
class PlanNodes:
    """The plan nodes of executions, plan after plan."""

    owner: Ints
    version: Ints
    node_id: Ints
    is_final: Ints
    rows: Rows


def join_plan_nodes(executions: Sequence[SqlState]) -> PlanNodes:
    """The nodes of all plans of these executions."""
    slices = [Slice(NO_PLANS.nodes, 0, 0)]
    plans = [(0, 0, False)]
    for number, sql in enumerate(executions):
        slices += [plan.nodes for plan in sql.plans]
        plans += [(number, version, version == len(sql.plans) - 1) for version in range(len(sql.plans))]
    counts = [one.count for one in slices]
    owner, version, is_final = np.repeat(np.array(plans, np.int64), counts, axis=0).T
    return PlanNodes(owner, version, list_ranges([0] * len(counts), counts), is_final, join_slices(slices))


@dataclass(frozen=True)
class DescribedMetrics:
    """Metrics of executions, each at the last plan version that has it.

    Metrics of an adaptive subplan have no node (-1), unless a node has them, too.
    """

    owner: Ints
    version: Ints
    node_id: Ints
    node_name: Coded
    id: Ints
    kind: Coded  # name and type


def describe_metrics(executions: Sequence[SqlState], nodes: PlanNodes) -> DescribedMetrics:
    """The metrics that plans describe, or updates of adaptive subplans."""
    accumulators, names = nodes.rows.coded["accumulators"], nodes.rows.coded["name"]
    lists = [list(dict.fromkeys(ids)) for ids in accumulators.values]
    sizes = np.array([len(ids) for ids in lists], np.int64)
    firsts, sizes_by_node = np.cumsum(sizes) - sizes, sizes[accumulators.codes]
    ids = np.array(list(chain.from_iterable(lists)), np.int64)[list_ranges(firsts[accumulators.codes], sizes_by_node)]
    node = np.repeat(np.arange(len(nodes.owner)), sizes_by_node)
    owner, version = nodes.owner[node], nodes.version[node]
    loose = [
        (number, accumulator_id, version, kind)
        for number, sql in enumerate(executions)
        for accumulator_id, (version, kind) in sql.loose.items()
    ]
    loose_owner, loose_ids, loose_version = np.array([one[:3] for one in loose], np.int64).reshape(-1, 3).T
    # The last version wins, then earlier ones, then what no plan has.
    rank = np.concatenate([version, np.full(len(loose), -1)])
    node = np.concatenate([node, np.full(len(loose), -1)])
    owner, version = np.concatenate([owner, loose_owner]), np.concatenate([version, loose_version])
    ids = np.concatenate([ids, loose_ids])
    (pair,) = _number_pairs([owner], [ids])
    last = np.full(len(pair), -1)
    np.maximum.at(last, pair, rank)
    is_last = rank == last[pair]
    node, owner, ids = node[is_last], owner[is_last], ids[is_last]
    # Without a node, the place is that of what is appended.
    name_codes = np.append(names.codes, len(names.values))[node]
    return DescribedMetrics(
        owner,
        version[is_last],
        np.append(nodes.node_id, -1)[node],
        Coded(name_codes, [*names.values, None]),
        ids,
        _find_kinds(executions, loose_owner, loose_ids, [kind for *_, kind in loose], owner, ids),
    )


def _find_kinds(
    executions: Sequence[SqlState],
    loose_owner: Ints,
    loose_ids: Ints,
    loose_kinds: Sequence[tuple[str, str]],
    owner: Ints,
    ids: Ints,
) -> Coded:
    """Kinds of metrics: as the last chunk whose plans have it describes it, else the first update of a subplan."""
    slices = [Slice(NO_PLANS.metrics, 0, 0), *(plan.metrics for sql in executions for plan in sql.plans)]
    rows = join_slices(slices)
    of_plans = [0, *(number for number, sql in enumerate(executions) for _ in sql.plans)]
    owners = np.concatenate([loose_owner, np.repeat(of_plans, [one.count for one in slices])])
    order, _, end = _find_pairs(owners, np.concatenate([loose_ids, rows.numbers["id"]]), owner, ids)
    kinds = rows.coded["kind"]
    codes = np.concatenate([len(kinds.values) + np.arange(len(loose_ids)), kinds.codes])
    return Coded(codes[order[end - 1]], [*kinds.values, *loose_kinds])


def find_driver_values(executions: Sequence[SqlState], metrics: DescribedMetrics) -> np.ma.MaskedArray[Any, Any]:
    """What the driver added to each metric; masked where it added nothing."""
    added = [
        (number, accumulator_id, clamp_to_64_bits(value))
        for number, sql in enumerate(executions)
        for accumulator_id, value in sql.driver.items()
        if abs(accumulator_id) <= MAX_ID
    ]
    owners, ids, values = np.array(added, np.int64).reshape(-1, 3).T
    order, first, end = _find_pairs(owners, ids, metrics.owner, metrics.id)
    found = end > first
    driver_values = np.zeros(len(found), np.int64)
    driver_values[found] = values[order[first[found]]]
    return np.ma.array(driver_values, mask=~found)


def summarize_updates(executions: Sequence[SqlState], metrics: DescribedMetrics) -> tuple[Summaries, Coded]:
    """Statistics of the updates of each metric by the tasks of all stages, and lists of these stages."""
    summaries, list_of = Summaries.make_empty(len(metrics.id)), np.zeros(len(metrics.id), np.int64)
    stages = [facts for sql in executions for facts in sql.stages]
    lists: list[list[int]] = [[], *([facts.tasks.key[0]] for facts in stages)]
    if not stages:
        return summaries, Coded(list_of, lists)
    rows = join_slices([facts.accumulators for facts in stages])
    counts = [facts.accumulators.count for facts in stages]
    stage_of, place_of = np.repeat(np.arange(len(stages)), counts), list_ranges([0] * len(counts), counts)
    of_plans = np.flatnonzero(~rows.numbers["is_internal"])
    owners = np.array([number for number, sql in enumerate(executions) for _ in sql.stages], np.int64)
    order, first, end = _find_pairs(owners[stage_of[of_plans]], rows.numbers["id"][of_plans], metrics.owner, metrics.id)
    order = of_plans[order]
    found = np.flatnonzero(end > first)
    summaries.put(found, Summaries.of(rows.numbers).take(order[first[found]]))
    list_of[found] = 1 + stage_of[order[first[found]]]
    several = np.flatnonzero(end > first + 1)
    if len(several):
        found_in = [order[first[place] : end[place]].tolist() for place in several.tolist()]
        samples = [[(stages[stage_of[row]], int(place_of[row])) for row in found_rows] for found_rows in found_in]
        summaries.put(several, _summarize_over_stages(samples))
        list_of[several] = np.arange(len(lists), len(lists) + len(several))
        lists += [sorted({facts.tasks.key[0] for facts, _ in of_metric}) for of_metric in samples]
    return summaries, Coded(list_of, lists)


def _summarize_over_stages(metrics: Sequence[Sequence[tuple[StageFacts, int]]]) -> Summaries:
    """Statistics of metrics, each with the places of its parts in several stages: quantiles cannot be combined."""
    samples = [[facts.sample(place) for facts, place in parts] for parts in metrics]
    values = np.concatenate(list(chain.from_iterable(samples))).astype(np.int64, copy=False)
    return summarize_samples(values, np.array([sum(map(len, parts)) for parts in samples]))


def _find_pairs(owner: Ints, ids: Ints, wanted_owner: Ints, wanted_ids: Ints) -> tuple[Ints, Ints, Ints]:
    """An order of pairs of execution and accumulator, and where in it those of each wanted pair begin and end."""
    given, wanted = _number_pairs([owner, wanted_owner], [ids, wanted_ids])
    order = np.argsort(given, kind="stable")
    given = given[order]
    return order, np.searchsorted(given, wanted), np.searchsorted(given, wanted, side="right")


def _number_pairs(owners: list[Ints], ids: list[Ints]) -> list[Ints]:
    """Numbers of pairs, below their number, equal where the pairs are."""
    distinct, codes = np.unique(np.concatenate(ids), return_inverse=True)
    codes = np.unique(codes + np.concatenate(owners) * len(distinct), return_inverse=True)[1]
    return np.split(codes, np.cumsum([len(part) for part in ids])[:-1])
