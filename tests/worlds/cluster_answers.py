"""What a scale test says of drawn clusters, held against what is true of them (SIMULATED watch streams).

    python -m tests.worlds.cluster_answers 300 --first 0 --show 10

Each world is right, refused (invalid, or a limit that is not named) or wrong: a limit that is not the planted one, a
book that does not balance, a rate that the cluster never had, a sentence about objects of others.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from tests.fakes import scale_runs
from tests.worlds.clusters import (
    AFFINITY,
    CLAIMS,
    FPGA,
    GPU,
    MIG,
    OTHER_RUN,
    OTHERS,
    QUOTA,
    RUN,
    SCHEDULER,
    SPACE,
    START,
    STRANGE,
    Played,
    World,
    draw_world,
    play,
)
from workbench.core.formats import MAX_ANSWER_CHARS
from workbench.scaletest.analysis import raw_tables
from workbench.scaletest.analysis.headline import find_bound
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.observation import run_records, watch_targets
from workbench.scaletest.observation.object_ledger import Node, ObjectDecoder, ObjectLedger, Sight
from workbench.scaletest.observation.resource_watch import WatchSink
from workbench.scaletest.observation.watch_targets import ForeignPods, NodeObserver, WatchChoice

NS = 1_000_000_000
ARRIVAL_S = 0.002
# What an answer calls the limit, and what it is.
_NAMES = (
    ("others", OTHERS),
    ("anti-affinity", AFFINITY),
    ("quota", QUOTA),
    ("resource claims", CLAIMS),
    ("the scheduler", SCHEDULER),
    (MIG, MIG),
    (FPGA, FPGA),
    ("places for pods", "pods"),
    ("CPUs", "cpu"),
    ("memory", "memory"),
    ("GPUs", GPU),
)
# A constraint binds if it alone kept pods out for so much of the time in which pods waited; nothing binds below.
CLEAR, SOME = 0.75, 0.2
MIN_WAIT_S = 8.0


@dataclass(frozen=True)
class Judgement:
    seed: int
    traits: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    answer: str = ""


def at_ns(at_s: float) -> int:
    """A time of the run as the sampler writes it."""
    return int(START.timestamp() * NS) + int(at_s * NS)


class _Sampler:
    """The sampler's own sinks, fed with watch lines."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.files = world, run_records.RunFiles(folder)
        self.by_namespace = any(entry.kind == "Template" for entry in world.scenario.workloads)
        ledger = ObjectLedger(self.files.observed.put)
        self.foreign = ForeignPods(RUN, (SPACE,), self.files.observed.put, self.files.note)
        self.sinks: dict[str, tuple[ObjectDecoder, WatchSink]] = {
            "node": (ObjectDecoder(Node), NodeObserver(self.files.observed.put).build_sink()),
            "foreign": (self.foreign.build_target().decoding, self.foreign.build_sink()),
        }
        for choice in (
            WatchChoice("pod", api_discovery.PODS, "Pod", not self.by_namespace),
            WatchChoice("job", api_discovery.JOBS, "Job", not self.by_namespace),
            WatchChoice("event", api_discovery.EVENTS, "Event", labelled=False),
        ):
            target = watch_targets.build_watch_target(choice, SPACE, RUN)
            sink = watch_targets.build_sink(ledger, target.scope, at_ns(-0.5))
            self.sinks[choice.resource] = (target.decoding, sink)
        self.present: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in self.sinks}

    def pass_on(self, name: str, kind: str, thing: dict[str, Any], sight: Sight) -> None:
        """Pass one line to its sink."""
        decoder, sink = self.sinks[name]
        _, decoded = decoder.decode_line(orjson.dumps({"type": kind, "object": thing}))
        do = sink.gone if kind == "DELETED" else sink.put
        if do is not None:
            do(decoded, sight)

    def take_line(self, at_s: float, name: str, kind: str, thing: dict[str, Any]) -> None:
        """Take a change; a watch that is away does not see it."""
        names, gap = [name], self.world.gap_s
        if name == "foreign" and self.by_namespace and thing["metadata"]["namespace"] == SPACE:
            names.append("pod")
        for each in names:
            uid = thing["metadata"]["uid"]
            if kind == "DELETED":
                self.present[each].pop(uid, None)
            else:
                self.present[each][uid] = thing
            if gap is None or each not in self.world.gap_of or not gap[0] <= at_s < gap[1]:
                word = "ADDED" if kind == "LISTED" else kind
                self.pass_on(each, word, thing, Sight(at_ns(at_s + ARRIVAL_S), 0, gap=kind == "LISTED"))

    def relist(self, gap: tuple[float, float]) -> None:
        """List all anew after the watches were away."""
        sight = Sight(at_ns(gap[1]), 1, gap=True)
        for name in self.world.gap_of:
            for thing in self.present[name].values():
                self.pass_on(name, "ADDED", thing, sight)
            missing = self.sinks[name][1].missing
            if missing is not None:
                missing(set(self.present[name]), sight)
            record = run_records.Gap(name, at_ns(gap[0]), sight.arrival_ns, "server gone", relisted=True)
            self.files.health.put(record)


