"""What the notebook shows: a session, how its stacks differ, which one to use, and whether that may be believed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from workbench.display import KeyNumber
from workbench.indicators import next_steps
from workbench.indicators.contract import Case, Indicator
from workbench.indicators.effects import Compared, compared
from workbench.indicators.invariants import check_study
from workbench.indicators.key_numbers import of_recommendation
from workbench.indicators.mixing import Mixing
from workbench.indicators.notebook_config import NotebookConfig
from workbench.indicators.observations import observed
from workbench.indicators.recommending.recommendation import recommend
from workbench.indicators.recommending.result import Recommendation
from workbench.indicators.recommending.tables import EXCLUDED, JUSTIFICATIONS, RECOMMENDATIONS
from workbench.indicators.tables import CHECKS, DRIFT, EFFECTS, JUDGEMENTS, OBSERVATIONS, RUNS

if TYPE_CHECKING:
    from workbench.runs import Run
    from workbench.tables import Table


@dataclass(frozen=True)
class Study:
    """A question, the session that answers it, and what follows.

    Attributes
    ----------
    config
        What was asked for.
    found
        The session with effects, drift and judgement.
    recommendation
        The stack to use, with all that justifies it.
    """

    config: NotebookConfig
    found: Compared
    recommendation: Recommendation

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        said = self.recommendation.answer.sentence
        return f"{said[:1].upper()}{said[1:]}. Over {self.mix}."

    @property
    def mix(self) -> str:
        """The weights in words."""
        return str(self.recommendation.mix)

    @property
    def weighed(self) -> tuple[str, ...]:
        """The metrics of the mix: where a chart has not room for all, it shows these."""
        return tuple(self.recommendation.mix.weights)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why nothing may be concluded; empty when something may."""
        return () if self.found.valid else tuple(self.found.judgement["reasons"][0])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the session."""
        session = self.found.observed.session
        judged = self.found.judgement.row(0, named=True)
        runs = f"{judged['runs']} runs in {judged['rounds']} rounds, {judged['failed']} without values"
        where = f"{session.hardware.cpu_model}, {session.threads} thread(s), {session.created_at[:10]}"
        ended = f"; ended: {session.stop_reason}" if session.stop_reason else ""
        own = tuple(judged["reasons"]) if self.found.valid else ()
        return (f"Measured: {runs}, on {where}{ended}.", *session.notes, *own)

    @property
    def ranking(self) -> pl.DataFrame:
        """The recommendation as it is shown."""
        names = ("rank", "stack", "ratio", "low", "high", "p_best", "p_near", "regret_pct", "verdict", "n")
        return self.recommendation.table.select(*names)

    @property
    def excluded(self) -> pl.DataFrame:
        """The stacks that were left out, and why."""
        return self.recommendation.excluded.select("stack", "unit", "reason")

    @property
    def justification(self) -> pl.DataFrame:
        """The sentences, with how many runs stand behind each."""
        table = self.recommendation.justifications
        return table.select("type", "message", pl.col("runs").list.len().cast(pl.Int64).alias("n_runs"), "link")

    @property
    def mixing(self) -> Mixing:
        """The mix to be varied."""
        return Mixing(self.found, self.config.request)

    def key_numbers(self) -> list[KeyNumber]:
        """What stands below the answer."""
        return of_recommendation(self.found, self.recommendation)

    def next_steps(self) -> list[str]:
        """What to do next."""
        folder = "RUN/session" if self.config.live else "SESSION"
        return next_steps.of_recommendation(self.found, self.recommendation, folder, live=self.config.live)

    def tables(self) -> list[tuple[Table, pl.DataFrame]]:
        """What goes into the run folder."""
        raw, found, said = self.found.observed, self.found, self.recommendation
        tables = [(RUNS, raw.runs), (OBSERVATIONS, raw.values), (CHECKS, raw.checks)]
        tables += [(EFFECTS, found.effects), (DRIFT, found.drift), (JUDGEMENTS, found.judgement)]
        return [
            *tables,
            (RECOMMENDATIONS, said.table),
            (EXCLUDED, said.excluded),
            (JUSTIFICATIONS, said.justifications),
        ]

    def check(self) -> pl.DataFrame:
        """The invariants; raises when one is broken."""
        return check_study(self.found, self.recommendation)


def verdict(study: Study) -> Literal["valid", "invalid"]:
    """Is the run valid?"""
    return "valid" if study.found.valid else "invalid"


def study(config: NotebookConfig, run: Run, own: type[Indicator] | None = None) -> Study:
    """Measure or read a session, compare, recommend, and write the tables into the run folder.

    Parameters
    ----------
    config, run
        What is asked for, and where it is kept.
    own
        An indicator of the user's, measured beside those that are named; only live.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, or a folder holds no session.
    RunFailedError
        A stack cannot be installed.
    """
    request = config.request
    found = _measured(config, run, own) if config.live else _read(config, run)
    made = Study(config, found, recommend(found, request))
    for table, frame in made.tables():
        run.write_table(table, frame)
    return made


def _read(config: NotebookConfig, run: Run) -> Compared:
    folder = Path(config.session)
    found = compared(observed(folder))  # First: it says best what is no session.
    run.add_input(folder / "session.json")
    return found


def _measured(config: NotebookConfig, run: Run, own: type[Indicator] | None) -> Compared:
    from workbench.indicators.running import starting
    from workbench.indicators.running.progress import watcher
    from workbench.indicators.shipped.registry import case_of

    cases = [case_of(text) for text in config.indicators] + ([Case.of(own)] if own is not None else [])
    with watcher() as told:
        outcome = starting.start(config.measured, cases=cases, out=run.folder / "session", watcher=told)
    return outcome.compared
