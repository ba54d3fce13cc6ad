"""Estimated time on the accelerator: by stage, query and application, by the arithmetic of v24.08."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools.format_support import SupportTables
from workbench.speedup.compat_rapids_tools.jvm_semantics import (
    immutable_order,
    mutable_order,
    round_average,
    round_percent,
)
from workbench.speedup.compat_rapids_tools.log_records import Query
from workbench.speedup.compat_rapids_tools.plan_operators import OperatorBuilder, OperatorEstimate
from workbench.speedup.compat_rapids_tools.seed_log import SeedLog

BYTES_PER_S = 1_000_000_000
NOT_APPLICABLE = "Not Applicable"
STRONGLY, RECOMMENDED, NOT_RECOMMENDED = "Strongly Recommended", "Recommended", "Not Recommended"


@dataclass(frozen=True)
class StageEstimate:
    """A stage of a query: its factor, task time, unsupported part of it, and changes between engines."""

    stage_id: int
    factor: float
    task_time_ms: int
    unsupported_ms: int
    transitions: int
    estimated: bool
    wall_time_ms: int


@dataclass(frozen=True)
class QueryPlan:
    query: Query
    execs: list[OperatorEstimate]


def estimate_stages(log: SeedLog, plan: QueryPlan, transitions: dict[int, int]) -> list[StageEstimate]:
    """Estimate the stages of a query from its operators; operators without a stage go to the query's other stages.

    `transitions`: Changes between engines by stage, which the original keeps between passes and never clears.
    """
    by_stage, without = _group_by_stage(plan.execs)
    for stage_id, execs in by_stage.items():
        # Count how often data changes between CPU and accelerator: supported beside unsupported operators.
        flat: list[OperatorEstimate] = []
        for item in execs:
            flat += (item.children or [])[::-1] if item.name.startswith("WholeStage") else [item]
        if len(flat) > 2:
            flat = [flat[0], *(item for item in flat[1:-1] if item.name != "Exchange"), flat[-1]]
        transitions[stage_id] = sum(operator.supported != next_one.supported for operator, next_one in pairwise(flat))
    sql_jobs = mutable_order(job_id for job_id, job in log.jobs.items() if job.sql_id is not None)
    query_jobs = mutable_order(job_id for job_id in sql_jobs if log.jobs[job_id].sql_id == plan.query.sql_id)
    of_jobs = [stage_id for job_id in query_jobs for stage_id in log.jobs[job_id].stage_ids]
    if not by_stage:
        return _summarize_stages(log, plan.execs, of_jobs, transitions, estimated=True) if of_jobs else []
    estimates = [
        stage
        for stage_id in immutable_order(by_stage)
        for stage in _summarize_stages(log, by_stage[stage_id], [stage_id], transitions, estimated=False)
    ]
    others = [stage_id for stage_id in immutable_order(of_jobs) if stage_id not in by_stage]
    if others and without:
        estimates += _summarize_stages(log, without, others, transitions, estimated=True)
    return estimates


def _group_by_stage(execs: list[OperatorEstimate]) -> tuple[dict[int, list[OperatorEstimate]], list[OperatorEstimate]]:
    """Group operators by stage, and return those without any; one without a stage takes the first of a neighbour's."""
    ordered = execs[::-1]
    groups: dict[int, list[OperatorEstimate]] = {}
    without: list[OperatorEstimate] = []
    for at, item in enumerate(ordered):
        before = ordered[at - 1].stages if at else []
        after = ordered[at + 1].stages if at + 1 < len(ordered) else []
        stages = item.stages or before[:1] or after[:1]
        for stage_id in stages:
            groups.setdefault(stage_id, []).append(item)
        if not stages:
            without.append(item)
    return groups, without


def flatten_spans(execs: list[OperatorEstimate]) -> list[OperatorEstimate]:
    """Operators without the codegen spans around them."""
    operators: list[OperatorEstimate] = []
    for item in execs:
        operators += item.children or []
        if not item.is_span:
            operators.append(item)
    return operators


