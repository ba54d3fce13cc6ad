"""Suites on local Spark with planted bad settings: what improve finds, beside brute force: -m ... SEED FOLDER."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from workbench.core import files
from workbench.speedup.config import ImproveConfig
from workbench.speedup.improvement.improvement import IMPROVED, improve_suite
from workbench.speedup.improvement.trials import NOW, Trial, run_trial
from workbench.speedup.recording import recording_plan

QUERIES = {
    "flags": "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice * (1 - l_discount)) "
    "FROM lineitem GROUP BY 1, 2",
    "priority": "SELECT o_orderpriority, count(*), sum(l_quantity) FROM orders JOIN lineitem "
    "ON l_orderkey = o_orderkey WHERE o_orderdate >= DATE'1995-01-01' GROUP BY 1",
    "segments": "SELECT c_mktsegment, count(*), sum(o_totalprice) FROM customer JOIN orders ON o_custkey = c_custkey "
    "GROUP BY 1",
    "brands": "SELECT p_brand, avg(l_quantity) FROM part JOIN lineitem ON l_partkey = p_partkey WHERE p_size < 20 "
    "GROUP BY 1",
    "modes": "SELECT l_shipmode, count(DISTINCT l_suppkey) FROM lineitem GROUP BY 1",
    "suppliers": "SELECT s_nationkey, sum(l_extendedprice) FROM supplier JOIN lineitem "
    "ON l_suppkey = s_suppkey GROUP BY 1",
    "dates": "SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_shipdate BETWEEN DATE'1994-01-01' AND "
    "DATE'1994-03-31' AND l_discount > 0.05",
    "ranks": "SELECT l_shipmode, max(place) FROM (SELECT l_shipmode, row_number() OVER (PARTITION BY l_suppkey "
    "ORDER BY l_extendedprice, l_comment) AS place FROM lineitem) GROUP BY 1",
}
SKEWED_QUERIES = {
    "titles": "SELECT title, count(*), sum(ms) FROM clicks JOIN pages ON page = id GROUP BY 1 ORDER BY 2 DESC LIMIT 20",
    "days": "SELECT day, avg(ms) FROM clicks GROUP BY 1",
    "slow": "SELECT count(*), max(length(title)) FROM clicks JOIN pages ON page = id WHERE ms > 50",
}
ADAPTIVE, SKEW = "spark.sql.adaptive.enabled", "spark.sql.adaptive.skewJoin.enabled"
PARTITIONS, COALESCE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.coalescePartitions.enabled"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
PIECE, OPEN = "spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"
CODEGEN, COLUMNS = "spark.sql.codegen.wholeStage", "spark.sql.parquet.enableVectorizedReader"
# What a planted setting should be; of numbers, every value is tried.
CURES = {
    ADAPTIVE: "true", SKEW: "true", COALESCE: "true", BROADCAST: "10485760", PIECE: "128MB", OPEN: "4MB",
    CODEGEN: "true", COLUMNS: "true",
}  # fmt: skip
VALUES = {PARTITIONS: ("2", "8", "64"), BROADCAST: ("10485760", "67108864")}
N_KINDS, SCALE, N_ROUNDS = 12, 0.1, 6
# Decoys have seeds from here on; further ones are asked to try settings that change nothing for these queries.
FIRST_DECOY, FIRST_TRIED_DECOY = 1000, 1330
IDLE_TRIES = (
    "spark.sql.inMemoryColumnarStorage.batchSize=5000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold=8",
    "spark.sql.optimizer.metadataOnly=true",
    "spark.sql.autoBroadcastJoinThreshold=11000000",
    "spark.sql.limit.scaleUpFactor=8",
    "spark.sql.statistics.histogram.numBins=100",
    "spark.sql.cache.serializer=org.apache.spark.sql.execution.columnar.DefaultCachedBatchSerializer",
    "spark.sql.variable.substitute=false",
)
TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Job:
    """A suite with planted settings; none for a decoy, which may have settings to `try` that change nothing.

    `skewed`: Over tables of its own, of which half has one key.
    """

    settings: dict[str, str]
    queries: dict[str, str]
    memory: str = "2g"
    n_files: int = 0
    skewed: bool = False
    tries: tuple[str, ...] = ()


def plan_job(seed: int) -> Job:
    """The job of a seed: one or two bad settings of a kind that goes by the seed, with drawn values and queries."""
    draw = np.random.default_rng(seed)
    queries = {name: QUERIES[name] for name in draw.choice(list(QUERIES), 3, replace=False)}
    if seed >= FIRST_DECOY:
        n_tries = 3 if seed >= FIRST_TRIED_DECOY else 0
        return Job({}, queries, tries=tuple(map(str, draw.choice(IDLE_TRIES, n_tries, replace=False))))
    many, piece = str(draw.integers(150, 400)), f"{draw.choice([128, 256, 512])}k"
    small_pieces = {PIECE: piece, OPEN: "64k"}
    kinds = (
        Job({ADAPTIVE: "false", PARTITIONS: many}, queries),
        Job({BROADCAST: "-1"}, queries),
        Job({COALESCE: "false", PARTITIONS: many}, queries),
        Job(small_pieces, queries),
        Job({CODEGEN: "false"}, queries),
        Job({COLUMNS: "false"}, queries),
        Job({ADAPTIVE: "false", PARTITIONS: "1"}, queries | {"ranks": QUERIES["ranks"]}, memory="1g"),
        Job({ADAPTIVE: "false", PARTITIONS: many, CODEGEN: "false"}, queries),
        Job({BROADCAST: "-1"} | small_pieces, queries),
        Job({COLUMNS: "false", COALESCE: "false", PARTITIONS: many}, queries),
        Job({BROADCAST: "-1", SKEW: "false", PARTITIONS: "8"}, SKEWED_QUERIES, skewed=True),
        Job({OPEN: "128MB"}, SKEWED_QUERIES, n_files=int(draw.integers(80, 200)), skewed=True),
    )
    return kinds[seed % N_KINDS]


def write_skewed_tables(folder: Path, seed: int, n_files: int) -> None:
    """Tables clicks and pages; half of the clicks are of one page. `n_files`: Files of clicks; 0: one."""
    draw = np.random.default_rng(seed)
    n_clicks, n_pages = 1_500_000, 150_000
    pages = np.where(draw.random(n_clicks) < 0.5, 7, draw.integers(0, n_pages, n_clicks))
    days, times = draw.integers(0, 30, n_clicks), draw.exponential(40, n_clicks)
    clicks = pl.DataFrame({"page": pages, "day": days, "ms": times})
    (folder / "clicks").mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(clicks.iter_slices(-(-n_clicks // max(1, n_files)))):
        part.write_parquet(folder / "clicks" / f"part-{number:05}.parquet")
    (folder / "pages").mkdir(exist_ok=True)
    ids = np.arange(n_pages)
    titles = [f"page {number} " + "x" * 60 for number in ids]
    pl.DataFrame({"id": ids, "title": titles}).write_parquet(folder / "pages" / "part-00000.parquet")


def list_arms(job: Job, kept: dict[str, str]) -> dict[str, dict[str, str]]:
    """As it is, what improve kept, and brute force: all planted settings cured, with each value of the numbers."""
    cured = {name: CURES[name] for name in job.settings if name in CURES}
    arms = {NOW: {}, IMPROVED: kept, "cured": cured}
    for name, values in VALUES.items():
        arms |= {f"cured, {name}={value}": cured | {name: value} for value in values}
    return arms


def measure_gains(trial: Trial, arms: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Times as fast of improve and of the best arm, which is chosen by the even rounds and measured by the odd ones."""
    chosen_by = {arm: median(trial.list_totals(arm)[0::2]) for arm in arms}
    measured = {arm: median(trial.list_totals(arm)[1::2]) for arm in arms}
    best = min((arm for arm in arms if arm not in trial.wrong), key=lambda arm: chosen_by[arm])
    gain, brute = measured[NOW] / measured[IMPROVED], measured[NOW] / measured[best]
    share = (measured[NOW] - measured[IMPROVED]) / max(measured[NOW] - measured[best], 1e-9)
    return {"gain": gain, "brute": brute, "share": share, "best": best, "totals_s": measured}


