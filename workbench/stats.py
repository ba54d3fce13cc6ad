"""The few estimators that all areas share: each gives an `Interval`, says where it comes from and what it hides.

Missing is null: too little data gives no interval, with the reason. Verdicts are worded here, for all areas alike.
Of scipy only `special` and `optimize` are used, and inside the functions: `scipy.stats` takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.errors import ConfigError, InputError

LEVEL = 0.90
MARGIN = 0.02
FEWEST_CLUSTERS = 5
Verdict = Literal["FASTER", "SLOWER", "SAME", "UNDECIDED"]
Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], float]


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Parameters
    ----------
    estimate
        The figure, in the unit of the input; null where the data cannot give one.
    low, high
        Ends of the interval; null where the data cannot bound that side.
    level
        Confidence that was asked for, as a share (0.90).
    n
        Independent observations behind it: pairs, values, clusters or runs, as `method` says.
    method
        How it was made, for tables and captions.
    p_value
        Two-sided, against a ratio of 1; only where the method tests that.
    achieved_level
        Confidence that the ends given really have, where it can be computed exactly.
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


@dataclass(frozen=True)
class Decision:
    """A verdict and the p value, adjusted for its family, that it rests on (null where there was none)."""

    verdict: Verdict
    adjusted_p_value: float | None


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
    _check_level(level)
    above, below = _numbers(baseline, "baseline", positive=True), _numbers(candidate, "candidate", positive=True)
    if len(above) != len(below):
        found = f"{len(above)} and {len(below)} values"
        raise InputError("baseline and candidate are not pairs", found=found, allowed="as many of one as of the other")
    logs = np.log(above) - np.log(below)
    mean, half, p_value = _t_interval(logs, level)
    method = "paired log ratio, t"
    if mean is None or half is None:
        estimate = None if mean is None else float(np.exp(mean))
        return Interval(
            estimate, None, None, level, len(logs), method, reason=f"{len(logs)} pair(s), at least 2 needed"
        )
    low, estimate, high = (float(np.exp(end)) for end in (mean - half, mean, mean + half))
    return Interval(estimate, low, high, level, len(logs), method, p_value=p_value)


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
    _check_level(level)
    above, below = (
        np.log(_numbers(baseline, "baseline", positive=True)),
        np.log(_numbers(candidate, "candidate", positive=True)),
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
    low, estimate, high = (float(np.exp(end)) for end in (log_estimate - half, log_estimate, log_estimate + half))
    p_value = float(2 * stdtr(degrees, -abs(log_estimate) / error))
    return Interval(estimate, low, high, level, n, method, p_value=p_value)


def quantile_interval(values: Iterable[float], q: float, *, level: float = LEVEL) -> Interval:
    """What is the q quantile, and between which observed values does it lie?

    The ends are order statistics whose ranks follow from the binomial distribution, so the interval holds for every
    continuous distribution and is never shorter than asked for; each end errs with at most (1 - level) / 2.

    Parameters
    ----------
    values
        Independent observations in one unit. Requests of one session or run are not independent: see
        `cluster_bootstrap`.
    q
        The quantile, in (0, 1): 0.95 for p95.
    level
        Confidence, in (0, 1).

    Returns
    -------
    Interval
        The estimate interpolates between neighbours so that it is about median-unbiased (type 8 of Hyndman and Fan).
        An end that no rank can bound is null, not the extreme value: at 90 %, the upper end of p95 needs 59 values.
        `achieved_level` is the exact confidence of the ends that are given.

    Raises
    ------
    InputError
        A value is missing or not finite (its positions are named).
    ConfigError
        `q` or `level` is not inside (0, 1).

    Notes
    -----
    Does not show anything about the tail beyond q. Type 7 (numpy's default) is not used, because its p99 of few values
    lies below the interval's own low end. Source: Conover, Practical Nonparametric Statistics, section 3.2; Hyndman
    and Fan, Sample quantiles in statistical packages (1996).

    Examples
    --------
    >>> interval = quantile_interval(range(1, 21), 0.5)
    >>> interval.low, interval.estimate, interval.high, round(interval.achieved_level, 4)
    (6.0, 10.5, 15.0, 0.9586)
    """
    _check_level(level)
    _check_level(q, name="q")
    ordered = np.sort(_numbers(values, "values"))
    n, method = len(ordered), f"order statistics, q = {q:g}"
    if not n:
        return Interval(None, None, None, level, 0, method, reason="no values")
    from scipy.special import bdtr

    below = bdtr(np.arange(n + 1), n, q)  # P(at most k of n values lie below the quantile)
    tail = (1 - level) / 2
    lower = int(np.searchsorted(below, tail, side="right"))
    upper = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    low = float(ordered[lower - 1]) if lower >= 1 else None
    high = float(ordered[upper - 1]) if upper <= n else None
    achieved = float(below[upper - 1] - (below[lower - 1] if lower else 0.0)) if lower or upper <= n else None
    reason = None if lower and upper <= n else f"{n} value(s) cannot bound both sides at q = {q:g}"
    estimate = float(np.quantile(ordered, q, method="median_unbiased"))
    return Interval(estimate, low, high, level, n, method, achieved_level=achieved, reason=reason)


def cluster_bootstrap(
    clusters: Sequence[Iterable[float]],
    statistic: Statistic,
    *,
    level: float = LEVEL,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """What is a statistic of all values, when values of one cluster (session, run, node) resemble each other?

    Whole clusters are drawn with replacement and their values pooled. The interval is the expanded percentile one:
    percentiles further out than asked for, by as much as t with k - 1 degrees of freedom and k / (k - 1) demand.

    Parameters
    ----------
    clusters
        The values of each cluster, in one unit; clusters independent of each other.
    statistic
        Function of an array of pooled values.
    level, draws, seed
        Confidence in (0, 1), number of resamples, start of the random numbers.

    Returns
    -------
    Interval
        `n` counts clusters. No ends for fewer than five clusters.

    Raises
    ------
    InputError
        A cluster is empty or holds a value that is missing or not finite.

    Notes
    -----
    Chosen by simulation over the percentile, the BCa and the jackknife t interval. Coverage at a nominal 90 %, for
    log-normal values, 30 a cluster, with a spread between clusters of a half or a sixth of that within (500 or 600
    simulations a cell): means and medians 86 to 90 % with 5 clusters, 87 to 91 % with 7, 88 to 91 % with 10; p95 83
    to 86 %, 81 to 87 % and 87 to 90 %. With 3 or 4 clusters it is 76 to 85 %, therefore none is given.
    Plain percentiles have 73 to 81 % with 5 clusters. The tail's interval is still somewhat short: more sessions
    help, longer ones do not.
    Source: Hesterberg, What Teachers Should Know About the Bootstrap (2015), section on expanded percentiles; Davison
    and Hinkley, Bootstrap Methods (1997), section 3.8 on resampling clusters.

    Examples
    --------
    >>> interval = cluster_bootstrap([[1.0, 2.0], [2.0], [3.0, 3.0], [2.0], [2.0, 4.0]], np.mean)
    >>> interval.n, interval.estimate, interval.low < interval.estimate < interval.high
    (5, 2.375, True)
    """
    _check_level(level)
    groups = _groups(clusters)
    k, method = len(groups), "cluster bootstrap, expanded percentile"
    if not k:
        return Interval(None, None, None, level, 0, method, reason="no clusters")
    estimate = float(statistic(np.concatenate(groups)))
    if k < FEWEST_CLUSTERS:
        reason = f"{k} cluster(s), at least {FEWEST_CLUSTERS} needed"
        return Interval(estimate, None, None, level, k, method, reason=reason)
    from scipy.special import ndtr, stdtrit

    picks = np.random.default_rng(seed).integers(0, k, size=(draws, k))
    resampled = [float(statistic(np.concatenate([groups[i] for i in pick]))) for pick in picks]
    tail = ndtr(np.sqrt(k / (k - 1)) * stdtrit(k - 1, (1 - level) / 2))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(estimate, float(low), float(high), level, k, method)


def session_t(clusters: Sequence[Iterable[float]], *, level: float = LEVEL) -> Interval:
    """What is the median of a typical session, judged from the sessions' medians alone?

    The mean of the sessions' medians with its t interval: the small-sample alternative to `cluster_bootstrap`, for
    the middle of the distribution, usable from two sessions on.

    Parameters
    ----------
    clusters
        The values of each session, in one unit; sessions independent of each other.
    level
        Confidence, in (0, 1).

    Returns
    -------
    Interval
        `n` counts sessions. No ends for one session.

    Raises
    ------
    InputError
        A session is empty or holds a value that is missing or not finite.

    Notes
    -----
    Sessions weigh the same, however many values they have. Says nothing about tails. Coverage in the simulation of
    `cluster_bootstrap`: 88 to 93 % with 3 to 10 sessions. Source: the one-sample t interval.

    Examples
    --------
    >>> session_t([[1.0, 9.0, 2.0], [4.0], [3.0, 3.0]]).estimate
    3.0
    """
    _check_level(level)
    medians = np.array([float(np.median(group)) for group in _groups(clusters)])
    mean, half, _ = _t_interval(medians, level)
    method = "t over session medians"
    if mean is None or half is None:
        reason = f"{len(medians)} session(s), at least 2 needed"
        return Interval(mean, None, None, level, len(medians), method, reason=reason)
    return Interval(mean, mean - half, mean + half, level, len(medians), method)


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
    _check_level(level)
    loads, logs = _numbers(x, "x"), np.log(_numbers(y, "y", positive=True))
    if len(loads) != len(logs):
        raise InputError("x and y are not pairs", found=f"{len(loads)} and {len(logs)} values")
    goal = float(np.log(_numbers([target], "target", positive=True)[0]))
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
    return Interval(estimate, _finite(low), _finite(high), level, n, method, reason=reason)


def verdict(ratio: float | None, low: float | None, high: float | None, *, margin: float = MARGIN) -> Verdict:
    """Is the candidate faster, slower or the same, or is that not decided?

    With ratio = baseline / candidate and the practical margin m, in this order:

    - SAME: the whole interval lies within 1 / (1 + m) and 1 + m, also when 1 is outside it: a difference that is
      proven but too small to matter is none.
    - FASTER: the low end is above 1 (told apart) and the ratio above 1 + m (large enough to matter).
    - SLOWER: the mirror image: the high end below 1 and the ratio below 1 / (1 + m).
    - UNDECIDED: everything else, and whenever a value is missing.

    Swapping baseline and candidate swaps FASTER and SLOWER. Does not correct for many comparisons: see `decide`.

    Raises
    ------
    InputError
        A value is not positive, or the ratio is outside its interval.

    Examples
    --------
    >>> verdict(1.5, 1.2, 1.9), verdict(1.01, 1.005, 1.015), verdict(1.2, 0.9, 1.6), verdict(1.2, None, None)
    ('FASTER', 'SAME', 'UNDECIDED', 'UNDECIDED')
    """
    if ratio is None or low is None or high is None:
        return "UNDECIDED"
    if not 0 < low <= ratio <= high:
        raise InputError(
            "not a ratio in its interval", found=f"{ratio} in [{low}, {high}]", allowed="0 < low <= ratio <= high"
        )
    least = 1 + margin
    if 1 / least <= low and high <= least:
        return "SAME"
    if low > 1 and ratio > least:
        return "FASTER"
    if high < 1 and ratio < 1 / least:
        return "SLOWER"
    return "UNDECIDED"


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """P values adjusted for being looked at together, so that all claims at once err with the level of one.

    Missing values stay null and do not count: a test that could not be made is no test. The adjusted value is the
    smallest family-wise error at which the row would be claimed. Does not show how large a difference is.
    Source: Holm, A simple sequentially rejective multiple test procedure (1979).

    Raises
    ------
    InputError
        A value is outside [0, 1].

    Examples
    --------
    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    known = {position: value for position, value in enumerate(p_values) if value is not None}
    if wrong := {position: value for position, value in known.items() if not 0 <= value <= 1}:
        raise InputError(
            "p values outside [0, 1]", where=f"position(s) {_listed(wrong)}", found=_listed(wrong.values())
        )
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(known, key=lambda position: known[position])):
        largest = max(largest, min(1.0, known[position] * (len(known) - rank)))
        adjusted[position] = largest
    return adjusted