def _summarize_stages(
    log: SeedLog, execs: list[OperatorEstimate], stage_ids: list[int], transitions: dict[int, int], *, estimated: bool
) -> list[StageEstimate]:
    """Estimate stages that share the same operators: factor, time not accelerated, and transitions, in ms.

    `estimated`: The operators were assigned to these stages without evidence.
    """
    flat = flatten_spans(execs)
    if not flat:
        raise InputError(
            "a stage has no operator with a time: the original fails on this log, too",
            where=log.where,
            found=f"stage {stage_ids[0]}",
        )
    factor = round_average([item.factor for item in execs])
    if any(item.udf for item in flat):
        factor /= 2
    times = {stage_id: log.stage_sums[stage_id] for stage_id in stage_ids if stage_id in log.stage_sums}
    total = sum(times[stage_id].duration_ms for stage_id in stage_ids if stage_id in times)
    unsupported = total // len(flat) * sum(not item.supported for item in flat) // len(stage_ids)
    estimates: dict[int, StageEstimate] = {}
    for stage_id in stage_ids:
        sums = times.get(stage_id)
        count = transitions.get(stage_id, 0)
        read_bytes = sums.read_bytes if sums else 0
        penalty = count and int(read_bytes / BYTES_PER_S * count * 1000) if read_bytes > 0 else 0
        estimates[stage_id] = StageEstimate(
            stage_id,
            factor,
            sums.duration_ms if sums else 0,
            int(unsupported * 0.5 + unsupported) if penalty else unsupported,
            count,
            estimated,
            log.sum_stage_duration_ms(stage_id),
        )
    return list(estimates.values())


@dataclass(frozen=True)
class SpeedupEstimate:
    """Estimate for an application or a query: durations in ms; `speedup_ratio` is now over then."""

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
    estimate: SpeedupEstimate


@dataclass(frozen=True)
class ApplicationEstimate:
    """Everything that the files of the qualification tool say about one application."""

    log: SeedLog
    estimate: SpeedupEstimate
    queries: list[QueryEstimate]
    stages: list[StageEstimate]
    stages_before_removal: list[StageEstimate]
    plans: list[QueryPlan]
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


def estimate_application(log: SeedLog, factors: Mapping[str, float]) -> ApplicationEstimate:
    """How much faster would this application be, by the seed method?

    `log`: From `workbench.speedup.compat_rapids_tools.seed_log.read_seed_logs`.
    `factors`: Operator to factor; what has none counts as 1.0, as in the original.

    Returns: The application's estimate, those of its queries, its stages' factors and its operators.

    Does not show how sure the estimate is, and cannot say that something gets slower. Source: QualificationAppInfo of
    spark-rapids-tools v24.08.0.
    """
    if log.accelerated:
        raise InputError(
            "an accelerated run on the CPU side", where=log.where, do="give the log of a run without accelerator"
        )
    planner = OperatorBuilder(log, SupportTables(factors))
    plans = [
        QueryPlan(log.queries[sql_id], planner.build_operators(log.queries[sql_id])) for sql_id in sorted(log.queries)
    ]
    reduced_plans = [
        QueryPlan(plan.query, [item.drop_removed_operators() for item in plan.execs if not item.removed])
        for plan in plans
    ]
    transitions: dict[int, int] = {}
    before = [stage for plan in plans if plan.execs for stage in estimate_stages(log, plan, transitions)]
    after = {plan.query.sql_id: estimate_stages(log, plan, transitions) for plan in reduced_plans if plan.execs}
    listed = [stage for stages in after.values() for stage in stages]
    # A stage that several queries share counts once, as the last of them has it.
    last = {stage.stage_id: stage for stage in listed}
    unique = [last[stage_id] for stage_id in immutable_order(stage.stage_id for stage in listed)]
    duration = log.duration_ms or 0
    all_task_ms = sum(sums.duration_ms for sums in log.stage_sums.values())
    sql_ms = sum(stage.task_time_ms for stage in unique)
    unsupported_ms = sum(stage.unsupported_ms for stage in unique)
    overhead = _sum_idle_ms(log, log.start_ms + duration)
    factor = _average_factor(unique)
    sql_share = sql_ms / all_task_ms if all_task_ms else 1
    supported_share = (sql_ms - unsupported_ms) / all_task_ms if all_task_ms else 1
    sums = [log.sql_sums[sql_id] for sql_id in after if sql_id in log.sql_sums]
    operators = [operator for plan in plans for item in plan.execs for operator in (*(item.children or []), item)]
    warnings = list(log.warnings)
    if unknown := dict.fromkeys(operator.name for operator in operators if not operator.known):
        warnings.append(f"operators that the support tables do not know count as unsupported: {', '.join(unknown)}")
    return ApplicationEstimate(
        log,
        _compute_estimate(duration, duration - overhead, sql_share, supported_share, factor, bool(log.failures)),
        [_estimate_query(log, plan.query, after.get(plan.query.sql_id, [])) for plan in reduced_plans],
        listed,
        before,
        plans,
        factor,
        sql_ms,
        unsupported_ms,
        sql_ms - unsupported_ms,
        all_task_ms - sql_ms + overhead,
        round_percent(sum(sql_sum.cpu_ms for sql_sum in sums), sum(sql_sum.run_ms for sql_sum in sums)),
        max(_list_query_durations(log), default=0),
        _list_unsupported_execs(reduced_plans),
        immutable_order(
            expression.name
            for plan in plans
            for item in plan.execs
            for expression in item.unsupported
            if expression.name
        ),
        tuple(warnings),
    )


