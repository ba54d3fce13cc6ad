"""Which of many differences make one side slower than the other? The next arms to measure, and what they tell.

Differences are numbers; an arm is the set of those that it has, all others are as on the good side. No input or output.

Each session measures, beside a slow set that is known to be as slow as the whole bad side: the good side, and the slow
set without one group of differences after the other. A group without which nothing changes is left out of the next slow
set; that this one is still as slow is seen in the next session, and taken back where it is not. So differences that
are slow only together stay together, since without either the slow set is fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from workbench.stats import Interval, Verdict, log_error, ratio_verdict
from workbench.stats.verdicts import DIFFERENT, FASTER, SAME, UNDECIDED

Arm = frozenset[int]
GOOD: Arm = frozenset()
# Groups that one session leaves out, one after the other.
MAX_GROUPS = 8
# Of so few differences, each is measured alone, too.
MAX_ALONE = 4
# A slow set that lost this share of the slowdown (on the log scale) has lost a cause.
MAX_LOST = 0.25
Kind = Literal["found", "nothing", "faster", "not known"]


@dataclass(frozen=True)
class Cause:
    """A difference that matters. `without`: How many times as fast the slow set is without it; `alone`: How many times
    as fast the good side is as this difference alone; null where it was not measured.

    `share`: Of the slowdown, on the log scale; shares of differences that act only together add up to more than 1.
    """

    difference: int
    without: Interval
    alone: Interval | None
    share: float


@dataclass
class BlameSearch:
    """A search among `n` differences; `margin`: Practical margin of the metric, as a share.

    `slow`: The differences that are left. `total`: The good side's ratio to the bad one, in the first session.
    `open_`: Differences of the last session that are not decided.
    """

    n: int
    margin: float
    slow: Arm = field(init=False)
    groups: list[Arm] = field(init=False)
    total: Interval | None = None
    kind: Kind | None = None
    causes: list[Cause] = field(default_factory=list)
    open_: list[int] = field(default_factory=list)
    reason: str = ""
    n_sessions: int = 0
    _before: Arm = GOOD
    _dropped: list[Arm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slow = frozenset(range(self.n))
        self.groups = split_evenly(self.slow, MAX_GROUPS)

    @property
    def is_single(self) -> bool:
        """Whether each group is one difference."""
        return all(len(group) == 1 for group in self.groups)

    def list_arms(self) -> list[Arm]:
        """The arms of the next session beside the slow set; empty at the end."""
        if self.kind is not None:
            return []
        arms = [GOOD, *(self.slow - group for group in self.groups)]
        if self.is_single and len(self.slow) <= MAX_ALONE:
            arms += self.groups
        return list(dict.fromkeys(arm for arm in arms if arm != self.slow))

    def take(self, ratios: Mapping[Arm, Interval]) -> None:
        """Results of a session. `ratios`: How many times as fast as the slow set each arm of `list_arms` is."""
        self.n_sessions += 1
        whole = ratios[GOOD]
        if self.total is None:
            self.total = whole
            if not self._judge_total(whole):
                return
        elif self._has_lost(whole):
            self._take_back()
            return
        without = {group: ratios.get(self.slow - group, whole) for group in self.groups}
        if self.is_single and all(self._judge(ratio) == FASTER for ratio in without.values()):
            self._conclude(without, ratios)
            return
        kept = [group for group, ratio in without.items() if self._matters(ratio)]
        dropped = [group for group in self.groups if group not in kept]
        if not dropped and self.is_single:
            self._conclude(without, ratios)
            return
        if not kept:
            # Without any one group nothing changes: one difference stands in for another, or many do a little.
            dropped = dropped[: max(1, len(dropped) // 2)]
        self._drop(dropped)

    def _judge(self, ratio: Interval) -> Verdict:
        return ratio_verdict(ratio.estimate, ratio.low, ratio.high, margin=self.margin)

    def _judge_total(self, whole: Interval) -> bool:
        """Whether there is a slowdown to explain; the kind of the answer, if not."""
        verdict = self._judge(whole)
        if verdict == FASTER:
            return True
        self.kind = "nothing" if verdict == SAME else "faster" if verdict in DIFFERENT else "not known"
        if verdict == UNDECIDED:
            self.reason = "the two sides are not told apart"
        return False

    def _matters(self, ratio: Interval) -> bool:
        """Whether the slow set is faster without a group; where that is open, the estimate decides for now."""
        verdict = self._judge(ratio)
        return verdict == FASTER or (verdict == UNDECIDED and (ratio.estimate or 1.0) > 1 + self.margin)

    def _has_lost(self, whole: Interval) -> bool:
        """Whether the slow set is no longer as slow as the bad side."""
        assert self.total is not None
        total, now = (math.log(ratio.estimate or 1.0) for ratio in (self.total, whole))
        errors = [log_error(ratio) or 0.0 for ratio in (self.total, whole)]
        return total - now > max(MAX_LOST * total, math.log1p(self.margin)) + 2 * math.hypot(*errors)

    def _drop(self, dropped: Sequence[Arm]) -> None:
        self._before, self._dropped = self.slow, list(dropped)
        self.slow -= frozenset().union(*dropped)
        self.groups = split_evenly(self.slow, MAX_GROUPS)

    def _take_back(self) -> None:
        """Restore what was dropped last, and drop half of it."""
        self.slow = self._before
        if len(self._dropped) > 1:
            self._drop(self._dropped[: len(self._dropped) // 2])
            return
        # The last group alone: it holds what the others stand in for.
        (group,) = self._dropped or [GOOD]
        rest = split_evenly(self.slow - group, MAX_GROUPS - 1)
        self.groups = [*rest, *split_evenly(group, max(1, MAX_GROUPS - len(rest)))]
        self._dropped = []

    def _conclude(self, without: Mapping[Arm, Interval], ratios: Mapping[Arm, Interval]) -> None:
        whole = math.log(ratios[GOOD].estimate or 1.0)
        for group, ratio in without.items():
            (difference,) = group
            if self._judge(ratio) != FASTER:
                self.open_.append(difference)
                continue
            share = math.log(ratio.estimate or 1.0) / whole if whole else 0.0
            # The last difference that is left is the slow set.
            alone = _divide(ratios[GOOD], ratios[group]) if group in ratios else None
            alone = ratios[GOOD] if group == self.slow else alone
            self.causes.append(Cause(difference, ratio, alone, share))
        self.kind = "found" if self.causes and not self.open_ else "not known"
        if self.open_:
            self.reason = f"{len(self.open_)} differences are not decided"


def split_evenly(differences: Iterable[int], n_groups: int) -> list[Arm]:
    """Groups of equal size, at most so many.

    >>> [sorted(group) for group in split_evenly(range(5), 2)]
    [[0, 2, 4], [1, 3]]
    """
    ordered = sorted(differences)
    n_groups = min(n_groups, len(ordered))
    return [frozenset(ordered[place::n_groups]) for place in range(n_groups)]


def _divide(one: Interval, other: Interval) -> Interval:
    """Ratio of two ratios to a common baseline, half widths added."""
    ends = (one.low, one.high, other.low, other.high)
    n = min(one.n, other.n)
    if one.estimate is None or other.estimate is None or None in ends:
        return Interval(None, None, None, one.level, n, one.method, reason="no interval")
    low, high, other_low, other_high = map(float, filter(None, ends))
    return Interval(one.estimate / other.estimate, low / other_high, high / other_low, one.level, n, one.method)
