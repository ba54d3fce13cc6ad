"""Levels and drifts of a series of noisy figures whose own errors differ: optimal partition by weighted squares."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MIN_SEGMENT = 4
"""Points of a level: fewer are outliers."""
MIN_POINTS = 3 * MIN_SEGMENT
MAX_POINTS = 2_000
MIN_DRIFT = MIN_POINTS
"""Points of a drift: a slope through fewer is noise."""
_MAX_DEVIATIONS = 4.0
_N_NEIGHBOURS = 2 * MIN_SEGMENT - 1
_N_NEAREST = 3
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


def find_outliers(values: Floats, errors: Floats) -> npt.NDArray[np.bool_]:
    """Find the points with fewer than three others within four deviations, among any seven in a row, (points,).

    A level has four points; beside a step or an end, those of its own side are enough.
    """
    if not len(values):
        return np.zeros(0, dtype=bool)
    reach = _N_NEIGHBOURS - 1
    spreads = np.sqrt(_estimate_early_variances(values, errors))
    others, theirs = (
        np.lib.stride_tricks.sliding_window_view(np.pad(one, reach, constant_values=np.nan), 2 * reach + 1)
        for one in (values, spreads)
    )
    wider = np.fmax(theirs, spreads[:, None])
    # Missing neighbours beyond the ends are near nobody.
    near = np.abs(others - values[:, None]) <= _MAX_DEVIATIONS * wider
    counts = np.lib.stride_tricks.sliding_window_view(near, _N_NEIGHBOURS, axis=1).sum(axis=2)
    found: npt.NDArray[np.bool_] = counts.max(axis=1) < MIN_SEGMENT
    return found


def _estimate_early_variances(values: Floats, errors: Floats) -> Floats:
    """Variances of the points with a spread that is cut early, so that outliers do not widen it, (points,)."""
    return estimate_variances(values, errors, estimate_spread(values, errors, cuts=(_EARLY_CUT,)))


def replace_outliers(values: Floats, errors: Floats, outliers: npt.NDArray[np.bool_]) -> Floats:
    """The series with each outlier set to the median of the nearest points that are none; at a step, of one side."""
    cleaned = values.copy()
    kept = np.flatnonzero(~outliers)
    limits = _MAX_DEVIATIONS * np.sqrt(_estimate_early_variances(values, errors))
    for place in np.flatnonzero(outliers):
        before, after = (values[side] for side in (kept[kept < place][-_N_NEAREST:], kept[kept > place][:_N_NEAREST]))
        sides = [side for side in (before, after) if len(side)]
        if len(sides) == 2 and abs(np.median(before) - np.median(after)) <= limits[place]:
            sides = [np.concatenate(sides)]
        centres = [float(np.median(side)) for side in sides]
        cleaned[place] = min(centres, key=lambda centre: abs(centre - values[place]), default=values[place])
    return cleaned


def compute_penalty(n: int) -> float:
    """Reduction of the weighted sum of squares that a change of level must bring, in a series of n points."""
    return _PENALTY + _PENALTY_PER_LOG * math.log(n)


@dataclass(frozen=True)
class Segment:
    """Points of one level, from `start` to before `end`; or of a drift, along a line."""

    start: int
    end: int
    is_drift: bool = False


def find_segments(values: npt.ArrayLike, errors: npt.ArrayLike) -> list[Segment]:
    """Divide a series into levels and drifts.

    `values`: Figures in order, such as log ratios to a reference of the same session. `errors`: Their standard errors.

    Returns: At least one; one level for fewer than 12 points.

    The partition with the least sum of squares, in units of each point's variance, and a penalty for each further
    segment and each slope; found by optimal partitioning (Jackson and others 2005), which is exact. A level has at
    least four points, a drift twelve; a point far from its neighbours counts as these, at the ends as inside. Does not
    show: changes of the noise alone. Error rates: docs/guide/indicators-measured.md.

    >>> noise = np.random.default_rng(2).normal(0, 1, 40)
    >>> find_segments(noise + 4 * (np.arange(40) >= 25), np.zeros(40))
    [Segment(start=0, end=25, is_drift=False), Segment(start=25, end=40, is_drift=False)]
    >>> find_segments(noise + np.arange(40), np.zeros(40))
    [Segment(start=0, end=40, is_drift=True)]
    """
    return divide_series(values, errors).segments


def _partition(cleaned: Floats, errors: Floats, spread: float) -> list[Segment]:
    """The segments of `find_segments`, of a series without outliers; `spread` is that between its points."""
    n = len(cleaned)
    if n < MIN_POINTS:
        return [Segment(0, n)]
    squares = _WeightedSquares(cleaned, 1 / estimate_variances(cleaned, errors, spread))
    penalty = compute_penalty(n)
    costs = np.full(n + 1, np.inf)
    costs[0], best = 0.0, [Segment(0, 0)] * (n + 1)
    for end in range(MIN_SEGMENT, n + 1):
        flat, sloped = squares.sum_residuals(end)
        sloped = sloped + penalty
        totals = costs[: len(flat)] + np.minimum(flat, sloped) + penalty
        start = int(np.argmin(totals))
        costs[end], best[end] = totals[start], Segment(start, end, bool(sloped[start] < flat[start]))
    segments = [best[n]]
    while segments[0].start:
        segments.insert(0, best[segments[0].start])
    return segments


@dataclass(frozen=True)
class DividedSeries:
    """A series of figures in order, divided into levels and drifts.

    `values`, `errors`: The figures with their standard errors. `outliers`: Which of them are far from their neighbours;
    `cleaned`: the series without these. `spread`: Standard deviation between points, beyond their own errors;
    `variances`: both together, squared.
    """

    values: Floats
    errors: Floats
    outliers: npt.NDArray[np.bool_]
    cleaned: Floats
    spread: float
    variances: Floats
    segments: list[Segment]

    def fit_line(self, segment: Segment, place: float) -> tuple[float, float]:
        """Value at a place of a segment's level or line, and its standard error."""
        if segment.is_drift:
            return self._fit_drift(segment, place)[0]
        part = slice(segment.start, segment.end)
        return estimate_level(self.cleaned[part], self.variances[part])

    def estimate_drift(self, segment: Segment) -> tuple[float, float]:
        """Difference of the values at the end and at the begin of a drift's line, and its standard error."""
        slope, error = self._fit_drift(segment, segment.start)[1]
        steps = segment.end - segment.start - 1
        return steps * slope, steps * error

    def _fit_drift(self, segment: Segment, place: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Value at a place and slope of a segment's line, each with its standard error."""
        part = slice(segment.start, segment.end)
        values, weights = self.cleaned[part], 1 / self.variances[part]
        places = np.arange(segment.start, segment.end) - place
        matrix = np.column_stack([np.ones(len(places)), places])
        covariance = np.linalg.inv(matrix.T @ (weights[:, None] * matrix))
        fitted = covariance @ (matrix.T @ (weights * values))
        scatter = float(np.sum(weights * (values - matrix @ fitted) ** 2)) / (len(places) - 2)
        errors = np.sqrt(max(1.0, scatter) * np.diag(covariance))
        return (float(fitted[0]), float(errors[0])), (float(fitted[1]), float(errors[1]))


def divide_series(values: npt.ArrayLike, errors: npt.ArrayLike) -> DividedSeries:
    """Divide a series into levels and drifts, as `find_segments` does, with what estimates them."""
    series, standard_errors = np.asarray(values, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if series.shape != standard_errors.shape or not (np.isfinite(series).all() and np.isfinite(standard_errors).all()):
        raise ValueError("values and errors: finite numbers, as many of each")
    if len(series) > MAX_POINTS:
        raise ValueError(f"more than {MAX_POINTS:,} points")
    outliers = find_outliers(series, standard_errors)
    cleaned = replace_outliers(series, standard_errors, outliers)
    spread = estimate_spread(cleaned, standard_errors)
    variances = estimate_variances(series, standard_errors, spread)
    segments = _partition(cleaned, standard_errors, spread)
    return DividedSeries(series, standard_errors, outliers, cleaned, spread, variances, segments)


def estimate_level(values: Floats, variances: Floats) -> tuple[float, float]:
    """Weighted mean of a level and its standard error, which grows where the values scatter more than expected."""
    weights = 1 / variances
    mean = float(np.average(values, weights=weights))
    scatter = float(np.sum(weights * (values - mean) ** 2)) / max(1, len(values) - 1)
    return mean, math.sqrt(max(1.0, scatter) / float(weights.sum()))


def find_change_points(values: npt.ArrayLike, errors: npt.ArrayLike) -> list[int]:
    """First position of each segment of `find_segments` but the first."""
    return [segment.start for segment in find_segments(values, errors)[1:]]


class _WeightedSquares:
    """Sums of squares around a segment's weighted mean and line, from cumulative sums."""

    def __init__(self, values: Floats, weights: Floats) -> None:
        centred = values - np.average(values, weights=weights)
        places = np.arange(len(values)) - (len(values) - 1) / 2
        factors = np.stack([np.ones_like(centred), centred, centred**2, places, places**2, places * centred])
        self._sums = np.pad(np.cumsum(weights * factors, axis=1), ((0, 0), (1, 0)))

    def sum_residuals(self, end: int) -> tuple[Floats, Floats]:
        """Squares of all segments of at least four points that end before `end`, around a level and around a line.

        Infinite for a line of fewer points than a drift has. Both are (starts,), by the segment's first position.
        """
        starts = np.arange(end - MIN_SEGMENT + 1)
        weight, first, second, place, places, product = self._sums[:, end, None] - self._sums[:, starts]
        flat = np.maximum(0.0, second - first**2 / weight)
        spread = np.maximum(places - place**2 / weight, 1e-300)
        sloped = np.maximum(0.0, flat - (product - place * first / weight) ** 2 / spread)
        sloped[starts > end - MIN_DRIFT] = np.inf
        return flat, sloped
