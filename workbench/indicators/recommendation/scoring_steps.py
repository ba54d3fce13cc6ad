"""Built-in steps, strides and wraps: scores by type of recommendation, and their justification."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from packaging.version import InvalidVersion, Version

from workbench.core.formats import format_items
from workbench.indicators.analysis.effects import MIN_ROUNDS
from workbench.indicators.recommendation.evidence import (
    MIX,
    Evidence,
    Justification,
    Kind,
    format_percent_interval,
    ratio_to_percent,
)
from workbench.indicators.recommendation.metric_mix import chance_not_worse
from workbench.indicators.recommendation.recommendation_request import (
    RecommendationRequest,
    compute_age_days,
    find_version,
    meets_requirement,
    parse_requirement,
)
from workbench.indicators.recommendation.unit_pipeline import (
    Candidate,
    Context,
    NotAcceptable,
    RecommendationType,
    Sieve,
    Step,
    Stride,
    Unit,
    Wrap,
)
from workbench.indicators.recommendation.vulnerabilities import KnownVulnerabilities
from workbench.stats.verdicts import SLOWER

SURE = 0.975
"""Minimum chance that a stable stack is not worse than the baseline."""
MEASURED_TYPES = ("performance", "security", "stable")
"""Types that choose by the mix; other types only report it."""


class MeasuredMix(Step):
    """The mean log ratio to the baseline over the mix."""

    most = math.inf
    measured = True

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """The logarithm of the ratio."""
        if stack.interval.estimate is None:
            raise NotAcceptable("no round has all values of the mix for this stack and the baseline")
        return math.log(stack.interval.estimate), []


class NewestVersions(Step):
    """Mean rank of a stack's versions among the versions here: 0 for the oldest, 1 for the newest."""

    query = "packages"

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """A score from 0 to 1; packages with a single version do not count."""
        places = []
        for name in sorted(set(self.observations["package"])):
            of_name = self.observations.filter(self.observations["package"] == name)
            versions = sorted(set(of_name["version"]), key=_version_sort_key)
            if len(versions) > 1 and name in stack.packages:
                places.append(versions.index(stack.packages[name]) / (len(versions) - 1))
        score = math.fsum(places) / len(places) if places else 0.0
        return score, [
            stack.info(
                f"{stack.name}: its versions are {100 * score:.0f} % of the way from the oldest to the newest here"
            )
        ]


class ToLearn(Step):
    """Expected improvement over the best stack so far, if this stack is measured more."""

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """The expected improvement; source: Jones, Schonlau and Welch, Efficient global optimization (1998)."""
        from scipy.special import ndtr

        ratios = [
            candidate.interval.estimate for candidate in self.context.stacks if candidate.interval.estimate is not None
        ]
        interval = stack.interval
        if interval.estimate is None or interval.low is None or interval.high is None:
            raise NotAcceptable("it has no interval")
        ahead = math.log(interval.estimate / max(ratios))
        error = math.log(interval.high / interval.low) / 4
        z = ahead / error if error else 0.0
        gain = ahead * float(ndtr(z)) + error * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) if error else 0.0
        gain = min(max(0.0, gain), 1.0)
        return gain, [stack.info(f"{stack.name}: expected improvement over the best stack so far: {100 * gain:.2f} %")]


class NotWorse(Stride):
    """Accepts stacks that are surely not worse than the baseline by more than the margin."""

    def run(self, stack: Candidate) -> bool:
        """Whether the chance is high enough."""
        chance = chance_not_worse(stack.interval, self.context.margin)
        if not stack.baseline and (chance is None or chance < SURE):
            chance_text = "unknown" if chance is None else f"{100 * chance:.1f} %"
            raise NotAcceptable(
                f"the chance that it is not worse than the baseline is {chance_text}, below {100 * SURE:.1f} %"
            )
        return True


