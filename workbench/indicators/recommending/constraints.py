"""Constraints come first: which stacks may be recommended at all. Each says why it left one out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.version import InvalidVersion, Version

from workbench.indicators.effects import FEWEST_ROUNDS
from workbench.indicators.recommending.request import Request, age_days, meets, requirement, version_of
from workbench.indicators.recommending.units import Candidate, RecommendationType, Sieve
from workbench.indicators.recommending.vulnerabilities import Known


class Requirements(Sieve):
    """Stacks meet what is required and hold nothing that is excluded."""

    def __init__(self, request: Request) -> None:
        self.required = [requirement(text) for text in request.require]
        self.excluded = [requirement(text) for text in request.exclude]

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those that meet all."""
        for stack in stacks:
            if refused := self._reason(stack):
                name, reason = refused
                version = version_of(stack.packages, name)
                self.reject(stack, reason, package_name=name, version_range=None if version is None else f"=={version}")
            else:
                yield stack

    def _reason(self, stack: Candidate) -> tuple[str, str] | None:
        for wanted in self.required:
            version = version_of(stack.packages, wanted.name)
            if version is None:
                return wanted.name, f"{wanted.name} is not in it; {wanted} is required"
            if not meets(version, wanted):
                return wanted.name, f"{wanted.name} {version} does not meet the requirement {wanted}"
        for unwanted in self.excluded:
            version = version_of(stack.packages, unwanted.name)
            if version is not None and meets(version, unwanted):
                return unwanted.name, f"{unwanted.name} {version} is excluded by {unwanted}"
        return None


class Checks(Sieve):
    """Stacks whose answers were right: every check of every case of the mix passed."""

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those that failed none."""
        for stack in stacks:
            found = self.context.facts.wrong_answers(stack.arm)
            if not found:
                yield stack
                continue
            sentences = list(dict.fromkeys(sentence for sentence, _ in found))
            more = f" (and {len(sentences) - 3} more)" if len(sentences) > 3 else ""
            runs = tuple(dict.fromkeys(run for _, run in found))
            self.reject(stack, "wrong answers: " + "; ".join(sentences[:3]) + more, runs=runs)


class Measured(Sieve):
    """Stacks with runs enough to judge: few failed, and enough rounds hold all values of the mix."""

    def __init__(self, request: Request) -> None:
        self.most_failed, self.predict = request.max_failed_share, request.predict

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those that were measured well enough; those never measured stay, if they may be predicted."""
        for stack in stacks:
            reason, runs = self._reason(stack)
            if reason:
                self.reject(stack, reason, runs=runs)
            else:
                yield stack

    def _reason(self, stack: Candidate) -> tuple[str | None, list[str]]:
        if stack.arm is None:
            return None, []
        if skipped := self.context.facts.skipped(stack.arm):
            return "not measured by all of the mix: " + "; ".join(skipped), []
        failed = self.context.facts.failed_runs(stack.arm)
        tried = len(stack.runs)
        if tried and len(failed) > self.most_failed * tried:
            kinds = ", ".join(sorted({status for status, _ in failed}))
            return f"{len(failed)} of {tried} runs failed: {kinds}", [run for _, run in failed]
        if stack.rounds < FEWEST_ROUNDS and not self.predict:
            return f"{stack.rounds} whole round(s) of the mix, at least {FEWEST_ROUNDS} are needed", []
        return None, []


class Predictable(Sieve):
    """Stacks never measured, each version of which was measured with right answers in another stack.

    The speed of a version whose answers are wrong says nothing, and of one never seen nothing is known.
    """

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those whose versions were all seen."""
        trusted = [stack.packages for stack in self.context.everything if stack.arm in self.context.facts.trusted]
        varying = sorted({name for stack in self.context.everything for name in stack.packages if self._varies(name)})
        seen = {(name, packages.get(name)) for packages in trusted for name in varying}
        for stack in stacks:
            unseen = [name for name in varying if (name, stack.packages.get(name)) not in seen]
            if stack.predicted and unseen:
                told = ", ".join(f"{name} {stack.packages.get(name, '(not there)')}" for name in unseen)
                self.reject(stack, f"cannot be predicted: {told} is in no measured stack with right answers")
            else:
                yield stack

    def _varies(self, name: str) -> bool:
        return len({stack.packages.get(name) for stack in self.context.everything}) > 1


class Vulnerabilities(Sieve):
    """Stacks without a known vulnerability; for the type `security` also without a package nobody looked at."""

    def __init__(self, known: Known | None) -> None:
        self.known = known

    def should_include(self, recommendation_type: RecommendationType) -> bool:  # noqa: ARG002
        """Whenever a file was given."""
        return self.known is not None

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those without."""
        known = self.known or Known()
        for stack in stacks:
            found = list(known.of(stack.packages))
            unaudited = known.unaudited(stack.packages)
            if found:
                name, version, first = found[0]
                more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
                about = f" ({first.summary})" if first.summary else ""
                reason = f"known vulnerability {first.advisory} in {name} {version}{about}{more}"
                where = {"package_name": name, "version_range": first.version_range}
                self.reject(stack, reason, link=first.link, **where)
            elif unaudited and self.context.recommendation_type == "security":
                self.reject(stack, f"nobody looked for vulnerabilities of {', '.join(unaudited[:5])}")
            else:
                yield stack


class Yanked(Sieve):
    """Stacks none of whose files was taken back from the index."""

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those without; where the index does not tell, a stack stays."""
        for stack in stacks:
            if taken := [f"{name} {stack.packages[name]}" for name, yanked in stack.yanked.items() if yanked]:
                self.reject(stack, f"taken back (yanked) from the index: {', '.join(taken)}")
            else:
                yield stack


class Age(Sieve):
    """Stacks whose newest file is old enough."""

    def __init__(self, request: Request) -> None:
        self.least, self.as_of = request.least_age_days, request.as_of
        self.asked = request.min_age_days is not None

    def should_include(self, recommendation_type: RecommendationType) -> bool:  # noqa: ARG002
        """Whenever an age is asked for, by the user or by the type."""
        return self.least is not None

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those old enough. One of unknown age is left out when the user asked, and stays when only the type did."""
        least = self.least or 0.0
        for stack in stacks:
            ages = {name: age_days(moment, self.as_of) for name, moment in stack.uploaded.items() if moment is not None}
            young = {name: age for name, age in ages.items() if age < least}
            unknown = [name for name in stack.packages if name not in ages]
            if young:
                name = min(young, key=lambda one: young[one])
                told = f"{name} {stack.packages.get(name, '')} was uploaded {max(0.0, young[name]):.0f} days ago"
                self.reject(stack, f"{told}, at least {least:g} are asked for")
            elif unknown and self.asked:
                self.reject(stack, f"the age of {', '.join(sorted(unknown)[:5])} is not known")
            else:
                yield stack


class PreReleases(Sieve):
    """Stacks of releases only."""

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """For what is meant to run somewhere."""
        return recommendation_type in ("stable", "security")

    def run(self, stacks: Iterable[Candidate]) -> Iterator[Candidate]:
        """Those without an alpha, beta, candidate or development version."""
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


def constraints(request: Request, known: Known | None) -> list[Sieve]:
    """All constraints, the ones that need no measurement first."""
    return [
        Requirements(request),
        Vulnerabilities(known),
        Yanked(),
        PreReleases(),
        Age(request),
        Measured(request),
        Checks(),
        Predictable(),
    ]
