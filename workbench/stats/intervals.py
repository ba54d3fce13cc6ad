"""The type `Interval`, checks of observations, t intervals, and the load that meets a target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_items

LEVEL = 0.90
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Parameters
    ----------
    estimate
        The figure, in the unit of the input; null without enough data.
    low, high
        Ends of the interval; null where the data cannot bound that side.
    level
        Nominal confidence (0.90).
    n
        Number of independent observations: pairs, values, clusters or runs, by `method`.
    method
        Name of the method, for tables and captions.
    p_value
        Two-sided, against a ratio of 1; only for tests of that.
    achieved_level
        Exact confidence of the ends, where it can be computed.
    reason
        Why a value is null.
    """

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    method: str
    p_value: float | None = None
    achieved_level: float | None = None
    reason: str | None = None


def finite_or_none(value: float) -> float | None:
    """A number for a table; null when infinite or NaN.

    >>> finite_or_none(1.5), finite_or_none(float("inf")), finite_or_none(float("nan"))
    (1.5, None, None)
    """
    return float(value) if np.isfinite(value) else None


def to_float_array(values: Iterable[float], name: str, *, positive: bool = False) -> Floats:
    """Observations as an array; refuses missing, infinite and (optionally) non-positive ones with their positions.

    >>> to_float_array([1, 2.5], "times").tolist()
    [1.0, 2.5]
    """
    observations = list(values)
    numbers = np.array([np.nan if value is None else value for value in observations], dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers) | ((numbers <= 0) if positive else False))
    if len(wrong):
        raise InputError(
            "values that cannot be used",
            where=f"{name}, position(s) {format_items(wrong)}",
            found=format_items(observations[position] for position in wrong),
            allowed="finite numbers above 0" if positive else "finite numbers",
            do="remove failed and missing observations, and report their number with the figure",
        )
    return numbers


def check_level(value: float, *, name: str = "level") -> None:
    """Refuse a value outside (0, 1)."""
    if not 0 < value < 1:
        raise ConfigError("not between 0 and 1", where=name, found=value, allowed="above 0 and below 1")


def t_interval(values: Floats, level: float) -> tuple[float | None, float | None, float | None]:
    """Mean, half width of its t interval and two-sided p value against 0; null from fewer than two values.

    >>> [round(number, 3) for number in t_interval(np.array([1.0, 2.0, 3.0]), 0.95)]
    [2.0, 2.484, 0.074]
    """
    n = len(values)
    if n < 2:
        return (float(values[0]) if n else None), None, None
    from scipy.special import stdtr, stdtrit

    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
    if not error:
        return mean, 0.0, 0.0 if mean else 1.0
    return mean, float(stdtrit(n - 1, (1 + level) / 2) * error), float(2 * stdtr(n - 1, -abs(mean) / error))


def isotonic_inversion(
    x: Iterable[float], y: Iterable[float], target: float, *, level: float = LEVEL, draws: int = 1000, seed: int = 0
) -> Interval:
    """The largest load at which the latency meets its target, by isotonic regression.

    Fits log y as a non-decreasing function of x (least squares over the runs at each load); the estimate is the largest
    x whose fitted y, interpolated in log y between loads, is at most `target`. The interval comes from a residual
    bootstrap: deviations of runs from the mean of their load, in log y, scaled by sqrt(r / (r - 1)) for r runs.

    `x`, `y`: Load of each run, such as users, and its measurement, such as p95 in ms; positive.

    Returns: `n` counts runs. No estimate, with the reason, when all fitted y meet the target or none does. An end is
    null where resamples leave the measured loads on that side. No ends without a repeated load.

    Coverage at a nominal 90 %, for a smooth convex curve at 8 loads with 3 or 5 runs each and a run-to-run spread of
    5 or 15 %: 86 to 90 % (600 simulations a cell). Straight lines between loads lie above a convex curve, so the
    estimate errs towards less load. Holds for the mean of log y of runs, and only within the measured loads.
    Source: pool adjacent violators (Barlow and others, 1972); residual bootstrap (Davison and Hinkley 1997, 6.2).

    >>> round(isotonic_inversion([1, 2, 4, 8], [10.0, 20.0, 40.0, 160.0], 80.0).estimate, 6)
    6.0
    >>> isotonic_inversion([1, 2], [10.0, 20.0], 80.0).reason
    'every measured load meets the target: the limit is at 2 or above'
    """
    check_level(level)
    loads, logs = to_float_array(x, "x"), np.log(to_float_array(y, "y", positive=True))
    if len(loads) != len(logs):
        raise InputError("x and y are not pairs", found=f"{len(loads)} and {len(logs)} values")
    goal = float(np.log(to_float_array([target], "target", positive=True)[0]))
    method = "isotonic fit of log y, residual bootstrap"
    if not (n := len(loads)):
        return Interval(None, None, None, level, 0, method, reason="no runs")
    levels, place, runs = np.unique(loads, return_inverse=True, return_counts=True)
    fitted = _fit_isotonic(logs, place, runs)
    limit = _invert_fit(levels, fitted, goal)
    estimate, reason = (limit, None) if np.isfinite(limit) else (None, _format_range_reason(limit, levels))
    limits = _resample_limits(logs, (levels, place, runs), fitted, goal, draws, seed)
    if limits is None:
        return Interval(estimate, None, None, level, n, method, reason=reason or "no load was run twice: no interval")
    skipped = int((1 - level) / 2 * draws)
    ends = (finite_or_none(limits[skipped]), finite_or_none(limits[draws - 1 - skipped]))
    return Interval(estimate, *ends, level, n, method, reason=reason)


