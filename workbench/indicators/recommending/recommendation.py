"""From a session to a recommendation: figures of its stacks, constraints, scores, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.indicators.effects import Compared
from workbench.indicators.recommending import pipeline, vulnerabilities
from workbench.indicators.recommending.candidates import candidates, packages, with_figures
from workbench.indicators.recommending.constraints import constraints
from workbench.indicators.recommending.facts import Facts
from workbench.indicators.recommending.figures import Figures, Paired, modelled
from workbench.indicators.recommending.mix import Mix, Scored, scored
from workbench.indicators.recommending.request import Request
from workbench.indicators.recommending.result import Question, Recommendation, concluded, nothing
from workbench.indicators.recommending.steps import steps
from workbench.indicators.recommending.units import Candidate, Context, Unit

if TYPE_CHECKING:
    import polars as pl

    from workbench.indicators.stacks.model import StackSet

Queries = Callable[[str], "pl.DataFrame"]


def recommend(
    found: Compared,
    request: Request,
    *,
    stacks: StackSet | None = None,
    units: Sequence[Unit] = (),
    database: Queries | None = None,
) -> Recommendation:
    """Which of the stacks of this session should be used, and why?

    Parameters
    ----------
    found
        One session with its effects and judgement.
    request
        What matters, what is not allowed, how to choose.
    stacks
        The solved stacks, with what the index told about them; the only source of stacks that were not measured.
    units
        More units, run after those of this project of the same kind.
    database
        Answers a unit's named query that is no table of the session.

    Returns
    -------
    Recommendation
        With `answer.stack` null when the session is invalid or no stack is left; the sentence says which.

    Raises
    ------
    ConfigError, InputError
        The request does not fit the session, or a unit failed (it is named).
    InvalidResultError
        No run has a value.

    Notes
    -----
    Does not show what is best on another machine, with other threads, sizes or data, nor beyond the metrics of the
    mix. Chances are those among the stacks that no constraint left out.
    """
    known = vulnerabilities.read(request.vulnerabilities) if request.vulnerabilities else None
    asked = _question(found, request, stacks, database)
    if reasons := _unusable(found):
        return nothing(asked, "; ".join(reasons))
    taking_part = pipeline.included([*constraints(request, known), *steps(known), *units], asked.context)
    if refused := pipeline.boot(taking_part, asked.context):
        return nothing(asked, refused)
    left, excluded = pipeline.sieved(taking_part, asked.context.everything)
    asked.context.stacks = tuple(left)
    accepted, denied = pipeline.scored(taking_part, left, asked.context)
    return concluded(asked, accepted, [*excluded, *denied])


def _question(
    found: Compared, request: Request, stacks: StackSet | None, database: Queries | None
) -> Question:  # fmt: skip
    mix = _mix(found, request)
    session, facts = found.observed.session, Facts(found, mix.weights)
    everything = candidates(facts, stacks)
    unmeasured = sum(one.arm is None for one in everything)
    if not request.predict:
        everything = [one for one in everything if one.arm is not None]
    elif stacks is None:
        raise ConfigError(
            "no stacks to predict", where="--predict", found="the session has no stacks.json", do="give --stacks FILE"
        )
    scores = scored(found.observed.values, mix)
    figures = _figures(facts, scores, everything, predict=request.predict)
    everything = with_figures(everything, figures, scores)
    tolerances = {metric.name: metric.tolerance for case in session.cases for metric in case.metrics}
    context = Context(
        session=session,
        recommendation_type=request.type,
        baseline=next(one.name for one in everything if one.baseline),
        weights=mix.weights,
        margin=mix.margin(tolerances) if request.margin is None else request.margin,
        tables=_tables(found, everything),
        facts=facts,
        everything=tuple(everything),
        database=database,
    )
    return Question(found, request, mix, figures, context, 0 if request.predict else unmeasured)


def _mix(found: Compared, request: Request) -> Mix:
    values = set(found.observed.values["metric"])
    metrics = [metric.name for case in found.observed.session.cases for metric in case.metrics]
    if request.mix is None:
        return Mix.equal([metric for metric in metrics if metric in values])
    return Mix.read(request.mix, metrics)


def _figures(facts: Facts, scores: Scored, everything: list[Candidate], *, predict: bool) -> Figures:
    session = facts.found.observed.session
    level = session.level
    if not predict:
        return Paired(scores, frozenset(one.arm for one in everything if one.arm is not None), level)
    # Wrong answers may be fast ones: what such a stack did is no data about its versions.
    trusted = facts.trusted | {session.baseline}
    of_key = _told_apart(everything)
    arms = {arm.name: of_key[arm.stack_key] for arm in session.arms if arm.name in trusted}
    return modelled(scores, arms, {one.place: one.packages for one in everything}, level=level)


def _told_apart(everything: list[Candidate]) -> dict[str, str]:
    """The place of each key; the model knows stacks by their versions, and cannot tell two of one key apart."""
    keys = [one.key for one in everything]
    if alike := [one.name for one in everything if keys.count(one.key) > 1]:
        raise ConfigError(
            "cannot predict: stacks of the same versions cannot be told apart by versions", where="--predict",
            found=alike[:20], do="leave out --predict, or measure one of them alone",
        )  # fmt: skip
    return {one.key: one.place for one in everything}


def _tables(found: Compared, everything: list[Candidate]) -> dict[str, pl.DataFrame]:
    observed = found.observed
    raw = {"runs": observed.runs, "observations": observed.values, "checks": observed.checks}
    return {**raw, "effects": found.effects, "drift": found.drift, "packages": packages(everything)}


def _unusable(found: Compared) -> list[str]:
    """Why nothing may be concluded at all."""
    session = found.observed.session
    reasons = [] if found.valid else list(found.judgement["reasons"].to_list()[0])
    if session.backend == "imported":
        reasons.append("imported: nobody knows in which order it was measured")
    return reasons
