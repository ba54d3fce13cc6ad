"""Work and output of `workbench forecast`, as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import stats
from workbench.console.finish import finish_command, format_command_line, print_json
from workbench.console.tables import format_table
from workbench.console.terminal import print_text
from workbench.core.errors import ConfigError
from workbench.core.files import default_place
from workbench.core.formats import format_number
from workbench.forecasts import matching, scores
from workbench.forecasts.ledger import (
    Entry,
    Forecast,
    Ledger,
    Outcome,
    append_entries,
    build_entry,
    default_ledger,
    read_ledger,
)
from workbench.runs import catalogue

_FLAGS = {
    name: f"--{name}" for name in ("area", "subject", "quantity", "value", "low", "high", "level", "unit", "note")
}
_FLAGS |= {"failure": "--failed", "forecast": "--forecast"}
_RANGES = "correct it; values are finite and at least 0, with low <= value <= high"
_BY_HAND = ("area", "subject", "quantity", "value")


def add_forecasts(
    run_name: str | None,
    out: str | None,
    values: Mapping[str, Any],
    file: Path | None,
    *,
    note: str,
    retrospective: bool,
    accept_invalid: bool,
    as_json: bool,
) -> None:
    """Keep the forecasts of a run, or the one of these values, and print what was new."""
    path, given = file or default_ledger(), {name: value for name, value in values.items() if value is not None}
    now = datetime.now(UTC)
    _refuse_mixture(run_name, given, "a run", "--area, --subject, --quantity and --value")
    if run_name is None:
        _refuse_without_run({"--out": out, "--accept-invalid": accept_invalid})
        if "level" in given and not given.keys() & {"low", "high"}:
            raise ConfigError("a level without an interval", where="--level", do="add --low and --high, or remove it")
        if missing := [_FLAGS[name] for name in _BY_HAND if name not in given]:
            raise ConfigError("options are missing", where="workbench forecast add", found=f"no {', '.join(missing)}")
        fields = {"level": stats.LEVEL, "note": note, "retrospective": retrospective, "made_at": now, "kept_at": now}
        fields |= given | {"id": matching.make_id(now.isoformat(), *(str(given[name]) for name in _BY_HAND))}
        forecasts = [_build_entry_by_hand(Forecast, fields)]
    else:
        run = catalogue.resolve_run(run_name, out or default_place())
        forecasts = matching.build_forecasts(
            run, now, accept_invalid=accept_invalid, retrospective=retrospective, note=note
        )
    new: list[Forecast] = []

    def choose(ledger: Ledger) -> Sequence[Entry]:
        new.extend(forecast for forecast in forecasts if forecast.id not in ledger.forecasts)
        return new

    _tell_torn_line(append_entries(path, choose), path, removed=bool(new))
    n_known = len(forecasts) - len(new)
    if as_json:
        print_json({"ledger": path, "added": new, "n_known": n_known})
        return
    for forecast in new:
        print_text(f"{forecast.id}  {_format_forecast(forecast)}")
    known = f", {n_known} already there" if n_known else ""
    print_text(f"{len(new)} forecast(s) kept in {path}{known}")


def _refuse_mixture(run_name: str | None, given: Mapping[str, Any], first: str, second: str) -> None:
    if (run_name is None) == (not given):
        raise ConfigError(
            f"give either {first} or {second}",
            where="workbench forecast",
            found="neither" if run_name is None else "both: " + ", ".join(_FLAGS[name] for name in given),
        )


def _refuse_without_run(values: Mapping[str, object]) -> None:
    """Refuse options that only say something about a run, where there is none."""
    if unused := [flag for flag, value in values.items() if value]:
        raise ConfigError("only used with a run", where=unused[0], do="give RUN in place of a value, or remove it")


def _build_entry_by_hand(model: type[Forecast] | type[Outcome], fields: Mapping[str, Any]) -> Any:
    return build_entry(model, dict(fields), where=None, flags=_FLAGS, error_type=ConfigError, do=_RANGES)


def match_outcomes(
    run_name: str | None,
    out: str | None,
    values: Mapping[str, Any],
    file: Path | None,
    *,
    measured_at: str | None,
    made_by: str | None,
    again: bool,
    note: str,
    as_json: bool,
) -> None:
    """Match the outcomes of a run, or the one of these values, and print what became of each."""
    path, given = file or default_ledger(), {name: value for name, value in values.items() if value is not None}
    _refuse_mixture(run_name, given, "a run", "--forecast and --value")
    now = datetime.now(UTC)
    begun = None if measured_at is None else catalogue.parse_moment(measured_at, option="--measured-at", now=now)
    # Asked for first: a ledger is not begun by an outcome.
    read_ledger(path)
    if run_name is None:
        _refuse_without_run({"--out": out, "--made-by": made_by})
        _match_by_hand(path, given, now, begun or now, again=again, note=note, as_json=as_json)
        return
    run = catalogue.resolve_run(run_name, out or default_place())
    rows: list[matching.MatchRow] = []

    def choose(ledger: Ledger) -> Sequence[Entry]:
        rows.extend(matching.match_run(ledger, run, now, measured_at=begun, made_by=made_by, again=again, note=note))
        return matching.list_outcomes(rows)

    _tell_torn_line(append_entries(path, choose), path, removed=bool(matching.list_outcomes(rows)))
    counts = matching.count_statuses(rows)
    documents = []
    for row in rows:
        area, subject, quantity = row.figure.matter
        documents.append(
            {
                "forecast": None if row.forecast is None else row.forecast.id,
                "area": area,
                "subject": subject,
                "quantity": quantity,
                "value": row.figure.value,
                "unit": row.figure.unit,
                "status": row.status,
                "reason": row.reason,
            }
        )
    finish_command(
        lambda: _format_matches(rows, counts, f"run {run.run_id}, {path}"),
        {"ledger": path, "run_id": run.run_id, "counts": counts, "rows": documents},
        as_json=as_json,
        is_valid="impossible" not in counts,
    )


def _format_matches(rows: Sequence[matching.MatchRow], counts: Mapping[str, int], of: str) -> str:
    cells = []
    for row in rows:
        if (forecast := row.forecast) is not None:
            said = [format_number(forecast.value), _format_ends(forecast.low, forecast.high)]
            came = [format_number(row.figure.value), row.figure.unit]
            cells.append([forecast.id, row.figure.subject, row.figure.quantity, *said, *came, row.status, row.reason])
    answer = ", ".join(f"{count} {status}" for status, count in counts.items()) + f": {of}"
    rank = ("status", "why", "subject", "said", "came")
    table = format_table(cells, _MATCH_HEADERS, rank=rank) if cells else ["Nothing matched."]
    return "\n".join([answer, "", *table])


def _match_by_hand(
    path: Path, given: Mapping[str, Any], now: datetime, begun: datetime, *, again: bool, note: str, as_json: bool
) -> None:
    if "forecast" not in given:
        raise ConfigError("an option is missing", where="workbench forecast match", found="no --forecast")
    if "failure" in given and (ends := [_FLAGS[name] for name in ("low", "high") if name in given]):
        raise ConfigError(
            "a failure has no interval", where=ends[0], do="give --value in place of --failed, or remove it"
        )
    if begun > now:
        raise ConfigError("measured in the future", where="--measured-at", found=begun.isoformat(timespec="seconds"))
    pairs: list[tuple[Forecast, Outcome]] = []

    def choose(ledger: Ledger) -> Sequence[Entry]:
        forecast = ledger.find_forecast(given["forecast"])
        matching.refuse_second_outcome(ledger, forecast, again=again)
        if (unit := given.get("unit", forecast.unit)) != forecast.unit:
            raise ConfigError("another unit than the forecast's", where="--unit", found=unit, allowed=forecast.unit)
        fields = dict(given) | {"forecast": forecast.id, "unit": unit, "kept_at": now, "note": note}
        fields |= {"observed_at": now, "measured_at": begun}
        pairs.append((forecast, _build_entry_by_hand(Outcome, fields)))
        return [pairs[0][1]]

    _tell_torn_line(append_entries(path, choose), path, removed=True)
    forecast, outcome = pairs[0]
    if as_json:
        print_json({"ledger": path, "forecast": forecast, "outcome": outcome})
        return
    came = outcome.failure or f"{format_number(outcome.value)} {outcome.unit}".strip()
    print_text(f"{forecast.id}  {_format_forecast(forecast)}; came: {came}")


def print_scores(file: Path | None, *, show_open: bool, in_time: bool, out: Path | None, as_json: bool) -> None:
    """Score a ledger, print the scores, and optionally write the tables as a run folder."""
    path = file or default_ledger()
    ledger = read_ledger(path)
    _tell_torn_line(ledger, path, removed=False)
    scored = scores.score_cases(scores.build_cases(ledger, in_time=in_time))
    if out is not None:
        from workbench.forecasts.tables import FORECAST_SCORES, FORECASTS
        from workbench.runs import run_folder

        run = run_folder.start_run(
            "forecasts",
            folder=out,
            title="Do the forecasts hold?",
            config={"ledger": str(path), "in_time": in_time},
            command=format_command_line(),
        )
        run.add_input(path)
        run.write_table(FORECASTS, scored.forecasts)
        run.write_table(FORECAST_SCORES, scored.scores)
        run.conclude("invalid" if scored.reasons else "valid", scored.reasons, scored.answer)
    finish_command(
        lambda: _format_scores(scored, show_open=show_open),
        lambda: {
            "ledger": path,
            "answer": scored.answer,
            "n_torn_bytes": ledger.n_torn_bytes,
            "scores": scored.scores.to_dicts(),
            "forecasts": scored.forecasts.to_dicts(),
        },
        as_json=as_json,
        is_valid=not scored.reasons,
        written=[out] if out else [],
    )


def _tell_torn_line(ledger: Ledger, path: Path, *, removed: bool) -> None:
    if ledger.n_torn_bytes:
        fate = "was removed" if removed else "is left out"
        print_text(f"warning: the last line of {path} was cut ({ledger.n_torn_bytes} bytes) and {fate}", err=True)


def _format_forecast(forecast: Forecast) -> str:
    ends = "" if forecast.low is None and forecast.high is None else f" {_format_ends(forecast.low, forecast.high)}"
    value = f"{format_number(forecast.value)}{ends} {forecast.unit}".rstrip()
    return f"{forecast.area}: {forecast.subject}, {forecast.quantity}: {value}"


def _format_ends(low: float | None, high: float | None) -> str:
    return f"[{format_number(low)}, {format_number(high)}]"


_MATCH_HEADERS = ("forecast", "subject", "quantity", "said", "interval", "came", "unit", "status", "why")


_SCORE_HEADERS = (
    *("area", "forecasts", "open", "matched", "failed", "invalid", "known", "held", "coverage", "promised", "verdict"),
    *("log error", "log width", "score"),
)


def _format_scores(scored: scores.Scores, *, show_open: bool) -> str:
    by_area = []
    for row in scored.scores.iter_rows(named=True):
        counts = [row[f"n_{name}"] for name in ("forecasts", "open", "matched", "failed", "invalid", "retrospective")]
        held = f"{row['n_covered']} of {row['n_intervals']}"
        coverage = scores.format_share(row["coverage_low"], row["coverage"], row["coverage_high"])
        promised = None if row["level"] is None else f"{100 * row['level']:.0f} %"
        errors = [row[name] for name in ("mean_absolute_log_error", "mean_log_width", "mean_interval_score")]
        by_area.append([row["area"], *counts, held, coverage, promised, row["verdict"], *errors])
    rank = ("verdict", "held", "coverage", "promised", "forecasts", "matched")
    lines = [scored.answer, "", *format_table(by_area, _SCORE_HEADERS, rank=rank)]
    if show_open:
        waiting = scored.forecasts.filter(scored.forecasts["state"] == "open")
        cells = waiting.select("id", "area", "subject", "quantity", "value", "low", "high", "unit", "made_at")
        lines += ["", *format_table(cells.rows(), ("open", *cells.columns[1:]))] if waiting.height else ["none is open"]
    return "\n".join(lines)
