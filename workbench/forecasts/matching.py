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

Status = Literal["matched", "unchanged", "refused", "ambiguous", "impossible", "left out", "no forecast"]


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
            where=f"run {run.run_id} ({run.area}), {figure.subject}, {figure.quantity}",
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
    """Match the outcomes of a run with forecasts of the same area, subject and quantity; one outcome with one forecast.

    A forecast of this run is left out, and so is one that was made when the measurement had begun or, where nothing
    says when that was, the run. Forecast and outcome of one application id belong together. Otherwise, where the run
    has several outcomes for one subject and quantity, or several forecasts wait for one, nothing says which are meant,
    and none is taken.

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
    # The forecast that an outcome was matched with, by its matter and application, or run where none is known.
    taken = {
        (*ledger.forecasts[outcome.forecast].matter, outcome.application or outcome.run_id): outcome.forecast
        for outcome in ledger.outcomes
        if outcome.application or outcome.run_id
    }
    rows = []
    for figure, forecasts, n_outcomes in _list_pairings(figures, _select_forecasts(ledger, made_by)):
        if not forecasts:
            rows.append(MatchRow(figure, "no forecast"))
        taken_by = taken.get((*figure.matter, figure.application)) or taken.get((*figure.matter, run.run_id))
        obstacles = [_find_obstacle(ledger, forecast, figure, run, taken_by, again=again) for forecast in forecasts]
        n_waiting = sum(status is None for status, _ in obstacles)
        for forecast, (status, reason) in zip(forecasts, obstacles, strict=True):
            if status is None and n_outcomes > 1:
                status, reason = "ambiguous", f"{n_outcomes} outcomes in the run"
            elif status is None and n_waiting > 1:
                status, reason = "ambiguous", f"{n_waiting} forecasts wait for it: --made-by RUN, or --forecast ID"
            row = MatchRow(figure, status or "matched", forecast, reason)
            rows.append(_add_outcome(row, forecast, run, now, note) if status is None else row)
    return rows


def _add_outcome(row: MatchRow, forecast: Forecast, run: StoredRun, now: datetime, note: str) -> MatchRow:
    """The row with its outcome; one that contradicts itself is named, and stops no other."""
    try:
        figure = row.figure
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
                **{name: getattr(figure, name) for name in ("value", "low", "high", "unit", "application")},
                **_list_run_fields(run),
            },
            where=f"run {run.run_id} ({run.area}), {figure.subject}, {figure.quantity}",
        )
        return replace(row, outcome=outcome)
    except InputError as error:
        found, allowed = error.facts["found"], error.facts["allowed"]
        return replace(row, status="impossible", reason=f"{found}, not {allowed}" if allowed else str(found))


def _select_forecasts(ledger: Ledger, made_by: str | None) -> list[Forecast]:
    """All forecasts, or those of one run, which must have some."""
    forecasts = [forecast for forecast in ledger.forecasts.values() if made_by in (None, forecast.run_id)]
    if made_by is not None and not forecasts:
        runs = dict.fromkeys(forecast.run_id for forecast in ledger.forecasts.values() if forecast.run_id)
        allowed = [*list(runs)[-10:]] or "no run: all forecasts were kept by hand"
        raise ConfigError("no forecast of this run is kept", where="--made-by", found=made_by, allowed=allowed)
    return forecasts


def _list_pairings(
    figures: Sequence[RunFigure], forecasts: Sequence[Forecast]
) -> list[tuple[RunFigure, list[Forecast], int]]:
    """Each figure with the forecasts that it may be of, and the number of figures that may be of these.

    Those of an application id that is on both sides are paired by it, all others by area, subject and quantity alone.
    """
    shared = {(*figure.matter, figure.application) for figure in figures if figure.application}
    shared &= {(*forecast.matter, forecast.application) for forecast in forecasts}

    def find_key(entry: RunFigure | Forecast) -> tuple[str | None, ...]:
        key = (*entry.matter, entry.application)
        return key if key in shared else entry.matter

    counts = Counter(map(find_key, figures))
    grouped: dict[tuple[str | None, ...], list[Forecast]] = {}
    for forecast in forecasts:
        grouped.setdefault(find_key(forecast), []).append(forecast)
    return [(figure, grouped.get(find_key(figure), []), counts[find_key(figure)]) for figure in figures]


def _find_obstacle(
    ledger: Ledger, forecast: Forecast, figure: RunFigure, run: StoredRun, taken_by: str | None, *, again: bool
) -> tuple[Status | None, str]:
    """Why an outcome is not one of this forecast; null and empty for no reason.

    `taken_by`: The forecast that the outcome is matched with already.
    """
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
    if taken_by is not None and taken_by != forecast.id:
        return "refused", f"this outcome is matched with forecast {taken_by}"
    if known is not None and not again:
        return "refused", f"has an outcome ({known.run_id or 'by hand'}); --again adds this one"
    return None, ""


def _format_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def refuse_second_outcome(ledger: Ledger, forecast: Forecast, *, again: bool) -> None:
    """Refuse an outcome by hand of a forecast that has one."""
    known = ledger.newest_outcomes.get(forecast.id)
    if known is not None and not again:
        raise ConfigError(
            "the forecast has an outcome",
            where=f"forecast {forecast.id}",
            found=known.failure or f"{known.value:g} {known.unit}".strip(),
            do="--again adds another one: the newest counts, and the earlier one is kept",
        )


def count_statuses(rows: Iterable[MatchRow]) -> Mapping[str, int]:
    """Number of rows by status."""
    return Counter(row.status for row in rows)


def list_outcomes(rows: Sequence[MatchRow]) -> list[Outcome]:
    """The lines to write."""
    return [row.outcome for row in rows if row.outcome is not None]


def _list_figure_fields(figure: RunFigure) -> dict[str, Any]:
    names = ("area", "subject", "quantity", "unit", "value", "low", "high", "application")
    return {name: getattr(figure, name) for name in names}


def _list_run_fields(run: StoredRun) -> dict[str, Any]:
    """Id, folder name and inputs of a run; the digest is over the digests of its inputs, null without one."""
    digests = sorted(
        str(entry["sha256"])
        for entry in run.record["inputs"]
        if (isinstance(entry, dict) and isinstance(entry.get("sha256"), str))
    )
    inputs = hashlib.sha256("\n".join(digests).encode()).hexdigest() if digests else None
    return {"run_id": run.run_id, "folder": PurePosixPath(run.root).name, "inputs_sha256": inputs}


def _read_end_time(run: StoredRun) -> datetime:
    return parse_time(run.record.get("ended_at")) or run.began
