"""Submission of a plan: each workload when it is due; resumable, and never sent twice."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.core.errors import InputError
from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection, UnreachableError, now_ns
from workbench.scaletest.observation.run_records import Acked, Begun, Failed, Intent, Stopped
from workbench.scaletest.scenario.scenario_file import AbortCriteria, ScenarioLimits
from workbench.scaletest.scenario.workload_objects import ObjectRequest, PlannedWorkload
from workbench.scaletest.submission import object_creation
from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest, Watchdog
from workbench.scaletest.submission.object_creation import Metadata, Reply, Submitter, draw_backoff_s, shorten_text
from workbench.scaletest.submission.request_dispatch import RequestWindow, StopError, StopFlag, TokenBucket
from workbench.scaletest.submission.submission_journal import SubmissionJournal, is_final_status, read_journal

N_RECENT_ANSWERS = 1000
RATE_OVER_S = 5.0
REQUEST_TIMEOUT_S = 60.0
# Of retries after timeouts and server errors; 429 responses do not count.
RETRY_FOR_S = 120.0
LONGEST_WAIT_S = 30.0
# Intents are written early enough that the disk does not make a workload late.
ANNOUNCE_AHEAD_NS = NS_PER_S // 5
ANNOUNCE_BATCH = 64
INTERRUPTED = "interrupted"
ENDED_MESSAGE = "submission ended before the cluster accepted it"
CHECK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class SubmissionStatus:
    """A submission at one moment.

    `planned`, `acked`, `failed`: Workloads in all and so far, those of an earlier process of the same run included.
    `ack_p50_s`, `ack_p95_s`: Of the last accepted workloads, from the intended time on; null without one.
    `pending_pods`: As the sampler sees them; null where it does not tell.
    """

    planned: int
    acked: int
    failed: int
    in_flight: int
    throttled: int
    window: int
    rate_per_s: float
    ack_p50_s: float | None
    ack_p95_s: float | None
    pending_pods: int | None = None


class SilentWatcher:
    """A watcher that shows nothing."""

    def show_status(self, live: SubmissionStatus) -> None:
        """Show the progress; called several times a second."""

    def say(self, line: str) -> None:
        """Show a message that a person should read."""


@dataclass(frozen=True, slots=True)
class SubmissionOutcome:
    """Outcome of a submission.

    `acked`: Workloads that the server has, those of an earlier process of this run included.
    `unsent`: Planned and never accepted, refused ones not counted; 0 when it finished.
    `throttled`, `throttled_s`: Answers of 429, and the time that workloads waited because of them, summed.
    `lateness_p50_s`, `lateness_p99_s`: From the intended time to the first byte; null when nothing was sent in time
    (all overdue or known).
    `rate_per_s`: Sent a second between the first and the last; null below two.
    """

    reason: str
    origin_ns: int
    began_ns: int
    ended_ns: int
    planned: int
    acked: int
    known: int
    failed: int
    unsent: int
    objects: int
    in_flight_most: int
    throttled: int
    throttled_s: float
    lateness_p50_s: float | None
    lateness_p99_s: float | None
    rate_per_s: float | None
    resumed: bool = False
    overdue: int = 0
    first_failure: str | None = None

    @property
    def aborted(self) -> bool:
        """Something was wrong with the cluster, or with what was found there."""
        return self.reason.startswith("aborted")

    @property
    def complete(self) -> bool:
        """Whether every workload of the plan is there."""
        return self.reason == "finished" and not self.failed and not self.unsent


class SubmissionMeter:
    """Live counts and times of a submission."""

    def __init__(self) -> None:
        self.sent = self.acked = self.failed = self.known = self.objects = self.throttled = 0
        self.throttled_ns = self.in_flight = self.in_flight_most = 0
        self.overdue = 0
        self.first_failure: str | None = None
        self._lateness = array.array("d")
        self._ends: deque[int] = deque(maxlen=100_000)
        self._acks: deque[float] = deque(maxlen=N_RECENT_ANSWERS)
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    def record_start(self, due_ns: int | None, sent_ns: int) -> None:
        """Count a workload whose first byte is sent; `due_ns` is null for one that was overdue from the beginning."""
        self.sent += 1
        if due_ns is not None:
            self._lateness.append(max(0.0, (sent_ns - due_ns) / NS_PER_S))
        else:
            self.overdue += 1
        self._first_ns = sent_ns if self._first_ns is None else min(self._first_ns, sent_ns)
        self._last_ns = max(self._last_ns or 0, sent_ns)

    def add_in_flight(self) -> None:
        """Count a workload that is on its way, or waits for its turn."""
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)

    def remove_in_flight(self) -> None:
        """Decrement the number of workloads in flight."""
        self.in_flight -= 1

    def record_failure(self, message: str) -> None:
        """Count a workload that was not accepted, and is not tried again."""
        self.failed += 1
        self.first_failure = self.first_failure or message

    def record_acceptance(self, due_ns: int, at_ns: int, *, known: bool) -> None:
        """Count an accepted workload; `known`: it existed before."""
        self.acked += 1
        self.known += known
        self._ends.append(at_ns)
        self._acks.append((at_ns - due_ns) / NS_PER_S)

    def accepted_per_s(self, at_ns: int) -> float:
        """Accepted workloads per second, over the last seconds."""
        since = at_ns - int(RATE_OVER_S * NS_PER_S)
        while self._ends and self._ends[0] < since:
            self._ends.popleft()
        return len(self._ends) / RATE_OVER_S

    def ack_quantile(self, share: float) -> float | None:
        """Quantile of the times from due to acknowledged of the last accepted workloads."""
        return _ordered_quantile(sorted(self._acks), share)

    def lateness_quantile(self, share: float) -> float | None:
        """Quantile of the lateness of all workloads that were not overdue from the beginning."""
        return _ordered_quantile(sorted(self._lateness), share)

    def send_rate(self) -> float | None:
        """Sent workloads per second, between the first and the last."""
        if self._first_ns is None or self._last_ns is None or self._last_ns <= self._first_ns:
            return None
        return (self.sent - 1) / (self._last_ns - self._first_ns) * NS_PER_S


def _ordered_quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


@dataclass(slots=True)
class WorkloadTally:
    """State of a workload that is being sent.

    `failing_ns`: Since when the current object fails; null while it does not.
    """

    due_ns: int
    overdue: bool
    sent_ns: int = 0
    attempts: int = 0
    throttled: int = 0
    throttled_ns: int = 0
    failing_ns: int | None = None


@dataclass
class PlanSubmission:
    """Submission of a plan's workloads with a journal; `submit` continues where an earlier process of the run stopped.

    Open loop: a workload is sent when it is due, whatever happens to earlier ones. Delays (requests in flight, the rate
    limit, 429) count as lateness or latency; the due time stays. Closed loop, with `burst_size`: a burst, all of it
    awaited, then `burst_delay_s`; due times are not kept.

    `folder`: Folder of the journal.
    `limits`: Objects, wall clock and pending pods end the submission; its rate, here of workloads and averaged over
    five seconds, and the requests in flight throttle it.
    `asked`, `health`, `watcher`: Stop request of a person; the sampler's view of the cluster, polled several times a
    second; progress display.
    """

    api: Connection
    folder: Path
    run: str
    limits: ScenarioLimits = field(default_factory=ScenarioLimits)
    aborts: AbortCriteria = field(default_factory=AbortCriteria)
    submitter: Submitter | None = None
    burst_size: int | None = None
    burst_delay_s: float = 0.0
    asked: StopRequest = field(default_factory=StopRequest)
    health: Callable[[], ClusterHealth] = ClusterHealth
    watcher: SilentWatcher = field(default_factory=SilentWatcher)

    def __post_init__(self) -> None:
        self._way = self.submitter or object_creation.ApiSubmitter(self.api)
        self._ending, self._meter, self._dog = StopFlag(), SubmissionMeter(), Watchdog(self.aborts)
        self._window = RequestWindow(self.limits.in_flight)
        self._slots = asyncio.Semaphore(self.limits.in_flight)
        self._draw = random.Random(self.run)  # noqa: S311 - only spreads retries
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, planned: Iterable[PlannedWorkload]) -> SubmissionOutcome:
        """Send the workloads, which are in the order of their due times."""
        # Locked before it is read, so that only one of two resuming processes continues.
        self._journal = SubmissionJournal(self.folder)
        try:
            self._before = before = read_journal(self.folder)
            if before.run not in (None, self.run) or before.mode not in (None, self._way.mode):
                raise InputError(
                    "the journal is of another submission",
                    where=self.folder,
                    found=f"{before.run} by {before.mode}",
                    allowed=f"{self.run} by {self._way.mode}",
                )
            self._resumed = before.run is not None
            # Those of an earlier process are at least one object each.
            self._reserved = len(before.acked)
            self._bucket = TokenBucket(self.limits.rate_per_s, full=not self._resumed)
            self._began_ns = now_ns()
            self._origin_ns = before.origin_ns or self._began_ns
            self._planned = list(planned)
            return await self._run_to_end()
        finally:
            self._journal.close()

    async def _run_to_end(self) -> SubmissionOutcome:
        begun = Begun(self.run, self._began_ns, self._origin_ns, resumed=self._resumed, mode=self._way.mode)
        await self._journal.write_durably([begun])
        looking = asyncio.create_task(self._watch_limits())
        # Whatever it dies of: without it there would be no limits, no abort and no Ctrl-C.
        looking.add_done_callback(self._check_task_error)
        try:
            self._existing = await self._find_existing_objects()
            if self.asked.times:
                self._ending.stop(INTERRUPTED)
            if not self._ending.on:
                await self._wait_for_workloads(asyncio.create_task(self._dispatch_workloads()))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if self._ending.error is not None:
            raise self._ending.error
        reason = self._ending.reason or "finished"
        await self._journal.write_durably([Stopped(now_ns(), reason, self._meter.in_flight_most)])
        self._report_status()
        return self._build_outcome(reason)

    async def _dispatch_workloads(self) -> None:
        missing = (item for item in self._planned if item.index not in self._before.done)
        if self.burst_size is not None:
            await self._dispatch_bursts(list(missing), self.burst_size)
            return
        queue: asyncio.Queue[PlannedWorkload | None] = asyncio.Queue(2 * ANNOUNCE_BATCH)
        feeding = asyncio.create_task(self._announce_due_workloads(missing, queue))
        try:
            while (item := await queue.get()) is not None:
                await asyncio.sleep(max(0.0, (self._due_ns(item) - now_ns()) / NS_PER_S))
                await self._begin_workload(item)
            await feeding
        finally:
            feeding.cancel()

    async def _announce_due_workloads(
        self, items: Iterable[PlannedWorkload], queue: asyncio.Queue[PlannedWorkload | None]
    ) -> None:
        """Announce workloads in the journal, some time before they are due."""
        try:
            batch: list[PlannedWorkload] = []
            for item in items:
                while (early_ns := self._due_ns(item) - ANNOUNCE_AHEAD_NS - now_ns()) > 0:
                    if batch:
                        batch = await self._announce_batch(batch, queue)
                    else:
                        await asyncio.sleep(early_ns / NS_PER_S)
                batch.append(item)
                if len(batch) >= ANNOUNCE_BATCH:
                    batch = await self._announce_batch(batch, queue)
            if batch:
                await self._announce_batch(batch, queue)
        except Exception:
            # The reader learns of it when it waits for this task.
            await queue.put(None)
            raise
        await queue.put(None)

    async def _announce_batch(
        self, batch: list[PlannedWorkload], queue: asyncio.Queue[PlannedWorkload | None]
    ) -> list[PlannedWorkload]:
        at_ns = now_ns()
        await self._journal.write_durably(Intent(item.index, at_ns) for item in batch)
        for item in batch:
            await queue.put(item)
        return []

    async def _dispatch_bursts(self, pending: list[PlannedWorkload], size: int) -> None:
        """Closed loop: send a burst, wait for all of it, then pause."""
        while pending:
            batch, pending = pending[:size], pending[size:]
            at_ns = now_ns()
            await self._journal.write_durably(Intent(item.index, at_ns) for item in batch)
            for item in batch:
                await self._begin_workload(item)
            while self._tasks:
                await asyncio.wait(set(self._tasks))
            if pending:
                await self._ending.sleep(self.burst_delay_s)

    async def _begin_workload(self, item: PlannedWorkload) -> None:
        """Send a workload, as soon as the rate's limit lets it and there is room."""
        await self._bucket.take()
        await self._slots.acquire()
        self._meter.add_in_flight()
        task = asyncio.create_task(self._send_workload(item))
        self._tasks.add(task)
        task.add_done_callback(self._finish_task)

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
        """Find the objects in the cluster that an earlier process was about to send."""
        existing: dict[tuple[str, str], Metadata] = {}
        open_ = [item for item in self._planned if item.index in self._before.open]
        requests = [request for item in open_ for request in item.requests()]
        if not self._way.labelled:
            for wanted in requests:
                if (
                    there := await object_creation.find_object(self.api, wanted, timeout_s=REQUEST_TIMEOUT_S)
                ) is not None:
                    existing[wanted.path, wanted.name] = there
            return existing
        for path in sorted({request.path for request in requests}):
            listed = await object_creation.list_run_objects(self.api, path, self.run)
            existing |= {(path, name): there for name, there in listed.items()}
        return existing

    async def _send_workload(self, item: PlannedWorkload) -> None:
        """Make a workload, and write down what came of it; its last object's answer is its acknowledgement."""
        due_ns = self._due_ns(item)
        tally, requests = WorkloadTally(due_ns, self._resumed and due_ns < self._began_ns), item.requests()
        if self._reserved + len(requests) > self.limits.objects:
            raise StopError(f"limit: {self.limits.objects} objects")
        self._reserved += len(requests)
        try:
            await self._send_requests(item, requests, tally)
        finally:
            self._dog.forget_request(id(tally))

    async def _send_requests(
        self, item: PlannedWorkload, requests: Sequence[ObjectRequest], tally: WorkloadTally
    ) -> None:
        is_known = False
        reply = Reply(now_ns(), now_ns(), None)
        main_reply: Reply | None = None  # of the workload itself, which what it owns comes after
        for planned in requests:
            request = planned.fill_owner(None if main_reply is None else main_reply.found.uid)
            metadata = self._existing.get((request.path, request.name))
            if metadata is not None:
                self._check_ownership(metadata, request)
                reply, is_known = Reply(now_ns(), now_ns(), 200, metadata), True
            else:
                reply, is_known = await self._create_with_retries(request, tally)
            if reply.meaning not in ("made", "exists"):
                self._record_failure(item, reply, tally)
                return
            main_reply = (
                dataclasses.replace(main_reply, done_ns=reply.done_ns)
                if request.owned and main_reply is not None
                else reply
            )
        self._record_acceptance(item, main_reply or reply, tally, known=is_known)

    async def _create_with_retries(self, request: ObjectRequest, tally: WorkloadTally) -> tuple[Reply, bool]:
        """Create one object, with retries; also returns whether it existed already."""
        tally.failing_ns = None
        while True:
            reply = await self._try_request(request, tally)
            if reply.meaning == "made":
                self._meter.objects += 1
                return reply, False
            # After a lost answer a refusal says little: what a full quota refuses now, it may have taken before.
            refused = reply.meaning == "refused"
            if refused and tally.failing_ns is None:
                return reply, False
            if reply.meaning == "throttled":
                await self._wait_after_throttle(reply, tally)
                if self._ending.on:
                    return reply, False
                continue
            tally.failing_ns = tally.failing_ns or reply.done_ns
            # A taken name may be ours: made by a request whose answer was lost.
            if refused or reply.meaning == "exists":
                is_answered, metadata = await self._look_up(request)
                if metadata is not None:
                    return _build_exists_reply(reply, metadata), True
                if is_answered and refused:
                    return reply, False
            over = now_ns() - tally.failing_ns > RETRY_FOR_S * NS_PER_S
            if not over:
                await self._ending.sleep(draw_backoff_s(tally.attempts - tally.throttled, self._draw))
            if over or self._ending.on:
                _, metadata = await self._look_up(request)
                return (
                    (_build_exists_reply(reply, metadata), True)
                    if metadata is not None
                    else (_reply_after_lost_answer(reply), False)
                )

    async def _try_request(self, request: ObjectRequest, tally: WorkloadTally) -> Reply:
        async with self._window:
            if self._ending.on and not tally.attempts:
                raise StopError(self._ending.reason)
            at_ns = now_ns()
            if not tally.attempts:
                tally.sent_ns = at_ns
                self._meter.record_start(None if tally.overdue else tally.due_ns, at_ns)
            tally.attempts += 1
            self._dog.record_request(id(tally), at_ns)
            reply = await self._way.create_object(request, timeout_s=REQUEST_TIMEOUT_S)
            if reply.status in (403, 404) and self._dog.is_reconnecting(reply.done_ns):
                # Allowed and known a moment ago: the preflight looked.
                reply = dataclasses.replace(reply, verdict="again")
            self._dog.record_reply(id(tally), reply)
        if reply.meaning == "made":
            self._window.record_success()
        elif reply.meaning == "throttled":
            self._window.record_refusal(reply.sent_ns)
        return reply

    async def _look_up(self, request: ObjectRequest) -> tuple[bool, Metadata | None]:
        """Whether the cluster answers, and the object if it exists."""
        try:
            metadata = await object_creation.find_object(self.api, request, timeout_s=REQUEST_TIMEOUT_S)
        except UnreachableError:
            return False, None
        if metadata is not None:
            self._check_ownership(metadata, request)
        return True, metadata

    def _check_ownership(self, metadata: Metadata, request: ObjectRequest) -> None:
        if not self._way.labelled:
            return
        if metadata.run != self.run:
            raise StopError(f"aborted: an object named {request.name} exists and does not belong to this run")
        if metadata.spec_hash != object_creation.read_request_metadata(request).spec_hash:
            raise StopError(
                f"aborted: an object named {request.name} exists and was made from another plan of this run"
            )

    async def _wait_after_throttle(self, reply: Reply, tally: WorkloadTally) -> None:
        tally.throttled += 1
        self._meter.throttled += 1
        least_s = (
            reply.retry_after_s if reply.retry_after_s is not None else draw_backoff_s(tally.throttled, self._draw)
        )
        before_ns = now_ns()
        # Up to a tenth longer: else all that were refused together come back together.
        await self._ending.sleep(min(least_s, LONGEST_WAIT_S) * (1 + self._draw.random() / 10))
        waited_ns = now_ns() - before_ns
        tally.throttled_ns += waited_ns
        self._meter.throttled_ns += waited_ns

    def _record_acceptance(self, item: PlannedWorkload, reply: Reply, tally: WorkloadTally, *, known: bool) -> None:
        status = reply.status if reply.status is not None else 0
        line = Acked(item.index, tally.sent_ns or reply.sent_ns, reply.done_ns, status, reply.found.uid)
        line.created, line.attempts, line.known = reply.found.creationTimestamp, tally.attempts, known
        line.throttled, line.throttled_ns = tally.throttled, tally.throttled_ns
        self._journal.write_soon(line)
        self._meter.record_acceptance(tally.due_ns, reply.done_ns, known=known)

    def _record_failure(self, item: PlannedWorkload, reply: Reply, tally: WorkloadTally) -> None:
        message = ": ".join(text for text in (reply.reason, reply.message) if text) or "no answer"
        if reply.meaning != "refused" and self._ending.on:
            message = f"{ENDED_MESSAGE}: {message}"
        # A refusal that was not final does not count when the run is resumed.
        status = None if reply.meaning == "again" and is_final_status(reply.status) else reply.status
        line = Failed(item.index, tally.sent_ns, reply.done_ns, shorten_text(message), status, tally.attempts)
        line.throttled, line.throttled_ns = tally.throttled, tally.throttled_ns
        self._journal.write_soon(line)
        self._meter.record_failure(shorten_text(f"{reply.status or ''} {message}".strip()))

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
        """Check limits, abort criteria and stop requests several times a second."""
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
        limits, at_ns = self.limits, now_ns()
        if self.asked.times:
            return INTERRUPTED
        if at_ns - self._began_ns > limits.wall_clock_s * NS_PER_S:
            return f"limit: {limits.wall_clock_s:g} s of submitting"
        health = self.health()
        if (health.pending_pods or 0) > limits.pending_pods:
            return f"limit: {health.pending_pods} pods wait for a node, {limits.pending_pods} may"
        wrong = self._dog.find_reason(at_ns, health)
        return None if wrong is None else f"aborted: {wrong}"

    def _report_status(self) -> None:
        before, meter = self._before, self._meter
        self.watcher.show_status(
            SubmissionStatus(
                planned=len(self._planned),
                acked=meter.acked + len(before.acked),
                failed=meter.failed + len(before.refused),
                in_flight=meter.in_flight,
                throttled=meter.throttled,
                window=self._window.size,
                rate_per_s=meter.accepted_per_s(now_ns()),
                ack_p50_s=meter.ack_quantile(0.5),
                ack_p95_s=meter.ack_quantile(0.95),
                pending_pods=self.health().pending_pods,
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


def _build_exists_reply(reply: Reply, metadata: Metadata) -> Reply:
    return Reply(reply.sent_ns, now_ns(), 409, metadata, "AlreadyExists")


def _reply_after_lost_answer(reply: Reply) -> Reply:
    """Reply after a lost response: "exists" and "refused" become a reply without status, since neither is certain."""
    if reply.meaning not in ("exists", "refused"):
        return reply
    message = "the name is taken, and the cluster did not show by which object"
    if reply.meaning == "refused":
        message = f"an answer was lost, and the cluster did not show whether it was made; then: {reply.message}"
    return Reply(reply.sent_ns, reply.done_ns, None, message=message)
