"""Choose the recommended stack, explain the choice, and propose the stacks to measure next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from workbench.core.formats import format_items
from workbench.indicators.analysis.effects import Comparison
from workbench.indicators.analysis.judgement import find_obstacle, format_percent
from workbench.indicators.recommendation.evidence import MIX, Evidence, Justification, Kind, ratio_to_percent
from workbench.indicators.recommendation.metric_mix import MODEL, Chances, Mix, compute_chances
from workbench.indicators.recommendation.ratio_estimates import PairedEstimates, RatioEstimates
from workbench.indicators.recommendation.recommendation_request import RecommendationRequest
from workbench.indicators.recommendation.scoring_steps import MEASURED_TYPES, Predictable
from workbench.indicators.recommendation.unit_pipeline import Accepted, Candidate, Context, Excluded, RecommendationType
from workbench.indicators.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS
from workbench.stats import Decision, Interval, Verdict, count_required_pairs, decide_beyond
from workbench.stats.verdicts import DECIDED, FASTER, SAME, UNDECIDED

if TYPE_CHECKING:
    import polars as pl

MAX_NAMES = 12
# Effects from this ratio on are told as a factor.
MIN_FACTOR = 3.0
AnswerKind = Literal["better", "no difference", "not decided", "keep", "best left", "by type", "nothing"]
Said = tuple[str | None, Justification]
"""A sentence with the stack that it is about; null: about the session."""


@dataclass(frozen=True)
class MixVerdict:
    """Verdicts over the mix, without and with the scores of the other steps; rounds that would likely decide.

    `interval` is the one behind `preferred`; `obstacle` says what forbids SAME, if anything does.
    """

    verdict: Verdict
    preferred: Verdict
    interval: Interval
    rounds_needed: int | None
    obstacle: str | None = None


@dataclass(frozen=True)
class Answer:
    """The recommended stack (null: none), the kind of answer, and one sentence without a full stop.

    `as_good` lists stacks that are not clearly worse, `undecided` those that may be better or worse than a baseline
    that is kept.
    """

    stack: str | None
    kind: AnswerKind
    sentence: str
    as_good: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


def judge_mix(accepted: Sequence[Accepted], margin: float, control: Interval | None = None) -> dict[str, MixVerdict]:
    """Verdicts of all stacks but the baseline, as one family, by the rule for single metrics.

    `control` is the ratio of the baseline's two copies over the mix: where it reaches beyond the margin, no stack is
    SAME.
    """
    others = [contender for contender in accepted if not contender.stack.baseline]
    base = next((contender.extra for contender in accepted if contender.stack.baseline), 0.0)
    margins = [margin] * len(others)
    shifted = [shift_interval(contender.stack.interval, contender.extra - base) for contender in others]
    obstacle = None if control is None else find_obstacle(control, margin, diluted=False)
    alone = _withhold_same(decide_beyond([contender.stack.interval for contender in others], margins), obstacle)
    preferred = _withhold_same(decide_beyond(shifted, margins), obstacle)
    return {
        contender.stack.name: MixVerdict(
            first.verdict,
            second.verdict,
            interval,
            _estimate_rounds(contender, margin, len(others), control if obstacle else None)
            if first.verdict == UNDECIDED
            else None,
            obstacle,
        )
        for contender, interval, first, second in zip(others, shifted, alone, preferred, strict=True)
    }


def choose_answer(
    accepted: Sequence[Accepted],
    verdicts: Mapping[str, MixVerdict],
    figures: RatioEstimates,
    kind: RecommendationType,
    *,
    margin: float,
    baseline: str,
) -> Answer:
    """Choose among the accepted stacks, which are ordered by score.

    Types that choose by the mix leave the baseline only for a stack that is better beyond the margin, with the
    certainty of the verdicts; a baseline that a constraint excluded cannot be kept. Other types take the highest score.
    """
    if not accepted:
        return Answer(None, "nothing", "Nothing is recommended: every stack was excluded")
    if kind not in MEASURED_TYPES:
        best = accepted[0]
        reason = {"latest": "it has the newest versions", "testing": "its results would teach the most"}[kind]
        return Answer(best.stack.name, "by type", f"{best.stack.name}: {reason}; {_format_ratio(best, baseline)}")
    better = [
        contender
        for contender in accepted
        if contender.stack.name in verdicts and verdicts[contender.stack.name].preferred == FASTER
    ]
    base = next((contender for contender in accepted if contender.stack.baseline), None)
    if base is None or better:
        best = (better or list(accepted))[0]
        answer = _answer_better(best, accepted, figures, margin, baseline)
        excluded = f"{answer.sentence}; the baseline is excluded"
        return answer if base is not None else replace(answer, kind="best left", sentence=excluded)
    return _answer_keep(accepted, verdicts, margin, baseline)


def shift_interval(interval: Interval, by: float) -> Interval:
    """Shift a ratio by what other steps add to its logarithm."""
    if not by or interval.estimate is None:
        return interval
    factor = math.exp(by)
    low = None if interval.low is None else interval.low * factor
    high = None if interval.high is None else interval.high * factor
    return replace(interval, estimate=interval.estimate * factor, low=low, high=high)


def _withhold_same(decisions: Sequence[Decision], obstacle: str | None) -> list[Decision]:
    return [
        replace(decision, verdict=UNDECIDED) if obstacle and decision.verdict == SAME else decision
        for decision in decisions
    ]


def _estimate_rounds(contender: Accepted, margin: float, family: int, control: Interval | None) -> int | None:
    """Rounds after which the stack, and the control where that is what is in the way, would likely be decided."""
    interval = contender.stack.interval
    # A model's interval also depends on the rounds of other stacks, so no number of rounds follows from it.
    if interval.method == MODEL:
        return None
    is_within = decide_beyond([interval], [margin])[0].verdict == SAME
    if control is not None and is_within:
        return count_required_pairs(control, margin)
    return count_required_pairs(interval, margin, family)


def _answer_better(
    best: Accepted, accepted: Sequence[Accepted], figures: RatioEstimates, margin: float, baseline: str
) -> Answer:
    as_good = []
    for other in accepted:
        if other is not best:
            apart = shift_interval(
                figures.estimate_ratio(best.stack.place, other.stack.place), best.extra - other.extra
            )
            if apart.low is None or apart.low <= 1 + margin:
                as_good.append(other.stack.name)
    sentence = f"Use {best.stack.name}: {_format_ratio(best, baseline)}"
    if as_good:
        sentence += f"; not clearly worse than it by more than {100 * margin:.2g} %: {format_items(as_good, MAX_NAMES)}"
    return Answer(best.stack.name, "better", sentence, tuple(as_good))


def _answer_keep(
    accepted: Sequence[Accepted], verdicts: Mapping[str, MixVerdict], margin: float, baseline: str
) -> Answer:
    same = tuple(name for name, verdict in verdicts.items() if verdict.preferred == SAME)
    unsure = {name: verdict for name, verdict in verdicts.items() if verdict.preferred == UNDECIDED}
    if unsure:
        sentence = _format_undecided(unsure, margin, baseline)
        return Answer(baseline, "not decided", sentence, same, tuple(unsure))
    if same:
        others = format_items(same, MAX_NAMES)
        sentence = f"Equivalent within {100 * margin:.2g} %: keep {baseline} ({others} would do as well)"
        return Answer(baseline, "no difference", sentence, same)
    if len(accepted) == 1:
        return Answer(baseline, "keep", f"Keep {baseline}: every other stack was excluded")
    return Answer(baseline, "keep", f"Keep {baseline}: every other stack is worse")


def _format_undecided(unsure: Mapping[str, MixVerdict], margin: float, baseline: str) -> str:
    ends = [
        end for verdict in unsure.values() for end in (verdict.interval.low, verdict.interval.high) if end is not None
    ]
    rounds = [verdict.rounds_needed for verdict in unsure.values()]
    counts = [count for count in rounds if count is not None]
    reach = max((abs(ratio_to_percent(end)) for end in ends), default=None)
    obstacle = next((verdict.obstacle for verdict in unsure.values() if verdict.obstacle), None)
    if reach is None:
        reason = "there are no intervals"
    elif reach > 100 * margin or obstacle is None:
        reason = f"intervals reach ±{format_percent(reach)}, wider than the {100 * margin:.2g} % margin"
    else:
        reason = obstacle
    more = f"; about {max(counts)} rounds would likely decide" if counts and len(counts) == len(rounds) else ""
    return f"Not decided for {format_items(unsure, MAX_NAMES)}: {reason}; keep {baseline} for now{more}"


def _format_ratio(contender: Accepted, baseline: str) -> str:
    """The effect with its interval: in percent, or as a factor where percents would be hundreds."""
    if contender.stack.baseline:
        return "the baseline"
    interval = contender.stack.interval
    source = "predicted" if contender.stack.predicted else f"{contender.stack.rounds} rounds"
    if interval.estimate is None:
        return f"not compared with {baseline}"
    is_better = interval.estimate >= 1
    is_factor = not 1 / MIN_FACTOR < interval.estimate < MIN_FACTOR
    unit = "x" if is_factor else " %"

    def format_effect(ratio: float) -> str:
        if is_factor:
            return f"{ratio if is_better else 1 / ratio:.3g}"
        return f"{ratio_to_percent(ratio) if is_better else -ratio_to_percent(ratio):.1f}"

    text = f"{format_effect(interval.estimate)}{unit} {'better' if is_better else 'worse'} than {baseline}"
    if interval.low is None or interval.high is None:
        return f"{text} (no interval, {source})"
    low, high = (interval.low, interval.high) if is_better else (interval.high, interval.low)
    ends = f"{format_effect(low)} to {format_effect(high)}{unit}"
    return f"{text} ({100 * interval.level:.3g} % interval {ends}, {source})"


def sample_thompson(draws: npt.NDArray[np.float64], count: int) -> list[int]:
    """Thompson sampling: the first `count` different stacks that are the best of a draw, in the order of the draws."""
    return list(dict.fromkeys(draws.argmax(axis=1).tolist()))[:count]


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
    stacks = [contender.stack for contender in accepted if not contender.stack.baseline] + _list_unseen_candidates(
        context, excluded
    )
    if not stacks:
        return []
    draws = figures.draw_ratios([stack.place for stack in stacks], base.place, seed=request.seed + 1)
    chosen = [stacks[place] for place in sample_thompson(draws, request.propose)]
    return [
        {
            "session_id": context.session.session_id,
            "place": place + 1,
            "stack": stack.name,
            "stack_key": stack.key,
            "ratio": stack.interval.estimate,
            "low": stack.interval.low,
            "high": stack.interval.high,
            "n": stack.rounds,
        }
        for place, stack in enumerate(chosen)
    ]


def _list_unseen_candidates(context: Context, excluded: Sequence[Excluded]) -> list[Candidate]:
    trusted = context.facts.trusted
    right = {
        pair for candidate in context.everything if candidate.arm in trusted for pair in candidate.packages.items()
    }
    wrong = {
        pair
        for candidate in context.everything
        if candidate.arm is not None and candidate.arm not in trusted
        for pair in candidate.packages.items()
    } - right
    unseen = [exclusion.stack for exclusion in excluded if exclusion.unit == Predictable.__name__]
    return [stack for stack in unseen if not wrong & set(stack.packages.items())]


@dataclass(frozen=True)
class Recommendation:
    """A recommendation with its evidence.

    `session_id`, `request`, `mix`, `margin`: The session, the settings, the weights, and the practical margin as a
    share.
    `answer`: The stack (null: none), the kind of answer, the sentence.
    `key`: Key of the recommended stack; null without one.
    `said`: The sentences, each with the stack that it is about; the first one is the answer.
    `unmeasured`: Number of solved stacks that were not measured and, without `predict`, not considered.
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
    said: tuple[Said, ...]
    unmeasured: int

    @property
    def is_known(self) -> bool:
        """Whether there is an answer: a stack, and where the mix chooses it, at least one decided comparison."""
        if self.answer.stack is None:
            return False
        return self.answer.kind != "not decided" or bool(set(self.table["verdict"]) & set(DECIDED))


