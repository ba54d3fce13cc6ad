"""Recommend a stack of a session: candidates, constraints, scores, and the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.core import files
from workbench.core.errors import ConfigError, InputError, refuse_os_errors
from workbench.indicators.analysis.effects import Comparison, compare_by_clock
from workbench.indicators.recommendation import unit_pipeline, vulnerabilities
from workbench.indicators.recommendation.conclusion import (
    Question,
    Recommendation,
    choose_recommendation,
    recommend_nothing,
)
from workbench.indicators.recommendation.evidence import Facts
from workbench.indicators.recommendation.metric_mix import Mix, MixScores, score_rounds
from workbench.indicators.recommendation.ratio_estimates import PairedEstimates, RatioEstimates, fit_model_estimates
from workbench.indicators.recommendation.recommendation_request import RecommendationRequest
from workbench.indicators.recommendation.scoring_steps import list_constraints, list_scoring_units
from workbench.indicators.recommendation.unit_pipeline import Candidate, Context, Unit, is_sql
from workbench.indicators.stacks import stack_sets
from workbench.indicators.stacks.stack_report import format_pylock
from workbench.indicators.stacks.stack_sets import Stack, StackSet
from workbench.indicators.store import sql_queries
from workbench.indicators.store.archive import SESSION_FILE, Arm, Session, read_session
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.tables import EXCLUDED, JUSTIFICATIONS, PROPOSALS, RECOMMENDATIONS
from workbench.indicators.tables import STACK_PACKAGES as PACKAGES

if TYPE_CHECKING:
    import polars as pl


Queries = Callable[[str], "pl.DataFrame"]
MAX_SESSIONS = 1000


def list_candidates(facts: Facts, stack_set: StackSet | None) -> list[Candidate]:
    """List every stack once: the session's arms without the control, then solved stacks that were not measured."""
    session = facts.comparison.observed.session
    solved = stack_set.by_arm_key if stack_set is not None else {}
    arms = [arm for arm in session.arms if not arm.is_control]
    twice = {name for name, count in Counter(arm.stack for arm in arms).items() if count > 1}
    measured = [
        _build_candidate(
            facts, solved.get(arm.stack_key), arm.name if arm.stack in twice else arm.stack, arm.stack_key, arm
        )
        for arm in arms
    ]
    keys, names = {candidate.key for candidate in measured}, {candidate.name for candidate in measured}
    # A lock of a matrix was measured under the settings of its arms.
    used = {variation.stack for variation in stack_set.variations} if stack_set is not None else set()
    unmeasured = [stack for key, stack in solved.items() if key not in keys and stack.key not in used]
    return measured + [
        _build_candidate(
            facts, stack, f"{stack.name} ({stack.key[:8]})" if stack.name in names else stack.name, stack.key
        )
        for stack in unmeasured
    ]


def add_estimates(candidates: list[Candidate], figures: RatioEstimates, scores: MixScores) -> list[Candidate]:
    """Add to each candidate its ratio to the baseline and its number of rounds."""
    base = next(candidate for candidate in candidates if candidate.baseline)
    base_scores = scores.arm_scores(base.arm or "")
    estimated = []
    for candidate in candidates:
        rounds = int(np.isfinite(scores.arm_scores(candidate.arm or "") - base_scores).sum())
        interval = figures.estimate_ratio(candidate.place, base.place)
        estimated.append(replace(candidate, interval=interval, rounds=rounds, predicted=rounds == 0))
    return estimated


def build_package_table(candidates: list[Candidate]) -> pl.DataFrame:
    """Table STACK_PACKAGES, for queries by name: one row per candidate and package."""
    return PACKAGES.frame(
        [
            {
                "stack": candidate.name,
                "stack_key": candidate.key,
                "arm": candidate.arm,
                "package": name,
                "version": version,
                "newest_upload": candidate.uploaded.get(name),
                "yanked": candidate.yanked.get(name),
            }
            for candidate in candidates
            for name, version in candidate.packages.items()
        ]
    )


