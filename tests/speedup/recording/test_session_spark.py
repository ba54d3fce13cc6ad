"""Real sessions on a real Spark: logs, answers, failures, a killed recorder, a second engine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from workbench.eventlog.reader import read_event_logs
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import recorder
from workbench.speedup.recording.recording_plan import load_recording

QUERIES = """
-- name: by_city
SELECT city, sum(amount) AS total, avg(amount) AS mean, sum(price) AS price FROM sales GROUP BY city ORDER BY city;
-- name: top
SELECT city, amount FROM sales ORDER BY amount DESC LIMIT 3;
-- name: top_hidden
SELECT city FROM sales ORDER BY amount DESC LIMIT 3;
-- name: joined
SELECT count(*) AS n, max(day) AS last FROM sales JOIN cities USING (city) WHERE country <> 'X';
"""
BROKEN = QUERIES + "-- name: broken\nSELECT no_such_column FROM sales;"
SLOW = QUERIES + "-- name: endless\nSELECT sum(hash(id)) AS n FROM range(0, 10000000000000, 1, 100000);"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "cities").mkdir(parents=True)
    n = 400
    sales = pl.DataFrame(
        {
            "city": [("Rome", "Oslo", "Bonn")[place % 3] for place in range(n)],
            "amount": [place * 0.1 if place % 50 else None for place in range(n)],
            "price": pl.Series([place % 7 for place in range(n)]).cast(pl.Decimal(10, 2)),
            "day": pl.Series(range(n)).cast(pl.Date),
        }
    )
    sales.write_parquet(folder / "sales.parquet")
    pl.DataFrame({"city": ["Rome", "Oslo"], "country": ["IT", "NO"]}).write_parquet(
        folder / "cities" / "part-0.parquet"
    )
    return folder


def asked(tmp_path: Path, data: Path, queries: str = QUERIES, **changed: Any) -> RecordConfig:
    path = tmp_path / "queries.sql"
    path.write_text(queries)
    settings: dict[str, Any] = {
        "out": tmp_path / "out",
        "queries": str(path),
        "data": str(data),
        "sessions": 2,
        "passes": 2,
        "master": "local[2]",
        "driver_memory": "1g",
        "shuffle_partitions": 2,
    }
    return RecordConfig(**(settings | changed))


def record(config: RecordConfig) -> recorder.RecordingOutcome:
    return recorder.record_suite(config, say=lambda _: None)


def executions_of(log: Path) -> dict[str, int]:
    descriptions = read_event_logs(str(log)).sql_executions["description"].value_counts()
    return dict(descriptions.iter_rows())


@pytest.mark.spark
def test_one_side_that_fails_a_query_still_measures_the_others(tmp_path: Path, data: Path) -> None:
    outcome = record(asked(tmp_path, data, BROKEN, sides=["base"], sessions=1, scrub=True))
    (reason,) = outcome.reasons
    assert reason.startswith("base broken: failed: 2 executions failed; session 1: AnalysisException")
    assert "\n" not in reason
    recording = load_recording(tmp_path / "out")
    (session,) = recording.sessions
    assert (session.n_passes, session.n_failed) == (2, 2)
    assert (session.spark_version or "").startswith("3.5.")
    assert [text for text in session.warnings if "tells about this machine" in text] == []
    ((_, _, log),) = recording.iterate_logs()
    facts = read_event_logs(str(log))
    assert facts.applications["status"].to_list() == ["complete"]
    counts = executions_of(log)
    # The broken one failed while it was analysed, before it was an execution.
    expected = {"by_city": 2, "top": 2, "top_hidden": 2, "joined": 2, "broken": None}
    assert {name: counts.get(name) for name in recording.suite.queries} == expected
    answers = {row["query"]: row["n_rows"] for row in recording.read_answers().iter_rows(named=True)}
    assert answers == {"by_city": 3, "top": 3, "top_hidden": 3, "joined": 1, "broken": None}


@pytest.mark.spark
def test_limits_are_read_from_the_plan(tmp_path: Path, data: Path) -> None:
    record(asked(tmp_path, data, sides=["base"], sessions=1, passes=1))
    store = recorder.AnswerStore(tmp_path / "out" / "answers")
    found = {query: store.load_answer(digest) for query, digest in store.read_session_index("base-s1").items()}
    expected = {"by_city": (None, None), "top": (3, (1,)), "top_hidden": (3, None), "joined": (None, None)}
    assert {query: (answer.limit, answer.keys) for query, answer in found.items()} == expected
    assert [kind for _, kind in found["by_city"].columns] == ["string", "double", "double", "decimal(20,2)"]
    assert found["joined"].rows == [[267, "1971-02-04"]]


def java_below(pid: int) -> list[psutil.Process]:
    """The JVMs that a process has started, itself or through others."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if "java" in child.name() else []
    return found


@pytest.mark.spark
def test_a_session_that_hangs_is_killed_and_said(tmp_path: Path, data: Path) -> None:
    others = java_below(os.getpid())
    with pytest.raises(recorder.RunFailedError, match="the first session of a side failed") as error:
        record(asked(tmp_path, data, SLOW, sides=["base"], session_timeout_s=15))
    assert "took longer than 15 s" in str(error.value)
    assert [one for one in java_below(os.getpid()) if one not in others] == []
