"""Ctrl-C where nothing looks at it by itself: what is under way is cancelled, and nothing that was made is lost."""

from __future__ import annotations

import asyncio

import pytest

from workbench.scaletest.submission.abort_criteria import StopRequest
from workbench.scaletest.test_run.run_console import NotBegunError, SilentRunWatcher, run_in_thread, run_until_stop


async def _seven() -> int:
    await asyncio.sleep(0)
    return 7


def test_work_that_nobody_ends_gives_what_it_makes() -> None:
    assert asyncio.run(run_until_stop(StopRequest(), _seven())) == 7


def test_work_is_cancelled_when_somebody_asks() -> None:
    asked, cancelled = StopRequest(), list[bool]()

    async def endless() -> int:
        asked.request_stop()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 7

    assert asyncio.run(asyncio.wait_for(run_until_stop(asked, endless()), 60)) is None
    assert cancelled == [True]


def test_an_error_of_the_work_is_its_own() -> None:
    async def broken() -> int:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run_until_stop(StopRequest(), broken()))


def test_what_was_ended_before_it_began_is_an_interrupt_to_the_caller() -> None:
    async def body() -> int:
        raise NotBegunError

    with pytest.raises(KeyboardInterrupt):
        run_in_thread(body, StopRequest(), SilentRunWatcher())
