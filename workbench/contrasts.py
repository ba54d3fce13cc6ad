"""How much larger is a figure of one run than the same figure of another, when each has only its interval?"""

from __future__ import annotations

import math

from workbench.stats import LEVEL, Interval

METHOD = "ratio of independent estimates, half widths in quadrature"


def ratio(baseline: Interval, candidate: Interval) -> Interval:
    """The candidate's estimate over the baseline's, from their two intervals alone.

    On the log scale the difference of two independent estimates; its half width on each side is the root of the sum of
    squares of the two half widths that bound it on that side, so lopsided intervals stay lopsided. Levels other than
    90 % are first brought to it as normal quantiles are.

    Parameters
    ----------
    baseline, candidate
        Estimates of one quantity from two runs that share no measurement; ends within which the estimate lies.

    Returns
    -------
    Interval
        Level 0.90, with a two-sided p value against 1. No estimate where one is missing, or 0 or below on either
        side; no ends where an interval is missing, reaches 0, or does not hold its own estimate. `reason` says which.

    Notes
    -----
    The p value is Welch's: standard errors are read off the half widths towards 1 as those of t intervals with n - 1
    degrees of freedom, of normal ones where a side does not say how many observations it has. Does not show what made
    the difference: settings, versions and machine may all have changed between the runs, and estimates that share
    measurements differ by less than this says. Source: Zou and Donner, Construction of confidence limits about effect
    measures: a general approach (2008), for the interval; Welch (1947), with Satterthwaite's degrees of freedom, for
    the p value; coverage and false claims are simulated in `tests/test_contrasts.py`.

    Examples
    --------
    >>> one = Interval(10.0, 9.0, 11.0, 0.9, 5, "t")
    >>> found = ratio(one, Interval(20.0, 18.0, 22.0, 0.9, 5, "t"))
    >>> round(found.estimate, 3), round(found.low, 3), round(found.high, 3)
    (2.0, 1.735, 2.305)
    """
    n = min((side.n for side in (baseline, candidate) if side.n > 0), default=0)
    if reason := _unusable(baseline, candidate):
        return Interval(None, None, None, LEVEL, n, METHOD, reason=reason)
    assert baseline.estimate is not None and candidate.estimate is not None  # noqa: PT018 - for the type checker
    log_ratio = math.log(candidate.estimate) - math.log(baseline.estimate)
    below, above = _halves(candidate), _halves(baseline)
    estimate = _exp(log_ratio)
    if below is None or above is None or estimate is None:
        reason = "an interval is missing, reaches 0, or does not hold its estimate"
        return Interval(estimate, None, None, LEVEL, n, METHOD, reason=reason)
    down, up = math.hypot(below[0], above[1]), math.hypot(below[1], above[0])
    low, high = _exp(log_ratio - down), _exp(log_ratio + up)
    if low is None or high is None:
        return Interval(estimate, None, None, LEVEL, n, METHOD, reason="the values are too far apart for an interval")
    faces = (below[0], above[1]) if log_ratio > 0 else (below[1], above[0])
    p_value = min(1.0, 2 * _one_sided(abs(log_ratio), *zip(faces, (candidate.n, baseline.n), strict=True)))
    return Interval(estimate, min(low, estimate), max(high, estimate), LEVEL, n, METHOD, p_value)


def _unusable(baseline: Interval, candidate: Interval) -> str | None:
    estimates = [side.estimate for side in (baseline, candidate)]
    if any(value is None or not math.isfinite(value) for value in estimates):
        return "a value is missing"
    if any(value is not None and value <= 0 for value in estimates):
        return "a value is 0 or below: it has no ratio"
    return None


def _halves(side: Interval) -> tuple[float, float] | None:
    """Distances from the estimate to its ends, on the log scale, at 90 %."""
    low, high, estimate = side.low, side.high, side.estimate
    if low is None or high is None or estimate is None or not 0 < side.level < 1:
        return None
    if not (0 < low <= estimate <= high and math.isfinite(high)):
        return None
    scale = _normal((1 + LEVEL) / 2) / _normal((1 + side.level) / 2)
    return scale * (math.log(estimate) - math.log(low)), scale * (math.log(high) - math.log(estimate))


def _normal(share: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(share)


def p_above(baseline: Interval, candidate: Interval, limit: float) -> float | None:
    """How often would chance alone put candidate / baseline so far above `limit`, were the true ratio just that?

    One-sided; null where `ratio` has no interval. By the same rule as the p value of `ratio`.

    Examples
    --------
    >>> one, other = Interval(10.0, 9.0, 11.0, 0.9, 5, "t"), Interval(20.0, 18.0, 22.0, 0.9, 5, "t")
    >>> round(p_above(one, other, 1.5), 4), round(p_above(one, other, 2.0), 4)
    (0.0013, 0.5)
    """
    below, above = _halves(candidate), _halves(baseline)
    if _unusable(baseline, candidate) or below is None or above is None:
        return None
    assert baseline.estimate is not None and candidate.estimate is not None  # noqa: PT018 - for the type checker
    past = math.log(candidate.estimate) - math.log(baseline.estimate) - math.log(limit)
    faces = (below[0], above[1]) if past > 0 else (below[1], above[0])
    p_value = _one_sided(abs(past), *zip(faces, (candidate.n, baseline.n), strict=True))
    return p_value if past >= 0 else 1 - p_value


def _one_sided(distance: float, *sides: tuple[float, int]) -> float:
    """The tail beyond a distance from the limit, 0 or more; each side with its half width at 90 % and its n."""
    z = _normal((1 + LEVEL) / 2)
    if all(n < 2 for _, n in sides) or not any(half for half, _ in sides):
        error = math.hypot(*(half / z for half, _ in sides))
        return 0.5 * math.erfc(distance / error / math.sqrt(2)) if error else 0.0 if distance else 0.5
    from scipy.special import stdtr, stdtrit

    parts = [(half / (float(stdtrit(n - 1, (1 + LEVEL) / 2)) if n > 1 else z), n) for half, n in sides]
    widest = max(part for part, _ in parts)
    # Of shares, since squares of very small or large errors leave what a number can hold.
    shares = [((part / widest) ** 2, n) for part, n in parts]
    total = sum(share for share, _ in shares)
    known = sum(share**2 / (n - 1) for share, n in shares if n > 1)
    if not known:
        return 0.5 * math.erfc(distance / widest / math.sqrt(2 * total))
    return float(stdtr(total**2 / known, -distance / (widest * math.sqrt(total))))


def _exp(value: float) -> float | None:
    try:
        found = math.exp(value)
    except OverflowError:
        return None
    return found if 0 < found < math.inf else None
