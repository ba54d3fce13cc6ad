"""Weeks of SIMULATED nightly runs of one Spark job; the last may have a planted change of one kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.worlds.spark import draw_durations
from tests.worlds.spark_plans import build_aggregate, build_join
from tests.worlds.spark_run import T0_MS, World
from tests.worlds.spark_truth import Executor, Query, StageSpec
from workbench.speedup.nightly import night_causes

DAY_MS = 86_400_000
# What is planted, and the cause that it must be booked to.
CAUSES = {
    "volume": night_causes.VOLUME,
    "plan": night_causes.PLAN,
    "settings": night_causes.SETTINGS,
    "executors": night_causes.EXECUTORS,
    "late executors": night_causes.WAITING,
    "stragglers": night_causes.STRAGGLERS,
    "slow tasks": night_causes.TASKS,
    "driver": night_causes.DRIVER,
    "new query": night_causes.QUERIES,
}


def write_week(
    seed: int,
    folder: Path,
    change: str = "",
    *,
    n_earlier: int = 7,
    noise: float | None = None,
    name: str = "nightly load",
) -> None:
    """Write the logs of a job's nights; what they share is drawn of `seed`, their noise of the night.

    `change`: A key of `CAUSES`, or "failed query": what is other on the last night. `noise`: Spread of the pace of
    nights.
    """
    spread = float(np.random.default_rng([seed, 1]).uniform(0.01, 0.06)) if noise is None else noise
    for night in range(n_earlier + 1):
        draw_night(seed, night, spread, change if night == n_earlier else "", name).write(folder)


def draw_night(
    seed: int,
    night: int,
    noise: float,
    change: str = "",
    name: str = "nightly load",
    *,
    executors: int | None = None,
    cores: int | None = None,
) -> World:
    """One night that has run; with `executors` or `cores` the same work on another cluster."""
    rng, own = np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3, night])
    world = World(own, (), "3.5.9", "plain", T0_MS + night * DAY_MS + int(own.integers(600_000)))
    world.name = name
    usual_cores, usual_executors = int(rng.choice([2, 4])), int(rng.integers(2, 5))
    cores, n_executors = cores or usual_cores, executors or usual_executors
    world.properties |= {"spark.executor.cores": str(cores), "spark.sql.shuffle.partitions": "64"}
    if change == "executors":
        n_executors = max(1, n_executors // 2)
    late_ms = int(rng.integers(60_000, 120_000)) if change == "late executors" else 0
    came = np.random.default_rng([seed, 5, night]).integers(0, 2000, 64)
    world.executors = [Executor(str(number + 1), cores, int(came[number]) + late_ms) for number in range(n_executors)]
    n_queries = int(rng.integers(3, 6))
    # A night as a whole is faster or slower, and reads a little more or less.
    pace, volume = (float(np.exp(own.normal(0, part))) for part in (noise, 0.01))
    grown = float(rng.uniform(1.4, 2.2)) if change == "volume" else 1.0
    slow = float(rng.uniform(1.4, 2.0)) if change == "slow tasks" else 1.0
    touched = int(rng.integers(n_queries))
    now = 500
    for number in range(n_queries + (change == "new query")):
        query = _draw_query(
            np.random.default_rng([seed, 4, number]), number, volume * grown, change if number == touched else ""
        )
        for spec in query.stages:
            spec.durations[:] = [
                max(20, round(one * pace * volume * grown * slow * float(np.exp(own.normal(0, 0.05)))))
                for one in spec.durations
            ]
        if change == "stragglers":
            for spec in query.stages:
                spec.durations[-1] = round(spec.durations[-1] * float(rng.uniform(4, 7)))
        if change == "settings":
            world.properties["spark.sql.shuffle.partitions"] = "2000"
            spec = query.stages[-1]
            spec.durations[:] = [max(20, round(sum(spec.durations) * 1.8 / 200))] * 200
        query.before = round(query.before * float(np.exp(own.normal(0, 0.1))))
        if change == "driver":
            query.before += int(rng.integers(15_000, 40_000))
        query.fails = change == "failed query" and number == touched
        world.run_query(query, now)
        now = query.end + int(own.integers(100, 400))
    world.truth = world.finish()
    return world


def _draw_query(rng: np.random.Generator, number: int, volume: float, change: str) -> Query:
    rows, mean = int(rng.integers(500_000, 5_000_000) * volume), float(rng.uniform(2000, 9000))
    n = int(rng.integers(8, 20))
    specs = [StageSpec(draw_durations(rng, n, mean)), StageSpec(draw_durations(rng, 8, mean / 2), (0,))]
    if number % 2:
        plan = build_join(f"l{number}", f"r{number}", rows, "")
        specs = [
            StageSpec(draw_durations(rng, 6, mean / 2)),
            StageSpec(draw_durations(rng, 6, mean / 2), (0,)),
            StageSpec(draw_durations(rng, n, mean), (0, 1)),
        ]
    else:
        plan = build_aggregate(f"t{number}", rows)
    if change == "plan":
        # Another algorithm for the same computation: more of the time goes into it.
        for node in plan.walk():
            if node.name in ("HashAggregate", "SortMergeJoin"):
                other = {"HashAggregate": "SortAggregate", "SortMergeJoin": "BroadcastNestedLoopJoin"}[node.name]
                node.text, node.name = node.text.replace(node.name, other), other
        for spec in specs:
            spec.durations[:] = [round(one * 3.5) for one in spec.durations]
    return Query(f"q{number}", f"step {number}", plan, specs, before=int(rng.integers(200, 3000)))
