"""Apply sin or exp to many numbers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

SPAN = 16
"""Inputs lie in [-8, 8): several turns of sin, and exp far from overflow. A power of two, so that scaling is exact."""


def measure(run: Run) -> None:
    import _arrays
    import _errors
    from _measure import digest, uniform

    function = run.choice("function", ("sin", "exp"))
    n = run.whole("n", 100_000, 1)
    dtype = run.choice("dtype", ("float64", "float32"))
    run.choice("device", ("cpu", "gpu", "auto"))
    run.number("most_ulp", 1.0)
    seed = run.whole("seed", 0)
    arrays = _arrays.opened(run)
    numbers = array("d", [SPAN * value for value in uniform(n, seed, _arrays.FLOATS[dtype])])
    x = arrays.array(numbers, (n,), dtype)
    apply = arrays.compiled(arrays.function(function))
    answer = run.first(lambda: arrays.listed(apply(x)))
    _arrays.timed(run, arrays, lambda: apply(x))
    inputs = arrays.listed(x)
    run.checks["input_digest"] = digest(inputs)
    run.checks["error_ulp"] = _errors.of_function(function, inputs, answer, dtype)


if __name__ == "__main__":
    import _measure

    _measure.main("Ufunc", measure)
