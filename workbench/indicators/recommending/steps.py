"""How stacks that may be recommended are scored, by type of recommendation, and what is said about them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from packaging.version import InvalidVersion, Version

from workbench.indicators.recommending.chances import not_worse
from workbench.indicators.recommending.justification import MIX, Evidence, Justification, in_percent, percent
from workbench.indicators.recommending.units import (
    Candidate,
    NotAcceptable,
    RecommendationType,
    Step,
    Stride,
    Unit,
    Wrap,
)
from workbench.indicators.recommending.vulnerabilities import Known

SURE = 0.975
"""A stable stack is not worse than the baseline with this chance at least."""
MEASURED_TYPES = ("performance", "security", "stable")
"""Types that choose by the mix; the others only report it."""


class MeasuredMix(Step):
    """The mean log ratio to the baseline over the mix."""

    most = math.inf
    measured = True

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """For the types that choose by it."""
        return recommendation_type in MEASURED_TYPES

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """The logarithm of the ratio."""
        if stack.interval.estimate is None:
            raise NotAcceptable("no round holds all values of the mix for it and the baseline")
        return math.log(stack.interval.estimate), []


class NewestVersions(Step):
    """Where each version stands among those of its package here: 0 the oldest, 1 the newest; the mean of them."""

    query = "packages"

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """For the latest."""
        return recommendation_type == "latest"

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """From 0 to 1; packages of which there is one version only do not count."""
        places = []
        for name in sorted(set(self.observations["package"])):
            of_name = self.observations.filter(self.observations["package"] == name)
            versions = sorted(set(of_name["version"]), key=_order)
            if len(versions) > 1 and name in stack.packages:
                places.append(versions.index(stack.packages[name]) / (len(versions) - 1))
        score = math.fsum(places) / len(places) if places else 0.0
        return score, [
            stack.info(
                f"{stack.name}: its versions are {100 * score:.0f} % of the way from the oldest to the newest here"
            )
        ]


class ToLearn(Step):
    """The gain that more runs of a stack may be expected to show, over the best so far."""

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """For testing."""
        return recommendation_type == "testing"

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """The expected improvement; source: Jones, Schonlau and Welch, Efficient global optimization (1998)."""
        from scipy.special import ndtr

        known = [one.interval.estimate for one in self.context.stacks if one.interval.estimate is not None]
        own = stack.interval
        if own.estimate is None or own.low is None or own.high is None:
            raise NotAcceptable("no interval says how little is known of it")
        ahead = math.log(own.estimate / max(known))
        error = math.log(own.high / own.low) / 4
        z = ahead / error if error else 0.0
        gain = ahead * float(ndtr(z)) + error * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) if error else 0.0
        gain = min(max(0.0, gain), 1.0)
        return gain, [
            stack.info(f"{stack.name}: more runs may be expected to gain {100 * gain:.2f} % over the best so far")
        ]


class NotWorse(Stride):
    """For stable: surely not worse than the baseline by more than the margin."""

    def should_include(self, recommendation_type: RecommendationType) -> bool:
        """For stable."""
        return recommendation_type == "stable"

    def run(self, stack: Candidate) -> bool:
        """Is the chance high enough?"""
        chance = not_worse(stack.interval, self.context.margin)
        if not stack.baseline and (chance is None or chance < SURE):
            told = "not known" if chance is None else f"{100 * chance:.1f} %"
            asked = f"{100 * SURE:.1f} % is asked for"
            raise NotAcceptable(f"the chance that it is not worse than the baseline is {told}, {asked}")
        return True


class Figures(Wrap):
    """The figures of each metric against the baseline, with the runs behind them."""

    query = "effects"

    def run(self, stack: Candidate) -> list[Justification]:
        """The mix, then each metric of it."""
        return [] if stack.baseline else [self._mix(stack), *self._metrics(stack)]

    def _mix(self, stack: Candidate) -> Justification:
        interval = stack.interval
        source = "predicted from stacks that share its versions" if stack.predicted else f"{stack.rounds} rounds"
        base = self.context.baseline
        message = f"{stack.name}: {in_percent(interval)} against {base} over the mix; {source}"
        low, high = _ends(interval.low, interval.high)
        evidence = Evidence(
            metric=MIX,
            effect_pct=None if interval.estimate is None else percent(interval.estimate),
            interval=None if low is None or high is None else (low, high),
            n_rounds=stack.rounds,
            runs=stack.basis,
            hardware=stack.hardware,
            session=stack.session,
        )
        link = evidence.runs[0] if evidence.runs else None
        return Justification(type="INFO", message=message, link=link, evidence=evidence)

    def _metrics(self, stack: Candidate) -> Iterator[Justification]:
        for row in self.observations.iter_rows(named=True):
            if row["arm"] == stack.arm and row["metric"] in self.context.weights and row["ratio"] is not None:
                yield self._metric(stack, row)

    def _metric(self, stack: Candidate, row: dict[str, Any]) -> Justification:
        low, high = _ends(row["low"], row["high"])
        span = "" if low is None else f" [{low:+.1f}, {high:+.1f}]"
        base = self.context.facts.runs_of(self.context.session.baseline, self.context.facts.case_of(row["metric"]))
        own = self.context.facts.runs_of(row["arm"], self.context.facts.case_of(row["metric"]))
        evidence = Evidence(
            metric=row["metric"],
            effect_pct=percent(row["ratio"]),
            interval=None if low is None or high is None else (low, high),
            n_rounds=row["n"],
            runs=(*own, *base),
            hardware=stack.hardware,
            session=stack.session,
        )
        return Justification(
            type="WARNING" if row["verdict"] == "SLOWER" else "INFO",
            message=f"{stack.name}, {row['metric']}: {percent(row['ratio']):+.1f} %{span}, {row['verdict']}",
            link=own[0] if own else None,
            evidence=evidence,
        )


class Versions(Wrap):
    """Which versions differ from the baseline's."""

    def run(self, stack: Candidate) -> list[Justification]:
        """One sentence a package."""
        base = next(stack.packages for stack in self.context.everything if stack.baseline)
        said = []
        for name in sorted(base.keys() | stack.packages.keys()):
            before, now = base.get(name), stack.packages.get(name)
            if before != now:
                spelled = {"package_name": name, **({"version_range": f"=={now}"} if now else {})}
                said.append(stack.info(f"{name}: {now or 'not there'} instead of {before or 'none'}", **spelled))
        return said


