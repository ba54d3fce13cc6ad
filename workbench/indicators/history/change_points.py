"""Change points of a series of noisy figures whose own errors differ: PELT on weighted sums of squares."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from ruptures import Pelt
from ruptures.base import BaseCost

Floats = npt.NDArray[np.float64]
MIN_SEGMENT = 4
"""Points of a level: fewer are outliers."""
MIN_POINTS = 3 * MIN_SEGMENT
MAX_POINTS = 2_000
_MAX_DEVIATIONS = 4.0
_EARLY_CUT = 1.0
_PENALTY, _PENALTY_PER_LOG = 6.0, 1.25


def estimate_spread(values: Floats, errors: Floats, *, cuts: tuple[float, ...] = (0.5, 1.0, 2.0)) -> float:
    """Standard deviation between neighbouring points beyond their own errors; 0 where the errors explain it.

    `values`, `errors`: Points in order and their standard errors, both (points,), in one unit.

    It is the value for which the squared differences of neighbours, in units of their variance and cut at so many
    deviations, have the mean that normal ones have: changes of level and few outliers hardly move it. Of several cuts
    the largest value counts, since a spread that is too small makes changes of noise. Source: Huber, Robust estimation
    of a location parameter (1964), proposal 2, on differences.

    >>> draw = np.random.default_rng(1)
    >>> errors = draw.uniform(0.5, 1.5, 2000)
    >>> values = draw.normal(0, np.sqrt(errors**2 + 4)) + 50 * (np.arange(2000) > 700)
    >>> 1.9 < estimate_spread(values, errors) < 2.1
    True
    """
    squares, variances = np.diff(values) ** 2, errors[1:] ** 2 + errors[:-1] ** 2
    return max(_solve_spread(squares, variances, cut) for cut in cuts) if len(squares) else 0.0


def _solve_spread(squares: Floats, variances: Floats, cut: float) -> float:
    """Standard deviation at which the capped squares have the mean of normal noise, found by halving an interval.

    `squares`, `variances`: Squared differences of neighbours and the part of their variance that is known,
    (differences,).
    `cut`: Number of deviations at which a difference is capped.
    """
    tail, density = math.erfc(cut / math.sqrt(2)), math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    expected = 1 - tail - 2 * cut * density + cut**2 * tail
    low, high = 0.0, float(np.sqrt(squares.max()))
    for _ in range(60):
        middle = (low + high) / 2
        variance = 2 * middle**2 + variances
        ratios = np.divide(squares, variance, out=np.full_like(squares, np.inf), where=variance > 0)
        if np.minimum(ratios, cut**2).mean() > expected:
            low = middle
        else:
            high = middle
    return low


def estimate_variances(values: Floats, errors: Floats, spread: float) -> Floats:
    """Variance of each point, (points,): of its own error, and of what varies between points (`spread`)."""
    return errors**2 + max(spread, 1e-12, 1e-9 * float(np.abs(values).max(initial=0.0))) ** 2


def remove_outliers(values: Floats, errors: Floats) -> Floats:
    """The series with points farther than four deviations from the median of five neighbours set to that median.

    A median of neighbours keeps steps, so that the points beside a change stay as they are.
    """
    medians = _median_of_five(values)
    # Cut early, so that the outliers themselves do not widen the limit.
    variances = estimate_variances(values, errors, estimate_spread(values, errors, cuts=(_EARLY_CUT,)))
    # The median of noisy neighbours is noisy too: their variance counts where it is larger than the point's own.
    limits = _MAX_DEVIATIONS * np.sqrt(np.maximum(variances, _median_of_five(variances)))
    return np.where(np.abs(values - medians) > limits, medians, values)


def _median_of_five(values: Floats) -> Floats:
    """Median of each value and its two neighbours on either side, (points,); the ends repeat themselves."""
    medians: Floats = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(values, 2, mode="edge"), 5), axis=1)
    return medians


def compute_penalty(n: int) -> float:
    """Reduction of the weighted sum of squares that a change of level must bring, in a series of n points."""
    return _PENALTY + _PENALTY_PER_LOG * math.log(n)


def find_change_points(values: npt.ArrayLike, errors: npt.ArrayLike) -> list[int]:
    """Find where the level of a series changes.

    `values`: Figures in order, such as log ratios to a reference of the same session.

    Returns: First position of each new level; empty for fewer than 12 points.

    PELT (Killick, Fearnhead and Eckley 2012; library `ruptures`) with squares in units of each point's variance and at
    least four points a level. Does not show: drifts, which have no change point, and changes of the noise alone. Error
    rates: docs/guide/indicators.md.

    >>> noise = np.random.default_rng(2).normal(0, 1, 40)
    >>> find_change_points(noise, np.zeros(40)), find_change_points(noise + 4 * (np.arange(40) >= 25), np.zeros(40))
    ([], [25])
    """
    series, standard_errors = np.asarray(values, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if series.shape != standard_errors.shape or not (np.isfinite(series).all() and np.isfinite(standard_errors).all()):
        raise ValueError("values and errors: finite numbers, as many of each")
    if len(series) > MAX_POINTS:
        raise ValueError(f"more than {MAX_POINTS:,} points")
    if len(series) < MIN_POINTS:
        return []
    cleaned = remove_outliers(series, standard_errors)
    cost = _WeightedSquares(1 / estimate_variances(cleaned, standard_errors, estimate_spread(cleaned, standard_errors)))
    search = Pelt(custom_cost=cost, min_size=MIN_SEGMENT, jump=1).fit(cleaned)
    return [int(end) for end in search.predict(pen=compute_penalty(len(series)))[:-1]]


class _WeightedSquares(BaseCost):  # type: ignore[misc]
    """Sum of squares around a segment's weighted mean, from cumulative sums."""

    model = "weighted squares"
    min_size = MIN_SEGMENT

    def __init__(self, weights: Floats) -> None:
        self._weights = weights

    def fit(self, signal: Floats) -> _WeightedSquares:
        """Take the series."""
        self.signal = signal.reshape(-1, 1)
        centred = signal - np.average(signal, weights=self._weights)
        parts = self._weights, self._weights * centred, self._weights * centred**2
        self._sums = [np.concatenate([[0.0], np.cumsum(part)]).tolist() for part in parts]
        return self

    def error(self, start: int, end: int) -> float:
        """Cost of the segment from `start` to before `end`."""
        weight, first, second = (sums[end] - sums[start] for sums in self._sums)
        return max(0.0, float(second - first**2 / weight))
