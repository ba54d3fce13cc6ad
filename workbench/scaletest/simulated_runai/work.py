"""Work to be done once each, some of it at a time, again when the server is away or busy; lost by no failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable

from workbench.scaletest.connection import ApiError, AwayError

AT_ONCE = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
# Refused for good: the namespace ends, or is gone, or the body is no such thing.
_FINAL = (400, 403, 404, 422)
Task = Callable[[], Awaitable[None]]


class LaterError(Exception):
    """Cannot be done yet: what is in the way will go."""


class Work:
    """A queue of tasks by key; a key that waits already is not added again."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[Hashable, Task, int]] = asyncio.Queue()
        self._keys: set[Hashable] = set()
        self.refused: dict[str, int] = {}
        self.done = 0

    def add(self, key: Hashable, task: Task) -> None:
        """Have it done soon."""
        if key not in self._keys:
            self._keys.add(key)
            self._waiting.put_nowait((key, task, 0))

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key, task, tries = await self._waiting.get()
            # Taken off before it is done: what changes meanwhile is added again.
            self._keys.discard(key)
            try:
                await task()
                self.done += 1
            except (AwayError, LaterError):
                self._again(key, task, tries)
            except ApiError as error:
                if error.status in _FINAL:
                    told = f"{error.status} {error.reason}"
                    self.refused[told] = self.refused.get(told, 0) + 1
                else:
                    self._again(key, task, tries)

    def _again(self, key: Hashable, task: Task, tries: int) -> None:
        def back() -> None:
            if key not in self._keys:
                self._keys.add(key)
                self._waiting.put_nowait((key, task, tries + 1))

        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 10))
        asyncio.get_running_loop().call_later(pause_s, back)
