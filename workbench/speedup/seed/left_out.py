"""The seed method on queries that its factors have not seen: the same arithmetic, fed with all the other queries.

The original validates on the pair that its factors come from, application by application. To stand beside methods that
are tested query by query, its generator gets the warm executions of the other queries as if they were the application
(its duration is theirs, added up), and its estimate of each warm execution of the query that was left out is taken.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.speedup.seed.applications import SeedApplication
from workbench.speedup.seed.estimate import estimate
from workbench.speedup.seed.held import Query
from workbench.speedup.seed.log import SeedLog, read
from workbench.speedup.seed.operators import PAIRS, generate
from workbench.speedup.seed.profile_tables import application

# Comet's names for what the original's table pairs; it has no counterpart for the others.
COMET_PAIRS = (
    *(
        ("Scan parquet ", f"CometScan [{kind}] parquet ", ("BatchScanExec", "FileSourceScanExec"))
        for kind in ("native_iceberg_compat", "native_datafusion", "native_comet")
    ),
    ("Expand", "CometExpand", ("ExpandExec",)),
    ("Filter", "CometFilter", ("FilterExec",)),
    ("SortMergeJoin", "CometSortMergeJoin", ("SortMergeJoinExec",)),
    ("BroadcastHashJoin", "CometBroadcastHashJoin", ("BroadcastHashJoinExec",)),
    ("Exchange", "CometExchange", ("ShuffleExchangeExec",)),
    ("HashAggregate", "CometHashAggregate", ("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec")),
    ("TakeOrderedAndProject", "CometTakeOrderedAndProject", ("TakeOrderedAndProjectExec",)),
)


def left_out_ratios(
    baseline_logs: Iterable[str], candidate_logs: Iterable[str], queries: Sequence[str]
) -> dict[str, float]:
    """Estimated speedup of each query, by the seed method with factors from all the others.

    Parameters
    ----------
    baseline_logs, candidate_logs
        Event logs of a plain Spark and of an accelerated one.
    queries
        Descriptions; of each, executions but the first in a log are taken.

    Returns
    -------
    dict
        Geometric mean over executions of duration over estimated duration, by query; queries that the method gives no
        estimate for are missing.

    Raises
    ------
    InputError
        A log cannot be used, or is on the wrong side.
    """
    plain = [log for path in baseline_logs for log in read(path)]
    fast = [log for path in candidate_logs for log in read(path)]
    pairs = (*PAIRS, *COMET_PAIRS)
    sides = [[_by_query(log, queries) for log in side] for side in (plain, fast)]
    found = {}
    for query in queries:
        cpu, gpu = (
            [
                _sum(log, [one for name in queries if name != query for one in parts.get(name, [])])
                for log, parts in side
            ]
            for side in (zip(plain, sides[0], strict=True), zip(fast, sides[1], strict=True))
        )
        factors = generate(cpu, gpu, pairs=pairs).factors()
        ratios = [ratio for log in plain for ratio in _estimates(log, query, factors)]
        if ratios:
            found[query] = float(np.exp(np.mean(np.log(ratios))))
    return found


def _warm(log: SeedLog, query: str) -> list[Query]:
    return [one for one in log.queries.values() if one.description == query and one.duration_ms][1:]


def _only(log: SeedLog, chosen: Sequence[Query]) -> SeedLog:
    """The log as if these were its only queries."""
    ids = {one.sql_id for one in chosen}
    part = copy.copy(log)
    part.queries = {one.sql_id: one for one in chosen}
    part.jobs = {job_id: job for job_id, job in log.jobs.items() if job.sql_id in ids}
    return part


def _by_query(log: SeedLog, queries: Sequence[str]) -> dict[str, list[SeedApplication]]:
    return {
        query: [replace(application(_only(log, [one])), duration_ms=one.duration_ms or 0) for one in _warm(log, query)]
        for query in queries
    }


def _sum(log: SeedLog, parts: Sequence[SeedApplication]) -> SeedApplication:
    return SeedApplication(
        where=log.where,
        # The original keeps one application of a name.
        name=f"{log.app_name} {log.where}",
        duration_ms=sum(part.duration_ms for part in parts),
        accelerated=log.accelerated,
        spans=tuple(row for part in parts for row in part.spans),
        span_times=tuple(row for part in parts for row in part.span_times),
        stages=tuple(row for part in parts for row in part.stages),
    )


def _estimates(log: SeedLog, query: str, factors: Mapping[str, float]) -> list[float]:
    part = _only(log, _warm(log, query))
    return [one.estimate.speedup_ratio for one in estimate(part, factors).queries if one.estimate.speedup_ratio > 0]
