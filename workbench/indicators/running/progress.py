"""How far a session is, on stderr: a bar on a terminal, a line a round anywhere else."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from workbench import lines

_ORDER = ("FASTER", "SLOWER", "SAME", "UNDECIDED")


class Watcher(Protocol):
    """What a session tells while it runs."""

    def preparing(self, what: str, done: int, planned: int) -> None:
        """So many stacks of so many are solved, or installed."""

    def started(self, done: int, planned: int) -> None:
        """So many runs of so many are there already."""

    def ran(self, arm: str, case: str, status: str) -> None:
        """A run has ended."""

    def round_ended(self, number: int, most: int, verdicts: Mapping[str, int] | None) -> None:
        """A round is whole; verdicts so far where they were asked for."""

    def noted(self, text: str) -> None:
        """Something that is told once."""


class Silent:
    """Says nothing."""

    def preparing(self, what: str, done: int, planned: int) -> None:
        """Nothing."""

    def started(self, done: int, planned: int) -> None:
        """Nothing."""

    def ran(self, arm: str, case: str, status: str) -> None:
        """Nothing."""

    def round_ended(self, number: int, most: int, verdicts: Mapping[str, int] | None) -> None:
        """Nothing."""

    def noted(self, text: str) -> None:
        """Nothing."""


class Lines(lines.Lines):
    """A line a round, with what failed in it."""

    def __init__(self) -> None:
        super().__init__()
        self._failed: Counter[str] = Counter()
        self._runs = 0

    def preparing(self, what: str, done: int, planned: int) -> None:
        """So many stacks of so many are solved, or installed."""
        if done == planned:
            self.say(f"{planned} stacks {what}")

    def started(self, done: int, planned: int) -> None:
        """So many runs of so many are there already."""
        self.say(f"{planned} runs at most" + (f", {done} are there already" if done else ""))

    def ran(self, arm: str, case: str, status: str) -> None:
        """A run has ended."""
        self._runs += 1
        if status != "ok":
            self._failed[f"{arm}, {case}: {status}"] += 1

    def round_ended(self, number: int, most: int, verdicts: Mapping[str, int] | None) -> None:
        """A round is whole; verdicts so far where they were asked for."""
        told = f"round {number} of at most {most}: {self._runs} runs"
        if verdicts is not None:
            told += f"; {_counted(verdicts)}"
        self.say("; ".join([told, *(f"{what} ({count})" for what, count in self._failed.items())]))
        self._failed.clear()
        self._runs = 0

    def noted(self, text: str) -> None:
        """Something that is told once."""
        self.say(text)


class Bar(Lines):
    """One bar: runs done of all, what runs now, verdicts so far."""

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
        # Drawn once a second, on the workbench's own core: more would be work beside the measured one.
        self._progress = Progress(*columns, console=Console(stderr=True), refresh_per_second=1)
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bar as it is and give the terminal back."""
        self._progress.stop()

    def preparing(self, what: str, done: int, planned: int) -> None:
        """So many stacks of so many are solved, or installed."""
        self._progress.update(self._task, total=planned, completed=done, description=f"stacks {what}")

    def started(self, done: int, planned: int) -> None:
        """So many runs of so many are there already."""
        self._progress.update(self._task, total=planned, completed=done, description="")

    def ran(self, arm: str, case: str, status: str) -> None:
        """A run has ended."""
        self._progress.advance(self._task)
        if status != "ok":
            self.say(f"{arm}, {case}: {status}")

    def round_ended(self, number: int, most: int, verdicts: Mapping[str, int] | None) -> None:
        """A round is whole; verdicts so far where they were asked for."""
        told = f"round {number} of at most {most}" + (f"; {_counted(verdicts)}" if verdicts is not None else "")
        self._progress.update(self._task, description=told)

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._progress.console.print(lines.harmless(line), markup=False, highlight=False)


def watcher() -> Lines:
    """A bar when stderr is a terminal, else lines."""
    return Bar() if sys.stderr.isatty() else Lines()


def _counted(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{verdicts.get(name, 0)} {name}" for name in _ORDER)
