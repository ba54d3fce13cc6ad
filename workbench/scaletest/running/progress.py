"""How far a test is, on stderr: a line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from workbench import lines
from workbench.formats import seconds
from workbench.scaletest.driving import Live

STOPPING = "stopping: nothing more is sent; Ctrl-C again ends it at once"
ENDING = "ending at once"


def figures(live: Live) -> str:
    """A submission at a moment, in a line."""
    parts = [f"{live.acked:,} of {live.planned:,} accepted", f"{live.rate_per_s:.1f}/s"]
    if live.ack_p50_s is not None and live.ack_p95_s is not None:
        parts.append(f"p50 {seconds(live.ack_p50_s)}, p95 {seconds(live.ack_p95_s)}")
    parts.append(f"{live.in_flight} in flight")
    if live.pending_pods is not None:
        parts.append(f"{live.pending_pods:,} pods wait")
    if live.throttled:
        parts.append(f"{live.throttled:,} times 429, window {live.window}")
    if live.failed:
        parts.append(f"{live.failed:,} failed")
    return ", ".join(parts)


class Silence:
    """Nobody wants to know."""

    def phase(self, text: str) -> None:
        """Nothing."""

    def going(self, live: Live) -> None:
        """Nothing."""

    def draining(self, text: str) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


class Lines(lines.Lines, Silence):
    """Lines, now and then: for logs and pipes."""

    def phase(self, text: str) -> None:
        """Something else begins."""
        self.show(text)

    def going(self, live: Live) -> None:
        """Submission goes on."""
        self.now_and_then(f"submitting: {figures(live)}")

    def draining(self, text: str) -> None:
        """Something is waited for."""
        self.now_and_then(text)


class Bar(Lines, lines.ChangingLine):
    """One line that changes; what a person should read stays above it."""

    every_s = lines.DRAWN_EVERY_S

    def going(self, live: Live) -> None:
        """Submission goes on."""
        done = int(24 * live.acked / max(1, live.planned))
        self.now_and_then(f"{'━' * done}{'╺' * (24 - done)} {figures(live)}")


def watcher() -> Lines:
    """A line that changes when stderr is a terminal, else lines."""
    return Bar() if sys.stderr.isatty() else Lines()
