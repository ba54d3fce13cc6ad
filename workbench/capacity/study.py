"""Capacity study: read the runs, draw the model, and give the answer of notebook and command."""

from __future__ import annotations

import polars as pl

from workbench.capacity import invariants, summary
from workbench.capacity.capacity_plan import Plan
from workbench.capacity.config import PlanConfig
from workbench.capacity.inputs import build_model, load_inputs
from workbench.capacity.model import draw_quantities, evaluate_model
from workbench.report.display import KeyNumber
from workbench.runs.run_folder import Run


class Study(Plan):
    """A capacity plan with its key numbers, next steps and invariants."""

    def key_numbers(self) -> list[KeyNumber]:
        """Key numbers below the answer."""
        return summary.list_key_numbers(self)

    def next_steps(self) -> list[str]:
        """Return the steps to take next."""
        return summary.list_next_steps(self)

    def check(self) -> pl.DataFrame:
        """The invariants, one row each.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        return invariants.check_plan(self)


def build_plan(config: PlanConfig) -> Study:
    """Make the plan from the runs that the settings name.

    Raises
    ------
    InputError, ConfigError
        A run cannot be used, a job class matches no application, or a shape is larger than a node.
    """
    inputs = load_inputs(config)
    model = build_model(config, inputs)
    samples = draw_quantities(model.quantities, config.draws, config.seed)
    return Study(config, inputs, model, samples, evaluate_model(model, samples))


def build_study(config: PlanConfig, run: Run) -> Study:
    """Make the plan and write it into a run folder.

    Raises
    ------
    InputError, ConfigError
        As of `build_plan`.
    """
    study = build_plan(config)
    write_plan(study, run)
    return study


def write_plan(plan_study: Study, run: Run) -> None:
    """Write a plan's tables into a run folder, and register its input runs."""
    for input_run in plan_study.found.opened:
        run.add_input(input_run.run.folder)
    for table, frame in plan_study.tables():
        run.write_table(table, frame)