def _build_candidate(facts: Facts, stack: Stack | None, name: str, key: str, arm: Arm | None = None) -> Candidate:
    """An arm with what the index tells of its stack, or a solved stack without an arm."""
    session, versions = facts.comparison.observed.session, stack.versions if stack else {}
    packages = stack.packages if stack else ()
    runs = facts.runs_of(arm.name) if arm else ()
    return Candidate(
        name=name,
        key=key,
        arm=arm.name if arm else None,
        packages=(dict(arm.packages) if arm else {}) or versions,
        uploaded={package.name: package.newest_upload for package in packages},
        yanked={package.name: package.yanked for package in packages},
        baseline=arm is not None and arm.name == session.baseline,
        predicted=arm is None,
        runs=runs,
        basis=runs or facts.all_runs,
        hardware=session.hardware.cpu_model,
        session=session.session_id,
    )


def recommend(
    comparison: Comparison,
    request: RecommendationRequest,
    *,
    stack_set: StackSet | None = None,
    units: Sequence[Unit] = (),
    database: Queries | None = None,
) -> Recommendation:
    """Recommend one of a session's stacks, with the evidence.

    Parameters
    ----------
    comparison
        One session with its effects and judgement.
    request
        The mix, the constraints, and how to choose.
    stack_set
        The solved stacks with the facts from the index; the only source of stacks that were not measured.
    units
        Own units; they run after the built-in units of the same kind.
    database
        Answers named queries of units for which the session has no table.

    Returns
    -------
    Recommendation
        Its `answer.stack` is null if the session is invalid or every stack was excluded; the sentence says which.

    Raises
    ------
    ConfigError, InputError
        The request does not fit the session, or a unit failed; names the unit.
    InvalidResultError
        No run has a value.

    Notes
    -----
    Does not apply to other machines, thread counts, sizes or data, nor beyond the metrics of the mix. Chances are
    among the stacks that no constraint excluded.
    """
    comparison = compare_by_clock(comparison, request.clock)
    advisories = vulnerabilities.read_vulnerabilities(request.vulnerabilities) if request.vulnerabilities else None
    question = _build_question(comparison, request, stack_set, database)
    context = question.context
    reasons = [] if comparison.sound else list(comparison.judgement["reasons"].to_list()[0])
    if comparison.observed.session.backend == "imported":
        reasons.append("imported: the order of its runs is unknown")
    if reasons:
        return recommend_nothing(question, "; ".join(reasons))
    all_units = [*list_constraints(request, advisories), *list_scoring_units(request.type, advisories), *units]
    active = unit_pipeline.select_units(all_units, context)
    if refused := unit_pipeline.boot_units(active, context):
        return recommend_nothing(question, refused)
    candidates, excluded = unit_pipeline.sieve_stacks(active, context.everything)
    context.stacks = tuple(candidates)
    accepted, denied = unit_pipeline.score_stacks(active, candidates, context)
    return choose_recommendation(question, accepted, [*excluded, *denied])


def _build_question(
    comparison: Comparison, request: RecommendationRequest, stack_set: StackSet | None, database: Queries | None
) -> Question:  # fmt: skip
    """The ratios of all stacks by the mix, and what the units of the recommendation see."""
    values = set(comparison.observed.values["metric"])
    metrics = [metric.name for case in comparison.observed.session.cases for metric in case.metrics]
    if request.mix is None:
        mix = Mix.equal_weights([metric for metric in metrics if metric in values])
    else:
        mix = Mix.from_text(request.mix, metrics)
    session, facts = comparison.observed.session, Facts(comparison, mix.weights)
    everything = list_candidates(facts, stack_set)
    unmeasured = sum(candidate.arm is None for candidate in everything)
    if not request.predict:
        everything = [candidate for candidate in everything if candidate.arm is not None]
    elif stack_set is None:
        raise ConfigError(
            "no stacks to predict", where="--predict", found="the session has no stacks.json", do="give --stacks FILE"
        )
    scores = score_rounds(comparison.observed.values, mix)
    figures = _build_estimates(facts, scores, everything, predict=request.predict)
    everything = add_estimates(everything, figures, scores)
    tolerances = {metric.name: metric.tolerance for case in session.cases for metric in case.metrics}
    context = Context(
        session=session,
        recommendation_type=request.type,
        baseline=next(candidate.name for candidate in everything if candidate.baseline),
        weights=mix.weights,
        margin=mix.practical_margin(tolerances) if request.margin is None else request.margin,
        tables={
            "runs": comparison.observed.runs,
            "observations": comparison.observed.values,
            "checks": comparison.observed.checks,
            "effects": comparison.effects,
            "drift": comparison.drift,
            "packages": build_package_table(everything),
        },
        facts=facts,
        everything=tuple(everything),
        database=database,
    )
    return Question(comparison, request, mix, figures, context, 0 if request.predict else unmeasured)


