"""What belongs to a gap, and when it is written."""

from __future__ import annotations

import pytest

from workbench.scaletest.cluster_api.clock import now_ns
from workbench.scaletest.observation import resource_watch, run_records
from workbench.scaletest.observation.resource_watch import GRACE_NS, WatchAbsence


def made(since_ns: int = 0) -> tuple[WatchAbsence, list[run_records.Gap]]:
    gaps: list[run_records.Gap] = []
    return WatchAbsence("pod", gaps.append, since_ns), gaps


def test_while_the_watch_is_there_nothing_is_in_a_gap() -> None:
    found, gaps = made()
    assert not found.is_open
    assert not found.covers_arrival(5, 5)
    found.settle()
    found.end()
    assert gaps == []


def test_what_is_not_newer_than_the_head_or_comes_at_once_happened_meanwhile() -> None:
    found, gaps = made()
    found.begin(10, "end of stream")
    found.set_head_version(7)
    found.end_absence(20)
    late = 20 + GRACE_NS + 1
    assert found.covers_arrival(late, 7)
    assert found.covers_arrival(20 + GRACE_NS, 8)
    found.count_recovery(2)
    assert gaps == []
    assert not found.covers_arrival(late, 8)
    assert gaps == [run_records.Gap("pod", 10, 20, "end of stream", recovered=2)]
    assert not found.covers_arrival(21, 1)


def test_further_failures_of_a_watch_that_is_away_belong_to_the_same_gap() -> None:
    found, gaps = made()
    found.begin(10, "end of stream")
    found.begin(15, "expired")
    found.begin(17, "server gone")
    assert found.away_s() > 0
    found.record_relist(3)
    found.end_absence(20)
    assert found.away_s() == 0
    found.end()
    assert gaps == [run_records.Gap("pod", 10, 20, "expired", relisted=True, recovered=3)]


def test_a_watch_that_had_been_back_begins_another_gap() -> None:
    found, gaps = made()
    found.begin(10, "server gone")
    found.end_absence(20)
    found.begin(30, "server gone")
    found.end()
    assert [(one.from_ns, one.to_ns == 20) for one in gaps] == [(10, True), (30, False)]


def test_a_gap_is_settled_once_the_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found, gaps = made(since_ns=3)
    found.settle()
    found.end_absence(now_ns())
    monkeypatch.setattr(resource_watch, "GRACE_NS", 1 << 60)
    found.settle()
    assert gaps == []
    monkeypatch.setattr(resource_watch, "GRACE_NS", -1)
    found.settle()
    assert [(one.from_ns, one.reason) for one in gaps] == [(3, "the sampler was not running")]
