"""Ctrl-C where nothing looks at it by itself: what is under way is cancelled, and nothing that was made is lost."""

from __future__ import annotations

import asyncio

import pytest

from workbench.scaletest.driving import Asked
from workbench.scaletest.running.asking import NotBegunError, in_a_thread, unless_asked
from workbench.scaletest.running.progress import Silence


async def _seven() -> int:
    await asyncio.sleep(0)
    return 7


def test_work_that_nobody_ends_gives_what_it_makes() -> None:
    assert asyncio.run(unless_asked(Asked(), _seven())) == 7


def test_work_is_cancelled_when_somebody_asks() -> None:
    asked, cancelled = Asked(), list[bool]()

    async def endless() -> int:
        asked.stop()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 7

    assert asyncio.run(asyncio.wait_for(unless_asked(asked, endless()), 60)) is None
    assert cancelled == [True]


def test_an_error_of_the_work_is_its_own() -> None:
    async def broken() -> int:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(unless_asked(Asked(), broken()))


def test_what_was_ended_before_it_began_is_an_interrupt_to_the_caller() -> None:
    async def body(asked: Asked) -> int:
        raise NotBegunError

    with pytest.raises(KeyboardInterrupt):
        in_a_thread(body, Asked(), Silence())
