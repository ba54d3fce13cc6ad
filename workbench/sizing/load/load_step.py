"""Runs one step of a sweep: holds a load until there are enough requests, and builds the raw tables."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
import polars as pl

from workbench.core.errors import RunFailedError
from workbench.core.message_kinds import MessageKinds
from workbench.sizing.config import SweepConfig
from workbench.sizing.estimation.step_points import MAX_WARMUP_FRACTION, select_kept_requests
from workbench.sizing.load import client_messages
from workbench.sizing.load.arrival_processes import measure_trace_part
from workbench.sizing.load.client_messages import clock
from workbench.sizing.load.client_pool import ClientPool, LostClientError
from workbench.sizing.load.dask_pool import DaskPool
from workbench.sizing.load.load_driver import percentile_99
from workbench.sizing.load.sweep_plan import StopRule, SweepLimits, SweepUsage, find_stop_reason
from workbench.sizing.tables import REQUESTS, STEPS

MAX_RATE_ERROR = 0.05
"""Relative difference of the rate that a part of a trace had up to which a level keeps its name. Chosen."""
LOST_WORKER = "lost worker"
POLL_EVERY_S = 0.25
CHECK_EVERY_REQUESTS = 50


@dataclass
class StopRequest:
    """Request to stop a running sweep: once to end it, twice to abort requests in flight."""

    times: int = 0

    def request_stop(self) -> None:
        """End the sweep after the requests in flight; a second call aborts them."""
        self.times += 1


@dataclass(frozen=True)
class StepRules:
    """Rules for when a step ends."""

    stop: StopRule
    min_step_s: float
    max_step_s: float
    limits: SweepLimits = field(default_factory=SweepLimits)


@dataclass
class StepResult:
    """Requests of a step, and the state of the client.

    `offered_per_s`: Of a trace, the rate of the part that was replayed; null where it is the level's.
    """

    load: client_messages.StepLoad
    started_at: str
    base: float = 0.0
    n_clients: int = 1
    clock_error_s: float | None = None
    requests: list[client_messages.RequestRow] = field(default_factory=list)
    stopped: str = "time"
    limit: str | None = None
    duration_s: float = 0.0
    in_flight: int = 0
    loop_lag_p99_s: float | None = None
    client_cpu_share: float | None = None
    failures: Counter[str] = field(default_factory=Counter)
    broken_off: int = 0
    simulated: bool = False
    time_scale: float | None = None
    example: str | None = None
    refusal: str | None = None
    notes: list[str] = field(default_factory=list)
    offered_per_s: float | None = None


class LoadStep:
    """Holds one load with a pool of client processes; `run` once."""

    def __init__(
        self,
        pool: ClientPool | DaskPool,
        load: client_messages.StepLoad,
        rules: StepRules,
        usage: SweepUsage,
        stop_request: StopRequest,
        on_progress: Callable[[StepResult], None] = lambda _: None,
    ) -> None:
        self._pool = pool
        self._rules = rules
        self._usage = usage
        self._usage_before_s = usage.duration_s
        self._stop_request = stop_request
        self._on_progress = on_progress
        self._base = 0.0
        self._phase = "hold"
        self._state: dict[int, client_messages.Rows] = {}
        self._drained: dict[int, client_messages.Drained] = {}
        # Earlier no step has enough: the first request of each user is never kept.
        self._next_check = rules.stop.min_samples + load.users * load.turns
        self._next_progress = 0.0
        self._broken_off = False
        self.held = StepResult(load, datetime.now(UTC).isoformat(timespec="milliseconds"))
        self._sent_load, notes = choose_trace_part(load, rules)
        self.held.notes += notes

    async def run(self) -> StepResult:
        """Hold the load until the step ends.

        Raises
        ------
        ConfigError, RunFailedError
            A client process failed.
        """
        await self._pool.prepare_step()
        self.held.n_clients, self.held.clock_error_s = self._pool.size, self._pool.clock_error_s
        self._base = self.held.base = clock() + self._pool.start_lead_s
        allowance = self._rules.limits.remaining_requests(self._usage)
        await self._pool.send_to_all(client_messages.Begin(self._sent_load, self._base, allowance))
        while len(self._drained) < self._pool.size:
            try:
                number, report = await self._pool.next_report(POLL_EVERY_S)
            except TimeoutError:
                report = None
            except LostClientError as lost:
                await self._lose_client(lost)
                continue
            if isinstance(report, client_messages.Rows):
                self._add_rows(number, report)
            elif isinstance(report, client_messages.Drained):
                self._drained[number] = report
            await self._update_phase()
            self._report_progress()
        return self._build_result()

    async def _lose_client(self, lost: LostClientError) -> None:
        """End the step: a part of the load is gone. The others drop what they have in flight."""
        self._state.pop(lost.number, None)
        self._drained.pop(lost.number, None)
        self.held.failures[f"a load worker was lost: {lost.what}"] += 1
        if not self._pool.size:
            raise RunFailedError("all load workers were lost", where=lost.what)
        await self._stop_clients(LOST_WORKER, now=True)

    def _add_rows(self, number: int, report: client_messages.Rows) -> None:
        self._state[number] = report
        if self._pool.clock_error_s is not None:
            for row in report.requests:
                row.worker = number
        self.held.requests += report.requests
        self.held.in_flight = sum(state.in_flight for state in self._state.values())
        self._usage.add_requests(report.requests)

    async def _update_phase(self) -> None:
        self.held.duration_s = max(0.0, clock() - self._base)
        self._usage.duration_s = self._usage_before_s + self.held.duration_s
        if self._stop_request.times >= 2 and not self._broken_off:
            self._broken_off = True
            self.held.broken_off = self.held.in_flight
            await self._stop_clients("interrupted", now=True)
        elif self._phase in ("hold", "tail") and self._stop_request.times:
            await self._stop_clients("interrupted")
        elif self._phase == "hold":
            await self._end_hold_if_due()
        elif self._phase == "tail" and self._is_tail_over():
            await self._stop_clients(self.held.stopped)

    async def _end_hold_if_due(self) -> None:
        limit = self._rules.limits.find_reached_limit(self._usage)
        self.held.refusal = next((state.refusal for state in self._state.values() if state.refusal is not None), None)
        if self.held.refusal is not None:
            await self._stop_clients("refused")
            return
        if (
            limit is None
            and len(self._state) == self._pool.size
            and all(state.exhausted for state in self._state.values())
        ):
            limit = f"--max-requests {self._rules.limits.max_requests}"
        if limit is not None:
            # No tail: the limit counts all requests sent.
            self.held.limit = limit
            await self._stop_clients("limit")
        elif (reason := await self._find_end_reason()) is not None:
            self.held.stopped = reason
            self._phase = "tail"
            await self._pool.send_to_all(client_messages.Tail())

    async def _find_end_reason(self) -> str | None:
        if self.held.duration_s >= self._rules.max_step_s:
            return "time"
        ended = len(self.held.requests)
        if ended < self._next_check or self.held.duration_s < self._rules.min_step_s:
            return None
        # Less and less often, or the checks would cost more than the load itself.
        self._next_check = ended + max(CHECK_EVERY_REQUESTS, ended // 10)
        columns = build_stop_rule_columns(self.held.requests, self._rules.stop)
        users = _count_dropped_users(self.held.load)
        # In a thread: requests in this event loop must not wait for the statistics.
        return await asyncio.to_thread(find_stop_reason, columns, users, self._rules.stop)

    def _is_tail_over(self) -> bool:
        states = self._state.values()
        return len(states) == self._pool.size and all(state.tail_begun and not state.kept_open for state in states)

    async def _stop_clients(self, reason: str, *, now: bool = False) -> None:
        self.held.stopped = reason
        self._phase = "drain"
        await self._pool.send_to_all(client_messages.Stop(now))

    def _report_progress(self) -> None:
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + POLL_EVERY_S
            self._on_progress(self.held)

    def _build_result(self) -> StepResult:
        result = self.held
        lags = [percentile_99(report.lags_s) for report in self._drained.values()]
        result.loop_lag_p99_s = max((lag for lag in lags if lag is not None), default=None)
        result.client_cpu_share = max(report.cpu_share for report in self._drained.values())
        kinds = MessageKinds()
        for last_report in self._drained.values():
            for kind in last_report.failures:
                kinds.merge(kind)
            result.simulated = result.simulated or last_report.simulated
            result.time_scale = result.time_scale or last_report.time_scale
            result.example = result.example or last_report.example
            result.notes += [note for note in last_report.notes if note not in result.notes]
        result.failures.update(kinds.count_by_text())
        last = max((row.ended_s for row in result.requests), default=0.0)
        result.duration_s = max(last, 0.0) or result.duration_s
        result.in_flight = 0
        result.requests.sort(key=lambda row: (row.intended_s, row.sent_s))
        if result.stopped == "tight":
            # The interval may have widened while the last requests ended.
            columns = build_stop_rule_columns(result.requests, self._rules.stop)
            users = _count_dropped_users(result.load)
            result.stopped = find_stop_reason(columns, users, self._rules.stop) or "widened"
        if result.load.arrivals == "trace":
            _name_offered_rate(result)
        return result


def choose_trace_part(load: client_messages.StepLoad, rules: StepRules) -> tuple[client_messages.StepLoad, list[str]]:
    """Take the first part of a trace, as much as a step can send, which then has the level's rate.

    A rate of the whole trace would be none of the part; another load stays as it is.

    `rules`: With the most requests and the longest time of a step.

    Returns: The load, and a note on the part and its speed.
    """
    if load.arrivals != "trace":
        return load, []
    turns = [len(session) for session in load.sessions]
    whole = measure_trace_part(load.trace_s, turns, sys.maxsize)
    if rules.stop.by_speed:
        return load, [f"speed {load.rate_per_s / whole.rate_per_s:.3g} of the trace as recorded"]
    by_samples = math.ceil(rules.stop.max_samples / (1 - MAX_WARMUP_FRACTION))
    by_time = math.floor(load.rate_per_s * rules.max_step_s)
    part = measure_trace_part(load.trace_s, turns, max(2, min(by_samples, by_time)))
    speed = load.rate_per_s / part.rate_per_s
    which = "all" if part.requests == whole.requests else f"the first {part.requests}"
    note = (
        f"{load.rate_per_s:.3g}/s: {which} of {whole.requests} requests of the trace, {part.span_s:.3g} s of it, "
        f"at {speed:.3g} times the speed as recorded"
    )
    trace_s, sessions = load.trace_s[: part.arrivals], load.sessions[: part.arrivals]
    return msgspec.structs.replace(load, trace_s=trace_s, sessions=sessions), [note]


def _name_offered_rate(result: StepResult) -> None:
    """Note the rate that the kept requests of a trace were due at, where it is not the level's."""
    due_s = select_kept_requests(build_requests_frame(result), None)["intended_s"]
    level = result.load.rate_per_s
    if len(due_s) < 2 or due_s[-1] == due_s[0]:
        return
    offered_per_s = (len(due_s) - 1) / (due_s[-1] - due_s[0])
    if abs(offered_per_s / level - 1) > MAX_RATE_ERROR:
        result.offered_per_s = offered_per_s
        what = f"the {len(due_s)} counted requests of the trace were sent at {offered_per_s:.3g}/s"
        result.notes.append(f"{what}, not at {level:.3g}/s: the level is named by that")


