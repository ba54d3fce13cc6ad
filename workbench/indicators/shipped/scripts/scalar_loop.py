"""Read numbers one by one in a Python loop and add to each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def loop(x: Any, n: int) -> list[Any]:
    """What is measured: indexing, one addition, one list."""
    return [x[i] + 1.0 for i in range(n)]


def measure(run: Run) -> None:
    from _measure import digest, uniform

    framework = run.choice("framework", ("numpy", "python", "torch", "pandas", "polars"))
    n = run.whole("n", 5_000, 1)
    numbers = uniform(n, run.whole("seed", 0))
    vector: Any = list(numbers)
    if framework == "python":
        run.build["version"] = _python()
    else:
        module = run.load(framework)
        make = {"numpy": "array", "torch": "tensor"}.get(framework, "Series")
        kind = {"torch": "float64", "polars": "Float64"}.get(framework)
        vector = getattr(module, make)(vector, dtype=getattr(module, kind) if kind else "float64")
    answer = run.first(lambda: [float(value) for value in loop(vector, n)])
    run.time(lambda: loop(vector, n))
    run.checks["input_digest"] = digest(numbers)
    run.checks["wrong"] = sum(
        number != other
        for number, other in zip(answer, [value + 1.0 for value in numbers])  # noqa: B905
    )


def _python() -> str:
    import platform

    return platform.python_version()


if __name__ == "__main__":
    import _measure

    _measure.main("ScalarLoop", measure)
