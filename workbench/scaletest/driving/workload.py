"""One workload on its way: its requests in order, each tried until the cluster has it, refuses it, or time is up."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.scaletest.connection import AwayError, Connection
from workbench.scaletest.driving import by_api
from workbench.scaletest.driving.ending import Ending, StopError
from workbench.scaletest.driving.figures import Meter
from workbench.scaletest.driving.journal import Journal, final
from workbench.scaletest.driving.limits import Limits
from workbench.scaletest.driving.pace import Window
from workbench.scaletest.driving.reply import Metadata, Reply, Submitter, pause_s, shown
from workbench.scaletest.driving.watchdog import Watchdog
from workbench.scaletest.planned import Planned, Request
from workbench.scaletest.records import Acked, Failed
from workbench.scaletest.times import NS, now_ns

ENDED = "submission ended before the cluster accepted it"


@dataclass(slots=True)
class Tally:
    """What a workload has cost so far.

    Attributes
    ----------
    due_ns
        Intended time.
    overdue
        It was due before this process began.
    failing_ns
        Since when the current object fails; null while it does not.
    """

    due_ns: int
    overdue: bool
    sent_ns: int = 0
    attempts: int = 0
    throttled: int = 0
    throttled_ns: int = 0
    failing_ns: int | None = None


@dataclass(slots=True)
class Sender:
    """What all workloads of a submission share.

    Attributes
    ----------
    existing
        Objects that an earlier process may have made, by collection and name.
    reserved
        Objects that were begun: held against the limit.
    """

    api: Connection
    way: Submitter
    journal: Journal
    run: str
    limits: Limits
    ending: Ending
    meter: Meter
    window: Window
    dog: Watchdog
    existing: dict[tuple[str, str], Metadata]
    draw: random.Random
    reserved: int = 0

    async def send(self, item: Planned, due_ns: int, *, overdue: bool) -> None:
        """Make a workload, and write down what came of it; its last object's answer is its acknowledgement.

        Raises
        ------
        StopError
            Submission has to end: an object of another is in the way, or the limit of objects is reached.
        """
        tally, requests = Tally(due_ns, overdue), item.requests()
        self._reserve(len(requests))
        try:
            await self._sent(item, requests, tally)
        finally:
            self.dog.left(id(tally))

    async def _sent(self, item: Planned, requests: Sequence[Request], tally: Tally) -> None:
        known = False
        reply = Reply(now_ns(), now_ns(), None)
        for request in requests:
            found = self.existing.get((request.path, request.name))
            if found is not None:
                self._check(found, request)
                reply, known = Reply(now_ns(), now_ns(), 200, found), True
            else:
                reply, known = await self._made(request, tally)
            if reply.meaning not in ("made", "exists"):
                self._give_up(item, reply, tally)
                return
        self._accept(item, reply, tally, known=known)

    def _reserve(self, objects: int) -> None:
        if self.reserved + objects > self.limits.objects:
            raise StopError(f"limit: {self.limits.objects} objects")
        self.reserved += objects

    async def _made(self, request: Request, tally: Tally) -> tuple[Reply, bool]:
        """Make one object, however often it takes; also whether it was there already."""
        tally.failing_ns = None
        while True:
            reply = await self._attempt(request, tally)
            if reply.meaning == "made":
                self.meter.objects += 1
                return reply, False
            # After a lost answer a refusal says little: what a full quota refuses now, it may have taken before.
            refused = reply.meaning == "refused"
            if refused and tally.failing_ns is None:
                return reply, False
            if reply.meaning == "throttled":
                await self._patience(reply, tally)
                if self.ending.on:
                    return reply, False
                continue
            tally.failing_ns = tally.failing_ns or reply.done_ns
            # A taken name may be ours: made by a request whose answer was lost.
            if refused or reply.meaning == "exists":
                told, found = await self._there(request)
                if found is not None:
                    return _known(reply, found), True
                if told and refused:
                    return reply, False
            over = now_ns() - tally.failing_ns > self.limits.retry_for_s * NS
            if not over:
                await self.ending.rest(pause_s(tally.attempts - tally.throttled, self.draw))
            if over or self.ending.on:
                _, found = await self._there(request)
                return (_known(reply, found), True) if found is not None else (_unsure(reply), False)

    async def _attempt(self, request: Request, tally: Tally) -> Reply:
        async with self.window:
            if self.ending.on and not tally.attempts:
                raise StopError(self.ending.reason)
            at_ns = now_ns()
            if not tally.attempts:
                tally.sent_ns = at_ns
                self.meter.began(None if tally.overdue else tally.due_ns, at_ns)
            tally.attempts += 1
            self.dog.sent(id(tally), at_ns)
            reply = await self.way.make(request, timeout_s=self.limits.request_timeout_s)
            if reply.status in (403, 404) and self.dog.coming_up(reply.done_ns):
                # Allowed and known a moment ago: the preflight looked.
                reply = dataclasses.replace(reply, verdict="again")
            self.dog.answered(id(tally), reply)
        if reply.meaning == "made":
            self.window.succeeded()
        elif reply.meaning == "throttled":
            self.window.refused(reply.sent_ns)
        return reply

    async def _there(self, request: Request) -> tuple[bool, Metadata | None]:
        """Whether the cluster says, and the object when it has it.

        Raises
        ------
        StopError
            It is not ours.
        """
        try:
            found = await by_api.look(self.api, request, timeout_s=self.limits.request_timeout_s)
        except AwayError:
            return False, None
        if found is not None:
            self._check(found, request)
        return True, found

    def _check(self, found: Metadata, request: Request) -> None:
        if not self.way.labelled:
            return
        if found.run != self.run:
            raise StopError(f"aborted: an object named {request.name} is there, and not of this run")
        if found.spec_hash != by_api.wanted(request).spec_hash:
            raise StopError(f"aborted: an object named {request.name} is there, made from another plan of this run")

    async def _patience(self, reply: Reply, tally: Tally) -> None:
        tally.throttled += 1
        self.meter.throttled += 1
        least_s = reply.retry_after_s if reply.retry_after_s is not None else pause_s(tally.throttled, self.draw)
        before_ns = now_ns()
        # Up to a tenth longer: else all that were refused together come back together.
        await self.ending.rest(min(least_s, self.limits.longest_wait_s) * (1 + self.draw.random() / 10))
        waited_ns = now_ns() - before_ns
        tally.throttled_ns += waited_ns
        self.meter.throttled_ns += waited_ns

    def _accept(self, item: Planned, reply: Reply, tally: Tally, *, known: bool) -> None:
        status = reply.status if reply.status is not None else 0
        line = Acked(item.index, tally.sent_ns or reply.sent_ns, reply.done_ns, status, reply.found.uid)
        line.created, line.attempts, line.known = reply.found.creationTimestamp, tally.attempts, known
        line.throttled, line.throttled_ns = tally.throttled, tally.throttled_ns
        self.journal.note(line)
        self.meter.accepted(tally.due_ns, reply.done_ns, known=known)

    def _give_up(self, item: Planned, reply: Reply, tally: Tally) -> None:
        told = ": ".join(text for text in (reply.reason, reply.message) if text) or "no answer"
        if reply.meaning != "refused" and self.ending.on:
            told = f"{ENDED}: {told}"
        # A refusal that was not believed is none for who goes on with the run.
        status = None if reply.meaning == "again" and final(reply.status) else reply.status
        line = Failed(item.index, tally.sent_ns, reply.done_ns, shown(told), status, tally.attempts)
        line.throttled, line.throttled_ns = tally.throttled, tally.throttled_ns
        self.journal.note(line)
        self.meter.gave_up(shown(f"{reply.status or ''} {told}".strip()))


def _known(reply: Reply, found: Metadata) -> Reply:
    return Reply(reply.sent_ns, now_ns(), 409, found, "AlreadyExists")


def _unsure(reply: Reply) -> Reply:
    """A taken name that nobody could look up is no success, and a refusal after a lost answer no refusal."""
    if reply.meaning not in ("exists", "refused"):
        return reply
    told = "the name is taken, and the cluster did not show by what"
    if reply.meaning == "refused":
        told = f"an answer was lost, and the cluster did not show whether it was made; then: {reply.message}"
    return Reply(reply.sent_ns, reply.done_ns, None, message=told)
