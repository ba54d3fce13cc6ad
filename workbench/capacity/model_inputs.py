"""Model of a plan built from runs and settings, and the source of every input."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.capacity.config import PlanConfig
from workbench.capacity.inputs import (
    InputRun,
    Jobs,
    ScalingLaw,
    Scheduler,
    Service,
    Stack,
    load_jobs,
    load_scheduler,
    load_service,
    load_stack,
)
from workbench.capacity.model import JobLoad, Model, ServiceLoad
from workbench.capacity.quantity import Quantity, build_spread
from workbench.capacity.tables import SOURCES
from workbench.core.formats import format_number

JOBS_FACTOR, USERS_FACTOR = "jobs of the day", "users of the day"


@dataclass(frozen=True)
class PlanInputs:
    """Results of the input runs; null for a run that was left out."""

    jobs: Jobs | None
    service: Service | None
    stack: Stack | None
    scheduler: Scheduler | None

    @property
    def opened(self) -> list[InputRun]:
        """The input runs."""
        return [source.opened for source in (self.jobs, self.service, self.stack, self.scheduler) if source is not None]


def load_inputs(config: PlanConfig) -> PlanInputs:
    """Open the runs that the settings name."""
    accept = config.accept_invalid
    return PlanInputs(
        load_jobs(config.speedup, accept_invalid=accept) if config.speedup else None,
        load_service(config.sizing, accept_invalid=accept) if config.sizing else None,
        load_stack(config.indicators, accept_invalid=accept) if config.indicators else None,
        load_scheduler(config.scaletest, config.scaletest_side, accept_invalid=accept) if config.scaletest else None,
    )


def build_model(config: PlanConfig, inputs: PlanInputs) -> Model:
    """The model of a plan."""
    return Model(
        _build_works(config, inputs.jobs) if inputs.jobs is not None else (),
        _build_serving(config, inputs.service) if inputs.service is not None else None,
        inputs.stack.ratio if inputs.stack is not None else None,
        build_spread(JOBS_FACTOR, config.jobs_spread),
        build_spread(USERS_FACTOR, config.users_spread),
        utilisation=config.utilisation,
        node_gpus=config.gpus_per_node,
        spanning=config.spanning,
        node_price_per_h=config.node_price_per_h,
        jobs_within_s=config.jobs_arrive_within_s,
        replicas_within_s=config.replicas_start_within_s,
    )


def _build_works(config: PlanConfig, jobs: Jobs) -> tuple[JobLoad, ...]:
    classes = config.job_classes
    return tuple(
        JobLoad(
            job_class.name,
            np.array(job_class.per_hour, dtype=np.float64),
            duration,
            job_class.gpus,
            job_class.pods,
            job_class.stack_share,
        )
        for job_class, duration in zip(classes, jobs.build_durations(classes), strict=True)
    )


def _build_serving(config: PlanConfig, service: Service) -> ServiceLoad:
    gpus = config.gpus_per_replica or service.test_gpus
    load = np.array(config.users_by_hour, dtype=np.float64)
    law = service.law
    share = gpus / service.test_gpus if law is None else law.scale_factor(gpus) / law.scale_factor(service.test_gpus)
    return ServiceLoad(
        load,
        service.carried.scale_by(share),
        gpus,
        config.least_replicas,
        config.pods_per_replica,
        config.service_stack_share,
        None if law is None else _cumulate_replica_capacity(law, gpus),
    )


def _cumulate_replica_capacity(law: ScalingLaw, gpus: int) -> tuple[float, ...]:
    """Capacity of 1, 2, … replicas relative to one, up to the largest count of the law.

    It never decreases: replicas that would reduce it could stay idle.
    """
    alone = law.scale_factor(gpus)
    together = [law.scale_factor(count) / alone for count in range(gpus, law.most + 1, gpus)]
    return tuple(itertools.accumulate(together, max))


def build_sources(model: Model, config: PlanConfig, inputs: PlanInputs) -> pl.DataFrame:
    """Table SOURCES."""
    rows: list[dict[str, Any]] = []
    if inputs.jobs is not None:
        rows += _build_duration_rows(model, config, inputs.jobs)
    if inputs.service is not None and model.serving is not None:
        rows.append(
            _build_source_row(
                model.serving.per_replica, inputs.service.opened, _format_service_note(model.serving, inputs.service)
            )
        )
    if inputs.stack is not None:
        rows.append(_build_source_row(inputs.stack.ratio, inputs.stack.opened, format_stack_use(model, inputs.stack)))
    if inputs.scheduler is not None:
        rows.append(_build_rate_row(inputs.scheduler))
    names = {quantity.name for quantity in model.quantities}
    factors = [
        factor for factor in (model.jobs_factor, model.users_factor) if factor.name in names and not factor.is_point
    ]
    rows += [
        _build_source_row(factor, None, "setting: 9 of 10 days are within this factor of the profile")
        for factor in factors
    ]
    return SOURCES.frame(rows)


def _build_duration_rows(model: Model, config: PlanConfig, jobs: Jobs) -> list[dict[str, Any]]:
    """One row for each duration, with all classes that have it."""
    rows: dict[str, dict[str, Any]] = {}
    for job_class, work in zip(config.job_classes, model.works, strict=True):
        size = f"{format_count(work.gpus, 'GPU')} and {format_count(work.pods, 'pod')} per job of {work.name}"
        if work.duration.name in rows:
            rows[work.duration.name]["note"] += f"; {size}"
            continue
        count = jobs.select_class(job_class).height
        note = f"the mean of {format_count(count, 'application')} that match {job_class.applications}; {size}"
        rows[work.duration.name] = _build_source_row(work.duration, jobs.opened, note)
    return list(rows.values())


def _build_source_row(quantity: Quantity, opened: InputRun | None, note: str) -> dict[str, Any]:
    level = None if quantity.is_point else quantity.level
    ends = {
        "low": None if quantity.is_point else quantity.low,
        "high": None if quantity.is_point else quantity.high,
        "level": level,
    }
    origin = _describe_origin(opened)
    note = f"{note}; fixed: it has no interval" if quantity.is_point else note
    note = (
        f"{note}; its {quantity.mirrored} end is not known and assumed as far from the value as the other"
        if quantity.mirrored
        else note
    )
    return {"input": quantity.name, "value": quantity.value, **ends, "unit": quantity.unit, **origin, "note": note}


def _describe_origin(opened: InputRun | None) -> dict[str, str]:
    if opened is None:
        return {"area": "parameter", "run": "–", "verdict": "–"}
    return {"area": opened.run.area, "run": opened.run.run_id, "verdict": opened.verdict}


def format_count(count: float, unit: str) -> str:
    """A count with its unit in singular or plural.

    >>> format_count(1, "GPU"), format_count(1200, "pod")
    ('1 GPU', '1,200 pods')
    """
    return f"{format_number(int(count))} {unit}{'' if count == 1 else 's'}"


def _format_service_note(serving: ServiceLoad, service: Service) -> str:
    note = f"{format_count(serving.gpus, 'GPU')} per replica, within {service.target}"
    if serving.gpus != service.test_gpus:
        how = "linear scaling assumed" if service.law is None else f"scaled by {service.law.name}"
        note += f"; measured on {format_count(service.test_gpus, 'GPU')}, {how}"
    if service.at_least:
        note += "; a lower bound: the target was met at every measured load, so the GPUs are at most these"
    return f"{note}; the service was simulated" if service.simulated else note


def format_stack_use(model: Model, stack: Stack) -> str:
    """The times that the stack's ratio applies to, as text."""
    parts = [f"{work.stack_share:.0%} of the time of {work.name}" for work in model.works if work.stack_share]
    if model.serving is not None and model.serving.stack_share:
        parts.append(f"{model.serving.stack_share:.0%} of a request's time")
    effect = f"applies to {' and '.join(parts)}" if parts else "applies to nothing: no share is set"
    measured = f"{stack.name} over {stack.baseline}, measured on {', '.join(stack.metrics)}"
    caveats = ("predicted from other stacks", stack.predicted), ("not told from the baseline", stack.is_undecided)
    return "; ".join([measured, effect, *(text for text, holds in caveats if holds)])


def _build_rate_row(scheduler: Scheduler) -> dict[str, Any]:
    high = "never reached" if scheduler.high_per_s is None else format_number(scheduler.high_per_s)
    nodes = "; simulated nodes" if scheduler.simulated_nodes else ""
    return {
        "input": "sustainable rate",
        "value": scheduler.low_per_s,
        "low": None,
        "high": None,
        "level": None,
        "unit": "pods/s",
        **_describe_origin(scheduler.opened),
        "note": f"{scheduler.side}: the lower end is the limit (not drawn); upper end {high}{nodes}",
    }
