"""From runs to the ledger: forecasts of a run, and its outcomes matched with forecasts that were made before."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Literal

from workbench.core.errors import ConfigError, InputError
from workbench.forecasts import sources
from workbench.forecasts.ledger import Forecast, Ledger, Outcome, build_entry
from workbench.forecasts.sources import RunFigure
from workbench.runs.catalogue import StoredRun
from workbench.runs.run_folder import find_objection, parse_time

Status = Literal["matched", "unchanged", "refused", "ambiguous", "left out", "no forecast"]


@dataclass(frozen=True)
class MatchRow:
    """What became of an outcome, for one forecast; `outcome` is the line to write, only where it is matched."""

    figure: RunFigure
    status: Status
    forecast: Forecast | None = None
    reason: str = ""
    outcome: Outcome | None = None


def build_forecasts(
    run: StoredRun, now: datetime, *, accept_invalid: bool = False, retrospective: bool = False, note: str = ""
) -> list[Forecast]:
    """The forecasts of a finished, valid run.

    The id is made of the run and the row, so that the same forecast of the same run is the same entry.
    """
    objection = find_objection(run.record)
    if objection and not accept_invalid:
        raise InputError(
            "a forecast of this run is not kept",
            where=f"run {run.run_id} ({run.area})",
            found=objection,
            allowed="a finished, valid run",
            do="run it again; or --accept-invalid",
        )
    made_at = _read_end_time(run)
    return [
        build_entry(
            Forecast,
            {
                "id": make_id(run.run_id, *figure.key),
                "made_at": made_at,
                "kept_at": now,
                "retrospective": retrospective,
                "level": figure.level,
                "note": "; ".join(filter(None, (note, objection))),
                **_list_figure_fields(figure),
                **_list_run_fields(run),
            },
            where=f"run {run.run_id} ({run.area})",
        )
        for figure in sources.read_figures(run, sources.FORECAST_SOURCES, "forecasts")
        if figure.value is not None
    ]


def make_id(*parts: str) -> str:
    """Id of a forecast: twelve hex digits of a digest.

    >>> make_id("20261128T073738Z-ad8dc7", "estimates", "runtime p95 <= 6 s")
    '389a24f2643d'
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def match_run(
    ledger: Ledger,
    run: StoredRun,
    now: datetime,
    *,
    measured_at: datetime | None = None,
    made_by: str | None = None,
    again: bool = False,
    note: str = "",
) -> list[MatchRow]:
    """Match the outcomes of a run with forecasts of the same area, subject and quantity; each forecast by itself.

    A forecast of this run is left out, and so is one that was made when the measurement had begun or, where nothing
    says when that was, the run. Where the run has several outcomes for one subject and quantity, nothing says which is
    meant, and none is taken.

    `measured_at`: When the measurement began, where the run's tables do not say so.
    `made_by`: Only forecasts of this run. `again`: Also forecasts that have an outcome.
    """
    if measured_at is not None and measured_at > (ended_at := _read_end_time(run)):
        place, allowed = f"--measured-at, run {run.run_id}", f"at most {_format_time(ended_at)}, when the run had ended"
        raise ConfigError("measured after the run", where=place, found=_format_time(measured_at), allowed=allowed)
    if run.record["status"] == "running":
        raise InputError("a run that has not ended has no outcome", where=run.place, found=run.state)
    figures = sources.read_figures(run, sources.OUTCOME_SOURCES, "outcomes")
    if measured_at is not None:
        figures = [replace(figure, measured_at=measured_at) for figure in figures]
    counts = Counter(figure.matter for figure in figures)
    by_matter: dict[tuple[str, str, str], list[Forecast]] = {}
    for forecast in ledger.forecasts.values():
        if made_by is None or forecast.run_id == made_by:
            by_matter.setdefault(forecast.matter, []).append(forecast)
    rows = []
    for figure in figures:
        forecasts = by_matter.get(figure.matter, [])
        if not forecasts:
            rows.append(MatchRow(figure, "no forecast"))
        for forecast in forecasts:
            status, reason = _find_obstacle(ledger, forecast, figure, run, again=again)
            if status is None and counts[figure.matter] > 1:
                status, reason = "ambiguous", f"{counts[figure.matter]} outcomes in the run"
            outcome = _build_outcome(forecast, figure, run, now, note) if status is None else None
            rows.append(MatchRow(figure, status or "matched", forecast, reason, outcome))
    return rows


