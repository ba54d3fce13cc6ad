"""Choose the recommended stack, explain the choice, and propose the stacks to measure next.

Ratios are to the baseline over the mix of metrics: above 1 is better. The margin is a share (0.02 is 2 %) within which
differences do not matter.

- Candidate: a stack as units see it, measured or predicted (`unit_pipeline.Candidate`). Everything: all of them.
- Accepted: a candidate that no unit excluded, with its scores. Excluded: the others, each with the unit and a reason.
- Score: sum of the log scores of all steps, the one that ranks. Extra: the part of it that is not the measured mix.
- Place: what identifies a candidate in estimates: its arm, or its key if it was not measured. In PROPOSALS: a rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.core.formats import fit_answer, format_items
from workbench.indicators.analysis.effects import Comparison
from workbench.indicators.analysis.judgement import find_obstacle, format_percent
from workbench.indicators.recommendation.evidence import MIX, Evidence, Justification, Kind, ratio_to_percent
from workbench.indicators.recommendation.metric_mix import MODEL, Chances, Mix, compute_chances
from workbench.indicators.recommendation.ratio_estimates import PairedEstimates, RatioEstimates
from workbench.indicators.recommendation.recommendation_request import RecommendationRequest
from workbench.indicators.recommendation.scoring_steps import MEASURED_TYPES, Predictable
from workbench.indicators.recommendation.unit_pipeline import Accepted, Context, Excluded, RecommendationType
from workbench.indicators.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS
from workbench.stats import Decision, Interval, Verdict, count_required_pairs, decide_beyond
from workbench.stats.verdicts import DECIDED, FASTER, SAME, UNDECIDED

if TYPE_CHECKING:
    import polars as pl

MAX_NAMES = 12
MIN_FACTOR = 3.0
"""From this ratio on, sentences give a factor instead of percents."""
AnswerKind = Literal["better", "no difference", "not decided", "keep", "best left", "by type", "nothing"]


class StackSentence(NamedTuple):
    """A sentence with the name of the stack that it is about; null: about the session."""

    stack: str | None
    justification: Justification


@dataclass(frozen=True)
class MixVerdict:
    """How a stack compares with the baseline over the mix.

    `verdict`: By the measured ratio alone.
    `preferred`, `interval`: By the ratio that also has the scores of the other steps, which decides; and that ratio.
    `rounds_needed`: Rounds in all after which `verdict` would likely be decided; null if it is, or if unknown.
    `obstacle`: Why no stack of the session can be SAME; null if they can.
    """

    verdict: Verdict
    preferred: Verdict
    interval: Interval
    rounds_needed: int | None
    obstacle: str | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    `stack`: Name of the recommended stack; null for none.
    `kind`: `better` (than the baseline, beyond the margin), `best left` (the best, where the baseline is excluded),
    `by type` (the type of recommendation is not about speed), or that the baseline is kept: `no difference` (others are
    equivalent), `not decided`, `keep` (all others are worse or excluded); `nothing` if no stack is left.
    `sentence`: With all figures, without a full stop. `claim`: The same in at most 90 characters.
    `as_good`: Stacks that are not clearly worse than the recommended one.
    `undecided`: Stacks that may be better or worse than the baseline that is kept.
    """

    stack: str | None
    kind: AnswerKind
    sentence: str
    claim: str
    as_good: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def judge_mix(accepted: Sequence[Accepted], margin: float, control: Interval | None = None) -> dict[str, MixVerdict]:
    """Judge all stacks but the baseline, by name; corrected for their number, by the rule for single metrics.

    `control` is the ratio of the baseline's two copies over the mix: where it reaches beyond the margin, no stack is
    SAME.
    """
    others = [contender for contender in accepted if not contender.stack.baseline]
    margins = [margin] * len(others)
    measured = [contender.stack.interval for contender in others]
    base_extra = next((contender.extra for contender in accepted if contender.stack.baseline), 0.0)
    shifted = [shift_interval(contender.stack.interval, contender.extra - base_extra) for contender in others]
    obstacle = None if control is None else find_obstacle(control, margin, diluted=False)
    by_measurement = _withhold_same(decide_beyond(measured, margins), obstacle)
    by_score = _withhold_same(decide_beyond(shifted, margins), obstacle)
    verdicts = {}
    for contender, interval, verdict, preferred in zip(others, shifted, by_measurement, by_score, strict=True):
        needed = None
        if verdict == UNDECIDED:
            needed = _estimate_rounds(contender, margin, len(others), control if obstacle else None)
        verdicts[contender.stack.name] = MixVerdict(
            verdict=verdict, preferred=preferred, interval=interval, rounds_needed=needed, obstacle=obstacle
        )
    return verdicts


