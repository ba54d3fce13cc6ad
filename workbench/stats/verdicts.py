"""Verdicts on ratios: FASTER, SLOWER, SAME or UNDECIDED, adjusted for multiple comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.core.errors import InputError
from workbench.core.formats import format_items
from workbench.stats.intervals import Floats, Interval
from workbench.stats.ratios import paired_log_ratio

SEQUENCE = "paired log ratio, confidence sequence"
"""Method of an interval that holds at every number of pairs."""
PRIOR = 2.0
"""Variance of the normal mixture over effects, in units of the noise's variance; chosen for 5 to 30 pairs."""
EARLY_LOOK = "paired log ratio, early look"
LAST_LOOK = "paired log ratio, last look"
"""Intervals that share their error: one that may end a planned number of pairs early, and that of all of them.

An early look has an interval from the third pair on, which holds at every number of them. Where the pairs are not
ended early, the last one is hardly wider than if nobody had looked.
"""
_EARLY_PRIOR = 30.0

MARGIN = 0.02
MAX_PAIRS = 1000
Verdict = Literal["FASTER", "SLOWER", "SAME", "UNDECIDED"]
FASTER: Verdict = "FASTER"
SLOWER: Verdict = "SLOWER"
SAME: Verdict = "SAME"
UNDECIDED: Verdict = "UNDECIDED"
VERDICTS: tuple[Verdict, ...] = (FASTER, SLOWER, SAME, UNDECIDED)
# The verdicts that claim a difference.
DIFFERENT: tuple[Verdict, ...] = (FASTER, SLOWER)
DECIDED: tuple[Verdict, ...] = (*DIFFERENT, SAME)


