"""A query is what it reads and computes, whatever it is called and however it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.executions import Execution, read_executions
from workbench.speedup.attribution.plan_identity import (
    fingerprint_plans,
    name_queries,
    scan_table_name,
    strip_description,
)

SCAN = (
    "FileScan parquet [k#1L,v#2] Batched: true, DataFilters: [isnotnull(k#1L)], Format: Parquet, "
    "Location: InMemoryFileIndex(1 paths)[hdfs:/lake/t], PartitionFilters: [(ds#3 = 2026-11-01)], PushedFilters: [], "
    "ReadSchema: struct<k:bigint,v:double>"
)
PLAN = (
    ("HashAggregate", "HashAggregate(keys=[k#1L], functions=[sum(v#2)])"),
    ("Exchange", "Exchange hashpartitioning(k#1L, 200), ENSURE_REQUIREMENTS, [plan_id=12]"),
    ("Filter", "Filter (v#2 > 3.0)"),
    ("Scan parquet ", SCAN),
)


def fingerprint(*nodes: tuple[str, str]) -> str:
    rows = [(0, 0, 0, name, text) for name, text in nodes]
    schema = ["log_id", "sql_id", "plan_version", "node_name", "simple_string"]
    return fingerprint_plans(pl.DataFrame(rows, schema=schema, orient="row"))[0, 0]


def changed(old: str, new: str) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace(old, new), text.replace(old, new)) for name, text in PLAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#1L", "#4711L"),
        ("[plan_id=12]", "[plan_id=77]"),
        ("(1 paths)", "(3 paths)"),
        ("hdfs:/lake/t]", "s3://other/lake/t]"),
        ("Exchange hash", "BroadcastExchange hash"),
        ("DataFilters: [isnotnull(k#1L)]", "DataFilters: [isnotnull(k#98765L)]"),
    ],
)
def test_ids_places_and_ways_to_run_do_not_change_a_fingerprint(old: str, new: str) -> None:
    assert fingerprint(*changed(old, new)) == fingerprint(*PLAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(v#2 > 3.0)", "(v#2 > 4.0)"),
        ("sum(v#2)", "avg(v#2)"),
        ("keys=[k#1L]", "keys=[k#1L, v#2]"),
        ("lake/t]", "lake/other]"),
        ("ds#3 = 2026-11-01", "ds#3 = 2026-11-02"),
        ("struct<k:bigint,v:double>", "struct<k:bigint>"),
    ],
)
def test_other_filters_functions_keys_tables_and_days_are_other_queries(old: str, new: str) -> None:
    assert fingerprint(*changed(old, new)) != fingerprint(*PLAN)


def test_filters_that_spark_cut_after_more_or_fewer_digits_are_equal() -> None:
    # Spark cuts at 100 characters, ids included.
    short = "[isnotnull(l_receiptdate#9), isnotnull(l_commitdate#8), (l_receiptdate#9 > l_commitdate#8)]"
    long = "[isnotnull(l_receiptdate#1234), isnotnull(l_commitdate#1233), (l_receiptdate#1234 > l_commitdate#1..."
    assert fingerprint(*changed("[isnotnull(k#1L)]", short)) == fingerprint(*changed("[isnotnull(k#1L)]", long))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("BatchScan lake.sales.orders[k#1L, v#2] lake.sales.orders (branch=null)", "lake.sales.orders"),
        (SCAN, "t"),
        (f"BatchScan parquet file:/x/t[k#1L] ParquetScan {SCAN.partition('Batched: true, ')[2]}", "t"),
        ("CometBatchScan lake.sales.orders[k#1L] lake.sales.orders (branch=null)", "lake.sales.orders"),
        (
            "Scan JDBCRelation((select 1) x) [numPartitions=8] [k#1L] PushedFilters: []",
            "JDBCRelation((select 1) x) [numPartitions=8]",
        ),
        ("Scan hive db.t [k#1L, v#2], HiveTableRelation [`db`.`t`]", "hive db.t"),
        ("Scan ExistingRDD[k#1L,v#2]", "ExistingRDD"),
    ],
)
def test_tables_are_named_by_their_folder_and_other_sources_by_themselves(text: str, name: str) -> None:
    assert scan_table_name(text) == name


def test_a_description_of_spark_connect_says_nothing_of_the_query() -> None:
    texts = {
        strip_description(f'Spark Connect - session_id: "{one}" user_context {{ user_id: "ann" }} plan') for one in "ab"
    }
    assert texts == {"Spark Connect"}


@pytest.mark.parametrize(
    "node",
    [
        ("SortMergeJoin", "SortMergeJoin [k#1L], [k#11L], Inner"),
        ("BroadcastHashJoin", "BroadcastHashJoin [k#1L], [k#11L], Inner, BuildRight, false"),
        ("Exchange", "Exchange hashpartitioning(v#2, 8), REBALANCE"),
        ("BroadcastExchange", "BroadcastExchange HashedRelationBroadcastMode(List(k#1L))"),
        ("Sort", "Sort [k#1L ASC NULLS FIRST], false, 0"),
        ("WholeStageCodegen (7)", "WholeStageCodegen (7)"),
        ("AQEShuffleRead", "AQEShuffleRead coalesced"),
        ("ColumnarToRow", "ColumnarToRow"),
        ("InputAdapter", "InputAdapter"),
        ("AdaptiveSparkPlan", "AdaptiveSparkPlan isFinalPlan=false"),
    ],
    ids=lambda node: node[0],
)
def test_how_a_plan_is_run_does_not_count(node: tuple[str, str]) -> None:
    assert fingerprint(*PLAN, node) == fingerprint(*PLAN)


def test_the_type_of_a_join_counts_on_every_engine_and_its_algorithm_does_not() -> None:
    def join(name: str, kind: str) -> str:
        return fingerprint(*PLAN, (name, f"{name} [k#1L], [k#11L], {kind}"))

    assert join("SortMergeJoin", "LeftAnti") != join("SortMergeJoin", "LeftOuter")
    assert join("SortMergeJoin", "LeftAnti") == join("BroadcastHashJoin", "LeftAnti")
    assert join("SortMergeJoin", "LeftAnti") == join("CometSortMergeJoin", "LeftAnti")


@pytest.mark.parametrize("address", ["@6f8805a4", "@1f88a4"])
def test_addresses_of_sinks_do_not_count(address: str) -> None:
    """A noop write prints a Scala object, `NoopWrite$` and its address in the process."""
    text = "OverwriteByExpression org.apache.spark.sql.execution.datasources.noop.NoopWrite$"
    node = "OverwriteByExpression"
    assert fingerprint(*PLAN, (node, text + address)) == fingerprint(*PLAN, (node, text + "@2c6d12ab"))


def test_the_order_of_nodes_does_not_count_and_how_often_one_is_there_does() -> None:
    assert fingerprint(*reversed(PLAN)) == fingerprint(*PLAN)
    assert fingerprint(*PLAN, PLAN[2]) != fingerprint(*PLAN)


def test_the_first_version_of_a_plan_counts() -> None:
    rows = [(0, 0, version, name, text) for version, nodes in enumerate((PLAN, PLAN[:1])) for name, text in nodes]
    schema = ["log_id", "sql_id", "plan_version", "node_name", "simple_string"]
    assert fingerprint_plans(pl.DataFrame(rows, schema=schema, orient="row")) == {(0, 0): fingerprint(*PLAN)}


@pytest.mark.parametrize(
    ("name", "text", "old", "new"),
    [
        ("BatchScan lake.t", "BatchScan lake.t[k#1L] lake.t (branch=null) [filters=ds = 1]", "ds = 1", "ds = 2"),
        ("Scan JDBCRelation(t) [numPartitions=8] ", "Scan JDBCRelation(t) [numPartitions=8] [k#1L]", "(t)", "(u)"),
        ("Scan hive db.t", "Scan hive db.t [k#1L], HiveTableRelation [`db`.`t`]", "db.t", "db.u"),
        ("Scan ExistingRDD", "Scan ExistingRDD[k#1L,v#2]", "v#2", "w#2"),
        ("BatchScan lake.t", "BatchScan lake.t[k#1L, v#2] lake.t (branch=null) [filters=]", ", v#2", ""),
    ],
)
def test_other_filters_tables_and_columns_of_sources_without_files_are_other_queries(
    name: str, text: str, old: str, new: str
) -> None:
    first, other = ((name, text), (name.replace(old, new), text.replace(old, new)))
    assert fingerprint(first) != fingerprint(other)


def tree(ids: int, condition: str = "(v#{} > 3.0)", spans: int = 1, table: str = "t") -> dict[str, Any]:
    """Aggregate over filter over scan; expression ids and codegen spans are those of one run."""
    scan = made.plan("Scan parquet ", SCAN.replace("#", f"#{ids}").replace("lake/t]", f"lake/{table}]"))
    top = made.plan("Filter", f"Filter {condition.format(ids)}", [scan], {ids: "number of output rows"})
    for number in range(spans):
        top = made.plan(f"WholeStageCodegen ({ids + number})", children=[top])
    return made.plan("HashAggregate", f"HashAggregate(keys=[k#{ids}L], functions=[sum(v#{ids})])", [top])


def read(folder: Path, *queries: tuple[str, dict[str, Any]]) -> list[Execution]:
    events: list[dict[str, Any]] = []
    for number, (description, plan) in enumerate(queries):
        events += [made.sql_start(number, plan, description), made.sql_end(number)]
    (folder / "log").write_bytes(made.small(*events))
    return list(read_executions(read_event_logs(folder / "log")))


def test_executions_of_one_plan_are_runs_of_one_query_whatever_their_ids_and_spans(tmp_path: Path) -> None:
    runs = read(tmp_path, ("save", tree(10)), ("save", tree(4000, spans=3)), ("save", tree(77)))
    assert [(run.query, run.number) for run in runs] == [("save", 0), ("save", 1), ("save", 2)]
    assert len({run.plan for run in runs}) == 1


def test_executions_of_one_name_and_other_plans_are_queries_of_their_own(tmp_path: Path) -> None:
    runs = read(
        tmp_path,
        ("save", tree(10)),
        ("save", tree(20, "(v#{} > 4.0)")),
        ("save", tree(30, table="other")),
        ("save", tree(40)),
    )
    assert [run.number for run in runs] == [0, 0, 0, 1]
    assert runs[0].query == runs[3].query
    assert len({run.query for run in runs}) == 3
    assert runs[2].query.startswith("save [other #")


def test_executions_of_spark_connect_are_told_apart_by_their_plans(tmp_path: Path) -> None:
    text = 'Spark Connect - session_id: "{}" user_context {{ user_id: "ann" }} plan {{ root'
    runs = read(tmp_path, (text.format("a"), tree(10)), (text.format("b"), tree(20)), (text.format("a"), tree(30, "x")))
    assert [run.description for run in runs] == ["Spark Connect"] * 3
    assert [run.number for run in runs] == [0, 1, 0]
    assert runs[0].query == runs[1].query != runs[2].query


def test_a_name_that_is_one_plans_alone_stays_as_it_is() -> None:
    names = name_queries(
        {(0, 0): "q1", (0, 1): "q1", (0, 2): "q2", (1, 0): "q1"},
        {(0, 0): "ab12ff", (0, 1): "ab12ff", (0, 2): "ab12ff", (1, 0): "cd34ff"},
        {(0, 0): ["t"]},
    )
    assert list(names.values()) == ["q1", "q1", "q2", "q1"]
