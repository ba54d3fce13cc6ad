"""Pairs of SIMULATED engines that ran the same queries, each with its ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.worlds.spark import PLUGINS, describe, draw_durations
from tests.worlds.spark_plans import build_aggregate, rename_engine
from tests.worlds.spark_run import T0_MS, World
from tests.worlds.spark_truth import Executor, Query, StageSpec

PAIR_TRAITS = (
    "order",
    "unnamed",
    "same_name",
    "renamed",
    "connect",
    "fails_on_a_side",
    "other_data",
    "warm_runs",
    "queue_wait",
    "driver_time",
    "commit",
    "one_session",
    "same_tables",
    "missing_on_a_side",
    "python_blind",
    "other_values",
)


@dataclass(frozen=True)
class PairWorld:
    """Sessions of two sides, and the queries that both ran: each with its ratio of wall times by identity."""

    sides: dict[str, list[World]]
    ratios: dict[str, float]
    unpaired: frozenset[str]


def draw_pair(seed: int, traits: Sequence[str]) -> PairWorld:
    """The same queries on Spark and on Comet, which takes one ratio of the time in tasks for each of them."""
    rng = np.random.default_rng([seed, 2])
    has = frozenset(traits)
    numbers = list(range(int(rng.integers(3, 8))))
    speed = {number: float(rng.uniform(1.2, 3.0)) for number in numbers}
    fails = numbers[1] if "fails_on_a_side" in has else None
    other = numbers[2] if "other_data" in has else None
    values = numbers[-1] if "other_values" in has else None
    missing = numbers[0] if "missing_on_a_side" in has and len(numbers) > 3 else None
    sides: dict[str, list[World]] = {"spark": [], "comet": []}
    for side, sessions in sides.items():
        order = list(rng.permutation(numbers)) if "order" in has and side == "comet" else numbers
        for session in range(1 if "one_session" in has else 3):
            on_both = [trait for trait in ("unnamed", "same_name", "connect", "driver_time", "commit") if trait in has]
            own = ["queue_wait"] if "queue_wait" in has and side == "spark" and session == 0 else []
            world = World(
                np.random.default_rng([seed, 3, session, side == "comet"]),
                [*on_both, *own],
                "3.5.9",
                "plain",
                T0_MS + 1_000_000 * session + (9_000_000 if side == "comet" else 0),
            )
            world.session_id = f"{rng.integers(1 << 32):08x}-{session}"
            waits = 120_000 if own else 0
            world.properties["spark.executor.cores"] = "8"
            world.executors = [Executor("1", 8, waits)]
            if side == "comet":
                world.properties["spark.plugins"] = PLUGINS["comet"]
            now = 500
            for run in range(3 if "warm_runs" in has else 1):
                for number in order:
                    if number == missing and side == "comet":
                        continue
                    query = draw_paired_query(
                        seed,
                        int(number),
                        world,
                        side,
                        speed[int(number)],
                        has,
                        is_other=number == other and side == "comet",
                        compares_with=1996 if number == values and side == "comet" else 1994,
                    )
                    query.fails = number == fails and side == "comet"
                    if "renamed" in has and side == "comet" and number == numbers[-1]:
                        query.description = "another name"
                    if run == 0 and "warm_runs" in has:
                        query.stages = [
                            StageSpec([2 * one for one in spec.durations], spec.after) for spec in query.stages
                        ]
                    world.run_query(query, now)
                    now = query.end + 200
            world.truth = world.finish()
            sessions.append(world)
    unpaired = frozenset(f"q{number}" for number in (fails, other, missing, values) if number is not None)
    ratios = {}
    for number in numbers:
        if f"q{number}" not in unpaired:
            means = {
                side: np.mean([time_of(world, f"q{number}", warm="warm_runs" in has) for world in worlds])
                for side, worlds in sides.items()
            }
            ratios[f"q{number}"] = float(means["spark"] / means["comet"])
    return PairWorld(sides, ratios, unpaired)


def time_of(world: World, identity: str, *, warm: bool) -> float:
    """Median time of a query's later runs in a session, or its first run, without waits for executors."""
    walls = [query.end - query.start - world.find_wait(query) for query in world.queries if query.identity == identity]
    return float(np.median(walls[1:] if warm else walls[:1]))


def draw_paired_query(
    seed: int,
    number: int,
    world: World,
    side: str,
    speed: float,
    has: frozenset[str],
    *,
    is_other: bool,
    compares_with: int,
) -> Query:
    """A query that is the same on both sides but for its engine, its noise and its speed."""
    rng = np.random.default_rng([seed, 4, number])
    rows = int(rng.integers(500_000, 5_000_000))
    mean = float(rng.uniform(3000, 12_000))
    base = [draw_durations(rng, n, mean) for n in (16, 8)]
    table = "shared" if "same_tables" in has else f"t{number}"
    condition = f"(v#2 > {number})" if "same_tables" in has else "isnotnull(k#1L)"
    if "other_values" in has:
        condition = f"({condition} AND (d#3 >= {compares_with}-01-01))"
    noise = float(np.exp(world.rng.normal(0, 0.01)))
    scale = noise / (speed if side == "comet" else 1)
    plan = build_aggregate(table, rows // (7 if is_other else 1), condition=condition)
    if side == "comet":
        rename_engine(plan, "comet")
    stages = [
        StageSpec([max(20, round(one * scale)) for one in durations], after)
        for durations, after in zip(base, ((), (0,)), strict=True)
    ]
    query = Query(f"q{number}", describe(world, number), plan, stages, engine=side)
    if "driver_time" in has:
        query.before = int(rng.integers(1000, 9000))
    if "commit" in has:
        query.after = int(rng.integers(1000, 9000))
    return query
