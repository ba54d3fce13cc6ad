"""Counts of requests: bounded in memory, exact in number."""

from __future__ import annotations

import pytest

from workbench.scaletest.cluster_api.clock import NS_PER_S
from workbench.scaletest.observation import audit_log
from workbench.scaletest.observation.audit_log import RequestCounts

KEY = ("client", "create", "pods", "", 201)


def test_nothing_asked_is_an_empty_table() -> None:
    assert RequestCounts().to_frame(0).height == 0


def test_times_count_from_the_runs_start() -> None:
    found = RequestCounts()
    found.add(100 * NS_PER_S + 7, KEY, 0.5)
    assert found.to_frame(98 * NS_PER_S + NS_PER_S // 2)["at_s"].to_list() == [1.5]


def test_a_line_that_comes_late_is_counted_in_its_own_second() -> None:
    found = RequestCounts()
    for second in (100, 101, 120, 100, 100):
        found.add(second * NS_PER_S, KEY, 0.5)
    assert found.to_frame(0).select("at_s", "requests").rows() == [(100.0, 3), (101.0, 1), (120.0, 1)]


def test_of_very_many_requests_in_a_second_a_sample_tells_the_quantiles() -> None:
    found = RequestCounts()
    for number in range(20_000):
        found.add(NS_PER_S, KEY, number / 20_000)
    row = found.to_frame(0).row(0, named=True)
    assert row["requests"] == 20_000
    assert row["duration_p50_s"] == pytest.approx(0.5, abs=0.1)
    assert 0.9 < row["duration_p99_s"] <= 1
    assert not found._open


def test_keys_beyond_the_bound_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_KEYS", 3)
    found = RequestCounts()
    for number in range(10):
        found.add(NS_PER_S, (f"c{number}", "get", "pods", "", 200), 0.1)
    table = found.to_frame(0)
    assert table["requests"].sum() == 10
    assert dict(table.select("client", "requests").rows())["other"] == 7


def test_rows_beyond_the_bound_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "MAX_ROWS", 4)
    found = RequestCounts()
    for second in range(10):
        found.add(second * NS_PER_S, KEY, 0.1)
    assert found.to_frame(0).height == 4
    assert found.left_out == 6


@pytest.mark.parametrize(("q", "value"), [(0.5, 5.0), (0.99, 10.0), (0.1, 1.0), (0.11, 2.0), (1.0, 10.0)])
def test_a_quantile_is_the_least_value_that_the_share_does_not_exceed(q: float, value: float) -> None:
    assert audit_log._upper_quantile([float(number) for number in range(1, 11)], q) == value
