"""What the notebook shows: a sweep, the GPUs that follow from it, and whether they are enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.display import KeyNumber
from workbench.sizing import key_numbers, next_steps
from workbench.sizing import measured as measuring
from workbench.sizing.answering import Answer, answer
from workbench.sizing.comparing import COMPARISON, comparison
from workbench.sizing.config import Goal
from workbench.sizing.estimate import Level
from workbench.sizing.gpus import USABLE
from workbench.sizing.invariants import check_answer
from workbench.sizing.measured import Measured
from workbench.sizing.notebook_config import NotebookConfig
from workbench.sizing.tables import ESTIMATES, GOODPUT, POINTS, QUANTILES, REQUESTS, SCALING, STEPS, VERIFICATION
from workbench.sizing.telling import watching
from workbench.sizing.truth import Truth, truth, two_passes
from workbench.sizing.what_if import CAPACITIES, CURVE, WhatIf, capacities, curve, levels_by_count

if TYPE_CHECKING:
    from workbench.runs import Run
    from workbench.sizing.driving.targets.function import Workflow
    from workbench.tables import Table


@dataclass(frozen=True)
class Study:
    """A question, what was measured for it, and what follows.

    Attributes
    ----------
    config
        What was asked for.
    measured
        The raw tables, and where they come from.
    found
        The answer with its tables, verified where something could be driven.
    comparison, capacities, curve
        Tables `COMPARISON`, `CAPACITIES`, `CURVE`.
    truth
        What the simulated service needs; null where that cannot be known.
    """

    config: NotebookConfig
    measured: Measured
    found: Answer
    comparison: pl.DataFrame
    capacities: pl.DataFrame
    curve: pl.DataFrame
    truth: Truth | None = None
    levels: dict[int, list[Level]] = field(default_factory=dict, repr=False)

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        return f"{self.found.sentence}."

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the result is invalid; empty when it is valid."""
        return (*self.measured.reasons, *self.found.reasons)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of where the figures come from."""
        left_out = _left_out(self.found.points)
        return (f"Measured: {self.measured.how}.", *self.measured.notes, *left_out, *_truth_note(self.truth))

    @property
    def shown(self) -> dict[str, Any]:
        """The estimate that is drawn: the binding one, else the first."""
        return self.found.binding or self.found.estimates.row(0, named=True)

    @property
    def goal(self) -> Goal:
        """The goal of that estimate."""
        return next(goal for goal in self.measured.goals if goal.name == self.shown["target"])

    @property
    def answers(self) -> pl.DataFrame:
        """The comparison as it is shown: columns that nobody has a value for are left out."""
        return _known(self.comparison)

    @property
    def self_check(self) -> pl.DataFrame:
        """How each step was held, and what the client has to say of itself."""
        points = self.found.points.sort("gpus", "load")
        several = points["gpus"].n_unique() > 1
        shown = points.select(
            *(["gpus"] if several else []),
            "load",
            "in_flight",
            "server_in_service",
            (1000 * pl.col("send_lag_p99_s")).alias("send_lag_p99_ms"),
            (1000 * pl.col("loop_lag_p99_s")).alias("loop_lag_p99_ms"),
            (100 * pl.col("client_cpu_share")).alias("client_cpu_percent"),
            "n_kept",
            (pl.col("n_kept") - pl.col("n_ok")).alias("n_failed"),
            "verdict",
            "reason",
        )
        return _known(shown)

    @property
    def what_if(self) -> WhatIf | None:
        """Other users, another limit; null where `no_what_if` says why."""
        if self.no_what_if:
            return None
        ((gpus, levels),) = self.levels.items()
        unit, seed = self.found.load_unit, self.config.seed
        return WhatIf(levels, gpus, self.goal, self.found.load, unit, self.capacities, seed)

    @property
    def no_what_if(self) -> str:
        """Why there is no what-if; empty when there is one."""
        if len(self.levels) != 1:
            return "From several GPU counts the answer follows a law: give one of them for the what-if."
        return "" if self.shown["gpus"] is not None else "Without a number for the question there is none to vary."

    @property
    def verification(self) -> pl.DataFrame | None:
        """The verification as it is shown; null when there is none."""
        if self.found.verification is None:
            return None
        names = ("target", "verdict", "gpus", "driven_load", "scope", "n", "value_s", "low_s", "high_s", "limit_s")
        wrong = self.found.verification["reason"].null_count() < self.found.verification.height
        return self.found.verification.select(*names, *(["reason"] if wrong else []))

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return key_numbers.of_answer(self.found)

    def next_steps(self) -> list[str]:
        """What to do next."""
        return next_steps.of_answer(self.found)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        found = self.found
        tables = [(REQUESTS, self.measured.requests), (STEPS, self.measured.steps), (POINTS, found.points)]
        tables += [(QUANTILES, found.quantiles), (ESTIMATES, found.estimates), (GOODPUT, found.goodput)]
        tables += [(COMPARISON, self.comparison), (CAPACITIES, self.capacities), (CURVE, self.curve)]
        tables += [(SCALING, found.scaling)] if found.scaling.height else []
        return tables + ([(VERIFICATION, found.verification)] if found.verification is not None else [])

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return check_answer(self.measured, self.found)


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop([name for name in frame.columns if frame[name].null_count() == frame.height])


def verdict(study: Study) -> Literal["valid", "invalid"]:
    """Is the run valid?"""
    return "invalid" if study.reasons else "valid"


def study(config: NotebookConfig, run: Run, workflow: Workflow | None = None) -> Study:
    """Measure, estimate and verify as configured, and write the tables into the run folder.

    Parameters
    ----------
    config, run
        What is asked for, and where it is kept.
    workflow
        An async callable that takes a prompt, driven instead of a service; needs `live`.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, the target is not confirmed, or a folder holds no sweep.
    RunFailedError
        A client process or the simulator died.
    """
    for folder in config.sweep:
        run.add_input(folder, digest=False)
    with watching() as watcher, measuring.measured(config, workflow, watcher) as one:
        found = answer(
            one.requests,
            one.steps,
            one.goals,
            config.users,
            limits=one.limits,
            gpu_price_per_hour=config.gpu_price_per_h,
            seed=config.seed,
        )
        if one.verify is not None and found.recommended is not None:
            table = one.verify(found.recommended)
            found = found.verified(table) if table.height else found
    made = _with_more(config, one, found)
    for declared, frame in made.tables():
        run.write_table(declared, frame)
    return made


def _with_more(config: NotebookConfig, one: Measured, found: Answer) -> Study:
    """The answer beside others, and what the charts need."""
    row = found.binding or found.estimates.row(0, named=True)
    goal = next(goal for goal in one.goals if goal.name == row["target"])
    levels = levels_by_count(one.requests, one.steps, found.points, goal)
    needed = _truth(config, one, found)
    burst = _burst(config, one, goal, found.points["load"].to_list()) if needed is not None else None
    return Study(
        config,
        one,
        found,
        comparison(found, burst_gpus=burst, truth=needed),
        capacities(levels, goal, seed=config.seed),
        curve(levels[row["test_gpus"]], goal, row["method"]),
        needed,
        levels,
    )


def _truth(config: NotebookConfig, one: Measured, found: Answer) -> Truth | None:
    """Only where the service is simulated in virtual time and each user has one request in flight."""
    if one.service is None or one.config is None or found.recommended is None or not config.truth_runs:
        return None
    if one.config.is_open or one.config.think_time_s:
        return None
    # From the estimate on, since it lies near: each count that is tried takes a second.
    start = max(math.ceil(row["gpus"]) for row in found.estimates.iter_rows(named=True))
    return truth(one.service, one.goals, int(config.users), start, runs=config.truth_runs)


def _burst(config: NotebookConfig, one: Measured, goal: Goal, loads: Sequence[float]) -> float | None:
    if one.service is None:
        return None
    largest = one.service.model_copy(update={"gpus": max(config.gpu_counts)})
    return two_passes(largest, goal, config.users, loads, seed=config.seed)


def _left_out(points: pl.DataFrame) -> list[str]:
    """Steps that no estimate rests on, by verdict, with the reason of the lowest load."""
    notes = []
    unused = points.filter(~pl.col("verdict").is_in(USABLE)).sort("load")
    for (kind,), rows in unused.group_by(["verdict"], maintain_order=True):
        first = rows.row(0, named=True)
        unit = "users" if first["load_unit"] == "users" else "a second"
        loads = f"{rows.height} of {points.height} steps left out, {kind}"
        notes.append(f"{loads}: at {first['load']:g} {unit} {first['reason']}.")
    return notes


def _truth_note(found: Truth | None) -> list[str]:
    if found is None:
        return []
    tried = ", ".join(f"{gpus} {'yes' if met else 'no'}" for gpus, met in sorted(found.tried.items()))
    need = f"{found.gpus} GPUs" if found.gpus is not None else "no number of GPUs that was tried"
    return [f"The need of this service is {need}: does the mean of {found.runs} long runs meet the target? {tried}."]
