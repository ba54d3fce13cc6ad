"""Record rounds of equal stacks beside other work: python data/samples/indicators/noise/record.py OUT.csv [ROUNDS]

For each kind of other work (see `LOADS`) a session of ROUNDS (120) rounds: a baseline, its control, and four more
environments of the same interpreter, each of which counts to a million in a process of its own. Whatever differs
between them is noise. A row is a run: what it took by wall time and by CPU time.

rounds.csv here: 2026-11-25, 2 cores (AMD EPYC), Debian 12, Python 3.11, a virtual machine with nothing else running.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from workbench.indicators.contract.indicator import Case, Indicator, parameter, result
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.sessions import start_session

ENVIRONMENTS = ("base", "b", "c", "d", "e")
LOADS = {
    "idle": [],
    "one busy core": ["steady"],
    "two busy cores": ["steady", "steady"],
    "bursts": ["bursts", "bursts"],
    "drift": ["drift", "drift"],
}
"""Processes of other work by kind."""
WORK = """
import random, sys, time
kind, seed, begun = sys.argv[1], int(sys.argv[2]), time.perf_counter()
draw = random.Random(seed)
def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
while True:
    if kind == "steady":
        spin(1)
    elif kind == "bursts":  # busy for three seconds on average, then not for six
        spin(draw.expovariate(1 / 3))
        time.sleep(draw.expovariate(1 / 6))
    else:  # drift: the share of busy time rises to one and falls again in four minutes
        share = 1 - abs((time.perf_counter() - begun) % 240 / 120 - 1)
        spin(0.02 * share)
        time.sleep(0.02 * (1 - share))
"""


class Count(Indicator):
    """A loop in pure Python, by wall time and by CPU time."""

    script: ClassVar[Path | str] = (
        "import json, os, time\n"
        "n, total = int(os.environ['PI_N']), 0\n"
        "start, begun = time.perf_counter(), time.process_time()\n"
        "for i in range(n):\n    total += i\n"
        "cpu, wall = 1000 * (time.process_time() - begun), 1000 * (time.perf_counter() - start)\n"
        "print(json.dumps({'name': 'Count', 'framework': 'python', '@parameters': {'n': n},\n"
        "                  '@result': {'elapsed_ms': wall}, '@cpu': {'elapsed_ms': cpu}}))\n"
    )
    n: int = parameter(1_000_000, ge=1)
    elapsed_ms: float = result(unit="ms", better="lower")


@contextmanager
def work_beside(kinds: Sequence[str]) -> Iterator[None]:
    """Keep the machine busy while something is measured."""
    running = [subprocess.Popen([sys.executable, "-c", WORK, kind, str(seed)]) for seed, kind in enumerate(kinds)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main(arguments: Sequence[str]) -> None:
    """Record all kinds of other work into one file."""
    out, rounds = Path(arguments[0]), int(arguments[1]) if arguments[1:] else 120
    with tempfile.TemporaryDirectory() as scratch, out.open("w", newline="") as file:
        for name in ENVIRONMENTS:
            venv.create(Path(scratch) / name, with_pip=False, symlinks=True)
        pythons = tuple(f"{name}={Path(scratch) / name}" for name in ENVIRONMENTS)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["load", "round", "arm", "wall_ms", "cpu_ms"])
        for load, kinds in LOADS.items():
            config = session_config(python=pythons, rounds=(rounds,), seed=len(load))
            with work_beside(kinds):
                found = start_session(config, cases=[Case.from_parameters(Count)], out=Path(scratch) / "runs")
            values = found.compared.observed.values.select("round", "arm", "value", "other_value").sort("round", "arm")
            writer.writerows(
                [load, number, arm, f"{wall:.3f}", f"{cpu:.3f}"] for number, arm, wall, cpu in values.rows()
            )
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
