"""Add up, find the largest and count, by key."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

BITS = 12
"""Bits of a value: sums of so short fractions are exact in any order, so that the right answer is one answer."""


def measure(run: Run) -> None:
    import _frames
    from _measure import digest, uniform, wholes

    n, groups = run.whole("n", 100_000, 1), run.whole("groups", 1_000, 1)
    seed = run.whole("seed", 0)
    frames = _frames.opened(run)
    keys = array("q", [key % groups for key in wholes(n, seed, 30)])
    values = uniform(n, seed + 1, BITS)
    frame = frames.frame({"key": keys, "value": values})
    answer = run.first(lambda: frames.listed(frames.totals(frame)))
    run.time(lambda: frames.totals(frame))

    inputs = frames.listed(frame)
    run.checks["input_digest"] = digest(inputs["key"] + inputs["value"])
    right: dict[int, list[float]] = {}
    for key, value in zip(inputs["key"], inputs["value"]):  # noqa: B905
        total = right.setdefault(key, [0.0, value, 0])
        total[0] += value
        total[1] = max(total[1], value)
        total[2] += 1
    by_key = dict(zip(answer["key"], zip(answer["sum"], answer["max"], answer["count"])))  # noqa: B905
    wrong = sum(by_key.get(key) != tuple(total) for key, total in right.items())
    run.checks["wrong"] = wrong + abs(len(answer["key"]) - len(right))
    run.checks["answer_digest"] = _frames.text_digest(
        (key, float(by_key[key][0]), float(by_key[key][1]), int(by_key[key][2])) for key in sorted(by_key)
    )


if __name__ == "__main__":
    import _measure

    _measure.main("GroupBy", measure)
