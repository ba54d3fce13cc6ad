"""Quantiles of attempts: failures are infinitely slow, neighbours in time resemble each other.

Values come as an array with one row per request (or workload) in the order they were sent; a row has one value, or one
for each model call, padded with NaN. One that failed is infinite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LEVEL = 0.90
MOST_BLOCKS = 8  # the fewest blocks that a resample is made of
MEMORY_VALUES = 4_000_000  # resampled values held at once


@dataclass(frozen=True)
class Quantile:
    """A quantile with its interval, in the unit of the values; infinite where it lies among failures."""

    value: float
    low: float
    high: float
    ok_only: float
    n: int


def quantile(values: Floats, q: float, *, level: float = LEVEL) -> Quantile:
    """The quantile over attempts, and between which order statistics it lies.

    Parameters
    ----------
    values
        One row per request; see the module.
    q, level
        The quantile and the confidence, inside (0, 1).

    Returns
    -------
    Quantile
        `value` interpolates as numpy does by default (so does the peer), and is infinite exactly when more than
        1 - q of the values are. `high` is infinite when no order statistic bounds it, too. NaN without values.

    Notes
    -----
    Ranks come from the beta distribution at the effective number of requests: n divided by the autocorrelation time
    of "slower than the quantile". Does not show how another day would differ. Source: Korn and Graubard, Confidence
    intervals for proportions from survey data (1998), turned to quantiles.

    Examples
    --------
    >>> found = quantile((np.arange(200.0) * 37 % 200 + 1)[:, None], 0.95)
    >>> round(found.value, 2), found.low, found.high
    (190.05, 183.0, 195.0)
    """
    from scipy.special import betaincinv

    ordered = _ordered(values)
    n = len(ordered)
    if not n:
        return Quantile(np.nan, np.nan, np.nan, np.nan, 0)
    value = float(_at(ordered[None, :], q)[0])
    effective = max(1.0, n / correlation_time(values, value))
    tail = (1 - level) / 2
    low_share = betaincinv(effective * q, effective * (1 - q) + 1, tail)
    high_share = betaincinv(effective * q + 1, effective * (1 - q), 1 - tail)
    low, high = int(np.floor(n * low_share)), int(np.ceil(n * high_share))
    finite = ordered[np.isfinite(ordered)]
    ok_only = float(np.quantile(finite, q)) if len(finite) else np.nan
    upper = ordered[high - 1] if high < n else np.inf
    return Quantile(value, float(ordered[max(0, low - 1)]), float(upper), ok_only, n)


def correlation_time(values: Floats, threshold: float) -> float:
    """How many neighbours say what one independent request would; 1 when they are independent.

    The share of each request's values above the threshold (of an infinite one: of failures) as a series; its
    autocorrelations are added up while they stand out from noise.
    """
    known = ~np.isnan(values)
    # Where the quantile itself is a failure, failures are what is above it.
    above = values > min(threshold, float(np.finfo(np.float64).max))
    series = (above & known).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    n = len(series)
    centred = series - series.mean()
    power = float(centred @ centred)
    if n < 20 or not power:
        return 1.0
    correlations = _autocovariances(centred, n // 10)[1:] / power
    noise = np.flatnonzero(correlations < 1.645 / np.sqrt(n))
    told = correlations[: noise[0]] if len(noise) else correlations
    return 1.0 + 2 * float(told.sum())


def _autocovariances(centred: Floats, lags: int) -> Floats:
    """Sums of products with what follows so many places later, for all lags below `lags` at once."""
    size = 1 << (2 * len(centred) - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    return np.fft.irfft(spectrum * spectrum.conj(), size)[:lags]


def block_length(values: Floats, q: float) -> int:
    """In blocks of how many neighbours a step is resampled: 1 when requests are independent."""
    if not len(values):
        return 1
    time = correlation_time(values, quantile_of(values, q))
    return 1 if time == 1.0 else int(np.clip(np.ceil(2 * time), 2, max(2, len(values) // MOST_BLOCKS)))


def quantile_of(values: Floats, q: float) -> float:
    """The quantile alone."""
    return float(_at(_ordered(values)[None, :], q)[0])


def resampled(values: Floats, q: float, draws: int, random: np.random.Generator) -> Floats:
    """The quantile of each of so many resamples, in blocks of neighbours where neighbours resemble each other.

    Source: circular block bootstrap, Politis and Romano (1992).
    """
    n, block = len(values), block_length(values, q)
    blocks = -(-n // block)
    out = np.empty(draws)
    step = max(1, MEMORY_VALUES // values.size)
    for begin in range(0, draws, step):
        count = min(step, draws - begin)
        starts = random.integers(0, n, size=(count, blocks, 1))
        picks = ((starts + np.arange(block)) % n).reshape(count, -1)[:, :n]
        out[begin : begin + count] = _at(np.sort(values[picks].reshape(count, -1), axis=1), q)
    return out


def _ordered(values: Floats) -> Floats:
    flat = np.sort(values, axis=None)
    return flat[: len(flat) - int(np.isnan(flat).sum())]


def _at(ordered: Floats, q: float) -> Floats:
    """The quantile of each sorted row (NaN last), between neighbours; infinite only when it lies among failures."""
    count = (~np.isnan(ordered)).sum(axis=1)
    place = np.maximum(count - 1, 0) * q
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    rows = np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, above]
    # Where q of the attempts succeeded the quantile is a success, even if its upper neighbour failed.
    enough = np.isfinite(low) & (below + 1 >= q * count - 1e-9)
    high = np.where(np.isinf(high) & enough, low, high)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(high), np.where(place > below, np.inf, low), low + (high - low) * (place - below))
