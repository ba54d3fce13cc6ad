"""Protocol of an area's notebook: from inputs to an answer, a verdict, key numbers, next steps and checks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from workbench.core.errors import BrokenInvariantError
from workbench.report.display import CellDisplay, KeyNumber, headline, table
from workbench.runs.run_folder import RUN_PLACE_VARIABLE, Run

if TYPE_CHECKING:
    import polars as pl

# Where a step says what the word in its command stands for.
RUN_NOTE = " (RUN: this report's folder)"
_RUN_WORD = re.compile(r"\bRUN\b((?:/[\w.-]+)*)")


class Study(Protocol):
    """The result that `build_study(config, run)` of an area returns; its notebook and report show it."""

    @property
    def answer(self) -> str:
        """One sentence of at most 90 characters: number with unit, interval, decision; no brackets."""

    @property
    def details(self) -> Sequence[str]:
        """Sentences below the answer: what it rests on and what qualifies it; may be empty."""

    @property
    def conditions(self) -> Sequence[str]:
        """What was not real, in two or three words each: "simulated service"; empty where all is measured."""

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid when something else than the measured effect may explain the figure."""

    @property
    def reasons(self) -> Sequence[str]:
        """Reasons why it is invalid; empty when it is valid."""

    def key_numbers(self) -> Sequence[KeyNumber]:
        """Three to five key numbers: (label, value, unit, note)."""

    def next_steps(self) -> Sequence[str]:
        """Next steps, at most three sentences: a decision, or the next command."""

    def check(self) -> pl.DataFrame:
        """The invariants, one row each.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """


def show_answer(study: Study, run: Run | None = None, *, question: str | None = None) -> CellDisplay:
    """The headline of a study: answer, verdict with reasons, key numbers, next steps.

    `run`: The run, whose inputs may be recorded samples: a chip says so. `question`: Title of the report; the
    notebook's first heading without it.
    """
    return headline(
        question=question,
        answer=study.answer,
        verdict=study.verdict,
        reasons=study.reasons,
        details=study.details,
        conditions=study.conditions if run is None else run.list_conditions(study.conditions),
        key_numbers=study.key_numbers(),
        next_steps=[name_run_folder(step, os.environ.get(RUN_PLACE_VARIABLE, "")) for step in study.next_steps()],
    )


def name_run_folder(step: str, place: str) -> str:
    """A next step whose commands name this report's folder, where a command could have named it; else as it is.

    >>> name_run_folder("Plan: `workbench run capacity_plan -p sizing=RUN` (RUN: this report's folder).", "runs/a 1")
    "Plan: `workbench run capacity_plan -p sizing='runs/a 1'`."
    """
    if not place:
        return step

    def fill(command: re.Match[str]) -> str:
        return _RUN_WORD.sub(lambda word: shlex.quote(f"{place}{word[1]}"), command[0])

    return re.sub(r"`[^`]*`", fill, step.replace(RUN_NOTE, ""))


def conclude(run: Run, study: Study) -> CellDisplay:
    """Check the invariants, write the verdict to the run's record, and show the checks.

    Raises
    ------
    BrokenInvariantError
        An invariant does not hold; the run has no verdict then.
    """
    checks = study.check()
    run.conclude(study.verdict, study.reasons, study.answer, details=study.details, conditions=study.conditions)
    return table(checks, caption=f"All {checks.height} checks hold", limit=40, folded=True)


def check_invariants(rows: Iterable[tuple[str, float] | tuple[str, float, float]]) -> pl.DataFrame:
    """Check invariants; returns them as a table.

    `rows`: For each: what is measured, its value, and the allowed maximum (0 when left out). NaN never holds.

    Returns: One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.

    >>> check_invariants([("runs that are counted twice", 0), ("distance from the sum", 1e-9, 1e-6)])["holds"].all()
    True
    >>> check_invariants([("runs that are counted twice", 2)])
    Traceback (most recent call last):
    ...
    workbench.core.errors.BrokenInvariantError: an invariant does not hold
      where: runs that are counted twice
      found: 2
      allowed: at most 0
    """
    import polars as pl

    schema = {"check": pl.String, "found": pl.Float64, "allowed": pl.Float64}
    full_rows = [(*row, 0.0)[:3] for row in rows]
    checks = pl.DataFrame(
        [(name, float(value), float(limit)) for name, value, limit in full_rows], schema, orient="row"
    )
    # Polars orders NaN above all numbers, so it never holds.
    checks = checks.with_columns(holds=pl.col("found") <= pl.col("allowed"))
    if (broken := checks.filter(~pl.col("holds"))).height:
        row = broken.row(0, named=True)
        raise BrokenInvariantError(
            "an invariant does not hold",
            where=row["check"],
            found=f"{row['found']:g}",
            allowed=f"at most {row['allowed']:g}",
        )
    return checks