_Groups = tuple[Floats, npt.NDArray[np.intp], npt.NDArray[np.intp]]


def _resample_limits(
    logs: Floats, groups: _Groups, fitted: Floats, goal: float, draws: int, seed: int
) -> Floats | None:
    """Sorted limits of bootstrap resamples, `draws` of them; null if no load was measured twice.

    `logs`: Log latencies. `groups`: Which of them belong to one load. `fitted`: Fitted log latency by load.
    `goal`: Log latency whose load is wanted.
    """
    levels, place, runs = groups
    # Deviations from the mean of the load, scaled to the spread of runs; only of loads with several runs.
    means = np.bincount(place, logs) / runs
    scaled = (logs - means[place]) * np.sqrt(runs[place] / np.maximum(runs[place] - 1, 1))
    residuals = np.asarray(scaled[runs[place] > 1])
    if not len(residuals):
        return None
    noise = np.random.default_rng(seed).choice(residuals, size=(draws, len(logs)))
    return np.sort([_invert_fit(levels, _fit_isotonic(fitted[place] + row, place, runs), goal) for row in noise])


def _fit_isotonic(logs: Floats, place: npt.NDArray[np.intp], runs: npt.NDArray[np.intp]) -> Floats:
    """Fit a rising line of the mean log latency by load.

    `place` is the load of each value, `runs` the values of each load.
    """
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(np.bincount(place, logs) / runs, weights=runs).x)


def _invert_fit(levels: Floats, fitted: Floats, goal: float) -> float:
    """Level at which the rising line through the points reaches `goal`; -inf below the first point, inf above the last.

    `levels`, `fitted`: Ascending, of equal length.

    >>> _invert_fit(np.array([1.0, 2.0]), np.array([10.0, 20.0]), 15.0)
    1.5
    """
    if fitted[0] > goal:
        return -np.inf
    if fitted[-1] <= goal:
        return np.inf
    last = int(np.searchsorted(fitted, goal, side="right")) - 1
    share = (goal - fitted[last]) / (fitted[last + 1] - fitted[last])
    return float(levels[last] + share * (levels[last + 1] - levels[last]))


def _format_range_reason(limit: float, levels: Floats) -> str:
    if limit > 0:
        return f"every measured load meets the target: the limit is at {levels[-1]:g} or above"
    return f"no measured load meets the target: the limit is below {levels[0]:g}"


def compute_interval_score(low: float, high: float, value: float, level: float) -> float:
    """Interval score of a central interval: its width, and a fine for an outcome outside; less is better.

    high - low + 2 / a * (low - value) below the interval, + 2 / a * (value - high) above it, with a = 1 - level. An
    honest forecaster has the least mean score, so that neither wide nor narrow intervals pay.
    Source: Winkler, A decision-theoretic approach to interval estimation (1972); Gneiting and Raftery, Strictly proper
    scoring rules, prediction, and estimation (2007), equation 43.

    >>> compute_interval_score(1.0, 2.0, 1.5, 0.9), round(compute_interval_score(1.0, 2.0, 2.1, 0.9), 6)
    (1.0, 3.0)
    """
    return high - low + 2 / (1 - level) * (max(0.0, low - value) + max(0.0, value - high))
