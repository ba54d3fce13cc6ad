"""Terminal output of commands: safe printing, status lines, progress bars."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from workbench.console.screen import arrange_text, is_terminal
from workbench.core.formats import replace_controls

if TYPE_CHECKING:
    from workbench.execution.runner import RunResult
    from workbench.runs.run_folder import Run

LINE_EVERY_S = 10.0
DRAW_EVERY_S = 0.25


def print_text(text: str, *, err: bool = False, wrap: bool = True) -> None:
    """Print untrusted text; what a program reads is not to `wrap`."""
    # Lone surrogates, which JSON can hold, cannot be written.
    clean_text = replace_controls(text.encode("utf-8", "replace").decode())
    stream = sys.stderr if err else sys.stdout
    typer.echo(arrange_text(clean_text, on_terminal=is_terminal(stream)) if wrap else clean_text, err=err)


def print_block(text: str) -> None:
    """Print untrusted text below a blank line, such as a table."""
    print_text(f"\n{text}")


class StatusLines:
    """Status output as lines, for logs and pipes; areas add their own events."""

    every_s = LINE_EVERY_S

    def __init__(self) -> None:
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    def say(self, line: str) -> None:
        """A line that stays."""
        # A single write, since several threads write.
        sys.stderr.write(replace_controls(line) + "\n")
        sys.stderr.flush()

    def delay(self) -> None:
        """The next status is due after `every_s` seconds."""
        self._next = time.monotonic() + self.every_s

    def show(self, line: str) -> None:
        """Show a new status now."""
        self.delay()
        self.say(line)

    def show_when_due(self, line: str) -> None:
        """Show the status, at most every `every_s` seconds."""
        if time.monotonic() >= self._next:
            self.show(line)


class ChangingStatusLine(StatusLines):
    """Status output on a terminal: one line that changes, below the lines that stay."""

    every_s = DRAW_EVERY_S

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        # No auto refresh: its thread would delay requests.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        self._live.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        from rich.text import Text

        self._draw("")
        self._console.print(Text(replace_controls(line)), soft_wrap=True)

    def show(self, line: str) -> None:
        """Show a new status now."""
        self.delay()
        self._draw(line)

    def _draw(self, line: str) -> None:
        from rich.text import Text

        self._live.update(Text(replace_controls(line), no_wrap=True, overflow="ellipsis"), refresh=True)


def open_status() -> StatusLines:
    """A changing line if stderr is a terminal, else lines."""
    return ChangingStatusLine() if sys.stderr.isatty() else StatusLines()


class PlainRunProgress(StatusLines):
    """Progress of runs as lines, for logs and pipes: start, new sections, end."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: dict[str, str] = {}

    def on_run_start(self, run: Run, cells: int) -> None:
        """A run starts; `cells` is the number of cells."""
        self.say(f"{run.area}: {run.run_id}, {cells} cells")

    def on_cell(self, run: Run, index: int, label: str) -> None:
        """The cell at this index is next; printed when its heading is a new one."""
        if label and label != self._labels.get(run.run_id):
            self._labels[run.run_id] = label
            self.say(f"{run.area}: cell {index + 1}, {label}")

    def on_run_end(self, result: RunResult) -> None:
        """A run has ended."""
        record = result.run.record
        took = "" if record["duration_s"] is None else f" after {record['duration_s']:.1f} s"
        self.say(f"{result.run.area}: {record['status']}{took}")


class RunProgressBars:
    """Progress of runs as bars: cells done, section, time."""

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
        """Stop drawing."""
        self._progress.stop()

    def on_run_start(self, run: Run, cells: int) -> None:
        """A run starts; `cells` is the number of cells."""
        from rich.markup import escape

        self._tasks[run.run_id] = self._progress.add_task("", total=cells, name=escape(run.area))

    def on_cell(self, run: Run, index: int, label: str) -> None:
        """The cell at this index is next."""
        from rich.markup import escape

        self._progress.update(self._find_task(run), completed=index, description=escape(label[:50]))  # type: ignore[arg-type]

    def on_run_end(self, result: RunResult) -> None:
        """A run has ended."""
        colour = "green" if result.exit_code == 0 else "red"
        text = f"[{colour}]{result.run.status}[/]"
        task = self._progress.tasks[self._find_task(result.run)]
        n_completed = task.total if result.run.status == "succeeded" else task.completed
        self._progress.update(task.id, completed=n_completed, description=text)

    def _find_task(self, run: Run) -> int:
        return self._tasks[run.run_id]


def create_run_progress() -> PlainRunProgress | RunProgressBars:
    """Bars on a terminal, else lines."""
    return RunProgressBars() if sys.stderr.isatty() else PlainRunProgress()


@contextmanager
def show_progress_count(description: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with (done, total); shows a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=None)
        yield lambda n_done, total: progress.update(task, completed=n_done, total=total)
