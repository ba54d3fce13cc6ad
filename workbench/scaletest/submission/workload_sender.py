"""Sender of one workload: its requests in order, each retried until accepted, refused or out of time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import Connection, UnreachableError
from workbench.scaletest.observation.run_records import Acked, Failed
from workbench.scaletest.scenario.workload_objects import ObjectRequest, PlannedWorkload
from workbench.scaletest.submission import object_creation
from workbench.scaletest.submission.abort_criteria import SubmissionLimits, Watchdog
from workbench.scaletest.submission.object_creation import Metadata, Reply, Submitter, draw_backoff_s, shorten_text
from workbench.scaletest.submission.request_dispatch import RequestWindow, StopError, StopFlag
from workbench.scaletest.submission.submission_journal import SubmissionJournal, is_final_status
from workbench.scaletest.submission.submission_status import SubmissionMeter

ENDED_MESSAGE = "submission ended before the cluster accepted it"


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


@dataclass(slots=True)
class WorkloadSender:
    """Sender shared by all workloads of a submission.

    `existing`: Objects that an earlier process may have created, by collection and name.
    """

    api: Connection
    way: Submitter
    journal: SubmissionJournal
    run: str
    limits: SubmissionLimits
    ending: StopFlag
    meter: SubmissionMeter
    window: RequestWindow
    dog: Watchdog
    existing: dict[tuple[str, str], Metadata]
    draw: random.Random
    reserved: int = 0

    async def send_workload(self, item: PlannedWorkload, due_ns: int, *, overdue: bool) -> None:
        """Make a workload, and write down what came of it; its last object's answer is its acknowledgement."""
        tally, requests = WorkloadTally(due_ns, overdue), item.requests()
        self._reserve_objects(len(requests))
        try:
            await self._send_requests(item, requests, tally)
        finally:
            self.dog.forget_request(id(tally))

    async def _send_requests(
        self, item: PlannedWorkload, requests: Sequence[ObjectRequest], tally: WorkloadTally
    ) -> None:
        is_known = False
        reply = Reply(now_ns(), now_ns(), None)
        main_reply: Reply | None = None  # of the workload itself, which what it owns comes after
        for planned in requests:
            request = planned.fill_owner(None if main_reply is None else main_reply.found.uid)
            metadata = self.existing.get((request.path, request.name))
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

    def _reserve_objects(self, objects: int) -> None:
        if self.reserved + objects > self.limits.objects:
            raise StopError(f"limit: {self.limits.objects} objects")
        self.reserved += objects

    async def _create_with_retries(self, request: ObjectRequest, tally: WorkloadTally) -> tuple[Reply, bool]:
        """Create one object, with retries; also returns whether it existed already."""
        tally.failing_ns = None
        while True:
            reply = await self._try_request(request, tally)
            if reply.meaning == "made":
                self.meter.objects += 1
                return reply, False
            # After a lost answer a refusal says little: what a full quota refuses now, it may have taken before.
            refused = reply.meaning == "refused"
            if refused and tally.failing_ns is None:
                return reply, False
            if reply.meaning == "throttled":
                await self._wait_after_throttle(reply, tally)
                if self.ending.on:
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
            over = now_ns() - tally.failing_ns > self.limits.retry_for_s * NS_PER_S
            if not over:
                await self.ending.sleep(draw_backoff_s(tally.attempts - tally.throttled, self.draw))
            if over or self.ending.on:
                _, metadata = await self._look_up(request)
                return (
                    (_build_exists_reply(reply, metadata), True)
                    if metadata is not None
                    else (_reply_after_lost_answer(reply), False)
                )

    async def _try_request(self, request: ObjectRequest, tally: WorkloadTally) -> Reply:
        async with self.window:
            if self.ending.on and not tally.attempts:
                raise StopError(self.ending.reason)
            at_ns = now_ns()
            if not tally.attempts:
                tally.sent_ns = at_ns
                self.meter.record_start(None if tally.overdue else tally.due_ns, at_ns)
            tally.attempts += 1
            self.dog.record_request(id(tally), at_ns)
            reply = await self.way.create_object(request, timeout_s=self.limits.request_timeout_s)
            if reply.status in (403, 404) and self.dog.is_reconnecting(reply.done_ns):
                # Allowed and known a moment ago: the preflight looked.
                reply = dataclasses.replace(reply, verdict="again")
            self.dog.record_reply(id(tally), reply)
        if reply.meaning == "made":
            self.window.record_success()
        elif reply.meaning == "throttled":
            self.window.record_refusal(reply.sent_ns)
        return reply

    async def _look_up(self, request: ObjectRequest) -> tuple[bool, Metadata | None]:
        """Whether the cluster says, and the object when it has it."""
        try:
            metadata = await object_creation.find_object(self.api, request, timeout_s=self.limits.request_timeout_s)
        except UnreachableError:
            return False, None
        if metadata is not None:
            self._check_ownership(metadata, request)
        return True, metadata

    def _check_ownership(self, metadata: Metadata, request: ObjectRequest) -> None:
        if not self.way.labelled:
            return
        if metadata.run != self.run:
            raise StopError(f"aborted: an object named {request.name} is there, and not of this run")
        if metadata.spec_hash != object_creation.read_request_metadata(request).spec_hash:
            raise StopError(f"aborted: an object named {request.name} is there, made from another plan of this run")

    async def _wait_after_throttle(self, reply: Reply, tally: WorkloadTally) -> None:
        tally.throttled += 1
        self.meter.throttled += 1
        least_s = reply.retry_after_s if reply.retry_after_s is not None else draw_backoff_s(tally.throttled, self.draw)
        before_ns = now_ns()
        # Up to a tenth longer: else all that were refused together come back together.
        await self.ending.sleep(min(least_s, self.limits.longest_wait_s) * (1 + self.draw.random() / 10))
        waited_ns = now_ns() - before_ns
        tally.throttled_ns += waited_ns
        self.meter.throttled_ns += waited_ns

    def _record_acceptance(self, item: PlannedWorkload, reply: Reply, tally: WorkloadTally, *, known: bool) -> None:
        status = reply.status if reply.status is not None else 0
        line = Acked(item.index, tally.sent_ns or reply.sent_ns, reply.done_ns, status, reply.found.uid)
        line.created, line.attempts, line.known = reply.found.creationTimestamp, tally.attempts, known
        line.throttled, line.throttled_ns = tally.throttled, tally.throttled_ns
        self.journal.write_soon(line)
        self.meter.record_acceptance(tally.due_ns, reply.done_ns, known=known)

    def _record_failure(self, item: PlannedWorkload, reply: Reply, tally: WorkloadTally) -> None:
        message = ": ".join(text for text in (reply.reason, reply.message) if text) or "no answer"
        if reply.meaning != "refused" and self.ending.on:
            message = f"{ENDED_MESSAGE}: {message}"
        # A refusal that was not final does not count when the run is resumed.
        status = None if reply.meaning == "again" and is_final_status(reply.status) else reply.status
        line = Failed(item.index, tally.sent_ns, reply.done_ns, shorten_text(message), status, tally.attempts)
        line.throttled, line.throttled_ns = tally.throttled, tally.throttled_ns
        self.journal.write_soon(line)
        self.meter.record_failure(shorten_text(f"{reply.status or ''} {message}".strip()))


def _build_exists_reply(reply: Reply, metadata: Metadata) -> Reply:
    return Reply(reply.sent_ns, now_ns(), 409, metadata, "AlreadyExists")


def _reply_after_lost_answer(reply: Reply) -> Reply:
    """Reply after a lost response: "exists" and "refused" become a reply without status, since neither is certain."""
    if reply.meaning not in ("exists", "refused"):
        return reply
    message = "the name is taken, and the cluster did not show by what"
    if reply.meaning == "refused":
        message = f"an answer was lost, and the cluster did not show whether it was made; then: {reply.message}"
    return Reply(reply.sent_ns, reply.done_ns, None, message=message)