def _build_estimates(facts: Facts, scores: MixScores, everything: list[Candidate], *, predict: bool) -> RatioEstimates:
    """Ratios from the rounds of measured stacks; to predict others, from a model of versions."""
    session = facts.comparison.observed.session
    level = session.level
    if not predict:
        arm_names = frozenset(arm.name for arm in session.arms)
        return PairedEstimates(scores, arm_names, level, sequence=session.method == "sequence")
    # Wrong answers may be fast: the times of such a stack say nothing about its versions.
    trusted = facts.trusted | {session.baseline}
    # The place of each key; the model identifies stacks by their versions, so keys must be unique.
    keys = [candidate.key for candidate in everything]
    if alike := [candidate.name for candidate in everything if keys.count(candidate.key) > 1]:
        raise ConfigError(
            "cannot predict: several stacks have the same versions", where="--predict",
            found=alike[:20], do="omit --predict, or measure only one of them",
        )  # fmt: skip
    of_key = {candidate.key: candidate.place for candidate in everything}
    arms = {arm.name: of_key[arm.stack_key] for arm in session.arms if arm.name in trusted}
    return fit_model_estimates(
        scores, arms, {candidate.place: candidate.packages for candidate in everything}, level=level
    )


def choose_session(folders: Sequence[Path], session_id: str | None = None) -> Path:
    """Find the folder of a session."""
    by_path = {path: read_session(path) for folder in folders for path in _list_session_folders(folder)}
    if not by_path:
        raise InputError(
            "no session there", where=", ".join(map(str, folders)), found=f"no {SESSION_FILE}",
            do="workbench indicators run --stacks stacks.json --indicator sort",
        )  # fmt: skip
    matches = {
        path: session
        for path, session in by_path.items()
        if session_id is None or session.session_id.startswith(session_id)
    }
    if len(matches) == 1:
        return next(iter(matches))
    if not matches:
        session_ids = sorted(session.session_id for session in by_path.values())
        raise InputError("no such session", where="--session", found=(session_id or "")[:80], allowed=session_ids[:20])
    sessions = sorted(matches.values(), key=lambda session: session.created_at)
    # How sessions differ from the oldest of them, in words.
    first, texts = sessions[0], []
    for other in sessions[1:6]:
        differences = list_differences(first, other)
        clause = (
            f"differs from {first.session_id} in {', '.join(differences)}"
            if differences
            else f"measures the same as {first.session_id}"
        )
        texts.append(f"{other.session_id} {clause}")
    more = f"; and {len(sessions) - 6} more" if len(sessions) > 6 else ""
    raise InputError(
        "several sessions: choose one, they are never compared",
        where=", ".join(map(str, folders)),
        found="; ".join(texts) + more,
        allowed=[session.session_id for session in sessions[:20]],
        do=f"--session {sessions[-1].session_id}",
    )


def list_differences(base: Session, other: Session) -> list[str]:
    """How two sessions differ in what decides speed; empty if they measure the same on the same machine."""
    first, second = base.get_arm(base.baseline), other.get_arm(other.baseline)
    versions = [{case.label: case.indicator_version for case in session.cases} for session in (base, other)]
    shared = versions[0].keys() & versions[1].keys()
    changed = sorted(label for label in shared if versions[0][label] != versions[1][label])
    differences = {
        "the baseline's lock": first.stack_key != second.stack_key,
        "the machine": base.hardware.key != other.hardware.key,
        "threads": base.threads != other.threads,
        f"the version of {', '.join(changed)}": bool(changed),
        "cases": versions[0].keys() != versions[1].keys(),
    }
    return [aspect for aspect, differs in differences.items() if differs]


def _list_session_folders(folder: Path) -> Iterator[Path]:
    if (folder / SESSION_FILE).is_file():
        yield folder
        return
    inner = sorted({*folder.glob(f"*/{SESSION_FILE}"), *folder.glob(f"*/*/{SESSION_FILE}")})
    for path in inner[:MAX_SESSIONS]:
        yield path.parent


