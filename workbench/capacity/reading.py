"""Runs and settings become a model, with a row for every input that says where it comes from."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.capacity.config import PlanConfig
from workbench.capacity.inputs import (
    Jobs,
    Law,
    Scheduler,
    Service,
    Stack,
    read_jobs,
    read_scheduler,
    read_service,
    read_stack,
)
from workbench.capacity.model import Model, Serving, Work
from workbench.capacity.opening import Opened
from workbench.capacity.quantity import Quantity, spread
from workbench.capacity.tables import SOURCES
from workbench.formats import number

JOBS_FACTOR, USERS_FACTOR = "jobs of the day", "users of the day"


@dataclass(frozen=True)
class Found:
    """What the runs say; null: left out."""

    jobs: Jobs | None
    service: Service | None
    stack: Stack | None
    scheduler: Scheduler | None

    @property
    def opened(self) -> list[Opened]:
        """The runs that are planned with."""
        return [one.opened for one in (self.jobs, self.service, self.stack, self.scheduler) if one is not None]


def read(config: PlanConfig) -> Found:
    """Open the runs that the settings name.

    Raises
    ------
    InputError, ConfigError
        A run cannot be used; see `opening.open_run`.
    """
    accept = config.accept_invalid
    return Found(
        read_jobs(config.speedup, accept_invalid=accept) if config.speedup else None,
        read_service(config.sizing, accept_invalid=accept) if config.sizing else None,
        read_stack(config.indicators, accept_invalid=accept) if config.indicators else None,
        read_scheduler(config.scaletest, config.scaletest_side, accept_invalid=accept) if config.scaletest else None,
    )


def model_of(config: PlanConfig, found: Found) -> Model:
    """The model of a plan.

    Raises
    ------
    InputError, ConfigError
        A job class matches no application, or cannot be read.
    """
    return Model(
        _works(config, found.jobs) if found.jobs is not None else (),
        _serving(config, found.service) if found.service is not None else None,
        found.stack.ratio if found.stack is not None else None,
        spread(JOBS_FACTOR, config.jobs_spread),
        spread(USERS_FACTOR, config.users_spread),
        utilisation=config.utilisation,
        node_gpus=config.gpus_per_node,
        spanning=config.spanning,
        node_price_per_h=config.node_price_per_h,
        jobs_within_s=config.jobs_arrive_within_s,
        replicas_within_s=config.replicas_start_within_s,
    )


def _works(config: PlanConfig, jobs: Jobs) -> tuple[Work, ...]:
    classes = config.job_classes
    return tuple(
        Work(one.name, np.array(one.per_hour, dtype=np.float64), duration, one.gpus, one.pods, one.stack_share)
        for one, duration in zip(classes, jobs.durations(classes), strict=True)
    )


def _serving(config: PlanConfig, service: Service) -> Serving:
    gpus = config.gpus_per_replica or service.test_gpus
    load = np.array(config.users_by_hour, dtype=np.float64)
    law = service.law
    share = gpus / service.test_gpus if law is None else law.times(gpus) / law.times(service.test_gpus)
    return Serving(
        load,
        service.carried.times(share),
        gpus,
        config.least_replicas,
        config.pods_per_replica,
        config.service_stack_share,
        None if law is None else _grows(law, gpus),
    )


def _grows(law: Law, gpus: int) -> tuple[float, ...]:
    """What 1, 2, … replicas carry together, in that of one, as far as the law is believed.

    More never carry less: those that the law makes a burden could be left idle.
    """
    alone = law.times(gpus)
    together = [law.times(count) / alone for count in range(gpus, law.most + 1, gpus)]
    return tuple(itertools.accumulate(together, max))


def sources(model: Model, config: PlanConfig, found: Found) -> pl.DataFrame:
    """Table SOURCES."""
    rows: list[dict[str, Any]] = []
    if found.jobs is not None:
        rows += _durations(model, config, found.jobs)
    if found.service is not None and model.serving is not None:
        rows.append(_row(model.serving.per_replica, found.service.opened, _served(model.serving, found.service)))
    if found.stack is not None:
        rows.append(_row(found.stack.ratio, found.stack.opened, applied(model, found.stack)))
    if found.scheduler is not None:
        rows.append(_rate_row(found.scheduler))
    names = {one.name for one in model.quantities}
    own = [one for one in (model.jobs_factor, model.users_factor) if one.name in names and not one.is_point]
    rows += [_row(one, None, "set by hand: 9 of 10 days are within this factor of the profile") for one in own]
    return SOURCES.frame(rows)


def _durations(model: Model, config: PlanConfig, jobs: Jobs) -> list[dict[str, Any]]:
    """One row for each duration, with all classes that have it."""
    rows: dict[str, dict[str, Any]] = {}
    for one, work in zip(config.job_classes, model.works, strict=True):
        held = f"{counted(work.gpus, 'GPU')} and {counted(work.pods, 'pod')} a job of {work.name}"
        if work.duration.name in rows:
            rows[work.duration.name]["note"] += f"; {held}"
            continue
        count = jobs.of(one).height
        note = f"the mean of {counted(count, 'application')} that match {one.applications}; {held}"
        rows[work.duration.name] = _row(work.duration, jobs.opened, note)
    return list(rows.values())


def _row(one: Quantity, opened: Opened | None, note: str) -> dict[str, Any]:
    level = None if one.is_point else one.level
    ends = {"low": None if one.is_point else one.low, "high": None if one.is_point else one.high, "level": level}
    said = _origin(opened)
    note = f"{note}; a point: it has no interval" if one.is_point else note
    note = f"{note}; its {one.mirrored} end is not known, and taken as far from the value" if one.mirrored else note
    return {"input": one.name, "value": one.value, **ends, "unit": one.unit, **said, "note": note}


def _origin(opened: Opened | None) -> dict[str, str]:
    if opened is None:
        return {"area": "parameter", "run": "–", "verdict": "–"}
    return {"area": opened.run.area, "run": opened.run.run_id, "verdict": opened.verdict}


def counted(count: float, unit: str) -> str:
    """A count with its unit in the right number.

    Examples
    --------
    >>> counted(1, "GPU"), counted(1200, "pod")
    ('1 GPU', '1,200 pods')
    """
    return f"{number(int(count))} {unit}{'' if count == 1 else 's'}"


def _served(serving: Serving, service: Service) -> str:
    said = f"{counted(serving.gpus, 'GPU')} a replica, within {service.target}"
    if serving.gpus != service.test_gpus:
        how = "linear scaling assumed" if service.law is None else f"scaled by {service.law.name}"
        said += f"; measured on {counted(service.test_gpus, 'GPU')}, {how}"
    return f"{said}; the service was simulated" if service.simulated else said


def applied(model: Model, stack: Stack) -> str:
    """What the stack's ratio multiplies, in words."""
    parts = [f"{work.stack_share:.0%} of the time of {work.name}" for work in model.works if work.stack_share]
    if model.serving is not None and model.serving.stack_share:
        parts.append(f"{model.serving.stack_share:.0%} of a request's time")
    what = f"multiplies {' and '.join(parts)}, nothing else" if parts else "multiplies nothing: no share is stated"
    measured = f"{stack.name} over {stack.baseline}, measured on {', '.join(stack.metrics)}"
    return f"{measured}; {what}" + ("; predicted from other stacks" if stack.predicted else "")


def _rate_row(one: Scheduler) -> dict[str, Any]:
    high = "never reached" if one.high_per_s is None else number(one.high_per_s)
    nodes = "; simulated nodes" if one.simulated_nodes else ""
    return {
        "input": "sustainable rate",
        "value": one.low_per_s,
        "low": None,
        "high": None,
        "level": None,
        "unit": "pods/s",
        **_origin(one.opened),
        "note": f"{one.side}: the lower end is the limit, nothing is drawn from it; upper end {high}{nodes}",
    }