def decide(family: Sequence[Interval], *, margin: float = MARGIN) -> list[Decision]:
    """Verdicts over rows that are read together, such as the queries of one comparison.

    Each row gets its `verdict`; FASTER and SLOWER stand only if the row's p value, adjusted by `holm` over the
    family, is at most 1 - level, and become UNDECIDED if not, or if the row has no p value. SAME is judged for each
    row by itself: over many rows, some SAME may be wrong.

    Parameters
    ----------
    family
        Intervals of ratios with p values against 1, all of one level: results of `paired_log_ratio`.
    margin
        Practical margin, as a share (0.02).

    Raises
    ------
    InputError
        The rows differ in level.

    Examples
    --------
    >>> clear = paired_log_ratio([4.0, 4.1, 4.2], [2.0, 2.1, 2.0])
    >>> single = paired_log_ratio([4.0], [2.0])
    >>> [decision.verdict for decision in decide([clear, single])]
    ['FASTER', 'UNDECIDED']
    """
    if len(levels := {row.level for row in family}) > 1:
        raise InputError("rows of different confidence in one family", found=sorted(levels), allowed="one level")
    decisions: list[Decision] = []
    for row, adjusted in zip(family, holm([row.p_value for row in family]), strict=True):
        own = verdict(row.estimate, row.low, row.high, margin=margin)
        # The rounding of 1 - level must not decide: 1 - 0.9 is a little less than 0.1.
        told_apart = adjusted is not None and adjusted <= 1 - row.level + 1e-12
        decisions.append(Decision(own if own == "SAME" or told_apart else "UNDECIDED", adjusted))
    return decisions


