"""How fast requests may go: a bucket for the rate, a window that halves when the server says 429."""

from __future__ import annotations

import asyncio
from collections import deque

from workbench.scaletest.times import NS, now_ns

OVER_S = 5.0


class Bucket:
    """At most so many a second, on average over some seconds: random arrivals at just this rate come in clusters.

    Parameters
    ----------
    rate_per_s
        Null for any.
    full
        Whether it begins with some seconds' worth: a resumed run, with much overdue, does not.
    """

    def __init__(self, rate_per_s: float | None, *, full: bool = True) -> None:
        self._rate = rate_per_s
        self._most = max(1.0, OVER_S * (rate_per_s or 0.0))
        self._level = self._most if full else 1.0
        self._at_ns = now_ns()

    async def take(self) -> None:
        """Wait until one may go."""
        if self._rate is None:
            return
        while (wait_s := self._short_s()) > 0:
            await asyncio.sleep(wait_s)
        self._level -= 1

    def _short_s(self) -> float:
        assert self._rate is not None
        at_ns = now_ns()
        self._level = min(self._most, self._level + (at_ns - self._at_ns) / NS * self._rate)
        self._at_ns = at_ns
        # A hair is forgiven: a sleep may end a rounding error too early.
        return max(0.0, (1 - 1e-9 - self._level) / self._rate)


class Window:
    """How many requests may be on their way: one more for each full round of successes, half after a 429.

    One refusal halves it once: refusals of requests that were sent before the cut are of the same overload.

    Parameters
    ----------
    most
        It never grows beyond this, and begins with it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = float(most)
        self._out = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._cut_ns = 0

    @property
    def size(self) -> int:
        """How many it lets out now."""
        return max(1, int(self._size))

    @property
    def out(self) -> int:
        """How many are out."""
        return self._out

    async def __aenter__(self) -> None:
        if self._out < self.size and not self._waiting:
            self._out += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._back()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._back()

    def succeeded(self) -> None:
        """The server took one."""
        self._size = min(float(self._most), self._size + 1 / self._size)

    def refused(self, sent_ns: int) -> None:
        """The server had too much of a request that was sent then."""
        if sent_ns > self._cut_ns:
            self._size = max(1.0, self._size / 2)
            self._cut_ns = now_ns()

    def _back(self) -> None:
        self._out -= 1
        while self._waiting and self._out < self.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self._out += 1
                turn.set_result(None)
