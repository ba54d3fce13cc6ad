"""What an import says of a run's files, held against the run.

    python -m tests.worlds.serving_answers 3000

Each world is right, refused (an error that names itself, a level that is left out or not usable) or wrong: a usable
level with a load, a latency, a failure or a time between tokens that is not the run's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tests.worlds.serving import TOOLS, TRAITS, Call, Run, draw_world, write_world
from workbench.core.errors import WorkbenchError
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.other_tools.imported_sweep import build_raw_tables
from workbench.sizing.other_tools.sweep_import import read_tool_result
from workbench.sizing.tables import USABLE_VERDICTS

CLOCK_S = 2e-3
# Traits that leave nothing to know of a level, so that a refusal is the right answer.
UNKNOWABLE = frozenset(("cap", "ramp", "overload", "failures", "empty_failures", "failures_at_once", "more_in_flight"))


@dataclass(frozen=True)
class Judgement:
    seed: int
    tool: str
    traits: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def draw_traits(seed: int) -> tuple[str, tuple[str, ...]]:
    """A tool, and none, one, two or several traits."""
    rng = np.random.default_rng([seed, 12])
    tool = str(rng.choice(TOOLS))
    n = int(rng.choice([0, 1, 2, 4, 7], p=[0.1, 0.3, 0.3, 0.2, 0.1]))
    traits = [str(trait) for trait in rng.choice(TRAITS, n, replace=False)]
    if rng.random() < 0.5:
        traits.append("open")
    if tool == "vllm" and rng.random() < 0.5:
        traits.append("queue_times")
    return tool, tuple(dict.fromkeys(traits))


def judge_world(seed: int) -> Judgement:
    """Draw a world, import its files, and compare."""
    tool, traits = draw_traits(seed)
    world = draw_world(seed, tool, traits)
    with tempfile.TemporaryDirectory() as folder:
        path = write_world(world, Path(folder))
        try:
            sweep = read_tool_result(path)
            requests, steps = build_raw_tables(sweep, 1)
            points, _ = assess_steps(requests, steps)
        except WorkbenchError as error:
            return Judgement(seed, tool, traits, (), (f"{error.what} ({error.facts.get('found')})"[:160],))
        except Exception as error:  # noqa: BLE001 - a crash is no answer, and no honest refusal
            return Judgement(seed, tool, traits, (f"crash: {type(error).__name__}: {error}"[:200],))
    wrong: list[str] = []
    refused = [note for note in sweep.notes if "left out: " in note]
    found = {_match_run(requests, number, world.runs): number for number in steps["step"]}
    for place, run in enumerate(world.runs):
        number = found.get(place)
        if number is None:
            continue
        point = points.filter(pl.col("step") == number).row(0, named=True)
        if point["verdict"] not in USABLE_VERDICTS:
            refused.append(f"{point['verdict']}: {point['reason']}"[:160])
            continue
        wrong += judge_level(run, point, requests.filter(pl.col("step") == number))
    return Judgement(seed, tool, traits, tuple(dict.fromkeys(wrong)), () if wrong else tuple(refused))


def _match_run(requests: pl.DataFrame, number: int, runs: tuple[Run, ...]) -> int:
    """The run of a step: by the number of its requests, and in their order where several have it."""
    n = requests.filter(pl.col("step") == number).height
    fits = [place for place, run in enumerate(runs) if n in (len(run.calls), len(_listed(run)))]
    return number if number in fits else fits[0] if fits else number


def _listed(run: Run) -> list[Call]:
    return [call for call in run.calls if not call.left_out]


def judge_level(run: Run, point: dict[str, object], requests: pl.DataFrame) -> list[str]:
    """Figures of a usable level that are not the run's."""
    wrong = []
    calls = _listed(run) if requests.height == len(_listed(run)) else list(run.calls)
    if requests.height != len(calls):
        return [f"{requests.height} requests of {len(calls)}"]
    n_failed = sum(call.kind != "ok" for call in calls)
    if (told := requests.filter(pl.col("outcome") != "ok").height) != n_failed:
        return [f"{told} failures of {n_failed}"]
    load = float(str(point["load"]))
    due = [call.due for call in calls]
    true_load = run.users if run.rate is None else (len(due) - 1) / (max(due) - min(due))
    assert true_load is not None
    if abs(load / true_load - 1) > (0.15 if run.rate else 0):
        wrong.append(f"load {load:.3g} of {true_load:.3g}")
    if run.is_ramp:
        wrong.append("a ramp is a level")
    ordered = sorted((call for call in calls if call.kind == "ok"), key=lambda call: (call.due, call.sent))
    rows = requests.filter(pl.col("outcome") == "ok").sort("intended_s", "sent_s")
    for name, true in (
        ("runtime_s", [call.ended - call.due for call in ordered]),
        ("ttft_s", [call.first - call.due for call in ordered]),
        ("itl_s", [call.itl for call in ordered]),
        ("streamed_tokens", [call.tokens for call in ordered]),
    ):
        known = np.sort(rows[name].drop_nulls().to_numpy().astype(float))
        if not len(known):
            continue
        expected = np.sort(np.array(true, dtype=float))
        if len(known) != len(expected):
            continue
        tolerance = 0.04 * expected if name == "itl_s" else np.full(len(expected), CLOCK_S)
        # A tool may have sent the last hundredth late and not say so: no quantile that is reported rests on it.
        off = (np.abs(known - expected) - tolerance)[: int(0.98 * len(known))]
        if (off > 0).any():
            worst = int(np.argmax(off))
            wrong.append(f"{name} {known[worst]:.4g} for {expected[worst]:.4g}")
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
        found = list(pool.map(judge_world, seeds, chunksize=20))
    counts: dict[str, Counter[str]] = {}
    for one in found:
        state = "wrong" if one.wrong else "refused" if one.refused else "right"
        supported = () if UNKNOWABLE & set(one.traits) else ("all supported",)
        for key in ("all", *supported, one.tool, *(one.traits or ("(none)",))):
            counts.setdefault(key, Counter())[state] += 1
    out = [f"{'trait':20}{'worlds':>8}{'right':>8}{'refused':>9}{'wrong':>7}"]
    for key, count in counts.items():
        out.append(f"{key:20}{count.total():8}{count['right']:8}{count['refused']:9}{count['wrong']:7}")
    for one in [one for one in found if one.wrong][: chosen.show]:
        out.append(f"{one.seed} {one.tool} {','.join(one.traits)} | {'; '.join(one.wrong)}")
    reasons = Counter(one.refused[0][:90] for one in found if one.refused and not UNKNOWABLE & set(one.traits))
    out += [f"{n} refused: {reason}" for reason, n in reasons.most_common(12)]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
