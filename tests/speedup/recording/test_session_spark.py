"""Real sessions on a real Spark: logs, answers, failures, a killed recorder, a second engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from workbench.core.errors import MissingToolError
from workbench.eventlog.reader import read_event_logs
from workbench.spark import engine_jars
from workbench.spark.engine_jars import COMET
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import load_recording, recorder

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
    assert {name: counts.get(name) for name in recording.suite.queries} == {
        "by_city": 2,
        "top": 2,
        "top_hidden": 2,
        "joined": 2,
        # It failed while it was analysed, before it was an execution.
        "broken": None,
    }
    answers = {row["query"]: row["n_rows"] for row in recording.read_answers().iter_rows(named=True)}
    assert answers == {"by_city": 3, "top": 3, "top_hidden": 3, "joined": 1, "broken": None}


@pytest.mark.spark
def test_limits_are_read_from_the_plan(tmp_path: Path, data: Path) -> None:
    record(asked(tmp_path, data, sides=["base"], sessions=1, passes=1))
    store = recorder.AnswerStore(tmp_path / "out" / "answers")
    found = {query: store.load_answer(digest) for query, digest in store.read_session_index("base-s1").items()}
    assert {query: (answer.limit, answer.keys) for query, answer in found.items()} == {
        "by_city": (None, None),
        "top": (3, (1,)),
        "top_hidden": (3, None),
        "joined": (None, None),
    }
    assert [kind for _, kind in found["by_city"].columns] == ["string", "double", "double", "decimal(20,2)"]
    assert found["joined"].rows == [[267, "1971-02-04"]]


@pytest.fixture
def slow_recorder(tmp_path: Path, data: Path) -> Iterator[subprocess.Popen[str]]:
    """A recorder in a process of its own, that has come to its first session."""
    path = tmp_path / "queries.sql"
    path.write_text(SLOW)
    options = ["--out", tmp_path / "out", "--queries", path, "--data", data, "--side", "base", "--driver-memory", "1g"]
    command = [sys.executable, "-m", "workbench", "speedup", "record", *map(str, options)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    # Closed at the end: a recorder that lives on would else wait for somebody to read.
    with process.stderr as lines:
        try:
            for line in lines:
                if "starts" in line:
                    break
            while not java_below(process.pid):
                assert process.poll() is None
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def java_below(pid: int) -> list[psutil.Process]:
    """The JVMs that a process has started, itself or through others."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if "java" in child.name() else []
    return found


def gone(processes: list[psutil.Process]) -> bool:
    """Do they end, within the time that a busy machine may take?"""
    return not psutil.wait_procs(processes, timeout=60)[1]


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_recorder_leaves_no_process_and_no_half_session(
    slow_recorder: subprocess.Popen[str], tmp_path: Path, data: Path, number: signal.Signals
) -> None:
    children = psutil.Process(slow_recorder.pid).children(recursive=True)
    assert len(children) >= 2
    slow_recorder.send_signal(number)
    code = slow_recorder.wait(timeout=60)
    assert code == (-number if number == signal.SIGKILL else 130)
    assert gone(children)
    assert list(load_recording(tmp_path / "out").iterate_logs()) == []
    assert not (tmp_path / "out" / "logs").exists()


@pytest.mark.spark
def test_a_session_that_hangs_is_killed_and_said(tmp_path: Path, data: Path) -> None:
    others = java_below(os.getpid())
    with pytest.raises(recorder.RunFailedError, match="the first session of a side failed") as error:
        record(asked(tmp_path, data, SLOW, sides=["base"], session_timeout_s=15))
    assert "took longer than 15 s" in str(error.value)
    assert [one for one in java_below(os.getpid()) if one not in others] == []


@pytest.mark.network
def test_two_engines_answer_alike_and_their_logs_show_which_is_which(tmp_path: Path, data: Path) -> None:
    try:
        engine_jars.resolve_jar(COMET, say=lambda _: None)
    except MissingToolError as error:
        pytest.skip(f"the jar of Comet cannot be had here: {error.facts['found']}"[:300])
    small = "comet:comet,spark.memory.offHeap.size=512m"
    outcome = record(asked(tmp_path, data, sides=["spark", small], scrub=True))
    assert outcome.reasons == []
    recording = load_recording(tmp_path / "out")
    assert recording.complete
    assert recording.find_side("comet").jar_sha256 == COMET.sha256
    assert set(recording.read_answers()["verdict"]) <= {"reference", "equal", "equal up to ties at the limit"}
    for label, _, log in recording.iterate_logs():
        assert all(executions_of(log).get(query) == 2 for query in recording.suite.queries)
        names = read_event_logs(str(log)).plan_nodes["node_name"].drop_nulls()
        assert names.str.starts_with("Comet").any() == (label == "comet")
    assert json.loads((tmp_path / "out" / "recording.json").read_text())["versions"]["pyspark"]
