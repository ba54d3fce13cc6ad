"""Import a library, once, in a fresh process."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

MODULES = {"scikit-learn": "sklearn"}
"""Libraries whose module has another name."""


def measure(run: Run) -> None:
    framework = run.choice(
        "framework",
        ("numpy", "pandas", "polars", "torch", "tensorflow", "jax", "scipy", "scikit-learn", "pyarrow"),
    )
    before = len(sys.modules)
    start = time.perf_counter_ns()
    run.load(MODULES.get(framework, framework))
    run.results["elapsed_ms"] = (time.perf_counter_ns() - start) / 1e6
    run.results["modules"] = len(sys.modules) - before
    run.framework = framework


if __name__ == "__main__":
    import _measure

    _measure.main("ImportTime", measure)
