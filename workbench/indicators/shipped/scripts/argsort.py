"""Find the order of random numbers, without moving them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _arrays
    import _ordering
    from _measure import digest

    arrays, numbers, kind = _ordering.prepared(run, 100_000, ("int64", "int32", "float64", "float32"))
    order = arrays.compiled(arrays.argsort)
    places = run.first(lambda: arrays.listed(order(numbers)))
    _arrays.timed(run, arrays, lambda: order(numbers))
    inputs = arrays.listed(numbers)
    # The numbers in that order, not the places: equal numbers may come in either order.
    answer = [inputs[place] for place in places if 0 <= place < len(inputs)]
    twice = len(places) - len(set(places))
    run.checks["wrong"] = _ordering.misplaced(sorted(inputs), answer) + twice
    run.checks["answer_digest"] = digest(answer, kind)


if __name__ == "__main__":
    import _measure

    _measure.main("Argsort", measure)
