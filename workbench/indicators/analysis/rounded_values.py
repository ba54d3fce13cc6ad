"""Times that were rounded: how far a ratio may be off for that, which no number of runs shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np

from workbench.indicators.analysis.observations import PER_S
from workbench.stats import Interval

# Rounding errors of values that spread by more than this part of a step even out in their mean.
EVENS_OUT = 0.5


def find_step(values: Sequence[float]) -> float:
    """The last digit of the values, as a number: what they were rounded to, where they were; at most 1.

    >>> find_step([0.012, 0.02]), find_step([4.0, 7.0]), find_step([0.0123456789])
    (0.001, 1.0, 1e-10)
    """
    exponents = (int(Decimal(repr(float(value))).normalize().as_tuple().exponent) for value in values)
    return float(10.0 ** min(0, min(exponents, default=0)))


def measure_rounding(sides: Sequence[Sequence[float]], unit: str, step: float | None = None) -> float:
    """How far the log ratio of positive values may be off for rounding: half a step for each side.

    Sides whose values spread by more than half a step count nothing. Whole numbers count as rounded only with a unit
    of time: others are counts. `step`: From more values than these; null: from these alone.

    >>> round(measure_rounding([[4.0, 4.0], [5.0, 5.0]], "ms"), 3), measure_rounding([[4.0, 4.0], [5.0, 5.0]], "B")
    (0.239, 0.0)
    """
    step = find_step([value for values in sides for value in values]) if step is None else step
    if unit not in PER_S and step >= 1:
        return 0.0
    reach = 0.0
    for values in filter(None, sides):
        mean = sum(values) / len(values)
        # At most 1: a value that is not 0 is at least its last digit.
        share = min(1.0, step / mean)
        if np.std(np.divide(values, mean), ddof=min(1, len(values) - 1)) < EVENS_OUT * share:
            reach -= math.log1p(-share / 2)
    return reach


def widen_interval(interval: Interval, reach: float) -> Interval:
    """The interval of a ratio that may be off by `reach` on the log scale besides."""
    if not reach or interval.low is None or interval.high is None:
        return interval
    return replace(interval, low=interval.low * math.exp(-reach), high=interval.high * math.exp(reach), p_value=None)


def describe_rounding(reach: float, margin: float) -> str | None:
    """What rounding may hide, in words; null where it is within the margin."""
    share = math.expm1(reach)
    if share <= margin:
        return None
    return f"rounded values may hide {100 * share:.2g} %: print more digits, or measure more work in a run"
