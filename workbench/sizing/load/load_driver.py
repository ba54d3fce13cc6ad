"""Load of one client process: closed-loop users or open-loop arrivals, and event loop lag."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from workbench.core.errors import ConfigError
from workbench.sizing.load import request_plan
from workbench.sizing.load.client_messages import Begin, Reply, RequestRow, StepLoad, clock
from workbench.sizing.load.request_plan import Prompts

SAMPLE_EVERY_S = 0.01
# Timers wait in whole milliseconds and so fire up to one late; answers do not wait for timers.
TIMER_RESOLUTION_S = 0.001
# Of a process, beside the connections: files, pipes, the resolver.
RESERVED_FILES = 64


class LagSampler:
    """How late the event loop comes to what is due: sampled a hundred times a second, while it runs."""

    def __init__(self) -> None:
        self._lags: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """Begin anew."""
        self._lags = []
        self._began = (clock(), time.process_time())
        self._task = asyncio.get_running_loop().create_task(self._sample_lag())

    def stop(self) -> tuple[list[float], float]:
        """Lateness of each sample in seconds, and the CPU that this process used since the start, of one core."""
        if self._task is not None:
            self._task.cancel()
        wall_s = clock() - self._began[0]
        return self._lags, (time.process_time() - self._began[1]) / wall_s if wall_s > 0 else 0.0

    async def _sample_lag(self) -> None:
        while True:
            due = clock() + SAMPLE_EVERY_S
            await asyncio.sleep(SAMPLE_EVERY_S)
            self._lags.append(max(0.0, clock() - due - TIMER_RESOLUTION_S))


def percentile_99(lags_s: list[float]) -> float | None:
    """The 99th percentile; null without a sample.

    Examples
    --------
    >>> percentile_99([0.001] * 99 + [0.5]) < 0.01, percentile_99([])
    (True, None)
    """
    return float(np.quantile(lags_s, 0.99)) if lags_s else None


def raise_file_limit(wanted: int) -> None:
    """Raise this process's limit of open files as far as needed.

    Raises
    ------
    ConfigError
        The system allows fewer.
    """
    try:
        import resource
    except ModuleNotFoundError:
        # Windows sets no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            "more requests in flight than this process may open connections",
            where="ulimit -n",
            found=f"{wanted} requests, {hard} open files",
            do=f"ulimit -n {needed}, or share the load: --processes {-(-wanted // max(1, hard - RESERVED_FILES))}",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


RETRY_STATUSES = frozenset({429, 500, 502, 503, 504})
MIN_PAUSE_S = 0.02
MAX_PAUSE_S = 1.0
MAX_FAILURE_KINDS = 100


class Target(Protocol):
    """What is driven; `simulated` once it has said so of itself."""

    simulated: bool

    async def open(self) -> None:
        """Make ready."""

    async def close(self) -> None:
        """Let go."""

    async def send(self, prompt: str) -> Reply:
        """Send one request; never raises for what the service does."""


class LoadDriver:
    """Drives one step's share of a load; rows of ended requests gather in `rows` until they are taken.

    Attributes
    ----------
    in_flight
        Requests sent and not ended.
    kept_open
        Those of them that count.
    exhausted
        The allowance is used up.
    tail
        What is sent now only keeps the load on.
    """

    def __init__(self, target: Target, prompts: Prompts, order: Begin) -> None:
        load = order.load
        self._target = target
        self._load = load
        self._base = order.base
        self._allowance = order.allowance
        self._items = prompts.iterate_items(load.step, load.share, load.shares)
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sleeping: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Semaphore(max(1, load.max_in_flight // load.shares))
        self.rows: list[RequestRow] = []
        self.failures: Counter[str] = Counter()
        self.in_flight = 0
        self.kept_open = 0
        self.exhausted = self._allowance is not None and self._allowance <= 0
        self.tail = False

    def start(self) -> None:
        """Begin to send."""
        load = self._load
        if load.loop == "open":
            self._start_task(self._run_arrivals())
            return
        for number in range(load.share, load.users, load.shares):
            self._start_task(self._run_user(number))

    def begin_tail(self) -> None:
        """Requests from now on only keep the load on."""
        self.tail = True

    def stop(self) -> None:
        """Send nothing more; what is in flight goes on."""
        self._stopping = True
        for task in list(self._sleeping):
            task.cancel()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abort(self) -> None:
        """Break off what is in flight; such requests leave no row."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        await self.wait_until_idle()

    def take_rows(self) -> list[RequestRow]:
        """The rows since the last time."""
        rows, self.rows = self.rows, []
        return rows

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_user(self, number: int) -> None:
        load = self._load
        think = random.Random(f"{load.seed}/{load.step}/think/{number}").expovariate  # noqa: S311 - no secret
        due = self._base + request_plan.ramp_start_s(number, load.users, load.ramp_s, f"{load.seed}/{load.step}")
        pause_s = MIN_PAUSE_S
        while await self._sleep_until(due) and self._use_allowance():
            reply = await self._send_request(due)
            due = reply.ended
            if load.think_s:
                due += think(1 / load.think_s)
            if reply.outcome != "refused":
                pause_s = MIN_PAUSE_S
                continue
            # Without a server each attempt ends at once: all users would hammer at a closed door.
            due += pause_s
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _run_arrivals(self) -> None:
        load = self._load
        for offset in itertools.islice(arrival_times(load), load.share, None, load.shares):
            due = self._base + offset
            # With no room it waits, but its latency counts from when it was due all the same.
            if not await self._sleep_until(due) or not await self._wait_for_slot() or not self._use_allowance():
                return
            self._start_task(self._run_arrival(due))

    async def _run_arrival(self, due: float) -> None:
        try:
            await self._send_request(due)
        finally:
            self._room.release()

    @contextmanager
    def _wakeable_sleep(self) -> Iterator[None]:
        """Within, the end of the step wakes this task; it then goes on as if its time had come."""
        task = asyncio.current_task()
        assert task is not None
        self._sleeping.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        finally:
            self._sleeping.discard(task)

    async def _wait_for_slot(self) -> bool:
        with self._wakeable_sleep():
            await self._room.acquire()
        return not self._stopping

    async def _sleep_until(self, due: float) -> bool:
        """Sleep until then; false when the step ends before."""
        if self._stopping:
            return False
        delay_s = due - clock()
        if delay_s <= 0:
            return True
        with self._wakeable_sleep():
            await asyncio.sleep(delay_s)
        return not self._stopping

    def _use_allowance(self) -> bool:
        if self._stopping:
            return False
        if self._allowance is not None:
            if self._allowance <= 0:
                self.exhausted = True
                return False
            self._allowance -= 1
        return True

    async def _send_request(self, due: float) -> Reply:
        item, prompt = next(self._items)
        sent, tail = clock(), self.tail
        self.in_flight += 1
        self.kept_open += not tail
        retries = 0
        try:
            reply = await self._target.send(prompt)
            while retries < self._load.retries and _should_retry(reply) and self._use_allowance():
                retries += 1
                await asyncio.sleep(min(2 ** (retries - 1), 8))
                reply = await self._target.send(prompt)
        finally:
            self.in_flight -= 1
            self.kept_open -= not tail
        self._record_reply(item, due, sent, retries, tail, reply)
        return reply

    def _record_reply(self, item: int, due: float, sent: float, retries: int, tail: bool, reply: Reply) -> None:
        base = self._base
        first = reply.first_token
        self.rows.append(
            RequestRow(
                item,
                due - base,
                sent - base,
                reply.ended - base,
                reply.outcome,
                reply.status,
                retries,
                None if first is None else first - base,
                reply.itl_s,
                reply.llm_s,
                reply.server_runtime_s,
                reply.input_tokens,
                reply.output_tokens,
                tail,
            )
        )
        if reply.outcome != "ok":
            self._count_failure(reply)

    def _count_failure(self, reply: Reply) -> None:
        status = f" {reply.status}" if reply.status is not None else ""
        told = f"{reply.outcome}{status}" + (f": {reply.detail}" if reply.detail else "")
        if told in self.failures or len(self.failures) < MAX_FAILURE_KINDS:
            self.failures[told] += 1
        else:
            self.failures[f"{reply.outcome}{status}: told in other words"] += 1


def _should_retry(reply: Reply) -> bool:
    return reply.outcome in ("refused", "cut") or (reply.outcome == "http_error" and reply.status in RETRY_STATUSES)


def arrival_times(load: StepLoad) -> Iterator[float]:
    """When the requests of an open loop are due, of all processes together, in s since the step's start."""
    if load.arrivals == "poisson":
        return request_plan.poisson_arrivals(load.rate_per_s, f"{load.seed}/{load.step}/arrivals")
    if load.arrivals == "constant":
        return request_plan.constant_arrivals(load.rate_per_s)
    return request_plan.scaled_trace_arrivals(load.trace_s, load.rate_per_s)
