"""Throttles of a submission: token bucket, request window, and the stop flag."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from workbench.scaletest.cluster_api.connection import NS_PER_S, now_ns

AVERAGED_OVER_S = 5.0


class StopError(Exception):
    """A workload ends the whole submission. The message is the reason."""


class StopFlag:
    """Stop flag of a submission; the first reason is kept."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: BaseException | None = None
        self._event = asyncio.Event()

    @property
    def on(self) -> bool:
        """Whether sending has ended."""
        return self._event.is_set()

    def stop(self, reason: str) -> None:
        """End the submission."""
        self.reason = self.reason or reason
        self._event.set()

    def fail(self, error: BaseException) -> None:
        """End the submission with an error that is not about the cluster, such as a full disk."""
        self.error = self.error or error
        self.stop("failed")

    async def wait(self) -> None:
        """Wait until sending has ended."""
        await self._event.wait()

    async def sleep(self, wait_s: float) -> None:
        """Sleep, but not beyond the end of sending."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), wait_s)


class TokenBucket:
    """Rate limit, averaged over some seconds because random arrivals come in clusters.

    `full`: Whether it begins with some seconds' worth: a resumed run, with much overdue, does not.
    """

    def __init__(self, rate_per_s: float, *, full: bool = True) -> None:
        self._rate = rate_per_s
        self._most = max(1.0, AVERAGED_OVER_S * rate_per_s)
        self._level = self._most if full else 1.0
        self._at_ns = now_ns()

    async def take(self) -> None:
        """Wait for a token."""
        while (wait_s := self._seconds_to_token()) > 0:
            await asyncio.sleep(wait_s)
        self._level -= 1

    def _seconds_to_token(self) -> float:
        at_ns = now_ns()
        self._level = min(self._most, self._level + (at_ns - self._at_ns) / NS_PER_S * self._rate)
        self._at_ns = at_ns
        # Tolerance: a sleep may end a rounding error early.
        return max(0.0, (1 - 1e-9 - self._level) / self._rate)


class RequestWindow:
    """Window of concurrent requests: grows by one per full round of successes, halves after a 429.

    429 responses to requests sent before the last cut do not halve it again: they belong to the same overload.
    """

    def __init__(self, max_size: int) -> None:
        self._most = max_size
        self._size = float(max_size)
        self._out = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._cut_ns = 0

    @property
    def size(self) -> int:
        """Number of requests that may be in flight now."""
        return max(1, int(self._size))

    @property
    def out(self) -> int:
        """Number of requests in flight."""
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
                self._release_slot()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._release_slot()

    def record_success(self) -> None:
        """Grow after a request that the server accepted."""
        self._size = min(float(self._most), self._size + 1 / self._size)

    def record_refusal(self, sent_ns: int) -> None:
        """Shrink after a request, sent at this time, that the server refused for overload."""
        if sent_ns > self._cut_ns:
            self._size = max(1.0, self._size / 2)
            self._cut_ns = now_ns()

    def _release_slot(self) -> None:
        self._out -= 1
        while self._waiting and self._out < self.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self._out += 1
                turn.set_result(None)
