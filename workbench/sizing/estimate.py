"""How many GPUs a load needs: the load that the test GPUs carry at the limit, with an interval, divided.

Pure: samples in, estimates out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workbench import quantiles
from workbench.sizing.curves import CURVES

Floats = npt.NDArray[np.float64]
LEVEL = 0.90
REACH = 1.25
"""How far beyond the largest measured load, and below the lowest, a curve is believed."""
FEWEST_TO_CHOOSE = 5


@dataclass(frozen=True)
class Level:
    """What was measured at one load: a row of values per request (see `quantiles`)."""

    load: float
    values: Floats


@dataclass(frozen=True)
class Capacity:
    """The largest load that meets the limit, with its interval; null where the measured loads cannot give it."""

    value: float | None
    low: float | None
    high: float | None
    method: str | None
    n_levels: int
    n_samples: int
    reason: str | None = None
    advice: str | None = None


def capacity(levels: Sequence[Level], q: float, limit_s: float, *, draws: int = 500, seed: int = 0) -> Capacity:
    """Up to which load does the quantile stay at or below the limit?

    Parameters
    ----------
    levels
        Loads with their samples, steady state only; two at least.
    q, limit_s
        The quantile, inside (0, 1), and its limit in s.
    draws, seed
        Resamples, start of the random numbers.

    Returns
    -------
    Capacity
        `value` by the curve that best predicts each level from the others, near the limit; `low` and `high` are the
        ends of the two-sided 90 % interval from resampled requests, the choice of the curve repeated in each. No
        value, with reason and advice, when the limit is below the curve at the lowest load, or beyond 1.25 times the
        largest. An end that leaves the measured loads so is null.

    Notes
    -----
    Does not show what other GPU counts, routers, models or days would give.
    Source: expanded percentile bootstrap (Hesterberg, What Teachers Should Know About the Bootstrap, 2015) with the
    levels as units, over the circular block bootstrap. With plain percentiles the upper end covered 86 % where latency
    hardly grows with the load.
    """
    ordered = sorted(levels, key=lambda level: level.load)
    loads = np.array([level.load for level in ordered])
    points = np.array([quantiles.quantile_of(level.values, q) for level in ordered])
    usable = np.isfinite(points)
    n = sum(len(level.values) for level in ordered)
    if usable.sum() < 2:
        reason = f"{int(usable.sum())} level(s) with a finite quantile, two needed"
        return Capacity(None, None, None, None, int(usable.sum()), n, reason, "measure more levels")
    kept = [level for level, good in zip(ordered, usable, strict=True) if good]
    loads, points = loads[usable], points[usable]
    random = np.random.default_rng(seed)
    drawn = np.stack([quantiles.resampled(level.values, q, draws, random) for level in kept], axis=1)
    drawn = np.minimum(drawn, 10 * points.max())  # a resample may hold too many failures
    values, chosen = _inverse(loads, np.vstack([points, drawn]), limit_s)
    method = list(CURVES)[int(chosen[0])]
    found = Capacity(float(values[0]), None, None, method, len(kept), sum(len(level.values) for level in kept))
    return _bounded(found, values[1:], loads, points, limit_s)


def _inverse(loads: Floats, latencies: Floats, limit_s: float) -> tuple[Floats, npt.NDArray[np.intp]]:
    """The load at the limit for each row, by the curve that is best for that row."""
    if len(loads) < FEWEST_TO_CHOOSE:
        chosen = np.zeros(len(latencies), dtype=np.intp)
    else:
        chosen = np.argmin(_errors(loads, latencies, limit_s), axis=0)
    limits = np.stack([fit(loads, latencies).inverse(limit_s) for fit in CURVES.values()])
    return limits[chosen, np.arange(len(latencies))], chosen


def _errors(loads: Floats, latencies: Floats, limit_s: float) -> Floats:
    """Per curve and row: how far off, in logarithms, inner levels are when predicted from the others.

    Levels count the more the nearer their latency is to the limit, since only there the curve is used.
    """
    logs = np.log(latencies)
    weights = np.exp(-np.abs(logs - np.log(limit_s)) / NEARNESS)
    total = np.zeros((len(CURVES), len(latencies)))
    for place in range(1, len(loads) - 1):
        others = np.delete(np.arange(len(loads)), place)
        for row, fit in enumerate(CURVES.values()):
            guess = fit(loads[others], latencies[:, others]).at(float(loads[place]))
            off = np.abs(np.log(np.maximum(guess, 1e-3 * latencies[:, place])) - logs[:, place])
            total[row] += weights[:, place] * off
    errors: Floats = total / weights[:, 1:-1].sum(axis=1)
    return errors


NEARNESS = 0.25


def _tail(levels: int) -> float:
    """The share of resamples beyond each end: less than 5 %, since a curve through few levels is itself uncertain."""
    from scipy.special import ndtr, stdtrit

    return float(ndtr(np.sqrt(levels / (levels - 1)) * stdtrit(levels - 1, (1 - LEVEL) / 2)))


def _bounded(found: Capacity, drawn: Floats, loads: Floats, points: Floats, limit_s: float) -> Capacity:
    """The interval; ends and values outside the measured loads are not given."""
    reach = REACH * float(loads[-1])
    # NaN: not even the lowest load meets the limit. So it is smaller than any.
    order = np.sort(np.where(np.isnan(drawn), 0.0, np.minimum(drawn, 1e12)))
    tail = int(_tail(len(loads)) * len(order))
    low, high = float(order[tail]), float(order[-1 - tail])
    ends = replace(found, low=low if low >= loads[0] / REACH else None, high=high if high <= reach else None)
    value = found.value
    if value is None or np.isnan(value) or value < loads[0] / REACH:
        reason = f"{points[0]:.4g} s at the lowest load of {loads[0]:g} is above the limit of {limit_s:g} s"
        return replace(ends, value=None, reason=reason, advice="measure lower loads, or raise the limit")
    if value > reach or (ends.low is not None and ends.low > reach):
        place = "is far below" if points[-1] <= limit_s else "cannot be told from the lower ones, and so not from"
        reason = f"{points[-1]:.4g} s at the largest load of {loads[-1]:g} {place} the limit of {limit_s:g} s"
        more = ", ".join(f"{loads[-1] * factor:g}" for factor in (2, 4, 8))
        return replace(ends, value=None, low=None, high=None, reason=reason, advice=f"add levels, such as {more}")
    return ends