def find_stacks(folder: Path, stacks_file: Path | None) -> StackSet | None:
    """Read a session's solved stacks from its stacks.json or another file; null without any."""
    if stacks_file is not None:
        return stack_sets.read_stack_set(stacks_file)
    return stack_sets.read_stack_set(folder) if (folder / stack_sets.FILE_NAME).is_file() else None


def write_tables(recommendation: Recommendation, folder: Path) -> list[Path]:
    """Write the four tables of a recommendation into a folder."""
    pairs = [
        (RECOMMENDATIONS, recommendation.table),
        (EXCLUDED, recommendation.excluded),
        (JUSTIFICATIONS, recommendation.justifications),
    ]
    with refuse_os_errors("cannot write the tables", folder, do="choose --out DIR", error_type=ConfigError):
        return [table.write(frame, folder) for table, frame in [*pairs, (PROPOSALS, recommendation.proposals)]]


def write_requirements(recommendation: Recommendation, stack_set: StackSet | None, path: Path) -> Path:
    """Write the recommended stack's lock as a requirements file with hashes."""
    return _write_text(path, select_recommended_stack(recommendation, stack_set, "--requirements").lock)


def write_pylock(recommendation: Recommendation, stack_set: StackSet | None, path: Path) -> Path:
    """Write the recommended stack as pylock.toml; the addresses of its files come from the index."""
    return _write_text(path, format_pylock(select_recommended_stack(recommendation, stack_set, "--pylock")))


def write_next_stacks(recommendation: Recommendation, stack_set: StackSet | None, path: Path) -> Path:
    """Write the session's baseline and the proposed stacks as a stacks file.

    An excluded baseline is part of it, too, as the link between the two sessions.
    """
    if stack_set is None:
        raise _explain_missing_stacks("--next-stacks")
    keys = list(dict.fromkeys([recommendation.baseline_key, *recommendation.proposals["stack_key"]]))
    by_key = stack_set.by_arm_key
    if missing := [key[:12] for key in keys if key not in by_key]:
        raise InputError(
            "a proposed stack is not in the stacks file", where="--next-stacks", found=missing, do="give --stacks"
        )
    locks = {by_key[key].key: by_key[key] for key in keys}
    chosen = stack_set.model_copy(
        update={
            "stacks": tuple(locks.values()),
            "variations": tuple(variation for variation in stack_set.variations if variation.key in keys),
        }
    )
    return _write_text(path, stack_sets.format_stack_set(chosen))


def select_recommended_stack(recommendation: Recommendation, stack_set: StackSet | None, where: str) -> Stack:
    """Find the recommended stack with its lock."""
    if stack_set is None:
        raise _explain_missing_stacks(where)
    if recommendation.key is not None and (solved_stack := stack_set.by_arm_key.get(recommendation.key)):
        return solved_stack
    raise InputError(
        "the recommended stack is not in the stacks file", where=where, found=recommendation.answer.stack,
        allowed=[stack.name for stack in stack_set.stacks][:20], do="give the --stacks FILE that was measured",
    )  # fmt: skip


def _explain_missing_stacks(where: str) -> InputError:
    return InputError(
        "no locks found", where=where, found=f"the session has no {stack_sets.FILE_NAME}", do="give --stacks FILE"
    )


def _write_text(path: Path, text: str) -> Path:
    with refuse_os_errors("cannot write the file", path, error_type=ConfigError):
        return files.write_text(path, text)


def build_query_function(target: str, session_id: str) -> Callable[[str], pl.DataFrame]:
    """Build a function that runs named queries for one session, or SQL on the whole database."""
    database = open_database(target, create=False)

    def ask(name: str) -> pl.DataFrame:
        if is_sql(name):
            answer = sql_queries.select_rows(database, name)
        else:
            query = sql_queries.QUERIES.get(name)
            of_session = query is not None and "session" in query.filters
            answer = sql_queries.run_query(
                database, name, sql_queries.Filters(session=session_id if of_session else None)
            )
        if answer.truncated:
            raise InputError("too many rows for a unit", found=name[:80], allowed=f"up to {sql_queries.MAX_ROWS:,}")
        return answer.frame

    return ask
