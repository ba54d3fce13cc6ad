"""What does a run cost beside its interpreter, and how long do 150 runs of a 0.4 s script take?

    python -m bench.bench_indicators_overhead [--trials 5] [--runs 30] [--session-runs 150] [--json FILE]

Overhead: the launcher and a bare posix_spawn with wait4 alternate on the same trivial script, with the same
interpreter, environment and core; what is told is the median of the differences of neighbours, by trial. A session's
run also has its document written and the machine's state read twice, so the second figure is of whole sessions: 150
runs (25 rounds of 6 sides) of a script that computes for 0.4 s of processor time.
Bars: at most 60 ms a run beyond the interpreter's start; 150 runs in at most 75 s.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from bench import shape
from bench.shape import Bar, Row
from workbench.indicators.contract.indicator import Case, Indicator, result
from workbench.indicators.measurement import machine_facts, session_plan
from workbench.indicators.measurement.launcher_client import Launcher, build_clean_environment
from workbench.indicators.measurement.rounds import measure_session
from workbench.indicators.measurement.run_messages import RunCommand, RunLimits
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.store.archive import Arm

MOST_OVERHEAD = Bar("value", at_most=60)
MOST_SESSION = Bar("value", at_most=75)
TRIVIAL = "print('{}')\n"
SPINNING = """
import json, time
begin = time.process_time()
while time.process_time() - begin < 0.385:
    pass
print(json.dumps({"name": "Spinning", "@parameters": {}, "@result": {"elapsed_ms": 400.0}}))
"""


class Spinning(Indicator):
    """Computes for so long that the whole run takes 0.4 s."""

    script: ClassVar[Path | str] = SPINNING
    elapsed_ms: float = result(unit="ms", better="lower")


def bare(script: Path, environment: dict[str, str], cpus: tuple[int, ...]) -> float:
    """Seconds of one run by posix_spawn and wait4 alone."""
    begin_s = time.perf_counter()
    with open(os.devnull, "r+b") as nothing:
        own = os.sched_getaffinity(0)
        # posix_spawn cannot pin; its child inherits.
        os.sched_setaffinity(0, cpus or own)
        actions = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), number) for number in (0, 1, 2)]
        command = [sys.executable, "-s", "-B", str(script)]
        pid = os.posix_spawn(sys.executable, command, environment, file_actions=actions)
        os.sched_setaffinity(0, own)
        os.wait4(pid, 0)
    return time.perf_counter() - begin_s


def overhead_ms(launcher: Launcher, command: RunCommand, script: Path, home: dict[str, str], count: int) -> float:
    """The median difference of a run and the bare one next to it."""
    differences = []
    for number in range(count):
        pair: dict[str, float] = {}
        for which in ("bare", "run") if number % 2 else ("run", "bare"):
            begin_s = time.perf_counter()
            if which == "bare":
                bare(script, home, command.cpus)
            else:
                ended = launcher.run_command(command)
                assert ended.outcome == "exited", ended
            pair[which] = time.perf_counter() - begin_s
        differences.append((pair["run"] - pair["bare"]) * 1e3)
    return statistics.median(differences)


def overheads(trials: int, count: int) -> list[float | None]:
    """Of each trial, in ms."""
    cpus, own = machine_facts.assign_cores(1)
    environment = build_clean_environment(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        Launcher(RunLimits(memory_bytes=4 << 30), [sys.executable], cpus=own) as launcher,
    ):
        script = Path(folder) / "script.py"
        script.write_text(TRIVIAL)
        command = RunCommand(sys.executable, {"script.py": TRIVIAL}, environment, cpus=cpus)
        home = {**environment, "HOME": folder, "TMPDIR": folder}
        return [overhead_ms(launcher, command, script, home, count) for _ in range(trials)]


def session_s(count: int) -> float:
    """Seconds of a session of so many runs, from its plan to its last document."""
    names = [f"side {number}" for number in range(5)]
    arms = [Arm(name=name, stack=name, stack_key=name) for name in names]
    arms.append(arms[0].model_copy(update={"name": "control", "copy_number": 1}))
    sides = [Variant(arm, sys.executable, {}) for arm in arms]
    case = Case.from_parameters(Spinning)
    config = session_config(rounds=(max(1, count // len(sides)),), seed=1)
    with tempfile.TemporaryDirectory() as folder:
        begin_s = time.perf_counter()
        plan = session_plan.build_session_plan("bench", config, sides, [case])
        measure_session(Path(folder), plan, sides, [case])
        return time.perf_counter() - begin_s


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--runs", type=int, default=30, help="pairs a trial")
    parser.add_argument("--session-runs", type=int, default=150)
    asked = parser.parse_args()
    runs, session_runs = (3, 6) if asked.quick else (asked.runs, asked.session_runs // 6 * 6)
    one_run = overheads(asked.trials, runs)
    rows = [
        Row("indicators", "a run beyond the interpreter's start", "workbench", "ms", one_run, bar=MOST_OVERHEAD),
        Row(
            "indicators",
            f"{session_runs} runs of a 0.4 s script",
            "workbench",
            "s",
            [session_s(session_runs)],
            bar=MOST_SESSION,
        ),
    ]
    return shape.finish(rows, asked.json)


if __name__ == "__main__":
    sys.exit(main())
