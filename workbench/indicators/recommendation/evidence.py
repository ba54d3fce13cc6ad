"""Sentences of a justification, and the facts of a session with the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from workbench.core.schema import FiniteModel
from workbench.indicators.analysis.effects import Comparison
from workbench.stats import Interval

Kind = Literal["INFO", "WARNING", "ERROR"]
MIX = "mix"
"""All metrics of the mix together."""


class Evidence(FiniteModel):
    """Evidence of a sentence: figures against the baseline, and paths of runs relative to the session's folder."""

    metric: str | None = None
    effect_pct: float | None = None
    interval: tuple[float, float] | None = None
    n_rounds: int | None = None
    runs: tuple[str, ...] = ()
    hardware: str | None = None
    session: str | None = None


class Justification(FiniteModel):
    """One sentence. All fields but `evidence` are those of Thoth's justifications."""

    type: Kind
    message: str
    link: str | None = None
    package_name: str | None = None
    version_range: str | None = None
    evidence: Evidence = Evidence()

    def to_row(self) -> dict[str, Any]:
        """The columns of JUSTIFICATIONS except session, number and stack."""
        low, high = self.evidence.interval or (None, None)
        return {
            "type": self.type,
            "message": self.message,
            "link": self.link,
            "package_name": self.package_name,
            "version_range": self.version_range,
            "metric": self.evidence.metric,
            "effect_pct": self.evidence.effect_pct,
            "low_pct": low,
            "high_pct": high,
            "n_rounds": self.evidence.n_rounds,
            "runs": list(self.evidence.runs),
            "hardware": self.evidence.hardware,
        }


def build_run_path(inspection: str, run: int) -> str:
    """Path of a run's document, relative to the session's folder."""
    return f"inspections/{inspection}/results/{run}/result"


def ratio_to_percent(ratio: float) -> float:
    """Convert a ratio to an effect: 1.25 is 25 % better."""
    return 100 * (ratio - 1)


def format_percent_interval(interval: Interval) -> str:
    """An effect with its interval, as text."""
    if interval.estimate is None:
        return "unknown"
    effect = f"{ratio_to_percent(interval.estimate):+.1f} %"
    if interval.low is None or interval.high is None:
        return f"{effect}, without an interval"
    return f"{effect} [{ratio_to_percent(interval.low):+.1f}, {ratio_to_percent(interval.high):+.1f}]"


@dataclass(frozen=True)
class Facts:
    """A session's runs, checks and failures by arm, for the cases in the mix.

    Attributes
    ----------
    comparison
        The session with its tables and effects.
    weights
        Metric to weight.
    """

    comparison: Comparison
    weights: Mapping[str, float]
    _runs: dict[tuple[str, str], list[dict[str, Any]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.comparison.observed.runs.iter_rows(named=True):
            self._runs.setdefault((row["arm"], row["case"]), []).append(row)

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """Labels of the cases with a metric in the mix."""
        session = self.comparison.observed.session
        return tuple(c.label for c in session.cases if any(metric.name in self.weights for metric in c.metrics))

    def case_of(self, metric: str) -> str:
        """The case of a metric."""
        session = self.comparison.observed.session
        return next(c.label for c in session.cases if any(case_metric.name == metric for case_metric in c.metrics))

    def runs_of(self, arm: str | None, case: str | None = None) -> tuple[str, ...]:
        """Paths of an arm's runs, of one case or of all cases in the mix."""
        cases = self.cases if case is None else (case,)
        rows = [row for label in cases for row in self._runs.get((arm or "", label), [])]
        return tuple(build_run_path(row["inspection_id"], row["run"]) for row in rows)

    @cached_property
    def all_runs(self) -> tuple[str, ...]:
        """Paths of all runs of the mix's cases."""
        return tuple(run for arm in self.comparison.observed.session.arms for run in self.runs_of(arm.name))

    def failed_runs(self, arm: str | None) -> list[tuple[str, str]]:
        """Status and path of every failed run of the cases in the mix."""
        rows = [row for case in self.cases for row in self._runs.get((arm or "", case), [])]
        return [
            (row["status"], build_run_path(row["inspection_id"], row["run"])) for row in rows if row["status"] != "ok"
        ]

    def list_skip_reasons(self, arm: str) -> list[str]:
        """Why cases of the mix skipped this arm."""
        cases = [case for case in self.comparison.observed.session.cases if case.label in self.cases]
        return [f"{case.label}: {case.skipped[arm]}" for case in cases if arm in case.skipped]

    def wrong_answers(self, arm: str | None) -> list[tuple[str, str]]:
        """List every failed check of the cases in the mix: a sentence, and the run that shows it.

        A failed comparison with the baseline's answer is listed with all runs of its case.
        """
        failed: list[tuple[str, str]] = []
        for case in self.cases:
            problems = [
                (f"{case}: {sentence}", build_run_path(row["inspection_id"], row["run"]))
                for row in self._runs.get((arm or "", case), [])
                for sentence in row["failed_checks"]
            ]
            failed += problems or self._compare_with_baseline(arm, case)
        return failed

    def _compare_with_baseline(self, arm: str | None, case: str) -> list[tuple[str, str]]:
        reason = self._differing.get((arm or "", case))
        return [] if reason is None else [(f"{case}: {reason}", run) for run in self.runs_of(arm, case)]

    @cached_property
    def _differing(self) -> dict[tuple[str, str], str]:
        """Reasons of failed checks by arm and case, comparisons with the baseline's answer among them."""
        failed = self.comparison.effects.filter(~self.comparison.effects["passed"]).select("arm", "metric", "reason")
        return {(arm, self.case_of(metric)): reason or "a check failed" for arm, metric, reason in failed.iter_rows()}

    @cached_property
    def trusted(self) -> frozenset[str]:
        """Arms without wrong answers."""
        return frozenset(arm.name for arm in self.comparison.observed.session.arms if not self.wrong_answers(arm.name))
