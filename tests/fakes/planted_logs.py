"""SYNTHETIC event logs whose operator costs are known, for tests of the way from a log's bytes to factors.

A query is a scan, a filter, an aggregation and an exchange in one stage, with other selectivities in every query. On
the plain side the scan tells its time, the exchange its writing, and filter, aggregation and the rest of the exchange
share the remainder; on the accelerated side each tells its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.fakes import eventlogs as made

# Seconds per million rows (the aggregation: and function) on the plain side.
PRICES = {"Scan parquet": 0.8, "Filter": 0.5, "HashAggregate": 1.5, "Exchange": 1.1}
FACTORS = {"Scan parquet": 0.6, "Filter": 3.0, "HashAggregate": 5.0, "Exchange": 2.0}
N_QUERIES, N_PASSES = 12, 3
IDLE_MS, OVERHEAD_MS = 200, 20
OPERATOR_TIME = "total time (in ms) spent in this operator"


def write(folder: Path, *, n_sessions: int = 5, n_passes: int = N_PASSES, noise: float = 0.03) -> dict[str, list[str]]:
    """Write both sides' logs; paths by side. The first pass of a session is three times as slow."""
    paths: dict[str, list[str]] = {"plain": [], "fast": []}
    for side, found in paths.items():
        for session in range(n_sessions):
            path = folder / f"synthetic-{side}-{session}"
            path.write_bytes(log(side, np.random.default_rng([session, side == "fast"]), noise, n_passes))
            found.append(str(path))
    return paths


def rows(query: int) -> dict[str, int]:
    """Rows that each operator handles in a query, fixed."""
    rng = np.random.default_rng(query)
    scanned = int(rng.integers(400_000, 1_500_000))
    kept = int(scanned * rng.uniform(0.1, 0.9))
    return {
        "Scan parquet": scanned,
        "Filter": scanned,
        "HashAggregate": kept,
        "Exchange": int(kept * rng.uniform(0.1, 1)),
    }


def log(side: str, rng: np.random.Generator, noise: float, n_passes: int = N_PASSES) -> bytes:
    """One session's log."""
    events: list[dict[str, Any]] = []
    now_ms = 10_000
    for number in range(n_passes * N_QUERIES):
        query, cold = number % N_QUERIES, number < N_QUERIES
        slow = float(np.exp(rng.normal(0, noise))) * (3 if cold else 1)
        times_s = {
            name: PRICES[name] * count / 1e6 * slow / (FACTORS[name] if side == "fast" else 1)
            for name, count in rows(query).items()
        }
        now_ms += IDLE_MS // 2
        took_ms = round(sum(times_s.values()) * 1000)
        events += _query(side, number, f"q{query}", now_ms, took_ms, times_s, rows(query))
        now_ms += took_ms + OVERHEAD_MS + IDLE_MS
    properties = {"spark.plugins": "org.apache.spark.CometPlugin"} if side == "fast" else {}
    start = made.application_start(name=f"synthetic {side}", time_ms=9_000) | {
        "App ID": f"synthetic-{side}-{rng.random()}"
    }
    return made.dump(
        made.log_start(), made.executor_added(), made.environment(properties), start, *events,
        made.application_end(now_ms),
    )  # fmt: skip


