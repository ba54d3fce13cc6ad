"""Sessions of two programs beside a planted neighbour that rests every other window: really measured.

Rounds of the windows in which it rests are the quiet twin. A twin of another minute is none: on a virtual machine two
quiet sessions ten minutes apart differed by 7 to 12 % for four pairs of programs out of ten, by what no load shows.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from workbench.indicators.analysis.idle_effects import estimate_idle_effects, estimate_idle_log_ratio
from workbench.indicators.analysis.observations import Observations, load_observations
from workbench.indicators.contract import Case, Indicator, result
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import session_config

WORKS = ("interpreter", "stream", "gather", "sort", "disk")
PAIRS = tuple((first, second) for place, first in enumerate(WORKS) for second in WORKS[place + 1 :])
NEIGHBOURS = ("cpu", "memory", "disk")
PLACES = ("same core", "other core", "anywhere")
PATTERNS = ("constant", "on and off", "ramp", "bursts")
ROUNDS = 44
# Seconds of a window, by the clock; the neighbour works in the even ones.
WINDOW_S = 10
# Seconds for which a neighbour may go on into a window of rest.
MARGIN_S = 0.1


class Work(Indicator):
    """A program of a tenth of a second, by the variable WORK: it computes, moves memory, or writes to the disk."""

    script: ClassVar[str] = """
import json, os, tempfile, time
import numpy as np
work = os.environ["WORK"]
rng = np.random.default_rng(1)
if work == "stream":
    a, b = np.ones(4_000_000), np.empty(4_000_000)
    run = lambda: [np.add(a, 1.0, out=b) for _ in range(18)]
elif work == "gather":
    a, places = np.ones(3_000_000), rng.integers(0, 3_000_000, 1_500_000)
    run = lambda: [a[places].sum() for _ in range(8)]
elif work == "sort":
    a = rng.random(450_000)
    run = lambda: [np.sort(a) for _ in range(4)]
elif work == "interpreter":
    run = lambda: sum(i * i for i in range(1_300_000))
else:
    def run():
        with tempfile.TemporaryFile(dir=".") as file:
            for _ in range(20):
                file.write(b"x" * 200_000)
                file.flush()
                os.fsync(file.fileno())
started, used = time.perf_counter(), time.process_time()
run()
elapsed, cpu = time.perf_counter() - started, time.process_time() - used
print(json.dumps({"name": "Work", "framework": "x", "@parameters": {}, "@result": {"elapsed_ms": 1e3 * elapsed},
                  "@cpu": {"elapsed_ms": 1e3 * cpu}}))
"""
    elapsed_ms: float = result(unit="ms", better="lower")


# Busy for its share of every 20 ms; the share goes by the pattern, whose time is that of the windows in which it works.
# It ends with its parent.
NEIGHBOUR = """
import os, random, sys, tempfile, time
import numpy as np
kind, pattern, level, seed, parent = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), os.getppid()
window_s = int(sys.argv[5])
rng = random.Random(seed)
period_s, a, b = rng.uniform(3, 8), np.ones(4_000_000), np.empty(4_000_000)
file = tempfile.TemporaryFile(dir=".")
started, share, until = time.time() // (2 * window_s) * 2 * window_s, level, 0.0
while os.getppid() == parent:
    windows, inside = divmod(time.time() - started, 2 * window_s)
    if inside >= window_s:
        time.sleep(2 * window_s - inside)
        continue
    now = windows * window_s + inside
    if pattern == "on and off":
        share = level if int(now / period_s) % 2 == 0 else 0.0
    elif pattern == "ramp":
        share = level * min(1.0, now / 25)
    elif pattern == "bursts" and now >= until:
        share, until = (level if share == 0 else 0.0), now + rng.expovariate(1 / 0.8)
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.02 * share:
        if kind == "cpu":
            sum(range(2000))
        elif kind == "memory":
            place = rng.randrange(0, 3_500_000)
            np.add(a[place : place + 500_000], 1.0, out=b[place : place + 500_000])
        else:
            file.seek(0); file.write(b"y" * 400_000); file.flush(); os.fsync(file.fileno())
    time.sleep(max(0.0, begun + 0.02 - time.perf_counter()))
