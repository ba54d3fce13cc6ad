"""How far a sweep is, on stderr: live figures on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from workbench.sizing.driving.step import Held, runtime_s
from workbench.sizing.driving.wire import Load

LAST = 500
LINE_EVERY_S = 10.0


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


class Lines:
    """A line when a step begins, now and then, and when it ends: for logs and pipes."""

    def __init__(self) -> None:
        self._name = ""
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    def begun(self, load: Load) -> None:
        """A step begins."""
        self._name = f"step {load.step}, {load_text(load)}"
        self._next = time.monotonic() + LINE_EVERY_S

    def going(self, held: Held) -> None:
        """What there is so far."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY_S
            self.say(f"{self._name}: {figures(held)}, {held.in_flight} in flight")

    def ended(self, held: Held) -> None:
        """A step is over."""
        self.say(f"{self._name}: {figures(held)}, {held.duration_s:.1f} s ({held.stopped})")

    def stopping(self, times: int) -> None:
        """The user wants it to end."""
        self.say(STOPPING if times == 1 else BREAKING_OFF)

    def say(self, line: str) -> None:
        """A line."""
        # One write, for requests are driven in another thread.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


STOPPING = "stopping: nothing more is sent, waiting for the requests in flight; Ctrl-C again to break them off"
BREAKING_OFF = "breaking off the requests in flight"


class Live(Lines):
    """The figures of the running step in one line that changes; a line that stays when it ends."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(stderr=True)
        # Drawn when there is news: a thread that redraws ten times a second would make requests late.
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back."""
        self._live.stop()

    def going(self, held: Held) -> None:
        """What there is so far."""
        from rich.text import Text

        line = f"{self._name}: {figures(held)}, {held.in_flight} in flight, {held.duration_s:.0f} s"
        self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)

    def say(self, line: str) -> None:
        """A line that stays."""
        from rich.text import Text

        self._live.update(Text(""), refresh=True)
        self._console.print(Text(line), soft_wrap=True)


def watcher() -> Lines:
    """Live figures when stderr is a terminal, else lines."""
    return Live() if sys.stderr.isatty() else Lines()
