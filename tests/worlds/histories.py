"""Histories of benchmarks whose truth is known: files of pytest-benchmark, pyperf and asv, as of a nightly job.

SIMULATED: no benchmark is run; figures are drawn around levels that are drawn first. The product sees the files only.

python -m tests.worlds.histories 300 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import polars as pl

from workbench.core.errors import WorkbenchError
from workbench.core.formats import MAX_ANSWER_CHARS
from workbench.indicators.history.history_points import HistoryFilter, load_history
from workbench.indicators.history.level_changes import HistoryAnalysis, analyse_history
from workbench.indicators.history.study import explain_answer, format_answer, list_notes
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.benchmark_import import import_results
from workbench.indicators.store.import_formats import ImportOptions
from workbench.indicators.store.sql_database import open_database

TOOLS = ("pytest-benchmark", "pyperf", "asv")
ALTERATIONS = ("machine", "timer", "python", "local changes")
# What each tool's files can tell.
TRAITS = {
    "pytest-benchmark": ("offsets", "shuffled", "twins", *ALTERATIONS),
    "pyperf": ("twins", "machine", "python"),
    "asv": ("twins", "machine", "python"),
}
OUTLIERS = ("first", "last", "last two", "inside")
# Times are told in whole milliseconds; they are about 20.
ROUNDED, MOST_ROUNDED = "rounded", 0.06
CLEAR_DEVIATIONS = 8
MIN_CLEAR = 6
NAME = "tests/test_sort.py::test_sort"
LONG = "tests/test_stage.py::test_stage[" + "x" * 190


@dataclass(frozen=True)
class World:
    """A history: log times by commit, oldest first, and what alters the series on the way.

    `altered_at`: Place of the first session on another machine, with another timer, or the like; null without.
    """

    seed: int
    tool: str
    values: list[float]
    spread: float
    step_at: int | None
    step: float
    drift: float
    outliers: str | None
    traits: frozenset[str]
    altered_at: int | None

    @property
    def n(self) -> int:
        """Number of sessions."""
        return len(self.values)


def draw_world(seed: int) -> World:
    """Draw a history's truth."""
    draw = random.Random(seed)
    tool = TOOLS[seed % len(TOOLS)]
    n, spread = draw.randrange(16, 60), draw.choice((0.005, 0.01, 0.03))
    traits = {trait for trait in TRAITS[tool] if draw.random() < 0.2}
    altered = traits & set(ALTERATIONS)
    traits -= altered
    altered_at = None
    if altered:
        traits.add(sorted(altered)[0])
        altered_at, n = n // 2, max(n, 28)
    shape = "flat" if altered else draw.choice(("flat", "flat", "step", "drift"))
    step_at, step, drift = None, 0.0, 0.0
    if shape == "step":
        step_at = draw.randrange(6, n - 5)
        step = draw.choice((-1, 1)) * draw.choice((0.05, 0.1, 0.3, 0.7))
    if shape == "drift":
        drift = draw.choice((-1, 1)) * draw.choice((0.1, 0.3, 0.8))
    outliers = draw.choice(OUTLIERS) if draw.random() < 0.4 else None
    values = [math.log(0.02) + draw.gauss(0, spread) + drift * place / n for place in range(n)]
    values = [value + (step if step_at is not None and place >= step_at else 0.0) for place, value in enumerate(values)]
    jump = draw.choice((-0.4, 0.35, 0.69))
    values = [
        value + (jump if altered_at is not None and place >= altered_at else 0) for place, value in enumerate(values)
    ]
    # Beside the other draws, which stay as they are.
    if random.Random(f"rounded {seed}").random() < 0.2:
        traits.add(ROUNDED)
    inside = draw.randrange(3, n - 3)
    for place in {"first": [0], "last": [n - 1], "last two": [n - 2, n - 1], "inside": [inside], None: []}[outliers]:
        values[place] += draw.choice((0.3, 1.1))
    return World(seed, tool, values, spread, step_at, step, drift, outliers, frozenset(traits), altered_at)


def write_files(world: World, folder: Path) -> None:
    """Write a session's file for each commit, in the order of measurement."""
    draw = random.Random(world.seed + 1)
    order = list(range(world.n))
    if "shuffled" in world.traits:
        draw.shuffle(order)
    write = {"pytest-benchmark": _write_pytest, "pyperf": _write_pyperf, "asv": _write_asv}[world.tool]
    for place, commit in enumerate(order):
        write(world, folder, place, commit)


def _is_altered(world: World, commit: int, trait: str) -> bool:
    return trait in world.traits and world.altered_at is not None and commit >= world.altered_at


def _list_benchmarks(world: World, commit: int) -> dict[str, float]:
    """Names and times in seconds; twins differ in the last characters of a long name."""
    time_s = math.exp(world.values[commit])
    twins = {f"{LONG}-small]": 0.01, f"{LONG}-large]": 0.1} if "twins" in world.traits else {}
    return {NAME: round(time_s, 3) if ROUNDED in world.traits else time_s} | twins


def _build_hash(commit: int) -> str:
    return f"{commit + 1:040x}"