def record_run(world: World, played: Played, folder: Path) -> None:
    """Pass the watch lines to the sampler's own sinks, and write the run's folder."""
    sampler, gap, is_begun = _Sampler(world, folder), world.gap_s, False
    for at_s, name, kind, thing in played.lines:
        if at_s >= 0 and not is_begun:
            sampler.foreign.begin()
            is_begun = True
        if gap is not None and at_s >= gap[1]:
            sampler.relist(gap)
            gap = None
        sampler.take_line(at_s, name, kind, thing)
    health = sampler.files.health
    for second in range(int(played.end_s)):
        sent = at_ns(float(second))
        health.put(run_records.Beat(sent, sent + 2_000_000, sent + 3_000_000))
        health.put(run_records.Load(sent, 0.01, 50 << 20, 0.3, 0.1, 0.1, 0.1))
    health.put(run_records.Skew(at_ns(0.0), -1_000_000, 1_000_000, 20))
    sampler.files.close()
    journal: list[Any] = [run_records.Begun(RUN, at_ns(0.0), at_ns(0.0))]
    for row in world.plan.schedule.to_dicts():
        accepted_s = played.accepted_s[row["index"]]
        journal.append(run_records.Intent(row["index"], at_ns(row["due_s"])))
        journal.append(run_records.Acked(row["index"], at_ns(row["due_s"] + 0.001), at_ns(accepted_s), 201))
    journal.append(run_records.Stopped(at_ns(played.end_s), "finished"))
    (folder / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, journal)))
    world.plan.write(folder)
    given = {"watches_pods_of_others": True, "beside_others": world.is_beside}
    run_records.write_conditions(folder, scale_runs.record_of(scale_runs.Plan([0.0]), run=RUN, **given))
    raw_tables.write_raw_tables(folder)


def judge_world(seed: int) -> Judgement:
    """Play a world, analyse its run, and compare."""
    world = draw_world(seed)
    played = play(world)
    traits = (str(world.planted), *world.traits)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record_run(world, played, folder)
        try:
            analysis = analyse_run(folder)
            wrong = [*_judge_books(world, played, analysis), *_judge_words(world, analysis)]
            named = find_bound(analysis)
            wrong += _judge_bound(world, played, analysis, named)
            wrong += _judge_rate(world, played, analysis)
            wrong += _judge_others(world, played, analysis)
            refused = _list_refusals(world, played, analysis, named)
            answer = analysis.explanation
        except Exception as error:  # noqa: BLE001 - a crash is no answer
            return Judgement(seed, traits, (f"crash: {type(error).__name__}: {error}"[:300],))
    return Judgement(seed, traits, tuple(dict.fromkeys(wrong)), () if wrong else tuple(refused), answer)


def _find_truth(world: World, played: Played) -> tuple[set[str], set[str]]:
    """What may be named as the limit, and what has to be: what clearly kept pods waiting."""
    ticks = played.waited_s / 0.05
    if played.waited_s < MIN_WAIT_S:
        return set(played.blocked_s), set()
    shares = {name: count / ticks for name, count in played.blocked_s.items()}
    some = {name for name, share in shares.items() if share >= SOME}
    clear = {name for name, share in shares.items() if share >= CLEAR}
    return some, clear


def read_names(named: str | None) -> set[str]:
    """What an answer names as the limit."""
    return {factor for word, factor in _NAMES if named is not None and word in named}


def _judge_bound(world: World, played: Played, analysis: Analysis, named: str | None) -> list[str]:
    some, _ = _find_truth(world, played)
    names = read_names(named)
    if not named or "not known" in named:
        return []
    if not names:
        return [f"a limit without a name: {named}"] if "room" not in named else []
    allowed = some | ({GPU} if OTHERS in some else set())
    return [] if names & allowed else [f"bound by {named!r}, true: {sorted(some)} {dict(played.blocked_s)}"]