@dataclass(frozen=True)
class Question:
    """A session, the settings of the recommendation, and the context of its units."""

    comparison: Comparison
    request: RecommendationRequest
    mix: Mix
    figures: RatioEstimates
    context: Context
    unmeasured: int


def recommend_nothing(question: Question, sentence: str) -> Recommendation:
    """Recommend no stack, for a reason."""
    answer = Answer(None, "nothing", f"Nothing is recommended: {sentence}")
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
    verdicts = judge_mix(ranked, context.margin, _estimate_control(question))
    answer = choose_answer(
        ranked, verdicts, question.figures, question.request.type, margin=context.margin, baseline=context.baseline
    )
    sentences = [_explain_answer(question, answer)]
    for reason in question.comparison.judgement["reasons"].to_list()[0]:
        sentences.append((None, _build_justification(question, "WARNING", reason, context.facts.all_runs)))
    sentences += [(contender.stack.name, sentence) for contender in ranked for sentence in contender.said]
    sentences += [(exclusion.stack.name, _explain_exclusion(question, exclusion)) for exclusion in excluded]
    rows = _build_ranking_rows(question, ranked, verdicts, answer)
    proposed = (
        build_proposals(context, question.figures, ranked, excluded, question.request)
        if question.request.propose
        else []
    )
    return _build_recommendation(question, answer, list(rows), excluded, sentences, proposed)