def _query(
    side: str, sql_id: int, name: str, start_ms: int, took_ms: int, times_s: dict[str, float], count: dict[str, int]
) -> list[dict[str, Any]]:
    tree, updates = (_plain if side == "plain" else _fast)(1000 * (sql_id + 1), times_s, count)
    first_ms, last_ms = start_ms + IDLE_MS // 2, start_ms + IDLE_MS // 2 + took_ms + OVERHEAD_MS
    task = made.task_end(
        sql_id, 0, sql_id, updates=updates, launch_ms=first_ms, finish_ms=last_ms,
        metrics={"Executor Run Time": took_ms},
    )  # fmt: skip
    submitted, completed = made.stage_submitted(sql_id), made.stage_completed(sql_id)
    completed["Stage Info"] |= {"Submission Time": first_ms, "Completion Time": last_ms}
    submitted["Stage Info"] |= {"Submission Time": first_ms}
    return [
        made.sql_start(sql_id, tree, name) | {"time": start_ms},
        made.job_start(sql_id, [sql_id], {"spark.sql.execution.id": str(sql_id)}) | {"Submission Time": first_ms},
        submitted,
        task,
        completed,
        made.job_end(sql_id) | {"Completion Time": last_ms},
        made.sql_end(sql_id) | {"time": last_ms + IDLE_MS // 2},
    ]


PLACE = "Format: X, Location: InMemoryFileIndex(1 paths)[file:/d/t.parquet], ReadSchema: struct<a:int>"
SCAN = f"FileScan parquet [a#1] {PLACE}"
AGGREGATE = "HashAggregate(keys=[], functions=[partial_sum(a#1)])"
Node = dict[str, Any]


def _node(name: str, text: str, children: list[Node], metrics: list[tuple[int, str, str]]) -> Node:
    listed = [{"accumulatorId": key, "name": label, "metricType": kind} for key, label, kind in metrics]
    return made.plan(name, text, children) | {"metrics": listed}


def _plain(base: int, times_s: dict[str, float], count: dict[str, int]) -> tuple[Node, dict[int, int]]:
    scan = _node(
        "Scan parquet ", SCAN, [],
        [(base, "scan time", "timing"), (base + 1, "number of output rows", "sum")],
    )  # fmt: skip
    filtered = _node("Filter", "Filter (a#1 > 0)", [scan], [(base + 2, "number of output rows", "sum")])
    aggregate = _node("HashAggregate", AGGREGATE, [filtered], [(base + 3, "number of output rows", "sum")])
    span = _node("WholeStageCodegen (1)", "", [aggregate], [(base + 4, "duration", "timing")])
    tree = _node(
        "Exchange", "Exchange", [span],
        [(base + 5, "shuffle write time", "nsTiming"), (base + 6, "shuffle records written", "sum")],
    )  # fmt: skip
    return tree, {
        base: round(times_s["Scan parquet"] * 1e3),
        base + 1: count["Scan parquet"],
        base + 2: count["HashAggregate"],
        base + 3: count["Exchange"],
        base + 4: round(sum(times_s.values()) * 1e3),
        # Of the exchange's time a quarter is told as writing; the rest is part of the remainder.
        base + 5: round(times_s["Exchange"] / 4 * 1e9),
        base + 6: count["Exchange"],
    }


def _fast(base: int, times_s: dict[str, float], count: dict[str, int]) -> tuple[Node, dict[int, int]]:
    def own(name: str, text: str, children: list[Node], place: int, given: int) -> tuple[Node, dict[int, int]]:
        key = base + 2 * place
        metrics = [(key, OPERATOR_TIME, "nsTiming"), (key + 1, "number of output rows", "sum")]
        operator = name.removeprefix("Comet")
        return _node(name, text, children, metrics), {key: round(times_s[operator] * 1e9), key + 1: given}

    scan = _node(
        "CometScan parquet ", SCAN.replace("FileScan", "CometScan"), [],
        [(base, "scan time", "nsTiming"), (base + 1, "number of output rows", "sum")],
    )  # fmt: skip
    filtered, one = own("CometFilter", "CometFilter", [scan], 1, count["HashAggregate"])
    aggregate, two = own("CometHashAggregate", AGGREGATE, [filtered], 2, count["Exchange"])
    tree = _node(
        "CometExchange", "CometExchange", [aggregate],
        [(base + 8, "native shuffle writer time", "nsTiming"), (base + 9, "shuffle records written", "sum")],
    )  # fmt: skip
    told = {base: round(times_s["Scan parquet"] * 1e9), base + 1: count["Scan parquet"], base + 9: count["Exchange"]}
    return tree, told | one | two | {base + 8: round(times_s["Exchange"] * 1e9)}
