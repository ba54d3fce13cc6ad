"""Sending a plan: each workload when it is due, whatever the server does; journalled, resumable, never twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import InputError
from workbench.scaletest.connection import Connection
from workbench.scaletest.driving import by_api, dispatch
from workbench.scaletest.driving.ending import Ending, StopError
from workbench.scaletest.driving.figures import Live, Meter, Outcome, Silence, Watcher
from workbench.scaletest.driving.journal import Journal, State, state
from workbench.scaletest.driving.limits import Aborts, Asked, Health, Limits
from workbench.scaletest.driving.pace import Bucket, Window
from workbench.scaletest.driving.reply import Metadata, Submitter
from workbench.scaletest.driving.watchdog import Watchdog
from workbench.scaletest.driving.workload import Sender
from workbench.scaletest.planned import Planned
from workbench.scaletest.records import Begun, Stopped
from workbench.scaletest.times import NS, now_ns

LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Bursts:
    """A closed loop instead of due times: so many at a time, all awaited, then a delay."""

    size: int
    delay_s: float = 0.0


async def submit(
    api: Connection,
    planned: Iterable[Planned],
    folder: str | Path,
    *,
    run: str,
    limits: Limits | None = None,
    aborts: Aborts | None = None,
    origin_ns: int | None = None,
    submitter: Submitter | None = None,
    bursts: Bursts | None = None,
    asked: Asked | None = None,
    health: Callable[[], Health] | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Send a plan's workloads and keep a journal of it; go on where an earlier process of this run ended.

    Open loop: a workload goes out when it is due, however the earlier ones fare. What holds it back (requests in
    flight, the rate's limit, 429) is lateness or latency: the intended time stays.

    Parameters
    ----------
    planned
        In the order of their due times.
    folder
        Where the journal is, or shall be.
    origin_ns
        The run's start by the client's clock; now without it. A resumed run keeps its first.
    submitter
        How objects are made; by POST without one.
    bursts
        Closed loop instead; due times are then not kept.
    asked
        How a person ends it.
    health
        What the sampler tells of the cluster; asked several times a second.
    watcher
        Who is told how it goes.

    Returns
    -------
    Outcome
        Counts and the reason of the end. Ended early, all that was made stays, and can be gone on with.

    Raises
    ------
    ConfigError
        Another process is submitting in this folder.
    InputError
        The journal is another run's, or was submitted in another way.
    RunFailedError
        The disk does not take the journal; of a resumed run, the cluster does not list what is there.
    """
    way = submitter or by_api.Api(api)
    # Locked before it is read: two that resume at once must not both believe what they read.
    journal = Journal(folder)
    try:
        before = state(folder)
        if before.run not in (None, run) or before.mode not in (None, way.mode):
            raise InputError(
                "the journal is of another submission",
                where=folder,
                found=f"{before.run} by {before.mode}",
                allowed=f"{run} by {way.mode}",
            )
        work = _Submission(api, way, journal, before, run, limits or Limits(), aborts or Aborts())
        work.asked, work.health, work.watcher = asked or Asked(), health, watcher or Silence()
        return await work.done(list(planned), origin_ns, bursts)
    finally:
        journal.close()


