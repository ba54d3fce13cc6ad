"""The house itself: how soon a command answers, and how long all notebooks take, as a user meets it.

    python -m bench.bench_house [start | all | suite] [--trials 5] [--json FILE]

`start`: whole processes, files read before. `all`: `workbench run all --jobs 2` on the shipped samples, warm, once.
`suite`: `make test`, once (long).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import shape
from bench.shape import Bar, Row

ROOT = Path(__file__).parents[1]
LOG = "data/samples/eventlogs/small/three_queries"
BIN = Path(sys.executable).parent


def timed(command: list[str]) -> dict[str, float]:
    """Wall time of a whole process from the checkout; what it said when it failed."""
    begin = time.perf_counter()
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-250:]}")
    return {"wall_s": time.perf_counter() - begin}


def start(trials: int) -> list[Row]:
    """Commands that should answer at once."""
    workbench = [sys.executable, "-m", "workbench"]
    with tempfile.TemporaryDirectory() as scratch:
        numbers = itertools.count()
        facts = [*workbench, "eventlog", "facts", LOG, "--out"]
        sides = {
            "workbench --help": lambda: timed([*workbench, "--help"]),
            "eventlog facts of a small log": lambda: timed([*facts, f"{scratch}/{next(numbers)}"]),
        }
        found = shape.alternating(sides, trials, warm_up=1)
    bars = (Bar("value", at_most=0.35), Bar("value", at_most=1.2))
    return [
        Row("house", side, "workbench", "s", found.of(side, "wall_s"), bar=bar, failures=found.failures[side])
        for side, bar in zip(sides, bars, strict=True)
    ]


def once(name: str, command: list[str], most_s: float) -> Row:
    """A command of minutes, once."""
    found = shape.alternating({name: lambda: timed(command)}, 1)
    bar = Bar("value", at_most=most_s)
    return Row("house", name, "workbench", "s", found.of(name, "wall_s"), bar=bar, failures=found.failures[name])


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("what", choices=["start", "all", "suite"])
    options = parser.parse_args()
    if options.what == "start":
        return shape.finish(start(options.trials), options.json)
    if options.what == "suite":
        return shape.finish([once("make test", ["make", "test"], 600)], options.json)
    with tempfile.TemporaryDirectory() as out:
        which = "start_here" if options.quick else "all"
        command = [sys.executable, "-m", "workbench", "run", which, "--jobs", "2", "--out", out]
        return shape.finish([once(f"workbench run {which} --jobs 2", command, 240)], options.json)


if __name__ == "__main__":
    sys.exit(main())
