"""Judges what a history of runs says of the levels of its figures (SIMULATED): steps, drifts and outliers are planted.

python -m tests.worlds.levels 200 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import numpy as np

from tests.worlds.runs import AREA, PER_MS, START, Judged, describe_findings
from workbench.core.tables import Column, Table
from workbench.runs import history, run_folder
from workbench.runs.catalogue import StoredRun
from workbench.runs.levels import FigureLevels, LevelChange
from workbench.runs.run_stores import LocalStore

SHAPES = ("flat", "flat", "step", "step", "two steps", "drift", "late drift")
OUTLIERS = ("first", "last", "last two", "inside", "before the step")
TRAITS = (
    "bad_runs",
    "units",
    "other_unit",
    "signed",
    "counts",
    "no_ends",
    "some_ends",
    "narrow_ends",
    "other_setting",
    "rows_gone",
)
MIN_RUNS, MIN_SIDE, MIN_LEVEL = 12, 6, 4


@dataclass(frozen=True)
class DrawnFigure:
    """One figure by run, on the scale on which its noise is equal: logarithms, or the values themselves.

    `truth`: Its level by run; `values`: with the spread between runs, an error of each run (`errors`), and outliers.
    `steps`: Places of runs at which the level changes.
    """

    name: str
    truth: list[float]
    values: list[float]
    errors: list[float]
    steps: tuple[int, ...]
    drift_from: int | None
    outliers: tuple[int, ...]


@dataclass(frozen=True)
class World:
    """Runs in their order, one a day; `bad` are not valid, `gone` lack the first figure."""

    seed: int
    traits: frozenset[str]
    n: int
    spread: float
    figures: tuple[DrawnFigure, ...]
    bad: frozenset[int]
    gone: frozenset[int]
    unit_from: int
    is_log: bool

    def list_known(self, figure: DrawnFigure) -> list[int]:
        """Places of the valid runs that have a figure in a unit that can be compared."""
        first = self.unit_from if "other_unit" in self.traits else 0
        gone = self.gone if figure is self.figures[0] else frozenset()
        return [place for place in range(first, self.n) if place not in self.bad | gone]


def draw_world(seed: int) -> World:
    """Draw a history of runs."""
    rng = np.random.default_rng([540, seed])
    traits = frozenset(name for name in TRAITS if rng.random() < 0.2)
    traits -= {"counts"} if "signed" in traits else set()
    n = int(rng.integers(8, 50))
    spread = 0.0 if "counts" in traits else float(rng.choice([0.003, 0.01, 0.03, 0.08]))
    bad = frozenset(int(place) for place in range(n - 1) if "bad_runs" in traits and rng.random() < 0.2)
    gone = (
        frozenset(int(place) for place in range(n - 1) if rng.random() < 0.2) if "rows_gone" in traits else frozenset()
    )
    figures = tuple(_draw_figure(rng, f"case{number}", n, spread) for number in range(rng.integers(1, 5)))
    unit_from = int(rng.integers(1, max(2, n // 2)))
    return World(seed, traits, n, spread, figures, bad, gone, unit_from, "signed" not in traits)


def _draw_figure(rng: np.random.Generator, name: str, n: int, spread: float) -> DrawnFigure:
    shape, size = str(rng.choice(SHAPES)), float(rng.choice([0.05, 0.2, 0.7]) * rng.choice([-1, 1]))
    truth, steps, drift_from = np.full(n, float(rng.uniform(5.3, 7))), [], None
    if shape in ("step", "two steps"):
        steps = sorted({int(place) for place in rng.integers(3, n - 2, 2 if shape == "two steps" else 1)})
        for number, place in enumerate(steps):
            truth[place:] += size * (-1) ** number * (1 + number)
    if "drift" in shape:
        drift_from = 0 if shape == "drift" else n // 3
        truth[drift_from:] += np.linspace(0, 2 * size, n - drift_from)
    outliers: tuple[int, ...] = ()
    if rng.random() < 0.4:
        inside = int(rng.integers(2, n - 3))
        before = steps[0] - 1 if steps else inside
        known = {"first": (0,), "last": (n - 1,), "last two": (n - 2, n - 1), "inside": (inside,)}
        outliers = known.get(str(rng.choice(OUTLIERS)), (before,))
    errors = spread * rng.choice([0.3, 1.0], n)
    values = truth + rng.normal(0, 1, n) * spread + rng.normal(0, 1, n) * errors
    for place in outliers:
        # An outlier beside a step that looked like the other level would be one of it.
        side = -size if place + 1 in steps else size if place in steps else float(rng.choice([-1, 1]))
        values[place] += (15 * spread + 0.3) * math.copysign(1, side)
    return DrawnFigure(name, truth.tolist(), values.tolist(), errors.tolist(), tuple(steps), drift_from, outliers)


@dataclass(frozen=True)
class KnownStep:
    """A step that the known runs can show: the first run that is not of the old level, and that of the new one."""

    first: int
    last: int
    size: float


class MemoryStore(LocalStore):
    """Tables of runs that are in no folder."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """The bytes of a file."""
        return self.content[path]


def build_runs(world: World) -> list[StoredRun]:
    """The runs as they are read, with their tables in memory."""
    store = MemoryStore()
    plain = run_folder.build_record("", AREA, START)
    runs = []
    for place in range(world.n):
        table, rows = _list_rows(world, place)
        buffer = io.BytesIO()
        table.frame(rows).write_parquet(buffer)
        run_id = f"run{place:03}"
        store.content[f"{run_id}/tables/cases.parquet"] = buffer.getvalue()
        began = (START + timedelta(days=place)).isoformat()
        bad = place in world.bad
        state, verdict = ("succeeded", "invalid") if bad and place % 2 else ("failed" if bad else "succeeded", "valid")
        record = plain | {"run_id": run_id, "started_at": began, "config": _list_settings(world, place)}
        record |= {"tables": [run_folder.build_table_entry(table, len(rows))], "reasons": ["noisy"] if bad else []}
        record |= {"status": state, "verdict": verdict}
        runs.append(StoredRun(run_id, record, state, cast("Any", store), run_id))
    return runs


def _list_settings(world: World, place: int) -> dict[str, Any]:
    """Each step has a setting that changes with it; another one changes elsewhere."""
    settings: dict[str, Any] = {
        f"{figure.name}_{number}": place >= step for figure in world.figures for number, step in enumerate(figure.steps)
    }
    return settings | ({"other": place // 3} if "other_setting" in world.traits else {})


def _find_unit(world: World, place: int) -> str:
    if "other_unit" in world.traits and place < world.unit_from:
        return "KiB"
    return "s" if world.is_log and "units" in world.traits and place < world.n // 2 else "ms"


def _list_rows(world: World, place: int) -> tuple[Table, list[dict[str, Any]]]:
    unit = _find_unit(world, place)
    kind: Any = "int" if "counts" in world.traits and unit != "s" else "float"
    columns = [Column("name", "str", "Case."), Column("p50", kind, "Median.", unit=unit, better="lower")]
    if "no_ends" not in world.traits:
        columns += [Column(f"p50_{end}", "float", f"{end} end.", unit=unit, nullable=True) for end in ("low", "high")]
    rows = []
    for figure in world.figures:
        if figure is world.figures[0] and place in world.gone:
            continue
        value = figure.values[place] + (3.0 if place in world.bad else 0.0)
        half = 1.645 * figure.errors[place] * (0.1 if "narrow_ends" in world.traits else 1)
        ends = [value, value - half, value + half]
        ends = [math.exp(end) * PER_MS.get(unit, 1.0) if world.is_log else end - 6 for end in ends]
        if kind == "int":
            ends = [float(round(end)) for end in ends]
        row: dict[str, Any] = {"name": figure.name, "p50": int(ends[0]) if kind == "int" else ends[0]}
        known = "some_ends" not in world.traits or place % 3 > 0
        row |= {"p50_low": ends[1] if known else None, "p50_high": ends[2] if known else None}
        rows.append({column.name: row[column.name] for column in columns})
    return Table("cases", "One row per case.", ("name",), tuple(columns)), rows


def judge_world(seed: int) -> Judged:
    """Ask for the history, and hold what it says of levels against the truth."""
    world = draw_world(seed)
    judged = Judged(seed, tuple(sorted(world.traits)))
    found = history.build_history(build_runs(world))
    said = {one.row: one for one in found.levels.figures if (one.table, one.column) == ("cases", "p50")}
    for figure in world.figures:
        _judge_figure(world, figure, said.get(figure.name), judged)
    return judged


def _judge_figure(world: World, figure: DrawnFigure, said: FigureLevels | None, judged: Judged) -> None:
    known = world.list_known(figure)
    changes = () if said is None else said.changes
    if len(known) < MIN_RUNS:
        judged.wrong += [f"{figure.name}: {len(known)} runs and a {one.shape}" for one in changes]
        return
    what = f"{figure.name} n={len(known)} sd={world.spread}"
    steps = _list_known_steps(figure, known)
    told_far = any(one.shape == "outlier" for one in changes)
    for one in changes:
        if one.shape != "outlier":
            judged.wrong += [f"{what}: {text}" for text in _find_faults(world, figure, one, steps)]
    judged.refused += [f"{what}: {text}" for text in _list_missed(world, figure, known, steps, changes)]
    last = known[-1]
    clear = last in figure.outliers and len(known) > 2 and not {known[-2], known[-3]} & set(figure.outliers)
    late = figure.drift_from is not None or any(place > known[-8] for place in figure.steps)
    if clear and not late and not told_far:
        judged.refused.append(f"{what}: the last run is an outlier, and not told")
    if told_far and last not in figure.outliers and not late:
        judged.wrong.append(f"{what}: the last run is told as an outlier")


def _list_known_steps(figure: DrawnFigure, known: list[int]) -> list[KnownStep]:
    """Steps between levels of at least four known runs."""
    edges = [0, *figure.steps, len(figure.truth)]
    levels = [[place for place in known if first <= place < end] for first, end in itertools.pairwise(edges)]
    long = [places for places in levels if len(places) >= MIN_LEVEL]
    return [
        KnownStep(
            next(place for place in known if place > old[-1]), new[0], figure.truth[new[0]] - figure.truth[old[0]]
        )
        for old, new in itertools.pairwise(long)
    ]


def _find_faults(world: World, figure: DrawnFigure, said: LevelChange, steps: dict[int, float]) -> list[str]:
    """What is not so of a change that is told."""
    assert said.change.estimate is not None
    size = math.log(said.change.estimate) if world.is_log else said.after - said.before
    text = f"a {said.shape} of {size:+.3f} at {said.first} to {said.last}"
    if said.verdict != ("HIGHER" if size > 0 else "LOWER"):
        return [f"{text} is told as {said.verdict}"]
    if said.shape == "drift":
        truth = figure.truth[said.last] - figure.truth[said.first]
        return [] if figure.drift_from is not None and truth * size > 0 else [f"{text}: none is there"]
    if said.shape == "change":
        # A last level of fewer than four runs cannot be seen.
        truth = figure.truth[max(said.first, said.last - MIN_LEVEL)] - figure.truth[said.first]
        return [] if truth * size > 0 else [f"{text}: truly {truth:+.3f}"]
    if figure.drift_from is not None:
        return [f"{text}: it is a drift of {figure.truth[-1] - figure.truth[0]:+.3f}"]
    hits = [step for step in steps if said.first <= step.last and step.first <= said.last]
    if not hits:
        return [f"{text}: steps are at {steps}"]
    true = sum(step.size for step in hits)
    # Levels before that are not told apart are one.
    sizes = [true, *(figure.truth[said.last] - level for level in figure.truth[: said.first])]
    room = 4 * world.spread * math.sqrt(2 / 4) + 0.02
    faults = [] if min(sizes) - room < size < max(sizes) + room else [f"{text}: truly {true:+.3f}"]
    named = {fact[1] for fact in said.facts}
    own = {f"{figure.name}_{number}" for number, step in enumerate(figure.steps) if said.first <= step <= said.last}
    return faults + [f"{text}: does not name what changed there: {name}" for name in sorted(own - named)]


def _list_missed(
    world: World,
    figure: DrawnFigure,
    known: list[int],
    steps: list[KnownStep],
    changes: tuple[LevelChange, ...],
) -> list[str]:
    """Clear changes that are not told."""
    clear = 10 * world.spread + 0.05
    if figure.drift_from is not None:
        n = sum(place >= figure.drift_from for place in known)
        total = abs(figure.truth[-1] - figure.truth[known[0]])
        is_told = any(one.shape == "drift" for one in changes)
        return ["a drift is not told"] if n >= 24 and total > 2 * clear and not is_told else []
    edges = [known[0], *(step.last for step in steps), known[-1] + 1]
    missed = []
    for number, step in enumerate(steps, 1):
        sides = (edges[number - 1], step.first), (step.last, edges[number + 1])
        counts = [sum(first <= one < end for one in known if one not in figure.outliers) for first, end in sides]
        is_told = any(one.shape == "step" and one.first <= step.last and step.first <= one.last for one in changes)
        if step.first == step.last and min(counts) >= MIN_SIDE and abs(step.size) > clear and not is_told:
            missed.append(f"a step of {step.size:+.3f} at {step.last} is not told")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="wrong worlds to print")
    chosen = parser.parse_args()
    found = [judge_world(seed) for seed in range(chosen.first, chosen.first + chosen.n)]
    sys.stdout.write("\n".join(describe_findings(found, chosen.show)) + "\n")


if __name__ == "__main__":
    main()
