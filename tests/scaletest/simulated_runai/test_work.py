from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from workbench.scaletest.connection import ApiError, AwayError
from workbench.scaletest.simulated_runai.work import LaterError, Work

LIMIT_S = 60


def worked(add: Callable[[Work, asyncio.Event], None]) -> Work:
    """The work, once the event that it is given is set."""

    async def go() -> Work:
        work, done = Work(), asyncio.Event()
        running = asyncio.create_task(work.run())
        add(work, done)
        await asyncio.wait_for(done.wait(), LIMIT_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return work

    return asyncio.run(go())


def failing(errors: list[Exception], done: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def task() -> None:
        if errors:
            raise errors.pop(0)
        done.set()

    return task


def test_what_fails_for_now_is_done_again() -> None:
    errors = [AwayError("gone"), LaterError(), ApiError("busy", status=429), ApiError("ill", status=500)]
    worked(lambda work, done: work.add("a", failing(errors, done)))
    assert not errors


def test_what_is_refused_for_good_is_counted_and_left() -> None:
    errors: list[Exception] = [ApiError("no", status=403, reason="Forbidden")]
    left: list[Exception] = []

    def add(work: Work, done: asyncio.Event) -> None:
        work.add("a", failing(errors, asyncio.Event()))
        work.add("b", failing(left, done))

    assert worked(add).refused == {"403 Forbidden": 1}


def test_what_waits_already_is_not_added_again() -> None:
    calls: list[int] = []

    def add(work: Work, done: asyncio.Event) -> None:
        async def count() -> None:
            calls.append(1)

        for _ in range(5):
            work.add("a", count)
        work.add("b", failing([], done))

    worked(add)
    assert len(calls) == 1