def choose_answer(
    accepted: Sequence[Accepted],
    verdicts: Mapping[str, MixVerdict],
    figures: RatioEstimates,
    kind: RecommendationType,
    *,
    margin: float,
    baseline: str,
) -> Answer:
    """Choose one of the accepted stacks, which are in the order of their scores, the highest first.

    Types that choose by the mix leave the baseline only for a stack that is FASTER, that is better by more than the
    margin; a baseline that a constraint excluded cannot be kept. Other types take the highest score.
    """
    if not accepted:
        return _answer_nothing("every stack was excluded")
    if kind not in MEASURED_TYPES:
        best = accepted[0]
        reason = {"latest": "it has the newest versions", "testing": "its results would teach the most"}[kind]
        name = best.stack.name
        claim = fit_answer(f"Use {name}: {reason}, {_claim_ratio(best, baseline)}.", f"Use {name}: {reason}.")
        return Answer(name, "by type", f"{name}: {reason}; {_format_ratio(best, baseline)}", claim)
    better = [
        contender
        for contender in accepted
        if contender.stack.name in verdicts and verdicts[contender.stack.name].preferred == FASTER
    ]
    base = next((contender for contender in accepted if contender.stack.baseline), None)
    if base is None or better:
        best = (better or list(accepted))[0]
        # Recommend the best stack; others are as good unless it is surely better than they are by more than the margin.
        as_good = []
        for other in accepted:
            if other is not best:
                measured = figures.estimate_ratio(best.stack.place, other.stack.place)
                advantage = shift_interval(measured, best.extra - other.extra)
                if advantage.low is None or advantage.low <= 1 + margin:
                    as_good.append(other.stack.name)
        sentence = f"Use {best.stack.name}: {_format_ratio(best, baseline)}"
        if as_good:
            sentence += (
                f"; not clearly worse than it by more than {100 * margin:.2g} %: {format_items(as_good, MAX_NAMES)}"
            )
        claim = f"Use {best.stack.name}: {_claim_ratio(best, baseline)}."
        short = f"Use {best.stack.name}."
        answer = Answer(best.stack.name, "better", sentence, fit_answer(claim, short), tuple(as_good))
        if base is None:
            answer = replace(answer, kind="best left", sentence=f"{answer.sentence}; the baseline is excluded")
        return answer
    return _answer_keep(accepted, verdicts, margin, baseline)


def shift_interval(interval: Interval, by: float) -> Interval:
    """Add a log score, that of other steps, to the logarithm of a ratio and of its ends."""
    if not by or interval.estimate is None:
        return interval
    factor = math.exp(by)
    low = None if interval.low is None else interval.low * factor
    high = None if interval.high is None else interval.high * factor
    return replace(interval, estimate=interval.estimate * factor, low=low, high=high)


def _withhold_same(decisions: Sequence[Decision], obstacle: str | None) -> list[Verdict]:
    """The verdicts; with an obstacle, SAME becomes UNDECIDED."""
    return [UNDECIDED if obstacle and decision.verdict == SAME else decision.verdict for decision in decisions]


def _estimate_rounds(contender: Accepted, margin: float, family: int, control: Interval | None) -> int | None:
    """Rounds in all after which a stack would likely be decided; null if unknown, or more than can be told.

    `family` is the number of stacks that are judged together. `control` is given where it is the obstacle: it limits a
    stack that lies within the margin already.
    """
    interval = contender.stack.interval
    # A model's interval also depends on the rounds of other stacks, so no number of rounds follows from it.
    if interval.method == MODEL:
        return None
    is_within = decide_beyond([interval], [margin])[0].verdict == SAME
    if control is not None and is_within:
        return count_required_pairs(control, margin)
    return count_required_pairs(interval, margin, family)