class _Submission:
    """One process's share of a run's submission."""

    asked: Asked
    health: Callable[[], Health] | None
    watcher: Watcher

    def __init__(
        self, api: Connection, way: Submitter, journal: Journal, before: State, run: str, limits: Limits, aborts: Aborts
    ) -> None:
        self._api, self._way, self._journal, self._before = api, way, journal, before
        self._run, self._limits = run, limits
        self._resumed = before.run is not None
        self._ending, self._meter, self._dog = Ending(), Meter(), Watchdog(aborts)
        self._bucket, self._window = Bucket(limits.rate_per_s, full=not self._resumed), Window(limits.in_flight)
        self._slots = asyncio.Semaphore(limits.in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._began_ns = now_ns()
        self._origin_ns = self._began_ns
        self._planned: list[Planned] = []

    async def done(self, planned: list[Planned], origin_ns: int | None, bursts: Bursts | None) -> Outcome:
        """Send them all; what came of it."""
        self._planned = planned
        self._origin_ns = self._before.origin_ns or origin_ns or self._began_ns
        begun = Begun(self._run, self._began_ns, self._origin_ns, resumed=self._resumed, mode=self._way.mode)
        await self._journal.durable([begun])
        looking = asyncio.create_task(self._look_after())
        # Whatever it dies of: without it there would be no limits, no abort and no Ctrl-C.
        looking.add_done_callback(self._unlooked)
        try:
            self._sender = self._made_sender(await self._learned())
            if self.asked.times:
                self._ending.stop(self.asked.reason or "interrupted")
            if not self._ending.on:
                await self._until_done(asyncio.create_task(self._send(bursts)))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if self._ending.error is not None:
            raise self._ending.error
        reason = self._ending.reason or "finished"
        await self._journal.durable([Stopped(now_ns(), reason, self._meter.in_flight_most)])
        self._tell()
        return self._outcome(reason)

    async def begin(self, item: Planned) -> None:
        """Send one, as soon as the rate's limit lets it and there is room."""
        await self._bucket.take()
        await self._slots.acquire()
        self._meter.entered()
        overdue = self._resumed and self._due_ns(item) < self._began_ns
        task = asyncio.create_task(self._sender.send(item, self._due_ns(item), overdue=overdue))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Until none is on its way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _send(self, bursts: Bursts | None) -> None:
        missing = (item for item in self._planned if item.index not in self._before.done)
        if bursts is not None:
            await dispatch.bursts(missing, bursts.size, bursts.delay_s, self, self._journal, self._ending)
        else:
            await dispatch.open_loop(missing, self._due_ns, self, self._journal)

    async def _until_done(self, sending: asyncio.Task[None]) -> None:
        """Wait for all that was sent; stop sending when somebody says so; break off when they say it twice."""
        stop = asyncio.create_task(self._ending.wait())
        await asyncio.wait({sending, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not sending.done():
            sending.cancel()
        ended = await asyncio.gather(sending, stop, return_exceptions=True)
        if isinstance(ended[0], Exception):
            self._ending.fail(ended[0])
        while self._tasks:
            await asyncio.wait(set(self._tasks), timeout=LOOK_EVERY_S)
            if self.asked.times > 1:
                for task in self._tasks:
                    task.cancel()

    async def _learned(self) -> dict[tuple[str, str], Metadata]:
        """What the cluster has of that which an earlier process was about to send."""
        found: dict[tuple[str, str], Metadata] = {}
        open_ = [item for item in self._planned if item.index in self._before.open]
        requests = [one for item in open_ for one in item.requests()]
        if not self._way.labelled:
            for one in requests:
                if (there := await by_api.look(self._api, one, timeout_s=self._limits.request_timeout_s)) is not None:
                    found[one.path, one.name] = there
            return found
        for path in sorted({one.path for one in requests}):
            listed = await by_api.listed(self._api, path, self._run)
            found |= {(path, name): there for name, there in listed.items()}
        return found

    def _made_sender(self, existing: dict[tuple[str, str], Metadata]) -> Sender:
        return Sender(
            api=self._api,
            way=self._way,
            journal=self._journal,
            run=self._run,
            limits=self._limits,
            ending=self._ending,
            meter=self._meter,
            window=self._window,
            dog=self._dog,
            existing=existing,
            draw=random.Random(self._run),  # noqa: S311 - only spreads retries
            # Those of an earlier process are at least one object each.
            reserved=len(self._before.acked),
        )

    def _due_ns(self, item: Planned) -> int:
        return self._origin_ns + int(item.due_s * NS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._meter.left()
        self._slots.release()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StopError):
            self._ending.stop(str(error))
        elif error is not None:
            self._ending.fail(error)

    def _unlooked(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._ending.fail(error)

    async def _look_after(self) -> None:
        """Limits, abort criteria, a person's wish: several times a second."""
        told = False
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._tell()
            if not self._ending.on and (reason := self._reason_to_end()) is not None:
                self._ending.stop(reason)
            if self._ending.on and not told:
                told = True
                self.watcher.say(f"nothing more is sent: {self._ending.reason}")

    def _reason_to_end(self) -> str | None:
        limits, at_ns = self._limits, now_ns()
        if self.asked.times:
            return self.asked.reason
        if limits.wall_clock_s is not None and at_ns - self._began_ns > limits.wall_clock_s * NS:
            return f"limit: {limits.wall_clock_s:g} s of submitting"
        health = None if self.health is None else self.health()
        if health is not None and limits.pending_pods is not None and (health.pending_pods or 0) > limits.pending_pods:
            return f"limit: {health.pending_pods} pods wait for a node, {limits.pending_pods} may"
        wrong = self._dog.reason(at_ns, health)
        return None if wrong is None else f"aborted: {wrong}"

    def _tell(self) -> None:
        health = self.health() if self.health is not None else Health()
        before, meter, at_ns = self._before, self._meter, now_ns()
        self.watcher.going(
            Live(
                at_s=(at_ns - self._began_ns) / NS,
                planned=len(self._planned),
                sent=meter.sent,
                acked=meter.acked + len(before.acked),
                failed=meter.failed + len(before.refused),
                in_flight=meter.in_flight,
                throttled=meter.throttled,
                window=self._window.size,
                rate_per_s=meter.rate(at_ns),
                ack_p50_s=meter.ack_quantile(0.5),
                ack_p95_s=meter.ack_quantile(0.95),
                pending_pods=health.pending_pods,
                finished_pods=health.finished_pods,
            )
        )

    def _outcome(self, reason: str) -> Outcome:
        meter, planned = self._meter, len(self._planned)
        acked, failed = meter.acked + len(self._before.acked), meter.failed + len(self._before.refused)
        return Outcome(
            reason=reason,
            origin_ns=self._origin_ns,
            began_ns=self._began_ns,
            ended_ns=now_ns(),
            planned=planned,
            acked=acked,
            known=meter.known,
            failed=failed,
            unsent=planned - acked - failed,
            objects=meter.objects,
            in_flight_most=meter.in_flight_most,
            throttled=meter.throttled,
            throttled_s=meter.throttled_ns / NS,
            lateness_p50_s=meter.lateness(0.5),
            lateness_p99_s=meter.lateness(0.99),
            rate_per_s=meter.sent_rate(),
            resumed=self._resumed,
            overdue=meter.overdue,
            first_failure=meter.first_failure,
        )
