"""Sort random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _arrays
    import _ordering
    from _measure import digest

    arrays, numbers, kind = _ordering.prepared(run, 100_000, ("float64", "float32", "int64", "int32"))
    order = arrays.compiled(arrays.sort)
    answer = run.first(lambda: arrays.listed(order(numbers)))
    _arrays.timed(run, arrays, lambda: order(numbers))
    run.checks["wrong"] = _ordering.misplaced(sorted(arrays.listed(numbers)), answer)
    run.checks["answer_digest"] = digest(answer, kind)


if __name__ == "__main__":
    import _measure

    _measure.main("Sort", measure)
