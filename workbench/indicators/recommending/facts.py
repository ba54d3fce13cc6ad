"""What a session's tables say about its arms, for the cases of a mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from workbench.indicators.effects import Compared
from workbench.indicators.recommending.justification import run_path


@dataclass(frozen=True)
class Facts:
    """A session's runs, checks and failures by arm, for the cases that the mix weighs.

    Attributes
    ----------
    found
        The session with its tables and effects.
    weights
        Metric to weight.
    """

    found: Compared
    weights: Mapping[str, float]
    _runs: dict[tuple[str, str], list[dict[str, Any]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.found.observed.runs.iter_rows(named=True):
            self._runs.setdefault((row["arm"], row["case"]), []).append(row)

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """Labels of the cases that have a metric in the mix."""
        session = self.found.observed.session
        return tuple(c.label for c in session.cases if any(metric.name in self.weights for metric in c.metrics))

    def case_of(self, metric: str) -> str:
        """The case that a metric belongs to."""
        session = self.found.observed.session
        return next(c.label for c in session.cases if any(one.name == metric for one in c.metrics))

    def runs_of(self, arm: str | None, case: str | None = None) -> tuple[str, ...]:
        """Paths of the runs of an arm, of one case or of all of the mix."""
        cases = self.cases if case is None else (case,)
        rows = [row for label in cases for row in self._runs.get((arm or "", label), [])]
        return tuple(run_path(row["inspection_id"], row["run"]) for row in rows)

    @cached_property
    def all_runs(self) -> tuple[str, ...]:
        """Paths of all runs of the mix's cases."""
        return tuple(run for arm in self.found.observed.session.arms for run in self.runs_of(arm.name))

    def failed_runs(self, arm: str | None) -> list[tuple[str, str]]:
        """Status and path of every run of the mix's cases that has no values."""
        rows = [row for case in self.cases for row in self._runs.get((arm or "", case), [])]
        return [(row["status"], run_path(row["inspection_id"], row["run"])) for row in rows if row["status"] != "ok"]

    def skipped(self, arm: str) -> list[str]:
        """Why the arm was not measured by some cases of the mix, in sentences."""
        cases = [case for case in self.found.observed.session.cases if case.label in self.cases]
        return [f"{case.label}: {case.skipped[arm]}" for case in cases if arm in case.skipped]

    def wrong_answers(self, arm: str | None) -> list[tuple[str, str]]:
        """Every check of the mix's cases that did not pass: a sentence, and the run that shows it.

        A check that was held against the baseline's answer has all runs of its case.
        """
        told: list[tuple[str, str]] = []
        for case in self.cases:
            own = [
                (f"{case}: {sentence}", run_path(row["inspection_id"], row["run"]))
                for row in self._runs.get((arm or "", case), [])
                for sentence in row["failed_checks"]
            ]
            told += own or self._against_baseline(arm, case)
        return told

    def _against_baseline(self, arm: str | None, case: str) -> list[tuple[str, str]]:
        reason = self._differing.get((arm or "", case))
        return [] if reason is None else [(f"{case}: {reason}", run) for run in self.runs_of(arm, case)]

    @cached_property
    def _differing(self) -> dict[tuple[str, str], str]:
        """Why the checks of an arm and case did not pass, also those held against the baseline's answer."""
        failed = self.found.effects.filter(~self.found.effects["passed"]).select("arm", "metric", "reason")
        return {
            (arm, self.case_of(metric)): reason or "a check did not pass" for arm, metric, reason in failed.iter_rows()
        }

    @cached_property
    def trusted(self) -> frozenset[str]:
        """Arms whose answers were all right: the others' speed says nothing about anything."""
        return frozenset(arm.name for arm in self.found.observed.session.arms if not self.wrong_answers(arm.name))
