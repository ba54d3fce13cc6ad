"""Ratios with intervals: paired, two groups (Welch), and of two independent estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from workbench.core.errors import InputError
from workbench.stats.intervals import LEVEL, Interval, check_level, t_interval, to_float_array

INDEPENDENT_RATIO_METHOD = "ratio of independent estimates, half widths in quadrature"


def paired_log_ratio(
    baseline: Iterable[float], candidate: Iterable[float], *, level: float = LEVEL, resolution: float = 0.0
) -> Interval:
    """Ratio baseline / candidate over pairs, with interval; above 1 the candidate is faster.

    The geometric mean over pairs, with the t interval and test of the mean log ratio, n - 1 degrees of freedom. Pairs
    must be independent.

    `resolution`: Largest error of each value by its clock, 0 for exact values. It may be the same in all pairs, so that
    more of them do not lessen it: it widens the interval as a whole, which then has no p value.

    Returns: `n` counts pairs. No estimate for n = 0; no ends and no p value for n = 1, and for values within the
    resolution. Exact values with equal ratios give an interval of zero width.

    Does not show how the ratio depends on the case, nor the ratio of summed times (all cases weigh the same).
    Source: the one-sample t interval on logarithms; Fleming and Wallace, How not to lie with statistics (1986), for
    the geometric mean.

    >>> round(paired_log_ratio([8.0, 2.0], [2.0, 2.0]).estimate, 6)
    2.0
    """
    check_level(level)
    above, below = (
        to_float_array(baseline, "baseline", positive=True),
        to_float_array(candidate, "candidate", positive=True),
    )
    if len(above) != len(below):
        lengths = f"{len(above)} and {len(below)} values"
        raise InputError(
            "baseline and candidate are not pairs", found=lengths, allowed="as many of one as of the other"
        )
    logs = np.log(above) - np.log(below)
    mean, half, p_value = t_interval(logs, level)
    method = "paired log ratio, t"
    if mean is None or half is None:
        estimate = None if mean is None else float(np.exp(mean))
        return Interval(
            estimate, None, None, level, len(logs), method, reason=f"{len(logs)} pair(s), at least 2 needed"
        )
    if resolution:
        values = np.concatenate([above, below])
        if (smallest := float(values.min())) <= resolution:
            reason = f"a value of {smallest:g} is not above the clock's resolution of {resolution:g}"
            return Interval(float(np.exp(mean)), None, None, level, len(logs), method, reason=reason)
        half, p_value = half - 2 * float(np.log1p(-resolution / values).mean()), None
    return _build_ratio_interval(mean, half, len(logs), level, method, p_value)


def welch_log_ratio(baseline: Iterable[float], candidate: Iterable[float], *, level: float = LEVEL) -> Interval:
    """Ratio baseline / candidate of two groups of sessions, with interval; above 1 the candidate is faster.

    The ratio of geometric means with Welch's interval and test on logarithms: sides may differ in spread and number.

    `baseline`, `candidate`: One positive duration per session, such as its median; sessions are independent.

    Returns: `n` counts the sessions of the smaller side. No estimate when a side is empty; no ends and no p value
    when a side has one session.

    Does not show how the ratio differs between queries or machines. Source: Welch, The generalization of Student's
    problem (1947), with Satterthwaite's degrees of freedom.

    >>> round(welch_log_ratio([8.0, 8.0, 8.0], [2.0, 4.0, 2.0]).estimate, 4)
    3.1748
    """
    check_level(level)
    above, below = (
        np.log(to_float_array(baseline, "baseline", positive=True)),
        np.log(to_float_array(candidate, "candidate", positive=True)),
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
    """The t interval and test of a log ratio with given standard error (above 0) and degrees of freedom, as a ratio."""
    from scipy.special import stdtr, stdtrit

    half = float(stdtrit(degrees, (1 + level) / 2) * error)
    p_value = float(2 * stdtr(degrees, -abs(log_estimate) / error))
    return _build_ratio_interval(log_estimate, half, n, level, method, p_value)


def _build_ratio_interval(
    mean: float, half: float, n: int, level: float, method: str, p_value: float | None
) -> Interval:
    """A ratio from log mean and half width; no ends where they overflow."""
    with np.errstate(over="ignore", under="ignore"):
        low, estimate, high = (float(np.exp(end)) for end in (mean - half, mean, mean + half))
    if not (low > 0 and np.isfinite(high)):
        point = estimate if estimate > 0 and np.isfinite(estimate) else None
        return Interval(point, None, None, level, n, method, reason="the values are too far apart for an interval")
    return Interval(estimate, low, high, level, n, method, p_value=p_value)


def independent_ratio(baseline: Interval, candidate: Interval) -> Interval:
    """Ratio candidate / baseline of two independent estimates, from their intervals.

    On the log scale a difference; each half width is the root of the sum of squares of the two half widths that bound
    that side, so asymmetric intervals stay asymmetric. Other levels are first converted to 90 % by normal quantiles.

    `baseline`, `candidate`: Estimates of one quantity from two runs without shared measurements.

    Returns: Level 0.90, with a two-sided p value against 1. No estimate where one is missing or not positive; no ends
    where an interval is missing, reaches 0, or does not contain its estimate; with the `reason`.

    The p value is Welch's: standard errors come from the half widths towards 1, as of t intervals with n - 1 degrees of
    freedom, or normal ones where n is unknown. Does not show the cause of a difference: settings, versions and machine
    may differ between the runs. Estimates that share measurements differ by less. Source: Zou and Donner, Construction
    of confidence limits about effect measures: a general approach (2008), for the interval; Welch (1947), with
    Satterthwaite's degrees of freedom, for the p value. Coverage and false claims are simulated in
    `tests/stats/test_ratios.py`.

    >>> one = Interval(10.0, 9.0, 11.0, 0.9, 5, "t")
    >>> found = independent_ratio(one, Interval(20.0, 18.0, 22.0, 0.9, 5, "t"))
    >>> round(found.estimate, 3), round(found.low, 3), round(found.high, 3)
    (2.0, 1.735, 2.305)
    """
    n = min((side.n for side in (baseline, candidate) if side.n > 0), default=0)
    if reason := _find_ratio_problem(baseline, candidate):
        return Interval(None, None, None, LEVEL, n, INDEPENDENT_RATIO_METHOD, reason=reason)
    assert baseline.estimate is not None and candidate.estimate is not None  # noqa: PT018 - for the type checker
    log_ratio = math.log(candidate.estimate) - math.log(baseline.estimate)
    below, above = _log_half_widths(candidate), _log_half_widths(baseline)
    estimate = _exp_or_none(log_ratio)
    if below is None or above is None or estimate is None:
        reason = "an interval is missing, reaches 0, or does not contain its estimate"
        return Interval(estimate, None, None, LEVEL, n, INDEPENDENT_RATIO_METHOD, reason=reason)
    down, up = math.hypot(below[0], above[1]), math.hypot(below[1], above[0])
    low, high = _exp_or_none(log_ratio - down), _exp_or_none(log_ratio + up)
    if low is None or high is None:
        return Interval(
            estimate,
            None,
            None,
            LEVEL,
            n,
            INDEPENDENT_RATIO_METHOD,
            reason="the values are too far apart for an interval",
        )
    faces = (below[0], above[1]) if log_ratio > 0 else (below[1], above[0])
    p_value = min(1.0, 2 * _one_sided_tail(abs(log_ratio), *zip(faces, (candidate.n, baseline.n), strict=True)))
    return Interval(estimate, min(low, estimate), max(high, estimate), LEVEL, n, INDEPENDENT_RATIO_METHOD, p_value)


def _find_ratio_problem(baseline: Interval, candidate: Interval) -> str | None:
    estimates = [side.estimate for side in (baseline, candidate)]
    if any(value is None or not math.isfinite(value) for value in estimates):
        return "a value is missing"
    if any(value is not None and value <= 0 for value in estimates):
        return "a value is 0 or below: it has no ratio"
    return None


def _log_half_widths(side: Interval) -> tuple[float, float] | None:
    """Distances from the estimate to its ends, on the log scale, at 90 %."""
    low, high, estimate = side.low, side.high, side.estimate
    if low is None or high is None or estimate is None or not 0 < side.level < 1:
        return None
    if not (0 < low <= estimate <= high and math.isfinite(high)):
        return None
    scale = _normal_quantile((1 + LEVEL) / 2) / _normal_quantile((1 + side.level) / 2)
    return scale * (math.log(estimate) - math.log(low)), scale * (math.log(high) - math.log(estimate))


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def p_above(baseline: Interval, candidate: Interval, limit: float) -> float | None:
    """One-sided p value of candidate / baseline against `limit`; null without intervals.

    By the same method as the p value of `independent_ratio`.

    >>> one, other = Interval(10.0, 9.0, 11.0, 0.9, 5, "t"), Interval(20.0, 18.0, 22.0, 0.9, 5, "t")
    >>> round(p_above(one, other, 1.5), 4), round(p_above(one, other, 2.0), 4)
    (0.0013, 0.5)
    """
    below, above = _log_half_widths(candidate), _log_half_widths(baseline)
    if _find_ratio_problem(baseline, candidate) or below is None or above is None:
        return None
    assert baseline.estimate is not None and candidate.estimate is not None  # noqa: PT018 - for the type checker
    past = math.log(candidate.estimate) - math.log(baseline.estimate) - math.log(limit)
    faces = (below[0], above[1]) if past > 0 else (below[1], above[0])
    p_value = _one_sided_tail(abs(past), *zip(faces, (candidate.n, baseline.n), strict=True))
    return p_value if past >= 0 else 1 - p_value


def _one_sided_tail(distance: float, *sides: tuple[float, int]) -> float:
    """Tail probability beyond a distance of 0 or more; each side is (half width at 90 %, n)."""
    z = _normal_quantile((1 + LEVEL) / 2)
    if all(n < 2 for _, n in sides) or not any(half for half, _ in sides):
        error = math.hypot(*(half / z for half, _ in sides))
        return 0.5 * math.erfc(distance / error / math.sqrt(2)) if error else 0.0 if distance else 0.5
    from scipy.special import stdtr, stdtrit

    parts = [(half / (float(stdtrit(n - 1, (1 + LEVEL) / 2)) if n > 1 else z), n) for half, n in sides]
    widest = max(part for part, _ in parts)
    # Relative to the widest: squares of very small or large errors would overflow.
    shares = [((part / widest) ** 2, n) for part, n in parts]
    total = sum(share for share, _ in shares)
    denominator = sum(share**2 / (n - 1) for share, n in shares if n > 1)
    if not denominator:
        return 0.5 * math.erfc(distance / widest / math.sqrt(2 * total))
    return float(stdtr(total**2 / denominator, -distance / (widest * math.sqrt(total))))


def _exp_or_none(value: float) -> float | None:
    try:
        exponential = math.exp(value)
    except OverflowError:
        return None
    return exponential if 0 < exponential < math.inf else None


def rank_difference_z(low: Iterable[float], high: Iterable[float]) -> float:
    """Standard errors by which the second sample lies above the first (Mann and Whitney), equal values halved.

    Does not show by how much the values differ. Ties make it conservative: the error is that of distinct values.

    >>> round(rank_difference_z([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]), 2)
    2.31
    """
    lower, other = np.sort(np.fromiter(low, float)), np.fromiter(high, float)
    below = np.searchsorted(lower, other, side="left").sum() + np.searchsorted(lower, other, side="right").sum()
    n, m = len(lower), len(other)
    return float((below - n * m) / 2 / np.sqrt(n * m * (n + m + 1) / 12))
