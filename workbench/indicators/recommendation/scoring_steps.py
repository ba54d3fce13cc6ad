"""Built-in steps, strides and wraps: scores by type of recommendation, and their justification."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.version import InvalidVersion, Version

from workbench.core.formats import format_items
from workbench.indicators.analysis.effects import MIN_ROUNDS
from workbench.indicators.recommendation.evidence import (
    MIX,
    Evidence,
    Justification,
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

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """Whether the type chooses by the mix."""
        return recommendation_type in MEASURED_TYPES

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """The logarithm of the ratio."""
        if stack.interval.estimate is None:
            raise NotAcceptable("no round has all values of the mix for this stack and the baseline")
        return math.log(stack.interval.estimate), []


class NewestVersions(Step):
    """Mean rank of a stack's versions among the versions here: 0 for the oldest, 1 for the newest."""

    query = "packages"

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """Whether the type is latest."""
        return recommendation_type == "latest"

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

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """Whether the type is testing."""
        return recommendation_type == "testing"

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

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """Whether the type is stable."""
        return recommendation_type == "stable"

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
        return [] if stack.baseline else [self._justify_mix(stack), *self._justify_metrics(stack)]

    def _justify_mix(self, stack: Candidate) -> Justification:
        """The sentence on a stack's ratio over the mix, with its figures as evidence."""
        interval = stack.interval
        source = "predicted from stacks with the same versions" if stack.predicted else f"{stack.rounds} rounds"
        base = self.context.baseline
        message = f"{stack.name}: {format_percent_interval(interval)} against {base} over the mix; {source}"
        low, high = _convert_ends(interval.low, interval.high)
        evidence = Evidence(
            metric=MIX,
            effect_pct=None if interval.estimate is None else ratio_to_percent(interval.estimate),
            interval=None if low is None or high is None else (low, high),
            n_rounds=stack.rounds,
            runs=stack.basis,
            hardware=stack.hardware,
            session=stack.session,
        )
        link = evidence.runs[0] if evidence.runs else None
        return Justification(type="INFO", message=message, link=link, evidence=evidence)

    def _justify_metrics(self, stack: Candidate) -> Iterator[Justification]:
        for row in self.observations.iter_rows(named=True):
            if row["arm"] == stack.arm and row["metric"] in self.context.weights and row["ratio"] is not None:
                yield self._justify_metric(stack, row)

    def _justify_metric(self, stack: Candidate, row: dict[str, Any]) -> Justification:
        """The sentence on a stack's ratio by one metric; `row` is one of EFFECTS."""
        low, high = _convert_ends(row["low"], row["high"])
        span = "" if low is None else f" [{low:+.1f}, {high:+.1f}]"
        base = self.context.facts.runs_of(self.context.session.baseline, self.context.facts.case_of(row["metric"]))
        arm_runs = self.context.facts.runs_of(row["arm"], self.context.facts.case_of(row["metric"]))
        evidence = Evidence(
            metric=row["metric"],
            effect_pct=ratio_to_percent(row["ratio"]),
            interval=None if low is None or high is None else (low, high),
            n_rounds=row["n"],
            runs=(*arm_runs, *base),
            hardware=stack.hardware,
            session=stack.session,
        )
        return Justification(
            type="WARNING" if row["verdict"] == SLOWER else "INFO",
            message=f"{stack.name}, {row['metric']}: {ratio_to_percent(row['ratio']):+.1f} %{span}, {row['verdict']}",
            link=arm_runs[0] if arm_runs else None,
            evidence=evidence,
        )


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


