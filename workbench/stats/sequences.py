"""Confidence sequences: intervals of paired ratios that hold however often, and whenever, one looks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workbench.stats.intervals import Floats, Interval
from workbench.stats.ratios import paired_log_ratio

SEQUENCE = "paired log ratio, confidence sequence"
"""Method of an interval that holds at every number of pairs."""
PRIOR = 2.0
"""Variance of the normal mixture over effects, in units of the noise's variance; chosen for 5 to 30 pairs."""


def sequential_log_ratio(baseline: Iterable[float], candidate: Iterable[float], *, level: float) -> Interval:
    """Ratio baseline / candidate over pairs that are still coming in, with an interval that holds at every look.

    The chance that the interval misses the true ratio at any number of pairs is at most 1 - level, so that one may stop
    when it decides, and measure on later. It is 1.3 to 1.5 times as wide as the interval of a planned number of pairs.

    Returns: As of `paired_log_ratio`; `p_value` is against a ratio of 1, and holds at every look. No ends for so few
    pairs that no finite interval holds (below 5 at 95 %).

    Inverts the test martingale of the t statistic: the likelihood ratio of the t statistic under a normal mixture over
    standardised effects, which any scale of the noise leaves alone. Assumes normal log ratios; noise that is symmetric
    with heavier tails makes it conservative (simulated in `tests/stats/test_sequences.py`).
    Source: Lai, On confidence sequences (1976); Wang and Ramdas, Anytime-valid t-tests and confidence sequences for
    Gaussian means with unknown variance (2024).

    >>> found = sequential_log_ratio([8.0, 8.1, 7.9, 8.0, 8.2, 8.0], [2.0, 2.0, 2.0, 2.1, 2.0, 2.0], level=0.95)
    >>> found.n, found.low < 4 < found.high
    (6, True)
    """
    fixed = paired_log_ratio(baseline, candidate, level=level)
    if fixed.low is None or fixed.high is None or fixed.estimate is None:
        return Interval(fixed.estimate, None, None, level, fixed.n, SEQUENCE, reason=fixed.reason)
    factor = float(critical_value(fixed.n, 1 - level))
    if not np.isfinite(factor):
        reason = f"{fixed.n} pairs, too few for an interval that holds at every look"
        return Interval(fixed.estimate, None, None, level, fixed.n, SEQUENCE, reason=reason)
    error = log_error(fixed)
    assert error is not None
    mean = float(np.log(fixed.estimate))
    with np.errstate(over="ignore"):
        low, high = float(np.exp(mean - factor * error)), float(np.exp(mean + factor * error))
    if not (low > 0 and np.isfinite(high)):
        return Interval(fixed.estimate, None, None, level, fixed.n, SEQUENCE, reason="ratios too far apart")
    p_value = (0.0 if mean else 1.0) if not error else tail_probability(fixed.n, mean / error)
    return Interval(
        fixed.estimate, min(low, fixed.estimate), max(high, fixed.estimate), level, fixed.n, SEQUENCE, p_value
    )


def log_error(row: Interval) -> float | None:
    """Standard error of the log ratio behind an interval; null without an interval.

    The inverse of `paired_log_ratio` and of `sequential_log_ratio`.

    >>> round(log_error(paired_log_ratio([1.05, 1.08, 1.02, 1.06], [1.0] * 4)), 4)
    0.0119
    """
    if row.low is None or row.high is None or row.n < 2:
        return None
    return float(np.log(row.high / row.low) / 2 / find_critical_value(row.method, row.n, 1 - row.level))


def find_critical_value(method: str, n: int | Floats, alpha: float) -> Floats:
    """Standard errors from the mean to the ends of a method's interval: of a sequence, or of Student's t.

    >>> [round(float(find_critical_value(method, 10, 0.05)), 2) for method in ("paired log ratio", SEQUENCE)]
    [2.26, 3.87]
    """
    if method == SEQUENCE:
        return critical_value(n, alpha)
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.asarray(n) - 1, 1 - alpha / 2))


def critical_value(n: int | Floats, alpha: float) -> Floats:
    """Standard errors from the mean to the ends of the interval, for numbers of pairs; infinite for too few.

    >>> [round(float(value), 2) for value in critical_value(np.array([5, 10, 30]), 0.05)]
    [5.83, 3.87, 3.45]
    """
    pairs = np.asarray(n, dtype=np.float64)
    weight = 1 + PRIOR * pairs
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = (np.sqrt(weight) / alpha) ** (2 / pairs)
        squared = (pairs - 1) * (bound - 1) / (1 - bound / weight)
        return np.where((bound < weight) & (pairs > 1), np.sqrt(np.maximum(squared, 0)), np.inf)


def tail_probability(n: int, t: float) -> float:
    """The p value of a t statistic of n pairs that holds at every look; the inverse of `critical_value`.

    >>> round(tail_probability(10, float(critical_value(10, 0.05))), 6)
    0.05
    """
    squared, weight = t * t / (n - 1), 1 + PRIOR * n
    log_evidence = -np.log(weight) / 2 + n / 2 * (np.log1p(squared) - np.log1p(squared / weight))
    return float(min(1.0, np.exp(-log_evidence)))
