"""Ratios with their t intervals on logarithms: pairs, and two groups."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workbench.errors import InputError
from workbench.stats.interval import LEVEL, Interval, check_level, numbers, t_interval


def paired_log_ratio(baseline: Iterable[float], candidate: Iterable[float], *, level: float = LEVEL) -> Interval:
    """How many times faster is the candidate than the baseline, on the same cases?

    The geometric mean of baseline / candidate over pairs (above 1: the candidate is faster), with the t interval and
    test of the mean log ratio, n - 1 degrees of freedom. Pairs must be independent of each other.

    Parameters
    ----------
    baseline, candidate
        Durations in one unit, all positive; the same position is the same case.
    level
        Confidence, in (0, 1).

    Returns
    -------
    Interval
        `n` counts pairs. No estimate for n = 0; no ends and no p value for n = 1. Pairs that all have the same ratio
        give an interval of no width: it then knows nothing of noise that those pairs did not show.

    Raises
    ------
    InputError
        The sides differ in length, or a value is missing or not positive (its positions are named).

    Notes
    -----
    Does not show how a ratio depends on the case, nor the ratio of the summed times (long cases weigh no more here).
    Source: the one-sample t interval on logarithms; Fleming and Wallace, How not to lie with statistics (1986), for
    the geometric mean.

    Examples
    --------
    >>> round(paired_log_ratio([8.0, 2.0], [2.0, 2.0]).estimate, 6)
    2.0
    """
    check_level(level)
    above, below = numbers(baseline, "baseline", positive=True), numbers(candidate, "candidate", positive=True)
    if len(above) != len(below):
        found = f"{len(above)} and {len(below)} values"
        raise InputError("baseline and candidate are not pairs", found=found, allowed="as many of one as of the other")
    logs = np.log(above) - np.log(below)
    mean, half, p_value = t_interval(logs, level)
    method = "paired log ratio, t"
    if mean is None or half is None:
        estimate = None if mean is None else float(np.exp(mean))
        return Interval(
            estimate, None, None, level, len(logs), method, reason=f"{len(logs)} pair(s), at least 2 needed"
        )
    return _bounded(mean, half, len(logs), level, method, p_value)


def welch_log_ratio(baseline: Iterable[float], candidate: Iterable[float], *, level: float = LEVEL) -> Interval:
    """How many times faster is the candidate, when both sides were measured in sessions of their own?

    The ratio of the geometric means of baseline and candidate (above 1: the candidate is faster), with Welch's
    interval and test on logarithms: sides may differ in spread and in number.

    Parameters
    ----------
    baseline, candidate
        One positive duration a session (its median, say), in one unit; sessions independent of each other.
    level
        Confidence, in (0, 1).

    Returns
    -------
    Interval
        `n` counts the sessions of the side that has fewer. No estimate when a side is empty; no ends and no p value
        when a side has one session.

    Raises
    ------
    InputError
        A value is missing or not positive (its positions are named).

    Notes
    -----
    Does not show how the ratio differs between queries or machines. Source: Welch, The generalization of Student's
    problem (1947), with Satterthwaite's degrees of freedom.

    Examples
    --------
    >>> round(welch_log_ratio([8.0, 8.0, 8.0], [2.0, 4.0, 2.0]).estimate, 4)
    3.1748
    """
    check_level(level)
    above, below = (
        np.log(numbers(baseline, "baseline", positive=True)),
        np.log(numbers(candidate, "candidate", positive=True)),
    )
    n, method = min(len(above), len(below)), "log ratio of sessions, Welch's t"
    if not n:
        return Interval(None, None, None, level, 0, method, reason="a side has no sessions")
    difference = float(above.mean() - below.mean())
    if n < 2:
        reason = f"{len(above)} and {len(below)} session(s), at least 2 a side needed"
        return Interval(float(np.exp(difference)), None, None, level, n, method, reason=reason)
    parts = [(float(side.var(ddof=1)) / len(side), len(side)) for side in (above, below)]
    variance = sum(part for part, _ in parts)
    if not variance:
        ratio = float(np.exp(difference))
        return Interval(ratio, ratio, ratio, level, n, method, p_value=0.0 if difference else 1.0)
    degrees = variance**2 / sum(part**2 / (count - 1) for part, count in parts)
    return log_interval(difference, float(np.sqrt(variance)), degrees, n=n, level=level, method=method)


def log_interval(log_estimate: float, error: float, degrees: float, *, n: int, level: float, method: str) -> Interval:
    """The t interval and test of a log ratio of known standard error and degrees of freedom, as a ratio.

    For estimators that find these by themselves. `error` is above 0.
    """
    from scipy.special import stdtr, stdtrit

    half = float(stdtrit(degrees, (1 + level) / 2) * error)
    p_value = float(2 * stdtr(degrees, -abs(log_estimate) / error))
    return _bounded(log_estimate, half, n, level, method, p_value)


def log_error(row: Interval) -> float | None:
    """Standard error of the ratio's logarithm, read off a t interval of n - 1 degrees; null without an interval.

    The inverse of how `paired_log_ratio` makes one.

    Examples
    --------
    >>> round(log_error(paired_log_ratio([1.05, 1.08, 1.02, 1.06], [1.0] * 4)), 4)
    0.0119
    """
    if row.low is None or row.high is None or row.n < 2:
        return None
    from scipy.special import stdtrit

    return float(np.log(row.high / row.low) / 2 / stdtrit(row.n - 1, (1 + row.level) / 2))


def _bounded(mean: float, half: float, n: int, level: float, method: str, p_value: float | None) -> Interval:
    """A log ratio and half the width of its interval as a ratio; no ends where these are beyond any number."""
    with np.errstate(over="ignore", under="ignore"):
        low, estimate, high = (float(np.exp(end)) for end in (mean - half, mean, mean + half))
    if not (low > 0 and np.isfinite(high)):
        known = estimate if estimate > 0 and np.isfinite(estimate) else None
        return Interval(known, None, None, level, n, method, reason="the values are too far apart for an interval")
    return Interval(estimate, low, high, level, n, method, p_value=p_value)
