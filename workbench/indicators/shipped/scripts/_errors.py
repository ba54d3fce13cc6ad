"""How far a result is from the true one, by the standard library alone."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

FRACTION = {"float64": 52, "float32": 23, "tfloat32": 10, "float16": 10, "bfloat16": 7}
BAD = 1e99
"""Stands for a result that is no number: larger than any bound, and it can be printed."""
MOST_EPS = 16.0
_BITS = 240
_CANDIDATES = 64


def places(shape: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Up to `count` places of an array: its corners, and others spread over it; the same ones every time."""
    size = math.prod(shape)
    count = min(count, size)
    for k in range(count):
        flat, place = k * (size - 1) // max(count - 1, 1), []
        for length in reversed(shape):
            flat, index = divmod(flat, length)
            place.append(index)
        yield tuple(reversed(place))


def of_dots(dots: Iterable[tuple[Any, Sequence[Any], Sequence[Any]]], dtype: str, wraps: int | None) -> dict[str, Any]:
    """Hold sums of products against exact ones: the largest error, and how many are wrong.

    For fractions the unit is the type's epsilon times the sum of the products' sizes: an error of a few units is what
    rounding in this type gives, in whatever order it adds; inputs cut to a smaller type show as hundreds. Whole
    numbers must be equal, after wrapping around at their number of bits.
    """
    worst, wrong = 0.0, 0
    for value, left, right in dots:
        products = [x * y for x, y in zip(left, right)]  # noqa: B905  (strict= is not in Python 3.9)
        if wraps:
            lowest = 0 if dtype.startswith("u") else -(1 << (wraps - 1))
            wrong += value != (sum(products) - lowest) % (1 << wraps) + lowest
            continue
        scale = math.fsum(map(abs, products)) * 2.0 ** -FRACTION[dtype]
        off = abs(value - math.fsum(products))
        error = off / scale if scale else (BAD if off else 0.0)
        error = error if error < BAD else BAD
        worst, wrong = max(worst, error), wrong + (error > MOST_EPS)
    return {"error_eps": worst, "wrong": wrong}


def of_function(name: str, inputs: Sequence[float], outputs: Sequence[float], dtype: str) -> float:
    """The largest error of sin or exp, in units in the last place of the true value.

    All values are held against the standard library's; the ones farthest off, and some others, against the true
    value, which is worked out with whole numbers of 240 bits (a Taylor series; for inputs of size 20 at most).
    """
    quick = getattr(math, name)
    fraction = FRACTION[dtype]
    off = []
    for place, (x, y) in enumerate(zip(inputs, outputs)):  # noqa: B905  (strict= is not in Python 3.9)
        near = quick(x)
        if y != near:
            if not math.isfinite(y):
                return BAD
            off.append((abs(y - near) / _unit(near, fraction), place))
    chosen = {place for _, place in heapq.nlargest(_CANDIDATES, off)}
    chosen.update(range(0, len(inputs), max(len(inputs) // _CANDIDATES, 1)))
    return max((_error(name, inputs[place], outputs[place], fraction) for place in chosen), default=0.0)


def _error(name: str, x: float, y: float, fraction: int) -> float:
    true, got = exact(name, x), _fixed(y)
    if true == 0:
        return 0.0 if y == 0 else BAD
    unit = _fixed(_unit(true / (1 << _BITS), fraction))
    return abs(got - true) / unit


def _unit(value: float, fraction: int) -> float:
    """The distance between neighbours at this value, in a type with so many bits of fraction (no tiny numbers)."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1 - fraction)


def _fixed(value: float) -> int:
    above, below = value.as_integer_ratio()
    return (above << _BITS) // below


def exact(name: str, x: float) -> int:
    """sin or exp of x, times 2**240, right to some 200 bits."""
    at = _fixed(x)
    term, step, total = (at, 2, at) if name == "sin" else (1 << _BITS, 1, 1 << _BITS)
    factor = -((at * at) >> _BITS) if name == "sin" else at
    k = 1 if name == "sin" else 0
    while term not in (0, -1):
        below = (k + 1) * (k + 2) if step == 2 else k + 1
        term, k = ((term * factor) >> _BITS) // below, k + step
        total += term
    return total
