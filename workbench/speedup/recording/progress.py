"""How far a recording is, on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from workbench import lines
from workbench.formats import duration


class Clock:
    """What is left, from the pace so far of this call."""

    def __init__(self, n_executions: int, n_queries: int) -> None:
        self.n_executions = n_executions
        self.n_queries = n_queries
        self.done = 0
        self._started = time.monotonic()

    def left_s(self) -> float | None:
        """Seconds until the end, at the mean pace so far; null before the first execution."""
        if not self.done:
            return None
        return (time.monotonic() - self._started) / self.done * (self.n_executions - self.done)

    def text(self) -> str:
        """The same for people."""
        left = self.left_s()
        return "" if left is None else f", about {duration(left)} left"


class Lines(lines.Lines):
    """A line when a session begins, a pass ends, a query fails, a session ends: for logs and pipes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._name = ""

    def started(self, label: str, number: int, place: str) -> None:
        """A session begins; `place` says which of how many."""
        self._name = f"{place}: {label} {number}"
        self.say(f"{self._name} starts{self._clock.text()}")

    def executed(self, row: dict[str, Any]) -> None:
        """A query was executed, or failed."""
        if row["status"] == "failed":
            self.say(f"{self._name}, pass {row['pass']}: {row['query']} failed: {row['error']}")
        if row["position"] == self._clock.n_queries:
            self.say(f"{self._name}, pass {row['pass']} done{self._clock.text()}")

    def ended(self, text: str) -> None:
        """A session is over."""
        self.say(f"{self._name}: {text}")


class Bar:
    """One bar over all executions, with the session, the pass and the query that ran last."""

    def __init__(self, clock: Clock) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._clock = clock
        self._name = ""
        columns = (TextColumn("{task.fields[name]}"), BarColumn(bar_width=24), MofNCompleteColumn())
        self._progress = Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True))
        self._task = self._progress.add_task("", total=clock.n_executions, name="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bar as it is and give the terminal back."""
        self._progress.stop()

    def started(self, label: str, number: int, place: str) -> None:
        """A session begins."""
        self._name = f"{place}: {label} {number}"
        self._show(f"starts{self._clock.text()}")

    def executed(self, row: dict[str, Any]) -> None:
        """A query was executed, or failed."""
        if row["status"] == "failed":
            self.say(f"{self._name}, pass {row['pass']}: {row['query']} failed: {row['error']}")
        self._show(f"pass {row['pass']}, {row['query']}{self._clock.text()}")

    def ended(self, text: str) -> None:
        """A session is over."""
        self.say(f"{self._name}: {text}")

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def _show(self, description: str) -> None:
        from rich.markup import escape

        self._progress.update(
            self._task, completed=self._clock.done, description=escape(description), name=escape(self._name)
        )


Watcher = Lines | Bar


def watcher(clock: Clock) -> Watcher:
    """A bar when stderr is a terminal, else lines."""
    return Bar(clock) if sys.stderr.isatty() else Lines(clock)
