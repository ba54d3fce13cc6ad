"""Protocol of an area's notebook: from inputs to an answer, a verdict, key numbers, next steps and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from workbench.report.display import CellDisplay, KeyNumber, headline, table

if TYPE_CHECKING:
    import polars as pl

    from workbench.runs.run_folder import Run


class Study(Protocol):
    """The result that `build_study(config, run)` of an area returns; its notebook and report show it."""

    @property
    def answer(self) -> str:
        """One sentence, two at most, with the figure and its interval."""

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid when something else than the measured effect may explain the figure."""

    @property
    def reasons(self) -> Sequence[str]:
        """Reasons why it is invalid; empty when it is valid."""

    def key_numbers(self) -> Sequence[KeyNumber]:
        """Three to five key numbers: (label, value, unit, note)."""

    def next_steps(self) -> Sequence[str]:
        """At most three sentences: a decision, or the next command."""

    def check(self) -> pl.DataFrame:
        """The invariants, one row each.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """


def show_answer(study: Study) -> CellDisplay:
    """The headline of a study: answer, verdict with reasons, key numbers, next steps."""
    return headline(
        answer=study.answer,
        verdict=study.verdict,
        reasons=study.reasons,
        key_numbers=study.key_numbers(),
        next_steps=study.next_steps(),
    )


def conclude(run: Run, study: Study) -> CellDisplay:
    """Check the invariants, write the verdict to the run's record, and show the checks.

    Raises
    ------
    BrokenInvariantError
        An invariant does not hold; the run has no verdict then.
    """
    checks = study.check()
    run.conclude(study.verdict, study.reasons, study.answer)
    return table(checks, caption="Invariants", limit=40)
