"""The large logs of the benchmarks: valid, and of the work that they say."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from bench.replicate import replicate
from tests.eventlog.conftest import LOGS
from tests.eventlog.reference import content
from workbench.eventlog.reader import read_event_logs


def test_a_log_repeated_with_more_tasks_is_whole(tmp_path: Path) -> None:
    once = read_event_logs(LOGS / "failing.zstd")
    rounds = replicate(content(LOGS / "failing.zstd"), tmp_path / "large", 2_000_000, tasks=3)
    many = read_event_logs(tmp_path / "large")
    assert rounds > 1
    assert many.logs.select("n_bad_lines", "n_late_task_ends", "fault").row(0) == (0, 0, None)
    assert many.applications["status"].to_list() == ["complete"]
    assert many.sql_executions.height == rounds * once.sql_executions.height
    for column in ("n_tasks", "n_failed", "executor_run_time_ms"):
        assert many.stage_tasks[column].sum() == 3 * rounds * once.stage_tasks[column].sum()
    assert many.stages["n_planned_tasks"].sum() == 3 * rounds * once.stages["n_planned_tasks"].sum()
    totals = (pl.col("total").sum(), pl.col("n").sum())
    of_once, of_many = (facts.node_metrics.select(totals).row(0) for facts in (once, many))
    assert of_many == tuple(3 * rounds * value for value in of_once)
