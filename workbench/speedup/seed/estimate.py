"""How long an application would take on the accelerator, by the arithmetic of v24.08.

Stages get the plain mean of their operators' factors, the application the plain mean of its stages' factors, whatever
they took; unsupported time is an equal share per operator. All of that is as the original has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.errors import InputError
from workbench.speedup.seed.execs import Planner
from workbench.speedup.seed.held import Query
from workbench.speedup.seed.log import SeedLog
from workbench.speedup.seed.numbers import average, percent
from workbench.speedup.seed.scala_order import immutable, mutable
from workbench.speedup.seed.stages import Plan, StageEstimate, State, stages_of
from workbench.speedup.seed.support import Support

STRONGLY, RECOMMENDED, NOT_RECOMMENDED = "Strongly Recommended", "Recommended", "Not Recommended"
NOT_APPLICABLE = "Not Applicable"


@dataclass(frozen=True)
class Estimate:
    """What an application or a query would take: durations in ms, `speedup_ratio` is now over then."""

    duration_ms: int
    sql_ms: int
    opportunity_ms: int
    estimated_ms: float
    speedup_ratio: float
    saved_ms: float
    recommendation: str


@dataclass(frozen=True)
class QueryEstimate:
    query: Query
    estimate: Estimate


@dataclass(frozen=True)
class ApplicationEstimate:
    """All that the files of the qualification tool say of one application."""

    log: SeedLog
    estimate: Estimate
    queries: list[QueryEstimate]
    stages: list[StageEstimate]
    stages_before_removal: list[StageEstimate]
    plans: list[Plan]
    factor: float
    sql_task_ms: int
    unsupported_ms: int
    supported_ms: int
    other_ms: int
    cpu_percent: float
    longest_query_ms: int
    unsupported_execs: list[str]
    unsupported_expressions: list[str]
    warnings: tuple[str, ...] = ()


def estimate(log: SeedLog, factors: Mapping[str, float]) -> ApplicationEstimate:
    """How much faster would this application be, by the seed method?

    Parameters
    ----------
    log
        From `workbench.speedup.seed.log.read`.
    factors
        Operator to factor; what has none counts as 1.0, as in the original.

    Returns
    -------
    ApplicationEstimate
        The application's estimate, those of its queries, its stages' factors and its operators.

    Raises
    ------
    InputError
        It is the log of an accelerated run, or a stage has no operator whose time could be told.

    Notes
    -----
    Does not show how sure the estimate is, and cannot say that something gets slower. Source: QualificationAppInfo of
    spark-rapids-tools v24.08.0.
    """
    if log.accelerated:
        raise InputError(
            "an accelerated run on the CPU side", where=log.where, do="give the log of a run without accelerator"
        )
    planner = Planner(log, Support(factors))
    plans = [Plan(log.queries[sql_id], planner.plan(log.queries[sql_id])) for sql_id in sorted(log.queries)]
    kept = [Plan(plan.query, [item.without_removed() for item in plan.execs if not item.removed]) for plan in plans]
    state = State()
    before = {plan.query.sql_id: stages_of(log, plan, state) for plan in plans if plan.execs}
    after = {plan.query.sql_id: stages_of(log, plan, state) for plan in kept if plan.execs}
    return _application(log, plans, kept, before, after)


def _application(
    log: SeedLog,
    plans: list[Plan],
    kept: list[Plan],
    before: dict[int, list[StageEstimate]],
    after: dict[int, list[StageEstimate]],
) -> ApplicationEstimate:
    listed = [stage for stages in after.values() for stage in stages]
    # A stage that several queries share counts once, as the last of them has it.
    last = {stage.stage_id: stage for stage in listed}
    unique = [last[stage_id] for stage_id in immutable(stage.stage_id for stage in listed)]
    duration = log.duration_ms or 0
    all_task_ms = sum(sums.duration_ms for sums in log.stage_sums.values())
    sql_ms, unsupported_ms = (sum(values) for values in zip(*_times(unique), strict=True)) if unique else (0, 0)
    overhead = _idle_ms(log, log.start_ms + duration)
    factor = _factor(unique)
    whole = _estimate(
        duration,
        duration - overhead,
        sql_ms / all_task_ms if all_task_ms else 1,
        (sql_ms - unsupported_ms) / all_task_ms if all_task_ms else 1,
        factor,
        bool(log.failures),
    )
    sums = [log.sql_sums[sql_id] for sql_id in after if sql_id in log.sql_sums]
    return ApplicationEstimate(
        log,
        whole,
        [_query(log, plan.query, after.get(plan.query.sql_id, [])) for plan in kept],
        listed,
        [stage for stages in before.values() for stage in stages],
        plans,
        factor,
        sql_ms,
        unsupported_ms,
        sql_ms - unsupported_ms,
        all_task_ms - sql_ms + overhead,
        percent(sum(one.cpu_ms for one in sums), sum(one.run_ms for one in sums)),
        max(_query_durations(log), default=0),
        _unsupported_execs(kept),
        immutable(found.name for plan in plans for item in plan.execs for found in item.unsupported if found.name),
        tuple(log.warnings + _unknown(plans)),
    )


def _times(stages: Sequence[StageEstimate]) -> list[tuple[int, int]]:
    return [(stage.task_time_ms, stage.unsupported_ms) for stage in stages]


def _unknown(plans: list[Plan]) -> list[str]:
    names = dict.fromkeys(
        one.name for plan in plans for item in plan.execs for one in (*(item.children or []), item) if not one.known
    )
    if not names:
        return []
    return [f"operators that the support tables do not know count as unsupported: {', '.join(names)}"]


def _unsupported_execs(plans: list[Plan]) -> list[str]:
    names: list[str] = []
    for plan in plans:
        names += [item.name for item in plan.execs if not item.supported and not item.name.startswith("WholeStage")]
        names += [child.name for item in plan.execs for child in item.children or [] if not child.supported]
    return immutable(names)


def _query(log: SeedLog, query: Query, stages: list[StageEstimate]) -> QueryEstimate:
    duration = query.duration_ms or 0
    sql_ms = sum(stage.task_time_ms for stage in stages)
    supported = sum(stage.task_time_ms - stage.unsupported_ms for stage in stages)
    failed = query.sql_id in log.failures
    ratio = supported / sql_ms if sql_ms > 0 else 1
    return QueryEstimate(query, _estimate(duration, duration, 1, ratio, _factor(stages), failed))


def _factor(stages: Sequence[StageEstimate]) -> float:
    return average([stage.factor for stage in stages if stage.task_time_ms > 0])


def _estimate(
    duration: int, worked: int, sql_share: float, supported_share: float, factor: float, failed: bool
) -> Estimate:
    opportunity = worked * supported_share
    estimated = opportunity / factor + (duration - opportunity)
    ratio = duration / estimated if duration and estimated else 0.0
    return Estimate(
        duration,
        int(worked * sql_share),
        int(opportunity),
        estimated,
        ratio,
        duration - estimated,
        _recommendation(ratio, failed),
    )


def _recommendation(ratio: float, failed: bool) -> str:
    if failed:
        return NOT_APPLICABLE
    return STRONGLY if ratio >= 2.5 else RECOMMENDED if ratio >= 1.3 else NOT_RECOMMENDED


def _idle_ms(log: SeedLog, end_ms: int) -> int:
    """Time that no job covers, from the application's start to its end."""
    pivot, idle = log.start_ms, 0
    for job_id in sorted(mutable(log.jobs), key=lambda job_id: log.jobs[job_id].start_ms):
        job = log.jobs[job_id]
        idle += max(0, job.start_ms - pivot)
        pivot = max(pivot, job.start_ms if job.end_ms is None else job.end_ms)
    return idle + end_ms - pivot if end_ms > 0 and pivot < end_ms else idle


def _query_durations(log: SeedLog) -> list[int]:
    """Durations; 0 for a query that ran within the one that started it."""
    found = []
    for query in log.queries.values():
        duration = query.duration_ms or 0
        if query.root_id is not None and query.root_id != query.sql_id:
            root = log.queries.get(query.root_id)
            if root is None:
                continue
            if query.start_ms >= root.start_ms and (query.end_ms or 0) <= (root.end_ms or 0):
                duration = 0
        found.append(duration)
    return found