def _t_interval(values: Floats, level: float) -> tuple[float | None, float | None, float | None]:
    n = len(values)
    if n < 2:
        return (float(values[0]) if n else None), None, None
    from scipy.special import stdtr, stdtrit

    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
    if not error:
        return mean, 0.0, 0.0 if mean else 1.0
    return mean, float(stdtrit(n - 1, (1 + level) / 2) * error), float(2 * stdtr(n - 1, -abs(mean) / error))


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


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _groups(clusters: Sequence[Iterable[float]]) -> list[Floats]:
    groups = [_numbers(cluster, f"cluster {position}") for position, cluster in enumerate(clusters)]
    if empty := [position for position, group in enumerate(groups) if not len(group)]:
        raise InputError(
            "cluster(s) without values", where=f"position(s) {_listed(empty)}", do="leave them out and count them"
        )
    return groups


def _numbers(values: Iterable[float], name: str, *, positive: bool = False) -> Floats:
    given = list(values)
    numbers = np.array([np.nan if value is None else value for value in given], dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers) | ((numbers <= 0) if positive else False))
    if len(wrong):
        raise InputError(
            "values that cannot be used",
            where=f"{name}, position(s) {_listed(wrong)}",
            found=_listed(given[position] for position in wrong),
            allowed="finite numbers above 0" if positive else "finite numbers",
            do="leave failed and missing observations out, and count them beside the figure",
        )
    return numbers


def _check_level(value: float, *, name: str = "level") -> None:
    if not 0 < value < 1:
        raise ConfigError("not a share", where=name, found=value, allowed="above 0 and below 1")


def _listed(items: Iterable[Any], most: int = 5) -> str:
    texts = [str(item) for item in items]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
