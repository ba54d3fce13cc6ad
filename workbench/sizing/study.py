"""Study of the sizing notebook: measure, estimate GPUs, verify the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from workbench.core.books import BOOKS, list_book_checks
from workbench.core.tables import Table
from workbench.report.display import KeyNumber
from workbench.runs.run_folder import Run
from workbench.sizing import summary
from workbench.sizing.config import Goal, NotebookConfig
from workbench.sizing.estimation.backlog import sample_backlog
from workbench.sizing.estimation.capacity_fit import Level
from workbench.sizing.estimation.gpu_what_if import (
    WhatIf,
    estimate_capacities,
    list_ceilings,
    list_levels_by_gpus,
    sample_fitted_curve,
)
from workbench.sizing.estimation.method_comparison import (
    TrueRequirement,
    compare_methods,
    estimate_like_toolkit,
    find_required_gpus,
)
from workbench.sizing.estimation.serving_costs import select_costs
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.estimation.verification import verify_count
from workbench.sizing.invariants import check_answer
from workbench.sizing.load.measurement_sources import Measurements, open_measurements
from workbench.sizing.load.service_targets.function_target import Workflow
from workbench.sizing.load.sweep_report import list_point_notes, notebook_watcher
from workbench.sizing.simulation.virtual_time import list_agent_tasks
from workbench.sizing.tables import (
    BACKLOG,
    CAPACITIES,
    COMPARISON,
    CURVE,
    ESTIMATES,
    GOODPUT,
    POINTS,
    QUANTILES,
    REQUESTS,
    SCALING,
    SERVER_METRICS,
    STEPS,
    USABLE_VERDICTS,
    VERIFICATION,
)


@dataclass(frozen=True)
class Study:
    """Result of the notebook; implements `workbench.report.study.Study`.

    `found`: The answer with its tables, verified where a service could be driven.
    `truth`: GPUs that the simulated service needs; None where that is unknown.
    """

    config: NotebookConfig
    measured: Measurements
    found: SizingAnswer
    comparison: pl.DataFrame
    capacities: pl.DataFrame
    curve: pl.DataFrame
    truth: TrueRequirement | None = None
    levels: dict[int, list[Level]] = field(default_factory=dict, repr=False)

    @property
    def answer(self) -> str:
        """GPUs with the ends of their interval."""
        return self.found.sentence

    @property
    def details(self) -> list[str]:
        """Estimate, what binds, the law and the verification."""
        return self.found.details

    @property
    def conditions(self) -> list[str]:
        """Whether the service is simulated."""
        return self.found.conditions

    @property
    def question(self) -> str:
        """Title of the report: what was asked."""
        return self.found.question

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where there is a reason against the answer."""
        return "invalid" if self.reasons else "valid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the result is invalid; empty when it is valid."""
        return (*self.measured.reasons, *self.found.reasons)

    @property
    def notes(self) -> tuple[str, ...]:
        """Source of the figures, steps that were left out, the true requirement."""
        points = self.found.points
        # Notes on the steps that no estimate uses, by verdict, with the reason at the lowest load.
        left_out = []
        unused = points.filter(~pl.col("verdict").is_in(USABLE_VERDICTS)).sort("load")
        for (kind,), rows in unused.group_by(["verdict"], maintain_order=True):
            first = rows.row(0, named=True)
            unit = "users" if first["load_unit"] == "users" else "a second"
            counted = f"{rows.height} of {points.height} steps excluded as {kind}"
            left_out.append(f"{counted}: at {first['load']:g} {unit}, {first['reason']}.")
        at_levels = [f"{note}." for note in list_point_notes(points)]
        return (
            f"Measured: {self.measured.how}.",
            *([f"{self.config.load_step}."] if self.config.load_step else []),
            *self.measured.notes,
            *(f"{note[0].upper()}{note[1:]}." for note in self.found.notes),
            *left_out,
            *at_levels,
            *_note_truth(self.truth),
        )

    @property
    def shown(self) -> dict[str, Any]:
        """The estimate in the charts: the binding one, else the first."""
        return self.found.binding or self.found.estimates.row(0, named=True)

    @property
    def goal(self) -> Goal:
        """The goal of that estimate."""
        return next(goal for goal in self.measured.goals if goal.name == self.shown["target"])

    @property
    def answers(self) -> pl.DataFrame:
        """The comparison without empty columns."""
        return _drop_empty_columns(self.comparison)

    @property
    def self_check(self) -> pl.DataFrame:
        """Per step: how well the load was held, and how busy the client was."""
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
        return _drop_empty_columns(shown)

    @property
    def backlog(self) -> pl.DataFrame:
        """Table `backlog`."""
        return sample_backlog(self.measured.requests, self.measured.steps)

    @property
    def what_if(self) -> WhatIf | None:
        """Answers for other loads and limits; None where `no_what_if` gives a reason."""
        if self.no_what_if:
            return None
        ((gpus, levels),) = self.levels.items()
        unit, seed = self.found.load_unit, self.config.seed
        ceiling = list_ceilings(self.found.points)[gpus]
        return WhatIf(levels, gpus, self.goal, self.found.load, unit, self.capacities, seed, ceiling)

    @property
    def no_what_if(self) -> str:
        """Reason why there is no what-if; empty where there is one."""
        if len(self.levels) != 1:
            return "The what-if needs a single GPU count: set gpu_counts to one of them."
        return "" if self.shown["gpus"] is not None else "No what-if: there is no estimate to vary."

    @property
    def verification(self) -> pl.DataFrame | None:
        """The verification's main columns; None without a verification."""
        if self.found.verification is None:
            return None
        names = ("target", "verdict", "gpus", "driven_load", "scope", "n", "value_s", "low_s", "high_s", "limit_s")
        wrong = self.found.verification["reason"].null_count() < self.found.verification.height
        return self.found.verification.select(*names, *(["reason"] if wrong else []))

    @property
    def costs(self) -> pl.DataFrame | None:
        """Costs and energy by step, with intervals; None without a price and without a reading of the GPUs' power."""
        return select_costs(self.found.goodput)

    def key_numbers(self) -> list[KeyNumber]:
        """GPUs, capacity, verified quantile, goodput, cost."""
        return summary.build_key_numbers(self.found)

    def next_steps(self) -> list[str]:
        """Next steps: what to decide, and the command to run next."""
        return summary.list_next_steps(self.found, self.config)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """Tables for the run folder."""
        answer = self.found
        tables = [(REQUESTS, self.measured.requests), (STEPS, self.measured.steps), (POINTS, answer.points)]
        tables += [(BACKLOG, self.backlog)]
        tables += [(QUANTILES, answer.quantiles), (ESTIMATES, answer.estimates), (GOODPUT, answer.goodput)]
        tables += [(COMPARISON, self.comparison), (CAPACITIES, self.capacities), (CURVE, self.curve)]
        samples = self.measured.server_metrics
        tables += [(SERVER_METRICS, samples)] if samples is not None and samples.height else []
        tables += [(SCALING, answer.scaling)] if answer.scaling.height else []
        tables += [(BOOKS, answer.books)] if answer.books is not None else []
        return tables + ([(VERIFICATION, answer.verification)] if answer.verification is not None else [])

    def check(self) -> pl.DataFrame:
        """The invariants, one row each.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        checks = check_answer(self.measured, self.found)
        return checks if self.found.books is None else pl.concat([checks, list_book_checks(self.found.books)])


def _drop_empty_columns(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop([name for name in frame.columns if frame[name].null_count() == frame.height])


def build_study(config: NotebookConfig, run: Run, workflow: Workflow | None = None) -> Study:
    """Measure, estimate and verify as configured, and write the tables into the run folder.

    Parameters
    ----------
    config, run
        Settings, and the run folder.
    workflow
        Async callable that takes a prompt, driven instead of a service; needs `live`.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, the target is not confirmed, or a folder holds no sweep.
    RunFailedError
        A client process or the simulator died.
    """
    for path in (*config.sweep, *filter(None, (config.trace, config.agent_tasks))):
        run.add_input(path, digest=False)
    with notebook_watcher() as watcher, open_measurements(config, workflow, watcher) as measured:
        answer = compute_answer(
            measured.requests,
            measured.steps,
            measured.goals,
            config.load,
            limits=measured.limits,
            gpu_price_per_hour=config.gpu_price_per_h,
            currency=config.currency,
            seed=config.seed,
            server_metrics=measured.server_metrics,
            served=measured.served,
        )
        if measured.verify is not None and answer.recommended is not None:
            table = verify_count(measured.verify, answer.recommended)
            answer = answer.with_verification(table) if table.height else answer
    # The answer beside those of other methods, and the tables of the charts.
    row = answer.binding or answer.estimates.row(0, named=True)
    goal = next(goal for goal in measured.goals if goal.name == row["target"])
    levels = list_levels_by_gpus(measured.requests, measured.steps, answer.points, goal)
    truth = _find_truth(config, measured, answer)
    loads = answer.points["load"].to_list()
    burst = _estimate_gpus_like_toolkit(config, measured, goal, loads) if truth is not None else None
    study = Study(
        config,
        measured,
        answer,
        compare_methods(answer, burst_gpus=burst, truth=truth),
        estimate_capacities(
            levels,
            goal,
            seed=config.seed,
            ceilings=list_ceilings(answer.points),
            is_open=answer.load_unit != "users",
        ),
        sample_fitted_curve(levels[row["test_gpus"]], goal, row["method"]),
        truth,
        levels,
    )
    for declared, frame in study.tables():
        run.write_table(declared, frame)
    return study


def _find_truth(config: NotebookConfig, measured: Measurements, answer: SizingAnswer) -> TrueRequirement | None:
    """Only of users in virtual time."""
    if measured.service is None or measured.config is None or answer.recommended is None or not config.truth_runs:
        return None
    if measured.config.is_open:
        return None
    # The estimate is close to the truth, and each further count takes a second.
    start = max(math.ceil(row["gpus"]) for row in answer.estimates.iter_rows(named=True))
    return find_required_gpus(
        measured.service,
        measured.goals,
        int(config.load),
        start,
        runs=config.truth_runs,
        turns=measured.config.turns,
        think_s=measured.config.think_time_s,
        tasks=list_agent_tasks(measured.config),
        tool_factor=measured.config.tool_factor,
    )


def _estimate_gpus_like_toolkit(
    config: NotebookConfig, measured: Measurements, goal: Goal, loads: Sequence[float]
) -> float | None:
    if measured.service is None or measured.config is None:
        return None
    if measured.config.turns > 1 or measured.config.think_time_s or measured.config.agent_tasks is not None:
        return None  # its runs have neither sessions nor think time
    largest = measured.service.model_copy(update={"gpus": max(config.gpu_counts)})
    return estimate_like_toolkit(largest, goal, config.load, loads, seed=config.seed)


def _note_truth(truth: TrueRequirement | None) -> list[str]:
    if truth is None:
        return []
    tried = ", ".join(f"{gpus} {'yes' if met else 'no'}" for gpus, met in sorted(truth.tried.items()))
    need = "no tried GPU count is enough" if truth.gpus is None else f"{truth.gpus} GPUs"
    return [f"True need of this service: {need}. Targets met in the mean of {truth.runs} long runs: {tried}."]
