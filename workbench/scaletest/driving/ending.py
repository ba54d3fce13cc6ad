"""One flag for all parts of a submission: that it ends, and why."""

from __future__ import annotations

import asyncio
import contextlib


class StopError(Exception):
    """Found within a workload: the whole submission has to end. The message is the reason."""


class Ending:
    """Whether submission ends; the first reason stays."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: BaseException | None = None
        self._event = asyncio.Event()

    @property
    def on(self) -> bool:
        """Nothing new is to be sent."""
        return self._event.is_set()

    def stop(self, reason: str) -> None:
        """End it."""
        self.reason = self.reason or reason
        self._event.set()

    def fail(self, error: BaseException) -> None:
        """End it because of something that is not about the cluster: a full disk, a defect."""
        self.error = self.error or error
        self.stop("failed")

    async def wait(self) -> None:
        """Until it ends."""
        await self._event.wait()

    async def rest(self, wait_s: float) -> None:
        """Wait so long, but not beyond the end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), wait_s)
