"""The archive of a session as tables: every run, every value, every check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.indicators.archive import PlannedCase, Result, Session, read_session, results
from workbench.indicators.contract import USAGE
from workbench.indicators.tables import CHECKS, OBSERVATIONS, RUNS

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Observed:
    """A session with its raw tables: `runs` (RUNS), `values` (OBSERVATIONS), `checks` (CHECKS)."""

    session: Session
    runs: pl.DataFrame
    values: pl.DataFrame
    checks: pl.DataFrame


def observed(folder: Path) -> Observed:
    """What was measured in the session of this folder?

    Raises
    ------
    InputError
        There is no session, or a document is damaged.
    """
    session = read_session(folder)
    return observed_of(session, results(folder, session))


def observed_of(session: Session, found: Iterable[tuple[str, int, Result]]) -> Observed:
    """The tables of these runs: inspection, number, document. A run that failed has a row in `runs` alone."""
    cases = {case.label: case for case in session.cases}
    runs: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    for inspection, number, result in found:
        measured = result.workbench
        case = cases[measured.case]
        identity = {
            "session_id": session.session_id,
            "inspection_id": inspection,
            "run": number,
            "round": measured.round,
            "arm": measured.arm,
            "case": measured.case,
        }
        runs.append({**identity, **_run(session, result)})
        values += [{**identity, **row} for row in _values(case, result)]
        checks += [{**identity, **row} for row in _checks(case, result)]
    return Observed(session, RUNS.frame(runs), OBSERVATIONS.frame(values), CHECKS.frame(checks))


def _run(session: Session, result: Result) -> dict[str, Any]:
    measured, arm = result.workbench, session.arm(result.workbench.arm)
    document = result.stdout if isinstance(result.stdout, dict) else {}
    ok = measured.status == "ok"
    score = document.get("overall_score") if ok else None
    steal = (measured.before.steal_s, measured.after.steal_s)
    return {
        "position": measured.position,
        "stack": arm.stack,
        "stack_key": arm.stack_key,
        "indicator": measured.indicator,
        "indicator_version": measured.indicator_version,
        "component": (document.get("component") or document.get("framework")) if ok else None,
        "status": measured.status,
        "reason": measured.reason,
        "passed": not measured.failed_checks if ok else None,
        "failed_checks": list(measured.failed_checks),
        "overall_score": None if score is None else float(score),
        "exit_code": result.exit_code,
        "signal": measured.signal,
        "started_at": result.start_datetime,
        "duration_s": measured.duration_s,
        "threads": measured.threads,
        "hardware_key": measured.hardware_key,
        "network": measured.isolation.get("network", "not isolated"),
        "load_before": measured.before.load_1m,
        "load_after": measured.after.load_1m,
        "steal_s": None if None in steal else round((steal[1] or 0.0) - (steal[0] or 0.0), 3),
        **{name: _number(result.usage.get(name)) for name in USAGE},
    }


def _values(case: PlannedCase, result: Result) -> list[dict[str, Any]]:
    rows = []
    for metric in case.metrics:
        value = result.value(metric.field)
        if value is not None:
            about = {"unit": metric.unit, "better": metric.better, "tolerance": metric.tolerance}
            rows.append({"metric": metric.name, "value": value, **about})
    return rows


def _checks(case: PlannedCase, result: Result) -> list[dict[str, Any]]:
    found = result.stdout.get("@checks") if isinstance(result.stdout, dict) and result.workbench.status == "ok" else {}
    rows = []
    for field in found or {}:
        value = result.check(field)
        text = None if value is None else str(value)
        rows.append({"field": field, "value": text, "compared": field in case.compared_checks})
    return rows


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
