"""Progress of a session on stderr: a bar on a terminal, otherwise a line per round."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from workbench.console import terminal
from workbench.core.formats import replace_controls
from workbench.stats.verdicts import VERDICTS


class SessionWatcher:
    """Receives the progress of a session, and ignores it unless a subclass says otherwise."""

    def report_preparation(self, stage: str, n_done: int, total: int) -> None:
        """Report how many stacks are solved or installed."""

    def report_start(self, n_done: int, total: int) -> None:
        """Report how many runs are done already."""

    def report_run(self, arm: str, case: str, status: str) -> None:
        """Report the end of a run."""

    def report_round(self, number: int, max_rounds: int, verdicts: Mapping[str, int] | None) -> None:
        """Report the end of a round, with the verdicts so far if they were counted."""

    def report_note(self, text: str) -> None:
        """Report a note."""


class RoundLines(terminal.StatusLines, SessionWatcher):
    """Prints one line per round, with its failed runs and the time that is left at most.

    `show_line`: Shows a line elsewhere than on stderr, such as below a cell.
    """

    def __init__(self, show_line: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self._show_line = show_line
        self._begun_s: float | None = None
        self._rounds = 0
        self._failed: Counter[str] = Counter()
        self._runs = 0

    def report_preparation(self, stage: str, n_done: int, total: int) -> None:
        """Report how many stacks are solved or installed."""
        if n_done == total:
            self.say(f"{total} stacks {stage}")

    def report_start(self, n_done: int, total: int) -> None:
        """Report how many runs are done already."""
        self._begun_s = time.monotonic()
        self.say(f"{total} runs at most" + (f", {n_done} done already" if n_done else ""))

    def report_run(self, arm: str, case: str, status: str) -> None:
        """Report the end of a run."""
        self._runs += 1
        if status != "ok":
            self._failed[f"{arm}, {case}: {status}"] += 1

    def report_round(self, number: int, max_rounds: int, verdicts: Mapping[str, int] | None) -> None:
        """Report the end of a round, with the verdicts so far if they were counted."""
        line = f"round {number} of at most {max_rounds}: {self._runs} runs{self._format_time_left(number, max_rounds)}"
        if verdicts is not None:
            line += f"; {_format_verdicts(verdicts)}"
        self.say("; ".join([line, *(f"{failure} ({count})" for failure, count in self._failed.items())]))
        self._failed.clear()
        self._runs = 0

    def _format_time_left(self, number: int, max_rounds: int) -> str:
        """Time of the rounds that may follow, from those that this process has made; empty for the last round."""
        self._rounds += 1
        if self._begun_s is None or number >= max_rounds:
            return ""
        left_s = (time.monotonic() - self._begun_s) / self._rounds * (max_rounds - number)
        return f", at most {left_s:.0f} s left" if left_s < 120 else f", at most {left_s / 60:.0f} min left"

    def report_note(self, text: str) -> None:
        """Report a note."""
        self.say(text)

    def say(self, line: str) -> None:
        """A line that stays, or the new status where `show_line` has room for one."""
        super().say(line) if self._show_line is None else self._show_line(replace_controls(line))


class RoundBar(RoundLines):
    """A progress bar with the verdicts so far."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        # Once a second: more updates would disturb the measured runs.
        self._progress = Progress(*columns, console=Console(stderr=True), refresh_per_second=1)
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar."""
        self._progress.stop()

    def report_preparation(self, stage: str, n_done: int, total: int) -> None:
        """Report how many stacks are solved or installed."""
        self._progress.update(self._task, total=total, completed=n_done, description=f"stacks {stage}")

    def report_start(self, n_done: int, total: int) -> None:
        """Report how many runs are done already."""
        self._progress.update(self._task, total=total, completed=n_done, description="")

    def report_run(self, arm: str, case: str, status: str) -> None:
        """Report the end of a run."""
        self._progress.advance(self._task)
        if status != "ok":
            self.say(f"{arm}, {case}: {status}")

    def report_round(self, number: int, max_rounds: int, verdicts: Mapping[str, int] | None) -> None:
        """Report the end of a round, with the verdicts so far if they were counted."""
        verdict_text = "" if verdicts is None else f"; {_format_verdicts(verdicts)}"
        self._progress.update(self._task, description=f"round {number} of at most {max_rounds}{verdict_text}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(replace_controls(line), markup=False, highlight=False)


def select_watcher() -> RoundLines:
    """A bar if stderr is a terminal, else lines."""
    return RoundBar() if sys.stderr.isatty() else RoundLines()


def _format_verdicts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{verdicts.get(name, 0)} {name}" for name in VERDICTS)
