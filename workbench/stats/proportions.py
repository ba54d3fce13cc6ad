"""Shares of hits that come in clusters, such as the coverage of intervals, and the verdict against a nominal level."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from workbench.core.errors import InputError
from workbench.stats.intervals import LEVEL, Interval, check_level
from workbench.stats.quantiles import MIN_CLUSTERS

CoverageVerdict = Literal["VALID", "OVERCONFIDENT", "UNDERCONFIDENT", "UNDECIDED"]


def wilson_interval(share: float, n: float, *, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share, with continuity correction; `n` may be an effective number.

    The correction keeps the error at each end near or below (1 - level) / 2 for few values, where Wilson's own errs
    twice as often. Source: Newcombe, Two-sided confidence intervals for the single proportion (1998), method 4.

    >>> [round(end, 3) for end in wilson_interval(20 / 22, 22)]
    [0.731, 0.98]
    """
    from scipy.special import ndtri

    z2, correction = float(ndtri((1 + level) / 2)) ** 2, 1 / (2 * n)

    def find_end(corrected: float, sign: int) -> float:
        # Wilson's own end, of the share that is moved outwards by the correction.
        spread = np.sqrt(z2 * (corrected * (1 - corrected) / n + z2 / (4 * n * n)))
        return float((corrected + z2 / (2 * n) + sign * spread) / (1 + z2 / n))

    low = find_end(share - correction, -1) if share > correction else 0.0
    high = find_end(share + correction, 1) if share + correction < 1 else 1.0
    return low, high


def clustered_share(hits: Sequence[bool], clusters: Sequence[Hashable], *, level: float = LEVEL) -> Interval:
    """The share of hits with Wilson's interval at the effective number of values.

    `clusters`: The cluster of each value: values of one run go together, and are worth less than as many of their own.

    Returns: `n` counts clusters. The effective number is that of the values divided by the design effect (at least 1):
    the variance of the share between clusters over the binomial one. Below `MIN_CLUSTERS`, or where all values are
    hits or none is, that variance says nothing, and the number of clusters is the effective one.

    Source: Wilson (1927) with continuity correction; design effect by Kish, Survey Sampling (1965).

    >>> clustered_share([True] * 9 + [False], range(10)).n, clustered_share([True, False], ["run", "run"]).n
    (10, 1)
    """
    check_level(level)
    if len(hits) != len(clusters):
        raise InputError("hits and clusters are not pairs", found=f"{len(hits)} and {len(clusters)} values")
    method = "Wilson with continuity correction, effective number of values"
    n, names = len(hits), list(dict.fromkeys(clusters))
    if not n:
        return Interval(None, None, None, level, 0, method, reason="no values")
    place = {name: number for number, name in enumerate(names)}
    where = np.array([place[name] for name in clusters])
    sizes = np.bincount(where).astype(np.float64)
    counts = np.bincount(where, weights=np.array(hits, dtype=np.float64))
    k, share = len(names), float(np.mean(hits))
    effective = float(k)
    if k >= MIN_CLUSTERS and 0 < share < 1:
        between = k / (k - 1) * float(((counts - share * sizes) ** 2).sum()) / n**2
        effective = n / max(1.0, between / (share * (1 - share) / n))
    return Interval(share, *wilson_interval(share, effective, level=level), level, k, method)


def decide_coverage(coverage: Interval, nominal: float) -> CoverageVerdict:
    """Verdict on intervals by their coverage: do they hold as often as they promise?

    In this order, with m = 1 - nominal, the promised share of misses:

    - VALID: the whole interval of the coverage lies within 1 - 2m and 1 - m / 2: at most twice and at least half as
      many misses as promised, even when it excludes the nominal level.
    - OVERCONFIDENT: it lies below the nominal level: the intervals are too narrow, or off.
    - UNDERCONFIDENT: it lies above the nominal level: the intervals are wider than they need be.
    - UNDECIDED: everything else.

    With independent values and honest intervals of 80 to 95 %, each of the two wrong claims has a chance of at most
    5.9 % at every number of values up to 200 (computed exactly in `tests/stats/test_proportions.py`).

    >>> decide_coverage(clustered_share([True] * 90 + [False] * 10, range(100)), 0.9)
    'VALID'
    """
    if coverage.low is None or coverage.high is None:
        return "UNDECIDED"
    promised = 1 - nominal
    if 1 - 2 * promised <= coverage.low and coverage.high <= 1 - promised / 2:
        return "VALID"
    if coverage.high < nominal:
        return "OVERCONFIDENT"
    return "UNDERCONFIDENT" if coverage.low > nominal else "UNDECIDED"
