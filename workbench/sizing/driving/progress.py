"""How far a sweep is, on stderr: live figures on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from workbench import lines
from workbench.sizing.driving.step import Held, runtime_s
from workbench.sizing.driving.wire import Load

LAST = 500
STOPPING = "stopping: nothing more is sent, waiting for the requests in flight; Ctrl-C again to break them off"
BREAKING_OFF = "breaking off the requests in flight"


def load_text(load: Load) -> str:
    """A step's load in a few words."""
    if load.loop == "open":
        return f"{load.rate_per_s:g}/s {load.arrivals}"
    return f"{load.users} user{'s' if load.users != 1 else ''}"


def figures(held: Held) -> str:
    """Requests that ended, median and p95 of the last of them, their rate, failures, what is in flight."""
    ended = len(held.requests)
    failed = sum(1 for row in held.requests if row.outcome != "ok")
    last = held.requests[-LAST:]
    parts = [f"{ended} ended"]
    times = sorted(time_s for row in last if (time_s := runtime_s(row)) is not None)
    if times:
        p95_s = times[min(len(times) - 1, int(0.95 * len(times)))]
        parts.append(f"p50 {times[len(times) // 2]:.3g} s, p95 {p95_s:.3g} s")
    ends = [row.ended_s for row in last]
    if ends and max(ends) > min(ends):
        parts.append(f"{(len(ends) - 1) / (max(ends) - min(ends)):.3g}/s")
    parts.append(f"{failed} failed")
    return ", ".join(parts)


class Lines(lines.Lines):
    """A line when a step begins, now and then, and when it ends."""

    def __init__(self) -> None:
        super().__init__()
        self._name = ""

    def begun(self, load: Load) -> None:
        """A step begins."""
        self._name = f"step {load.step}, {load_text(load)}"
        self._next = time.monotonic() + self.every_s

    def going(self, held: Held) -> None:
        """What there is so far."""
        self.now_and_then(f"{self._name}: {figures(held)}, {held.in_flight} in flight, {held.duration_s:.0f} s")

    def ended(self, held: Held) -> None:
        """A step is over."""
        self.say(f"{self._name}: {figures(held)}, {held.duration_s:.1f} s ({held.stopped})")

    def stopping(self, times: int) -> None:
        """The user wants it to end."""
        self.say(STOPPING if times == 1 else BREAKING_OFF)


class Live(Lines, lines.ChangingLine):
    """The figures of the running step in one line that changes; a line that stays when it ends."""

    every_s = lines.DRAWN_EVERY_S


def watcher() -> Lines:
    """Live figures when stderr is a terminal, else lines."""
    return Live() if sys.stderr.isatty() else Lines()
