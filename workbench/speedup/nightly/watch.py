"""The last run of a job against its week: verdict, causes, answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import polars as pl

from workbench.core.errors import InputError
from workbench.core.formats import fit_answer, format_items
from workbench.eventlog.reader import Progress, read_event_logs
from workbench.speedup import tables
from workbench.speedup.config import WatchConfig
from workbench.speedup.nightly.job_runs import (
    JobRun,
    build_night_rows,
    list_changed_settings,
    read_job_runs,
)
from workbench.speedup.nightly.night_causes import TASKS, UNEXPLAINED, book_causes, build_night
from workbench.speedup.nightly.night_change import MIN_NIGHTS, SLOWER, UNKNOWN, USUAL, NightChange, judge_night

# Shorter, for the sentence of the answer.
CAUSE_WORDS = {TASKS: "slower tasks"}
LAST, USUAL_NIGHT, LEFT_OUT = "last", "usual", "left out"


@dataclass(frozen=True)
class Watch:
    """Tables NIGHTS and NIGHT_CAUSES; `change` is null where the last run cannot be judged, for `reasons`."""

    nights: pl.DataFrame
    causes: pl.DataFrame
    change: NightChange | None
    last: JobRun
    reasons: tuple[str, ...]

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where the last run cannot be judged."""
        return "invalid" if self.reasons else "valid"

    @property
    def finding(self) -> str:
        """slower than usual, faster than usual, as usual, or not known."""
        return UNKNOWN if self.change is None else self.change.verdict

    @property
    def is_alarm(self) -> bool:
        """Whether a nightly check should fail: slower, failed queries, or not known."""
        return self.finding in (SLOWER, UNKNOWN) or self.last.n_failed_queries > 0

    @cached_property
    def answer(self) -> str:
        """The finding and its largest cause in one sentence."""
        if self.change is None:
            return fit_answer(f"Not known: {self.reasons[0]}.", "Not known, for the reasons below.")
        took = f"The last run took {self.change.wall_s:,.1f} s"
        usual = f"{self.change.low_s:,.1f} to {self.change.high_s:,.1f} s in {self.change.n} earlier runs"
        if self.finding == USUAL:
            return fit_answer(f"As usual: {took[0].lower()}{took[1:]} ({usual}).", f"{took}, as usual.")
        more = 100 * (self.change.wall_s / self.change.usual_s - 1)
        opening = f"{took}, {abs(more):.0f} % {'more' if more > 0 else 'less'} than usual ({usual})"
        short = f"{took}, {abs(more):.0f} % {'more' if more > 0 else 'less'} than usual"
        named = self.name_causes()
        return fit_answer(f"{opening}: {named}.", f"{short}: {named}.", f"{short}.")

    def name_causes(self) -> str:
        """The cause with most seconds in the direction of the change, and a second one if it has a third of these."""
        sign = 1 if self.change is not None and self.change.wall_s > self.change.usual_s else -1
        rows = [row for row in self.causes.to_dicts() if row["change_s"] * sign > 0]
        large = [row for row in rows[:2] if row["change_s"] * sign >= rows[0]["change_s"] * sign / 3]
        return " and ".join(f"{CAUSE_WORDS.get(row['cause'], row['cause'])} {row['change_s']:+,.1f} s" for row in large)

    @property
    def details(self) -> list[str]:
        """What was found of the largest causes, failed queries, and the smallest slowdown that would be seen."""
        sentences = []
        if self.change is not None and self.finding != USUAL:
            found = [row for row in self.causes.to_dicts() if row["found"]]
            sentences += [f"{row['cause']} ({row['change_s']:+,.1f} s): {row['found']}." for row in found[:3]]
        if self.last.n_failed_queries:
            sentences.append(f"{self.last.n_failed_queries} queries or jobs of it failed.")
        if self.change is not None:
            sentences.append(f"A slowdown below {100 * self.change.least_share:.0f} % would not be seen.")
        return sentences


def watch_job(config: WatchConfig, *, progress: Progress | None = None) -> Watch:
    """Judge the last run of a job by its earlier ones.

    Raises
    ------
    InputError
        No log, several jobs and none is named, or a single run.
    """
    runs = read_job_runs(config.logs, config.job, progress=progress)
    if len(runs) < 2:
        raise InputError(
            "a single run of this job",
            where=config.logs,
            found=runs[0].name,
            allowed=f"at least {MIN_NIGHTS} earlier ones",
        )
    return judge_runs(runs[-1 - config.nights :], nights_per_alarm=config.nights_per_alarm)


def judge_runs(runs: Sequence[JobRun], *, nights_per_alarm: float) -> Watch:
    """Judge the last of some runs by those before it."""
    *earlier, last = runs
    counted = [run for run in earlier if run.wall_s is not None]
    roles = {run.log: LEFT_OUT for run in earlier if run.wall_s is None} | {last.log: LAST}
    reasons: list[str] = []
    change: NightChange | None = None
    causes: list[dict[str, Any]] = []
    if last.wall_s is None:
        reasons.append(f"the log of the last run is not whole: {last.why_not}")
    else:
        walls = [run.wall_s for run in counted if run.wall_s is not None]
        change = judge_night(last.wall_s, walls, nights_per_alarm=nights_per_alarm)
        if change is None:
            lost = [f"{run.started} ({run.why_not})" for run in earlier if run.wall_s is None]
            left = f"; left out: {format_items(lost, 3)}" if lost else ""
            reasons.append(f"{len(counted)} earlier runs count, at least {MIN_NIGHTS} are needed{left}")
        else:
            usual = _find_usual_run(counted, change.usual_s)
            roles[usual.log] = USUAL_NIGHT
            nights = [build_night(read_event_logs(run.log)) for run in (last, usual)]
            causes = book_causes(nights[0], nights[1], list_changed_settings(last, counted))
            explained = sum(row["share"] or 0.0 for row in causes if row["cause"] not in UNEXPLAINED)
            change = change.judge_explained(explained)
    rows = build_night_rows(runs, roles)
    return Watch(tables.NIGHTS.frame(rows), tables.NIGHT_CAUSES.frame(causes), change, last, tuple(reasons))


def _find_usual_run(counted: Sequence[JobRun], usual_s: float) -> JobRun:
    """The run nearest the usual wall time, of those before the last."""
    return min(counted, key=lambda run: abs((run.wall_s or 0.0) - usual_s))
