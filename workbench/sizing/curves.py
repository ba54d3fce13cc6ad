"""Four curves through latencies at measured loads, each fitted to many resamples at once.

`loads` has shape (levels,), rising; `latencies` (resamples, levels), in s. `fit` gives an object that predicts the
latency at a load and inverts: the largest load at which the curve is at or below a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Curve(Protocol):
    """A fitted curve, one for each resample."""

    def at(self, load: float) -> Floats:
        """The latency at a load, in s."""
        ...

    def inverse(self, limit_s: float) -> Floats:
        """The largest load at or below the limit; NaN when none is, infinite when all are."""
        ...


@dataclass(frozen=True)
class Straight:
    """latency = base + slope x load."""

    base: Floats
    slope: Floats

    def at(self, load: float) -> Floats:
        """The latency at a load, in s."""
        return self.base + self.slope * load

    def inverse(self, limit_s: float) -> Floats:
        """The largest load at or below the limit."""
        return _crossing(self.base, self.slope, limit_s)


@dataclass(frozen=True)
class Bent:
    """A straight line up to the knee, a steeper one beyond."""

    base: Floats
    slope: Floats
    knee: Floats
    steeper: Floats

    def at(self, load: float) -> Floats:
        """The latency at a load, in s."""
        return self.base + self.slope * load + self.steeper * np.maximum(0.0, load - self.knee)

    def inverse(self, limit_s: float) -> Floats:
        """The largest load at or below the limit."""
        at_knee = self.base + self.slope * self.knee
        slope = self.slope + self.steeper
        beyond = self.knee + _crossing(at_knee, slope, limit_s)
        return np.where(limit_s >= at_knee, beyond, _crossing(self.base, self.slope, limit_s))


@dataclass(frozen=True)
class Monotone:
    """Never falls, straight between the measured loads; beyond the last it goes on as between the last two steps."""

    loads: Floats
    fitted: Floats

    def at(self, load: float) -> Floats:
        """The latency at a load, in s."""
        right = int(np.clip(np.searchsorted(self.loads, load), 1, len(self.loads) - 1))
        low, high = self.loads[right - 1], self.loads[right]
        share = (load - low) / (high - low)
        between: Floats = self.fitted[:, right - 1] * (1 - share) + self.fitted[:, right] * share
        return between

    def inverse(self, limit_s: float) -> Floats:
        """The largest load at or below the limit."""
        loads, fitted = self.loads, self.fitted
        last = (fitted <= limit_s).sum(axis=1) - 1
        left = np.clip(last, 0, len(loads) - 2)
        rows = np.arange(len(fitted))
        low, rise = fitted[rows, left], fitted[rows, left + 1] - fitted[rows, left]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(rise > 0, (limit_s - low) / rise, np.inf)
            inside = loads[left] + share * (loads[left + 1] - loads[left])
        return np.where(last < 0, np.nan, inside)


def line(loads: Floats, latencies: Floats) -> Straight:
    """Ordinary least squares, as the slope-based calculator does (its removal of outliers left out)."""
    centred = loads - loads.mean()
    slope = latencies @ centred / (centred @ centred)
    return Straight(latencies.mean(axis=1) - slope * loads.mean(), slope)


def theil_sen(loads: Floats, latencies: Floats) -> Straight:
    """The median of the slopes of all pairs; the median of what is left as base. Sen (1968)."""
    left, right = np.triu_indices(len(loads), 1)
    slope = np.median((latencies[:, right] - latencies[:, left]) / (loads[right] - loads[left]), axis=1)
    return Straight(np.median(latencies - slope[:, None] * loads, axis=1), slope)


def hinge(loads: Floats, latencies: Floats) -> Bent:
    """Two lines that meet at a knee: the knee of all between the second and the last but one load that fits best.

    Least squares of relative errors; only knees beyond which the line is steeper, and no falling lines.
    """
    weights = 1 / np.median(latencies, axis=0)
    scaled = latencies * weights
    plain = line(loads, latencies)
    best = Bent(plain.base, plain.slope, np.full(len(latencies), loads[0]), np.zeros(len(latencies)))
    least = np.square((plain.base[:, None] + plain.slope[:, None] * loads) * weights - scaled).sum(axis=1)
    for knee in _knees(loads):
        design = np.stack([np.ones_like(loads), loads, np.maximum(0.0, loads - knee)], axis=1) * weights[:, None]
        base, slope, steeper = np.linalg.pinv(design) @ scaled.T
        error = np.square(np.stack([base, slope, steeper], axis=1) @ design.T - scaled).sum(axis=1)
        better = (error < least) & (steeper >= 0) & (slope >= 0)
        least = np.where(better, error, least)
        best = Bent(
            np.where(better, base, best.base),
            np.where(better, slope, best.slope),
            np.where(better, knee, best.knee),
            np.where(better, steeper, best.steeper),
        )
    return best


def monotone(loads: Floats, latencies: Floats) -> Monotone:
    """Isotonic regression by its min-max formula. Robertson, Wright and Dykstra (1988), section 1.4."""
    levels = len(loads)
    sums = np.concatenate([np.zeros((len(latencies), 1)), np.cumsum(latencies, axis=1)], axis=1)
    fitted = np.empty_like(latencies)
    for place in range(levels):
        ends = np.arange(place + 1, levels + 1)
        starts = np.arange(place + 1)
        means = (sums[:, ends][:, None, :] - sums[:, starts][:, :, None]) / (ends[None, :] - starts[:, None])
        fitted[:, place] = means.min(axis=2).max(axis=1)
    return Monotone(loads, fitted)


CURVES: dict[str, Callable[[Floats, Floats], Curve]] = {
    "monotone": monotone,
    "hinge": hinge,
    "Theil-Sen": theil_sen,
    "line": line,
}


def _knees(loads: Floats) -> Floats:
    inner = loads[1:-1]
    between = np.sqrt(inner[:-1] * inner[1:])
    return np.concatenate([inner, between]) if len(loads) >= 4 else loads[:0]


def _crossing(base: Floats, slope: Floats, limit_s: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            slope > 0,
            np.where(base <= limit_s, (limit_s - base) / slope, np.nan),
            np.where(base <= limit_s, np.inf, np.nan),
        )
