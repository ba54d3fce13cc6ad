"""Search for the version that changed an indicator: which version to measure next, and what the levels say.

Versions are positions in their order, from 0 (the oldest). The level of a version is its ratio to the oldest, as of
`effects`: above 1 it is better. No input or output: `measurement.version_bisection` measures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workbench.core.errors import InputError
from workbench.stats import SEQUENCE, Interval, Verdict, log_error
from workbench.stats.verdicts import DIFFERENT, FASTER, SAME, SLOWER, UNDECIDED, find_critical_value

STEP_METHOD = "ratio of two versions to a common baseline, sum of half widths"
_MAX_LOG = 300.0


@dataclass(frozen=True)
class Step:
    """Change from one measured version to the next measured one.

    Attributes
    ----------
    before, after
        Positions of the two versions.
    ratio
        How many times better the later one is, with interval.
    verdict
        By the whole interval against the margin.
    """

    before: int
    after: int
    ratio: Interval
    verdict: Verdict


@dataclass(frozen=True)
class SearchResult:
    """Conclusion from the measured levels.

    `between`: Positions between its two versions, none of them measured: each may have made the change, as
    `step.after`.
    `share`: The step's part of the whole change, on the log scale; above 1 where other steps go the other way. Null
    without a change of the whole.
    `others`: The rest of the range, before and after the step, where its change is decided.
    """

    step: Step
    between: tuple[int, ...]
    share: float | None
    others: tuple[Step, ...]


def choose_next_probe(levels: Mapping[int, float], skipped: Collection[int] = ()) -> int | None:
    """The version to measure next; null if the largest step has no version left between its two.

    The middle of those two neighbouring measured versions whose levels differ most: binary search where the level
    changes once, and the largest step first where it changes several times. A version that cannot be measured is
    passed over for the nearest one to the middle.

    `levels`: Log ratio to the oldest version by position; holds both ends, so 0 and its level 0.

    >>> choose_next_probe({0: 0.0, 7: -0.4}), choose_next_probe({0: 0.0, 3: -0.01, 7: -0.4}, skipped={5})
    (3, 4)
    >>> choose_next_probe({0: 0.0, 3: -0.01, 4: -0.4, 7: -0.4})
    """
    before, after = _find_largest_step(levels)
    open_ = [position for position in range(before + 1, after) if position not in skipped]
    return min(open_, key=lambda position: (abs(2 * position - before - after), position), default=None)


def choose_series_probe(levels: Mapping[int, float], skipped: Collection[int] = (), *, margin: float) -> int | None:
    """The version to measure next of a whole series: where most is unknown; null if all have been measured or skipped.

    The middle of the gap whose length (in halvings) times the change across it, at least the margin, is largest: a
    step is narrowed down first, then long gaps that may hide a change and its undoing.

    >>> choose_series_probe({0: 0.0, 20: 0.0, 40: -0.5}, margin=0.02)
    30
    """
    best: tuple[float, int] | None = None
    for before, after in itertools.pairwise(sorted(levels)):
        open_ = [place for place in range(before + 1, after) if place not in skipped]
        if open_:
            change = max(abs(levels[after] - levels[before]), math.log1p(margin))
            middle = min(open_, key=lambda place: (abs(2 * place - before - after), place))
            score = math.log2(after - before) * change
            if best is None or score > best[0]:
                best = score, middle
    return None if best is None else best[1]


def list_steps(
    levels: Mapping[int, Interval],
    *,
    margin: float,
    n_compared: int,
    direct: Mapping[tuple[int, int], Step] | None = None,
) -> list[Step]:
    """The changes from one measured version to the next one, largest first; arguments as of `evaluate_levels`."""
    measured = {0: None, **{place: ratio for place, ratio in levels.items() if ratio.estimate is not None}}
    steps = [
        (direct or {}).get((before, after)) or _estimate_step(measured, before, after, margin, n_compared)
        for before, after in itertools.pairwise(sorted(measured))
    ]
    return sorted(steps, key=lambda step: -abs(math.log(step.ratio.estimate or 1.0)))


def _find_largest_step(levels: Mapping[int, float]) -> tuple[int, int]:
    """Positions of the two neighbouring measured versions whose log ratios differ most."""
    if len(levels) < 2:
        raise InputError("fewer than two measured versions", found=len(levels), allowed="both ends of the range")
    order = sorted(levels)
    return max(itertools.pairwise(order), key=lambda pair: abs(levels[pair[1]] - levels[pair[0]]))


def list_log_levels(levels: Mapping[int, Interval]) -> dict[int, float]:
    """Log ratio by position, with the oldest version's 0; versions without an estimate are left out."""
    logs = {place: math.log(ratio.estimate) for place, ratio in levels.items() if ratio.estimate is not None}
    return {0: 0.0, **logs}


