"""The load at which a limit is met, by isotonic regression."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from workbench.errors import InputError
from workbench.stats.interval import LEVEL, Floats, Interval, check_level, finite, numbers


def isotonic_inversion(
    x: Iterable[float],
    y: Iterable[float],
    target: float,
    *,
    level: float = LEVEL,
    draws: int = 1000,
    seed: int = 0,
) -> Interval:
    """How far can the load go, so that the latency still meets its target?

    Fits log y as a function that never falls with x (least squares, pooled over the runs at each load) and gives the
    largest x whose fitted y, interpolated in log y between the measured loads, is at most `target`. The interval
    comes from resampling the runs' deviations (in log y, from the mean of their load, enlarged by the root of
    r / (r - 1) for r runs) around the fit.

    Parameters
    ----------
    x
        Loads, such as users or requests per second; several runs at each for an interval.
    y
        What was measured in each run, such as p95 in ms; positive.
    target
        The largest y that is allowed, in y's unit.
    level, draws, seed
        Confidence in (0, 1), number of resamples, start of the random numbers.

    Returns
    -------
    Interval
        `n` counts runs. No estimate, with the reason, when every fitted y meets the target or none does. An end is
        null where the resamples leave the measured loads on that side. No ends when no load was run twice.

    Raises
    ------
    InputError
        x and y differ in length, or a value is missing, not finite, or (y, target) not positive.

    Notes
    -----
    Coverage at a nominal 90 %, for a smooth convex curve at 8 loads with 3 or 5 runs each and a run-to-run spread of
    5 or 15 %: 86 to 90 % (600 simulations a cell). Straight lines between loads lie above a convex curve, so the
    answer errs, if at all, towards less load. Does not show anything beyond the loads that were measured, and holds
    for the mean of log y of such runs, not for the worst run.
    Source: pool adjacent violators (Barlow and others, 1972), by scipy; residual bootstrap, Davison and Hinkley 1997,
    section 6.2.

    Examples
    --------
    >>> round(isotonic_inversion([1, 2, 4, 8], [10.0, 20.0, 40.0, 160.0], 80.0).estimate, 6)
    6.0
    >>> isotonic_inversion([1, 2], [10.0, 20.0], 80.0).reason
    'every measured load meets the target: the limit lies at 2 or above'
    """
    check_level(level)
    loads, logs = numbers(x, "x"), np.log(numbers(y, "y", positive=True))
    if len(loads) != len(logs):
        raise InputError("x and y are not pairs", found=f"{len(loads)} and {len(logs)} values")
    goal = float(np.log(numbers([target], "target", positive=True)[0]))
    method, n = "isotonic fit of log y, residual bootstrap", len(loads)
    if not n:
        return Interval(None, None, None, level, 0, method, reason="no runs")
    levels, place, runs = np.unique(loads, return_inverse=True, return_counts=True)
    fitted = _isotonic(logs, place, runs)
    limit = _inverse(levels, fitted, goal)
    estimate, reason = (limit, None) if np.isfinite(limit) else (None, _out_of_range(limit, levels))
    repeated = runs[place] > 1
    if not repeated.any():
        return Interval(estimate, None, None, level, n, method, reason=reason or "no load was run twice: no interval")
    means = np.bincount(place, logs) / runs
    deviations = ((logs - means[place]) * np.sqrt(runs[place] / np.maximum(runs[place] - 1, 1)))[repeated]
    noise = np.random.default_rng(seed).choice(deviations, size=(draws, n))
    limits = np.sort([_inverse(levels, _isotonic(fitted[place] + row, place, runs), goal) for row in noise])
    tail = (1 - level) / 2
    low, high = limits[int(tail * draws)], limits[draws - 1 - int(tail * draws)]
    return Interval(estimate, finite(low), finite(high), level, n, method, reason=reason)


def _isotonic(logs: Floats, place: npt.NDArray[np.intp], runs: npt.NDArray[np.intp]) -> Floats:
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(np.bincount(place, logs) / runs, weights=runs).x)


def _inverse(levels: Floats, fitted: Floats, goal: float) -> float:
    if fitted[0] > goal:
        return -np.inf
    if fitted[-1] <= goal:
        return np.inf
    last = int(np.searchsorted(fitted, goal, side="right")) - 1
    share = (goal - fitted[last]) / (fitted[last + 1] - fitted[last])
    return float(levels[last] + share * (levels[last + 1] - levels[last]))


def _out_of_range(limit: float, levels: Floats) -> str:
    if limit > 0:
        return f"every measured load meets the target: the limit lies at {levels[-1]:g} or above"
    return f"no measured load meets the target: the limit lies below {levels[0]:g}"
