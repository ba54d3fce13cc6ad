"""Which stack is the answer, and in which words. "No difference" is an answer; so is "nobody knows yet"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from workbench.indicators.recommending.chances import MODEL
from workbench.indicators.recommending.figures import Figures
from workbench.indicators.recommending.justification import in_percent
from workbench.indicators.recommending.pipeline import Accepted
from workbench.indicators.recommending.steps import MEASURED_TYPES
from workbench.indicators.recommending.units import RecommendationType
from workbench.stats import Interval, Verdict, decide_beyond, pairs_needed

MOST_NAMES = 12
Kind = Literal["better", "no difference", "not decided", "keep", "best left", "by type", "nothing"]


@dataclass(frozen=True)
class Judged:
    """The verdict over the mix, alone and with the scores of all other steps; rounds that would likely decide."""

    verdict: Verdict
    preferred: Verdict
    rounds_needed: int | None


@dataclass(frozen=True)
class Answer:
    """The recommended stack (null: none), what kind of answer that is, and the sentence.

    `as_good` are the stacks that are not surely worse, `undecided` those that may be better or worse than a baseline
    that is kept.
    """

    stack: str | None
    kind: Kind
    sentence: str
    as_good: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def judged(accepted: Sequence[Accepted], margin: float) -> dict[str, Judged]:
    """Verdicts of all stacks but the baseline, as one family: the same rule as for single metrics."""
    others = [one for one in accepted if not one.stack.baseline]
    base = next((one.extra for one in accepted if one.stack.baseline), 0.0)
    alone = decide_beyond([one.stack.interval for one in others], [margin] * len(others))
    moved = decide_beyond([shifted(one.stack.interval, one.extra - base) for one in others], [margin] * len(others))
    return {
        one.stack.name: Judged(
            first.verdict,
            second.verdict,
            _rounds(one, margin, len(others)) if first.verdict == "UNDECIDED" else None,
        )
        for one, first, second in zip(others, alone, moved, strict=True)
    }  # fmt: skip


def answered(
    accepted: Sequence[Accepted],
    verdicts: Mapping[str, Judged],
    figures: Figures,
    kind: RecommendationType,
    *,
    margin: float,
    baseline: str,
) -> Answer:
    """Choose among the accepted stacks, which are in the order of their scores.

    The types that choose by the mix leave the baseline only for a stack that is better beyond the margin, sure as the
    verdicts are; a baseline that a constraint left out is no choice. The other types take the highest score.
    """
    if not accepted:
        return Answer(None, "nothing", "nothing is recommended: no stack is left, see what was left out")
    if kind not in MEASURED_TYPES:
        best = accepted[0]
        why = {"latest": "has the newest versions", "testing": "has the most to learn from"}[kind]
        return Answer(best.stack.name, "by type", f"{best.stack.name} {why}; {_against(best, baseline)}")
    better = [one for one in accepted if one.stack.name in verdicts and verdicts[one.stack.name].preferred == "FASTER"]
    base = next((one for one in accepted if one.stack.baseline), None)
    if base is None or better:
        best = (better or list(accepted))[0]
        made = _better(best, accepted, figures, margin, baseline)
        left_out = f"{made.sentence}; the baseline itself is left out"
        return made if base is not None else replace(made, kind="best left", sentence=left_out)
    return _kept(accepted, verdicts, baseline)


def shifted(interval: Interval, by: float) -> Interval:
    """A ratio with what other steps add to its logarithm."""
    if not by or interval.estimate is None:
        return interval
    factor = math.exp(by)
    low = None if interval.low is None else interval.low * factor
    high = None if interval.high is None else interval.high * factor
    return replace(interval, estimate=interval.estimate * factor, low=low, high=high)


def _rounds(one: Accepted, margin: float, family: int) -> int | None:
    # More rounds of others change what a model says, too: no plan follows from its interval.
    return None if one.stack.interval.method == MODEL else pairs_needed(one.stack.interval, margin, family)


def _better(
    best: Accepted, accepted: Sequence[Accepted], figures: Figures, margin: float, baseline: str
) -> Answer:  # fmt: skip
    as_good = []
    for other in accepted:
        if other is not best:
            apart = shifted(figures.ratio(best.stack.place, other.stack.place), best.extra - other.extra)
            if apart.low is None or apart.low <= 1 + margin:
                as_good.append(other.stack.name)
    told = f"{best.stack.name}: {_against(best, baseline)}"
    if as_good:
        told += f"; not surely worse by more than {100 * margin:.2g} %: {_named(as_good)}"
    return Answer(best.stack.name, "better", told, tuple(as_good))


def _kept(accepted: Sequence[Accepted], verdicts: Mapping[str, Judged], baseline: str) -> Answer:
    names = {
        verdict: [n for n, one in verdicts.items() if one.preferred == verdict] for verdict in ("SAME", "UNDECIDED")
    }
    same, unsure = names["SAME"], names["UNDECIDED"]
    keep = f"keep the baseline, {baseline}"
    if unsure:
        rounds = [one.rounds_needed for name, one in verdicts.items() if name in unsure]
        known = [count for count in rounds if count is not None]
        more = f"; about {max(known)} rounds would decide" if known and len(known) == len(rounds) else ""
        told = f"no difference that matters was found: {keep}; not decided for {_named(unsure)}{more}"
        return Answer(baseline, "not decided", told, tuple(same), tuple(unsure))
    if same:
        order = [one.stack.name for one in accepted if one.stack.baseline or one.stack.name in same]
        told = f"no difference that matters: any of {_named(order)}; {keep}"
        return Answer(baseline, "no difference", told, tuple(same))
    if len(accepted) == 1:
        return Answer(baseline, "keep", f"{keep}: no other stack is left")
    return Answer(baseline, "keep", f"{keep}: every other stack that is left is slower")


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _against(one: Accepted, baseline: str) -> str:
    if one.stack.baseline:
        return "the baseline"
    source = ", predicted" if one.stack.predicted else f", {one.stack.rounds} rounds"
    return f"{in_percent(one.stack.interval)} against {baseline}{source}"
