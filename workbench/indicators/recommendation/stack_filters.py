"""Filters that exclude stacks from a recommendation: requirements, checks, vulnerabilities, age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.version import InvalidVersion, Version

from workbench.indicators.analysis.effects import MIN_ROUNDS
from workbench.indicators.recommendation.pipeline_units import Candidate, RecommendationType, Sieve
from workbench.indicators.recommendation.recommendation_request import (
    RecommendationRequest,
    compute_age_days,
    find_version,
    meets_requirement,
    parse_requirement,
)
from workbench.indicators.recommendation.vulnerabilities import KnownVulnerabilities


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
        """For stable and security."""
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
    """All constraints; those that need no measurement come first."""
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
