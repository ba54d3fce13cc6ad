"""A real job on local Spark whose joins sort both sides, or broadcast the small ones: -m ... SEED FOLDER THRESHOLD."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.worlds.what_if_job import LABEL

SORTED, BROADCAST = "-1", "67108864"
_FACTS = (
    "SELECT id, pmod(hash(id, {seed}), {n_keys}) AS k, pmod(hash(id, 7), 1000) AS v, "
    "sha2(CAST(id AS STRING), 256) AS text"
)


@dataclass(frozen=True)
class Plan:
    """Rows of the two sides, and queries."""

    n_rows: int
    n_keys: int
    queries: list[str]


def plan_queries(seed: int) -> Plan:
    """Draw sizes and filters; most queries join."""
    rng = np.random.default_rng(seed)
    n_rows, n_keys = int(rng.integers(1_500_000, 4_000_000)), int(rng.integers(20_000, 300_000))
    joined = "FROM facts JOIN dims USING (k)"
    kinds = (
        f"SELECT name, max(text), sum(v) {joined} WHERE v < {{}} GROUP BY 1",
        f"SELECT count(*), sum(v), max(name) {joined} WHERE v >= {{}}",
        f"SELECT k, name, count(*) AS n {joined} WHERE v < {{}} GROUP BY 1, 2 ORDER BY n DESC LIMIT 10",
        "SELECT v, count(DISTINCT k) FROM facts WHERE v > {} GROUP BY 1",
    )
    chosen = rng.choice(kinds, int(rng.integers(2, 6)))
    return Plan(n_rows, n_keys, [str(kind).format(int(rng.integers(100, 900))) for kind in chosen])


def run_job(plan: Plan, seed: int, folder: Path, threshold: str) -> None:
    """Run the queries, the first of a kind warmed up, with an event log in a folder."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.autoBroadcastJoinThreshold": threshold,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    (folder / "events").mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master("local[2]").appName("plan change")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.setJobDescription("write")
    spark.range(plan.n_rows).createOrReplaceTempView("ids")
    spark.sql(f"{_FACTS.format(seed=seed, n_keys=plan.n_keys)} FROM ids").write.parquet(str(folder / "facts"))
    dims = f"SELECT CAST(id AS INT) AS k, concat('name ', id % 5000) AS name FROM range({plan.n_keys})"
    spark.sql(dims).coalesce(2).write.parquet(str(folder / "dims"))
    for table in ("facts", "dims"):
        spark.read.parquet(str(folder / table)).createOrReplaceTempView(table)
    spark.sparkContext.setJobDescription("warm up")
    for query in plan.queries:
        spark.sql(query.replace("FROM facts", "FROM (SELECT * FROM facts WHERE id < 200000) AS facts")).collect()
    for number, query in enumerate(plan.queries):
        spark.sparkContext.setJobDescription(f"{LABEL} {number}")
        spark.sql(query).collect()
    spark.stop()


if __name__ == "__main__":
    run_job(plan_queries(int(sys.argv[1])), int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
