"""Clock offset of the API server, bounded from the whole seconds of its Date headers."""

from __future__ import annotations

import asyncio
import calendar
import contextlib
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate
from typing import Any

from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import CONFIG_MAPS
from workbench.scaletest.cluster_api.connection import NS_PER_S, Answer, ApiError, Connection, UnreachableError, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.object_ledger import Beating, ObjectDecoder, Scope, Sight
from workbench.scaletest.observation.resource_watch import WatchTarget

PROBE_PATH = "/version"
SWEEP_PROBES = 40  # spread over the first second, when the offset is unknown
WORKERS = 3  # concurrent probes around a second boundary; more would queue
MAX_PROBES = 60  # per second boundary
MARGIN_NS = 2_000_000
PROBE_EVERY_S = 60.0
PROBE_LIMIT_S = 5.0
DRIFT_NS = 20_000_000  # between two bursts
BEAT_EVERY_S = 1.0
BEAT_TIMEOUT_S = 10.0
KEY = "beat"


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


@dataclass
class _SentBeat:
    sent_ns: int
    acked_ns: int = 0
    seen_ns: int = 0


class Heartbeat:
    """Updates the ConfigMap, and receives its watch events (`put`)."""

    def __init__(self, api: Connection, run: str, namespace: str, write: Callable[[run_records.Beat], None]) -> None:
        self._api, self._run, self._namespace, self._write = api, run, namespace, write
        self.object = f"workbench-heartbeat-{run}"
        self._path = CONFIG_MAPS.path(namespace)
        # Higher than the numbers of an earlier process, whose last beat may still be in the object.
        self._number = now_ns() // 1_000_000
        self._waiting: OrderedDict[int, _SentBeat] = OrderedDict()
        self._lag_s = 0.0
        self.is_made = False

    def build_target(self) -> WatchTarget:
        """Build the watch of the heartbeat's ConfigMap."""
        scope = Scope("heartbeat", "ConfigMap", self._namespace)
        return WatchTarget(scope, self._path, ObjectDecoder(Beating), fields=f"metadata.name={self.object}")

    async def create_object(self) -> None:
        """Create the object, or reuse the one of an earlier process."""
        labels = {api_discovery.MANAGED_BY: api_discovery.MANAGER, api_discovery.RUN: self._run}
        body = {"metadata": {"name": self.object, "labels": labels}, "data": {KEY: "0"}}
        try:
            await self._api.json("POST", self._path, body)
        except ApiError as error:
            if error.status != 409:
                raise
        self.is_made = True

    async def run(self) -> None:
        """Send a heartbeat every second until cancelled; a failed one is skipped."""
        due = now_ns()
        while True:
            due = max(due + int(BEAT_EVERY_S * NS_PER_S), now_ns())
            await self._send_beat()
            self._drop_late_beats()
            await asyncio.sleep(max(0.0, (due - now_ns()) / NS_PER_S))

    async def remove(self) -> None:
        """Delete the object; if that fails, cleanup finds it by its label."""
        with contextlib.suppress(ApiError, UnreachableError):
            await self._api.request("DELETE", f"{self._path}/{self.object}", timeout_s=5)

    def lag_s(self) -> float:
        """Current watch lag: of the last observed beat, or the age of the oldest missing one if larger."""
        oldest = next((beat for beat in self._waiting.values() if beat.acked_ns), None)
        missing = 0.0 if oldest is None else (now_ns() - oldest.acked_ns) / NS_PER_S
        return max(self._lag_s, missing)

    def end(self) -> None:
        """Write the heartbeats that were never observed."""
        for beat in self._waiting.values():
            self._write_beat(beat)
        self._waiting.clear()

    async def _send_beat(self) -> None:
        self._number += 1
        number = self._number
        self._waiting[number] = beat = _SentBeat(now_ns())
        try:
            answer = await self._api.request(
                "PATCH",
                f"{self._path}/{self.object}",
                body=b'{"data":{"%s":"%d"}}' % (KEY.encode(), number),
                content_type="application/merge-patch+json",
                timeout_s=BEAT_TIMEOUT_S,
            )
        except UnreachableError:
            self._waiting.pop(number, None)
            return
        if answer.status >= 300:
            self._waiting.pop(number, None)
            return
        beat.sent_ns, beat.acked_ns = answer.sent_ns, answer.done_ns
        self._settle_beat(number)

    def put(self, thing: Any, sight: Sight) -> int:
        """Handle a watch event: this beat and all earlier ones have arrived."""
        text = (thing.data or {}).get(KEY, "")
        number = int(text) if text.isdigit() and len(text) < 18 else 0
        for earlier in [beat_number for beat_number in self._waiting if beat_number <= number]:
            self._waiting[earlier].seen_ns = sight.arrival_ns
            self._settle_beat(earlier)
        return 0

    def _settle_beat(self, number: int) -> None:
        beat = self._waiting.get(number)
        if beat is not None and beat.acked_ns and beat.seen_ns:
            del self._waiting[number]
            self._lag_s = max(0.0, (beat.seen_ns - beat.acked_ns) / NS_PER_S)
            self._write_beat(beat)

    def _drop_late_beats(self) -> None:
        for number, beat in list(self._waiting.items()):
            if beat.acked_ns and now_ns() - beat.acked_ns > BEAT_TIMEOUT_S * NS_PER_S:
                del self._waiting[number]
                self._write_beat(beat)

    def _write_beat(self, beat: _SentBeat) -> None:
        if beat.acked_ns:
            self._write(run_records.Beat(beat.sent_ns, beat.acked_ns, beat.seen_ns or None))


