"""A plan: runs read, the model drawn, and what is said about it. The notebook and the command make the same call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.capacity import binding, invariants, key_numbers, next_steps, summing, tables, varying
from workbench.capacity.config import PlanConfig
from workbench.capacity.evening import BreakEven, break_even
from workbench.capacity.model import ROUNDING, Model, Outcome, evaluate
from workbench.capacity.quantity import Floats, drawn
from workbench.capacity.reading import Found, counted, model_of, read, sources
from workbench.display import KeyNumber
from workbench.formats import number

if TYPE_CHECKING:
    from workbench.capacity.inputs import Law
    from workbench.capacity.model import Serving
    from workbench.runs import Run
    from workbench.tables import Table


@dataclass(frozen=True)
class Study:
    """A question, the runs that answer it, and what follows.

    Attributes
    ----------
    config, found, model
        What was asked, what the runs say, and what is calculated.
    given
        The draws of every input, by name.
    outcome
        The plan of every draw.
    """

    config: PlanConfig
    found: Found
    model: Model
    given: dict[str, Floats]
    outcome: Outcome

    @cached_property
    def median(self) -> Outcome:
        """The plan with every input at its value."""
        return evaluate(self.model, self.model.medians)

    @cached_property
    def hours(self) -> pl.DataFrame:
        """Table HOURS_TABLE."""
        return summing.hours(self.model, self.outcome)

    @cached_property
    def day(self) -> pl.DataFrame:
        """Table DAY."""
        return summing.day(self.outcome)

    @cached_property
    def sources(self) -> pl.DataFrame:
        """Table SOURCES."""
        return sources(self.model, self.config, self.found)

    @cached_property
    def constraints(self) -> pl.DataFrame:
        """Table CONSTRAINTS."""
        return binding.constraints(self.model, self.median, self.peak_hour, self.found.scheduler, self.pods_per_s)

    @cached_property
    def tornado(self) -> pl.DataFrame:
        """Table TORNADO."""
        return varying.tornado(self.model)

    @cached_property
    def what_if(self) -> pl.DataFrame:
        """Table WHAT_IF."""
        return varying.what_if(self.model)

    @cached_property
    def break_even(self) -> BreakEven | None:
        """Where both clusters cost the same; null without prices."""
        return break_even(self.config, self.model, self.found.jobs, self.given)

    @property
    def peak_hour(self) -> int:
        """The hour that asks for most nodes."""
        return summing.peak_hour(self.outcome)

    @property
    def pods_per_s(self) -> float:
        """P95 of the pods a second when it is worst in the day."""
        return float(self.figure(summing.PODS)["p95"])

    @property
    def kept_up(self) -> str:
        """Does the scheduler keep up: sustained, not sustained, not measured."""
        return binding.kept_up(self.found.scheduler, self.pods_per_s)

    @property
    def bound_by(self) -> str:
        """The binding constraint; empty when nothing is asked for."""
        return next(iter(self.constraints.filter("binding")["constraint"].to_list()), "")

    def figure(self, name: str) -> dict[str, Any]:
        """A row of table DAY."""
        return self.day.row(by_predicate=pl.col("figure") == name, named=True)

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        gpus, nodes = self.figure(summing.GPUS), self.figure(summing.NODES)
        asked = f"{counted(_up(gpus['p50']), 'GPU')} on {counted(_up(nodes['p50']), 'node')} at the peak hour"
        spread = f"P50; P5 to P95: {_span(gpus)} GPUs, {_span(nodes)} nodes"
        priced = self.outcome.cost_scaled is not None
        cost = f", {number(self.figure(summing.COST_SCALED)['p50'])} a day" if priced else ""
        bound = f"; bound by {self.bound_by}" if self.bound_by else ""
        return f"{asked} ({spread}){cost}{bound}; {self._scheduler}."

    @property
    def _scheduler(self) -> str:
        one = self.found.scheduler
        if one is None or one.low_per_s is None:
            return "whether the scheduler keeps up was not measured"
        rates = f"{number(self.pods_per_s)} pods/s when it is worst, {number(one.low_per_s)} sustained"
        return f"the scheduler {'keeps up' if self.kept_up == binding.SUSTAINED else 'does not keep up'} ({rates})"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the plan is invalid: runs that it should not rest on, or that do not reach as far."""
        objections = [
            f"run {one.run.run_id} ({one.run.area}): {one.objection}" for one in self.found.opened if one.objection
        ]
        return (*objections, *self._beyond())

    def _beyond(self) -> list[str]:
        """The service's load, where the law of its sizing run does not carry it."""
        serving, service = self.model.serving, self.found.service
        if serving is None or service is None or service.law is None or serving.grows is None:
            return []
        # What the load needs: replicas that are there anyhow carry no more than is known of them.
        if float(summing.quantiles(self.outcome.needed)[2].max()) <= len(serving.grows):
            return []
        load = f"{number(float(serving.load.max()))} {service.load_name}"
        return [
            f"run {service.opened.run.run_id} (sizing): its law, {service.law.name}, does not carry {load} (P95): "
            f"{_reach(service.law, serving)}, and nothing is known of more; measure larger counts, or serve fewer"
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not covered, what is simulated, and what is assumed."""
        return tuple(line for line in (*self._left_out(), *self._simulated(), *self._assumed()) if line)

    @property
    def _no_rate(self) -> bool:
        return self.found.scheduler is not None and self.found.scheduler.low_per_s is None

    @property
    def uses(self) -> tuple[str, ...]:
        """How each input is used, and what to know of it."""
        return tuple(f"{row['input']}: {row['note']}." for row in self.sources.iter_rows(named=True))

    def _left_out(self) -> list[str]:
        config = self.config
        return [
            "" if config.speedup else "Not covered: Spark jobs, since no speedup run is given.",
            "" if config.sizing else "Not covered: a service, since no sizing run is given.",
            "" if config.indicators else "Not covered: the gain of another library stack; no indicator run is given.",
            "" if config.scaletest else "Not covered: the scheduler's rate; no scale test is given.",
            "" if self.outcome.cost_scaled is not None else "Not covered: cost, since no price is given.",
        ]

    def _simulated(self) -> list[str]:
        service, scheduler = self.found.service, self.found.scheduler
        return [
            "Simulated: the service that was sized." if service is not None and service.simulated else "",
            "Simulated: the nodes of the scale test." if scheduler is not None and scheduler.simulated_nodes else "",
            f"The scale test does not say which rate is sustained: {scheduler.reason}."
            if self._no_rate and scheduler
            else "",
        ]

    def _assumed(self) -> list[str]:
        points = [one.name for one in self.model.quantities if one.is_point]
        said = f"Without an interval, and so never varied: {', '.join(points)}." if points else ""
        open_ends = [f"{one.name} ({one.mirrored})" for one in self.model.quantities if one.mirrored]
        ends = f"An end is not known, and taken as far from the value as the other: {', '.join(open_ends)}."
        draws = f"{number(self.config.draws)} draws, each input from its own interval, independent of the others."
        even = self.break_even
        return [draws, said, ends if open_ends else "", self._scaling, even.text if even is not None else ""]

    @property
    def _scaling(self) -> str:
        """How what the service carries grows with its replicas."""
        service, serving, replicas = self.found.service, self.model.serving, self.outcome.replicas
        if service is None or serving is None or replicas is None:
            return ""
        if service.law is not None:
            said = f"The service scales by {service.law.name}: {_reach(service.law, serving)} {service.load_name}"
            return f"{said}. Beyond that figures are linear and too small; the law's own interval is not drawn."
        if int(replicas.max()) <= 1 and serving.gpus == service.test_gpus:
            return ""
        measured = counted(service.test_gpus, "GPU")
        return (
            f"Linear scaling assumed: so many replicas, so many times the load; the service was measured on {measured}."
        )

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_plan(self)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_plan(self)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        made = (self.sources, self.hours, self.day, self.constraints, self.tornado, self.what_if)
        return list(zip(tables.ALL, made, strict=True))

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return invariants.check(self)


def plan(config: PlanConfig) -> Study:
    """The plan, from the runs that the settings name.

    Raises
    ------
    InputError, ConfigError
        A run cannot be used, a job class matches nothing, a shape fits on no node.
    """
    found = read(config)
    model = model_of(config, found)
    given = drawn(model.quantities, config.draws, config.seed)
    return Study(config, found, model, given, evaluate(model, given))


def study(config: PlanConfig, run: Run) -> Study:
    """The plan, kept in a run folder.

    Raises
    ------
    InputError, ConfigError
        As `plan`.
    """
    made = plan(config)
    keep(made, run)
    return made


def keep(made: Study, run: Run) -> None:
    """Write a plan's tables into a run folder, and note the runs that it rests on."""
    for one in made.found.opened:
        run.add_input(one.run.folder)
    for table, frame in made.tables():
        run.write_table(table, frame)


def verdict(study: Study) -> Literal["valid", "invalid"]:
    """Is the plan valid?"""
    return "invalid" if study.reasons else "valid"


def _up(value: float) -> int:
    return math.ceil(value - ROUNDING)


def _span(row: dict[str, Any]) -> str:
    low, high = number(_up(row["p5"])), number(_up(row["p95"]))
    return low if low == high else f"{low} to {high}"


def _reach(law: Law, serving: Serving) -> str:
    """What the law of a sizing run carries at most, in words."""
    most = serving.per_replica.value * max(serving.grows or (0.0,))
    return f"up to {law.most} GPUs, twice the largest count, it carries {number(most)}"
