"""Show a first value, once, in a fresh process: what a library does late, it does here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

GREETING = [72, 101, 108, 108, 111]
MAKE: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda module: module.array(GREETING) + 0,
    "pandas": lambda module: module.Series(GREETING) + 0,
    "polars": lambda module: module.Series(GREETING) + 0,
    "torch": lambda module: module.tensor(GREETING) + 0,
    "tensorflow": lambda module: (module.constant(GREETING) + 0).numpy(),
    "jax": lambda module: module.numpy.array(GREETING) + 0,
}
"""The least that makes each of them compute: five numbers, and 0 added."""


def measure(run: Run) -> None:
    framework = run.choice("framework", tuple(MAKE))
    module = run.load(framework)
    start = time.perf_counter_ns()
    greeting = run.first(lambda: MAKE[framework](module))
    sys.stderr.write(f"{greeting}\n")
    run.results["elapsed_ms"] = (time.perf_counter_ns() - start) / 1e6
    run.checks["wrong"] = int(bytes(map(int, greeting)) != bytes(GREETING))


if __name__ == "__main__":
    import _measure

    _measure.main("Hello", measure)
