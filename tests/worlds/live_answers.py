"""Judges what the product says of a live service of known law: GPUs, quantiles, verdicts (SIMULATED, virtual time).

python -m tests.worlds.live_answers 3000 --first 0 --show 10
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

import numpy as np

from tests.worlds.live_runs import ask_product, run_virtually
from tests.worlds.live_services import (
    ERRS,
    NEVER,
    Service,
    World,
    draw_world,
    exceeds_goal,
    find_need,
    measure_at,
    measure_capacity,
)
from workbench.core.errors import WorkbenchError
from workbench.core.formats import MAX_ANSWER_CHARS
from workbench.sizing.estimation.sizing_answer import SizingAnswer
from workbench.sizing.load.sweep_report import SweepResult

# By chance one interval in ten leaves its truth outside, and one answer in twenty is too small: wrong is what is
# further off than that explains.
LIMIT_ROOM = 1.15
QUANTILE_ROOM = 0.2
MAX_FAILURES = 0.02
ENOUGH_FACTOR = 1.2
BUSY_FACTOR = 1.5
NEAR_CAPACITY = 0.8
MAX_RUN_RATIO = 1.25
N_TRUTH = 4000
BELOW_PATTERN = re.compile(r"([\d.e-]+) s at the largest load of \S+ (?:is|is far) below the limit of ([\d.e-]+) s")
# Levels of a service that changes have no law to compare with; those at its capacity take longer than any run.
NO_LAW = {"scales_out", "scales_in", "warms_up", "slows"}
UNSUPPORTED = NO_LAW | {ERRS} | {"fails", "apologises", "shortens", "times_out", "token_bucket", "fails_rarely"}
# A trace with a slow head has no one rate: it is not sustained where its fast part is more than the GPU can.
UNSUPPORTED_LOADS = {"trace"}


@dataclass(frozen=True)
class Judged:
    """What was said of a world and what is true; `ratio` is the GPUs said over those needed."""

    seed: int
    load_kind: str
    traits: tuple[str, ...]
    goal: str
    state: str
    said: int | None
    need: int | None
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """GPUs said over those needed; null without either."""
        return self.said / self.need if self.said and self.need else None


def judge_world(seed: int) -> Judged:
    """Ask the product about a world and hold what it says against the truth."""
    world = draw_world(seed)
    service = Service(world.law, 1, seed, world.change)
    about = (seed, world.load_kind, tuple(sorted(world.traits)), f"{world.goal.name} at {world.load:g}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer, sweep = run_virtually(lambda: ask_product(world, service, Path(folder)))
        except WorkbenchError as error:
            return Judged(*about, "refused", None, None, (str(error)[:300],))
    if contradictions := list_contradictions(answer):
        return Judged(*about, "wrong", answer.recommended, None, tuple(contradictions))
    if answer.reasons or answer.recommended is None:
        return Judged(*about, "refused", answer.recommended, None, tuple(text[:300] for text in answer.reasons))
    wrong = [] if is_unknowable(world, service, sweep) else list_wrong_figures(world, answer)
    need = None if world.traits & NEVER else find_need(world)
    return Judged(*about, "wrong" if wrong else "right", answer.recommended, need, tuple(wrong))


def list_contradictions(answer: SizingAnswer) -> list[str]:
    """Sentences and intervals that contradict themselves, in an answer or in a refusal."""
    wrong = [
        f"{text} is no value below {limit}"
        for reason in answer.estimates["reason"].drop_nulls()
        for text, limit in BELOW_PATTERN.findall(reason)
        if float(text) > float(limit)
    ]
    if len(answer.sentence) > MAX_ANSWER_CHARS or set(answer.sentence) & set("()[]"):
        wrong.append(f"no answer for a glance: {answer.sentence}")
    for row in answer.estimates.iter_rows(named=True):
        low, value, high = row["gpus_low"], row["gpus"], row["gpus_high"]
        if low is not None and high is not None and not (low <= value <= high and low < high):
            wrong.append(f"interval of GPUs {low:.4g} to {high:.4g} around {value:.4g}")
    for row in answer.quantiles.iter_rows(named=True):
        low, value, high = row["low_s"], row["value_s"], row["high_s"]
        # Answers of one text take one time each: an interval of such is a point.
        if low is not None and high is not None and not low <= value <= high:
            wrong.append(f"interval of {row['metric']} p{100 * row['q']:g}: {low:.4g} to {high:.4g} s, {value:.4g} s")
    return wrong


def is_unknowable(world: World, service: Service, sweep: SweepResult) -> bool:
    """Whether the service became another one before any level had shown what it could do."""
    if world.change is None or world.change.kind != "scales_out" or service.changed_s is None:
        return False
    ended_s, shown = 0.0, False
    steps = sweep.steps.join(sweep.points.select("step", "in_flight"), on="step").sort("step")
    for step in steps.iter_rows(named=True):
        ended_s += step["duration_s"]
        # A level that hardly waits is that of a larger service, too.
        is_busy = step["in_flight"] > BUSY_FACTOR * world.law.slots
        shown = shown or (is_busy and ended_s <= service.changed_s)
    return not shown


def list_wrong_figures(world: World, answer: SizingAnswer) -> list[str]:
    """What a valid answer says that is not so."""
    count = answer.recommended
    assert count is not None
    wrong = []
    if "fails" in world.traits:
        wrong.append("a number for a service of which too many requests fail")
    elif exceeds_goal(world, count, LIMIT_ROOM, MAX_FAILURES, n=max(N_TRUTH, 10 * round(world.load))):
        wrong.append(f"{count} GPUs do not serve it")
    if not world.traits & NO_LAW:
        wrong += list_wrong_quantiles(world, answer)
    return wrong


def list_wrong_quantiles(world: World, answer: SizingAnswer) -> list[str]:
    """Levels called valid whose interval is far from the quantile of a long run."""
    wrong = []
    goal = world.goal
    rows = answer.quantiles.filter((answer.quantiles["metric"] == goal.metric) & (answer.quantiles["q"] == goal.q))
    # Nearer to its capacity a queue changes more slowly than a level lasts: one long run is not like another, and the
    # interval of a tail is too narrow (decision 0053).
    most = NEAR_CAPACITY * measure_capacity(world.law) if world.is_open else np.inf
    valid = set(answer.points.filter(answer.points["verdict"] == "valid")["step"].to_list())
    for row in rows.iter_rows(named=True):
        if row["step"] not in valid or row["low_s"] is None or row["high_s"] is None or row["load"] > most:
            continue
        runs = [
            measure_at(world, 1, load=row["load"], n=max(N_TRUTH, 20 * round(row["load"])), seed=seed)[goal.metric]
            for seed in (7, 8, 9)
        ]
        truths = [float(np.quantile(run, goal.q, method="inverted_cdf")) for run in runs]
        low, high = min(truths), max(truths)
        room = QUANTILE_ROOM * row["value_s"]
        # Near its capacity a long run is not like another; then nothing is held against it.
        if high < MAX_RUN_RATIO * low and (row["high_s"] + room < low or row["low_s"] - room > high):
            ends = f"[{row['low_s']:.3g}, {row['high_s']:.3g}]"
            wrong.append(f"{row['value_s']:.3g} {ends} s at {row['load']:g} for {low:.3g} to {high:.3g}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", type=int, default=10, help="wrong worlds to print")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.n)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        found = list(pool.map(judge_world, seeds, chunksize=5))
    sys.stdout.write("\n".join(describe_findings(found, chosen.show)) + "\n")


def is_supported(one: Judged) -> bool:
    """Whether the documents promise an answer."""
    return not UNSUPPORTED & set(one.traits) and one.load_kind not in UNSUPPORTED_LOADS


def describe_findings(found: list[Judged], n_shown: int) -> list[str]:
    """Counts by trait and load, coverage, and the worlds that were wrong or refused though supported."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        supported = ("all supported",) if is_supported(one) else ()
        for key in ("all", *supported, one.load_kind, *(one.traits or ("(none)",))):
            counts.setdefault(key, Counter())[one.state] += 1
    out = [f"{'trait':20}{'worlds':>8}{'right':>8}{'refused':>9}{'wrong':>7}"]
    for key, count in counts.items():
        out.append(f"{key:20}{count.total():8}{count['right']:8}{count['refused']:9}{count['wrong']:7}")
    for name, those in (("all", found), ("supported", [one for one in found if is_supported(one)])):
        ratios = [one.ratio for one in those if one.ratio is not None and one.state != "refused"]
        n_enough = sum(ratio >= 1 for ratio in ratios)
        near = sum(one.said <= max(ENOUGH_FACTOR * one.need, one.need + 1) for one in those if one.need and one.said)
        if ratios:
            out.append(
                f"{name}: {len(ratios)} answers, enough {n_enough / len(ratios):.1%}, at most {ENOUGH_FACTOR} times or"
                f" one more {near / len(ratios):.1%}, median ratio {np.median(ratios):.2f}"
            )
    for one in [one for one in found if one.state == "wrong"][:n_shown]:
        out.append(f"WRONG {one.seed} {one.load_kind} {','.join(one.traits)} | {one.goal}: {one.said} said, {one.need}"
                   f" needed | {'; '.join(one.notes)}")  # fmt: skip
    refused = [one for one in found if one.state == "refused" and is_supported(one)]
    for one in refused[:n_shown]:
        out.append(f"REFUSED {one.seed} {one.load_kind} {','.join(one.traits)} | {one.goal} | {one.notes[0][:220]}")
    return out


if __name__ == "__main__":
    main()
