"""What belongs to a gap, and when it is written."""

from __future__ import annotations

import pytest

from workbench.scaletest import records
from workbench.scaletest.times import now_ns
from workbench.scaletest.watching import absence
from workbench.scaletest.watching.absence import GRACE_NS, Absence


def made(since_ns: int = 0) -> tuple[Absence, list[records.Gap]]:
    gaps: list[records.Gap] = []
    return Absence("pod", gaps.append, since_ns), gaps


def test_while_the_watch_is_there_nothing_is_in_a_gap() -> None:
    found, gaps = made()
    assert not found.is_open
    assert not found.holds(5, 5)
    found.settle()
    found.end()
    assert gaps == []


def test_what_is_not_newer_than_the_head_or_comes_at_once_happened_meanwhile() -> None:
    found, gaps = made()
    found.begin(10, "end of stream")
    found.aim(7)
    found.back(20)
    late = 20 + GRACE_NS + 1
    assert found.holds(late, 7)
    assert found.holds(20 + GRACE_NS, 8)
    found.recovered(2)
    assert gaps == []
    assert not found.holds(late, 8)
    assert gaps == [records.Gap("pod", 10, 20, "end of stream", recovered=2)]
    assert not found.holds(21, 1)


def test_further_failures_of_a_watch_that_is_away_belong_to_the_same_gap() -> None:
    found, gaps = made()
    found.begin(10, "end of stream")
    found.begin(15, "expired")
    found.begin(17, "server gone")
    assert found.away_s() > 0
    found.relisted(3)
    found.back(20)
    assert found.away_s() == 0
    found.end()
    assert gaps == [records.Gap("pod", 10, 20, "expired", relisted=True, recovered=3)]


def test_a_watch_that_had_been_back_begins_another_gap() -> None:
    found, gaps = made()
    found.begin(10, "server gone")
    found.back(20)
    found.begin(30, "server gone")
    found.end()
    assert [(one.from_ns, one.to_ns == 20) for one in gaps] == [(10, True), (30, False)]


def test_a_gap_is_settled_once_the_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found, gaps = made(since_ns=3)
    found.settle()
    found.back(now_ns())
    monkeypatch.setattr(absence, "GRACE_NS", 1 << 60)
    found.settle()
    assert gaps == []
    monkeypatch.setattr(absence, "GRACE_NS", -1)
    found.settle()
    assert [(one.from_ns, one.reason) for one in gaps] == [(3, "the sampler was not running")]
