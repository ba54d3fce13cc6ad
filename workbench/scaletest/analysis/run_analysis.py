"""Analysis of a test run: its figures, the answer, and the result tables in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from workbench.core.formats import format_seconds
from workbench.core.tables import Table
from workbench.runs import run_folder
from workbench.scaletest import tables
from workbench.scaletest.analysis.headline import build_answer, build_explanation, describe_decisions
from workbench.scaletest.analysis.run_figures import RunFigures
from workbench.scaletest.observation import run_records


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

    def iterate_results(self) -> Iterator[tuple[Table, pl.DataFrame]]:
        """The result tables of a run's folder, in their order there."""
        yield tables.PODS, self.pods
        yield tables.MILESTONES, self.milestones
        yield tables.STEPS, self.steps
        yield tables.QUANTILES, self.quantiles
        yield tables.SHARES, self.shares
        yield tables.FLOW, self.flow
        yield tables.RAMP, self.ramp
        yield tables.SUSTAINED, self.sustained
        yield tables.LIMITS, self.limits
        yield tables.OBSTACLES, self.obstacles
        yield tables.UNFINISHED, self.unfinished
        yield tables.CALLS, self.calls
        yield tables.SERVERS, self.servers
        yield tables.STARTUP, self.startup
        yield tables.GPUS, self.gpus
        yield tables.ROOM, self.room.to_table()
        yield tables.GANGS, self.gangs
        yield tables.VALIDITY, self.validity


def analyse_run(folder: str | Path) -> Analysis:
    """Analyse a run folder that has its raw tables."""
    return Analysis(Path(folder), run_records.read_conditions(Path(folder)))


def conclude_run(folder: str | Path) -> Analysis:
    """Analyse a run, and write the result tables and the verdict into its folder."""
    analysis = analyse_run(folder)
    run = run_folder.load_run(analysis.folder)
    for table, result in analysis.iterate_results():
        run.write_table(table, result)
    run.conclude(
        "invalid" if analysis.reasons else "valid",
        analysis.reasons,
        analysis.answer,
        details=[analysis.explanation],
        conditions=analysis.simulated,
    )
    return analysis
