"""How far runs are, on stderr: a bar per notebook on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from workbench.runner import RunResult
    from workbench.runs import Run


class PlainLines:
    """A line when a notebook begins, when it comes to a new section, and when it ends: for logs and pipes."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    def started(self, run: Run, cells: int) -> None:
        """A notebook of so many cells begins."""
        self._say(f"{run.area}: {run.run_id}, {cells} cells")

    def cell(self, run: Run, index: int, label: str) -> None:
        """The cell at this index is next; told when it stands under another heading than the last."""
        if label and label != self._labels.get(run.run_id):
            self._labels[run.run_id] = label
            self._say(f"{run.area}: cell {index + 1}, {label}")

    def ended(self, result: RunResult) -> None:
        """It is over, for good or bad."""
        record = result.run.record
        took = "" if record["duration_s"] is None else f" after {record['duration_s']:.1f} s"
        self._say(f"{result.run.area}: {record['status']}{took}")

    def _say(self, line: str) -> None:
        # One write per line, since several threads speak.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Bars:
    """A bar for each notebook: cells done of all, the section it is in, the time it takes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.fields[name]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the bars as they are and give the terminal back."""
        self._progress.stop()

    def started(self, run: Run, cells: int) -> None:
        """A notebook of so many cells begins."""
        from rich.markup import escape

        self._tasks[run.run_id] = self._progress.add_task("", total=cells, name=escape(run.area))

    def cell(self, run: Run, index: int, label: str) -> None:
        """The cell at this index is next."""
        from rich.markup import escape

        self._progress.update(self._task(run), completed=index, description=escape(label[:50]))  # type: ignore[arg-type]

    def ended(self, result: RunResult) -> None:
        """It is over, for good or bad."""
        colour = "green" if result.exit_code == 0 else "red"
        text = f"[{colour}]{result.run.status}[/]"
        task = self._progress.tasks[self._task(result.run)]
        done = task.total if result.run.status == "succeeded" else task.completed
        self._progress.update(task.id, completed=done, description=text)

    def _task(self, run: Run) -> int:
        return self._tasks[run.run_id]


def watcher() -> PlainLines | Bars:
    """Bars when stderr is a terminal, else lines."""
    return Bars() if sys.stderr.isatty() else PlainLines()


def _silent(done: int, total: int) -> None:
    """Say nothing."""
    del done, total


@contextmanager
def counter(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to call with (done, of how many): one bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