class Cautions(Wrap):
    """What is not known of a stack."""

    def __init__(self, known: Known | None) -> None:
        self.known = known

    def run(self, stack: Candidate) -> list[Justification]:
        """Warnings."""
        said = []
        if stack.predicted:
            said.append(
                stack.warning(f"{stack.name} was never run here: no check of it passed, its figures are predicted")
            )
        if failed := self.context.facts.failed_runs(stack.arm):
            runs = tuple(run for _, run in failed)
            warning = stack.warning(f"{len(failed)} of {len(stack.runs)} runs of {stack.name} failed", link=runs[0])
            said.append(warning)
        if self.known and (missing := self.known.unaudited(stack.packages)):
            said.append(stack.warning(f"{stack.name}: nobody looked for vulnerabilities of {', '.join(missing[:5])}"))
        if self.known and (unnamed := self.known.unnamed(stack.packages)):
            more = f" and {len(unnamed) - 5} more" if len(unnamed) > 5 else ""
            named = f"no OSV record names {', '.join(unnamed[:5])}{more}"
            said.append(stack.warning(f"{stack.name}: {named}: nothing known, or nobody looked"))
        if self.context.recommendation_type == "stable":
            unknown = sorted(name for name in stack.packages if stack.uploaded.get(name) is None)
            if unknown:
                said.append(stack.warning(f"{stack.name}: the age of {', '.join(unknown[:5])} is not known"))
        return said


def _ends(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    if low is None or high is None:
        return None, None
    return percent(low), percent(high)


def _order(text: str) -> tuple[int, Any]:
    """Versions in their order; what is no version comes first."""
    try:
        return 1, Version(text)
    except InvalidVersion:
        return 0, text


def steps(known: Known | None) -> list[Unit]:
    """All that scores, denies and tells; each takes part in the types that it is for."""
    return [MeasuredMix(), NewestVersions(), ToLearn(), NotWorse(), Figures(), Versions(), Cautions(known)]
