"""Progress of a test on stderr, and how a person stops it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from workbench.console import terminal
from workbench.core import signals
from workbench.core.formats import format_seconds
from workbench.scaletest.submission.abort_criteria import StopRequest
from workbench.scaletest.submission.plan_submission import SilentWatcher, SubmissionStatus

STOPPING = "stopping: nothing more is sent; Ctrl-C again ends it immediately"
ENDING = "ending immediately"
CHECK_EVERY_S = 0.1
_Made = TypeVar("_Made")


def format_status(live: SubmissionStatus) -> str:
    """Format the state of a submission as one line."""
    parts = [f"{live.acked:,} of {live.planned:,} accepted", f"{live.rate_per_s:.1f}/s"]
    if live.ack_p50_s is not None and live.ack_p95_s is not None:
        parts.append(f"p50 {format_seconds(live.ack_p50_s)}, p95 {format_seconds(live.ack_p95_s)}")
    parts.append(f"{live.in_flight} in flight")
    if live.pending_pods is not None:
        parts.append(f"{live.pending_pods:,} pods wait")
    if live.throttled:
        parts.append(f"{live.throttled:,} times 429, window {live.window}")
    if live.failed:
        parts.append(f"{live.failed:,} failed")
    return ", ".join(parts)


class SilentRunWatcher(SilentWatcher):
    """A watcher of a whole run that shows nothing."""

    def show_phase(self, text: str) -> None:
        """Show the beginning of a phase."""

    def show_drain(self, text: str) -> None:
        """Show the progress of a wait."""


class LineWatcher(terminal.StatusLines, SilentRunWatcher):
    """Watcher that prints lines now and then, for logs and pipes."""

    def show_phase(self, text: str) -> None:
        """Show the beginning of a phase."""
        self.show(text)

    def show_status(self, live: SubmissionStatus) -> None:
        """Show the submission's progress."""
        self.show_when_due(f"submitting: {format_status(live)}")

    def show_drain(self, text: str) -> None:
        """Show the progress of a wait."""
        self.show_when_due(text)


class StatusLineWatcher(LineWatcher, terminal.ChangingStatusLine):
    """Watcher with one changing line; messages stay above it."""

    every_s = terminal.DRAW_EVERY_S

    def show_status(self, live: SubmissionStatus) -> None:
        """Show the submission's progress."""
        n_filled = int(24 * live.acked / max(1, live.planned))
        self.show_when_due(f"{'━' * n_filled}{'╺' * (24 - n_filled)} {format_status(live)}")


def open_watcher() -> LineWatcher:
    """Open a watcher: a changing line if stderr is a terminal, else lines."""
    return StatusLineWatcher() if sys.stderr.isatty() else LineWatcher()


class NotBegunError(Exception):
    """The run was stopped before any object was created."""


async def run_until_stop(stop_request: StopRequest, work: Coroutine[Any, Any, _Made]) -> _Made | None:
    """The result of the coroutine; None if a stop request cancels it first."""
    task = asyncio.create_task(work)
    try:
        while not task.done() and not stop_request.times:
            await asyncio.wait({task}, timeout=CHECK_EVERY_S)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run_in_thread(
    body: Callable[[], Coroutine[Any, Any, _Made]], stop_request: StopRequest, watcher: SilentRunWatcher
) -> _Made:
    """Run in a thread with its own event loop: notebooks have a running one, and signals reach the main thread."""

    def on_signal(times: int) -> None:
        watcher.say(STOPPING if times == 1 else ENDING)

    try:
        return signals.run_in_thread(body, stop_request, on_signal, name="scale test")
    except NotBegunError:
        raise KeyboardInterrupt from None