def _format_moment(world: World, place: int) -> str:
    zone = timezone(timedelta(hours=(-8, 9)[place % 2])) if "offsets" in world.traits else UTC
    return (datetime(2026, 9, 1, 2, tzinfo=UTC) + timedelta(hours=6 * place)).astimezone(zone).isoformat()


def _write_pytest(world: World, folder: Path, place: int, commit: int) -> None:
    committed = (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=commit)).isoformat()
    altered = partial(_is_altered, world, commit)
    timer = "process_time" if altered("timer") else "perf_counter"
    document = {
        "machine_info": {
            "node": "beta" if altered("machine") else "alpha",
            "python_implementation": "CPython",
            "python_version": "3.12.4" if altered("python") else "3.11.7",
            "cpu": {"brand_raw": "Imaginary CPU", "count": 8},
        },
        "commit_info": {
            "id": _build_hash(min(commit, world.altered_at or 0) if "local changes" in world.traits else commit),
            "time": committed,
            "dirty": altered("local changes"),
        },
        "benchmarks": [
            {"fullname": name, "options": {"timer": timer}, "stats": {"median": time_s}}
            for name, time_s in _list_benchmarks(world, commit).items()
        ],
        "datetime": _format_moment(world, place),
        "version": "5.1.0",
    }
    (folder / f"{place:04d}.json").write_text(json.dumps(document))


def _write_pyperf(world: World, folder: Path, place: int, commit: int) -> None:
    python = "3.12.4" if _is_altered(world, commit, "python") else "3.11.7"
    shared = {
        "unit": "second",
        "loops": 1,
        "date": datetime.fromisoformat(_format_moment(world, place)).strftime("%Y-%m-%d %H:%M:%S.000000"),
        "cpu_model_name": "Imaginary CPU",
        "cpu_count": 8,
        "hostname": "beta" if _is_altered(world, commit, "machine") else "alpha",
        "python_version": python,
        "python_implementation": "cpython",
    }
    draw = random.Random(1000 * world.seed + commit)
    benchmarks = [
        {
            "metadata": {"name": name},
            "runs": [{"values": [_blur_time(world, time_s, draw)]} for _ in range(3)],
        }
        for name, time_s in _list_benchmarks(world, commit).items()
    ]
    document = {"version": "1.0", "metadata": shared, "benchmarks": benchmarks}
    (folder / f"{place:04d}.json").write_text(json.dumps(document))


def _blur_time(world: World, time_s: float, draw: random.Random) -> float:
    """One of a session's values."""
    value_s = time_s * math.exp(draw.gauss(0, world.spread / 3))
    return round(value_s, 3) if ROUNDED in world.traits else value_s


def _write_asv(world: World, folder: Path, place: int, commit: int) -> None:
    machine = folder / ("beta" if _is_altered(world, commit, "machine") else "alpha")
    machine.mkdir(exist_ok=True)
    python = "3.12" if _is_altered(world, commit, "python") else "3.11"
    results = {
        name.replace("tests/test_", "").replace(".py::test_", ".time_"): [[time_s], [], "v1"]
        for name, time_s in _list_benchmarks(world, commit).items()
    }
    document = {
        "commit_hash": _build_hash(commit),
        "env_name": f"virtualenv-py{python}",
        "date": int((datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=commit)).timestamp() * 1000),
        "python": python,
        "params": {"machine": machine.name, "cpu": "Imaginary CPU", "num_cpu": "8"},
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version"],
        "results": results,
        "version": 2,
    }
    (machine / f"{_build_hash(commit)[-8:]}-py{python}.json").write_text(json.dumps(document))


def ask_product(world: World, folder: Path) -> HistoryAnalysis:
    """Import, sync and history, as the commands do them."""
    files, sessions = folder / "files", folder / "sessions"
    files.mkdir()
    write_files(world, files)
    options = ImportOptions(stack="mine" if world.tool == "pyperf" else None)
    import_results(world.tool, [files], sessions, options)
    database = folder / "history.db"
    with open_database(str(database)) as opened:
        sync_sessions([sessions], opened)
    return analyse_history(load_history(database, HistoryFilter(absolute=True)))


@dataclass(frozen=True)
class Judged:
    """What was said of a world, and what of it is not so."""

    world: World
    state: str
    answer: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def traits(self) -> list[str]:
        """The world's traits, its shape and its outliers."""
        shape = "step" if self.world.step_at is not None else "drift" if self.world.drift else "flat"
        ends = [f"outlier {self.world.outliers}"] if self.world.outliers else []
        return [self.world.tool, shape, *ends, *sorted(self.world.traits)]