def _answer_nothing(reason: str) -> Answer:
    claim = fit_answer(f"Nothing is recommended: {reason}.", f"Nothing is recommended: {reason}")
    return Answer(None, "nothing", f"Nothing is recommended: {reason}", claim)


def _answer_keep(
    accepted: Sequence[Accepted], verdicts: Mapping[str, MixVerdict], margin: float, baseline: str
) -> Answer:
    """Keep the baseline, where no stack is FASTER: undecided if any is, equivalent if any is SAME."""
    same = tuple(name for name, verdict in verdicts.items() if verdict.preferred == SAME)
    undecided = {name: verdict for name, verdict in verdicts.items() if verdict.preferred == UNDECIDED}
    if undecided:
        reason, short_reason, more = _explain_undecided(undecided, margin)
        names = format_items(undecided, MAX_NAMES)
        sentence = f"Keep {baseline} for now: not decided for {names}, {reason}{more}"
        others = "the other" if len(undecided) == 1 else f"{len(undecided)} others"
        claim = fit_answer(
            f"Keep {baseline}: none is proven faster; {names} {short_reason}.",
            f"Keep {baseline}: none is proven faster; {others} {short_reason}.",
            f"Keep {baseline} for now: {names} not decided.",
            f"Keep {baseline} for now: {len(undecided)} other stacks are not decided.",
            f"Not decided: keep {baseline} for now.",
        )
        return Answer(baseline, "not decided", sentence, claim, same, tuple(undecided))
    if same:
        others = format_items(same, MAX_NAMES)
        sentence = f"Equivalent within {100 * margin:.2g} %: keep {baseline} ({others} would do as well)"
        claim = fit_answer(
            f"Keep {baseline}: {others} would do as well, within {100 * margin:.2g} %.",
            f"Keep {baseline}: {len(same)} others are equivalent within {100 * margin:.2g} %.",
            f"Keep {baseline}: no other is better.",
        )
        return Answer(baseline, "no difference", sentence, claim, same)
    reason = "every other stack was excluded" if len(accepted) == 1 else "every other stack is worse"
    claim = fit_answer(f"Keep {baseline}: {reason}.", f"Keep {baseline}.")
    return Answer(baseline, "keep", f"Keep {baseline}: {reason}", claim)


def _explain_undecided(undecided: Mapping[str, MixVerdict], margin: float) -> tuple[str, str, str]:
    """Why these stacks are not decided, the same in short, and how many rounds would decide all; empty: unknown."""
    intervals = [verdict.interval for verdict in undecided.values()]
    ends = [end for interval in intervals for end in (interval.low, interval.high) if end is not None]
    reach_pct = max((abs(ratio_to_percent(end)) for end in ends), default=None)
    obstacle = next((verdict.obstacle for verdict in undecided.values() if verdict.obstacle), None)
    if reach_pct is None:
        reason, short = "there are no intervals", "not decided"
    elif reach_pct > 100 * margin or obstacle is None:
        reason = f"intervals reach ±{format_percent(reach_pct)}, wider than the {100 * margin:.2g} % margin"
        short = f"may differ by up to {format_percent(reach_pct)}"
    else:
        reason, short = obstacle, "not decided"
    counts = [verdict.rounds_needed for verdict in undecided.values() if verdict.rounds_needed is not None]
    more = f"; about {max(counts)} rounds would likely decide" if counts and len(counts) == len(undecided) else ""
    return reason, short, more


def _format_ratio(contender: Accepted, baseline: str) -> str:
    """A stack's ratio with its interval as text: in percent, or as a factor where that would be hundreds of percents.

    A ratio below 1 is turned around, so that "worse" comes with a positive figure.
    """
    text, ends = _describe_effect(contender, baseline)
    source = "predicted" if contender.stack.predicted else f"{contender.stack.rounds} rounds"
    if ends is None:
        return text
    interval = f"{100 * contender.stack.interval.level:.3g} % interval {ends}" if ends else "no interval"
    return f"{text} ({interval}, {source})"


