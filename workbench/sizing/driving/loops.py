"""The load of one process: users that send one request after the other, or arrivals that wait for nobody."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from workbench.sizing.driving import arrivals
from workbench.sizing.driving.prompts import Prompts
from workbench.sizing.driving.reply import Reply, clock
from workbench.sizing.driving.wire import Begin, Load, Request

RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
MOST_KINDS_OF_FAILURE = 100


class Target(Protocol):
    """What is driven; `simulated` once it has said so of itself."""

    simulated: bool

    async def open(self) -> None:
        """Make ready."""

    async def close(self) -> None:
        """Let go."""

    async def send(self, prompt: str) -> Reply:
        """Send one request; never raises for what the service does."""


class Driver:
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
        self._items = prompts.items(load.step, load.share, load.shares)
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sleeping: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Semaphore(max(1, load.max_in_flight // load.shares))
        self.rows: list[Request] = []
        self.failures: Counter[str] = Counter()
        self.in_flight = 0
        self.kept_open = 0
        self.exhausted = self._allowance is not None and self._allowance <= 0
        self.tail = False

    def start(self) -> None:
        """Begin to send."""
        load = self._load
        if load.loop == "open":
            self._spawn(self._arrive())
            return
        for number in range(load.share, load.users, load.shares):
            self._spawn(self._user(number))

    def begin_tail(self) -> None:
        """Requests from now on only keep the load on."""
        self.tail = True

    def stop(self) -> None:
        """Send nothing more; what is in flight goes on."""
        self._stopping = True
        for task in list(self._sleeping):
            task.cancel()

    async def drained(self) -> None:
        """Wait until nothing is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abort(self) -> None:
        """Break off what is in flight; such requests leave no row."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        await self.drained()

    def take(self) -> list[Request]:
        """The rows since the last time."""
        rows, self.rows = self.rows, []
        return rows

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _user(self, number: int) -> None:
        load = self._load
        think = random.Random(f"{load.seed}/{load.step}/think/{number}").expovariate  # noqa: S311 - no secret
        due = self._base + arrivals.even_ramp(number, load.users, load.ramp_s, f"{load.seed}/{load.step}")
        pause_s = FIRST_PAUSE_S
        while await self._until(due) and self._granted():
            reply = await self._one(due)
            due = reply.ended
            if load.think_s:
                due += think(1 / load.think_s)
            if reply.outcome != "refused":
                pause_s = FIRST_PAUSE_S
                continue
            # Without a server each attempt ends at once: all users would hammer at a closed door.
            due += pause_s
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _arrive(self) -> None:
        load = self._load
        for offset in itertools.islice(times(load), load.share, None, load.shares):
            due = self._base + offset
            # With no room it waits, but its latency counts from when it was due all the same.
            if not await self._until(due) or not await self._admitted() or not self._granted():
                return
            self._spawn(self._arrival(due))

    async def _arrival(self, due: float) -> None:
        try:
            await self._one(due)
        finally:
            self._room.release()

    @contextmanager
    def _asleep(self) -> Iterator[None]:
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

    async def _admitted(self) -> bool:
        with self._asleep():
            await self._room.acquire()
        return not self._stopping

    async def _until(self, due: float) -> bool:
        """Sleep until then; false when the step ends before."""
        if self._stopping:
            return False
        delay_s = due - clock()
        if delay_s <= 0:
            return True
        with self._asleep():
            await asyncio.sleep(delay_s)
        return not self._stopping

    def _granted(self) -> bool:
        if self._stopping:
            return False
        if self._allowance is not None:
            if self._allowance <= 0:
                self.exhausted = True
                return False
            self._allowance -= 1
        return True

    async def _one(self, due: float) -> Reply:
        item, prompt = next(self._items)
        sent, tail = clock(), self.tail
        self.in_flight += 1
        self.kept_open += not tail
        retries = 0
        try:
            reply = await self._target.send(prompt)
            while retries < self._load.retries and _may_be_retried(reply) and self._granted():
                retries += 1
                await asyncio.sleep(min(2 ** (retries - 1), 8))
                reply = await self._target.send(prompt)
        finally:
            self.in_flight -= 1
            self.kept_open -= not tail
        self._record(item, due, sent, retries, tail, reply)
        return reply

    def _record(self, item: int, due: float, sent: float, retries: int, tail: bool, reply: Reply) -> None:
        base = self._base
        first = reply.first_token
        self.rows.append(
            Request(
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
            self._count(reply)

    def _count(self, reply: Reply) -> None:
        status = f" {reply.status}" if reply.status is not None else ""
        told = f"{reply.outcome}{status}" + (f": {reply.detail}" if reply.detail else "")
        if told in self.failures or len(self.failures) < MOST_KINDS_OF_FAILURE:
            self.failures[told] += 1
        else:
            self.failures[f"{reply.outcome}{status}: told in other words"] += 1


def _may_be_retried(reply: Reply) -> bool:
    return reply.outcome in ("refused", "cut") or (reply.outcome == "http_error" and reply.status in RETRIED_STATUS)


def times(load: Load) -> Iterator[float]:
    """When the requests of an open loop are due, of all processes together, in s since the step's start."""
    if load.arrivals == "poisson":
        return arrivals.poisson(load.rate_per_s, f"{load.seed}/{load.step}/arrivals")
    if load.arrivals == "constant":
        return arrivals.constant(load.rate_per_s)
    return arrivals.trace(load.trace_s, load.rate_per_s)