def _count_dropped_users(load: client_messages.StepLoad) -> int:
    """Requests that are never kept: the first session of each user in a closed loop."""
    return load.users * load.turns if load.loop == "closed" else 0


def build_stop_rule_columns(rows: list[client_messages.RequestRow], stop: StopRule) -> dict[str, list[Any]]:
    """Columns that the stop rule reads, of the requests that ended, in the order they were sent."""
    sent_rows = sorted((row for row in rows if not row.tail), key=lambda row: row.sent_s)
    return {name: [REQUEST_COLUMNS[name](row) for row in sent_rows] for name in ("outcome", *stop.columns)}


def request_runtime_s(row: client_messages.RequestRow) -> float | None:
    """Time from the intended start of a request to its end; None unless its outcome is ok."""
    return row.ended_s - row.intended_s if row.outcome == "ok" else None


def _read_wait_s(field: str, row: client_messages.RequestRow) -> float | None:
    """Time from the intended start of a request to the moment in this field; None unless its outcome is ok."""
    moment_s = getattr(row, field)
    return moment_s - row.intended_s if row.outcome == "ok" and moment_s is not None else None


_WAITS = {"ttft_s": "first_token_s", "ttfo_s": "first_output_s"}
REQUEST_COLUMNS: dict[str, Callable[[client_messages.RequestRow], Any]] = {
    **{name: attrgetter(name) for name in client_messages.RequestRow.__struct_fields__ if name not in _WAITS.values()},
    "runtime_s": request_runtime_s,
    **{name: partial(_read_wait_s, field) for name, field in _WAITS.items()},
}
"""How each column of the table `requests` is read from a request that ended."""


