"""A session that stops by the clock keeps what is whole: the queries before, as often as planned."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.speedup.recording.recordings import config
from workbench.speedup.recording.query_session import SessionPlan
from workbench.speedup.recording.recorder import record_suite

ENDLESS = "SELECT sum(id * 7 % 11) FROM range(10000000000000)"


def test_with_a_limit_each_query_runs_as_often_as_planned_before_the_next() -> None:
    plan = SessionPlan(
        folder="x",
        app_name="x",
        master="local",
        settings={},
        place="x",
        views={},
        queries={},
        orders=[["b", "a"], ["a", "b"]],
    )
    assert plan.list_runs() == [(1, 1, "b"), (1, 2, "a"), (2, 1, "a"), (2, 2, "b")]
    plan.stop_after_s = 1.0
    assert plan.list_runs() == [(1, 1, "b"), (2, 2, "b"), (1, 2, "a"), (2, 1, "a")]


@pytest.mark.live
@pytest.mark.spark
def test_what_runs_is_cancelled_and_what_ended_before_counts(tmp_path: Path) -> None:
    settings = config(tmp_path, sides=["base"], sessions=1, data=None, scale=0.01)
    Path(settings.queries or "").write_text(
        f"-- name: quick\nSELECT count(*) FROM nation;\n-- name: endless\n{ENDLESS};\n-- name: more\n{ENDLESS};\n"
    )
    started = time.monotonic()
    outcome = record_suite(settings, say=lambda _: None, find_limit_s=lambda n_left: 30.0)
    assert time.monotonic() - started < 60
    rows = outcome.recording.read_executions()
    # The order is drawn: what stands before the first endless one.
    assert set(rows["query"]) <= {"quick"}
    assert rows["status"].to_list() == ["ok"] * rows.height