class Figures(Wrap):
    """Adds the effects of the mix and of each metric, with the runs behind them."""

    query = "effects"

    def run(self, stack: Candidate) -> list[Justification]:
        """Sentences on the mix, then on each of its metrics."""
        if stack.baseline:
            return []
        ratio, facts = stack.interval, self.context.facts
        source = "predicted from stacks with the same versions" if stack.predicted else f"{stack.rounds} rounds"
        effect = format_percent_interval(ratio)
        message = f"{stack.name}: {effect} against {self.context.baseline} over the mix; {source}"
        ends = _convert_ends(ratio.low, ratio.high)
        sentences = [_justify(stack, "INFO", message, MIX, ratio.estimate, ends, stack.rounds, stack.basis)]
        own = self.observations.clear() if stack.arm is None else self.observations.filter(arm=stack.arm)
        for row in own.iter_rows(named=True):
            metric = row["metric"]
            if metric in self.context.weights and row["ratio"] is not None:
                ends = _convert_ends(row["low"], row["high"])
                span = "" if ends is None else f" [{ends[0]:+.1f}, {ends[1]:+.1f}]"
                effect = f"{ratio_to_percent(row['ratio']):+.1f} %{span}"
                message = f"{stack.name}, {metric}: {effect}, {row['verdict']}"
                case, base = facts.case_of(metric), self.context.session.baseline
                runs = (*facts.runs_of(row["arm"], case), *facts.runs_of(base, case))
                kind: Kind = "WARNING" if row["verdict"] == SLOWER else "INFO"
                sentences.append(_justify(stack, kind, message, metric, row["ratio"], ends, row["n"], runs))
        return sentences


