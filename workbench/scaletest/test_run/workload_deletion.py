"""Deletion of workloads: churn while a test runs, and all of a run's objects at its end."""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from collections.abc import Callable, Mapping
from pathlib import Path

from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection, UnreachableError, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import Acked
from workbench.scaletest.safety import run_cleanup
from workbench.scaletest.scenario.workload_objects import ObjectRequest, PlannedWorkload, list_kinds
from workbench.scaletest.scenario.workload_plan import Plan
from workbench.scaletest.submission.submission_journal import read_journal
from workbench.scaletest.test_run.run_options import ClusterAccess

CHURN_EVERY_S = 0.1
MAX_CONCURRENT_DELETES = 16
_AGAIN_NS = NS_PER_S
_QUERY = {"propagationPolicy": "Background"}

# A local cluster has no other users to disturb.
OWN_CLEANUP_PER_S = 1000.0
MAX_CONCURRENT_LOOKUPS = 16
_BATCH = 256
_EXAMPLES = 5


class WorkloadChurn:
    """Deletes by the journal: what it says was accepted goes when its time has come, also after a crash.

    `after_s`: Workloads that are to be deleted, with how long after their acknowledgement.
    """

    def __init__(
        self,
        api: Connection,
        folder: Path,
        after_s: Mapping[int, float],
        build_workload: Callable[[int], PlannedWorkload],
    ) -> None:
        self._api, self._after_s, self._one = api, after_s, build_workload
        self._tail = run_records.follow_lines(folder / run_records.JOURNAL, run_records.JournalLine)
        self._due: list[tuple[int, int]] = []
        self._room = asyncio.Semaphore(MAX_CONCURRENT_DELETES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone: set[int] = set()
        self.error: BaseException | None = None

    @property
    def left(self) -> int:
        """How many are still to go."""
        return len(self._after_s) - len(self._gone)

    async def run(self) -> None:
        """Delete what is due, until cancelled."""
        try:
            while True:
                self._read_journal()
                while self._due and self._due[0][0] <= now_ns():
                    await self._room.acquire()
                    task = asyncio.create_task(self._delete_workload(heapq.heappop(self._due)[1]))
                    self._tasks.add(task)
                    task.add_done_callback(self._finish_task)
                await asyncio.sleep(CHURN_EVERY_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read_journal(self) -> None:
        for line in self._tail.read_new():
            after_s = self._after_s.get(line.index) if isinstance(line, Acked) else None
            if after_s is not None:
                heapq.heappush(self._due, (line.at_ns + int(after_s * NS_PER_S), line.index))

    async def _delete_workload(self, index: int) -> None:
        try:
            for request in self._one(index).requests():
                answer = await self._api.request("DELETE", f"{request.path}/{request.name}", query=_QUERY)
                # 404: it ended and was cleared away by itself, or went before a crash.
                if answer.status >= 300 and answer.status != 404:
                    raise UnreachableError("not deleted", found=answer.status)
            self._gone.add(index)
        except UnreachableError:
            heapq.heappush(self._due, (now_ns() + _AGAIN_NS, index))

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._room.release()
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = self.error or error


async def empty_run(
    api: Connection,
    plan: Plan,
    folder: Path,
    place: ClusterAccess,
    tell: Callable[[run_cleanup.CleanupProgress], None] = lambda _: None,
) -> run_cleanup.CleanupResult:
    """Delete what a run made, and tell what is left; again on one that is gone does nothing.

    What a command made carries no labels of ours, so nothing here deletes it. It is looked for by the names that it was
    asked to make, and reported as left.
    """
    rate = run_cleanup.RATE_PER_S if place.own is None else OWN_CLEANUP_PER_S
    cleaned = await run_cleanup.delete_run_objects(
        api, plan.run, plan.namespaces, list_kinds(plan.scenario, owned=True), tell, rate_per_s=rate
    )
    journal = read_journal(folder)
    if journal.mode != "command":
        return cleaned
    leftovers = await _find_leftovers(api, plan, sorted(journal.acked | journal.open))
    if not leftovers:
        return cleaned
    return dataclasses.replace(
        cleaned,
        left=cleaned.left | {place: len(some) for place, some in leftovers.items()},
        examples=cleaned.examples | {place: some[:_EXAMPLES] for place, some in leftovers.items()},
    )


async def _find_leftovers(api: Connection, plan: Plan, indices: list[int]) -> dict[str, list[str]]:
    """Names of objects that the server has, or does not say that it has not, by where they are."""
    room, leftovers = asyncio.Semaphore(MAX_CONCURRENT_LOOKUPS), dict[str, list[str]]()

    async def look_up(request: ObjectRequest) -> None:
        async with room:
            try:
                status = (await api.request("GET", f"{request.path}/{request.name}")).status
            except UnreachableError:
                status = 0
        if status != 404:
            leftovers.setdefault(_format_place(request.path), []).append(request.name)

    for begin in range(0, len(indices), _BATCH):
        some = indices[begin : begin + _BATCH]
        await asyncio.gather(*(look_up(request) for index in some for request in plan.workload_at(index).requests()))
    return {place: sorted(some) for place, some in sorted(leftovers.items())}


def _format_place(path: str) -> str:
    """Format the place as cleanup names it.

    >>> _format_place("/apis/batch/v1/namespaces/tests/jobs")
    'tests/jobs (made by the command, without our labels)'
    """
    *_, space, plural = path.split("/")
    return f"{space}/{plural} (made by the command, without our labels)"