def build_requests_frame(result: StepResult) -> pl.DataFrame:
    """Table `requests` of one step, numbered in the order of intended times."""
    rows = result.requests
    columns = {name: [read(row) for row in rows] for name, read in REQUEST_COLUMNS.items()}
    return REQUESTS.frame({"step": [result.load.step] * len(rows), "request": list(range(len(rows))), **columns})


def build_step_frame(result: StepResult, config: SweepConfig) -> pl.DataFrame:
    """Table `steps` of one step."""
    load = result.load
    closed = load.loop == "closed"
    row = {
        "step": load.step,
        "loop": load.loop,
        "users": load.users if closed else None,
        "rate_per_s": None if closed else result.offered_per_s or load.rate_per_s,
        "think_s": load.think_s,
        "arrivals": load.arrivals,
        "gpus": config.gpus,
        "clock": "real",
        "simulated": config.simulated or result.simulated,
        "time_scale": result.time_scale,
        "started_at": result.started_at,
        "duration_s": result.duration_s,
        "timeout_s": config.timeout_s,
        "processes": result.n_clients,
        "clock_error_s": result.clock_error_s,
        "loop_lag_p99_s": result.loop_lag_p99_s,
        "client_cpu_share": result.client_cpu_share,
        "stopped": result.stopped,
    }
    return STEPS.frame([row])