def _convert_ends(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (ratio_to_percent(low), ratio_to_percent(high))


def _justify(
    stack: Candidate,
    kind: Kind,
    message: str,
    metric: str,
    ratio: float | None,
    ends: tuple[float, float] | None,
    rounds: int,
    runs: tuple[str, ...],
) -> Justification:
    """The sentence on a stack's ratio with its figures as evidence; it links to the first run."""
    evidence = Evidence(
        metric=metric,
        effect_pct=None if ratio is None else ratio_to_percent(ratio),
        interval=ends,
        n_rounds=rounds,
        runs=runs,
        hardware=stack.hardware,
        session=stack.session,
    )
    return Justification(type=kind, message=message, link=runs[0] if runs else None, evidence=evidence)


class Versions(Wrap):
    """Lists the versions that differ from the baseline's."""

    def run(self, stack: Candidate) -> list[Justification]:
        """One sentence per package."""
        base = next(stack.packages for stack in self.context.everything if stack.baseline)
        sentences = []
        for name in sorted(base.keys() | stack.packages.keys()):
            before, now = base.get(name), stack.packages.get(name)
            if before != now:
                spelled = {"package_name": name, **({"version_range": f"=={now}"} if now else {})}
                sentences.append(stack.info(f"{name}: {now or 'none'} instead of {before or 'none'}", **spelled))
        return sentences


class Cautions(Wrap):
    """Warns about what is unknown of a stack."""

    def __init__(self, advisories: KnownVulnerabilities | None) -> None:
        self.known = advisories

    def run(self, stack: Candidate) -> list[Justification]:
        """Warnings."""
        sentences = []
        if stack.predicted:
            sentences.append(
                stack.warning(f"{stack.name} was never run here: its figures are predicted and its answers unchecked")
            )
        if failed := self.context.facts.failed_runs(stack.arm):
            runs = tuple(run for _, run in failed)
            warning = stack.warning(f"{len(failed)} of {len(stack.runs)} runs of {stack.name} failed", link=runs[0])
            sentences.append(warning)
        if self.known and (missing := self.known.list_without_audit(stack.packages)):
            sentences.append(stack.warning(f"{stack.name}: not audited for vulnerabilities: {', '.join(missing[:5])}"))
        if self.known and (unnamed := self.known.list_without_record(stack.packages)):
            named = f"no OSV record names {format_items(unnamed)}"
            sentences.append(stack.warning(f"{stack.name}: {named}: no known vulnerabilities, or not audited"))
        if self.context.recommendation_type == "stable":
            unknown = sorted(name for name in stack.packages if stack.uploaded.get(name) is None)
            if unknown:
                sentences.append(stack.warning(f"{stack.name}: the age of {', '.join(unknown[:5])} is unknown"))
        return sentences


def _version_sort_key(text: str) -> tuple[int, Any]:
    """Sort key of versions; texts that are no version come first."""
    try:
        return 1, Version(text)
    except InvalidVersion:
        return 0, text


def list_scoring_units(kind: RecommendationType, advisories: KnownVulnerabilities | None) -> list[Unit]:
    """List the built-in steps, strides and wraps of a type of recommendation."""
    others: dict[str, Step] = {"latest": NewestVersions(), "testing": ToLearn()}
    step = MeasuredMix() if kind in MEASURED_TYPES else others[kind]
    strides = [NotWorse()] if kind == "stable" else []
    return [step, *strides, Figures(), Versions(), Cautions(advisories)]


class Constraint(Sieve):
    """A built-in constraint: excludes each stack for which a function gives a reason."""

    def __init__(self, name: str, find_refusal: Callable[[Candidate, Context], NotAcceptable | None]) -> None:
        self.name, self.find_refusal = name, find_refusal

    @property
    def label(self) -> str:
        """The constraint's name in table EXCLUDED."""
        return self.name

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Pass the stacks without a reason."""
        for stack in stacks:
            refused = self.find_refusal(stack, self.context)
            if refused is None:
                yield stack
            else:
                self.rejected[stack.name] = refused


class Predictable(Sieve):
    """Passes unmeasured stacks only if each of their versions was measured with right answers in another stack."""

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check that all versions were measured."""
        everything, facts = self.context.everything, self.context.facts
        names = sorted({name for stack in everything for name in stack.packages})
        varying = [name for name in names if len({stack.packages.get(name) for stack in everything}) > 1]
        trusted = [stack.packages for stack in everything if stack.arm in facts.trusted]
        seen = {(name, packages.get(name)) for packages in trusted for name in varying}
        for stack in stacks:
            unseen = [name for name in varying if (name, stack.packages.get(name)) not in seen]
            if stack.predicted and unseen:
                versions = ", ".join(f"{name} {stack.packages.get(name, '(none)')}" for name in unseen)
                self.reject(stack, f"cannot be predicted: {versions} is in no measured stack with right answers")
            else:
                yield stack


def list_constraints(request: RecommendationRequest, advisories: KnownVulnerabilities | None) -> list[Sieve]:
    """List the constraints of a recommendation; those that need no measurement come first."""
    constraints: list[Sieve] = [Constraint("Requirements", partial(_check_requirements, request))]
    if advisories is not None:
        constraints.append(Constraint("Vulnerabilities", partial(_check_vulnerabilities, advisories)))
    constraints.append(Constraint("Yanked", _check_yanked))
    if request.type in ("stable", "security"):
        constraints.append(Constraint("PreReleases", _check_released))
    if request.effective_min_age_days is not None:
        constraints.append(Constraint("Age", partial(_check_age, request)))
    measured = [Constraint("Measured", partial(_check_runs, request)), Constraint("Checks", _check_answers)]
    return [*constraints, *measured, Predictable()]


def _check_requirements(request: RecommendationRequest, stack: Candidate, _context: Context) -> NotAcceptable | None:
    """All requirements are met, and no excluded version is there."""
    for wanted in map(parse_requirement, request.require):
        version = find_version(stack.packages, wanted.name)
        if version is None:
            return NotAcceptable(f"{wanted.name} is missing; {wanted} is required", package_name=wanted.name)
        if not meets_requirement(version, wanted):
            reason = f"{wanted.name} {version} does not meet the requirement {wanted}"
            return NotAcceptable(reason, package_name=wanted.name, version_range=f"=={version}")
    for unwanted in map(parse_requirement, request.exclude):
        version = find_version(stack.packages, unwanted.name)
        if version is not None and meets_requirement(version, unwanted):
            reason = f"{unwanted.name} {version} is excluded by {unwanted}"
            return NotAcceptable(reason, package_name=unwanted.name, version_range=f"=={version}")
    return None


def _check_vulnerabilities(
    advisories: KnownVulnerabilities, stack: Candidate, context: Context
) -> NotAcceptable | None:
    """No vulnerability is known; for the type `security`, no package was left unaudited either."""
    if matches := list(advisories.find_affecting(stack.packages)):
        name, version, first = matches[0]
        more = f"; and {len(matches) - 1} more" if len(matches) > 1 else ""
        about = f" ({first.summary})" if first.summary else ""
        reason = f"known vulnerability {first.advisory} in {name} {version}{about}{more}"
        return NotAcceptable(reason, link=first.link, package_name=name, version_range=first.version_range)
    unaudited = advisories.list_without_audit(stack.packages)
    if unaudited and context.recommendation_type == "security":
        return NotAcceptable(f"not audited for vulnerabilities: {', '.join(unaudited[:5])}")
    return None


def _check_age(request: RecommendationRequest, stack: Candidate, _context: Context) -> NotAcceptable | None:
    """The newest file is old enough; an unknown age passes unless the user gave a minimum."""
    least = request.effective_min_age_days or 0.0
    uploads = {name: moment for name, moment in stack.uploaded.items() if moment is not None}
    ages = {name: compute_age_days(moment, request.as_of) for name, moment in uploads.items()}
    youngest = min(ages, key=lambda name: ages[name], default=None)
    if youngest is not None and ages[youngest] < least:
        age = f"{youngest} {stack.packages.get(youngest, '')} was uploaded {max(0.0, ages[youngest]):.0f} days ago"
        return NotAcceptable(f"{age}, the minimum age is {least:g} days")
    unknown = sorted(name for name in stack.packages if name not in ages)
    if unknown and request.min_age_days is not None:
        return NotAcceptable(f"the age of {', '.join(unknown[:5])} is unknown")
    return None


def _check_runs(request: RecommendationRequest, stack: Candidate, context: Context) -> NotAcceptable | None:
    """Few runs failed and enough rounds are complete; stacks without runs pass, since they can be predicted."""
    if stack.arm is None:
        return None
    if skipped := context.facts.list_skip_reasons(stack.arm):
        return NotAcceptable("not measured in all cases of the mix: " + "; ".join(skipped))
    failed, tried = context.facts.failed_runs(stack.arm), len(stack.runs)
    if tried and len(failed) > request.max_failed_share * tried:
        kinds = ", ".join(sorted({status for status, _ in failed}))
        return NotAcceptable(f"{len(failed)} of {tried} runs failed: {kinds}", runs=[run for _, run in failed])
    if stack.rounds < MIN_ROUNDS and not request.predict:
        reason = f"{stack.rounds} complete round(s) of the mix, at least {MIN_ROUNDS} are needed"
        return NotAcceptable(reason)
    return None


def _check_yanked(stack: Candidate, _context: Context) -> NotAcceptable | None:
    """No file was yanked; unknown ones pass."""
    taken = [f"{name} {stack.packages[name]}" for name, yanked in stack.yanked.items() if yanked]
    return NotAcceptable(f"yanked from the index: {', '.join(taken)}") if taken else None


def _check_released(stack: Candidate, _context: Context) -> NotAcceptable | None:
    """All are released versions: no alpha, beta, candidate or development version."""
    versions = [(f"{name} {version}", _version_sort_key(version)[1]) for name, version in stack.packages.items()]
    early = [text for text, version in versions if isinstance(version, Version) and version.is_prerelease]
    return NotAcceptable(f"not a release: {', '.join(early)}") if early else None


def _check_answers(stack: Candidate, context: Context) -> NotAcceptable | None:
    """No check failed in the cases of the mix."""
    failures = context.facts.wrong_answers(stack.arm)
    sentences = list(dict.fromkeys(sentence for sentence, _ in failures))
    more = f" (and {len(sentences) - 3} more)" if len(sentences) > 3 else ""
    reason = "wrong answers: " + "; ".join(sentences[:3]) + more
    return NotAcceptable(reason, runs=dict.fromkeys(run for _, run in failures)) if failures else None
