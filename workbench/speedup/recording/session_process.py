"""Session subprocess: start it, follow it, stop it, and show its progress on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.console import terminal
from workbench.core import signals
from workbench.core.child_process import ChildProcess
from workbench.core.formats import format_duration
from workbench.core.journal import LineTail
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
    plan: query_session.SessionPlan,
    *,
    timeout_s: float,
    on_execution: Callable[[Json], None],
    local: bool,
    spark: str | None = None,
    module: ModuleType = query_session,
) -> SessionEnd:
    """Run one session in a process of its own.

    `spark`: Line of Spark beside the installed one. `module`: What the process runs.
    """
    folder = Path(plan.folder)
    (folder / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
    environment = os.environ | jvm.build_spark_environment(spark) | (_LOOPBACK if local else {})
    command = [sys.executable, "-m", module.__name__, str(folder / "plan.json")]
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
        # The last informative lines of the output.
        path = folder / "output.txt"
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64_000))
            lines = file.read().decode("utf-8", "replace").splitlines()
        messages = [line.strip() for line in lines if line.strip() and not any(noise in line for noise in NOISE)]
        output_tail = " | ".join(messages[-6:])[-MAX_TAIL_CHARS:] or "no output"
        error = f"ended with {child.exit_code}: {output_tail}"
        return SessionEnd(executions, None, error)
    return SessionEnd(executions, facts, None)


def _watch_executions(
    child: ChildProcess,
    path: Path,
    rows: list[Json],
    on_execution: Callable[[Json], None],
    timeout_s: float,
) -> bool:
    """Pass on each execution that the child records, until it ends; true if it exceeds the time limit."""
    until = time.monotonic() + timeout_s
    tail: LineTail[Json] = LineTail(path, json.loads)
    while True:
        has_ended = not child.is_running
        for row in tail.read_new():
            rows.append(row)
            on_execution(row)
        if has_ended:
            return False
        if time.monotonic() > until:
            return True
        child.wait(POLL_S)


def _read_session_facts(folder: Path) -> Json | None:
    try:
        facts = json.loads((folder / query_session.FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


class RecordingProgress:
    """Progress of a recording as status lines, with the remaining time at the pace so far."""

    def __init__(self, status: terminal.StatusLines, n_executions: int, n_queries: int) -> None:
        self.say = status.say
        self.done = 0
        self._status = status
        self._n_executions = n_executions
        self._n_queries = n_queries
        self._started = time.monotonic()
        self._name = ""

    def start_session(self, label: str, number: int, place: str) -> None:
        """A session starts; `place` is its number out of all."""
        self._name = f"{place}: {label} {number}"
        self._status.show(f"{self._name} starts{self._format_left_time()}")

    def note_execution(self, row: dict[str, Any]) -> None:
        """An execution ended: show the progress, and say at once that a query failed.

        `row`: Line of executions.jsonl: `pass` from 1, `position` in its pass from 1, `query`, `status`, `error` (null
        if ok). The line with the last position ends its pass, and is always shown.
        """
        self.done += 1
        name = f"{self._name}, pass {row['pass']}"
        if row["status"] == "failed":
            self.say(f"{name}: {row['query']} failed: {row['error']}")
        if row["position"] == self._n_queries:
            self._status.show(f"{name} done{self._format_left_time()}")
        else:
            self._status.show_when_due(f"{name}: {self.done} of {self._n_executions}{self._format_left_time()}")

    def end_session(self, text: str) -> None:
        """A session ended."""
        self.say(f"{self._name}: {text}")

    def _format_left_time(self) -> str:
        """The remaining time as text; empty before the first execution."""
        if not self.done:
            return ""
        left_s = (time.monotonic() - self._started) / self.done * (self._n_executions - self.done)
        return f", about {format_duration(left_s)} left"
