"""Built-in steps, strides and wraps: scores by type of recommendation, and their justification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from packaging.version import InvalidVersion, Version

from workbench.core.formats import format_items
from workbench.indicators.recommendation.evidence import (
    MIX,
    Evidence,
    Justification,
    format_percent_interval,
    ratio_to_percent,
)
from workbench.indicators.recommendation.metric_mix import chance_not_worse
from workbench.indicators.recommendation.pipeline_units import (
    Candidate,
    NotAcceptable,
    RecommendationType,
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
        """For types that choose by the mix."""
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
        """For latest."""
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
        """For testing."""
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
        """For stable."""
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
    """All built-in steps, strides and wraps."""
    return [MeasuredMix(), NewestVersions(), ToLearn(), NotWorse(), Figures(), Versions(), Cautions(advisories)]
