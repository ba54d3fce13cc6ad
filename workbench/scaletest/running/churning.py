"""Churn: workloads are deleted so long after the cluster accepted them, while others are still being submitted."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from workbench.scaletest import records
from workbench.scaletest.connection import AwayError, Connection
from workbench.scaletest.planned import Planned
from workbench.scaletest.running.tailing import Tail
from workbench.scaletest.times import NS, now_ns

LOOK_EVERY_S = 0.1
MOST_AT_ONCE = 16
_AGAIN_NS = NS
_QUERY = {"propagationPolicy": "Background"}


class _Line(msgspec.Struct):
    type: str
    index: int = -1
    at_ns: int = 0


class Churn:
    """Deletes by the journal: what it says was accepted goes when its time has come, also after a crash.

    Parameters
    ----------
    after_s
        Workloads that are to be deleted, with how long after their acknowledgement.
    one
        The workload of an index.
    """

    def __init__(
        self, api: Connection, folder: Path, after_s: Mapping[int, float], one: Callable[[int], Planned]
    ) -> None:
        self._api, self._after_s, self._one = api, after_s, one
        self._tail = Tail(folder / records.JOURNAL, _Line)
        self._due: list[tuple[int, int]] = []
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
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
                self._read()
                while self._due and self._due[0][0] <= now_ns():
                    await self._room.acquire()
                    task = asyncio.create_task(self._delete(heapq.heappop(self._due)[1]))
                    self._tasks.add(task)
                    task.add_done_callback(self._ended)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read(self) -> None:
        for one in self._tail.new():
            after_s = self._after_s.get(one.index) if one.type == "acked" else None
            if after_s is not None:
                heapq.heappush(self._due, (one.at_ns + int(after_s * NS), one.index))

    async def _delete(self, index: int) -> None:
        try:
            for request in self._one(index).requests():
                answer = await self._api.request("DELETE", f"{request.path}/{request.name}", query=_QUERY)
                # 404: it ended and was cleared away by itself, or went before a crash.
                if answer.status >= 300 and answer.status != 404:
                    raise AwayError("not deleted", found=answer.status)
            self._gone.add(index)
        except AwayError:
            heapq.heappush(self._due, (now_ns() + _AGAIN_NS, index))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._room.release()
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = self.error or error
