"""How a person ends a test: before anything was made, while it goes on, and what looks at nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from workbench import asking
from workbench.scaletest.driving import Asked
from workbench.scaletest.running import progress
from workbench.scaletest.running.progress import Silence

LOOK_EVERY_S = 0.1
_Made = TypeVar("_Made")


class NotBegunError(Exception):
    """Somebody ended it before anything was made."""


async def unless_asked(asked: Asked, work: Coroutine[Any, Any, _Made]) -> _Made | None:
    """What the work gives; null when somebody asks for the end before: it is cancelled then."""
    task = asyncio.create_task(work)
    try:
        while not task.done() and not asked.times:
            await asyncio.wait({task}, timeout=LOOK_EVERY_S)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def in_a_thread(body: Callable[[Asked], Coroutine[Any, Any, _Made]], asked: Asked, watcher: Silence) -> _Made:
    """In a thread with its own event loop: a notebook's own is running, and signals come to the main thread.

    Raises
    ------
    KeyboardInterrupt
        Somebody ended it before anything was made.
    """

    def told(times: int) -> None:
        watcher.say(progress.STOPPING if times == 1 else progress.ENDING)

    try:
        return asking.in_a_thread(lambda: body(asked), asked, told, name="scale test")
    except NotBegunError:
        raise KeyboardInterrupt from None
