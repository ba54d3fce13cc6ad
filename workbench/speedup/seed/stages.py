"""Stages of a query with the factor that the original gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from workbench.errors import InputError
from workbench.speedup.seed.execs import Exec
from workbench.speedup.seed.held import Query
from workbench.speedup.seed.log import SeedLog
from workbench.speedup.seed.numbers import average
from workbench.speedup.seed.scala_order import immutable, mutable

BYTES_PER_S = 1_000_000_000


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
class Plan:
    query: Query
    execs: list[Exec]


@dataclass
class State:
    """What the original keeps from one pass to the next: changes between engines by stage, never cleared."""

    transitions: dict[int, int] = field(default_factory=dict)


def stages_of(log: SeedLog, plan: Plan, state: State) -> list[StageEstimate]:
    by_stage, without = _by_stage(plan.execs)
    for stage_id, execs in by_stage.items():
        state.transitions[stage_id] = _transitions(execs)
    of_jobs = [stage_id for job in _jobs(log, plan.query) for stage_id in job]
    if not by_stage:
        return _summary(log, plan.execs, of_jobs, state, estimated=True) if of_jobs else []
    found = [
        stage
        for stage_id in immutable(by_stage)
        for stage in _summary(log, by_stage[stage_id], [stage_id], state, estimated=False)
    ]
    others = [stage_id for stage_id in immutable(of_jobs) if stage_id not in by_stage]
    if others and without:
        found += _summary(log, without, others, state, estimated=True)
    return found


def _jobs(log: SeedLog, query: Query) -> list[list[int]]:
    sql_jobs = mutable(job_id for job_id, job in log.jobs.items() if job.sql_id is not None)
    own = mutable(job_id for job_id in sql_jobs if log.jobs[job_id].sql_id == query.sql_id)
    return [log.jobs[job_id].stage_ids for job_id in own]


def _by_stage(execs: list[Exec]) -> tuple[dict[int, list[Exec]], list[Exec]]:
    """Operators by stage, in the order of the data; one without a stage takes the first of a neighbour's."""
    ordered = execs[::-1]
    found: dict[int, list[Exec]] = {}
    without: list[Exec] = []
    for at, item in enumerate(ordered):
        before = ordered[at - 1].stages if at else []
        after = ordered[at + 1].stages if at + 1 < len(ordered) else []
        stages = item.stages or before[:1] or after[:1]
        for stage_id in stages:
            found.setdefault(stage_id, []).append(item)
        if not stages:
            without.append(item)
    return found, without


def _transitions(execs: list[Exec]) -> int:
    """How often data changes between engines: supported beside unsupported, inner exchanges left out."""
    flat: list[Exec] = []
    for item in execs:
        flat += (item.children or [])[::-1] if item.name.startswith("WholeStage") else [item]
    if len(flat) > 2:
        flat = [flat[0], *(item for item in flat[1:-1] if item.name != "Exchange"), flat[-1]]
    return sum(one.supported != next_one.supported for one, next_one in pairwise(flat))


def flattened(execs: list[Exec]) -> list[Exec]:
    """Operators without the codegen spans around them."""
    found: list[Exec] = []
    for item in execs:
        found += item.children or []
        if not item.is_span:
            found.append(item)
    return found


def _summary(
    log: SeedLog, execs: list[Exec], stage_ids: list[int], state: State, *, estimated: bool
) -> list[StageEstimate]:
    flat = flattened(execs)
    if not flat:
        raise InputError(
            "a stage has no operator whose time could be told: the original fails on this log, too",
            where=log.where,
            found=f"stage {stage_ids[0]}",
        )
    factor = average([item.factor for item in execs])
    if any(item.udf for item in flat):
        factor /= 2
    times = {stage_id: log.stage_sums[stage_id] for stage_id in stage_ids if stage_id in log.stage_sums}
    total = sum(times[stage_id].duration_ms for stage_id in stage_ids if stage_id in times)
    unsupported = total // len(flat) * sum(not item.supported for item in flat) // len(stage_ids)
    found: dict[int, StageEstimate] = {}
    for stage_id in stage_ids:
        sums = times.get(stage_id)
        count = state.transitions.get(stage_id, 0)
        read_bytes = sums.read_bytes if sums else 0
        penalty = count and int(read_bytes / BYTES_PER_S * count * 1000) if read_bytes > 0 else 0
        found[stage_id] = StageEstimate(
            stage_id,
            factor,
            sums.duration_ms if sums else 0,
            int(unsupported * 0.5 + unsupported) if penalty else unsupported,
            count,
            estimated,
            log.stage_duration_ms(stage_id),
        )
    return list(found.values())
