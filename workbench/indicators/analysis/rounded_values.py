"""Times that were rounded: how far the ratio of two stacks may be off for that, which no number of rounds shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from workbench.indicators.store.archive import PlannedMetric
from workbench.stats import Interval

_UNITS = ("ns", "us", "µs", "ms", "s", "min", "h")
# Rounding errors of values that spread by more than half of a step even out in their mean.
_EVENS_OUT = 0.5


def find_step(values: Sequence[float]) -> float:
    """The last digit of the values, as a number: what they were rounded to, where they were; at most 1.

    >>> find_step([0.012, 0.02]), find_step([4.0, 7.0]), find_step([0.0123456789])
    (0.001, 1.0, 1e-10)
    """
    exponents = (Decimal(repr(float(value))).normalize().as_tuple().exponent for value in values)
    return float(10.0 ** min(0, *(int(exponent) for exponent in exponents)))


def widen_for_rounding(
    interval: Interval, metric: PlannedMetric, base: Sequence[float], arm: Sequence[float]
) -> tuple[Interval, str | None]:
    """The interval of a ratio with what rounding may hide, and that in words; null where it is less than the margin.

    `base`, `arm`: Values of both sides. Whole numbers count as rounded only with a unit of time: others are counts.

    Example: 4 ms in every round on both sides may be 3.6 and 4.4 ms.
    """
    is_time = metric.unit in _UNITS
    is_counted = not is_time and all(value == int(value) for value in (*base, *arm))
    if interval.low is None or interval.high is None or is_counted or min(len(base), len(arm)) < 2:
        return interval, None
    step = find_step([*base, *arm])
    shares = [
        step / 2 / (sum(values) / len(values)) for values in (base, arm) if _measure_spread(values) < _EVENS_OUT * step
    ]
    reach = sum(math.log1p(share) for share in shares)
    widened = replace(interval, low=interval.low * math.exp(-reach), high=interval.high * math.exp(reach))
    if math.expm1(reach) <= metric.tolerance:
        return widened, None
    words = f"its values are rounded to {step:g}{f' {metric.unit}' if metric.unit else ''}, which hides up to"
    return widened, f"{words} {100 * math.expm1(reach):.2g} %: print more digits, or measure more work in a run"


def _measure_spread(values: Sequence[float]) -> float:
    """Standard deviation."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
