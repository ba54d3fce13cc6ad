"""A real Spark job whose work SIMULATES: tasks wait instead of computing, so that four executors fit on two cores.

python -m tests.worlds.what_if_job SEED FOLDER OPTIONS    runs one on executors of its own; OPTIONS is JSON: executors,
                                                          cores, partitions, even (no skew), calm (no stragglers)
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests import jvm

LABEL = "step"


@dataclass(frozen=True)
class PlannedQuery:
    """Tasks that wait so long (ms), some of them many times as long; then rows by key, each with a wait of its own."""

    scan_ms: list[int]
    stragglers: list[int]
    straggler_factor: float
    n_rows: int
    row_ms: float
    skew: float
    gap_s: float


@dataclass(frozen=True)
class PlannedJob:
    """Queries in one thread or two, and the cluster and partitions that they are recorded on."""

    queries: list[PlannedQuery]
    n_threads: int
    executors: int
    cores: int
    partitions: int
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)


def plan_job(seed: int) -> PlannedJob:
    """Draw a job, and the what-ifs that have an effect on it."""
    rng = np.random.default_rng(seed)
    queries = []
    for _ in range(int(rng.integers(2, 5))):
        n_scan = int(rng.choice([4, 6, 8, 11, 16]))
        mean = float(rng.uniform(200, 700))
        scan = [max(20, round(mean * float(np.exp(rng.normal(0, 0.2))))) for _ in range(n_scan)]
        late = rng.choice(n_scan, int(rng.integers(1, 3)), replace=False).tolist() if rng.random() < 0.5 else []
        n_rows, row_ms = int(rng.integers(100, 300)), float(rng.uniform(15, 35))
        skew = float(rng.uniform(0.25, 0.5)) if rng.random() < 0.5 else 0.0
        factor, gap_s = float(rng.uniform(3, 7)), float(rng.uniform(0.1, 1.5))
        queries.append(PlannedQuery(scan, sorted(late), factor, n_rows, row_ms, skew, gap_s))
    partitions, n_threads = int(rng.choice([4, 6, 8, 12])), 1 + int(rng.random() < 0.3)
    executors, cores = int(rng.choice([1, 2, 3, 4])), int(rng.choice([1, 1, 2]))
    variants: dict[str, dict[str, Any]] = {f"{n} executors": {"executors": n} for n in (1, 2, 3, 4) if n != executors}
    variants["cores"] = {"cores": 3 - cores}
    if executors * cores > 1:
        variants["partitions"] = {"partitions": 2 * partitions if seed % 2 else partitions // 2}
        if any(query.skew for query in queries):
            variants["no skew"] = {"even": True}
    if any(query.stragglers for query in queries):
        variants["no stragglers"] = {"calm": True}
    return PlannedJob(queries, n_threads, executors, cores, partitions, variants)


def wait(ms: str) -> str:
    """SQL that waits for so many milliseconds."""
    return f"reflect('java.lang.Thread', 'sleep', CAST({ms} AS BIGINT))"


def run_job(
    job: PlannedJob,
    folder: str,
    *,
    executors: int | None = None,
    cores: int | None = None,
    partitions: int | None = None,
    even: bool = False,
    calm: bool = False,
) -> None:
    """Run a job on executors of its own, with its event log in a folder."""
    from pyspark.sql import SparkSession

    executors, cores = executors or job.executors, cores or job.cores
    quick = jvm.options(make=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.sql.shuffle.partitions": str(partitions or job.partitions),
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.adaptive.skewJoin.enabled": "false",
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.extraJavaOptions": quick,
    }
    builder = SparkSession.builder.master(f"local-cluster[{executors},{cores},600]").appName("what if")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def run_query(number: int, query: PlannedQuery) -> None:
        spark.sparkContext.setJobDescription(f"{LABEL} {number}")
        time.sleep(query.gap_s)
        late = () if calm else query.stragglers
        times = [round(ms * (query.straggler_factor if i in late else 1)) for i, ms in enumerate(query.scan_ms)]
        n, hot = len(times), 0 if even else round(100 * query.skew)
        waits = wait(f"element_at(array({','.join(map(str, times))}), CAST(id AS INT) + 1)")
        rows = spark.range(0, n, 1, n).selectExpr("id", f"{waits} AS s")
        rows = rows.selectExpr("s", f"explode(sequence(0, {max(1, query.n_rows // n)} - 1)) AS part", "id")
        rows = (
            rows.selectExpr("s", f"part * {n} + id AS r")
            .selectExpr("s", f"CASE WHEN r % 100 < {hot} THEN 0 ELSE r END AS k")
            .repartition("k")
        )
        rows.selectExpr("k", "s", f"{wait(str(query.row_ms))} AS t").write.format("noop").mode("overwrite").save()

    # A warm session: every executor has run the kinds of tasks that come.
    n = 4 * executors * cores
    spark.sparkContext.setJobDescription("warm up")
    rows = spark.range(0, n, 1, n).selectExpr("id", f"{wait('60')} AS s")
    rows = rows.selectExpr("s", "explode(sequence(0, 5)) AS part", "id")
    rows = rows.selectExpr("s", f"part * {n} + id AS k").repartition(n, "k")
    rows.selectExpr("k", "s", f"{wait('20')} AS t").write.format("noop").mode("overwrite").save()
    time.sleep(1)

    def run_part(first: int) -> None:
        for number, query in list(enumerate(job.queries))[first :: job.n_threads]:
            run_query(number, query)

    threads = [threading.Thread(target=run_part, args=(first,)) for first in range(job.n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(0.3)
    spark.stop()


if __name__ == "__main__":
    run_job(plan_job(int(sys.argv[1])), sys.argv[2], **json.loads(sys.argv[3]))