def judge_world(seed: int) -> Judged:
    """Ask the product about a world and hold what it says against the truth."""
    world = draw_world(seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            analysis = ask_product(world, Path(folder))
        except WorkbenchError as error:
            return Judged(world, "refused", str(error))
    answer, short = explain_answer(analysis), format_answer(analysis)
    wrong = [f"an answer of {len(short)} characters: {short}"] if len(short) > MAX_ANSWER_CHARS else []
    wrong += [*_judge_changes(world, analysis), *_judge_alteration(world, analysis), *_judge_twins(world, analysis)]
    if answer.startswith("Not known"):
        return Judged(world, "wrong" if wrong else "refused", answer, wrong)
    return Judged(world, "wrong" if wrong else "right", answer, wrong)


def _judge_changes(world: World, analysis: HistoryAnalysis) -> list[str]:
    """Changes that are none, are missed, or are told as another kind."""
    changes = analysis.changes.filter(pl.col("kind") == "followed", pl.col("verdict").is_in(["FASTER", "SLOWER"]))
    # Of one stack, another Python is a change like another package, with its cause.
    rows = [row for row in changes.to_dicts() if "stage" not in row["metric"] and "python" not in row["packages"]]
    drifts = [row for row in rows if row.get("shape") == "drift"]
    steps = [row for row in rows if row.get("shape") != "drift"]
    rounding = MOST_ROUNDED if ROUNDED in world.traits else 0.0
    room = 3 * world.spread + 0.02 + rounding
    clear = CLEAR_DEVIATIONS * world.spread + 0.03 + rounding
    answer = explain_answer(analysis)
    if world.drift:
        # Of rounded times a drift is a staircase, whose steps may be told as such.
        is_clear = abs(world.drift) > 2 * clear and world.n >= 24 and not rounding
        wrong = [f"a drift is told as a step of {row['ratio']:.3g}" for row in steps if is_clear]
        missed = is_clear and not drifts
        return wrong + (["a drift is not told"] if missed else [])
    wrong = [
        f"a drift of {row['ratio']:.3g} where there is none" for row in drifts if abs(math.log(row["ratio"])) > room
    ]
    if world.step_at is None:
        wrong += [
            f"a step of {row['ratio']:.3g} where there is none" for row in steps if abs(math.log(row["ratio"])) > room
        ]
        if not rows and "became" in answer and "python" not in answer:
            wrong.append(f"not decided, and told: {answer}")
        return wrong
    hits = [row for row in steps if abs(-math.log(row["ratio"]) - world.step) < room]
    wrong += [
        f"a step of {row['ratio']:.3g}" for row in steps if row not in hits and abs(math.log(row["ratio"])) > room
    ]
    if rounding and not world.outliers:
        wrong += [
            f"a step of {row['low']:.4g} to {row['high']:.4g}, which is {math.exp(-world.step):.4g}"
            for row in hits
            if not row["low"] * 0.99 <= math.exp(-world.step) <= row["high"] * 1.01
        ]
    sides = min(world.step_at, world.n - world.step_at)
    if abs(world.step) > clear and sides >= MIN_CLEAR:
        if not hits:
            wrong.append("the step is not told")
        wrong += [f"at {row['revisions']}" for row in hits if not _names_place(row["revisions"], world.step_at)]
    return wrong


def _names_place(revisions: str | None, step_at: int) -> bool:
    """Whether the commits FROM..TO are near the step; true where none are told."""
    if revisions is None:
        return True
    first, _, last = revisions.partition(" ")[0].partition("..")
    return int(first, 16) - 1 <= step_at + 2 and int(last, 16) - 1 >= step_at - 2 and int(first, 16) <= int(last, 16)


def _judge_alteration(world: World, analysis: HistoryAnalysis) -> list[str]:
    """Another machine, timer, Python or local changes are no change of level, and are told."""
    altered = world.traits & set(ALTERATIONS)
    if not altered:
        return []
    (trait,) = altered
    said = " ".join([explain_answer(analysis), *list_notes(analysis)]).lower()
    return [] if trait in said else [f"unknown: {trait}"]


def _judge_twins(world: World, analysis: HistoryAnalysis) -> list[str]:
    """Two long names are two series with their own levels."""
    if "twins" not in world.traits:
        return []
    names = {name.partition(" [")[0] for name in analysis.series["metric"].to_list() if "stage" in name}
    return [] if len(names) == 2 else [f"{len(names)} series of 2 long names"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="wrong worlds to print")
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        found = list(pool.map(judge_world, range(chosen.first, chosen.first + chosen.n), chunksize=5))
    sys.stdout.write("\n".join(describe_findings(found, chosen.show)) + "\n")


def describe_findings(found: list[Judged], n_shown: int) -> list[str]:
    """Counts by trait, and the worlds that were wrong or refused."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        for key in ("all", *one.traits):
            counts.setdefault(key, Counter())[one.state] += 1
    out = [f"{'trait':20}{'worlds':>8}{'right':>8}{'refused':>9}{'wrong':>7}"]
    for key, count in counts.items():
        out.append(f"{key:20}{count.total():8}{count['right']:8}{count['refused']:9}{count['wrong']:7}")
    for one in [one for one in found if one.state != "right"][:n_shown]:
        out.append(f"{one.state.upper()} {one.world.seed} {', '.join(one.traits)} n={one.world.n} sd={one.world.spread}"
                   f" | {'; '.join(one.wrong)} | {one.answer[:200]}")  # fmt: skip
    return out


if __name__ == "__main__":
    main()
