"""Fingerprints of rows: what they tell apart, against known answers and an own computation of the same numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import xxhash
from hypothesis import strategies as st

from tests.lore.local_spark import MARKS
from workbench.lore.dumps.dump_folder import PartitionPrint
from workbench.lore.replays import row_differences
from workbench.lore.spark_bridge.spark_internals import connect_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = MARKS

SEED = 42
NAN_BITS = 0x7FF8 << 48
NOTHING = PartitionPrint(n_rows=0, hash_sum=0, hash_xor=0, ordered_sum=0)
Row = tuple[Any, ...]


def prints(spark: SparkSession, rows: Sequence[Row], schema: str, partitions: int = 1) -> dict[int, PartitionPrint]:
    """Fingerprints of Python rows, dealt out to partitions in order."""
    return of_frame(spark, spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), schema))


def of_frame(spark: SparkSession, frame: Any) -> dict[int, PartitionPrint]:
    found = connect_bridge(spark)
    query = frame._jdf.queryExecution()
    attributes = found.to_list(query.executedPlan().output())
    return row_differences.fingerprint_partitions(
        row_differences.number_columns(found.quiet_bridge(), query.toRdd(), attributes)
    )


def of_sql(spark: SparkSession, sql: str) -> PartitionPrint:
    return row_differences.merge_prints(of_frame(spark, spark.sql(sql)))


# The same numbers by another way: XXH64 as its own package has it, chained over columns as Spark does.


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def hash_value(value: Any, seed: int) -> int:
    if value is None:
        return seed
    if isinstance(value, str):
        return xxhash.xxh64_intdigest(value.encode(), seed)
    if isinstance(value, float):
        bits = NAN_BITS if math.isnan(value) else struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
        return xxhash.xxh64_intdigest(struct.pack("<q", bits), seed)
    return xxhash.xxh64_intdigest(struct.pack("<q", value), seed)


def hash_row(row: Row, is_float: Sequence[bool]) -> int:
    flags: list[bool] = []
    seed = SEED
    for value, floating in zip(row, is_float, strict=True):
        seed = hash_value(value, seed)
        flags.append(value is None)
        if floating:
            flags.append(value is not None and value == 0 and math.copysign(1, value) < 0)
    return hash_value(sum(1 << place for place, flag in enumerate(flags) if flag), seed)


def expected(rows: Sequence[Row], is_float: Sequence[bool]) -> PartitionPrint:
    hashes = [hash_row(row, is_float) for row in rows]
    xor = 0
    for one in hashes:
        xor ^= one
    ordered = [hash_value(signed(one), hash_value(index, SEED)) for index, one in enumerate(hashes)]
    return PartitionPrint(
        n_rows=len(rows), hash_sum=sum(map(signed, hashes)), hash_xor=signed(xor), ordered_sum=sum(map(signed, ordered))
    )


SPECIAL: list[Row] = [
    (1, 1.5, "a"),
    (None, 1.5, "a"),
    (1, None, "a"),
    (1, 1.5, None),
    (None, None, None),
    (0, 0.0, ""),
    (0, -0.0, ""),
    (-(2**63), math.nan, "ß\u0000"),
    (2**63 - 1, math.inf, "long " * 40),
]
FLOATS = (False, True, False)
SCHEMA = "a bigint, b double, c string"


def test_the_numbers_are_those_of_xxh64(spark: SparkSession) -> None:
    assert prints(spark, SPECIAL, SCHEMA) == {0: expected(SPECIAL, FLOATS)}


def test_each_partition_has_its_own(spark: SparkSession) -> None:
    found = prints(spark, SPECIAL, SCHEMA, partitions=3)
    assert found == {number: expected(SPECIAL[3 * number : 3 * number + 3], FLOATS) for number in range(3)}


def test_partitions_without_rows_are_zeros(spark: SparkSession) -> None:
    found = prints(spark, SPECIAL[:2], SCHEMA, partitions=4)
    assert len(found) == 4
    assert sorted(one.n_rows for one in found.values()) == [0, 0, 1, 1]
    assert [one for one in found.values() if not one.n_rows] == [NOTHING, NOTHING]
    assert row_differences.merge_prints({}) == NOTHING


def test_rows_without_columns_are_counted_and_names_of_columns_do_not_matter(spark: SparkSession) -> None:
    assert of_sql(spark, "SELECT 1 AS x") == of_sql(spark, "SELECT 1 AS y")
    found = of_frame(spark, spark.range(0, 5, 1, 2).select())
    assert [one.n_rows for one in found.values()] == [2, 3]
    assert found[0] != found[1]


def test_more_flags_than_a_number_has_bits_are_all_seen(spark: SparkSession) -> None:
    columns = [f"IF(id = {number}, NULL, 7L) AS c{number}" for number in range(130)]
    rows = spark.range(0, 130, 1, 1).selectExpr(*columns)
    found = connect_bridge(spark)
    query = rows._jdf.queryExecution()
    numbered = row_differences.number_columns(
        found.quiet_bridge(), query.toRdd(), found.to_list(query.executedPlan().output())
    )
    hashes = numbered.selectExpr(f"{row_differences.row_hash_sql(['bigint'] * 130)} AS h")
    # Each row has the same values and one null, in a column of its own.
    assert hashes.distinct().count() == 130


DIFFERENT = [
    ("1L, CAST(NULL AS BIGINT)", "CAST(NULL AS BIGINT), 1L"),
    ("CAST(NULL AS BIGINT)", "42L"),
    ("CAST(NULL AS STRING)", "''"),
    ("'ab', 'c'", "'a', 'bc'"),
    ("0.0D", "-0.0D"),
    ("CAST(0 AS FLOAT)", "CAST('-0.0' AS FLOAT)"),
    ("CAST('NaN' AS DOUBLE)", "CAST(NULL AS DOUBLE)"),
    ("array(1, NULL)", "array(NULL, 1)"),
    ("array(CAST(NULL AS STRING))", "array('null')"),
    ("array(0.0D)", "array(-0.0D)"),
    ("array()", "array(array())"),
    ("named_struct('x', 1, 'y', CAST(NULL AS INT))", "named_struct('x', CAST(NULL AS INT), 'y', 1)"),
    ("named_struct('x', 'null', 'y', CAST(NULL AS STRING))", "named_struct('x', CAST(NULL AS STRING), 'y', 'null')"),
    ("array('a, b', 'c')", "array('a', 'b, c')"),
    ("map(1, CAST(NULL AS INT))", "map(1, 2)"),
    ("map(1, CAST(NULL AS INT), 2, 3)", "map(1, 3, 2, CAST(NULL AS INT))"),
    ("X'00'", "X'0000'"),
    ("1.10BD", "1.11BD"),
    ("DATE'2020-01-01'", "DATE'2020-01-02'"),
    ("TIMESTAMP'2020-01-01 00:00:00.000001'", "TIMESTAMP'2020-01-01 00:00:00.000002'"),
    ("INTERVAL '1' DAY", "INTERVAL '2' DAY"),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_values_that_differ_are_told_apart(spark: SparkSession, left: str, right: str) -> None:
    assert of_sql(spark, f"SELECT {left}") != of_sql(spark, f"SELECT {right}")


@pytest.mark.parametrize("value", sorted({side for pair in DIFFERENT for side in pair}))
def test_the_same_value_is_the_same_each_time(spark: SparkSession, value: str) -> None:
    assert of_sql(spark, f"SELECT {value}") == of_sql(spark, f"SELECT {value}")


def test_a_row_more_often_is_seen_although_its_xor_goes_away(spark: SparkSession) -> None:
    once = prints(spark, [(1, 1.0, "a")], SCHEMA)[0]
    thrice = prints(spark, [(1, 1.0, "a")] * 3, SCHEMA)[0]
    assert once.hash_xor == thrice.hash_xor
    assert once != thrice


def test_order_moves_the_ordered_sum_alone(spark: SparkSession) -> None:
    there, back = (prints(spark, rows, SCHEMA)[0] for rows in (SPECIAL, SPECIAL[::-1]))
    assert there.ordered_sum != back.ordered_sum
    assert there.model_copy(update={"ordered_sum": 0}) == back.model_copy(update={"ordered_sum": 0})


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_neither_overflow_nor_stop_under_ansi(spark: SparkSession, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        found = of_frame(spark, spark.range(0, 100_000, 1, 2))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    rows = [(number,) for number in range(100_000)]
    assert found == {0: expected(rows[:50_000], [False]), 1: expected(rows[50_000:], [False])}


row = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats() | st.just(-0.0),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)


@hypothesis.settings(max_examples=12, deadline=None, derandomize=True, database=None)
@hypothesis.given(rows=st.lists(row, max_size=30), partitions=st.integers(1, 3))
def test_any_rows_give_the_sums_that_python_computes(spark: SparkSession, rows: list[Row], partitions: int) -> None:
    found = row_differences.merge_prints(prints(spark, rows, SCHEMA, partitions))
    assert found == expected(rows, FLOATS).model_copy(update={"ordered_sum": 0})


@hypothesis.given(
    parts=st.lists(st.tuples(*[st.integers(0, 10), st.integers(-(2**70), 2**70)]), max_size=6), seed=st.randoms()
)
@hypothesis.settings(derandomize=True, database=None)
def test_totals_do_not_depend_on_the_order_of_partitions(parts: list[tuple[int, int]], seed: Any) -> None:
    prints_ = [PartitionPrint(n_rows=n, hash_sum=h, hash_xor=signed(h % 2**64), ordered_sum=1) for n, h in parts]
    shuffled = list(prints_)
    seed.shuffle(shuffled)
    assert row_differences.merge_prints(dict(enumerate(prints_))) == row_differences.merge_prints(
        dict(enumerate(shuffled))
    )
