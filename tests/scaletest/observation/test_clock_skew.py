"""Bounds of the clocks' distance: true for every clock, narrow after a few flips, and said when servers disagree."""

from __future__ import annotations

import asyncio
import random
from email.utils import formatdate

import pytest

from tests.fakes import virtual_time
from tests.fakes.virtual_time import now_ns
from tests.scaletest.observation.scripted import scripted
from workbench.scaletest.cluster_api.connection import NS_PER_S, Answer, UnreachableError
from workbench.scaletest.cluster_api.connection import now_ns as real_now_ns
from workbench.scaletest.observation import clock_skew, run_records
from workbench.scaletest.observation.clock_skew import SkewBounds, SkewProber, flip_after


def dated(server_s: int, sent: int, done: int, status: int = 200) -> Answer:
    return Answer(status, b"", {"Date": formatdate(server_s, usegmt=True)}, sent, done)


def test_bounds_hold_the_true_distance_for_any_delays() -> None:
    draws = random.Random(8)
    for _ in range(50):
        distance = draws.randrange(-5 * NS_PER_S, 5 * NS_PER_S)
        bounds = SkewBounds()
        for _ in range(200):
            sent = 1_000 * NS_PER_S + draws.randrange(20 * NS_PER_S)
            stamped = sent + draws.randrange(30_000_000)
            bounds.add((stamped + distance) // NS_PER_S, sent, stamped + draws.randrange(30_000_000))
        assert bounds.low_ns <= distance <= bounds.high_ns
        assert bounds.high_ns - bounds.low_ns < NS_PER_S // 2


def test_two_clocks_behind_one_address_give_an_empty_intersection() -> None:
    bounds = SkewBounds()
    for distance in (0, 3 * NS_PER_S):
        bounds.add((100 * NS_PER_S + distance) // NS_PER_S, 100 * NS_PER_S, 100 * NS_PER_S + 1_000_000)
    assert bounds.low_ns > bounds.high_ns


@pytest.mark.parametrize("distance", [0, 1, 300_000_000, -300_000_000, 3 * NS_PER_S, NS_PER_S - 1])
def test_a_flip_is_expected_where_the_servers_second_turns(distance: int) -> None:
    at = 12_345 * NS_PER_S + 678_000_000
    first, last = flip_after(at, distance - 5, distance + 5)
    assert first >= at - 10
    assert first - at <= NS_PER_S
    turn = (first + last) // 2 + distance
    assert min(turn % NS_PER_S, NS_PER_S - turn % NS_PER_S) <= 5
    assert last - first == 10


def probed(ask: object, flips: int = 3) -> tuple[SkewBounds | None, list[run_records.Skew]]:
    rows: list[run_records.Skew] = []
    prober = SkewProber(ask, rows.append, now_ns)  # type: ignore[arg-type]
    return virtual_time.run(prober.burst(flips)), rows


def test_a_burst_narrows_the_bounds_around_the_true_distance() -> None:
    distance = 3 * NS_PER_S + 123_456_789

    async def ask() -> Answer:
        sent = now_ns()
        await asyncio.sleep(0.001)
        return dated((now_ns() + distance) // NS_PER_S, sent, now_ns())

    found, rows = probed(ask)
    assert found is not None
    assert found.low_ns <= distance <= found.high_ns
    # The width is the time between two probes at a flip: a round trip of 1 ms over three workers, and the margin.
    assert found.high_ns - found.low_ns <= clock_skew.MARGIN_NS
    assert [(one.low_ns, one.high_ns, one.probes) for one in rows] == [(found.low_ns, found.high_ns, found.probes)]
    assert found.probes <= clock_skew.SWEEP_PROBES + 2 + 3 * (clock_skew.MAX_PROBES + clock_skew.WORKERS)


def test_a_second_burst_begins_at_the_flip_that_the_first_found() -> None:
    count = 0

    async def ask() -> Answer:
        nonlocal count
        count += 1
        sent = now_ns()
        await asyncio.sleep(0.001)
        return dated(now_ns() // NS_PER_S, sent, now_ns())

    async def twice() -> tuple[int, SkewBounds | None]:
        prober = SkewProber(ask, lambda row: None, now_ns)
        await prober.burst(1)
        return count, await prober.burst(1)

    first, found = virtual_time.run(twice())
    assert found is not None
    assert first > clock_skew.SWEEP_PROBES
    assert found.probes == count - first <= clock_skew.MAX_PROBES + clock_skew.WORKERS
    assert found.low_ns <= 0 <= found.high_ns


def test_servers_that_disagree_are_said_and_not_believed() -> None:
    count = 0

    async def ask() -> Answer:
        nonlocal count
        count += 1
        sent = now_ns()
        await asyncio.sleep(0.001)
        return dated((now_ns() + (count % 2) * 3 * NS_PER_S) // NS_PER_S, sent, now_ns())

    found, rows = probed(ask)
    assert found is not None
    assert found.low_ns > found.high_ns
    assert len(rows) == 1


@pytest.mark.parametrize("what", ["away", "no date", "error"])
def test_without_an_answer_that_counts_nothing_is_written(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_skew, "SWEEP_PROBES", 3)

    async def ask() -> Answer:
        if what == "away":
            raise UnreachableError("gone")
        return Answer(200 if what == "no date" else 503, b"", {"Date": "yesterday"}, 1, 2)

    assert probed(ask) == (None, [])


@pytest.mark.live
async def test_a_servers_clock_of_three_seconds_ahead_is_found_over_http() -> None:
    rows: list[run_records.Skew] = []
    async with scripted() as (api, connection):
        api.clock = lambda: real_now_ns() / NS_PER_S + 3.0
        api.resources["/version"] = {"gitVersion": "scripted"}
        await clock_skew.build_prober(connection, rows.append).burst(3)
    found = rows[0]
    assert found.low_ns <= 3 * NS_PER_S <= found.high_ns
