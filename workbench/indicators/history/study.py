"""The study of the history notebook: how each figure changed over time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from workbench.indicators.config import HistoryConfig
from workbench.indicators.history import history_summary
from workbench.indicators.history.history_points import FOLLOWED, load_history
from workbench.indicators.history.level_changes import HistoryAnalysis, analyse_history
from workbench.report.display import KeyNumber
from workbench.report.invariants import check_invariants
from workbench.stats.verdicts import FASTER, SLOWER

if TYPE_CHECKING:
    from workbench.runs.run_folder import Run


@dataclass(frozen=True)
class HistoryStudy:
    """The notebook's result; implements `workbench.report.study.Study`."""

    config: HistoryConfig
    analysis: HistoryAnalysis

    @property
    def answer(self) -> str:
        """What changed, in one or two sentences."""
        return history_summary.format_answer(self.analysis)

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid when too few sessions could show a change, or a regression is neither found nor excluded."""
        return "valid" if history_summary.is_known(self.analysis) else "invalid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is invalid."""
        return () if self.verdict == "valid" else (self.answer,)

    @property
    def notes(self) -> list[str]:
        """What was left out, and changes of the machine and of the control."""
        return history_summary.list_notes(self.analysis)

    @property
    def changes(self) -> pl.DataFrame:
        """Changes of followed stacks, the newest first."""
        changes = self.analysis.changes.filter(pl.col("kind") == FOLLOWED).sort("created_at", descending=True)
        return changes.drop("series", "kind").with_columns(pl.col("created_at").str.slice(0, 16))

    @property
    def series(self) -> pl.DataFrame:
        """The columns of the series that the notebook shows; those since the date only where there is one."""
        shown = ["metric", "stack", "cpu_model", "sessions", "last_at", "level", "level_low", "level_high", "changes"]
        shown += ["since_sessions", "ratio", "low", "high", "verdict"] if self.analysis.since is not None else []
        return self.analysis.series.select(shown).with_columns(pl.col("last_at").str.slice(0, 16))

    def key_numbers(self) -> list[KeyNumber]:
        """The key numbers below the answer."""
        return history_summary.list_key_numbers(self.analysis)

    def next_steps(self) -> list[str]:
        """At most three sentences on what to do next."""
        return history_summary.list_next_steps(self.analysis)

    def check(self) -> pl.DataFrame:
        """Check that figures lie in their intervals, and that sessions add up.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        series, changes = self.analysis.series, self.analysis.changes
        tolerance = pl.col("series").replace_strict(self.analysis.history.tolerances, return_dtype=pl.Float64)
        claims = changes.with_columns(margin=1 + tolerance)
        return check_invariants(
            [
                ("ratios outside their own interval", _count_outside(changes, "ratio", "low", "high")),
                ("levels outside their own interval", _count_outside(series, "level", "level_low", "level_high")),
                (
                    "claims whose interval reaches into the margin",
                    claims.filter((pl.col("verdict") == FASTER) & (pl.col("low") <= pl.col("margin"))).height
                    + claims.filter((pl.col("verdict") == SLOWER) & (pl.col("high") >= 1 / pl.col("margin"))).height,
                ),
                (
                    "points that no series counts",
                    abs(self.analysis.history.points.height - int(series["sessions"].sum())),
                ),
                ("changes that no series counts", abs(changes.height - int(series["changes"].sum()))),
            ]
        )


def _count_outside(table: pl.DataFrame, name: str, low: str, high: str) -> int:
    bounded = table.drop_nulls([name, low, high])
    return bounded.filter((pl.col(low) > pl.col(name)) | (pl.col(name) > pl.col(high))).height


def build_study(config: HistoryConfig, run: Run) -> HistoryStudy:
    """Read the points of a history, find its changes, and write the tables into the run folder.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, or the source has no figures that fit.
    """
    analysis = analyse_history(load_history(config.source or None, config.filter), since=config.since or None)
    if Path(config.source).is_file():
        run.add_input(config.source)
    study = HistoryStudy(config, analysis)
    for table, frame in analysis.tables:
        run.write_table(table, frame)
    return study
