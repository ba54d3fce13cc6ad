"""Multiply two square matrices of random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

WHOLE = {"int32": 32, "uint8": 8}
"""Whole numbers: bits after which they wrap around."""
CHECKED = 64


def operations(n: int) -> int:
    """Additions and multiplications: n*n elements of n products and n - 1 additions each, 2 n^3 - n^2."""
    return n * n * (2 * n - 1)


def measure(run: Run) -> None:
    import _arrays
    import _errors
    from _measure import digest, uniform, wholes

    n = run.whole("n", 512, 1)
    dtype = run.choice("dtype", ("float32", "float64", "float16", "bfloat16", "tfloat32", "int32", "uint8"))
    run.choice("device", ("cpu", "gpu", "auto"))
    seed = run.whole("seed", 0)
    arrays = _arrays.opened(run)
    count, bits = 2 * n * n, _arrays.FLOATS.get(dtype, 0)
    numbers = uniform(count, seed, bits) if bits else wholes(count, seed, 4)
    a, b = (arrays.array(half, (n, n), dtype) for half in (numbers[: n * n], numbers[n * n :]))
    multiply = arrays.compiled(arrays.matmul)
    answer = run.first(lambda: arrays.listed(multiply(a, b)))
    elapsed_ms = _arrays.timed(run, arrays, lambda: multiply(a, b))
    run.results["rate_gflops"] = operations(n) / elapsed_ms / 1e6

    inputs = arrays.listed(a) + arrays.listed(b)
    run.checks["input_digest"] = digest(inputs)
    dots = []
    for i, j in _errors.places((n, n), CHECKED):
        row, column = inputs[i * n : i * n + n], inputs[n * n + j :: n]
        dots.append((answer[i * n + j], row, column))
    run.checks.update(_errors.of_dots(dots, dtype, WHOLE.get(dtype)))


if __name__ == "__main__":
    import _measure

    _measure.main("Matmul", measure)