def _claim_ratio(contender: Accepted, baseline: str) -> str:
    """A stack's ratio with the ends of its interval."""
    text, ends = _describe_effect(contender, baseline)
    return f"{text}, {ends}" if ends else text


def _describe_effect(contender: Accepted, baseline: str) -> tuple[str, str | None]:
    """A stack's ratio in words, and the ends of its interval: empty without ends, null without a ratio."""
    if contender.stack.baseline:
        return "the baseline", None
    interval = contender.stack.interval
    if interval.estimate is None:
        return f"not compared with {baseline}", None
    is_better = interval.estimate >= 1
    is_factor = not 1 / MIN_FACTOR < interval.estimate < MIN_FACTOR
    unit = "x" if is_factor else " %"

    def format_effect(ratio: float) -> str:
        if is_factor:
            return f"{ratio if is_better else 1 / ratio:.3g}"
        return f"{ratio_to_percent(ratio) if is_better else -ratio_to_percent(ratio):.1f}"

    text = f"{format_effect(interval.estimate)}{unit} {'better' if is_better else 'worse'} than {baseline}"
    if interval.low is None or interval.high is None:
        return text, ""
    low, high = (interval.low, interval.high) if is_better else (interval.high, interval.low)
    return text, f"{format_effect(low)} to {format_effect(high)}{unit}"


def sample_thompson(draws: npt.NDArray[np.float64], count: int) -> list[int]:
    """Thompson sampling: the first `count` different stacks that are the best of a draw, as indices into the columns.

    `draws`: Log ratios, (draws, stacks). Fewer indices are returned if fewer stacks are ever the best. Stacks with NaN
    draws (fewer than two complete rounds) are never chosen.

    >>> sample_thompson(np.array([[np.nan, 1.0, 2.0], [np.nan, 2.0, 1.0]]), 3)
    [2, 1]
    """
    # Not left to argmax, which takes NaN as the largest.
    known = np.flatnonzero(~np.isnan(draws).any(axis=0))
    if not known.size:
        return []
    return list(dict.fromkeys(known[draws[:, known].argmax(axis=1)].tolist()))[:count]


def build_proposals(
    context: Context,
    figures: RatioEstimates,
    accepted: Sequence[Accepted],
    excluded: Sequence[Excluded],
    request: RecommendationRequest,
) -> list[dict[str, Any]]:
    """Rows of PROPOSALS: stacks to measure next, beside the baseline.

    Candidates are stacks that no constraint excluded, and stacks that cannot be predicted only because one of their
    versions was never measured, unless a stack with that version gave wrong answers.
    """
    base = next(candidate for candidate in context.everything if candidate.baseline)
    candidates = [contender.stack for contender in accepted if not contender.stack.baseline]
    # Stacks that cannot be predicted, without those that have a version seen only with wrong answers.
    right_versions: set[tuple[str, str]] = set()
    wrong_versions: set[tuple[str, str]] = set()
    for candidate in context.everything:
        if candidate.arm is not None:
            is_right = candidate.arm in context.facts.trusted
            (right_versions if is_right else wrong_versions).update(candidate.packages.items())
    wrong_versions -= right_versions
    unpredicted = [exclusion.stack for exclusion in excluded if exclusion.unit == Predictable.__name__]
    unseen_candidates = [candidate for candidate in unpredicted if not wrong_versions & set(candidate.packages.items())]
    candidates += unseen_candidates
    if not candidates:
        return []
    draws = figures.draw_ratios([candidate.place for candidate in candidates], base.place, seed=request.seed + 1)
    chosen = [candidates[index] for index in sample_thompson(draws, request.propose)]
    return [
        {
            "session_id": context.session.session_id,
            "place": number,
            "stack": candidate.name,
            "stack_key": candidate.key,
            "ratio": candidate.interval.estimate,
            "low": candidate.interval.low,
            "high": candidate.interval.high,
            "n": candidate.rounds,
        }
        for number, candidate in enumerate(chosen, 1)
    ]


