"""Clock offset of the API server, bounded from the whole seconds of its Date headers."""

from __future__ import annotations

import asyncio
import calendar
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate

from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import Answer, Connection, UnreachableError
from workbench.scaletest.observation import run_records

PROBE_PATH = "/version"
SWEEP_PROBES = 40  # spread over the first second, when the offset is unknown
WORKERS = 3  # concurrent probes around a second boundary; more would queue
MAX_PROBES = 60  # per second boundary
MARGIN_NS = 2_000_000
PROBE_EVERY_S = 60.0
PROBE_LIMIT_S = 5.0
DRIFT_NS = 20_000_000  # between two bursts


@dataclass
class SkewBounds:
    """Intersection of the bounds of all answers; `low_ns` > `high_ns` means that several clocks answered.

    >>> bounds = SkewBounds()
    >>> bounds.add(server_s=100, sent_ns=99_900_000_000, done_ns=99_910_000_000)
    >>> bounds.low_ns / 1e9, bounds.high_ns / 1e9
    (0.09, 1.1)
    """

    low_ns: int = -(1 << 62)
    high_ns: int = 1 << 62
    probes: int = 0

    def add(self, server_s: int, sent_ns: int, done_ns: int) -> None:
        """Narrow the bounds by one answer."""
        self.low_ns = max(self.low_ns, server_s * NS_PER_S - done_ns)
        self.high_ns = min(self.high_ns, (server_s + 1) * NS_PER_S - sent_ns)
        self.probes += 1


def flip_after(at_ns: int, low_ns: int, high_ns: int) -> tuple[int, int]:
    """Earliest and latest client time of the server's next second boundary after `at_ns`.

    >>> flip_after(10_200_000_000, 290_000_000, 300_000_000)
    (10700000000, 10710000000)
    """
    second = -(-(at_ns + high_ns) // NS_PER_S)
    return second * NS_PER_S - high_ns, second * NS_PER_S - low_ns


class SkewProber:
    """Measures the clock offset in bursts of requests."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Answer]],
        write: Callable[[run_records.Skew], None],
        now: Callable[[], int] = now_ns,
    ) -> None:
        self._ask, self._write, self._now = ask, write, now
        self._last: SkewBounds | None = None
        self._round_trip_ns = NS_PER_S // 10  # shortest so far
        self.has_answers = False

    async def run(self, flips: int, every_s: float = PROBE_EVERY_S) -> None:
        """Send bursts until cancelled."""
        while True:
            await self.burst(flips)
            await asyncio.sleep(every_s)

    async def burst(self, flips: int) -> SkewBounds | None:
        """Probe around this many second boundaries and write the bounds; None without an answer.

        An unreachable server is no error here: the watches report it.
        """
        bounds = SkewBounds()
        if self._last is None:
            await self._probe_evenly(bounds)
        for _ in range(flips):
            aim = self._predict_offset(bounds)
            if aim is None:
                break
            ahead = self._round_trip_ns + MARGIN_NS
            first, last = flip_after(self._now() + ahead, *aim)
            # Sent one round trip early, so that the Date header is set at the boundary.
            await self._probe_around(first - ahead, last + MARGIN_NS, bounds)
        if not bounds.probes:
            return None
        self._last = bounds if bounds.low_ns <= bounds.high_ns else None
        self._write(run_records.Skew(self._now(), bounds.low_ns, bounds.high_ns, bounds.probes))
        return bounds

    def _predict_offset(self, bounds: SkewBounds) -> tuple[int, int] | None:
        """Likely range of the clock offset: from this burst, or from the previous one plus drift."""
        if bounds.probes and 0 <= bounds.high_ns - bounds.low_ns < NS_PER_S * 9 // 10:
            return bounds.low_ns, bounds.high_ns
        if self._last is not None and bounds.low_ns <= bounds.high_ns:
            return self._last.low_ns - DRIFT_NS, self._last.high_ns + DRIFT_NS
        return None

    async def _probe_evenly(self, bounds: SkewBounds) -> None:
        """Probe sequentially, evenly spread over slightly more than a second."""
        begin = self._now()
        for number in range(SWEEP_PROBES + 2):
            await self._sleep_until(begin + NS_PER_S * number // SWEEP_PROBES)
            await self._probe_once(bounds)

    async def _probe_around(self, first_ns: int, last_ns: int, bounds: SkewBounds) -> None:
        limit = bounds.probes + MAX_PROBES

        async def work() -> None:
            while self._now() < last_ns and bounds.probes < limit:
                if not await self._probe_once(bounds):
                    await asyncio.sleep(MARGIN_NS / NS_PER_S)

        await self._sleep_until(first_ns)
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(work())

    async def _probe_once(self, bounds: SkewBounds) -> bool:
        """Send one probe and use its answer; False without an answer."""
        try:
            answer = await self._ask()
        except UnreachableError:
            return False
        parsed = parsedate(next((value for key, value in answer.headers.items() if key.lower() == "date"), ""))
        if parsed is None or answer.status >= 500:
            return False
        bounds.add(calendar.timegm(parsed), answer.sent_ns, answer.done_ns)
        self.has_answers = True
        self._round_trip_ns = min(self._round_trip_ns, answer.done_ns - answer.sent_ns)
        return True

    async def _sleep_until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0.0, (at_ns - self._now()) / NS_PER_S))


def build_prober(api: Connection, write: Callable[[run_records.Skew], None]) -> SkewProber:
    """Build a prober for the server of a connection."""

    async def ask() -> Answer:
        return await api.request("GET", PROBE_PATH, timeout_s=PROBE_LIMIT_S)

    return SkewProber(ask, write)
