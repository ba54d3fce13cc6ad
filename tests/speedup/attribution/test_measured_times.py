"""An application's time by what ran: SQL, streaming, jobs outside SQL; each instant once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.time_pieces import build_application_row, build_unreadable_row, list_streaming_ids
from workbench.speedup.fleet.measured_logs import measure_log
from workbench.speedup.tables import APPLICATIONS_MEASURED

ID = "1b671a64-40d5-491e-99b0-da01ff1f3341"
BATCH = f"counts<br/>id = {ID}<br/>runId = {ID}<br/>batch = 7"


def sql(
    sql_id: int, start_ms: int, end_ms: int | None, description: str = "q", error: str = ""
) -> list[dict[str, Any]]:
    start = made.sql_start(sql_id, description=description) | {"time": start_ms}
    return [start] if end_ms is None else [start, made.sql_end(sql_id, error) | {"time": end_ms}]


def job(job_id: int, start_ms: int, end_ms: int, **properties: str) -> list[dict[str, Any]]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    start = made.job_start(job_id, [], named) | {"Submission Time": start_ms}
    return [start, made.job_end(job_id) | {"Completion Time": end_ms}]


def row(tmp_path: Path, *events: dict[str, Any], end: bool = True) -> dict[str, Any]:
    path = tmp_path / "log"
    ends = [made.application_end(11_000)] if end else []
    path.write_bytes(made.dump(made.log_start(), made.application_start(time_ms=1000), *events, *ends))
    found = build_application_row(read_event_logs(path), "log", "0" * 64)
    return APPLICATIONS_MEASURED.frame([found]).row(0, named=True)


def parts(found: dict[str, Any]) -> tuple[float, float, float, float]:
    return found["wall_s"], found["sql_wall_s"], found["streaming_s"], found["outside_sql_s"]


DSTREAM = 'Streaming job from <a href="/streaming/batch/?id=1">[output operation 0, batch time 09:00:00]</a>'


@pytest.mark.parametrize(
    ("events", "sql_s", "streaming_s", "outside_s", "n_queries", "n_failed"),
    [
        ([*sql(0, 2000, 5000), *sql(1, 4000, 6000), *sql(2, 4500, 4600, error="it failed")], 4.0, 0.0, 0.0, 3, 1),
        ([*sql(0, 2000, 5000), *job(0, 4000, 7000), *job(1, 6000, 6500)], 3.0, 0.0, 2.0, 1, 0),
        ([*sql(0, 2000, 5000), *job(0, 2000, 9000, spark_sql_execution_id="0")], 3.0, 0.0, 0.0, 1, 0),
        ([*sql(0, 2000, 3000), *sql(1, 2500, 5000, BATCH), *job(0, 4000, 6000)], 1.0, 2.0, 1.0, 1, 0),
        (job(0, 4000, 6000, spark_job_description=DSTREAM), 0.0, 2.0, 0.0, 0, 0),
    ],
    ids=["overlapping queries", "jobs outside SQL", "a job of a query", "batches of a stream", "jobs of a DStream"],
)
def test_each_instant_is_of_sql_of_a_stream_or_of_neither(
    tmp_path: Path,
    events: list[dict[str, Any]],
    sql_s: float,
    streaming_s: float,
    outside_s: float,
    n_queries: int,
    n_failed: int,
) -> None:
    found = row(tmp_path, *events)
    assert parts(found) == (10.0, sql_s, streaming_s, outside_s)
    assert (found["n_queries"], found["n_failed"], found["status"]) == (n_queries, n_failed, "complete")


@pytest.mark.parametrize("text", ["select id = 5, batch = 3", "streaming report", None, ""])
def test_a_query_that_speaks_of_streams_is_none(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(made.small(*sql(0, 2000, 3000, text or "")))
    assert list_streaming_ids(read_event_logs(path)) == []


def test_batches_of_a_stream_are_in_no_execution(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tasks = [made.stage_submitted(0), made.task_end(0), made.stage_completed(0)]
    start, *end = sql(0, 2000, 3000, BATCH)
    path.write_bytes(made.small(start, *job(0, 2000, 2500, spark_sql_execution_id="0")[:1], *tasks, *end))
    found = measure_log(str(path))
    assert found.application["streaming_s"].to_list() == [1.0]
    assert found.measured.executions.height == 0


def test_what_still_runs_at_the_end_of_the_log_lasts_to_it(tmp_path: Path) -> None:
    found = row(tmp_path, *sql(0, 2000, None), *sql(1, 2500, 8000), end=False)
    assert found["status"] == "incomplete"
    assert parts(found) == (7.0, 6.0, 0.0, 0.0)


def test_a_log_without_its_start_has_no_wall_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(made.dump(made.log_start(), *sql(0, 2000, 3000), made.application_end(9000)))
    found = build_application_row(read_event_logs(path), "log", None)
    assert [found[name] for name in ("wall_s", "sql_wall_s", "streaming_s", "outside_sql_s")] == [None] * 4


def test_an_unreadable_log_is_a_row_of_nulls_with_its_reason() -> None:
    found = APPLICATIONS_MEASURED.frame([build_unreadable_row("log", "x" * 10_000)]).row(0, named=True)
    assert (found["status"], len(found["reason"])) == ("unreadable", 500)
    assert found["wall_s"] is None
