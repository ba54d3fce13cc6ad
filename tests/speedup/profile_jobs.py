"""Six Spark jobs, each with and without one planted cause of lost time; a process each writes one event log."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Settings = dict[str, str]
SMALL_FILES, FILE_ROWS = 6_000, 200


def start(name: str, events: Path, settings: Settings) -> SparkSession:
    """A session on two slots of this machine that writes its log below `events`."""
    from workbench.spark.jvm import use_spark

    use_spark()
    from pyspark.sql import SparkSession

    fixed = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": (events / "warehouse").as_uri(),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in (fixed | settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def warm_up(spark: SparkSession) -> None:
    """Load the classes that every job needs."""
    spark.sparkContext.setJobDescription("warm-up")
    spark.range(0, 1000, 1, 2).selectExpr("sum(id)").collect()


def skew(spark: SparkSession, folder: Path, *, planted: bool) -> None:
    """One of 16 partitions has 70 % of the rows."""
    key = "if(id % 10 < 7, 0L, id % 10000)" if planted else "id % 10000"
    rows = spark.range(0, 4_000_000, 1, 2).selectExpr("id", f"{key} AS part").repartition(16, "part")
    rows.selectExpr(f"max({costly('id')})").collect()


def costly(column: str) -> str:
    """An expression that keeps a core busy for some 20 microseconds a row."""
    text = f"cast({column} AS string)"
    for _ in range(12):
        text = f"sha2({text}, 512)"
    return text


def spill(spark: SparkSession, folder: Path, *, planted: bool) -> None:
    """A sort of more rows than the memory for execution holds (the setting that differs)."""
    rows = spark.range(0, 48_000_000, 1, 16).selectExpr("hash(id) AS k", "repeat(cast(id AS string), 4) AS text")
    rows.sortWithinPartitions("k").write.format("noop").mode("overwrite").save()


def small_files(spark: SparkSession, folder: Path, *, planted: bool) -> None:
    """The same rows in 6,000 files, or in 4."""
    data = spark.read.schema("id long, text string").parquet(str(folder / ("many" if planted else "few")))
    data.selectExpr("sum(id)", "max(text)").collect()


def prepare_files(folder: Path) -> None:
    """Write both folders of files."""
    import polars as pl

    n = SMALL_FILES * FILE_ROWS
    rows = pl.DataFrame({"id": range(n), "text": [f"text {place}" for place in range(n)]})
    for name, count in (("many", SMALL_FILES), ("few", 4)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        size = n // count
        for place in range(count):
            rows.slice(place * size, size).write_parquet(folder / name / f"part-{place:05}.parquet")


def python_function(spark: SparkSession, folder: Path, *, planted: bool) -> None:
    """A function of Python a row, or the expression of Spark that does the same."""
    from pyspark.sql.functions import expr, udf

    @udf("long")
    def digits(value: int) -> int:
        return sum(int(digit) for digit in str(value))

    native = expr("aggregate(split(cast(id AS string), ''), 0L, (a, d) -> a + coalesce(cast(d AS long), 0L))")
    rows = spark.range(0, 12_000_000, 1, 8)
    rows.select(digits("id").alias("n") if planted else native.alias("n")).selectExpr("sum(n)").collect()


def waiting_driver(spark: SparkSession, folder: Path, *, planted: bool) -> None:
    """Between queries, the driver's own program works (or does not) for 5 s."""
    for number in range(3):
        spark.sparkContext.setJobDescription(f"query {number}")
        spark.range(0, 400_000, 1, 4).selectExpr(f"max({costly('id')})").collect()
        if planted and number < 2:
            time.sleep(5)


def collection(spark: SparkSession, folder: Path, *, planted: bool) -> None:
    """Many short-lived texts beside a cached table; the planted heap has nearly no young generation (a setting)."""
    cached = spark.range(0, 2_000_000, 1, 2).selectExpr("id", "repeat(cast(id AS string), 3) AS text").cache()
    cached.count()
    parts = "transform(split(repeat(text, 3), '1'), t -> concat(upper(t), reverse(t)))"
    joined = cached.selectExpr(f"explode({parts}) AS t").groupBy("t").count()
    joined.selectExpr("max(count)", "count(1)").collect()


Job = Callable[..., None]
JOBS: dict[str, tuple[Job, Settings]] = {
    "skew": (skew, {}),
    "spill": (spill, {"spark.memory.fraction": "0.01"}),
    "small files": (small_files, {}),
    "Python": (python_function, {}),
    "between queries": (waiting_driver, {}),
    "garbage collection": (collection, {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xmn1m"}),
}
"""By the kind of finding that is planted: the job, and settings of the planted run."""


def main() -> None:
    """Run one job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=sorted(JOBS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--planted", action="store_true")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.job == "small files":
        prepare_files(folder)
    events = folder / "events"
    events.mkdir(parents=True, exist_ok=True)
    job, settings = JOBS[options.job]
    spark = start(
        f"{options.job}, {'planted' if options.planted else 'plain'}", events, settings if options.planted else {}
    )
    warm_up(spark)
    spark.sparkContext.setJobDescription(options.job)
    job(spark, folder, planted=options.planted)
    spark.stop()


if __name__ == "__main__":
    main()