def _convert_ends(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    if low is None or high is None:
        return None, None
    return ratio_to_percent(low), ratio_to_percent(high)


def _version_sort_key(text: str) -> tuple[int, Any]:
    """Sort key of versions; texts that are no version come first."""
    try:
        return 1, Version(text)
    except InvalidVersion:
        return 0, text


def list_scoring_units(advisories: KnownVulnerabilities | None) -> list[Unit]:
    """List all built-in steps, strides and wraps."""
    return [MeasuredMix(), NewestVersions(), ToLearn(), NotWorse(), Figures(), Versions(), Cautions(advisories)]


class Requirements(Sieve):
    """Passes stacks that meet all requirements and hold no excluded version."""

    def __init__(self, request: RecommendationRequest) -> None:
        self.required = [parse_requirement(text) for text in request.require]
        self.excluded = [parse_requirement(text) for text in request.exclude]

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check requirements and exclusions."""
        for stack in stacks:
            if refused := self._find_reason(stack):
                name, reason = refused
                version = find_version(stack.packages, name)
                self.reject(stack, reason, package_name=name, version_range=None if version is None else f"=={version}")
            else:
                yield stack

    def _find_reason(self, stack: Candidate) -> tuple[str, str] | None:
        """The package and the requirement that a stack does not meet; null if it meets all."""
        for wanted in self.required:
            version = find_version(stack.packages, wanted.name)
            if version is None:
                return wanted.name, f"{wanted.name} is missing; {wanted} is required"
            if not meets_requirement(version, wanted):
                return wanted.name, f"{wanted.name} {version} does not meet the requirement {wanted}"
        for unwanted in self.excluded:
            version = find_version(stack.packages, unwanted.name)
            if version is not None and meets_requirement(version, unwanted):
                return unwanted.name, f"{unwanted.name} {version} is excluded by {unwanted}"
        return None


class Checks(Sieve):
    """Passes stacks without a failed check in the cases of the mix."""

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check the answers."""
        for stack in stacks:
            failures = self.context.facts.wrong_answers(stack.arm)
            if not failures:
                yield stack
                continue
            sentences = list(dict.fromkeys(sentence for sentence, _ in failures))
            more = f" (and {len(sentences) - 3} more)" if len(sentences) > 3 else ""
            runs = tuple(dict.fromkeys(run for _, run in failures))
            self.reject(stack, "wrong answers: " + "; ".join(sentences[:3]) + more, runs=runs)


class Measured(Sieve):
    """Passes stacks with few failed runs and enough complete rounds."""

    def __init__(self, request: RecommendationRequest) -> None:
        self.most_failed, self.predict = request.max_failed_share, request.predict

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check the runs; stacks without runs pass, since they can be predicted."""
        for stack in stacks:
            reason, runs = self._find_reasons(stack)
            if reason:
                self.reject(stack, reason, runs=runs)
            else:
                yield stack

    def _find_reasons(self, stack: Candidate) -> tuple[str | None, list[str]]:
        """Why too little was measured of a stack (null: enough), and the runs that show it."""
        if stack.arm is None:
            return None, []
        if skipped := self.context.facts.list_skip_reasons(stack.arm):
            return "not measured in all cases of the mix: " + "; ".join(skipped), []
        failed = self.context.facts.failed_runs(stack.arm)
        tried = len(stack.runs)
        if tried and len(failed) > self.most_failed * tried:
            kinds = ", ".join(sorted({status for status, _ in failed}))
            return f"{len(failed)} of {tried} runs failed: {kinds}", [run for _, run in failed]
        if stack.rounds < MIN_ROUNDS and not self.predict:
            return f"{stack.rounds} complete round(s) of the mix, at least {MIN_ROUNDS} are needed", []
        return None, []


class Predictable(Sieve):
    """Passes unmeasured stacks only if each of their versions was measured with right answers in another stack."""

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check that all versions were measured."""
        trusted = [stack.packages for stack in self.context.everything if stack.arm in self.context.facts.trusted]
        varying = sorted(
            {name for stack in self.context.everything for name in stack.packages if self._is_varying(name)}
        )
        seen = {(name, packages.get(name)) for packages in trusted for name in varying}
        for stack in stacks:
            unseen = [name for name in varying if (name, stack.packages.get(name)) not in seen]
            if stack.predicted and unseen:
                names = ", ".join(f"{name} {stack.packages.get(name, '(none)')}" for name in unseen)
                self.reject(stack, f"cannot be predicted: {names} is in no measured stack with right answers")
            else:
                yield stack

    def _is_varying(self, name: str) -> bool:
        return len({stack.packages.get(name) for stack in self.context.everything}) > 1


class Vulnerabilities(Sieve):
    """Passes stacks without a known vulnerability; for the type `security` also without unaudited packages."""

    def __init__(self, advisories: KnownVulnerabilities | None) -> None:
        self.known = advisories

    def should_include(self, recommendation_type: RecommendationType) -> bool:  # noqa: ARG002
        """If a file was given."""
        return self.known is not None

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check for known vulnerabilities."""
        advisories = self.known or KnownVulnerabilities()
        for stack in stacks:
            matches = list(advisories.find_affecting(stack.packages))
            unaudited = advisories.list_without_audit(stack.packages)
            if matches:
                name, version, first = matches[0]
                more = f"; and {len(matches) - 1} more" if len(matches) > 1 else ""
                about = f" ({first.summary})" if first.summary else ""
                reason = f"known vulnerability {first.advisory} in {name} {version}{about}{more}"
                where = {"package_name": name, "version_range": first.version_range}
                self.reject(stack, reason, link=first.link, **where)
            elif unaudited and self.context.recommendation_type == "security":
                self.reject(stack, f"not audited for vulnerabilities: {', '.join(unaudited[:5])}")
            else:
                yield stack


class Yanked(Sieve):
    """Passes stacks without yanked files."""

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check for yanked files; unknown ones pass."""
        for stack in stacks:
            if taken := [f"{name} {stack.packages[name]}" for name, yanked in stack.yanked.items() if yanked]:
                self.reject(stack, f"yanked from the index: {', '.join(taken)}")
            else:
                yield stack


class Age(Sieve):
    """Passes stacks whose newest file is old enough."""

    def __init__(self, request: RecommendationRequest) -> None:
        self.least, self.as_of = request.effective_min_age_days, request.as_of
        self.is_explicit = request.min_age_days is not None

    def should_include(self, recommendation_type: RecommendationType) -> bool:  # noqa: ARG002
        """If there is a minimum age."""
        return self.least is not None

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check the ages; stacks of unknown age pass unless the user gave a minimum age."""
        least = self.least or 0.0
        for stack in stacks:
            ages = {
                name: compute_age_days(moment, self.as_of)
                for name, moment in stack.uploaded.items()
                if moment is not None
            }
            young = {name: age for name, age in ages.items() if age < least}
            unknown = [name for name in stack.packages if name not in ages]
            if young:
                name = min(young, key=lambda package: young[package])
                age = f"{name} {stack.packages.get(name, '')} was uploaded {max(0.0, young[name]):.0f} days ago"
                self.reject(stack, f"{age}, the minimum age is {least:g} days")
            elif unknown and self.is_explicit:
                self.reject(stack, f"the age of {', '.join(sorted(unknown)[:5])} is unknown")
            else:
                yield stack


class PreReleases(Sieve):
    """Passes stacks of released versions only."""

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """Whether the type is stable or security."""
        return recommendation_type in ("stable", "security")

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Check for alpha, beta, candidate and development versions."""
        for stack in stacks:
            early = [f"{name} {version}" for name, version in stack.packages.items() if _is_early(version)]
            if early:
                self.reject(stack, f"not a release: {', '.join(early)}")
            else:
                yield stack


def _is_early(version: str) -> bool:
    try:
        return Version(version).is_prerelease
    except InvalidVersion:
        return False


def list_constraint_sieves(request: RecommendationRequest, advisories: KnownVulnerabilities | None) -> list[Sieve]:
    """List all constraints; those that need no measurement come first."""
    return [
        Requirements(request),
        Vulnerabilities(advisories),
        Yanked(),
        PreReleases(),
        Age(request),
        Measured(request),
        Checks(),
        Predictable(),
    ]
