"""Scores of forecasts: coverage of their intervals with its verdict, errors, widths and interval scores, by area."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.core.formats import format_number
from workbench.forecasts.ledger import Forecast, Ledger, Outcome
from workbench.forecasts.tables import FORECAST_SCORES, FORECASTS
from workbench.stats import Interval, clustered_share, compute_interval_score, decide_coverage

if TYPE_CHECKING:
    import polars as pl

State = Literal["open", "matched", "failed", "invalid"]
ALL = "all"


@dataclass(frozen=True)
class Case:
    """A forecast with the outcome that counts; null while it is open."""

    forecast: Forecast
    outcome: Outcome | None

    @property
    def state(self) -> State:
        """open, matched, failed (no value came of it), or invalid (its run is not valid)."""
        if self.outcome is None:
            return "open"
        if self.outcome.value is None:
            return "failed"
        return "matched" if self.outcome.verdict in (None, "valid") else "invalid"

    @property
    def is_retrospective(self) -> bool:
        """Whether the outcome may have been known when the forecast was kept.

        Said so, measured before or at a time that nothing tells, or made of the same inputs.
        """
        if self.forecast.retrospective or self.outcome is None:
            return self.forecast.retrospective
        measured_at, inputs = self.outcome.measured_at, self.forecast.inputs_sha256
        is_late = measured_at is None or self.forecast.kept_at >= measured_at
        return is_late or (inputs is not None and inputs == self.outcome.inputs_sha256)

    @property
    def value(self) -> float | None:
        """The outcome's value; null unless it is matched."""
        return self.outcome.value if self.outcome is not None and self.state == "matched" else None

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the outcome; null without both ends or a matched outcome."""
        low, high = self.forecast.low, self.forecast.high
        return None if self.value is None or low is None or high is None else low <= self.value <= high

    @property
    def log_error(self) -> float | None:
        """Log of forecast over outcome; null unless both are positive."""
        return log_ratio(self.forecast.value, self.value)

    @property
    def log_width(self) -> float | None:
        """Log of upper over lower end; null unless both are positive and there is a matched outcome."""
        return None if self.value is None else log_ratio(self.forecast.high, self.forecast.low)

    @property
    def interval_score(self) -> float | None:
        """Interval score on the log scale; null unless outcome and ends are positive."""
        low, high = self.forecast.low, self.forecast.high
        if self.value is None or low is None or high is None or min(low, high, self.value) <= 0:
            return None
        return compute_interval_score(math.log(low), math.log(high), math.log(self.value), self.forecast.level)


def log_ratio(value: float | None, reference: float | None) -> float | None:
    """Log of one positive value over another; null for anything else."""
    if value is None or reference is None or min(value, reference) <= 0:
        return None
    return math.log(value) - math.log(reference)


@dataclass(frozen=True)
class Scores:
    """Tables `forecasts` and `forecast_scores`, and the answer in a sentence."""

    forecasts: pl.DataFrame
    scores: pl.DataFrame

    @property
    def overall(self) -> dict[str, Any]:
        """The row of all areas together."""
        return self.scores.row(-1, named=True)

    @property
    def reasons(self) -> list[str]:
        """Why the ledger says nothing yet; empty otherwise."""
        return [] if self.overall["n_matched"] else ["no forecast has an outcome that counts"]

    @property
    def answer(self) -> str:
        """The result in a sentence, with the 90 % interval of the coverage."""
        row = self.overall
        counted = f"{row['n_matched']} of {row['n_forecasts']} forecasts have an outcome that counts"
        if not row["n_intervals"]:
            return f"{counted}; no forecast has an interval."
        held = f"{row['n_covered']} of {row['n_intervals']} intervals held"
        share = format_share(row["coverage_low"], row["coverage"], row["coverage_high"])
        return (
            f"{counted}: {held}, {share} where {100 * row['level']:.0f} % is promised: {row['verdict']}{_explain(row)}."
        )


def _explain(row: dict[str, Any]) -> str:
    """What a reader must know beside the verdict."""
    groups = f"; the runs make {row['n_runs']} group{'' if row['n_runs'] == 1 else 's'} whose errors go together"
    known = f"; of {row['n_retrospective']} the outcome may have been known" if row["n_retrospective"] else ""
    return (groups if row["verdict"] == "UNDECIDED" else "") + known


def build_cases(ledger: Ledger, *, in_time: bool = False) -> list[Case]:
    """Forecasts of a ledger with their outcomes, in the order in which they were made; `in_time`: no retrospective."""
    cases = [Case(forecast, ledger.newest_outcomes.get(name)) for name, forecast in ledger.forecasts.items()]
    chosen = [case for case in cases if not (in_time and case.is_retrospective)]
    return sorted(chosen, key=lambda case: (case.forecast.made_at, case.forecast.id))


def score_cases(cases: Sequence[Case]) -> Scores:
    """Score forecasts by area and all together.

    An outcome's own interval is not used: forecasts are held against its value. Coverage counts a group of runs as the
    unit where errors in it go together (`workbench.stats.clustered_share`); forecasts of one run, and those whose
    outcomes are of one run, are a group.
    """
    areas = sorted({case.forecast.area for case in cases})
    groups = _group_runs(cases)
    rows = [_score_area(area, [case for case in cases if case.forecast.area == area], groups) for area in areas]
    rows.append(_score_area(ALL, cases, groups))
    return Scores(FORECASTS.frame(map(_build_row, cases)), FORECAST_SCORES.frame(rows))


def _score_area(area: str, cases: Sequence[Case], groups: dict[str, str]) -> dict[str, Any]:
    states = [case.state for case in cases]
    held = [(case, covered) for case in cases if (covered := case.covered) is not None]
    coverage = clustered_share([covered for _, covered in held], [groups[case.forecast.id] for case, _ in held])
    level = _mean(case.forecast.level for case, _ in held)
    errors = [abs(error) for case in cases if (error := case.log_error) is not None]
    return {
        "area": area,
        "n_forecasts": len(cases),
        **{f"n_{state}": states.count(state) for state in ("open", "matched", "failed", "invalid")},
        "n_retrospective": sum(case.is_retrospective for case in cases if case.state == "matched"),
        "n_runs": coverage.n,
        "n_intervals": len(held),
        "n_covered": sum(covered for _, covered in held),
        "level": level,
        **_build_coverage(coverage, level),
        "n_errors": len(errors),
        "mean_absolute_log_error": _mean(errors),
        "mean_log_width": _mean(width for case in cases if (width := case.log_width) is not None),
        "mean_interval_score": _mean(score for case in cases if (score := case.interval_score) is not None),
    }


def _build_coverage(coverage: Interval, level: float | None) -> dict[str, Any]:
    return {
        "coverage": coverage.estimate,
        "coverage_low": coverage.low,
        "coverage_high": coverage.high,
        "verdict": "UNDECIDED" if level is None else decide_coverage(coverage, level),
    }


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else None


def _group_runs(cases: Sequence[Case]) -> dict[str, str]:
    """The group of each forecast: those of one run, or with outcomes of one run, and so on from run to run."""
    links: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := links.setdefault(name, name)) != name:
            name = above
        return name

    for case in cases:
        forecast, outcome = case.forecast, case.outcome
        names = [forecast.id, f"made {forecast.run_id}" if forecast.run_id else forecast.id]
        names += [f"seen {outcome.run_id}"] if outcome is not None and outcome.run_id else []
        for name in names[1:]:
            links[find(name)] = find(names[0])
    return {case.forecast.id: find(case.forecast.id) for case in cases}


def _build_row(case: Case) -> dict[str, Any]:
    forecast, outcome = case.forecast, case.outcome
    return {
        **{name: getattr(forecast, name) for name in ("id", "area", "subject", "quantity", "unit", "value")},
        **{name: getattr(forecast, name) for name in ("low", "high", "level")},
        **{name: getattr(case, name) for name in ("state", "covered", "log_error", "log_width", "interval_score")},
        "outcome": None if outcome is None else outcome.value,
        "retrospective": case.is_retrospective,
        "made_at": forecast.made_at.isoformat(timespec="seconds"),
        "kept_at": forecast.kept_at.isoformat(timespec="seconds"),
        "run": forecast.run_id,
        "outcome_run": None if outcome is None else outcome.run_id,
        "failure": None if outcome is None else outcome.failure,
        "note": "; ".join(filter(None, (forecast.note, "" if outcome is None else outcome.note))),
    }


def format_share(low: float | None, share: float | None, high: float | None) -> str:
    """A share with its interval; a dash without one.

    >>> format_share(0.73, 0.909, 0.98), format_share(None, None, None)
    ('91 % [73, 98]', '–')
    """
    if share is None or low is None or high is None:
        return format_number(None)
    return f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