def _list_unsupported_execs(plans: list[QueryPlan]) -> list[str]:
    names: list[str] = []
    for plan in plans:
        names += [item.name for item in plan.execs if not item.supported and not item.name.startswith("WholeStage")]
        names += [child.name for item in plan.execs for child in item.children or [] if not child.supported]
    return immutable_order(names)


def _estimate_query(log: SeedLog, query: Query, stages: list[StageEstimate]) -> QueryEstimate:
    duration = query.duration_ms or 0
    sql_ms = sum(stage.task_time_ms for stage in stages)
    supported = sum(stage.task_time_ms - stage.unsupported_ms for stage in stages)
    failed = query.sql_id in log.failures
    ratio = supported / sql_ms if sql_ms > 0 else 1
    return QueryEstimate(query, _compute_estimate(duration, duration, 1, ratio, _average_factor(stages), failed))


def _average_factor(stages: Sequence[StageEstimate]) -> float:
    return round_average([stage.factor for stage in stages if stage.task_time_ms > 0])


def _compute_estimate(
    duration: int, worked: int, sql_share: float, supported_share: float, factor: float, failed: bool
) -> SpeedupEstimate:
    opportunity = worked * supported_share
    estimated = opportunity / factor + (duration - opportunity)
    ratio = duration / estimated if duration and estimated else 0.0
    advice = STRONGLY if ratio >= 2.5 else RECOMMENDED if ratio >= 1.3 else NOT_RECOMMENDED
    return SpeedupEstimate(
        duration,
        int(worked * sql_share),
        int(opportunity),
        estimated,
        ratio,
        duration - estimated,
        NOT_APPLICABLE if failed else advice,
    )


def _sum_idle_ms(log: SeedLog, end_ms: int) -> int:
    """Time that no job covers, from the application's start to its end."""
    pivot, idle = log.start_ms, 0
    for job_id in sorted(mutable_order(log.jobs), key=lambda job_id: log.jobs[job_id].start_ms):
        job = log.jobs[job_id]
        idle += max(0, job.start_ms - pivot)
        pivot = max(pivot, job.start_ms if job.end_ms is None else job.end_ms)
    return idle + end_ms - pivot if end_ms > 0 and pivot < end_ms else idle


def _list_query_durations(log: SeedLog) -> list[int]:
    """Durations of all queries in ms; 0 for a query that ran within the one that started it."""
    durations = []
    for query in log.queries.values():
        duration = query.duration_ms or 0
        if query.root_id is not None and query.root_id != query.sql_id:
            root = log.queries.get(query.root_id)
            if root is None:
                continue
            if query.start_ms >= root.start_ms and (query.end_ms or 0) <= (root.end_ms or 0):
                duration = 0
        durations.append(duration)
    return durations
