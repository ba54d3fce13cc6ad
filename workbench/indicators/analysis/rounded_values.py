"""Times that were rounded: how far a ratio may be off for that, which no number of runs shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from workbench.indicators.store.archive import PlannedMetric
from workbench.stats import Interval

_UNITS = ("ns", "us", "µs", "ms", "s", "min", "h")
# Rounding errors of values that spread by more than this part of a step even out in their mean.
EVENS_OUT = 0.5


def find_step(values: Sequence[float]) -> float:
    """The last digit of the values, as a number: what they were rounded to, where they were; at most 1.

    >>> find_step([0.012, 0.02]), find_step([4.0, 7.0]), find_step([0.0123456789])
    (0.001, 1.0, 1e-10)
    """
    exponents = (Decimal(repr(float(value))).normalize().as_tuple().exponent for value in values)
    return float(10.0 ** min(0, *(int(exponent) for exponent in exponents)))


def measure_rounding(sides: Sequence[Sequence[float]], unit: str, step: float | None = None) -> float:
    """How far the log ratio of positive values may be off for rounding: half a step for each side.

    Sides whose values spread by more than half a step count nothing. Whole numbers count as rounded only with a unit
    of time: others are counts. `step`: From more values than these; null: from these alone.

    >>> round(measure_rounding([[4.0, 4.0], [5.0, 5.0]], "ms"), 3), measure_rounding([[4.0, 4.0], [5.0, 5.0]], "B")
    (0.239, 0.0)
    """
    everything = [value for values in sides for value in values]
    if unit not in _UNITS and all(value == int(value) for value in everything):
        return 0.0
    step = find_step(everything) if step is None else step
    still = [values for values in sides if values and _measure_spread(values) < EVENS_OUT * step]
    return sum(-math.log1p(-step / 2 / (sum(values) / len(values))) for values in still)


def widen_interval(interval: Interval, reach: float) -> Interval:
    """The interval of a ratio that may be off by `reach` on the log scale besides."""
    if not reach or interval.low is None or interval.high is None:
        return interval
    return replace(interval, low=interval.low * math.exp(-reach), high=interval.high * math.exp(reach))


def describe_rounding(reach: float, metric: PlannedMetric) -> str | None:
    """What rounding may hide, in words; null where it is within the metric's margin."""
    share = math.expm1(reach)
    if share <= metric.tolerance:
        return None
    return f"rounded values may hide {100 * share:.2g} %: print more digits, or measure more work in a run"


def _measure_spread(values: Sequence[float]) -> float:
    """Standard deviation; 0 of one value."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))
