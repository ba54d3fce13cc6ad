"""A query is what it reads and computes, whatever it is called and however it is run."""

from __future__ import annotations

import polars as pl
import pytest

from workbench.speedup.attribution.plan_identity import fingerprint_plans, scan_table_name, strip_description

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
        ("CometBatchScan lake.sales.orders[k#1L] lake.sales.orders (branch=null)", "lake.sales.orders"),
        ("Scan JDBCRelation((select 1) x) [numPartitions=8] [k#1L] PushedFilters: []", None),
        ("Scan hive db.t [k#1L, v#2], HiveTableRelation [`db`.`t`]", "hive db.t"),
        ("Scan ExistingRDD[k#1L,v#2]", "ExistingRDD"),
    ],
)
def test_sources_without_files_are_named(text: str, name: str | None) -> None:
    found = scan_table_name(text)
    assert found == name if name else found.startswith("JDBCRelation((select 1) x)")


def test_a_description_of_spark_connect_says_nothing_of_the_query() -> None:
    texts = {
        strip_description(f'Spark Connect - session_id: "{one}" user_context {{ user_id: "ann" }} plan') for one in "ab"
    }
    assert texts == {"Spark Connect"}