def _estimate_control(question: Question) -> Interval | None:
    """Ratio of the baseline's two copies over the mix; null without a control, or for predicted figures."""
    session = question.context.session
    control = next((arm.name for arm in session.arms if arm.copy_number), None)
    if control is None or not isinstance(question.figures, PairedEstimates):
        return None
    ratio = question.figures.estimate_ratio(control, session.baseline)
    return ratio if ratio.estimate is not None else None


def _estimate_chances(question: Question, ranked: Sequence[Accepted]) -> Chances | None:
    """Chances by the scores for types that choose by the mix, else by the mix alone; null if a stack has no draws."""
    if not ranked:
        return None
    base = next(candidate for candidate in question.context.everything if candidate.baseline)
    draws = question.figures.draw_ratios(
        [contender.stack.place for contender in ranked], base.place, seed=question.request.seed
    )
    if not np.isfinite(draws).all():
        return None
    if question.request.type in MEASURED_TYPES:
        draws = draws + np.array([contender.extra for contender in ranked])
    return compute_chances(draws, question.context.margin)


def _build_ranking_rows(
    question: Question, ranked: Sequence[Accepted], verdicts: Mapping[str, MixVerdict], answer: Answer
) -> Iterator[dict[str, Any]]:
    chance = _estimate_chances(question, ranked)
    for place, contender in enumerate(ranked):
        stack, verdict = contender.stack, verdicts.get(contender.stack.name)
        yield {
            "session_id": question.context.session.session_id,
            "rank": place + 1,
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
            "p_best": None if chance is None else chance.p_best[place],
            "p_near": None if chance is None else chance.p_near[place],
            "regret_pct": None if chance is None else chance.regret_pct[place],
            "verdict": "BASELINE" if verdict is None else verdict.verdict,
            "rounds_needed": None if verdict is None else verdict.rounds_needed,
            "predicted": stack.predicted,
        }


