"""What the workbench says of a world's files, held against its truth.

    python -m tests.worlds.spark_answers 5000 --jobs 2

Each world is right, refused (invalid, or an error that names itself) or wrong: valid, with a figure that is not the
truth's. Seeds are printed; `judge_world(seed)` repeats one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tests.fakes import planted_logs
from tests.worlds.spark import DAMAGE, SUPPORTED, draw_world
from tests.worlds.spark_pairs import PAIR_TRAITS, PairWorld, draw_pair
from tests.worlds.spark_run import World
from tests.worlds.spark_truth import Truth
from workbench.core.errors import WorkbenchError
from workbench.core.formats import MAX_ANSWER_CHARS
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.attribution.application_profile import build_profile
from workbench.speedup.attribution.time_pieces import (
    Measured,
    build_application_row,
    list_streaming_ids,
    measure_log_times,
)
from workbench.speedup.calibration.pair_calibration import calibrate_with_origin
from workbench.speedup.comparison.pair import Pair, load_pair_from_logs
from workbench.speedup.fleet.qualification import MOSTLY_MOVED, RECOMMENDED, qualify_applications
from workbench.speedup.tables import APPLICATIONS_MEASURED

LEAST_RATIO = 1.3
# Clocks of the log are in ms; waits shorter than a second between tasks are scheduling.
CLOCK_S, SHARE = 1.5, 0.02


@dataclass(frozen=True)
class Judgement:
    """`wrong`: figures that are valid and not true. `refused`: why there is no answer; both empty where it is right."""

    seed: int
    traits: tuple[str, ...]
    spark: str
    layout: str
    wrong: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def draw_traits(seed: int) -> tuple[str, ...]:
    """Traits of a world: none, one, two, several or all that can be together; one in eight is damaged."""
    rng = np.random.default_rng([seed, 1])
    n = int(rng.choice([0, 1, 2, 4, 8, 16, len(SUPPORTED)], p=[0.04, 0.3, 0.3, 0.16, 0.1, 0.06, 0.04]))
    traits = [str(trait) for trait in rng.choice(SUPPORTED, n, replace=False)]
    if rng.random() < 0.125:
        traits.append(str(rng.choice(DAMAGE)))
    return tuple(traits)


def judge_world(seed: int, traits: Sequence[str] | None = None) -> Judgement:
    """Draw a world, ask the workbench, and compare."""
    chosen = draw_traits(seed) if traits is None else tuple(traits)
    world = draw_world(seed, chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = world.write(Path(folder))
        try:
            wrong, refused = judge_log(path, world)
        except WorkbenchError as error:
            wrong, refused = [], [error.what]
        except Exception as error:  # noqa: BLE001 - a crash is no answer, and no honest refusal
            wrong, refused = [f"crash: {type(error).__name__}: {error}"[:200]], []
    return Judgement(seed, chosen, world.spark, world.layout, tuple(wrong), tuple(refused))


def judge_log(path: Path, world: World) -> tuple[list[str], list[str]]:
    """Wrong figures and refusals of one log."""
    truth = world.truth
    facts = read_event_logs(path, jobs=1)
    if facts.applications.height != 1:
        return [], [f"{facts.applications.height} logs"]
    wrong, refused = judge_profile(facts, truth)
    measured = measure_log_times(facts, "log", "log")
    measured = measured.select(~pl.col("sql_id").is_in(list_streaming_ids(facts)))
    row = APPLICATIONS_MEASURED.frame([build_application_row(facts, "log", None)])
    if not refused:
        wrong += judge_times(measured, truth, world)
    elif world.traits & set(DAMAGE):
        # What is left of a damaged log has another truth than the whole.
        return [], refused
    more_wrong, more_refused = judge_qualification(row, measured, truth)
    return wrong + more_wrong, refused + more_refused


def differs(found: float | None, true: float, absolute: float = CLOCK_S, share: float = SHARE) -> bool:
    return found is not None and abs(found - true) > absolute + share * abs(true)


def judge_profile(facts: EventLogFacts, truth: Truth) -> tuple[list[str], list[str]]:
    profile = build_profile(facts)
    if profile.reasons:
        return [], [f"profile: {reason}" for reason in profile.reasons]
    row, wrong = profile.overview.row(0, named=True), list[str]()
    if len(profile.answer) > MAX_ANSWER_CHARS or set(profile.answer) & set("()[]"):
        wrong.append(f"no answer for a glance: {profile.answer}")
    counts = (
        ("tasks", row["n_tasks"], truth.n_tasks),
        ("failed tasks", row["n_failed_tasks"], truth.n_not_succeeded),
        (
            "rows",
            facts.node_metrics.filter(pl.col("metric_name") == "number of output rows")["total"].sum(),
            truth.rows,
        ),
    )
    wrong += [f"{name}: {found} for {true}" for name, found, true in counts if found != true]
    if truth.engine != "mixed" and row["engine"] != truth.engine:
        wrong.append(f"engine: {row['engine']} for {truth.engine}")
    if differs(row["task_time_s"], truth.task_s, 1e-3, 1e-6):
        wrong.append(f"task time: {row['task_time_s']} for {truth.task_s}")
    if differs(row["wall_time_s"], truth.wall_s, 0.1, 0):
        wrong.append(f"wall: {row['wall_time_s']} for {truth.wall_s}")
    if differs(row["slot_use_share"], truth.slot_use, 0.02, 0.02):
        wrong.append(f"slot use: {row['slot_use_share']:.3f} for {truth.slot_use:.3f}")
    parts = dict(profile.wall_parts.select("part", "wall_s").iter_rows())
    true_parts = {
        "running": truth.running_s,
        "waiting": truth.waiting_s,
        "driver": truth.driver_s,
        "nothing": truth.nothing_s,
    }
    # Spark's stages end some ms after their last task, which is neither.
    wrong += [
        f"wall part {name}: {parts.get(name)} for {value}"
        for name, value in true_parts.items()
        if differs(parts.get(name), value)
    ]
    return wrong, []


def judge_times(measured: Measured, truth: Truth, world: World) -> list[str]:
    wrong = []
    named = dict(measured.executions.select("sql_id", "query").iter_rows())
    true = {query.sql_id: query for query in truth.queries}
    if set(named) != set(true):
        return [f"queries: {sorted(named)} for {sorted(true)}"]
    for first in named:
        for other in named:
            is_same = true[first].identity == true[other].identity
            if (
                first < other
                and (named[first] == named[other]) != is_same
                and not (true[first].failed or true[other].failed)
            ):
                wrong.append(f"identity: {first} and {other} {'are' if is_same else 'are not'} the same query")
    for sql_id, wall_s, task_s in measured.executions.select("sql_id", "wall_s", "task_s").iter_rows():
        if differs(wall_s, true[sql_id].wall_s, 0.1, 0):
            wrong.append(f"time of {sql_id}: {wall_s} for {true[sql_id].wall_s}")
        if differs(task_s, true[sql_id].task_s, 1e-3, 1e-6):
            wrong.append(f"task time of {sql_id}: {task_s} for {true[sql_id].task_s}")
    if world.has("cache"):
        wrong += judge_cache(measured, world)
    return wrong


def judge_cache(measured: Measured, world: World) -> list[str]:
    """A query that reads a cache has no time below it."""
    readers = [
        query.sql_id
        for query in world.queries
        if any(
            node.name == "InMemoryTableScan" and node.children[0].children[0].stage == -9 for node in query.plan.walk()
        )
    ]
    of_readers = measured.pieces.filter(pl.col("sql_id").is_in(readers))
    below = of_readers.filter(pl.col("operators").list.contains("Scan parquet"))["wall_s"].sum()
    return [f"{below:.1f} s are booked below a cache"] if below > 0.001 else []


def judge_pair(seed: int, traits: Sequence[str] | None = None) -> Judgement:
    """Draw a pair of engines, ask the workbench for their ratios, and compare."""
    rng = np.random.default_rng([seed, 5])
    chosen = (
        tuple(map(str, rng.choice(PAIR_TRAITS, int(rng.choice([0, 1, 2, 3, 5])), replace=False)))
        if traits is None
        else tuple(traits)
    )
    world = draw_pair(seed, chosen)
    wrong: list[str] = []
    refused: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {
            side: [str(one.write(Path(folder) / f"{side}{number}")) for number, one in enumerate(worlds)]
            for side, worlds in world.sides.items()
        }
        try:
            pair = load_pair_from_logs(paths["spark"], paths["comet"])
            result = calibrate_with_origin(pair, 0.9)
            wrong = compare_pairs(pair, result.pairs, world)
            refused = list(pair.reasons)
        except WorkbenchError as error:
            refused = [f"{error.what} ({error.facts.get('found')})"]
        except Exception as error:  # noqa: BLE001 - a crash is no answer, and no honest refusal
            wrong = [f"crash: {type(error).__name__}: {error}"[:200]]
    return Judgement(seed, ("pair", *chosen), "3.5.9", "plain", () if refused else tuple(wrong), tuple(refused))


def compare_pairs(pair: Pair, found: pl.DataFrame, world: PairWorld) -> list[str]:
    identities: dict[str, set[str]] = {}
    runs = {
        f"{side}-s{number}": {query.sql_id: query.identity for query in one.queries}
        for side, worlds in world.sides.items()
        for number, one in enumerate(worlds, 1)
    }
    for session, sql_id, query in pair.measured.executions.select("session", "sql_id", "query").iter_rows():
        identities.setdefault(query, set()).add(runs[session][sql_id])
    wrong = [f"{name} is {sorted(ids)}" for name, ids in identities.items() if len(ids) > 1]
    if wrong:
        return wrong
    there = {}
    for query, ratio in found.select("query", "ratio").iter_rows():
        (identity,) = identities[query]
        there[identity] = ratio
        if identity in world.unpaired:
            wrong.append(f"{query} cannot be paired, and is: {ratio:.2f}")
        elif differs(ratio, world.ratios[identity], 0, 0.05):
            wrong.append(f"{query}: {ratio:.2f} for {world.ratios[identity]:.2f}")
    wrong += [f"{identity} is not paired" for identity in world.ratios.keys() - there.keys()]
    return wrong


@lru_cache(maxsize=1)
def load_model() -> Any:
    """Factors of planted logs (SYNTHETIC): 2 to 5 times as fast in most operators."""
    with tempfile.TemporaryDirectory() as folder:
        paths = planted_logs.write(Path(folder))
        pair = load_pair_from_logs(paths["plain"], paths["fast"])
        return calibrate_with_origin(pair, 0.9).model


def judge_qualification(row: pl.DataFrame, measured: Measured, truth: Truth) -> tuple[list[str], list[str]]:
    model = load_model()
    quick = {
        term.operator: 4.0 for term in model.terms if term.operator not in ("idle", "task overhead", "unattributed")
    }
    result = qualify_applications(model, row, measured, overrides=quick)
    app = result.applications.row(0, named=True)
    moved_s = sum(query.wall_s for query in truth.queries if query.engine != "spark")
    queries_s = sum(query.wall_s for query in truth.queries)
    if app["recommendation"] == "already accelerated" and moved_s >= MOSTLY_MOVED * queries_s:
        return [], []
    if result.reasons and app["recommendation"] != "already accelerated":
        return [], [f"qualify: {app['reason']}"]
    wrong = []
    if truth.engine in ("photon", "gluten", "auron"):
        return (
            [] if app["recommendation"] == "already accelerated" else [f"{truth.engine} is {app['recommendation']}"]
        ), []
    if app["predicted_s"] is None:
        return [f"qualify: {app['recommendation']} of a {truth.engine} application"], []
    told = all(query.opaque_told for query in truth.queries)
    best = truth.best_ratio * (1 + SHARE) + CLOCK_S / truth.wall_s
    if app["recommendation"] == RECOMMENDED and best < LEAST_RATIO:
        wrong.append(f"recommended at most {truth.best_ratio:.2f}x")
    bounds = ("ratio", "ratio_high") if told else ("ratio_low",)
    wrong += [f"{name} {app[name]:.2f} of at most {truth.best_ratio:.2f}" for name in bounds if app[name] > best]
    return wrong, []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--pairs", action="store_true", help="pairs of engines instead of applications")
    parser.add_argument("--show", type=int, default=10, help="wrong worlds to print")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.n)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.jobs, mp_context=context, initializer=load_model) as pool:
        judged = list(pool.map(judge_pair if chosen.pairs else judge_world, seeds, chunksize=20))
    print(format_table(judged))
    for one in [one for one in judged if one.wrong][: chosen.show]:
        print(one.seed, one.spark, one.layout, ",".join(one.traits), "|", "; ".join(one.wrong[:4]))
    refused = Counter(
        reason[:90] for one in judged if one.refused and not set(one.traits) & set(DAMAGE) for reason in one.refused[:1]
    )
    for reason, n in refused.most_common(chosen.show):
        print(n, "refused:", reason)
    sys.exit(any(one.wrong for one in judged))


def format_table(judged: Sequence[Judgement]) -> str:
    """Right, refused and wrong worlds by trait."""
    lines = [f"{'trait':22}{'worlds':>8}{'right':>8}{'refused':>9}{'wrong':>7}"]
    groups: dict[str, list[Judgement]] = {"all": list(judged), "all supported": []}
    for one in judged:
        if not set(one.traits) & set(DAMAGE):
            groups["all supported"].append(one)
        for trait in one.traits or ("(none)",):
            groups.setdefault(trait, []).append(one)
        groups.setdefault(f"spark {one.spark}", []).append(one)
        groups.setdefault(f"layout {one.layout}", []).append(one)
    for name, members in groups.items():
        n_wrong = sum(bool(one.wrong) for one in members)
        n_refused = sum(bool(one.refused) and not one.wrong for one in members)
        lines.append(f"{name:22}{len(members):>8}{len(members) - n_wrong - n_refused:>8}{n_refused:>9}{n_wrong:>7}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