def _find_obstacle(
    ledger: Ledger, forecast: Forecast, figure: RunFigure, run: StoredRun, *, again: bool
) -> tuple[Status | None, str]:
    """Why an outcome is not one of this forecast; null and empty for no reason."""
    known = ledger.newest_outcomes.get(forecast.id)
    if forecast.run_id == run.run_id:
        return "left out", "this run made the forecast"
    if forecast.made_at >= (figure.measured_at or run.began):
        begun = "the run had begun" if figure.measured_at is None else "it was being measured"
        return "left out", f"made at {_format_time(forecast.made_at)}, when {begun}"
    if forecast.unit != figure.unit:
        return "left out", f"another unit: {figure.unit or 'none'}, forecast in {forecast.unit or 'none'}"
    if known is not None and known.run_id == run.run_id:
        return "unchanged", "this outcome is in the ledger"
    if known is not None and not again:
        return "refused", f"has an outcome ({known.run_id or 'by hand'}); --again adds this one"
    return None, ""


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _build_outcome(forecast: Forecast, figure: RunFigure, run: StoredRun, now: datetime, note: str) -> Outcome:
    failure = None if figure.value is not None else f"no value: {figure.reason or 'the table has none'}"[:300]
    outcome: Outcome = build_entry(
        Outcome,
        {
            "forecast": forecast.id,
            "kept_at": now,
            "observed_at": _read_end_time(run),
            "measured_at": figure.measured_at,
            "verdict": run.record["verdict"] or run.record["status"],
            "failure": failure,
            "note": note,
            **{name: getattr(figure, name) for name in ("value", "low", "high", "unit")},
            **_list_run_fields(run),
        },
        where=f"run {run.run_id} ({run.area})",
    )
    return outcome


def refuse_second_outcome(ledger: Ledger, forecast: Forecast, *, again: bool) -> None:
    """Refuse an outcome by hand of a forecast that has one."""
    known = ledger.newest_outcomes.get(forecast.id)
    if known is not None and not again:
        raise ConfigError(
            "the forecast has an outcome",
            where=f"forecast {forecast.id}",
            found=known.failure or f"{known.value:g} {known.unit}".strip(),
            do="--again adds another one: the newest counts, and the earlier stays",
        )


def count_statuses(rows: Iterable[MatchRow]) -> Mapping[str, int]:
    """Number of rows by status."""
    return Counter(row.status for row in rows)


def list_outcomes(rows: Sequence[MatchRow]) -> list[Outcome]:
    """The lines to write."""
    return [row.outcome for row in rows if row.outcome is not None]


def _list_figure_fields(figure: RunFigure) -> dict[str, Any]:
    return {name: getattr(figure, name) for name in ("area", "subject", "quantity", "unit", "value", "low", "high")}


def _list_run_fields(run: StoredRun) -> dict[str, Any]:
    """Id, folder name and inputs of a run; the digest is over the digests of its inputs, null without one."""
    digests = sorted(str(entry["sha256"]) for entry in run.record["inputs"] if _has_digest(entry))
    inputs = hashlib.sha256("\n".join(digests).encode()).hexdigest() if digests else None
    return {"run_id": run.run_id, "folder": PurePosixPath(run.root).name, "inputs_sha256": inputs}


def _has_digest(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("sha256"), str)


def _read_end_time(run: StoredRun) -> datetime:
    return parse_time(run.record.get("ended_at")) or run.began