def sequential_log_ratio(
    baseline: Iterable[float], candidate: Iterable[float], *, level: float, method: str = SEQUENCE
) -> Interval:
    """Ratio baseline / candidate over pairs that are still coming in, with an interval that holds at every look.

    The chance that the interval misses the true ratio at any number of pairs is at most 1 - level, so that one may stop
    when it decides, and measure on later. It is 1.3 to 1.5 times as wide as the interval of a planned number of pairs.

    `method`: SEQUENCE; EARLY_LOOK before and LAST_LOOK at a planned number of pairs.

    Returns: As of `paired_log_ratio`; `p_value` is against a ratio of 1, and holds at every look. No ends for so few
    pairs that no finite interval holds (below 4 at 95 %, below 3 of an early look).

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
        return Interval(fixed.estimate, None, None, level, fixed.n, method, reason=fixed.reason)
    factor = float(find_critical_value(method, fixed.n, 1 - level))
    if not np.isfinite(factor):
        reason = f"{fixed.n} pairs, too few for an interval that is valid at every look"
        return Interval(fixed.estimate, None, None, level, fixed.n, method, reason=reason)
    error = log_error(fixed)
    assert error is not None
    mean = float(np.log(fixed.estimate))
    with np.errstate(over="ignore"):
        low, high = float(np.exp(mean - factor * error)), float(np.exp(mean + factor * error))
    if not (low > 0 and np.isfinite(high)):
        return Interval(fixed.estimate, None, None, level, fixed.n, method, reason="ratios too far apart")
    p_value = (0.0 if mean else 1.0) if not error else _find_p_value(method, fixed.n, mean / error)
    return Interval(
        fixed.estimate, min(low, fixed.estimate), max(high, fixed.estimate), level, fixed.n, method, p_value
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
    """Standard errors from the mean to the ends of a method's interval: of a sequence, of looks, or of Student's t.

    >>> [round(float(find_critical_value(method, 10, 0.05)), 2) for method in ("paired log ratio", SEQUENCE)]
    [2.26, 3.87]
    >>> [round(float(find_critical_value(EARLY_LOOK, n, 0.1)), 1) for n in (2, 3, 5, 11)]
    [inf, 10.1, 5.8, 4.4]
    """
    if method == SEQUENCE:
        return critical_value(n, alpha)
    if method == EARLY_LOOK:
        return critical_value(n, alpha / 2, prior=_EARLY_PRIOR)
    from scipy.special import stdtrit

    share = alpha / 2 if method == LAST_LOOK else alpha
    return np.asarray(stdtrit(np.asarray(n) - 1, 1 - share / 2))


def _find_p_value(method: str, n: int, t: float) -> float:
    """The two-sided p value of a t statistic of n pairs: the `alpha` whose critical value it is."""
    if method == SEQUENCE:
        return tail_probability(n, t)
    if method == EARLY_LOOK:
        return min(1.0, 2 * tail_probability(n, t, prior=_EARLY_PRIOR))
    from scipy.special import stdtr

    return float(min(1.0, (2 if method == LAST_LOOK else 1) * 2 * stdtr(n - 1, -abs(t))))


def critical_value(n: int | Floats, alpha: float, *, prior: float = PRIOR) -> Floats:
    """Standard errors from the mean to the ends of the interval, for numbers of pairs; infinite for too few.

    >>> [round(float(value), 2) for value in critical_value(np.array([5, 10, 30]), 0.05)]
    [5.83, 3.87, 3.45]
    """
    pairs = np.asarray(n, dtype=np.float64)
    weight = 1 + prior * pairs
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = (np.sqrt(weight) / alpha) ** (2 / pairs)
        squared = (pairs - 1) * (bound - 1) / (1 - bound / weight)
        return np.where((bound < weight) & (pairs > 1), np.sqrt(np.maximum(squared, 0)), np.inf)


def tail_probability(n: int, t: float, *, prior: float = PRIOR) -> float:
    """The p value of a t statistic of n pairs that holds at every look; the inverse of `critical_value`.

    >>> round(tail_probability(10, float(critical_value(10, 0.05))), 6)
    0.05
    """
    squared, weight = t * t / (n - 1), 1 + prior * n
    log_evidence = -np.log(weight) / 2 + n / 2 * (np.log1p(squared) - np.log1p(squared / weight))
    return float(min(1.0, np.exp(-log_evidence)))


@dataclass(frozen=True)
class Decision:
    """A verdict and its p value, adjusted for the family; null where there was none."""

    verdict: Verdict
    adjusted_p_value: float | None


def ratio_verdict(ratio: float | None, low: float | None, high: float | None, *, margin: float = MARGIN) -> Verdict:
    """Verdict on one ratio baseline / candidate with its interval.

    With the practical margin m, in this order:

    - SAME: the whole interval lies within 1 / (1 + m) and 1 + m, even when it excludes 1.
    - FASTER: the low end is above 1, and the ratio above 1 + m.
    - SLOWER: the high end is below 1, and the ratio below 1 / (1 + m).
    - UNDECIDED: everything else, and when a value is missing.

    Swapping baseline and candidate swaps FASTER and SLOWER. Not corrected for multiple comparisons: see
    `decide_verdicts`.

    >>> ratio_verdict(1.5, 1.2, 1.9), ratio_verdict(1.01, 1.005, 1.015), ratio_verdict(1.2, 0.9, 1.6)
    ('FASTER', 'SAME', 'UNDECIDED')
    """
    if ratio is None or low is None or high is None:
        return UNDECIDED
    if not 0 < low <= ratio <= high:
        raise InputError(
            "not a ratio in its interval", found=f"{ratio} in [{low}, {high}]", allowed="0 < low <= ratio <= high"
        )
    bound = 1 + margin
    if 1 / bound <= low and high <= bound:
        return SAME
    if low > 1 and ratio > bound:
        return FASTER
    if high < 1 and ratio < 1 / bound:
        return SLOWER
    return UNDECIDED


def decide_verdicts(family: Sequence[Interval], *, margin: float = MARGIN) -> list[Decision]:
    """Verdicts over a family of rows, such as the queries of one comparison.

    Each row gets its `ratio_verdict`; FASTER and SLOWER need a p value, adjusted by Holm over the family, of at most
    1 - level, and become UNDECIDED otherwise. SAME is not adjusted: over many rows, some may be wrong.

    `family`: Intervals of ratios with p values against 1, all of one level: results of `paired_log_ratio`.

    >>> from workbench.stats import paired_log_ratio
    >>> clear = paired_log_ratio([4.0, 4.1, 4.2], [2.0, 2.1, 2.0])
    >>> single = paired_log_ratio([4.0], [2.0])
    >>> [decision.verdict for decision in decide_verdicts([clear, single])]
    ['FASTER', 'UNDECIDED']
    """
    if len(levels := {row.level for row in family}) > 1:
        raise InputError("rows of different confidence in one family", found=sorted(levels), allowed="one level")
    decisions: list[Decision] = []
    for row, adjusted in zip(family, adjust_holm([row.p_value for row in family]), strict=True):
        verdict = ratio_verdict(row.estimate, row.low, row.high, margin=margin)
        # 1 - 0.9 is a little less than 0.1; rounding must not decide.
        is_significant = adjusted is not None and adjusted <= 1 - row.level + 1e-12
        decisions.append(Decision(verdict if verdict == SAME or is_significant else UNDECIDED, adjusted))
    return decisions


def decide_beyond(family: Sequence[Interval], margins: Sequence[float], *, size: int | None = None) -> list[Decision]:
    """Stricter verdicts than `decide_verdicts`: the whole interval must lie beyond the margin.

    - FASTER, SLOWER: the interval lies above 1 + m, or below 1 / (1 + m), also with the p value against that margin
      adjusted by Holm over the family.
    - SAME: the whole interval lies within the margins. Not adjusted: one in many rows may be wrong.
    - UNDECIDED: everything else; more observations can decide it, unless the ratio is at the margin.

    For pairs without a known difference, such as stacks of libraries: a claim means a relevant difference, and
    identical stacks rarely get one (simulated in `tests/indicators`).

    `family`: Intervals of ratios of `paired_log_ratio` or `sequential_log_ratio`, all of one level.
    `size`: Number of planned rows, where some have no interval yet; a family that is fixed at the start may be looked
    at again and again.

    >>> from workbench.stats import paired_log_ratio
    >>> clear = paired_log_ratio([4.0, 4.1, 4.2], [2.0, 2.1, 2.0])
    >>> near = paired_log_ratio([1.02, 1.03, 1.05], [1.0, 1.0, 1.0])
    >>> [decision.verdict for decision in decide_beyond([clear, near], [0.02, 0.02])]
    ['FASTER', 'UNDECIDED']
    """
    if len(levels := {row.level for row in family}) > 1:
        raise InputError("rows of different confidence in one family", found=sorted(levels), allowed="one level")
    if len(family) != len(margins):
        raise InputError("rows and margins are not pairs", found=f"{len(family)} and {len(margins)}")
    p_values = [p_beyond(row, margin) for row, margin in zip(family, margins, strict=True)]
    decisions: list[Decision] = []
    for row, margin, adjusted in zip(family, margins, adjust_holm(p_values, size=size), strict=True):
        claim = UNDECIDED
        if row.estimate is not None and row.low is not None and row.high is not None:
            within = 1 / (1 + margin) <= row.low and row.high <= 1 + margin
            is_significant = adjusted is not None and adjusted <= 1 - row.level + 1e-12
            direction = FASTER if row.estimate > 1 else SLOWER
            claim = SAME if within else direction if is_significant else UNDECIDED
        decisions.append(Decision(claim, adjusted))
    return decisions


def count_required_pairs(row: Interval, margin: float, family: int = 1) -> int | None:
    """Estimated number of pairs that decide this ratio by `decide_beyond`; null above 1,000 or when unknown.

    Takes ratio and spread as the true ones, so about half of the cases need more. Uses Holm's worst case, as if all
    other rows of the `family` were less clear.

    >>> from workbench.stats import paired_log_ratio
    >>> count_required_pairs(paired_log_ratio([1.05, 1.08, 1.02, 1.06], [1.0] * 4), 0.02)
    5
    """
    error = log_error(row)
    if row.estimate is None or error is None:
        return None
    spread = error * np.sqrt(row.n)
    away = float(abs(np.log(row.estimate)) - np.log1p(margin))
    alpha = (1 - row.level) / (family if away > 0 else 1)
    counts = np.arange(2.0, MAX_PAIRS + 1)
    enough = find_critical_value(row.method, counts, alpha) * spread / np.sqrt(counts) <= abs(away)
    return max(int(counts[int(np.argmax(enough))]), row.n + 1) if enough.any() else None


def p_beyond(row: Interval, margin: float) -> float | None:
    """Two-sided p value against the margin on the estimate's side of 1; null without an interval.

    At most 1 - level exactly where the whole interval lies beyond the margin. For intervals on logarithms as of
    `paired_log_ratio` and `sequential_log_ratio`.
    """
    error = log_error(row)
    if row.estimate is None or error is None:
        return None
    past = float(abs(np.log(row.estimate)) - np.log1p(margin))
    if past <= 0:
        return 1.0
    if not error:
        return 0.0
    return _find_p_value(row.method, row.n, past / error)


def adjust_holm(p_values: Sequence[float | None], *, size: int | None = None) -> list[float | None]:
    """P values adjusted for multiple comparisons (family-wise error).

    Missing values stay null and do not count, unless the family has a planned `size`. The adjusted value is the
    smallest family-wise error at which the row would be claimed. Does not show the size of a difference.
    Source: Holm, A simple sequentially rejective multiple test procedure (1979).

    >>> [round(p, 3) for p in adjust_holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    by_position = {position: value for position, value in enumerate(p_values) if value is not None}
    if wrong := {position: value for position, value in by_position.items() if not 0 <= value <= 1}:
        raise InputError(
            "p values outside [0, 1]", where=f"position(s) {format_items(wrong)}", found=format_items(wrong.values())
        )
    adjusted: list[float | None] = [None] * len(p_values)
    members, largest = max(len(by_position), size or 0), 0.0
    for rank, position in enumerate(sorted(by_position, key=lambda position: by_position[position])):
        largest = max(largest, min(1.0, by_position[position] * (members - rank)))
        adjusted[position] = largest
    return adjusted