@dataclass(frozen=True)
class Recommendation:
    """A recommendation with its evidence.

    `key`, `baseline_key`: Keys of the recommended stack (null without one) and of the baseline.
    `table`, `excluded`, `justifications`, `proposals`: Tables RECOMMENDATIONS, EXCLUDED, JUSTIFICATIONS, PROPOSALS.
    `sentences`: The justifications, each with the stack that it is about; the first one is the answer.
    `unmeasured`: Number of solved stacks that were neither measured nor, without `predict`, considered.
    """

    session_id: str
    request: RecommendationRequest
    mix: Mix
    margin: float
    answer: Answer
    key: str | None
    baseline_key: str
    table: pl.DataFrame
    excluded: pl.DataFrame
    justifications: pl.DataFrame
    proposals: pl.DataFrame
    sentences: tuple[StackSentence, ...]
    unmeasured: int

    @property
    def is_known(self) -> bool:
        """Whether there is an answer: a stack, and where the mix chooses it, at least one decided comparison."""
        if self.answer.stack is None:
            return False
        return self.answer.kind != "not decided" or bool(set(self.table["verdict"]) & set(DECIDED))


@dataclass(frozen=True)
class Question:
    """A session and what is asked of it: settings, ratios of its stacks, and the context of the units.

    `unmeasured`: Number of solved stacks that were not measured and are not considered.
    """

    comparison: Comparison
    request: RecommendationRequest
    mix: Mix
    figures: RatioEstimates
    context: Context
    unmeasured: int


def recommend_nothing(question: Question, sentence: str) -> Recommendation:
    """Recommend no stack, for a reason."""
    answer = _answer_nothing(sentence)
    return _build_recommendation(question, answer, [], [], [_explain_answer(question, answer)], [])


def choose_recommendation(
    question: Question, accepted: Sequence[Accepted], excluded: Sequence[Excluded]
) -> Recommendation:
    """Choose among the accepted stacks, and explain the choice and every exclusion."""
    context = question.context
    ranked = sorted(
        accepted,
        key=lambda contender: (-contender.score, -(contender.stack.interval.estimate or 0.0), contender.stack.name),
    )
    # Ratio of the baseline's two copies over the mix; none for predicted figures.
    copy, control = context.session.control, None
    if copy is not None and isinstance(question.figures, PairedEstimates):
        ratio = question.figures.estimate_ratio(copy.name, context.session.baseline)
        control = ratio if ratio.estimate is not None else None
    verdicts = judge_mix(ranked, context.margin, control)
    answer = choose_answer(
        ranked, verdicts, question.figures, question.request.type, margin=context.margin, baseline=context.baseline
    )
    sentences = [_explain_answer(question, answer)]
    for reason in question.comparison.judgement["reasons"].to_list()[0]:
        warning = _build_justification(question, "WARNING", reason, context.facts.all_runs)
        sentences.append(StackSentence(None, warning))
    for contender in ranked:
        sentences += [StackSentence(contender.stack.name, justification) for justification in contender.sentences]
    sentences += [_explain_exclusion(question, exclusion) for exclusion in excluded]
    rows = list(_build_ranking_rows(question, ranked, verdicts, answer))
    proposals = []
    if question.request.propose:
        proposals = build_proposals(context, question.figures, ranked, excluded, question.request)
    return _build_recommendation(question, answer, rows, excluded, sentences, proposals)


def _estimate_chances(question: Question, ranked: Sequence[Accepted]) -> Chances | None:
    """Chances of each ranked stack to be the best; null if one has no ratio to draw from.

    They are about the scores for types that choose by the mix, else about the measured mix alone.
    """
    if not ranked:
        return None
    base = next(candidate for candidate in question.context.everything if candidate.baseline)
    draws = question.figures.draw_ratios(
        [contender.stack.place for contender in ranked], base.place, seed=question.request.seed
    )
    if not np.isfinite(draws).all():
        return None
    if question.request.type in MEASURED_TYPES:
        # Draws are log ratios (draws, stacks), and `extra` adds to the log of each stack.
        draws = draws + np.array([contender.extra for contender in ranked])
    return compute_chances(draws, question.context.margin)


