"""Kueue's quotas: what is left to a queue, borrowed and reclaimed; by its documentation's own cases."""

from __future__ import annotations

import pytest

from tests.scaletest.start_times.making_states import GPU, make_queue
from workbench.scaletest.start_times.kueue_quotas import QuotaClaim, QuotaLedger

KEY = ("default", GPU)


def claim(queue: str, gpus: float, *, priority: int = 0, order_s: float = 0.0) -> QuotaClaim:
    """A workload of a queue."""
    return QuotaClaim(0, queue, {GPU: gpus}, priority, order_s)


def take(ledger: QuotaLedger, queue: str, gpus: float, **fields: float) -> QuotaClaim:
    """A workload that has its quota."""
    taken = claim(queue, gpus, **fields)  # type: ignore[arg-type]
    ledger.take(taken, {KEY: gpus}, taken.order_s)
    return taken


def test_a_queue_alone_has_its_quota() -> None:
    ledger = QuotaLedger([make_queue("red", 8)])
    taken = take(ledger, "red", 5)
    assert ledger.measure_room("red", KEY) == 3
    assert ledger.find_usage(claim("red", 4)) is None
    ledger.give_back(taken)
    assert ledger.find_usage(claim("red", 4)) == {KEY: 4}


@pytest.mark.parametrize(
    ("borrowing", "lending", "room"),
    [(None, None, 14), (2, None, 10), (0, None, 8), (None, 1, 9), (None, 0, 8)],
)
def test_a_queue_borrows_what_others_lend(borrowing: float | None, lending: float | None, room: float) -> None:
    queues = (
        make_queue("red", 8, borrowing=borrowing, cohort="all"),
        make_queue("blue", 6, lending=lending, cohort="all"),
    )
    ledger = QuotaLedger(queues)
    assert ledger.measure_room("red", KEY) == room
    assert ledger.measure_most("red", GPU) == room


def test_what_a_queue_keeps_is_used_first() -> None:
    ledger = QuotaLedger([make_queue("red", 8, cohort="all"), make_queue("blue", 6, lending=2, cohort="all")])
    take(ledger, "blue", 4)
    # Four of six are kept: all that is lent is still there.
    assert ledger.measure_room("red", KEY) == 10
    take(ledger, "blue", 1)
    assert ledger.measure_room("red", KEY) == 9


def test_resources_without_quota_are_not_counted() -> None:
    ledger = QuotaLedger([make_queue("red", 8)])
    assert ledger.find_usage(QuotaClaim(0, "red", {"cpu": 500.0}, 0, 0.0)) == {}


def test_lower_priorities_go_first_and_no_more_than_needed() -> None:
    ledger = QuotaLedger([make_queue("red", 8, within="LowerPriority")])
    low, middle = take(ledger, "red", 4, priority=1), take(ledger, "red", 4, priority=2)
    wanted = claim("red", 4, priority=3)
    assert ledger.choose_victims(wanted, [middle, low]) == [low]
    assert ledger.find_usage(wanted) == {KEY: 4}
    assert ledger.choose_victims(claim("red", 8, priority=1), [middle]) == []


def test_nothing_is_taken_where_it_would_not_be_enough() -> None:
    ledger = QuotaLedger([make_queue("red", 8, within="LowerPriority")])
    low = take(ledger, "red", 4, priority=1)
    take(ledger, "red", 4, priority=9)
    assert ledger.choose_victims(claim("red", 8, priority=3), [low]) == []
    assert ledger.measure_room("red", KEY) == 0


def test_only_what_is_borrowed_is_reclaimed() -> None:
    ledger = QuotaLedger([make_queue("red", 4, cohort="all"), make_queue("blue", 4, cohort="all", reclaim="Any")])
    own = take(ledger, "red", 4)
    assert ledger.choose_victims(claim("blue", 5), [own]) == []
    guest = take(ledger, "red", 2, order_s=5.0)
    assert ledger.choose_victims(claim("blue", 4), [own, guest]) == [guest]
