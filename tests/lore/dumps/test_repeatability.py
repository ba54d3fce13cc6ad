"""Rows that differ from run to run are computed once: a correct operator above them passes, on inputs of the dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.lore.local_spark import MARKS, dumped, lore_id, sign_other_rows, verified
from workbench import lore
from workbench.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = MARKS


def draw(*, declared: bool) -> Any:
    from pyspark.sql import functions

    made = functions.udf(lambda k: __import__("random").random(), "double")
    return made.asNondeterministic() if declared else made


def above_udf(spark: SparkSession, *, declared: bool) -> DataFrame:
    drawn = spark.table("a").select("k", draw(declared=declared)("k").alias("x"))
    return drawn.groupBy("k").agg({"x": "max"})


def above_random_rdd(spark: SparkSession) -> DataFrame:
    rows = spark.sparkContext.parallelize(range(60), 3).map(lambda k: (k % 5, __import__("random").random()))
    return spark.createDataFrame(rows, "k INT, x DOUBLE").groupBy("k").agg({"x": "max"})


def above_pandas(spark: SparkSession) -> DataFrame:
    def draw_rows(parts: Any) -> Any:
        import random

        for part in parts:
            yield part.assign(x=[random.random() for _ in range(len(part))])

    return spark.table("a").select("k").mapInPandas(draw_rows, "k LONG, x DOUBLE").groupBy("k").agg({"x": "min"})


def above_cache(spark: SparkSession) -> DataFrame:
    cached = spark.table("a").select("k", draw(declared=False)("k").alias("x")).cache()
    cached.count()
    above = cached.groupBy("k").agg({"x": "max"})
    above.collect()
    cached.unpersist(True)
    return above


def of_sql(sql: str) -> Callable[[SparkSession], DataFrame]:
    return lambda spark: spark.sql(sql)


# Of query, what is not repeatable below the final aggregate (null: nothing).
QUERIES: dict[str, tuple[Callable[[SparkSession], DataFrame], str | None]] = {
    "declared": (lambda spark: above_udf(spark, declared=True), "BatchEvalPython"),
    "undeclared": (lambda spark: above_udf(spark, declared=False), "BatchEvalPython"),
    "rdd": (above_random_rdd, "Scan"),
    "cache": (above_cache, "BatchEvalPython"),
    "pandas": (above_pandas, "MapInPandas"),
    "rand": (of_sql("SELECT k, max(x) FROM (SELECT k, rand() AS x FROM a) GROUP BY k"), "rand"),
    "uuid": (of_sql("SELECT k, max(x) FROM (SELECT k, uuid() AS x FROM a) GROUP BY k"), "uuid"),
    "limit": (of_sql("SELECT k, sum(v) FROM (SELECT * FROM a LIMIT 17) GROUP BY k"), "Limit"),
    "ids": (
        of_sql("SELECT k, max(i) FROM (SELECT k, monotonically_increasing_id() AS i FROM a) GROUP BY k"),
        "monotonically_increasing_id",
    ),
    "now": (of_sql("SELECT k, max(t) FROM (SELECT k, current_timestamp() AS t FROM a) GROUP BY k"), None),
    "plain": (of_sql("SELECT k, sum(v) FROM a GROUP BY k"), None),
}
QUICK = ("undeclared", "rand", "plain")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in QUERIES]
)
def test_a_correct_operator_above_what_differs_from_run_to_run_passes(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    make, part = QUERIES[name]
    frame = make(spark)
    found = lore.dump(frame, {lore_id(frame, "root"): None}, tmp_path / "d")
    (folder,) = [tmp_path / "d" / url.rpartition("/")[2] for url in found.folders.values()]
    assert verified(spark, folder).answer.startswith("PASS (recomputed): ")
    if part is None:
        assert found.warnings == []
    else:
        assert part.lower() in found.warnings[0].lower()
        assert "--mode inline" in found.warnings[0]


def test_a_wrong_operator_above_what_differs_fails(spark: SparkSession, tmp_path: Path) -> None:
    folder = dumped(above_udf(spark, declared=False), "root", tmp_path / "d", keep_output_rows=0)
    sign_other_rows(folder)
    assert verified(spark, folder).word == "FAIL"


def test_the_name_of_the_file_that_is_read_is_refused_with_what_to_dump(spark: SparkSession, tmp_path: Path) -> None:
    spark.table("a").write.parquet(str(tmp_path / "t"))
    frame = spark.read.parquet(str(tmp_path / "t")).selectExpr("input_file_name() AS f", "k + 1 AS k")
    with pytest.raises(ConfigError, match=r"input_file_name\(\)(.|\n)*dump the operator above"):
        dumped(frame, "root", tmp_path / "d")