def _build_ranking_rows(
    question: Question, ranked: Sequence[Accepted], verdicts: Mapping[str, MixVerdict], answer: Answer
) -> Iterator[dict[str, Any]]:
    """Rows of RECOMMENDATIONS, the highest score first."""
    chances = _estimate_chances(question, ranked)
    for index, contender in enumerate(ranked):
        stack, verdict = contender.stack, verdicts.get(contender.stack.name)
        yield {
            "session_id": question.context.session.session_id,
            "rank": index + 1,
            "stack": stack.name,
            "stack_key": stack.key,
            "arm": stack.arm,
            "baseline": stack.baseline,
            "recommended": stack.name == answer.stack,
            "score": contender.score,
            "ratio": stack.interval.estimate,
            "low": stack.interval.low,
            "high": stack.interval.high,
            "level": stack.interval.level,
            "n": stack.rounds,
            "p_best": None if chances is None else chances.p_best[index],
            "p_near": None if chances is None else chances.p_near[index],
            "regret_pct": None if chances is None else chances.regret_pct[index],
            "verdict": "BASELINE" if verdict is None else verdict.verdict,
            "rounds_needed": None if verdict is None else verdict.rounds_needed,
            "predicted": stack.predicted,
        }


def _explain_answer(question: Question, answer: Answer) -> StackSentence:
    """The answer with the runs of all stacks that it is about as evidence."""
    named = {answer.stack, *answer.as_good, question.context.baseline}
    runs = tuple(run for candidate in question.context.everything if candidate.name in named for run in candidate.runs)
    kind: Kind = "ERROR" if answer.stack is None else "INFO"
    all_runs = question.context.facts.all_runs
    return StackSentence(answer.stack, _build_justification(question, kind, answer.sentence, runs or all_runs))


def _explain_exclusion(question: Question, exclusion: Excluded) -> StackSentence:
    justification = _build_justification(
        question,
        "ERROR",
        f"{exclusion.stack.name}: {exclusion.reason}",
        exclusion.runs,
        link=exclusion.link,
        metric=None,
    )
    package = {"package_name": exclusion.package_name, "version_range": exclusion.version_range}
    return StackSentence(exclusion.stack.name, justification.model_copy(update=package))


def _build_justification(
    question: Question,
    kind: Kind,
    message: str,
    runs: tuple[str, ...],
    *,
    link: str | None = None,
    metric: str | None = MIX,
) -> Justification:
    """A sentence with its runs as evidence; it links to the first of them unless `link` says otherwise."""
    session = question.context.session
    evidence = Evidence(metric=metric, runs=runs, hardware=session.hardware.cpu_model, session=session.session_id)
    return Justification(type=kind, message=message, link=link or (runs[0] if runs else None), evidence=evidence)


def _build_recommendation(
    question: Question,
    answer: Answer,
    rows: list[dict[str, Any]],
    excluded: Sequence[Excluded],
    sentences: Sequence[StackSentence],
    proposals: list[dict[str, Any]],
) -> Recommendation:
    """Put rows of RECOMMENDATIONS and PROPOSALS, exclusions and sentences into the tables of a recommendation."""
    identity = {"session_id": question.context.session.session_id}
    numbered = [
        {**identity, "number": number, "stack": sentence.stack, **sentence.justification.to_row()}
        for number, sentence in enumerate(sentences, 1)
    ]
    exclusions = [
        {
            **identity,
            "stack": exclusion.stack.name,
            "stack_key": exclusion.stack.key,
            "unit": exclusion.unit,
            "reason": exclusion.reason,
            "link": exclusion.link,
            "runs": list(exclusion.runs),
        }
        for exclusion in excluded
    ]
    return Recommendation(
        session_id=identity["session_id"],
        request=question.request,
        mix=question.mix,
        margin=question.context.margin,
        answer=answer,
        key=next((row["stack_key"] for row in rows if row["recommended"]), None),
        baseline_key=next(candidate.key for candidate in question.context.everything if candidate.baseline),
        table=RECOMMENDATIONS.frame(rows),
        excluded=EXCLUDED.frame(exclusions),
        justifications=JUSTIFICATIONS.frame(numbered),
        proposals=PROPOSALS.frame(proposals),
        sentences=tuple(sentences),
        unmeasured=question.unmeasured,
    )
