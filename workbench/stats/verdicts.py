"""Faster, slower, the same or undecided: worded here, for all areas alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.errors import InputError
from workbench.stats.interval import Interval, listed
from workbench.stats.ratios import log_error

MARGIN = 0.02
MOST_PAIRS = 1000
Verdict = Literal["FASTER", "SLOWER", "SAME", "UNDECIDED"]


@dataclass(frozen=True)
class Decision:
    """A verdict and the p value, adjusted for its family, that it rests on (null where there was none)."""

    verdict: Verdict
    adjusted_p_value: float | None


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
    >>> from workbench.stats import paired_log_ratio
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


def decide_beyond(family: Sequence[Interval], margins: Sequence[float]) -> list[Decision]:
    """Verdicts that demand more than `decide`: the whole interval must lie beyond the margin.

    - FASTER, SLOWER: the interval lies beyond 1 + m, or below 1 / (1 + m), still so when the p value against that
      margin is adjusted by `holm` over the family.
    - SAME: the whole interval lies within the margins.
    - UNDECIDED: everything else; more observations can decide it, unless the ratio is at the margin itself.

    The rule for pairs that nobody knows to differ, such as stacks of libraries: a claim means that it matters, and
    copies of one thing are hardly ever told apart (simulated in `tests/indicators`).

    Parameters
    ----------
    family
        Intervals of ratios of `paired_log_ratio`, all of one level.
    margins
        The practical margin of each, as a share.

    Raises
    ------
    InputError
        The rows differ in level, or are not as many as the margins.

    Examples
    --------
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
    for row, margin, adjusted in zip(family, margins, holm(p_values), strict=True):
        claim: Verdict = "UNDECIDED"
        if row.estimate is not None and row.low is not None and row.high is not None:
            within = 1 / (1 + margin) <= row.low and row.high <= 1 + margin
            apart = adjusted is not None and adjusted <= 1 - row.level + 1e-12
            claim = "SAME" if within else ("FASTER" if row.estimate > 1 else "SLOWER") if apart else "UNDECIDED"
        decisions.append(Decision(claim, adjusted))
    return decisions


def pairs_needed(row: Interval, margin: float, family: int = 1) -> int | None:
    """How many pairs would likely decide this ratio by `decide_beyond`, at its spread? Null beyond 1,000, or unknown.

    A rough plan, half of whose claims come later: it takes ratio and spread for the true ones. A claim is planned by
    Holm at its worst, as if every other row of the `family` were less clear.

    Examples
    --------
    >>> from workbench.stats import paired_log_ratio
    >>> pairs_needed(paired_log_ratio([1.05, 1.08, 1.02, 1.06], [1.0] * 4), 0.02)
    5
    """
    error = log_error(row)
    if row.estimate is None or error is None:
        return None
    from scipy.special import stdtrit

    spread = error * np.sqrt(row.n)
    away = float(abs(np.log(row.estimate)) - np.log1p(margin))
    alpha = (1 - row.level) / (family if away > 0 else 1)
    counts = np.arange(2, MOST_PAIRS + 1)
    enough = stdtrit(counts - 1, 1 - alpha / 2) * spread / np.sqrt(counts) <= abs(away)
    return max(int(counts[int(np.argmax(enough))]), row.n + 1) if enough.any() else None


def p_beyond(row: Interval, margin: float) -> float | None:
    """Two-sided p value against the margin on the estimate's own side of 1; null without an interval.

    At most 1 - level exactly where the whole interval lies beyond the margin. For t intervals on logarithms, as
    `paired_log_ratio` gives them: the standard error is read off the interval.
    """
    error = log_error(row)
    if row.estimate is None or error is None:
        return None
    from scipy.special import stdtr

    past = abs(np.log(row.estimate)) - np.log1p(margin)
    if past <= 0:
        return 1.0
    return float(2 * stdtr(row.n - 1, -past / error)) if error else 0.0


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
        raise InputError("p values outside [0, 1]", where=f"position(s) {listed(wrong)}", found=listed(wrong.values()))
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(known, key=lambda position: known[position])):
        largest = max(largest, min(1.0, known[position] * (len(known) - rank)))
        adjusted[position] = largest
    return adjusted
