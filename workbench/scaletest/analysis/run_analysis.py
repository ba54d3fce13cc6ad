"""Analysis of a test run: its figures, the answer, and the result tables in its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from workbench.core.formats import format_seconds
from workbench.core.tables import Table
from workbench.runs import run_folder
from workbench.scaletest.analysis.headline import build_answer, build_explanation, describe_decisions
from workbench.scaletest.analysis.run_figures import RunFigures
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import (
    CALLS,
    FLOW,
    GANGS,
    GPUS,
    LIMITS,
    MILESTONES,
    OBSTACLES,
    PODS,
    QUANTILES,
    RAMP,
    ROOM,
    SERVERS,
    SHARES,
    STARTUP,
    STEPS,
    SUSTAINED,
    UNFINISHED,
    VALIDITY,
)

RESULT_BUILDERS: tuple[tuple[Table, Callable[[Analysis], pl.DataFrame]], ...] = (
    (PODS, lambda analysis: analysis.pods),
    (MILESTONES, lambda analysis: analysis.milestones),
    (STEPS, lambda analysis: analysis.steps),
    (QUANTILES, lambda analysis: analysis.quantiles),
    (SHARES, lambda analysis: analysis.shares),
    (FLOW, lambda analysis: analysis.flow),
    (RAMP, lambda analysis: analysis.ramp),
    (SUSTAINED, lambda analysis: analysis.sustained),
    (LIMITS, lambda analysis: analysis.limits),
    (OBSTACLES, lambda analysis: analysis.obstacles),
    (UNFINISHED, lambda analysis: analysis.unfinished),
    (CALLS, lambda analysis: analysis.calls),
    (SERVERS, lambda analysis: analysis.servers),
    (STARTUP, lambda analysis: analysis.startup),
    (GPUS, lambda analysis: analysis.gpus),
    (ROOM, lambda analysis: analysis.room.to_table()),
    (GANGS, lambda analysis: analysis.gangs),
    (VALIDITY, lambda analysis: analysis.validity),
)


class Analysis(RunFigures):
    """The figures of a run, and the answer that they give."""

    @property
    def answer(self) -> str:
        """The sustainable rate, its bound and the wait of the slowest workloads, in at most 90 characters."""
        if self.imported:
            p95_s = self.quantile("sent to decided", 0.95, "mixed")
            known = "no time of decision" if p95_s is None else f"95 % decided within {format_seconds(p95_s)}"
            return f"No rate in these files: {known}."
        return build_answer(self)

    @property
    def explanation(self) -> str:
        """The answer with all that qualifies it, in two sentences or more."""
        if self.imported:
            return f"{describe_decisions(self)}; the files do not contain a rate."
        return build_explanation(self)


def analyse_run(folder: str | Path) -> Analysis:
    """Analyse a run folder that has its raw tables."""
    return Analysis(Path(folder), run_records.read_conditions(Path(folder)))


def conclude_run(folder: str | Path) -> Analysis:
    """Analyse a run, and write the result tables and the verdict into its folder."""
    analysis = analyse_run(folder)
    run = run_folder.load_run(analysis.folder)
    for table, build in RESULT_BUILDERS:
        run.write_table(table, build(analysis))
    run.conclude(
        "invalid" if analysis.reasons else "valid",
        analysis.reasons,
        analysis.answer,
        details=[analysis.explanation],
        conditions=analysis.simulated,
    )
    return analysis
