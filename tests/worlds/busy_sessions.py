"""Sessions of two programs beside a planted neighbour, and of the same two on the quiet machine: really measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from workbench.indicators.contract import Case, Indicator, result
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import session_config

WORKS = ("interpreter", "stream", "gather", "sort", "disk")
PAIRS = tuple((first, second) for place, first in enumerate(WORKS) for second in WORKS[place + 1 :])
NEIGHBOURS = ("cpu", "memory", "disk")
PLACES = ("same core", "other core", "anywhere")
PATTERNS = ("constant", "on and off", "ramp", "bursts")
ROUNDS, QUIET_ROUNDS = 20, 40


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


# Busy for its share of every 20 ms; the share goes by the pattern. It ends with its parent.
NEIGHBOUR = """
import os, random, sys, tempfile, time
import numpy as np
kind, pattern, level, seed, parent = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), os.getppid()
rng = random.Random(seed)
period_s, a, b = rng.uniform(3, 8), np.ones(4_000_000), np.empty(4_000_000)
file = tempfile.TemporaryFile(dir=".")
started, share, until = time.perf_counter(), level, 0.0
while os.getppid() == parent:
    now = time.perf_counter() - started
    if pattern == "on and off":
        share = level if int(now / period_s) % 2 == 0 else 0.0
    elif pattern == "ramp":
        share = level * min(1.0, now / 25)
    elif pattern == "bursts" and now >= until:
        share, until = (level if share == 0 else 0.0), now + rng.expovariate(1 / 0.8)
    end = now + 0.02 * share
    while time.perf_counter() - started < end:
        if kind == "cpu":
            sum(range(2000))
        elif kind == "memory":
            place = rng.randrange(0, 3_500_000)
            np.add(a[place : place + 500_000], 1.0, out=b[place : place + 500_000])
        else:
            file.seek(0); file.write(b"y" * 400_000); file.flush(); os.fsync(file.fileno())
    time.sleep(max(0.0, now + 0.02 - (time.perf_counter() - started)))
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
    command = [sys.executable, "-c", NEIGHBOUR, world.neighbour, world.pattern, str(world.level), str(world.seed)]
    process = subprocess.Popen(command, cwd=folder, preexec_fn=lambda: os.sched_setaffinity(0, allowed))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure_pair(pair: tuple[str, str], rounds: int, folder: Path) -> dict[str, Any]:
    """The effect of the second program against the first, as a row of EFFECTS."""
    stacks = folder / "stacks.yaml"
    stacks.write_text(f"environments: {{here: '{sys.executable}'}}\nenv: {{WORK: [{', '.join(pair)}]}}\n")
    config = session_config(stacks=(str(stacks),), rounds=(rounds,), seed=1)
    # Copies of byte code take seconds for each new interpreter, and have tests of their own.
    with mock.patch.object(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants)):
        outcome = sessions.start_session(config, cases=[Case.from_parameters(Work)], out=folder / "runs")
    effects = outcome.compared.effects
    return {**effects.filter(~effects["control"]).row(0, named=True), "folder": str(outcome.folder)}


def play_seed(seed: int, kept: Path) -> dict[str, Any]:
    """A world's session beside its neighbour: the world and its row of EFFECTS. Sessions stay in `kept`."""
    world = plan_world(seed)
    folder = kept / f"busy-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    with run_neighbour(world, folder):
        row = measure_pair(world.pair, ROUNDS, folder)
    return {**asdict(world), "answerable": world.answerable, "effect": row}


def measure_quietly(pair: tuple[str, str], kept: Path) -> dict[str, Any]:
    """The quiet twin of a pair; the machine must do nothing else."""
    folder = kept / f"quiet-{'-'.join(pair)}"
    folder.mkdir(parents=True, exist_ok=True)
    return measure_pair(pair, QUIET_ROUNDS, folder)
