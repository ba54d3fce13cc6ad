"""One step: a load is held until there is enough to say, and kept on until the last kept request has ended."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from workbench.sizing.driving import wire
from workbench.sizing.driving.client import p99
from workbench.sizing.driving.crew import Crew
from workbench.sizing.driving.limits import Limits, Spent
from workbench.sizing.driving.reply import clock
from workbench.sizing.stopping import StopRule, enough

# Time for the order to reach all processes before the step begins.
LEAD_S = 0.05
LOOK_EVERY_S = 0.25
CHECK_EVERY = 50


@dataclass
class Asked:
    """What a user asks of a running sweep: once, to end it; twice, to break it off."""

    times: int = 0

    def stop(self) -> None:
        """End it; requests in flight may end first. Asked again: at once."""
        self.times += 1


@dataclass(frozen=True)
class Rules:
    """When a step ends."""

    stop: StopRule
    min_step_s: float
    max_step_s: float
    limits: Limits = field(default_factory=Limits)


@dataclass
class Held:
    """What a step gave: its requests, and how the client was doing."""

    load: wire.Load
    started_at: str
    requests: list[wire.Request] = field(default_factory=list)
    stopped: str = "time"
    limit: str | None = None
    duration_s: float = 0.0
    in_flight: int = 0
    loop_lag_p99_s: float | None = None
    client_cpu_share: float | None = None
    failures: Counter[str] = field(default_factory=Counter)
    broken_off: int = 0
    simulated: bool = False


class Step:
    """Holds one load with a crew; `run` once.

    Parameters
    ----------
    crew
        Who drives.
    load
        What is held.
    rules
        When it ends.
    spent
        What the sweep has used up; counted on while the step runs.
    asked
        Whether the user wants it to end.
    told
        Called a few times a second with what there is so far.
    """

    def __init__(
        self,
        crew: Crew,
        load: wire.Load,
        rules: Rules,
        spent: Spent,
        asked: Asked,
        told: Callable[[Held], None] = lambda _: None,
    ) -> None:
        self._crew = crew
        self._rules = rules
        self._spent = spent
        self._spent_before_s = spent.duration_s
        self._asked = asked
        self._told = told
        self._base = 0.0
        self._phase = "hold"
        self._state: dict[int, wire.Rows] = {}
        self._drained: dict[int, wire.Drained] = {}
        # No step can have enough before; users' first requests are never kept.
        self._next_check = rules.stop.least + load.users
        self._next_told = 0.0
        self._broken_off = False
        self.held = Held(load, datetime.now(UTC).isoformat(timespec="milliseconds"))

    async def run(self) -> Held:
        """Hold the load to its end.

        Raises
        ------
        ConfigError, RunFailedError
            A client process cannot go on.
        """
        self._base = clock() + LEAD_S
        allowance = self._rules.limits.allowance(self._spent)
        await self._crew.tell_all(wire.Begin(self.held.load, self._base, allowance))
        while len(self._drained) < self._crew.size:
            try:
                number, report = await self._crew.report(LOOK_EVERY_S)
            except TimeoutError:
                report = None
            if isinstance(report, wire.Rows):
                self._add(number, report)
            elif isinstance(report, wire.Drained):
                self._drained[number] = report
            await self._decide()
            self._tell()
        return self._finished()

    def _add(self, number: int, report: wire.Rows) -> None:
        self._state[number] = report
        self.held.requests += report.requests
        self.held.in_flight = sum(state.in_flight for state in self._state.values())
        self._spent.add(report.requests)

    async def _decide(self) -> None:
        self.held.duration_s = max(0.0, clock() - self._base)
        self._spent.duration_s = self._spent_before_s + self.held.duration_s
        if self._asked.times >= 2 and not self._broken_off:
            self._broken_off = True
            self.held.broken_off = self.held.in_flight
            await self._stop("interrupted", now=True)
        elif self._phase in ("hold", "tail") and self._asked.times:
            await self._stop("interrupted")
        elif self._phase == "hold":
            await self._decide_to_end()
        elif self._phase == "tail" and self._kept_have_ended():
            await self._stop(self.held.stopped)

    async def _decide_to_end(self) -> None:
        limit = self._rules.limits.reached(self._spent)
        if limit is None and len(self._state) == self._crew.size and all(one.exhausted for one in self._state.values()):
            limit = f"--max-requests {self._rules.limits.max_requests}"
        if limit is not None:
            # No tail: the limit is on what is sent, whatever for.
            self.held.limit = limit
            await self._stop("limit")
        elif (why := await self._enough()) is not None:
            self.held.stopped = why
            self._phase = "tail"
            await self._crew.tell_all(wire.Tail())

    async def _enough(self) -> str | None:
        if self.held.duration_s >= self._rules.max_step_s:
            return "time"
        ended = len(self.held.requests)
        if ended < self._next_check or self.held.duration_s < self._rules.min_step_s:
            return None
        # Farther and farther apart, or looking would cost more than driving.
        self._next_check = ended + max(CHECK_EVERY, ended // 10)
        columns = stop_columns(self.held.requests, self._rules.stop.metric)
        users = self.held.load.users if self.held.load.loop == "closed" else 0
        # In a thread: with the load in this very loop, requests would wait for the statistics.
        return await asyncio.to_thread(enough, columns, users, self._rules.stop)

    def _kept_have_ended(self) -> bool:
        states = self._state.values()
        return len(states) == self._crew.size and all(one.tail_begun and not one.kept_open for one in states)

    async def _stop(self, why: str, *, now: bool = False) -> None:
        self.held.stopped = why
        self._phase = "drain"
        await self._crew.tell_all(wire.Stop(now))

    def _tell(self) -> None:
        now = time.monotonic()
        if now >= self._next_told:
            self._next_told = now + LOOK_EVERY_S
            self._told(self.held)

    def _finished(self) -> Held:
        held = self.held
        lags = [p99(one.lags_s) for one in self._drained.values()]
        held.loop_lag_p99_s = max((lag for lag in lags if lag is not None), default=None)
        held.client_cpu_share = max(one.cpu_share for one in self._drained.values())
        for one in self._drained.values():
            held.failures.update(dict(one.failures))
            held.simulated = held.simulated or one.simulated
        last = max((row.ended_s for row in held.requests), default=0.0)
        held.duration_s = max(last, 0.0) or held.duration_s
        held.in_flight = 0
        held.requests.sort(key=lambda row: (row.intended_s, row.sent_s))
        return held


def stop_columns(rows: list[wire.Request], metric: str) -> dict[str, list[Any]]:
    """What the stop rule reads of requests that have ended: outcome and metric, in the order they were sent."""
    kept = sorted((row for row in rows if not row.tail), key=lambda row: row.sent_s)
    columns: dict[str, list[Any]] = {
        "outcome": [row.outcome for row in kept],
        "runtime_s": [runtime_s(row) for row in kept],
    }
    if metric == "llm":
        columns["llm_s"] = [row.llm_s for row in kept]
    elif metric == "ttft":
        columns["ttft_s"] = [ttft_s(row) for row in kept]
    elif metric == "itl":
        columns["itl_s"] = [row.itl_s for row in kept]
    return columns


def runtime_s(row: wire.Request) -> float | None:
    """From the intended time to the end; null unless ok."""
    return row.ended_s - row.intended_s if row.outcome == "ok" else None


def ttft_s(row: wire.Request) -> float | None:
    """From the intended time to the first token."""
    known = row.outcome == "ok" and row.first_token_s is not None
    return row.first_token_s - row.intended_s if known and row.first_token_s is not None else None