def _explain_answer(question: Question, answer: Answer) -> Said:
    named = {answer.stack, *answer.as_good, question.context.baseline}
    runs = tuple(run for candidate in question.context.everything if candidate.name in named for run in candidate.runs)
    kind: Kind = "ERROR" if answer.stack is None else "INFO"
    return answer.stack, _build_justification(question, kind, answer.sentence, runs or question.context.facts.all_runs)


def _explain_exclusion(question: Question, exclusion: Excluded) -> Justification:
    justification = _build_justification(
        question,
        "ERROR",
        f"{exclusion.stack.name}: {exclusion.reason}",
        exclusion.runs,
        link=exclusion.link,
        metric=None,
    )
    return justification.model_copy(
        update={"package_name": exclusion.package_name, "version_range": exclusion.version_range}
    )


def _build_justification(
    question: Question,
    kind: Kind,
    message: str,
    runs: tuple[str, ...],
    *,
    link: str | None = None,
    metric: str | None = MIX,
) -> Justification:
    session = question.context.session
    evidence = Evidence(metric=metric, runs=runs, hardware=session.hardware.cpu_model, session=session.session_id)
    return Justification(type=kind, message=message, link=link or (runs[0] if runs else None), evidence=evidence)


def _build_recommendation(
    question: Question,
    answer: Answer,
    rows: list[dict[str, Any]],
    excluded: Sequence[Excluded],
    sentences: Sequence[Said],
    proposed: list[dict[str, Any]],
) -> Recommendation:
    identity = {"session_id": question.context.session.session_id}
    numbered = [
        {**identity, "number": place + 1, "stack": stack, **justification.to_row()}
        for place, (stack, justification) in enumerate(sentences)
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
        proposals=PROPOSALS.frame(proposed),
        said=tuple(sentences),
        unmeasured=question.unmeasured,
    )