def _mean_held_by_others(world: World, played: Played, resource: str, end_s: float) -> float:
    """Share of a resource's capacity that others hold, over the run until a time."""
    at = np.arange(0.0, end_s, 0.5)
    held = [
        sum(
            pod.asks.get(resource, 0.0)
            for pod in world.others
            if pod.holds(moment) and any(node.name == pod.node and not node.cordoned for node in world.nodes)
        )
        / max(1e-9, sum(_room(world, moment, resource)))
        for moment in at
    ]
    return float(np.mean(held)) if held else 0.0


def _room(world: World, at_s: float, resource: str) -> list[float]:
    return [
        node.offered(at_s).get(resource, 0.0) for node in world.nodes if node.is_there(at_s) and not node.cordoned
    ] or [0.0]


def _judge_others(world: World, played: Played, analysis: Analysis) -> list[str]:
    """Others' pods that take a part of what the run asks for are told first, and make it invalid unless asked for."""
    last_s = float(world.plan.schedule["due_s"].max() or 0.0)  # type: ignore[arg-type]
    asks_gpus = any(GPU in pod.asks for pod in played.own)
    share = _mean_held_by_others(world, played, GPU, last_s) if asks_gpus else 0.0
    if share < 0.08:
        return []
    first = [analysis.answer, re.split(r"(?<=[.;]) ", analysis.explanation)[0]]
    wrong = [f"others hold {share:.0%} of the GPUs, and it says: {text[:150]}" for text in first if "thers" not in text]
    if not world.is_beside and not analysis.reasons:
        wrong.append("valid beside others")
    return wrong


def _judge_books(world: World, played: Played, analysis: Analysis) -> list[str]:
    """At each moment, what is there, what the run holds and what others hold are those of the cluster."""
    gpus = analysis.gpus
    if not gpus.height:
        return []
    wrong = []
    pods = [*played.own, *world.others]

    def true_values(at_s: float) -> dict[str, float]:
        there = {node.name for node in world.nodes if node.is_there(at_s) and not node.cordoned}
        held = {
            is_own: sum(
                pod.asks.get(GPU, 0.0)
                for pod in pods
                if (pod.run == RUN) == is_own and pod.node in there and pod.holds(at_s)
            )
            for is_own in (True, False)
        }
        # What a node no longer offers is held by its pods until they end.
        capacity = 0.0
        for node in (node for node in world.nodes if node.name in there):
            on_it = sum(pod.asks.get(GPU, 0.0) for pod in pods if pod.node == node.name and pod.holds(at_s))
            most = max(offers.get(GPU, 0.0) for _, offers in node.offers)
            capacity += max(node.offered(at_s).get(GPU, 0.0), min(on_it, most))
        return {"capacity": capacity, "allocated": held[True], "held_by_others": held[False]}

    for row in gpus.iter_rows(named=True):
        at_s = row["at_s"]
        if world.gap_s is not None and world.gap_s[0] - 0.3 <= at_s <= world.gap_s[1] + 0.3:
            continue
        around = [true_values(moment) for moment in np.linspace(at_s - 0.25, at_s + 0.1, 8)]
        for name in ("capacity", "allocated", "held_by_others"):
            values = [values[name] for values in around]
            if not min(values) - 1e-6 <= row.get(name, 0.0) <= max(values) + 1e-6:
                wrong.append(f"{name} of GPUs at {at_s:.1f} s: {row.get(name, 0.0):g} of {min(values):g}")
                break
        if wrong:
            break
    return wrong


def _list_sentences(analysis: Analysis) -> list[str]:
    unfinished = analysis.unfinished["sentence"].to_list()
    told = [analysis.answer, analysis.explanation, *analysis.findings]
    return [*told, *analysis.reasons, *analysis.warnings, *unfinished]


