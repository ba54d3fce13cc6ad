"""Record the sessions of this folder: python data/samples/indicators/record.py numpy|copies OUT

`numpy`: five versions of numpy and the control, six metrics, a session as `workbench indicators run` makes it.
`copies`: four environments of one lock, measured in rounds and once more in blocks, while in the second half another
process takes the machine's memory bandwidth. Whatever is told apart there is made up.

The machine should have nothing else to do: `numpy` takes about two minutes, `copies` about six. Environments are
installed into the user's cache first.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from workbench.core.errors import RunFailedError  # noqa: E402
from workbench.indicators.analysis.effects import compare_session  # noqa: E402
from workbench.indicators.analysis.observations import load_observations  # noqa: E402
from workbench.indicators.contract.indicator import Case, Indicator, check, parameter, result  # noqa: E402
from workbench.indicators.measurement.rounds import measure_session  # noqa: E402
from workbench.indicators.measurement.session_config import session_config  # noqa: E402
from workbench.indicators.measurement.session_plan import build_session_plan  # noqa: E402
from workbench.indicators.measurement.session_progress import SessionWatcher  # noqa: E402
from workbench.indicators.measurement.stack_variants import Variant, install_variants  # noqa: E402
from workbench.indicators.shipped.indicator_classes import parse_case  # noqa: E402
from workbench.indicators.stacks.environments import ensure_environment  # noqa: E402
from workbench.indicators.stacks.stack_request import build_stack_request  # noqa: E402
from workbench.indicators.stacks.stack_sets import Stack, StackSet  # noqa: E402
from workbench.indicators.stacks.stack_solver import solve_request  # noqa: E402
from workbench.indicators.store.archive import CONTROL, Session  # noqa: E402
from workbench.indicators.tables import OBSERVATIONS, RUNS  # noqa: E402


class AddLarge(Indicator):
    """Add a number to an array that no cache holds: as fast as memory is."""

    requires: ClassVar[tuple[str, ...]] = ("numpy",)
    n: int = parameter(4_000_000, ge=1)
    elapsed_ms: float = result(unit="ms", better="lower")
    wrong: int = check(equals=0)
    script: ClassVar[str] = """
import json, os, statistics, time
import numpy as np
n = int(os.environ["PI_N"])
numbers, sums, times = np.arange(n, dtype="float64"), np.zeros(n), []
for _ in range(12):
    begun = time.perf_counter()
    np.add(numbers, 1.0, out=sums)
    times.append(1000 * (time.perf_counter() - begun))
document = {"name": "AddLarge", "framework": "numpy", "@parameters": {"n": n}}
document["@result"] = {"elapsed_ms": statistics.median(times)}
document["@checks"] = {"wrong": int((sums - numbers != 1).sum())}
print(json.dumps(document))
"""


BASELINE = "numpy 2.2.6"
VERSIONS = ("1.24.4", "1.26.4", "2.0.2", "2.2.6", "2.4.6")
CASES = ("sort", "argsort", "ufunc:function=sin", "ufunc:function=exp", "matmul", "scalarloop")
HOG = """
import os
import numpy as np
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
a, b = np.zeros(40_000_000), np.zeros(40_000_000)
while True:
    np.add(a, 1.0, out=b)
"""


def solve_stacks() -> StackSet:
    """One lock a version, the baseline first."""
    solved = [solve_request(build_stack_request(requirements=(f"numpy=={version}",))) for version in VERSIONS]
    stacks = [stack_set.stacks[0] for stack_set in solved]
    named = [stack.model_copy(update={"name": f"numpy {stack.versions['numpy']}"}) for stack in stacks]
    in_order = sorted(named, key=lambda stack: stack.name != BASELINE)
    return solved[0].model_copy(update={"stacks": tuple(in_order)})


class Halfway(SessionWatcher):
    """Takes the machine's memory bandwidth from the middle of the session on."""

    def __init__(self, python: str) -> None:
        self.python, self.left = python, 0
        self.hog: subprocess.Popen[bytes] | None = None

    def report_start(self, done: int, total: int) -> None:
        """So many runs are to come."""
        self.left = (total - done) // 2

    def report_run(self, arm: str, case: str, status: str) -> None:
        """One less; at half, the other process begins."""
        del arm, case, status
        self.left -= 1
        if self.left == 0:
            self.hog = subprocess.Popen([self.python, "-c", HOG])

    def alive(self) -> bool:
        """Does it take the bandwidth now? Called at the end: a process that died took it for less than was said."""
        return self.hog is not None and self.hog.poll() is None

    def end(self) -> None:
        """Leave the machine alone again."""
        if self.hog is not None:
            self.hog.kill()
            self.hog.wait()


def numpy_versions(out: Path) -> Session:
    """The session of five versions."""
    sides = install_variants(solve_stacks(), BASELINE, max_download_bytes=2_000_000_000)
    cases = [parse_case(text) for text in CASES]
    plan = build_session_plan(session_id(), session_config(rounds=(10,), seed=1), sides, cases)
    return measure_session(out, plan, sides, cases)


def copies(out: Path, design: str, *, rounds: int = 30, seed: int = 1, hog: bool = True) -> Session:
    """Four environments of one lock, all alike."""
    stack_set = solve_stacks()
    stack = stack_set.stacks[0]
    alone = stack_set.model_copy(update={"stacks": (stack,)})
    base, control = install_variants(alone, max_download_bytes=2_000_000_000)
    more = [_copy(base, stack, number) for number in (2, 3)]
    cases = [*(parse_case(text) for text in CASES if "exp" not in text), Case.from_parameters(AddLarge)]
    plan = build_session_plan(
        session_id(), session_config(rounds=(rounds,), seed=seed, design=design), [base, *more, control], cases
    )
    watcher = Halfway(base.interpreter)
    try:
        session = measure_session(out, plan, [base, *more, control], cases, watcher=watcher if hog else None)
        if hog and not watcher.alive():
            raise RunFailedError("the process that takes the memory bandwidth did not live to the end")
        return session
    finally:
        watcher.end()


def _copy(side: Variant, stack: Stack, number: int) -> Variant:
    arm = side.arm.model_copy(update={"name": f"copy {number}"})
    return replace(side, arm=arm, interpreter=str(ensure_environment(stack, copy=number).python))


def session_id() -> str:
    """As of a run folder, without its random end."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-sample"


def main() -> None:
    """Record what is asked for; `copies` keeps the tables of runs and values alone."""
    what, out = sys.argv[1], Path(sys.argv[2])
    if what == "numpy":
        numpy_versions(out)
        print(compare_session(load_observations(out)).effects)
        return
    for design in ("rounds", "blocks"):
        with tempfile.TemporaryDirectory() as folder:
            copies(Path(folder), design)
            found = load_observations(Path(folder))
        for table, frame in ((RUNS, found.runs), (OBSERVATIONS, found.values)):
            table.write(frame, out / design)
        assert CONTROL in found.runs["arm"].to_list()


if __name__ == "__main__":
    main()
