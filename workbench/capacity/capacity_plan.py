"""A capacity plan: the tables of every draw, the answer, and what was not covered, simulated or assumed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import polars as pl

from workbench.capacity import peak, tables
from workbench.capacity.break_even import BreakEven, find_break_even
from workbench.capacity.config import PlanConfig
from workbench.capacity.information import build_information
from workbench.capacity.inputs import PlanInputs, ScalingLaw, Service, build_sources, format_count
from workbench.capacity.model import ROUNDING, Floats, Model, Outcome, ServiceLoad, evaluate_model
from workbench.core.formats import fit_answer, format_number
from workbench.core.tables import Table
from workbench.stats.littles_law import count_sessions_per_hour


@dataclass(frozen=True)
class Plan:
    """A capacity plan: its settings, the input runs, the model, and the plan of every draw.

    `config`, `found`, `model`: Settings, results of the input runs, and the model made from them.
    """

    config: PlanConfig
    found: PlanInputs
    model: Model
    given: dict[str, Floats]
    outcome: Outcome

    @cached_property
    def median(self) -> Outcome:
        """The plan with every input at its value."""
        return evaluate_model(self.model, self.model.medians)

    @cached_property
    def hours(self) -> pl.DataFrame:
        """Table HOURS_TABLE."""
        return peak.build_hours(self.model, self.outcome)

    @cached_property
    def day(self) -> pl.DataFrame:
        """Table DAY."""
        return peak.build_day(self.outcome, self.config.currency)

    @cached_property
    def sources(self) -> pl.DataFrame:
        """Table SOURCES."""
        return build_sources(self.model, self.config, self.found)

    @cached_property
    def constraints(self) -> pl.DataFrame:
        """Table CONSTRAINTS."""
        return peak.build_constraints(self.model, self.median, self.peak_hour, self.found.scheduler, self.pods_per_s)

    @cached_property
    def tornado(self) -> pl.DataFrame:
        """Table TORNADO."""
        return peak.build_tornado(self.model)

    @cached_property
    def information(self) -> pl.DataFrame:
        """Table INFORMATION."""
        return build_information(self.model, self.given, self.outcome, self.config.shortage_factor)

    @cached_property
    def what_if(self) -> pl.DataFrame:
        """Table WHAT_IF."""
        return peak.build_what_if(self.model)

    @cached_property
    def break_even(self) -> BreakEven | None:
        """Price ratio at which both clusters cost the same; null without prices."""
        return find_break_even(self.config, self.model, self.found.jobs, self.given)

    @property
    def peak_hour(self) -> int:
        """The hour that needs the most nodes."""
        return peak.find_peak_hour(self.outcome)

    @property
    def pods_per_s(self) -> float:
        """P95 of the pods per second at the worst time of the day."""
        return float(self.get_figure(peak.PODS)["p95"])

    @property
    def kept_up(self) -> str:
        """Whether the scheduler keeps up: sustained, not sustained, not measured."""
        return peak.classify_scheduler_rate(self.found.scheduler, self.pods_per_s)

    @property
    def bound_by(self) -> str:
        """The binding constraint; empty if nothing is needed."""
        return next(iter(self.constraints.filter("binding")["constraint"].to_list()), "")

    @property
    def nodes_to_provide(self) -> int:
        """Nodes of the peak hour at their upper end, which the answer recommends."""
        return _round_up_gpus(self.get_figure(peak.NODES)["p95"])

    def get_figure(self, name: str) -> dict[str, Any]:
        """A row of table DAY."""
        return self.day.row(by_predicate=pl.col("figure") == name, named=True)

    @property
    def answer(self) -> str:
        """Nodes to provide and GPUs needed at the peak hour, with their interval and the median cost."""
        gpus, n_nodes = self.get_figure(peak.GPUS), self.nodes_to_provide
        if not n_nodes:
            return "Provide nothing: no hour of the day needs a node."
        at_most = "at most " if self.found.service is not None and self.found.service.at_least else ""
        need = f"the {self.peak_hour:02d}:00 peak needs {at_most}{_format_range(gpus)} GPUs"
        cost = ""
        # Without its currency an amount says nothing.
        if self.outcome.cost_scaled is not None and self.config.currency:
            figure = self.get_figure(peak.COST_SCALED)
            cost = f", for up to {format_number(figure['p95'])} {figure['unit']}"
        scheduler = " and a faster scheduler" if self.kept_up == peak.NOT_SUSTAINED else ""
        claim = f"Provide {format_count(n_nodes, 'node')}{scheduler}: {need}"
        return fit_answer(f"{claim}{cost}.", f"{claim}.")

    @property
    def details(self) -> tuple[str, ...]:
        """The interval of the nodes, what binds, whether the scheduler keeps up."""
        gpus, nodes = self.get_figure(peak.GPUS), self.get_figure(peak.NODES)
        held = _format_range(nodes)
        interval = f"P5 to P95: {_format_range(gpus)} GPUs on {held} node{'' if held == '1' else 's'}"
        bound = [f"The peak is bound by {self.bound_by}."] if self.bound_by else []
        scheduler = self._scheduler
        # The medians as text; empty where they are the upper ends.
        (n_gpus, n_nodes), high = ([_round_up_gpus(row[share]) for row in (gpus, nodes)] for share in ("p50", "p95"))
        gpu = "GPU" if n_gpus == 1 else "GPUs"
        middle = (
            "" if [n_gpus, n_nodes] == high else f"median: {format_number(n_gpus)} {gpu} on {format_number(n_nodes)}; "
        )
        ends = f"{middle}{interval}"
        return (f"{ends[0].upper()}{ends[1:]}.", *bound, f"{scheduler[0].upper()}{scheduler[1:]}.")

    @property
    def conditions(self) -> tuple[str, ...]:
        """What was not measured: a simulated service, simulated nodes, a day or prices of the samples."""
        service, scheduler = self.found.service, self.found.scheduler
        return tuple(
            word
            for word, holds in (
                ("simulated service", service is not None and service.simulated),
                ("simulated nodes", scheduler is not None and scheduler.simulated_nodes),
                ("invented day", self.config.has_sample_day),
                ("invented price", self.config.has_sample_price),
            )
            if holds
        )

    @property
    def _scheduler(self) -> str:
        scheduler = self.found.scheduler
        if scheduler is None or scheduler.low_per_s is None:
            return "the scheduler was not measured"
        rates = (
            f"{format_number(self.pods_per_s)} pods/s at the worst time, {format_number(scheduler.low_per_s)} sustained"
        )
        return f"the scheduler {'keeps up' if self.kept_up == peak.SUSTAINED else 'does not keep up'} ({rates})"

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid if the plan rests on runs that are invalid or do not reach far enough."""
        return "invalid" if self.reasons else "valid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why the plan is invalid: input runs that are invalid, or a load beyond their scaling law."""
        objections = [
            f"run {input_run.run.run_id} ({input_run.run.area}): {input_run.objection}"
            for input_run in self.found.opened
            if input_run.objection
        ]
        return (*objections, *self._list_loads_beyond_law())

    def _list_loads_beyond_law(self) -> list[str]:
        """Note on the service's load if it exceeds the scaling law of the sizing run; empty otherwise."""
        serving, service = self.model.serving, self.found.service
        if serving is None or service is None or service.law is None or serving.grows is None:
            return []
        # Only replicas that the load needs count; `least_replicas` alone does not exceed the law.
        if float(peak.compute_quantiles(self.outcome.needed)[2].max()) <= len(serving.grows):
            return []
        load = f"{format_number(float(serving.load.max()))} {service.load_name}"
        return [
            f"run {service.opened.run.run_id} (sizing): its law, {service.law.name}, does not carry {load} (P95): "
            f"{_format_law_reach(service.law, serving)}; measure larger counts, or serve fewer users"
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Parts that are not covered or simulated, and assumptions."""
        return tuple(
            line
            for line in (*self._list_uncovered_parts(), *self._list_simulated_parts(), *self._list_assumptions())
            if line
        )

    @property
    def _no_rate(self) -> bool:
        return self.found.scheduler is not None and self.found.scheduler.low_per_s is None

    @property
    def uses(self) -> tuple[str, ...]:
        """Sentences on how each input is used, with its caveats."""
        return tuple(f"{row['input']}: {row['note']}." for row in self.sources.iter_rows(named=True))

    def _list_uncovered_parts(self) -> list[str]:
        config = self.config
        return [
            "" if config.speedup else "Not covered: Spark jobs (no speedup run given).",
            "" if config.sizing else "Not covered: a service (no sizing run given).",
            "" if config.indicators else "Not covered: the gain of another library stack (no indicator run given).",
            "" if config.scaletest else "Not covered: the scheduler's rate (no scale test given).",
            "" if self.outcome.cost_scaled is not None else "Not covered: cost (no price given).",
        ]

    def _list_simulated_parts(self) -> list[str]:
        service, scheduler = self.found.service, self.found.scheduler
        return [
            _describe_simulated_service(service) if service is not None and service.simulated else "",
            "Simulated: the nodes of the scale test." if scheduler is not None and scheduler.simulated_nodes else "",
            f"The scale test has no sustained rate: {scheduler.reason}." if self._no_rate and scheduler else "",
        ]

    def _list_assumptions(self) -> list[str]:
        points = [quantity.name for quantity in self.model.quantities if quantity.is_point]
        fixed = f"Fixed, because they have no interval: {', '.join(points)}." if points else ""
        open_ends = [
            f"{quantity.name} ({quantity.mirrored})" for quantity in self.model.quantities if quantity.mirrored
        ]
        ends = f"An unknown end is assumed as far from the value as the known one: {', '.join(open_ends)}."
        draws = f"{format_number(self.config.draws)} draws, each input independently from its own interval."
        even = self.break_even
        return [
            *self._list_bounds(),
            *self._list_sessions(),
            self._own_answer,
            draws,
            fixed,
            ends if open_ends else "",
            self._scaling,
            even.text if even is not None else "",
        ]

    def _list_bounds(self) -> list[str]:
        """Notes on inputs that are known only as a bound, or that their own run did not decide."""
        service, stack = self.found.service, self.found.stack
        bounds = []
        if service is not None and service.at_least:
            bounds.append(
                f"At most: {service.target} was met at every measured load, so that a replica carries at least"
                f" {format_number(service.carried.value)} {service.carried.unit}; sizes below its GPUs are not known."
            )
        if (
            stack is not None
            and stack.is_undecided
            and any(quantity is stack.ratio for quantity in self.model.quantities)
        ):
            bounds.append(
                f"Not decided: {stack.name} was not told from {stack.baseline}; its ratio is drawn from "
                "its interval, which contains 1."
            )
        return bounds

    @property
    def _scaling(self) -> str:
        """How the capacity of the service grows with its replicas."""
        service, serving, replicas = self.found.service, self.model.serving, self.outcome.replicas
        if service is None or serving is None or replicas is None:
            return ""
        if service.law is not None:
            reach = f"{_format_law_reach(service.law, serving)} {service.load_name}"
            return (
                f"The service scales by {service.law.name}: {reach}. Beyond that, the figures assume linear "
                f"scaling and are too small. "
                "The interval is that of the run's GPUs for its own load."
            )
        if int(replicas.max()) <= 1 and serving.gpus == service.test_gpus:
            return ""
        measured = format_count(service.test_gpus, "GPU")
        return f"Linear scaling assumed: each replica carries the same load; the service was measured on {measured}."

    def _list_sessions(self) -> list[str]:
        """Users as sessions an hour, and back where the sizing run knows how long a session is."""
        service, serving = self.found.service, self.model.serving
        if service is None or serving is None:
            return []
        steps = [f"{step}." for step in self.config.session_steps]
        users = float(serving.load.max())
        if service.session_s is not None and users:
            sessions = format_number(count_sessions_per_hour(users, service.session_s))
            steps.append(
                f"{format_number(users)} users at once, the most of the day, are about {sessions} sessions an hour of"
                f" {format_number(service.session_s)} s, as in the sizing run (Little's law)."
            )
        return steps

    @property
    def _own_answer(self) -> str:
        """What the sizing run itself recommends, in whole replicas where these are others; empty: not known."""
        service, serving = self.found.service, self.model.serving
        if service is None or serving is None or service.asked is None or service.recommended is None:
            return ""
        whole = -(-service.recommended // serving.gpus) * serving.gpus
        replicas = f"; whole replicas of {serving.gpus} have {whole}" if whole != service.recommended else ""
        load = f"{format_number(service.asked)} {service.load_name}"
        return f"The sizing run recommends {format_count(service.recommended, 'GPU')} for {load}{replicas}."

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """Tables for the run folder."""
        frames = (self.sources, self.hours, self.day, self.constraints, self.tornado, self.information, self.what_if)
        return list(zip(tables.PLAN_TABLES, frames, strict=True))


def _round_up_gpus(value: float) -> int:
    return math.ceil(value - ROUNDING)


def _format_range(row: dict[str, Any]) -> str:
    low, high = format_number(_round_up_gpus(row["p5"])), format_number(_round_up_gpus(row["p95"]))
    return low if low == high else f"{low} to {high}"


def _describe_simulated_service(service: Service) -> str:
    scale = "" if service.time_scale is None else f", at {service.time_scale:g} of its times: rates are of that service"
    named = f", {service.served}" if service.served else ""
    return f"Simulated: the service of the sizing run{named}{scale}."


def _format_law_reach(law: ScalingLaw, serving: ServiceLoad) -> str:
    """Largest load that the law of a sizing run carries, as text."""
    max_load = serving.per_replica.value * max(serving.grows or (0.0,))
    return f"up to {law.most} GPUs, twice the largest measured count, it carries {format_number(max_load)}"