def _judge_words(world: World, analysis: Analysis) -> list[str]:
    """No sentence tells what was said of others' objects; no figure contradicts another."""
    wrong = [f"tells others' events: {text[:120]}" for text in _list_sentences(analysis) if STRANGE in text]
    wrong += [f"an answer of {len(analysis.answer)} characters"] if len(analysis.answer) > MAX_ANSWER_CHARS else []
    wrong += [f"names others' run: {text[:120]}" for text in analysis.limits["sentence"].to_list() if OTHER_RUN in text]
    if (match := re.search(r"allow ([\d.,]+) pods/s .* of the ([\d.,]+) offered", analysis.explanation)) is not None:
        allowed, offered = (float(text.replace(",", "")) for text in match.groups())
        if allowed > offered * 1.02:
            wrong.append(f"{allowed:g} of the {offered:g} offered")
    count = analysis.pods.height
    for row in analysis.obstacles.filter(pl.col("about") == "pods").to_dicts():
        if row["objects"] > count:
            wrong.append(f"{row['objects']} pods of {count}")
    if "late_node" in world.traits and "node_leaves" not in world.traits and "sim-late" in analysis.explanation:
        wrong.append("a new node was lost")
    return wrong


def _judge_rate(world: World, played: Played, analysis: Analysis) -> list[str]:
    """A rate that is told is one that the cluster had, or has room for."""
    if analysis.reasons:
        return []
    _, clear = _find_truth(world, played)
    wrong = []
    bound_s = sorted(pod.bound_s for pod in played.own if np.isfinite(pod.bound_s))
    due_s = world.plan.schedule["due_s"].to_numpy()
    first_due, last_due = float(due_s.min()), float(due_s.max())
    inside = [at_s for at_s in bound_s if at_s <= last_due]
    rate = len(inside) / max(1e-9, last_due - first_due)
    told = analysis.sustainable
    offered = len(world.plan) / (last_due - first_due)
    if told.high_per_s is not None and clear and not 0.7 * rate <= told.high_per_s:
        wrong.append(f"sustains at most {told.high_per_s:.3g}, had {rate:.3g}")
    if told.low_per_s is not None and told.low_per_s > max(rate, 1e-9) * 1.25:
        wrong.append(f"sustains {told.low_per_s:.3g} of {offered:.3g} offered, had {rate:.3g}")
    if (match := re.search(r"allow ([\d.,]+) pods/s", analysis.explanation)) is not None:
        allowed = float(match.group(1).replace(",", ""))
        # While the scheduler stood still, the room was not used.
        is_high = allowed > 1.5 * rate and not played.blocked_s["still"]
        if allowed < 0.75 * rate or is_high:
            wrong.append(f"room for {allowed:g} pods/s, had {rate:.3g}")
    if SCHEDULER in clear and told.high_per_s is not None and not 0.7 <= told.high_per_s / world.per_s <= 1.4:
        wrong.append(f"the scheduler's {world.per_s:.3g}/s told as {told.high_per_s:.3g}")
    return wrong


def _list_refusals(world: World, played: Played, analysis: Analysis, named: str | None) -> list[str]:
    """What a user is left without: an answer, or the name of the limit that was clear."""
    refused = [f"invalid: {reason}"[:160] for reason in analysis.reasons]
    _, clear = _find_truth(world, played)
    clear -= {"still"}
    if clear and not refused and not read_names(named):
        refused.append(f"the limit {sorted(clear)} is not named ({named})")
    return refused


# Traits with which a valid answer need not be given.
TOLD = frozenset(
    {"others_come", "other_run", "leftovers", "node_leaves", "allocatable", "gap", "server_away", "stood_still"}
)


def is_supported(one: Judgement) -> bool:
    """Whether a world's traits are those that get an answer."""
    # Others' daemons hold places for pods, too.
    held = OTHERS in one.traits or {"pods", "others_elsewhere"} <= set(one.traits)
    return not TOLD & set(one.traits) and not held


def main() -> int:
    """Judge many worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.workers) as pool:
        found = list(pool.map(judge_world, range(given.first, given.first + given.n), chunksize=4))
    wrong = [one for one in found if one.wrong]
    supported = [one for one in found if is_supported(one)]
    refused = [one for one in supported if one.refused]
    for one in wrong[: given.show]:
        print(one.seed, one.traits, *one.wrong, f"| {one.answer}", sep="\n    ")
    for one in refused[: given.show]:
        print("refused", one.seed, one.traits, *one.refused, f"| {one.answer}", sep="\n    ")
    by_trait = Counter(trait for one in wrong for trait in one.traits)
    print(f"{len(found)} worlds: {len(wrong)} wrong, {sum(bool(one.refused) for one in found)} refused; ", end="")
    print(f"supported {len(supported)}: {sum(bool(one.wrong) for one in supported)} wrong, {len(refused)} refused")
    print("wrong by trait:", dict(by_trait.most_common()))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