def run_case(seed: int, folder: Path) -> dict[str, Any]:
    """Improve the job of a seed, and measure what that and brute force bring in one session."""
    job, folder = plan_job(seed), folder / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    suite = folder / "suite.sql"
    files.write_text(suite, "".join(f"-- name: {name}\n{text};\n" for name, text in job.queries.items()))
    if job.skewed:
        write_skewed_tables(folder / "data", seed, job.n_files)
    config = ImproveConfig(
        out=folder / "out",
        queries=str(suite),
        data=str(folder / "data") if job.skewed else None,
        scale=SCALE,
        conf=[f"{name}={value}" for name, value in job.settings.items()],
        driver_memory=job.memory,
        tries=list(job.tries),
    )
    started = time.monotonic()
    found = improve_suite(config, say=lambda _: None)
    took_s = time.monotonic() - started
    record = config.build_record_config(out=folder / "unused", engines=["spark"], labels=[NOW], sessions=1, passes=2)
    arms = list_arms(job, found.state.kept if found.is_improved else {})
    if job.tries:
        arms = {name: arms[name] for name in (NOW, IMPROVED)}
    # Memory is no setting of a running session: improve has it in its own sessions alone.
    arms[IMPROVED] = {name: value for name, value in arms[IMPROVED].items() if name.startswith("spark.sql.")}
    prepared = recording_plan.prepare_recording(record, say=lambda _: None)
    trial = run_trial(prepared, arms, N_ROUNDS, timeout_s=TIMEOUT_S)
    return {
        "seed": seed,
        "settings": job.settings,
        "took_s": took_s,
        "improved": found.is_improved,
        "reasons": found.reasons,
        "kept": found.state.kept,
        "proven": found.state.proven,
        "changes": [f"{one.name} {one.screened or 0:.2f} {one.verdict}" for one in found.state.changes],
        **measure_gains(trial, arms),
    }


if __name__ == "__main__":
    print(json.dumps(run_case(int(sys.argv[1]), Path(sys.argv[2]))))
