"""Join two tables on a whole number: each row of one with its partner in the other, where there is one."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _frames
    from _measure import digest, uniform, wholes

    n, partners = run.whole("n", 50_000, 1), run.whole("partners", 10_000, 1)
    seed = run.whole("seed", 0)
    frames = _frames.opened(run)
    # Keys of the right side are every second number, shuffled: about half of the left rows find a partner.
    order = wholes(partners, seed + 1, 40)
    right_keys = array("q", [2 * k for k in sorted(range(partners), key=order.__getitem__)])
    left_keys = array("q", [key % (2 * partners) for key in wholes(n, seed, 40)])
    left = frames.frame({"key": left_keys, "left": array("q", range(n))})
    right = frames.frame({"key": right_keys, "right": uniform(partners, seed + 2)})
    answer = run.first(lambda: frames.listed(frames.join(left, right)))
    run.time(lambda: frames.join(left, right))

    held_left, held_right = frames.listed(left), frames.listed(right)
    run.checks["input_digest"] = digest(held_left["key"] + held_right["key"] + held_right["right"])
    value = dict(zip(held_right["key"], held_right["right"]))  # noqa: B905
    rows = sorted(zip(answer["left"], answer["key"], answer["right"]))  # noqa: B905
    expected = [
        (place, key, value[key])
        for place, key in zip(held_left["left"], held_left["key"])  # noqa: B905
        if key in value
    ]
    differ = sum(row != other for row, other in zip(rows, expected))  # noqa: B905
    run.checks["wrong"] = differ + abs(len(rows) - len(expected))
    run.checks["answer_digest"] = _frames.text_digest((int(a), int(b), float(c)) for a, b, c in rows)


if __name__ == "__main__":
    import _measure

    _measure.main("Join", measure)
