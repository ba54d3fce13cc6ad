"""A recommendation as tables and sentences, from the stacks that were left and those that were not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.indicators.effects import Compared
from workbench.indicators.recommending import answer as answers
from workbench.indicators.recommending.answer import Answer, Judged
from workbench.indicators.recommending.chances import Chances, chances
from workbench.indicators.recommending.figures import Figures
from workbench.indicators.recommending.justification import MIX, Evidence, Justification, Kind
from workbench.indicators.recommending.mix import Mix
from workbench.indicators.recommending.pipeline import Accepted, Excluded
from workbench.indicators.recommending.proposing import proposals
from workbench.indicators.recommending.request import Request
from workbench.indicators.recommending.steps import MEASURED_TYPES
from workbench.indicators.recommending.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS
from workbench.indicators.recommending.units import Context

if TYPE_CHECKING:
    import polars as pl

Said = tuple[str | None, Justification]
"""A sentence with the stack that it is about; null for the session."""


@dataclass(frozen=True)
class Recommendation:
    """A recommendation with all that it rests on.

    Attributes
    ----------
    session_id, request, mix, margin
        Of which session, what was asked for, the weights, and the practical margin as a share.
    answer
        The stack (null: none), the kind of answer, the sentence.
    key
        The recommended stack's key; null when nothing is recommended.
    baseline_key
        The key of the session's baseline, whether or not a constraint left it out.
    table, excluded, justifications, proposals
        Tables RECOMMENDATIONS, EXCLUDED, JUSTIFICATIONS, PROPOSALS.
    said
        The sentences, each with the stack it is about; the answer's is the first.
    unmeasured
        Solved stacks that were not measured and, without `predict`, not looked at.
    """

    session_id: str
    request: Request
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


@dataclass(frozen=True)
class Question:
    """A session, what is asked of it, and what its units share."""

    found: Compared
    request: Request
    mix: Mix
    figures: Figures
    context: Context
    unmeasured: int


def nothing(asked: Question, sentence: str) -> Recommendation:
    """A recommendation of nothing, with the reason."""
    answer = Answer(None, "nothing", f"nothing is recommended: {sentence}")
    return _made(asked, answer, [], [], [_of_the_answer(asked, answer)], [])


def concluded(asked: Question, accepted: Sequence[Accepted], excluded: Sequence[Excluded]) -> Recommendation:
    """Choose among the stacks that are left, say why, and why not the others."""
    context = asked.context
    ranked = sorted(accepted, key=_by_score)
    verdicts = answers.judged(ranked, context.margin)
    answer = answers.answered(
        ranked, verdicts, asked.figures, asked.request.type, margin=context.margin, baseline=context.baseline
    )
    said = [_of_the_answer(asked, answer), *_of_the_session(asked)]
    said += [(one.stack.name, sentence) for one in ranked for sentence in one.said]
    said += [(one.stack.name, _why_not(asked, one)) for one in excluded]
    rows = _rows(asked, ranked, verdicts, answer)
    proposed = proposals(context, asked.figures, ranked, excluded, asked.request) if asked.request.propose else []
    return _made(asked, answer, list(rows), excluded, said, proposed)


def _by_score(one: Accepted) -> tuple[float, float, str]:
    ratio = one.stack.interval.estimate
    return -one.score, -(ratio or 0.0), one.stack.name


def _chances(asked: Question, ranked: Sequence[Accepted]) -> Chances | None:
    """Of the scores, for the types that choose by the mix; else of the mix alone. Null when one has no draws."""
    if not ranked:
        return None
    base = next(one for one in asked.context.everything if one.baseline)
    draws = asked.figures.draws([one.stack.place for one in ranked], base.place, seed=asked.request.seed)
    if not np.isfinite(draws).all():
        return None
    if asked.request.type in MEASURED_TYPES:
        draws = draws + np.array([one.extra for one in ranked])
    return chances(draws, asked.context.margin)


def _rows(
    asked: Question, ranked: Sequence[Accepted], verdicts: Mapping[str, Judged], answer: Answer
) -> Iterator[dict[str, Any]]:
    chance = _chances(asked, ranked)
    for place, one in enumerate(ranked):
        stack, own = one.stack, verdicts.get(one.stack.name)
        yield {
            "session_id": asked.context.session.session_id,
            "rank": place + 1,
            "stack": stack.name,
            "stack_key": stack.key,
            "arm": stack.arm,
            "baseline": stack.baseline,
            "recommended": stack.name == answer.stack,
            "score": one.score,
            "ratio": stack.interval.estimate,
            "low": stack.interval.low,
            "high": stack.interval.high,
            "level": stack.interval.level,
            "n": stack.rounds,
            "p_best": None if chance is None else chance.p_best[place],
            "p_near": None if chance is None else chance.p_near[place],
            "regret_pct": None if chance is None else chance.regret_pct[place],
            "verdict": "BASELINE" if own is None else own.verdict,
            "rounds_needed": None if own is None else own.rounds_needed,
            "predicted": stack.predicted,
        }


def _of_the_answer(asked: Question, answer: Answer) -> Said:
    named = {answer.stack, *answer.as_good, asked.context.baseline}
    runs = tuple(run for one in asked.context.everything if one.name in named for run in one.runs)
    kind: Kind = "ERROR" if answer.stack is None else "INFO"
    return answer.stack, _sentence(asked, kind, answer.sentence, runs or asked.context.facts.all_runs)


def _of_the_session(asked: Question) -> list[Said]:
    """What should be borne in mind about the session."""
    reasons = asked.found.judgement["reasons"].to_list()[0]
    return [(None, _sentence(asked, "WARNING", reason, asked.context.facts.all_runs)) for reason in reasons]


def _why_not(asked: Question, one: Excluded) -> Justification:
    made = _sentence(asked, "ERROR", f"{one.stack.name}: {one.reason}", one.runs, link=one.link, metric=None)
    return made.model_copy(update={"package_name": one.package_name, "version_range": one.version_range})


def _sentence(
    asked: Question,
    kind: Kind,
    message: str,
    runs: tuple[str, ...],
    *,
    link: str | None = None,
    metric: str | None = MIX,
) -> Justification:
    session = asked.context.session
    evidence = Evidence(metric=metric, runs=runs, hardware=session.hardware.cpu_model, session=session.session_id)
    return Justification(type=kind, message=message, link=link or (runs[0] if runs else None), evidence=evidence)


def _made(
    asked: Question,
    answer: Answer,
    rows: list[dict[str, Any]],
    excluded: Sequence[Excluded],
    said: Sequence[Said],
    proposed: list[dict[str, Any]],
) -> Recommendation:
    identity = {"session_id": asked.context.session.session_id}
    numbered = [
        {**identity, "number": place + 1, "stack": stack, **one.row()} for place, (stack, one) in enumerate(said)
    ]
    return Recommendation(
        session_id=identity["session_id"],
        request=asked.request,
        mix=asked.mix,
        margin=asked.context.margin,
        answer=answer,
        key=next((row["stack_key"] for row in rows if row["recommended"]), None),
        baseline_key=next(one.key for one in asked.context.everything if one.baseline),
        table=RECOMMENDATIONS.frame(rows),
        excluded=EXCLUDED.frame([{**identity, **_left_out(one)} for one in excluded]),
        justifications=JUSTIFICATIONS.frame(numbered),
        proposals=PROPOSALS.frame(proposed),
        said=tuple(said),
        unmeasured=asked.unmeasured,
    )


def _left_out(one: Excluded) -> dict[str, Any]:
    what = {"stack": one.stack.name, "stack_key": one.stack.key, "unit": one.unit}
    return {**what, "reason": one.reason, "link": one.link, "runs": list(one.runs)}
