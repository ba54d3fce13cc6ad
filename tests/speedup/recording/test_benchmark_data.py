"""Suites that are generated: TPC-DS by DuckDB's extension in an environment of its own; Power Runs; load of others."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from workbench.core.errors import ConfigError
from workbench.speedup import tables
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import benchmark_data, recorder
from workbench.speedup.recording.benchmark_data import BENCHMARKS
from workbench.speedup.recording.query_session import LoadMeter
from workbench.speedup.recording.query_suite import Suite
from workbench.speedup.recording.recording_plan import load_recording

# A rollup with windows, a set operation, a scalar subquery, and a semi join.
SOME = ("query67", "query8", "query9", "query16")


def test_the_streams_hold_each_query_once() -> None:
    for name, n_queries, first in (("tpch", 22, "q14"), ("tpcds", 99, "query96")):
        suite = BENCHMARKS[name].build_suite(None, True, print)
        assert (len(suite.queries), suite.stream[0]) == (n_queries, first)
        assert sorted(suite.stream) == sorted(suite.queries)


def test_chosen_queries_keep_the_order_of_the_suite_and_of_its_stream() -> None:
    suite = Suite("x", {"a": "1", "b": "2", "c": "3"}, ("c", "a", "b"))
    chosen = suite.select(["b", "c"])
    assert (list(chosen.queries), chosen.stream) == (["b", "c"], ("c", "b"))
    assert suite.select([]) == suite
    with pytest.raises(ConfigError, match="no such query"):
        suite.select(["d"])


def test_a_power_run_has_one_pass(tmp_path: Path) -> None:
    config = RecordConfig(out=tmp_path, power_run=True)
    assert (config.n_sessions, config.n_passes) == (1, 1)
    assert (RecordConfig(out=tmp_path).n_sessions, RecordConfig(out=tmp_path).n_passes) == (5, 3)
    with pytest.raises(ValueError, match="a Power Run has one pass"):
        RecordConfig(out=tmp_path, power_run=True, passes=3)


def test_what_cannot_be_generated_leaves_nothing_behind(tmp_path: Path) -> None:
    def make_a_part(fresh: Path) -> None:
        fresh.mkdir()
        (fresh / "part").touch()
        raise RuntimeError("the generator failed")

    with pytest.raises(RuntimeError):
        benchmark_data._make_once(tmp_path / "sf1", make_a_part)
    assert list(tmp_path.iterdir()) == []


def test_times_are_written_as_the_nds_harness_writes_them() -> None:
    facts = {"app_id": "local-1", "queries_started_at": 1000.9, "queries_ended_at": 1012.1, "views_s": {"item": 0.25}}
    rows = [{"query": "query96", "duration_s": 1.2345}, {"query": "query7", "duration_s": 9.0}]
    assert list(csv.reader(recorder.format_power_times(rows, facts).splitlines())) == [
        ["application_id", "query", "time/milliseconds"],
        ["local-1", "CreateTempView item", "250"],
        ["local-1", "query96", "1234"],
        ["local-1", "query7", "9000"],
        ["local-1", "Power Start Time", "1000"],
        ["local-1", "Power End Time", "1012"],
        ["local-1", "Power Test Time", "12000"],
        ["local-1", "Total Time", "11450"],
    ]


def test_the_load_of_others_is_what_this_process_and_its_children_did_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 40 s of two cores 20 s were idle, 2 s stolen, and 10 s used by the session.
    seen = iter([(100.0, 50.0, 1.0, 5.0), (140.0, 70.0, 3.0, 15.0)])
    monkeypatch.setattr(LoadMeter, "_read_cpu_s", staticmethod(lambda: next(seen)))
    assert LoadMeter().measure_others() == {"other_cpu_share": 0.2, "steal_share": 0.05}
    monkeypatch.undo()
    found = LoadMeter()
    sum(number * number for number in range(2_000_000))
    assert all(0 <= share <= 1 for share in found.measure_others().values())


def _record(tmp_path: Path, engines: list[str], **changed: object) -> recorder.RecordingOutcome:
    config = {"queries": "tpcds", "scale": 0.01, "power_run": True, "engines": engines, "driver_memory": "2g"}
    return recorder.record_suite(
        RecordConfig.model_validate({"out": tmp_path / "power", **config, **changed}), say=lambda _: None
    )


def _check_power_run(outcome: recorder.RecordingOutcome, n_queries: int, n_sides: int) -> None:
    recording = load_recording(outcome.recording.folder)
    executions = recording.read_executions()
    assert executions.group_by("label").len()["len"].to_list() == [n_queries] * n_sides
    assert executions["status"].unique().to_list() == ["ok"]
    stream = [f"query{n}" for n in benchmark_data.TPCDS_STREAM.split() if f"query{n}" in recording.suite.queries]
    for label in recording.labels:
        assert executions.filter(pl.col("label") == label).sort("position")["query"].to_list() == stream
        with (recording.folder / "power" / f"{label}-s1.csv").open() as file:
            times = {row["query"]: int(row["time/milliseconds"]) for row in csv.DictReader(file)}
        assert [name for name in times if name.startswith("query")] == stream
        assert len([name for name in times if name.startswith("CreateTempView")]) == len(benchmark_data.TPCDS_TABLES)
        assert 0 <= times["Power End Time"] - times["Power Start Time"] <= times["Power Test Time"] / 1000 + 1
    answers = tables.ANSWERS.read(recording.folder).filter(pl.col("label") != recording.labels[0])
    good = answers.filter(pl.col("verdict").is_in(["equal", "equal up to ties at the limit"]))
    assert good.height >= answers.height * 0.9
    assert answers.filter(pl.col("verdict") == "wrong answer").height <= answers.height * 0.05


@pytest.mark.spark
@pytest.mark.network
def test_some_queries_of_tpcds_run_on_both_engines(tmp_path: Path) -> None:
    outcome = _record(tmp_path, ["spark", "comet"], only=list(SOME))
    _check_power_run(outcome, len(SOME), 2)
    assert "answers equal those of the first side" in recorder.format_outcome(outcome)
