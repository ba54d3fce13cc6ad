"""The limit of the rate and the window of requests, by themselves."""

from __future__ import annotations

import asyncio

import pytest

from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.submission import request_dispatch
from workbench.scaletest.submission.request_dispatch import RequestWindow, TokenBucket


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves; its time in seconds, and each sleep after that."""
    told = [0.0]

    async def sleep(wait_s: float) -> None:
        told[0] += wait_s
        told.append(wait_s)

    monkeypatch.setattr(request_dispatch, "now_ns", lambda: round(told[0] * NS_PER_S))
    monkeypatch.setattr(request_dispatch.asyncio, "sleep", sleep)
    return told


def taken(bucket: TokenBucket, count: int) -> None:
    async def body() -> None:
        for _ in range(count):
            await bucket.take()

    # Not asyncio.run: it sleeps, too.
    coroutine = body()
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_a_full_bucket_gives_five_seconds_worth_and_then_its_rate(clock: list[float]) -> None:
    bucket = TokenBucket(10.0)
    taken(bucket, 50)
    assert clock == [0.0]
    taken(bucket, 20)
    assert clock[0] == pytest.approx(2.0)


def test_an_empty_bucket_keeps_its_rate_from_the_beginning(clock: list[float]) -> None:
    taken(TokenBucket(10.0, full=False), 31)
    assert clock[0] == pytest.approx(3.0)


def test_one_overload_halves_the_window_once_however_many_were_refused() -> None:
    window = RequestWindow(64)
    for sent_ns in (1, 2, 3):
        window.record_refusal(sent_ns)
    assert window.size == 32


def test_successes_open_the_window_by_one_a_round_and_not_beyond_its_most() -> None:
    window = RequestWindow(8)
    window.record_refusal(1)
    assert window.size == 4
    for _ in range(5):
        window.record_success()
    assert window.size == 5
    for _ in range(1000):
        window.record_success()
    assert window.size == 8


def test_a_window_never_closes() -> None:
    window = RequestWindow(4)
    for sent_ns in range(20):
        window.record_refusal(10**30 + sent_ns)
    assert window.size == 1


def test_who_waits_for_the_window_gets_in_in_order_and_who_gives_up_loses_no_place() -> None:
    async def body() -> list[int]:
        window, order, release = RequestWindow(1), list[int](), asyncio.Event()

        async def one(number: int) -> None:
            async with window:
                order.append(number)
                await release.wait()

        tasks = [asyncio.create_task(one(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert (order, window.out) == ([0], 1)
        tasks[1].cancel()
        release.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert window.out == 0
        return order

    assert asyncio.run(body()) == [0, 2, 3]
