"""Submission of a plan: each workload when it is due; resumable, and never sent twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import InputError
from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.observation.run_records import Begun, Stopped
from workbench.scaletest.scenario.workload_objects import PlannedWorkload
from workbench.scaletest.submission import object_creation, request_dispatch
from workbench.scaletest.submission.abort_criteria import (
    AbortLimits,
    ClusterHealth,
    StopRequest,
    SubmissionLimits,
    Watchdog,
)
from workbench.scaletest.submission.object_creation import Metadata, Submitter
from workbench.scaletest.submission.request_dispatch import RequestWindow, StopError, StopFlag, TokenBucket
from workbench.scaletest.submission.submission_journal import JournalState, SubmissionJournal, read_journal
from workbench.scaletest.submission.submission_status import (
    SilentWatcher,
    StatusWatcher,
    SubmissionMeter,
    SubmissionOutcome,
    SubmissionStatus,
)
from workbench.scaletest.submission.workload_sender import WorkloadSender

CHECK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Bursts:
    """Closed loop instead of due times: a burst, all of it awaited, then a delay."""

    size: int
    delay_s: float = 0.0


async def submit_plan(
    api: Connection,
    planned: Iterable[PlannedWorkload],
    folder: str | Path,
    *,
    run: str,
    limits: SubmissionLimits | None = None,
    aborts: AbortLimits | None = None,
    origin_ns: int | None = None,
    submitter: Submitter | None = None,
    bursts: Bursts | None = None,
    asked: StopRequest | None = None,
    health: Callable[[], ClusterHealth] | None = None,
    watcher: StatusWatcher | None = None,
) -> SubmissionOutcome:
    """Submit a plan's workloads, with a journal; continues where an earlier process of this run stopped.

    Open loop: a workload is sent when it is due, whatever happens to earlier ones. Delays (requests in flight, the rate
    limit, 429) count as lateness or latency; the due time stays.

    `planned`, `folder`: Workloads in the order of their due times; folder of the journal.
    `origin_ns`: Start of the run by the client's clock; now by default. A resumed run keeps its own.
    `asked`, `health`, `watcher`: Stop request of a person; the sampler's view of the cluster, polled several times a
    second; progress display.
    """
    way = submitter or object_creation.ApiSubmitter(api)
    # Locked before it is read, so that only one of two resuming processes continues.
    journal = SubmissionJournal(folder)
    try:
        before = read_journal(folder)
        if before.run not in (None, run) or before.mode not in (None, way.mode):
            raise InputError(
                "the journal is of another submission",
                where=folder,
                found=f"{before.run} by {before.mode}",
                allowed=f"{run} by {way.mode}",
            )
        work = _Submission(api, way, journal, before, run, limits or SubmissionLimits(), aborts or AbortLimits())
        work.asked, work.health, work.watcher = asked or StopRequest(), health, watcher or SilentWatcher()
        return await work.run_to_end(list(planned), origin_ns, bursts)
    finally:
        journal.close()


class _Submission:
    """One process's share of a run's submission."""

    asked: StopRequest
    health: Callable[[], ClusterHealth] | None
    watcher: StatusWatcher

    def __init__(
        self,
        api: Connection,
        way: Submitter,
        journal: SubmissionJournal,
        before: JournalState,
        run: str,
        limits: SubmissionLimits,
        aborts: AbortLimits,
    ) -> None:
        self._api, self._way, self._journal, self._before = api, way, journal, before
        self._run, self._limits = run, limits
        self._resumed = before.run is not None
        self._ending, self._meter, self._dog = StopFlag(), SubmissionMeter(), Watchdog(aborts)
        self._bucket, self._window = (
            TokenBucket(limits.rate_per_s, full=not self._resumed),
            RequestWindow(limits.in_flight),
        )
        self._slots = asyncio.Semaphore(limits.in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self._began_ns = now_ns()
        self._origin_ns = self._began_ns
        self._planned: list[PlannedWorkload] = []

    async def run_to_end(
        self, planned: list[PlannedWorkload], origin_ns: int | None, bursts: Bursts | None
    ) -> SubmissionOutcome:
        """Send them all; what came of it."""
        self._planned = planned
        self._origin_ns = self._before.origin_ns or origin_ns or self._began_ns
        begun = Begun(self._run, self._began_ns, self._origin_ns, resumed=self._resumed, mode=self._way.mode)
        await self._journal.write_durably([begun])
        looking = asyncio.create_task(self._watch_limits())
        # Whatever it dies of: without it there would be no limits, no abort and no Ctrl-C.
        looking.add_done_callback(self._check_task_error)
        try:
            self._sender = self._build_sender(await self._find_existing_objects())
            if self.asked.times:
                self._ending.stop(self.asked.reason or "interrupted")
            if not self._ending.on:
                await self._wait_for_workloads(asyncio.create_task(self._dispatch_workloads(bursts)))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if self._ending.error is not None:
            raise self._ending.error
        reason = self._ending.reason or "finished"
        await self._journal.write_durably([Stopped(now_ns(), reason, self._meter.in_flight_most)])
        self._report_status()
        return self._build_outcome(reason)

    async def begin(self, item: PlannedWorkload) -> None:
        """Send one, as soon as the rate's limit lets it and there is room."""
        await self._bucket.take()
        await self._slots.acquire()
        self._meter.add_in_flight()
        overdue = self._resumed and self._due_ns(item) < self._began_ns
        task = asyncio.create_task(self._sender.send_workload(item, self._due_ns(item), overdue=overdue))
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

    async def idle(self) -> None:
        """Until none is on its way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _dispatch_workloads(self, bursts: Bursts | None) -> None:
        missing = (item for item in self._planned if item.index not in self._before.done)
        if bursts is not None:
            await request_dispatch.dispatch_bursts(
                missing, bursts.size, bursts.delay_s, self, self._journal, self._ending
            )
        else:
            await request_dispatch.dispatch_open_loop(missing, self._due_ns, self, self._journal)

    async def _wait_for_workloads(self, sending: asyncio.Task[None]) -> None:
        """Wait for everything sent; stop sending at the first stop request, cancel at the second."""
        stop = asyncio.create_task(self._ending.wait())
        await asyncio.wait({sending, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not sending.done():
            sending.cancel()
        ended = await asyncio.gather(sending, stop, return_exceptions=True)
        if isinstance(ended[0], Exception):
            self._ending.fail(ended[0])
        while self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CHECK_EVERY_S)
            if self.asked.times > 1:
                for task in self._tasks:
                    task.cancel()

    async def _find_existing_objects(self) -> dict[tuple[str, str], Metadata]:
        """What the cluster has of that which an earlier process was about to send."""
        existing: dict[tuple[str, str], Metadata] = {}
        open_ = [item for item in self._planned if item.index in self._before.open]
        requests = [request for item in open_ for request in item.requests()]
        if not self._way.labelled:
            for wanted in requests:
                if (
                    there := await object_creation.find_object(
                        self._api, wanted, timeout_s=self._limits.request_timeout_s
                    )
                ) is not None:
                    existing[wanted.path, wanted.name] = there
            return existing
        for path in sorted({request.path for request in requests}):
            listed = await object_creation.list_run_objects(self._api, path, self._run)
            existing |= {(path, name): there for name, there in listed.items()}
        return existing

    def _build_sender(self, existing: dict[tuple[str, str], Metadata]) -> WorkloadSender:
        return WorkloadSender(
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

    def _due_ns(self, item: PlannedWorkload) -> int:
        return self._origin_ns + int(item.due_s * NS_PER_S)

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._meter.remove_in_flight()
        self._slots.release()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StopError):
            self._ending.stop(str(error))
        elif error is not None:
            self._ending.fail(error)

    def _check_task_error(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._ending.fail(error)

    async def _watch_limits(self) -> None:
        """Limits, abort criteria, a person's wish: several times a second."""
        is_announced = False
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            self._report_status()
            if not self._ending.on and (reason := self._find_stop_reason()) is not None:
                self._ending.stop(reason)
            if self._ending.on and not is_announced:
                is_announced = True
                self.watcher.say(f"nothing more is sent: {self._ending.reason}")

    def _find_stop_reason(self) -> str | None:
        limits, at_ns = self._limits, now_ns()
        if self.asked.times:
            return self.asked.reason
        if limits.wall_clock_s is not None and at_ns - self._began_ns > limits.wall_clock_s * NS_PER_S:
            return f"limit: {limits.wall_clock_s:g} s of submitting"
        health = None if self.health is None else self.health()
        if health is not None and limits.pending_pods is not None and (health.pending_pods or 0) > limits.pending_pods:
            return f"limit: {health.pending_pods} pods wait for a node, {limits.pending_pods} may"
        wrong = self._dog.find_reason(at_ns, health)
        return None if wrong is None else f"aborted: {wrong}"

    def _report_status(self) -> None:
        health = self.health() if self.health is not None else ClusterHealth()
        before, meter, at_ns = self._before, self._meter, now_ns()
        self.watcher.show_status(
            SubmissionStatus(
                at_s=(at_ns - self._began_ns) / NS_PER_S,
                planned=len(self._planned),
                sent=meter.sent,
                acked=meter.acked + len(before.acked),
                failed=meter.failed + len(before.refused),
                in_flight=meter.in_flight,
                throttled=meter.throttled,
                window=self._window.size,
                rate_per_s=meter.accepted_per_s(at_ns),
                ack_p50_s=meter.ack_quantile(0.5),
                ack_p95_s=meter.ack_quantile(0.95),
                pending_pods=health.pending_pods,
                finished_pods=health.finished_pods,
            )
        )

    def _build_outcome(self, reason: str) -> SubmissionOutcome:
        meter, planned = self._meter, len(self._planned)
        acked, failed = meter.acked + len(self._before.acked), meter.failed + len(self._before.refused)
        return SubmissionOutcome(
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
            throttled_s=meter.throttled_ns / NS_PER_S,
            lateness_p50_s=meter.lateness_quantile(0.5),
            lateness_p99_s=meter.lateness_quantile(0.99),
            rate_per_s=meter.send_rate(),
            resumed=self._resumed,
            overdue=meter.overdue,
            first_failure=meter.first_failure,
        )