def evaluate_levels(
    levels: Mapping[int, Interval],
    *,
    margin: float,
    n_compared: int,
    direct: Mapping[tuple[int, int], Step] | None = None,
) -> SearchResult:
    """Find the largest step of the measured levels, and what else changed.

    `levels`: Ratio of each measured version to the oldest one, by position (from 1); the newest version is one of
    them.
    `n_compared`: Number of versions that might have been measured against the oldest one.
    `direct`: Steps that were measured against each other, by (before, after); one replaces what two levels say.

    Returns: A step is FASTER or SLOWER if its whole interval lies beyond the margin, and SAME if it lies within.

    The step is chosen because it is the largest, so the intervals of all versions must hold together: each gets the
    share alpha / n_compared, and the interval of a step has both half widths added. This also holds for intervals at
    every number of rounds, and where one version's session had more luck than another's. It is wider than needed; a
    direct session of the two versions decides what it leaves open.
    """
    logs = list_log_levels(levels)
    before, after = _find_largest_step(logs)
    measured = {0: None, **levels}
    direct_steps = direct or {}
    step = direct_steps.get((before, after)) or _estimate_step(measured, before, after, margin, n_compared)
    last = max(logs)
    rests = [(0, before), (before, after), (after, last)]
    others = tuple(
        other_step
        for first, second in rests
        if first < second and (first, second) != (before, after)
        if (other_step := _estimate_step(measured, first, second, margin, n_compared)).verdict in DIFFERENT
    )
    total, step_log = logs[last], math.log(step.ratio.estimate or 1.0)
    return SearchResult(
        step=step,
        between=tuple(range(before + 1, after)),
        share=step_log / total if total else None,
        others=others,
    )


def _estimate_step(
    levels: Mapping[int, Interval | None], before: int, after: int, margin: float, n_compared: int
) -> Step:
    """The step between two versions, by their ratios to the oldest one.

    `levels`: Ratio by position; null for the oldest version itself. `n_compared`: See `evaluate_levels`.
    """
    ratio = estimate_step_ratio(levels[before], levels[after], n_compared=n_compared)
    return Step(before, after, ratio, decide_by_interval(ratio, margin))


def estimate_step_ratio(before: Interval | None, after: Interval | None, *, n_compared: int) -> Interval:
    """Ratio of two versions from their ratios to a common baseline, each measured beside its own runs of it.

    `before`, `after`: Ratios to the baseline, of one level; null for the baseline itself.

    Returns: Holds at the level of the given ones for all steps together. No ends where a ratio has none, or too few
    rounds for such a level.

    >>> from workbench.stats import paired_log_ratio
    >>> slow = paired_log_ratio([1.0, 1.0, 1.0, 1.0], [1.51, 1.49, 1.5, 1.5], level=0.95)
    >>> found = estimate_step_ratio(None, slow, n_compared=1)
    >>> round(found.estimate, 3), round(found.low, 3) == round(slow.low, 3)
    (0.667, True)
    """
    intervals = [interval for interval in (before, after) if interval is not None]
    level, n = (
        max((interval.level for interval in intervals), default=0.95),
        min((interval.n for interval in intervals), default=0),
    )
    if any(interval.estimate is None for interval in intervals):
        return Interval(None, None, None, level, n, STEP_METHOD, reason="a version has no ratio")
    mean = sum(
        sign * math.log(interval.estimate)
        for sign, interval in ((-1, before), (1, after))
        if interval is not None and interval.estimate is not None
    )
    halves = [_widen(interval, n_compared) for interval in intervals]
    widths = [half for half in halves if half is not None]
    if len(widths) < len(halves):
        reason = "too few rounds for an interval over all versions"
        return Interval(math.exp(mean), None, None, level, n, STEP_METHOD, reason=reason)
    half = sum(widths)
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), level, n, STEP_METHOD)


def _widen(ratio: Interval, n_compared: int) -> float | None:
    """Half width on the log scale at the level that this ratio gets among so many; null without one."""
    error = log_error(ratio)
    if error is None:
        return None
    factor = float(find_critical_value(ratio.method, ratio.n, (1 - ratio.level) / max(1, n_compared)))
    # Equal ratios in all rounds leave nothing to widen, however few rounds there are.
    half = factor * error if error else 0.0
    return half if math.isfinite(half) and half < _MAX_LOG else None


def decide_by_interval(ratio: Interval, margin: float) -> Verdict:
    """FASTER or SLOWER if the whole interval lies beyond the margin, SAME if it lies within, else UNDECIDED.

    >>> [decide_by_interval(Interval(r, r - 0.1, r + 0.1, 0.95, 10, ""), 0.02) for r in (1.5, 0.7, 1.0)]
    ['FASTER', 'SLOWER', 'UNDECIDED']
    """
    if ratio.low is None or ratio.high is None:
        return UNDECIDED
    bound = 1 + margin
    if 1 / bound <= ratio.low and ratio.high <= bound:
        return SAME
    return FASTER if ratio.low > bound else SLOWER if ratio.high < 1 / bound else UNDECIDED


def build_level(row: Mapping[str, object], *, is_sequence: bool) -> Interval:
    """The ratio of a row of table EFFECTS, with what is needed to widen it."""
    ratio, low, high, level, n = (row[name] for name in ("ratio", "low", "high", "level", "n"))
    method = SEQUENCE if is_sequence else "paired log ratio, t"
    return Interval(ratio, low, high, level, n, method)  # type: ignore[arg-type]