class ProcessTimes:
    """CPU time of processes, by pid; one that has ended keeps what it had."""

    def __init__(self, pids: Sequence[int]) -> None:
        import psutil

        self._gone = (psutil.NoSuchProcess, psutil.AccessDenied)
        self._processes = {}
        for pid in pids:
            with contextlib.suppress(*self._gone):
                self._processes[pid] = psutil.Process(pid)
        self._last = dict.fromkeys(self._processes, 0.0)

    def read_s(self) -> float | None:
        """Seconds of all of them together; null without any."""
        for pid, process in self._processes.items():
            with contextlib.suppress(*self._gone):
                times = process.cpu_times()
                self._last[pid] = times.user + times.system
        return sum(self._last.values()) if self._last else None


class LoadMeter:
    """CPU and memory use since the previous reading, and whose it was.

    `side_pids`: The components of a local cluster; none where the cluster is elsewhere.
    """

    def __init__(self, client_pids: Sequence[int] = (), side_pids: Sequence[int] = ()) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        self._client, self._side = ProcessTimes([os.getpid(), *client_pids]), ProcessTimes(side_pids)
        self._cpu_s, self._client_s, self._side_s = _own_cpu_s(), self._client.read_s(), self._side.read_s()
        self._host = self._host_times()

    def read(self) -> run_records.Load:
        """Build a record for the health file; `host_busy` is None if the counters did not change."""
        cpu_s, host = _own_cpu_s(), self._host_times()
        all_s, idle_s = host[0] - self._host[0], host[1] - self._host[1]
        busy = min(1.0, max(0.0, 1 - idle_s / all_s)) if all_s > 0 else None
        load = run_records.Load(now_ns(), cpu_s - self._cpu_s, int(self._process.memory_info().rss), busy)
        client_s, side_s = self._client.read_s(), self._side.read_s()
        if busy is not None and client_s is not None and self._client_s is not None:
            load.client = min(1.0, max(0.0, (client_s - self._client_s) / all_s))
            load.side = 0.0 if side_s is None else min(1.0, max(0.0, (side_s - (self._side_s or 0.0)) / all_s))
            load.others = max(0.0, busy - load.client - load.side)
        self._cpu_s, self._host, self._client_s, self._side_s = cpu_s, host, client_s, side_s
        return load

    def _host_times(self) -> tuple[float, float]:
        """Total and idle seconds, summed over all cores."""
        times = self._psutil.cpu_times()
        # guest time is already part of user time
        counted = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
        return sum(counted.values()), times.idle + getattr(times, "iowait", 0.0)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system