"""


@dataclass(frozen=True)
class BusyWorld:
    """Two programs and a neighbour; `answerable` says whether its load changes, so that its cost shows."""

    seed: int
    pair: tuple[str, str]
    neighbour: str
    place: str
    pattern: str
    level: float

    @property
    def answerable(self) -> bool:
        """Whether the rounds can tell what the load costs: it changes, or there is little of it."""
        return self.pattern != "constant" or self.level < 0.1


def plan_world(seed: int) -> BusyWorld:
    """Draw the world of a seed."""
    rng = np.random.default_rng(seed)
    pair = PAIRS[int(rng.integers(len(PAIRS)))]
    neighbour, place, pattern = (str(rng.choice(names)) for names in (NEIGHBOURS, PLACES, PATTERNS))
    return BusyWorld(seed, pair, neighbour, place, pattern, float(rng.uniform(0, 0.9)))


@contextlib.contextmanager
def run_neighbour(world: BusyWorld, folder: Path) -> Iterator[None]:
    """The neighbour, while the block runs."""
    cores = sorted(os.sched_getaffinity(0))
    allowed = {"same core": cores[-1:], "other core": cores[:1], "anywhere": cores}[world.place]
    numbers = [str(world.level), str(world.seed), str(WINDOW_S)]
    command = [sys.executable, "-c", NEIGHBOUR, world.neighbour, world.pattern, *numbers]
    process = subprocess.Popen(command, cwd=folder, preexec_fn=lambda: os.sched_setaffinity(0, allowed))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure_pair(pair: tuple[str, str], folder: Path) -> Observations:
    """A session of both programs; the first is the baseline."""
    stacks = folder / "stacks.yaml"
    stacks.write_text(f"environments: {{here: '{sys.executable}'}}\nenv: {{WORK: [{', '.join(pair)}]}}\n")
    config = session_config(stacks=(str(stacks),), rounds=(ROUNDS,), seed=1)
    # Copies of byte code take seconds for each new interpreter, and have tests of their own.
    with mock.patch.object(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants)):
        outcome = sessions.start_session(config, cases=[Case.from_parameters(Work)], out=folder / "runs")
    return load_observations(outcome.folder)


def select_windows(observed: Observations, arm: str, place: int) -> Observations:
    """Rounds in which the runs of the baseline and of an arm are inside the even (0) or the odd (1) windows."""
    runs = observed.runs.filter(pl.col("arm").is_in([observed.session.baseline, arm]))
    begun_s = pl.col("started_at").str.to_datetime(time_zone="UTC").dt.epoch("us") / 1e6
    since_s = (begun_s + (WINDOW_S if place else 0)) % (2 * WINDOW_S)
    is_inside = (since_s >= MARGIN_S) & (since_s + pl.col("duration_s") <= WINDOW_S)
    kept = runs.group_by("round").agg(is_inside.all().alias("inside")).filter("inside")["round"].to_list()
    chosen = pl.col("round").is_in(kept)
    return replace(observed, runs=observed.runs.filter(chosen), values=observed.values.filter(chosen))


def judge_windows(observed: Observations) -> list[dict[str, Any]]:
    """The idle effect of each arm and the control by the busy rounds, and what the quiet rounds between them say."""
    rows = []
    for arm in (arm.name for arm in observed.session.arms if arm.name != observed.session.baseline):
        busy, quiet = (select_windows(observed, arm, place) for place in (0, 1))
        logs = list_log_ratios(busy, arm), list_log_ratios(quiet, arm)
        nothing = np.empty((len(logs[1]), 0))
        truth, truth_reach = estimate_idle_log_ratio(logs[1], nothing, nothing, ())
        (effect,) = (found for (name, _), found in estimate_idle_effects(busy).items() if name == arm)
        row = {"arm": arm, "n_busy": len(logs[0]), "n_quiet": len(logs[1]), "plain": float(np.mean(logs[0]))}
        rows.append({**row, **asdict(effect), "truth": truth, "truth_reach": truth_reach})
    return rows


def list_log_ratios(observed: Observations, arm: str) -> NDArray[np.float64]:
    """How many times faster an arm was than the baseline in each round, on the log scale."""
    values = observed.values.select("arm", "round", log=pl.col("value").log())
    sides = (values.filter(pl.col("arm") == name) for name in (observed.session.baseline, arm))
    base, own = sides
    both = base.join(own, on="round", suffix="_own").sort("round")
    return np.asarray(both["log"] - both["log_own"])


def play_seed(seed: int, kept: Path) -> dict[str, Any]:
    """A world's session: the world and its judged rows. The session stays in `kept`."""
    world = plan_world(seed)
    folder = kept / f"busy-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    with run_neighbour(world, folder):
        observed = measure_pair(world.pair, folder)
    return {**asdict(world), "answerable": world.answerable, "rows": judge_windows(observed)}
