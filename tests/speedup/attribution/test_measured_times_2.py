"""What counts as one execution: with all that it started itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.attribution.executions import read_executions
from workbench.speedup.attribution.time_pieces import NO_TIME, measure_log_times
from workbench.speedup.comparison.run_comparison import compare_logs

SCAN = "FileScan parquet [a#1] Location: InMemoryFileIndex[file:/x/lineitem], ReadSchema: struct<a:int>"


def read_made(path: Path, *events: dict[str, object]) -> EventLogFacts:
    path.write_bytes(made.small(*events))
    return read_event_logs(path)


def command(sql_id: int, *, root_known: bool = True) -> list[dict[str, object]]:
    """CREATE TABLE AS SELECT as Spark 3.4 and later log it: the stages are of an execution inside the command's."""
    inner, rows, times = sql_id + 1, 10 * sql_id, 10 * sql_id + 1
    scan = made.plan("Scan parquet ", SCAN, metrics={rows: "number of output rows"})
    sort = made.plan("Sort", "Sort", [scan], {times: "sort time"}, metric_type="timing")
    outer = made.sql_start(sql_id, made.plan("Execute CreateDataSourceTableAsSelectCommand"), "make it")
    return [
        *([outer] if root_known else []),
        made.sql_start(inner, sort, "make it") | {"rootExecutionId": sql_id},
        made.job_start(inner, [inner], {"spark.sql.execution.id": str(inner)}),
        made.stage_submitted(inner),
        made.task_end(inner, 0, inner, updates={rows: 2_000_000, times: 60}, launch_ms=2000, finish_ms=2100),
        made.stage_completed(inner),
        made.job_end(inner),
        made.sql_end(inner),
        *([made.sql_end(sql_id)] if root_known else []),
    ]


def test_a_command_holds_what_the_executions_that_it_started_did(tmp_path: Path) -> None:
    facts = read_made(tmp_path / "log", *command(0), *command(2))
    found = measure_log_times(facts, "a", "s")
    assert found.executions.select("sql_id", "number", "n_stages").rows() == [(0, 0, 1), (2, 1, 1)]
    assert found.executions["cold"].to_list() == [True, False]
    assert found.executions["fingerprint"].null_count() == 0
    booked = found.pieces.filter(pl.col("basis") == "own metric")
    assert booked["operators"].to_list() == [["Sort"], ["Sort"]]
    assert booked["task_s"].to_list() == [0.06, 0.06]
    assert booked["work"].to_list() == [[2.0], [2.0]]
    first, _ = read_executions(facts)
    names = {number: node.name for number, node in first.nodes.items()}
    assert names == {0: "Execute CreateDataSourceTableAsSelectCommand", 1: "Sort", 2: "Scan parquet "}
    assert first.children == {1: (2,)}
    assert first.inner_ids == (1,)
    # By either number it is found, since a profile names stages by the inner one.
    log = str(tmp_path / "log")
    assert list(compare_logs(log, log, sql_ids="1,2").alignments) == ["make it (1, 2)"]


def test_an_execution_whose_command_is_not_in_the_log_stands_for_itself(tmp_path: Path) -> None:
    found = measure_log_times(read_made(tmp_path / "log", *command(0, root_known=False)), "a", "s")
    assert found.executions["sql_id"].to_list() == [1]


def test_an_execution_that_took_no_time_by_its_stamps_does_not_count(tmp_path: Path) -> None:
    text = "\n".join(json.dumps(event) for event in command(0, root_known=False))
    text = re.sub(r'"(Submission Time|Completion Time|Launch Time|Finish Time|time)": \d+', r'"\1": 5000', text)
    events = [json.loads(line) for line in text.splitlines()]
    (found,) = measure_log_times(read_made(tmp_path / "log", *events), "a", "s").executions.to_dicts()
    assert (found["wall_s"], found["why_not"]) == (0.0, NO_TIME)
