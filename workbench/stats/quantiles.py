"""Quantiles with intervals (also of attempts that may fail), cluster bootstrap, session t."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.core.errors import InputError
from workbench.core.formats import format_items
from workbench.stats.intervals import LEVEL, Floats, Interval, check_level, t_interval, to_float_array

MIN_CLUSTERS = 5
Statistic = Callable[[Floats], float]
MIN_BLOCKS = 8  # of a resample
MAX_VALUES_IN_MEMORY = 4_000_000  # resampled values


def quantile_interval(values: Iterable[float], q: float, *, level: float = LEVEL) -> Interval:
    """A quantile with its distribution-free interval between order statistics.

    Ranks of the ends come from the binomial distribution: valid for every continuous distribution, conservative, and
    with an error of at most (1 - level) / 2 at each end.

    `values`: Independent observations. Requests of one session or run are not independent: see `cluster_bootstrap`.

    Returns: The estimate is about median-unbiased (type 8 of Hyndman and Fan). An end that no rank can bound is null:
    at 90 %, the upper end of p95 needs 59 values. `achieved_level` is the exact confidence of the ends.

    Says nothing about the tail beyond q. Type 7 (numpy's default) is not used: its p99 of few values can lie below the
    low end. Source: Conover, Practical Nonparametric Statistics, section 3.2; Hyndman
    and Fan, Sample quantiles in statistical packages (1996).

    >>> interval = quantile_interval(range(1, 21), 0.5)
    >>> interval.low, interval.estimate, interval.high, round(interval.achieved_level, 4)
    (6.0, 10.5, 15.0, 0.9586)
    """
    check_level(level)
    check_level(q, name="q")
    ordered = np.sort(to_float_array(values, "values"))
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
    clusters: Sequence[Iterable[float]], statistic: Statistic, *, level: float = LEVEL, draws: int = 2000, seed: int = 0
) -> Interval:
    """A statistic of values in clusters (sessions, runs, nodes), by resampling whole clusters.

    Clusters are drawn with replacement and their values pooled. The interval is the expanded percentile interval:
    percentiles widened to t with k - 1 degrees of freedom and by sqrt(k / (k - 1)).

    `level`, `draws`, `seed`: Confidence in (0, 1), number of resamples, start of the random numbers.

    Coverage at a nominal 90 %, log-normal values, 30 a cluster, spread between clusters a half or a sixth of that
    within (500 or 600 simulations a cell): means and medians 86 to 90 % with 5 clusters, 87 to 91 % with 7, 88 to 91 %
    with 10; p95 83 to 86 %, 81 to 87 % and 87 to 90 %; with 3 or 4 clusters 76 to 85 %, so none is given. Plain
    percentiles: 73 to 81 % with 5 clusters. For tails more sessions help, longer ones do not. Source: Hesterberg, What
    Teachers Should Know About the Bootstrap (2015); Davison and Hinkley, Bootstrap Methods (1997), section 3.8.

    >>> interval = cluster_bootstrap([[1.0, 2.0], [2.0], [3.0, 3.0], [2.0], [2.0, 4.0]], np.mean)
    >>> interval.n, interval.estimate, interval.low < interval.estimate < interval.high
    (5, 2.375, True)
    """
    check_level(level)
    groups = _check_clusters(clusters)
    k, method = len(groups), "cluster bootstrap, expanded percentile"
    if not k:
        return Interval(None, None, None, level, 0, method, reason="no clusters")
    estimate = float(statistic(np.concatenate(groups)))
    if k < MIN_CLUSTERS:
        reason = f"{k} cluster(s), at least {MIN_CLUSTERS} needed"
        return Interval(estimate, None, None, level, k, method, reason=reason)
    from scipy.special import ndtr, stdtrit

    picks = np.random.default_rng(seed).integers(0, k, size=(draws, k))
    resampled = [float(statistic(np.concatenate([groups[i] for i in pick]))) for pick in picks]
    tail = ndtr(np.sqrt(k / (k - 1)) * stdtrit(k - 1, (1 - level) / 2))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(estimate, float(low), float(high), level, k, method)


def session_t(clusters: Sequence[Iterable[float]], *, level: float = LEVEL) -> Interval:
    """Mean of the sessions' medians with its t interval.

    The alternative to `cluster_bootstrap` for few sessions (two or more) and the middle of the distribution.

    Sessions have equal weight. Says nothing about tails. Coverage in the simulation of
    `cluster_bootstrap`: 88 to 93 % with 3 to 10 sessions. Source: the one-sample t interval.

    >>> session_t([[1.0, 9.0, 2.0], [4.0], [3.0, 3.0]]).estimate
    3.0
    """
    check_level(level)
    medians = np.array([float(np.median(group)) for group in _check_clusters(clusters)])
    mean, half, _ = t_interval(medians, level)
    method = "t over session medians"
    if mean is None or half is None:
        reason = f"{len(medians)} session(s), at least 2 needed"
        return Interval(mean, None, None, level, len(medians), method, reason=reason)
    return Interval(mean, mean - half, mean + half, level, len(medians), method)


def _check_clusters(clusters: Sequence[Iterable[float]]) -> list[Floats]:
    groups = [to_float_array(cluster, f"cluster {position}") for position, cluster in enumerate(clusters)]
    if empty := [position for position, group in enumerate(groups) if not len(group)]:
        raise InputError(
            "cluster(s) without values", where=f"position(s) {format_items(empty)}", do="leave them out and count them"
        )
    return groups


@dataclass(frozen=True)
class Quantile:
    """A quantile with its interval; infinite when it falls among failures."""

    value: float
    low: float
    high: float
    ok_only: float
    n: int


def estimate_quantile(values: Floats, q: float, *, level: float = LEVEL, min_correlation_time: float = 1.0) -> Quantile:
    """The quantile over attempts, failures being infinite, with its interval between order statistics.

    `values`: One row per request: times of its attempts, infinite for failures, NaN for none.
    `min_correlation_time`: The least autocorrelation time, in requests; `estimate_queue_correlation` of an open queue.

    Returns: `value` interpolates as numpy does by default, and is infinite exactly when more than 1 - q of the values
    are. `high` is infinite also when no order statistic bounds it. NaN without values.

    Ranks come from the beta distribution at the effective number of requests, n divided by the autocorrelation time
    of "slower than the quantile". Says nothing about another day. Source: Korn and Graubard, Confidence intervals for
    proportions from survey data (1998), applied to quantiles.

    >>> found = estimate_quantile((np.arange(200.0) * 37 % 200 + 1)[:, None], 0.95)
    >>> round(found.value, 2), found.low, found.high
    (190.05, 183.0, 195.0)
    """
    from scipy.special import betaincinv

    ordered = _sort_values(values)
    n = len(ordered)
    if not n:
        return Quantile(np.nan, np.nan, np.nan, np.nan, 0)
    value = float(_interpolate_quantile(ordered[None, :], q)[0])
    effective = max(1.0, n / max(estimate_correlation_time(values, value), min_correlation_time))
    tail = (1 - level) / 2
    low_share = betaincinv(effective * q, effective * (1 - q) + 1, tail)
    high_share = betaincinv(effective * q + 1, effective * (1 - q), 1 - tail)
    low, high = int(np.floor(n * low_share)), int(np.ceil(n * high_share))
    finite = ordered[np.isfinite(ordered)]
    ok_only = float(np.quantile(finite, q)) if len(finite) else np.nan
    upper = ordered[high - 1] if high < n else np.inf
    return Quantile(value, float(ordered[max(0, low - 1)]), float(upper), ok_only, n)


def estimate_correlation_time(values: Floats, threshold: float) -> float:
    """Autocorrelation time of the values in requests; 1 when requests are independent.

    The longer of two: that of each request's fraction of values above the threshold (for an infinite one: of failures),
    and that of the mean rank of its values. A queue lifts neighbours together, and the few that it lifts above a high
    quantile are too few to show it.
    """
    is_present = ~np.isnan(values)
    n_present = np.maximum(is_present.sum(axis=1), 1)
    # Failures count as above an infinite threshold.
    above = values > min(threshold, float(np.finfo(np.float64).max))
    ranks = np.searchsorted(_sort_values(values), values, side="right")
    series = ((above & is_present).sum(axis=1) / n_present, (ranks * is_present).sum(axis=1) / n_present)
    return max(_sum_autocorrelations(one) for one in series)


def estimate_queue_correlation(rate: float, capacity: float) -> float:
    """Autocorrelation time, in requests, of latencies in a queue that arrivals fill to this part of its capacity.

    `rate`, `capacity`: Arrivals, and what the service ends at most, both a second; 1 for a rate beyond it, which has
    no steady state.

    Half of the arrivals in the relaxation time of a queue with Poisson arrivals, 1 / (sqrt(capacity) - sqrt(rate))^2.
    A short level shows less than that: no long wait fell into it. With it, intervals of p95 cover 87 to 100 % of the
    true values, at 50 to 88 % of the capacity of 2, 8 and 32 servers, 300 and 1,200 requests; without it 62 to 94 %
    (150 simulations a cell). Source: Cohen, The Single Server Queue (1982), relaxation time.

    >>> round(estimate_queue_correlation(5, 10), 1), round(estimate_queue_correlation(9, 10), 1)
    (2.9, 170.9)
    """
    if not 0 < rate < capacity:
        return 1.0
    return max(1.0, float(rate / (2 * (np.sqrt(capacity) - np.sqrt(rate)) ** 2)))


def _sum_autocorrelations(series: Floats) -> float:
    """Autocorrelation time of a series: autocorrelations are summed while they exceed the noise."""
    n = len(series)
    centred = series - series.mean()
    power = float(centred @ centred)
    if n < 20 or not power:
        return 1.0
    # Compute the sums of lagged products of a centred series for all lags below `lags`, by FFT.
    lags = n // 10
    size = 1 << (2 * len(centred) - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    correlations = np.fft.irfft(spectrum * spectrum.conj(), size)[:lags][1:] / power
    noise = np.flatnonzero(correlations < 1.645 / np.sqrt(n))
    significant = correlations[: noise[0]] if len(noise) else correlations
    return 1.0 + 2 * float(significant.sum())


def choose_block_length(values: Floats, q: float) -> int:
    """Block length of the bootstrap, in requests; 1 when they are independent.

    `values`: [request, value], in order of sending; NaN fills up rows, infinite is a failure.
    """
    if not len(values):
        return 1
    time = estimate_correlation_time(values, compute_quantile(values, q))
    return 1 if time == 1.0 else int(np.clip(np.ceil(2 * time), 2, max(2, len(values) // MIN_BLOCKS)))


def compute_quantile(values: Floats, q: float) -> float:
    """Quantile `q` of the values, without an interval.

    `values`: [request, value]; NaN fills up rows, infinite is a failure.

    >>> compute_quantile(np.array([[1.0], [2.0], [4.0]]), 0.5)
    2.0
    """
    return float(_interpolate_quantile(_sort_values(values)[None, :], q)[0])


def resample_quantile(values: Floats, q: float, draws: int, random: np.random.Generator) -> Floats:
    """Quantiles of bootstrap resamples, in blocks where neighbours are correlated.

    Source: circular block bootstrap, Politis and Romano (1992).

    `values`: [request, value], in order of sending; NaN fills up rows. Returns: One quantile for each draw.
    """
    n, block = len(values), choose_block_length(values, q)
    blocks = -(-n // block)
    out = np.empty(draws)
    step = max(1, MAX_VALUES_IN_MEMORY // values.size)
    for begin in range(0, draws, step):
        count = min(step, draws - begin)
        starts = random.integers(0, n, size=(count, blocks, 1))
        picks = ((starts + np.arange(block)) % n).reshape(count, -1)[:, :n]
        out[begin : begin + count] = _interpolate_quantile(np.sort(values[picks].reshape(count, -1), axis=1), q)
    return out


def _sort_values(values: Floats) -> Floats:
    flat = np.sort(values, axis=None)
    return flat[: len(flat) - int(np.isnan(flat).sum())]


def _interpolate_quantile(ordered: Floats, q: float) -> Floats:
    """Interpolated quantile `q` of each row, sorted with NaN last; infinite only when it falls among failures."""
    count = (~np.isnan(ordered)).sum(axis=1)
    place = np.maximum(count - 1, 0) * q
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    rows = np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, above]
    # When a fraction q succeeded the quantile is finite, even if its upper neighbour failed.
    enough = np.isfinite(low) & (below + 1 >= q * count - 1e-9)
    high = np.where(np.isinf(high) & enough, low, high)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(high), np.where(place > below, np.inf, low), low + (high - low) * (place - below))
