"""Session subprocess: start it, follow it, stop it, and show its progress on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workbench.console import terminal
from workbench.core import signals
from workbench.core.child_process import ChildProcess
from workbench.core.formats import format_duration
from workbench.spark import jvm
from workbench.speedup.recording import query_session

POLL_S = 0.25
# Time that Spark has to end after SIGTERM.
GRACE_S = 5.0
MAX_TAIL_CHARS = 1500
NOISE = ("WARN", "Setting default log level", "To adjust logging level", "Using Spark's default log4j")
Json = dict[str, Any]


_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}


@dataclass(frozen=True)
class SessionEnd:
    """How a session's process ended: its executions, its facts (null if it failed), and the error."""

    executions: list[Json]
    facts: Json | None
    error: str | None


def run_session(
    plan: query_session.SessionPlan, *, timeout_s: float, on_execution: Callable[[Json], None], local: bool
) -> SessionEnd:
    """Run one session in a process of its own."""
    folder = Path(plan.folder)
    (folder / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
    environment = os.environ | jvm.build_spark_environment() | (_LOOPBACK if local else {})
    command = [sys.executable, "-m", query_session.__name__, str(folder / "plan.json")]
    executions: list[Json] = []
    # Half of the grace period is for SIGTERM, so that Spark can remove its files.
    child = ChildProcess(command, cwd=folder, env=environment, output=folder / "output.txt")
    try:
        is_hung = _watch_executions(child, folder / query_session.EXECUTIONS, executions, on_execution, timeout_s)
    finally:
        with signals.ignore_signals():
            child.end(grace_s=2 * GRACE_S)
    facts = _read_session_facts(folder)
    if is_hung:
        return SessionEnd(executions, None, f"killed: it took longer than {timeout_s:,.0f} s (--session-timeout)")
    if child.exit_code or facts is None:
        error = f"ended with {child.exit_code}: {_read_output_tail(folder / 'output.txt')}"
        return SessionEnd(executions, None, error)
    return SessionEnd(executions, facts, None)


def _watch_executions(
    child: ChildProcess,
    path: Path,
    rows: list[Json],
    on_execution: Callable[[Json], None],
    timeout_s: float,
) -> bool:
    """Pass on the executions until the process ends; true if it runs into the time limit."""
    until = time.monotonic() + timeout_s
    lines = _iterate_new_lines(path)
    while True:
        has_ended = not child.is_running
        for line in next(lines):
            rows.append(json.loads(line))
            on_execution(rows[-1])
        if has_ended:
            return False
        if time.monotonic() > until:
            return True
        child.wait(POLL_S)


def _iterate_new_lines(path: Path) -> Iterator[list[str]]:
    """Yields, each time, the complete lines added to the file."""
    position = 0
    while True:
        text = b""
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(position)
            text = file.read()
        complete_text = text[: text.rfind(b"\n") + 1]
        position += len(complete_text)
        yield complete_text.decode("utf-8", "replace").splitlines()


def _read_session_facts(folder: Path) -> Json | None:
    try:
        facts = json.loads((folder / query_session.FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _read_output_tail(path: Path) -> str:
    """The last informative lines of the output."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    messages = [line.strip() for line in lines if line.strip() and not any(noise in line for noise in NOISE)]
    return " | ".join(messages[-6:])[-MAX_TAIL_CHARS:] or "no output"


class ProgressClock:
    """Progress of a recording, and the remaining time at the pace so far."""

    def __init__(self, n_executions: int, n_queries: int) -> None:
        self.n_executions = n_executions
        self.n_queries = n_queries
        self.done = 0
        self._started = time.monotonic()

    def estimate_left_s(self) -> float | None:
        """Seconds until the end at the mean pace so far; null before the first execution."""
        if not self.done:
            return None
        return (time.monotonic() - self._started) / self.done * (self.n_executions - self.done)

    def format_left_time(self) -> str:
        """The remaining time as text; empty before the first execution."""
        remaining_s = self.estimate_left_s()
        return "" if remaining_s is None else f", about {format_duration(remaining_s)} left"


class ProgressLines(terminal.StatusLines):
    """One line per start and end of a session, end of a pass and failed query, for logs and pipes."""

    def __init__(self, clock: ProgressClock) -> None:
        super().__init__()
        self._clock = clock
        self._name = ""

    def start_session(self, label: str, number: int, place: str) -> None:
        """A session starts; `place` is its number out of all."""
        self._name = f"{place}: {label} {number}"
        self.say(f"{self._name} starts{self._clock.format_left_time()}")

    def note_execution(self, row: dict[str, Any]) -> None:
        """An execution ended."""
        if row["status"] == "failed":
            self.say(f"{self._name}, pass {row['pass']}: {row['query']} failed: {row['error']}")
        if row["position"] == self._clock.n_queries:
            self.say(f"{self._name}, pass {row['pass']} done{self._clock.format_left_time()}")

    def end_session(self, text: str) -> None:
        """A session ended."""
        self.say(f"{self._name}: {text}")


class ProgressBar:
    """One bar over all executions, with session, pass and last query."""

    def __init__(self, clock: ProgressClock) -> None:
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
        """Stop updating the bar."""
        self._progress.stop()

    def start_session(self, label: str, number: int, place: str) -> None:
        """A session starts."""
        self._name = f"{place}: {label} {number}"
        self._update_bar(f"starts{self._clock.format_left_time()}")

    def note_execution(self, row: dict[str, Any]) -> None:
        """An execution ended."""
        if row["status"] == "failed":
            self.say(f"{self._name}, pass {row['pass']}: {row['query']} failed: {row['error']}")
        self._update_bar(f"pass {row['pass']}, {row['query']}{self._clock.format_left_time()}")

    def end_session(self, text: str) -> None:
        """A session ended."""
        self.say(f"{self._name}: {text}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def _update_bar(self, description: str) -> None:
        from rich.markup import escape

        self._progress.update(
            self._task, completed=self._clock.done, description=escape(description), name=escape(self._name)
        )


ProgressView = ProgressLines | ProgressBar


def open_progress(clock: ProgressClock) -> ProgressView:
    """A bar if stderr is a terminal, or else lines."""
    return ProgressBar(clock) if sys.stderr.isatty() else ProgressLines(clock)
