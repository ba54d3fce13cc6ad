"""Load of one client process: closed-loop users or open-loop arrivals, and event loop lag."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import zlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from workbench.core.errors import ConfigError
from workbench.core.message_kinds import MessageKind, MessageKinds
from workbench.sizing.load import conversation_file, request_plan
from workbench.sizing.load.agent_tasks import NextTask, TaskQueue
from workbench.sizing.load.arrival_processes import PROCESSES, ArrivalSettings
from workbench.sizing.load.client_messages import (
    NO_EXTRA,
    Begin,
    Reply,
    RequestExtra,
    RequestRow,
    StepLoad,
    clock,
    shorten_detail,
)
from workbench.sizing.load.conversation_file import RecordedSession
from workbench.sizing.load.request_plan import Prompts
from workbench.sizing.load.task_run import run_task

SAMPLE_EVERY_S = 0.01
# Timers have millisecond resolution and fire up to 1 ms late. Responses do not depend on timers.
TIMER_RESOLUTION_S = 0.001
# File descriptors of a process besides connections: files, pipes, the resolver.
RESERVED_FILES = 64
RETRY_STATUSES = frozenset({429, 500, 502, 503, 504})
MIN_PAUSE_S = 0.02
MAX_PAUSE_S = 1.0
# So many first requests with the same refusal, and none without, tell that the service takes none of them.
MAX_SAME_REFUSALS = 16
# Refusals that pass: rate limits, overload, a service that starts.
PASSING_STATUSES = RETRY_STATUSES | {408, 425}
MAX_EXAMPLE_BYTES = 800


class LagSampler:
    """Samples the lag of the event loop 100 times per second, by the clocks given: wall and CPU time in seconds."""

    def __init__(self, now: Callable[[], float] = clock, cpu: Callable[[], float] = time.process_time) -> None:
        self._now, self._cpu = now, cpu
        self._lags: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._began = (0.0, 0.0)

    def start(self) -> None:
        """Start sampling and reset the counters."""
        self._lags = []
        self._began = (self._now(), self._cpu())
        self._task = asyncio.get_running_loop().create_task(self._sample_lag())

    def stop(self) -> tuple[list[float], float]:
        """Stop, and return the lag of each sample in s and the CPU use of this process as a fraction of one core."""
        if self._task is not None:
            self._task.cancel()
        wall_s = self._now() - self._began[0]
        return self._lags, (self._cpu() - self._began[1]) / wall_s if wall_s > 0 else 0.0

    async def _sample_lag(self) -> None:
        while True:
            due = self._now() + SAMPLE_EVERY_S
            await asyncio.sleep(SAMPLE_EVERY_S)
            self._lags.append(max(0.0, self._now() - due - TIMER_RESOLUTION_S))


def percentile_99(lags_s: list[float]) -> float | None:
    """99th percentile; null without samples.

    >>> percentile_99([0.001] * 99 + [0.5]) < 0.01, percentile_99([])
    (True, None)
    """
    return float(np.quantile(lags_s, 0.99)) if lags_s else None


def raise_file_limit(wanted: int) -> None:
    """Raise the open-file limit of this process if needed."""
    try:
        import resource
    except ModuleNotFoundError:
        # Windows has no open-file limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            "the open-file limit is too low for the requests in flight",
            where="ulimit -n",
            found=f"{wanted} requests, {hard} open files",
            do=f"ulimit -n {needed}, or share the load: --processes {-(-wanted // max(1, hard - RESERVED_FILES))}",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Target(Protocol):
    """Service under load; `simulated` is true after the service has identified itself as a simulator."""

    simulated: bool

    async def open(self) -> None:
        """Open the target."""

    async def close(self) -> None:
        """Close the target."""

    async def send(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> Reply:
        """Send one request; failures of the service are outcomes, not exceptions."""


class Session:
    """Conversation of one user: each turn has all earlier ones as its context; then a new one begins.

    `first_turns`: Turns of the first one: users that all began with a short context would stay in step.
    """

    def __init__(self, turns: int, first_turns: int) -> None:
        self._turns = turns
        self._left = first_turns
        self.history: list[tuple[str, str]] = []

    def add_reply(self, prompt: str, reply: Reply) -> None:
        """Go on with the conversation; a failure ends it."""
        self._left -= 1
        if self._left <= 0 or reply.outcome != "ok" or reply.answer is None:
            self._left, self.history = self._turns, []
        else:
            self.history.append((prompt, reply.answer.decode(errors="replace")))


class LoadDriver:
    """Drives the share of one process in a step; collects rows of finished requests for `take_rows`.

    `example`: The first answer, shortened to one line; null before.
    `refusal`: The one refusal that all first requests met; null otherwise. Nothing is sent after it.
    """

    def __init__(self, target: Target, prompts: Prompts, order: Begin) -> None:
        load = order.load
        self._target = target
        self._load = load
        self._base = order.base
        self._allowance = order.allowance
        self._prompts = prompts
        self._items = prompts.iterate_items(load.step, load.share, load.shares)
        self._texts = prompts.open_trace_texts() if load.sessions else None
        self._probe_every = round(1 / prompts.probe_share) if prompts.probes and prompts.probe_share else 0
        self._n_sent = 0
        talks = prompts.conversations
        seed = f"{load.seed}/{load.step}/{load.share}"
        self._conversations = conversation_file.iterate_conversations(talks, seed) if talks else None
        self._agent_tasks = TaskQueue(prompts.tasks, seed) if prompts.tasks else None
        self._write_call = prompts.open_call_texts() if prompts.tasks else None
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sleeping: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Semaphore(max(1, load.max_in_flight // load.shares))
        self.rows: list[RequestRow] = []
        self.failures = MessageKinds()
        self.in_flight = 0
        self.kept_open = 0
        self.exhausted = self._allowance is not None and self._allowance <= 0
        self.tail = False
        self.example: str | None = None
        self.refusal: str | None = None
        self._same_refusals = max(1, MAX_SAME_REFUSALS // load.shares) if load.watches_refusals else None

    def start(self) -> None:
        """Start sending."""
        load = self._load
        if load.loop == "open":
            self._start_task(self._run_arrivals())
            return
        for number in range(load.share, load.users, load.shares):
            self._start_task(self._run_user(number))

    def begin_tail(self) -> None:
        """Start the tail: further requests only keep up the load."""
        self.tail = True

    def stop(self) -> None:
        """Stop sending; requests in flight continue."""
        self._stopping = True
        for task in list(self._sleeping):
            task.cancel()

    async def wait_until_idle(self) -> None:
        """Wait until no request is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abort(self) -> None:
        """Cancel the requests in flight; they leave no rows."""
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()
        await self.wait_until_idle()

    def take_rows(self) -> list[RequestRow]:
        """Rows collected since the last call."""
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
        session: Session | RecordedSession = Session(load.turns, first_turns=1 + number % load.turns)
        if self._conversations is not None:
            session = RecordedSession(self._conversations)
        agent_tasks = None if self._agent_tasks is None else self._agent_tasks.iterate_for_user()
        while await self._sleep_until(due) and self._use_allowance():
            if agent_tasks is None:
                reply = await self._send_request(due, session)
            else:
                reply = await self._send_task(due, next(agent_tasks))
            due = reply.ended
            if load.think_s:
                due += think(1 / load.think_s)
            if reply.outcome != "refused":
                pause_s = MIN_PAUSE_S
                continue
            # Refused connections fail immediately; back off so that the users do not send in a tight loop.
            due += pause_s
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _run_arrivals(self) -> None:
        load = self._load
        for number, offset in itertools.islice(enumerate(arrival_times(load)), load.share, None, load.shares):
            due = self._base + offset
            if load.sessions:
                if not await self._sleep_until(due):
                    return
                self._start_task(self._run_trace_session(number, due))
                continue
            # At the limit of requests in flight it waits; its latency still counts from the intended time.
            if not await self._sleep_until(due) or not await self._wait_for_slot() or not self._use_allowance():
                return
            self._start_task(self._run_arrival(due))

    async def _run_trace_session(self, number: int, due: float) -> None:
        """Send the turns of a recorded session, each its pause after the answer before it; a failure ends it."""
        load = self._load
        lap, place = divmod(number, len(load.sessions))
        turns = load.sessions[place]
        session = Session(len(turns), first_turns=len(turns))
        reply = None
        for row in turns:
            due = due if reply is None else reply.ended + load.pauses_s[row]
            if not await self._sleep_until(due) or not await self._wait_for_slot() or not self._use_allowance():
                return
            item = load.step * request_plan.STEP_ITEMS + lap * len(load.pauses_s) + row
            try:
                reply = await self._send_request(due, session, item)
            finally:
                self._room.release()
            if reply.outcome != "ok":
                return

    async def _run_arrival(self, due: float) -> None:
        try:
            if self._agent_tasks is None:
                await self._send_request(due)
            else:
                await self._send_task(due, next(self._agent_tasks.iterate_for_user()))
        finally:
            self._room.release()

    @contextmanager
    def _wakeable_sleep(self) -> Iterator[None]:
        """Inside the block, the end of the step interrupts this task's sleep; the task then continues."""
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
        """Sleep until the given time; false if the step ends first."""
        if self._stopping:
            return False
        delay_s = due - clock()
        if delay_s <= 0:
            return True
        with self._wakeable_sleep():
            await asyncio.sleep(delay_s)
        return not self._stopping

    def _use_allowance(self) -> bool:
        if self._stopping or self.refusal is not None:
            return False
        if self._allowance is not None:
            if self._allowance <= 0:
                self.exhausted = True
                return False
            self._allowance -= 1
        return True

    async def _send_request(
        self, due: float, session: Session | RecordedSession | None = None, item: int | None = None
    ) -> Reply:
        self._n_sent += 1
        probe = None
        if self._probe_every and self._n_sent % self._probe_every == 0 and (session is None or not session.history):
            # Each has a number of its own: the same question again is no repeated prompt of the load.
            number = self._load.share + self._load.shares * (self._n_sent // self._probe_every)
            probe = self._prompts.probes[number % len(self._prompts.probes)]
            item, prompt = -1 - self._load.step * request_plan.STEP_ITEMS - number, probe.prompt
        elif isinstance(session, RecordedSession):
            item, prompt = session.next_message
        elif item is None or self._texts is None:
            item, prompt = next(self._items)
        else:
            prompt = self._texts(item)
        history = () if session is None else tuple(session.history)
        extra = RequestExtra(None if probe is not None else self._prompts.answer_length(item), history)
        sent, tail = clock(), self.tail
        with self._count_in_flight():
            reply, retries = await self._send_with_retries(prompt, extra)
        is_session = self._load.turns > 1 or self._load.sessions or isinstance(session, RecordedSession)
        turn = len(history) + 1 if is_session else None
        right = None
        if probe is not None and reply.outcome == "ok" and reply.answer is not None:
            right = probe.is_right(reply.answer.decode(errors="replace"))
        self._record_reply(item, due, sent, retries, tail, reply, turn, right)
        if session is not None and probe is None:
            session.add_reply(prompt, reply)
        return reply

    async def _send_task(self, due: float, chosen: NextTask) -> Reply:
        """Run a task of an agent as one request; its calls are sent again as requests are."""
        load, write_call, task = self._load, self._write_call, self._prompts.tasks[chosen.number]
        assert write_call is not None
        # The tasks of one process are no other's, and a pass has prompts of its own.
        lap = chosen.lap * load.shares + load.share
        n_retries = 0

        async def send_call(place: int) -> Reply:
            nonlocal n_retries
            prompt = write_call(chosen.number, place, (load.step, lap))
            extra = RequestExtra(task.calls[place].output_tokens)
            reply, retries = await self._send_with_retries(prompt, extra)
            n_retries += retries
            return reply

        sent, tail = clock(), self.tail
        with self._count_in_flight():
            reply = await run_task(task, send_call, sent, load.tool_factor)
        item = load.step * request_plan.STEP_ITEMS + lap * len(self._prompts.tasks) + chosen.number
        self._record_reply(item, due, sent, n_retries, tail, reply, None, None)
        return reply

    @contextmanager
    def _count_in_flight(self) -> Iterator[None]:
        tail = self.tail
        self.in_flight += 1
        self.kept_open += not tail
        try:
            yield
        finally:
            self.in_flight -= 1
            self.kept_open -= not tail

    async def _send_with_retries(self, prompt: str, extra: RequestExtra) -> tuple[Reply, int]:
        """The last reply, and how often the request was sent again."""
        retries = 0
        reply = await self._target.send(prompt, extra)
        while (
            retries < self._load.retries
            and (
                reply.outcome in ("refused", "cut")
                or (reply.outcome == "http_error" and reply.status in RETRY_STATUSES)
            )
            and self._use_allowance()
        ):
            retries += 1
            await asyncio.sleep(min(2 ** (retries - 1), 8))
            reply = await self._target.send(prompt, extra)
        return reply, retries

    def _record_reply(
        self,
        item: int,
        due: float,
        sent: float,
        retries: int,
        tail: bool,
        reply: Reply,
        turn: int | None,
        right: bool | None,
    ) -> None:
        base = self._base
        self.rows.append(
            RequestRow(
                item,
                due - base,
                sent - base,
                reply.ended - base,
                reply.outcome,
                reply.status,
                retries,
                _since(base, reply.first_token),
                reply.itl_s,
                reply.llm_s,
                reply.server_runtime_s,
                reply.input_tokens,
                reply.output_tokens,
                tail,
                None if reply.answer is None else len(reply.answer),
                None if reply.answer is None else zlib.crc32(reply.answer),
                reply.retry_after_s,
                turn,
                streamed_tokens=reply.streamed_tokens,
                later_tokens=reply.later_tokens,
                event_tokens=reply.event_tokens,
                stream=reply.stream,
                cached_tokens=reply.cached_tokens,
                first_output_s=_since(base, reply.first_output),
                longest_gap_s=reply.longest_gap_s,
                finish_reason=reply.finish_reason,
                right=right,
            )
        )
        if reply.outcome != "ok":
            self._count_failure(reply)
            return
        self._same_refusals = None
        if self.example is None and reply.answer is not None:
            self.example = shorten_detail(reply.answer[:MAX_EXAMPLE_BYTES].decode(errors="replace"))

    def _watch_refusals(self, reply: Reply, failure: MessageKind) -> None:
        if self._same_refusals is None:
            return
        is_final = reply.outcome == "malformed" or (
            reply.outcome == "http_error" and reply.status not in PASSING_STATUSES
        )
        if not is_final or len(self.failures) > 1:
            self._same_refusals = None
        elif failure.count >= self._same_refusals:
            self.refusal = str(failure)

    def _count_failure(self, reply: Reply) -> None:
        status = f" {reply.status}" if reply.status is not None else ""
        self._watch_refusals(reply, self.failures.add(f"{reply.outcome}{status}", reply.detail or ""))


def _since(base: float, moment: float | None) -> float | None:
    return None if moment is None else moment - base


def arrival_times(load: StepLoad) -> Iterator[float]:
    """Intended times of an open loop over all processes, in s since the start of the step."""
    # A rate is of requests, of which a session has several.
    n_requests = sum(map(len, load.sessions))
    rate_per_s = load.rate_per_s * len(load.sessions) / n_requests if load.sessions else load.rate_per_s
    settings = ArrivalSettings(rate_per_s, f"{load.seed}/{load.step}/arrivals", load.arrivals_cv, load.trace_s)
    return PROCESSES[load.arrivals].iterate_times(settings)
