"""Work is booked where it ran and for whom: by the events' own evidence, once, without what Spark itself leaves out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.attribution.executions import Execution, read_executions
from workbench.speedup.attribution.time_pieces import build_application_row, list_streaming_ids

Read = Callable[..., EventLogFacts]
Event = dict[str, Any]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_events(*events: Event, application: tuple[Event, ...] = ()) -> EventLogFacts:
        head = application or (made.environment(), made.application_start())
        content = made.dump(made.log_start(), made.executor_added(), *head, *events, made.application_end(100_000))
        (tmp_path / "log").write_bytes(content)
        return read_event_logs(tmp_path / "log")

    return read_events


def of(sql_id: int) -> dict[str, str]:
    return {"spark.sql.execution.id": str(sql_id)}


def query(sql_id: int, *work: Event, start_ms: int, end_ms: int | None, **more: Any) -> list[Event]:
    end = [] if end_ms is None else [made.sql_end(sql_id) | {"time": end_ms}]
    return [made.sql_start(sql_id) | {"time": start_ms} | more, *work, *end]


def job(number: int, sql_id: int, stage_id: int, *, launch_ms: int, finish_ms: int, attempt: int = 0) -> list[Event]:
    """A job of one stage of one task."""
    task = made.task_end(stage_id, attempt, number, launch_ms=launch_ms, finish_ms=finish_ms)
    return [
        made.at(launch_ms, made.job_start(number, [stage_id], of(sql_id))),
        made.at(launch_ms, made.stage_submitted(stage_id, attempt, properties=of(sql_id))),
        task,
        made.at(finish_ms, made.stage_completed(stage_id, attempt)),
        made.at(finish_ms, made.job_end(number)),
    ]


def executions(facts: EventLogFacts) -> dict[int, Execution]:
    return {one.sql_id: one for one in read_executions(facts)}


@pytest.mark.parametrize("named", [True, False], ids=["by its submission", "by the job at work on it"])
def test_a_stage_that_runs_again_belongs_to_the_query_it_runs_for(named: bool, read: Read) -> None:
    first = query(0, *job(0, 0, 0, launch_ms=2000, finish_ms=5000), start_ms=1900, end_ms=5100)
    again = job(1, 1, 0, launch_ms=30_000, finish_ms=60_000, attempt=1)
    if not named:
        again[1] = made.stage_submitted(0, 1)
    facts = read(*first, *query(1, *again, start_ms=29_000, end_ms=61_000))
    assert facts.stages.select("stage_attempt_id", "sql_id").rows() == [(0, 0), (1, 1)]
    assert {sql_id: one.stages[0].task_s for sql_id, one in executions(facts).items()} == {0: 3.0, 1: 30.0}


@pytest.mark.parametrize(("end_ms", "n_queries"), [(40_000, 1), (70_000, 2)], ids=["within its root", "beyond it"])
def test_an_inner_query_counts_once_where_it_ran(end_ms: int, n_queries: int, read: Read) -> None:
    work = job(0, 1, 0, launch_ms=31_000, finish_ms=end_ms - 1000)
    inner = query(1, *work, start_ms=30_000, end_ms=end_ms, rootExecutionId=0)
    facts = read(*query(0, start_ms=1000, end_ms=50_000), *inner)
    found = executions(facts)
    assert sum(stage.task_s for one in found.values() for stage in one.stages) == (end_ms - 1000 - 31_000) / 1e3
    assert [sql_id for sql_id, one in found.items() if one.stages] == [n_queries - 1]
    assert build_application_row(facts, "log", None)["n_queries"] == n_queries


def test_an_inner_query_of_an_unknown_root_is_a_query_and_the_root_is_said_to_be_missing(read: Read) -> None:
    work = job(0, 7, 0, launch_ms=2000, finish_ms=50_000)
    facts = read(*query(7, *work, start_ms=1000, end_ms=51_000, rootExecutionId=3))
    assert executions(facts)[7].wall_s == 50.0
    row = build_application_row(facts, "log", None)
    assert (row["status"], row["n_queries"]) == ("damaged", 1)
    assert row["reason"] == "query 3 is not in the log: query 7 was started by a query that has no start"


def test_the_time_of_a_query_is_the_union_of_its_span_and_its_work(read: Read) -> None:
    facts = read(*query(0, *job(0, 0, 0, launch_ms=2000, finish_ms=9000), start_ms=3000, end_ms=8000))
    assert (executions(facts)[0].start_s, executions(facts)[0].end_s) == (2.0, 9.0)


def test_metrics_of_plans_count_neither_killed_copies_nor_what_was_never_set(read: Read) -> None:
    tree = made.plan("Sort", metrics={7: "spill size", 8: "number of output rows"})

    def task(number: int, updates: dict[int, int], **more: Any) -> Event:
        event = made.task_end(task_id=number, updates=updates, **more)
        for update in event["Task Info"]["Accumulables"]:
            update["Metadata"] = "sql"
        return event

    killed = task(2, {7: -1, 8: -3}, killed=True, end={"Reason": "TaskKilled"})
    work = [task(0, {7: -1, 8: 1000}), task(1, {7: 64, 8: 3000}), killed]
    stage = [made.stage_submitted(tasks=2, properties=of(0)), *work, made.stage_completed(tasks=2)]
    facts = read(made.sql_start(0, tree), made.job_start(0, [0], of(0)), *stage, made.job_end(), made.sql_end(0))
    totals = facts.node_metrics.select("metric_name", "n", "total").rows()
    assert sorted(totals) == [("number of output rows", 2, 4000), ("spill size", 1, 64)]


ENGINES = {
    "NativeHashAggregate": "auron",
    "ConvertToNative": "auron",
    "PhotonGroupingAgg": "photon",
    "FilterExecTransformer": "gluten",
    "CometFilter": "comet",
    "GpuFilter": "rapids",
    "BoltHashAggregate": "unknown",
    "FilterExecFast": "unknown",
    "HashAggregate": "spark",
    "Scan parquet ": "spark",
    "BatchEvalPython": "spark",
}


@pytest.mark.parametrize(("node", "engine"), ENGINES.items())
def test_an_engine_is_known_by_its_nodes_or_it_is_said_to_be_unknown(node: str, engine: str, read: Read) -> None:
    work = job(0, 0, 0, launch_ms=2000, finish_ms=3000)
    facts = read(made.sql_start(0, made.plan("AdaptiveSparkPlan", children=[made.plan(node)])), *work, made.sql_end(0))
    assert facts.applications["engine"].to_list() == [engine]
    unknown = facts.completeness.filter(pl.col("kind") == "engine")["subject"].to_list()
    assert unknown == ([node] if engine == "unknown" else [])


@pytest.mark.parametrize(
    ("properties", "engine"),
    [
        ({"spark.sql.extensions": "org.apache.spark.sql.auron.AuronSparkSessionExtension"}, "auron"),
        ({"spark.sql.extensions": "a.B,org.apache.spark.sql.blaze.BlazeSparkSessionExtension"}, "auron"),
        ({"spark.plugins": "org.apache.spark.CometPlugin", "spark.comet.enabled": "false"}, "spark"),
    ],
)
def test_without_plans_the_properties_tell_the_engine(properties: dict[str, str], engine: str, read: Read) -> None:
    facts = read(application=(made.environment(properties), made.application_start()))
    assert facts.applications["engine"].to_list() == [engine]


@pytest.mark.parametrize("root", [0, None], ids=["with its root", "before Spark 3.4"])
def test_what_a_batch_of_a_stream_runs_is_streaming(root: int | None, read: Read) -> None:
    run = "id = 8d268dc2-bc9c-4be8-97a9-b135d2943028\nrunId = e225d92f-2545-48f8-87a2-9c0309580f8a\nbatch = 3"
    inner = query(
        1,
        *job(0, 1, 0, launch_ms=2000, finish_ms=8000),
        start_ms=1500,
        end_ms=9000,
        rootExecutionId=root,
        description="upsert",
    )
    facts = read(*query(0, *inner, start_ms=1000, end_ms=9500, rootExecutionId=root and 0, description=run))
    assert sorted(list_streaming_ids(facts)) == [0, 1]
    row = build_application_row(facts, "log", None)
    assert (row["n_queries"], row["n_streaming_batches"], row["streaming_s"]) == (0, 1, 8.5)
