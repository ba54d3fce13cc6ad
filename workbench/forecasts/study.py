"""Study of the notebook on forecasts: a ledger, its scores, and the answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import polars as pl

from workbench.core.formats import fit_answer
from workbench.forecasts.config import NotebookConfig
from workbench.forecasts.ledger import default_ledger, read_ledger
from workbench.forecasts.scores import Scores, build_cases, score_cases
from workbench.forecasts.tables import FORECAST_SCORES, FORECASTS
from workbench.report.display import KeyNumber
from workbench.report.study import check_invariants
from workbench.runs.run_folder import Run

_DECISIONS = {
    "VALID": "as promised",
    "OVERCONFIDENT": "too few",
    "UNDERCONFIDENT": "more than promised",
    "UNDECIDED": "not decided",
}


@dataclass(frozen=True)
class Study:
    """The scores of a ledger; implements `workbench.report.study.Study`."""

    scored: Scores
    n_torn_bytes: int

    @property
    def answer(self) -> str:
        """How many intervals held, with the interval of their share, and whether that is as promised."""
        row = self.scored.overall
        if not row["n_matched"]:
            return f"None of {row['n_forecasts']} forecasts has an outcome that counts."
        if not row["n_intervals"]:
            return f"{row['n_matched']} of {row['n_forecasts']} forecasts have an outcome, none an interval."
        held = f"{row['n_covered']} of {row['n_intervals']} intervals held: {100 * row['coverage']:.0f} %"
        ends = f"{100 * row['coverage_low']:.0f} to {100 * row['coverage_high']:.0f} %"
        decision = f"{100 * row['level']:.0f} % promised, {_DECISIONS[row['verdict']]}"
        return fit_answer(f"{held}, {ends}; {decision}.", f"{held}, {ends}; {_DECISIONS[row['verdict']]}.", f"{held}.")

    @property
    def details(self) -> list[str]:
        """The counts, the groups that the interval counts, and what was known before."""
        torn = f"The last line was cut ({self.n_torn_bytes} bytes) and is left out." if self.n_torn_bytes else ""
        return [text for text in (self.scored.answer, torn) if text]

    @property
    def conditions(self) -> tuple[str, ...]:
        """Outcomes that may have been known when the forecasts were kept."""
        row = self.scored.overall
        known, matched = row["n_retrospective"], row["n_matched"]
        if not known:
            return ()
        return ("outcomes known before",) if known == matched else (f"{known} of {matched} outcomes known before",)

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where no forecast has an outcome that counts."""
        return "invalid" if self.scored.reasons else "valid"

    @property
    def reasons(self) -> list[str]:
        """Why the ledger says nothing yet."""
        return self.scored.reasons

    def key_numbers(self) -> list[KeyNumber]:
        """Key numbers: intervals that held, the error, the groups of runs, forecasts without an outcome."""
        row = self.scored.overall
        error = row["mean_absolute_log_error"]
        return [
            ("intervals that held", row["n_covered"], f"of {row['n_intervals']}", "they contain the outcome"),
            ("typical error", None if error is None else 100 * math.expm1(error), "%", f"{row['n_errors']} forecasts"),
            ("groups of runs", row["n_runs"], "", "errors within a group go together"),
            ("open", row["n_open"], f"of {row['n_forecasts']}", "forecasts without an outcome"),
        ]

    def next_steps(self) -> list[str]:
        """At most three sentences: match what is open, keep more runs, mend intervals that are too narrow."""
        row = self.scored.overall
        advice = {
            "UNDECIDED": "Keep forecasts of more runs: those of one run share their errors, so they decide little.",
            "OVERCONFIDENT": "The intervals are too narrow: plan with wider ones. The chart by area shows where.",
            "UNDERCONFIDENT": "The intervals are wider than necessary: more measured runs narrow them.",
            "VALID": "Plan with the ends of the intervals: they hold as often as promised.",
        }
        steps = [advice[row["verdict"]]] if row["n_intervals"] else []
        if row["n_open"]:
            are = "forecast is" if row["n_open"] == 1 else "forecasts are"
            steps.append(f"{row['n_open']} {are} open: after a run that measures it, `workbench forecast match RUN`.")
        return [*steps, "Keep your own forecasts before you measure: `workbench forecast add RUN`."]

    def check(self) -> pl.DataFrame:
        """Check that the counts add up, and that each coverage lies within its interval.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        scores = self.scored.scores
        counted = pl.sum_horizontal("n_open", "n_matched", "n_failed", "n_invalid")
        areas = scores.head(-1)
        outside = (pl.col("coverage") < pl.col("coverage_low")) | (pl.col("coverage") > pl.col("coverage_high"))
        return check_invariants(
            [
                ("forecasts in no state, or in two", scores.filter(counted != pl.col("n_forecasts")).height),
                ("forecasts of no area", abs(int(areas["n_forecasts"].sum()) - self.scored.overall["n_forecasts"])),
                (
                    "more intervals than matched forecasts",
                    scores.filter(pl.col("n_intervals") > pl.col("n_matched")).height,
                ),
                ("coverage outside its own interval", scores.filter(outside).height),
                ("rows of no forecast", abs(self.scored.forecasts.height - self.scored.overall["n_forecasts"])),
            ]
        )


def build_study(config: NotebookConfig, run: Run) -> Study:
    """Read a ledger, score its forecasts, and write the tables into the run folder.

    Raises
    ------
    InputError
        There is no ledger, or a line of it is none.
    """
    path = config.ledger or default_ledger()
    ledger = read_ledger(path)
    run.add_input(path)
    study = Study(score_cases(build_cases(ledger, in_time=config.in_time)), ledger.n_torn_bytes)
    for table, frame in ((FORECASTS, study.scored.forecasts), (FORECAST_SCORES, study.scored.scores)):
        run.write_table(table, frame)
    return study
