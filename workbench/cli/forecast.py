"""`workbench forecast`: keep forecasts, match them with what came, and score them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line, print_json
from workbench.console.options import build_group
from workbench.console.tables import format_table
from workbench.console.terminal import print_text
from workbench.core.errors import ConfigError
from workbench.core.files import default_place
from workbench.core.formats import format_number

if TYPE_CHECKING:
    from workbench.forecasts.ledger import Entry, Forecast, Ledger, Outcome
    from workbench.forecasts.matching import MatchRow
    from workbench.forecasts.scores import Scores

FIRST_STEPS = """\
  workbench forecast score --ledger sample:ledger
  workbench forecast add RUN            when a run has predicted something
  workbench forecast match RUN          when a later run has measured it
"""

app = build_group("Keep forecasts, match them with their outcomes, and score them.", first_steps=FIRST_STEPS)

RUN = "Run id, the start of one, a run folder, or an area for its newest run."
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="The ledger; by default forecasts.jsonl in the folder of the runs."),
]
Place = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="Folder of the runs; by default data/runs, else your cache.")
]
RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=RUN)]
Low = Annotated[float | None, typer.Option("--low", metavar="X", help="By hand: lower end of the interval.")]
High = Annotated[float | None, typer.Option("--high", metavar="X", help="By hand: upper end.")]
Unit = Annotated[str | None, typer.Option("--unit", metavar="UNIT", help="By hand: unit, such as s.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="A remark to keep with it.", show_default=False)]

_BY_HAND = ("area", "subject", "quantity", "value")
_FLAGS = {name: f"--{name}" for name in (*_BY_HAND, "low", "high", "level", "unit", "note", "forecast")}
_FLAGS |= {"failure": "--failed"}
_MATCH_HEADERS = ("forecast", "subject", "quantity", "said", "interval", "came", "unit", "status", "why")
_SCORE_HEADERS = (
    *("area", "forecasts", "open", "matched", "failed", "invalid", "known", "held", "coverage", "promised", "verdict"),
    *("log error", "log width", "score"),
)


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench forecast add sample:capacity/sizing --ledger mine.jsonl\n"
    "  workbench forecast add --area speedup --subject 'application etl' --quantity 'time on the candidate'"
    " --value 310 --low 280 --high 350 --unit s"
)
def add(
    run: RunArgument = None,
    area: Annotated[str | None, typer.Option(metavar="AREA", help="By hand: area, such as speedup.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="By hand: the subject of the forecast.")] = None,
    quantity: Annotated[str | None, typer.Option(metavar="TEXT", help="By hand: the forecast quantity.")] = None,
    value: Annotated[float | None, typer.Option(metavar="X", help="By hand: the forecast.")] = None,
    low: Low = None,
    high: High = None,
    level: Annotated[
        float | None, typer.Option(metavar="SHARE", help="By hand: level of the interval.", show_default="0.9")
    ] = None,
    unit: Unit = None,
    note: Note = "",
    retrospective: Annotated[
        bool, typer.Option("--retrospective", help="Somebody already knows the outcome; scores count these separately.")
    ] = False,
    accept_invalid: Annotated[
        bool, typer.Option("--accept-invalid", help="Also keep forecasts of a run that is not valid.")
    ] = False,
    out: Place = None,
    ledger: LedgerFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep the forecasts of a run, or one by hand.

    The predictions with an interval are taken from the tables of the run. The same forecast of the same run is kept
    once.
    """
    from workbench import stats
    from workbench.forecasts import matching
    from workbench.forecasts.ledger import Forecast, append_entries, default_ledger
    from workbench.runs import catalogue

    path, now = ledger or default_ledger(), datetime.now(UTC)
    values = {"area": area, "subject": subject, "quantity": quantity, "value": value, "low": low, "high": high}
    given = _select_given(run, values | {"level": level, "unit": unit}, "--area, --subject, --quantity and --value")
    if run is None:
        _refuse_without_run({"--out": out, "--accept-invalid": accept_invalid})
        if "level" in given and not given.keys() & {"low", "high"}:
            raise ConfigError("a level without an interval", where="--level", do="add --low and --high, or remove it")
        if missing := [_FLAGS[name] for name in _BY_HAND if name not in given]:
            raise ConfigError("options are missing", where="workbench forecast add", found=f"no {', '.join(missing)}")
        fields = {"level": stats.LEVEL, "note": note, "retrospective": retrospective, "made_at": now, "kept_at": now}
        fields |= given | {"id": matching.make_id(now.isoformat(), *(str(given[name]) for name in _BY_HAND))}
        forecasts = [_build_entry_by_hand(Forecast, fields)]
    else:
        forecasts = matching.build_forecasts(
            catalogue.resolve_run(run, out or default_place()),
            now,
            accept_invalid=accept_invalid,
            retrospective=retrospective,
            note=note,
        )
    new: list[Forecast] = []

    def choose(known: Ledger) -> Sequence[Entry]:
        new.extend(forecast for forecast in forecasts if forecast.id not in known.forecasts)
        return new

    _tell_torn_line(append_entries(path, choose), path, removed=bool(new))
    n_known = len(forecasts) - len(new)
    if as_json:
        print_json({"ledger": path, "added": new, "n_known": n_known})
        return
    for forecast in new:
        print_text(f"{forecast.id}  {_format_forecast(forecast)}")
    there = f", {n_known} already there" if n_known else ""
    print_text(f"{len(new)} forecast(s) kept in {path}{there}")


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench forecast match data/runs/sizing/20261128T073738Z-ad8dc7\n"
    "  workbench forecast match --forecast 3f2a --value 305"
)
def match(
    run: RunArgument = None,
    forecast: Annotated[
        str | None, typer.Option(metavar="ID", help="By hand: id of the forecast, or its start.")
    ] = None,
    value: Annotated[
        float | None, typer.Option(metavar="X", help="By hand: the outcome, in the forecast's unit.")
    ] = None,
    low: Low = None,
    high: High = None,
    unit: Unit = None,
    failed: Annotated[
        str | None, typer.Option(metavar="TEXT", help="By hand: why there is no outcome, such as 'out of memory'.")
    ] = None,
    measured_at: Annotated[
        str | None,
        typer.Option(
            "--measured-at",
            metavar="TIME",
            help="When the measurement began, where the run does not say so: 2026-11-01T09:00, or 3h.",
        ),
    ] = None,
    made_by: Annotated[
        str | None, typer.Option("--made-by", metavar="RUN", help="Only forecasts of this run, by its whole id.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Also for forecasts with an outcome: the newest counts, the earlier one is kept."),
    ] = False,
    note: Note = "",
    out: Place = None,
    ledger: LedgerFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Match the outcomes of a run with the forecasts that were made before, or give one by hand.

    Forecast and outcome are about the same area, subject and quantity. One outcome is matched with one forecast: by
    the application id where both have it; where several forecasts wait for it, they are ambiguous and none is
    matched. Outcomes of a run that is not valid are kept, and do not count in scores. Exit code 1 when an outcome is
    impossible: it is named, and the others are matched.
    """
    from workbench.forecasts import matching
    from workbench.forecasts.ledger import append_entries, default_ledger, read_ledger
    from workbench.runs import catalogue

    path, now = ledger or default_ledger(), datetime.now(UTC)
    values = {"forecast": forecast, "value": value, "low": low, "high": high, "unit": unit, "failure": failed}
    given = _select_given(run, values, "--forecast and --value")
    begun = None if measured_at is None else catalogue.parse_moment(measured_at, option="--measured-at", now=now)
    # Asked for first: a ledger is not begun by an outcome.
    read_ledger(path)
    if run is None:
        _refuse_without_run({"--out": out, "--made-by": made_by})
        _match_by_hand(path, given, now, begun or now, again=again, note=note, as_json=as_json)
        return
    measured = catalogue.resolve_run(run, out or default_place())
    rows: list[MatchRow] = []

    def choose(known: Ledger) -> Sequence[Entry]:
        rows.extend(
            matching.match_run(known, measured, now, measured_at=begun, made_by=made_by, again=again, note=note)
        )
        return matching.list_outcomes(rows)

    _tell_torn_line(append_entries(path, choose), path, removed=bool(matching.list_outcomes(rows)))
    counts = matching.count_statuses(rows)
    documents = [
        {
            "forecast": None if row.forecast is None else row.forecast.id,
            **{name: getattr(row.figure, name) for name in ("area", "subject", "quantity", "value", "unit")},
            "status": row.status,
            "reason": row.reason,
        }
        for row in rows
    ]
    finish_command(
        lambda: _format_matches(rows, counts, f"run {measured.run_id}, {path}"),
        {"ledger": path, "run_id": measured.run_id, "counts": counts, "rows": documents},
        as_json=as_json,
        is_valid="impossible" not in counts,
    )


@app.command(epilog="\b\nExample:\n  workbench forecast score --ledger sample:ledger")
def score(
    show_open: Annotated[bool, typer.Option("--open", help="Also list the forecasts without an outcome.")] = False,
    in_time: Annotated[
        bool, typer.Option("--in-time", help="Ignore forecasts that were kept when the outcome may have been known.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the tables as a run folder here.")
    ] = None,
    ledger: LedgerFile = None,
    as_json: JsonFlag = False,
) -> None:
    """Score the forecasts by area: how often intervals contained the outcome, and how far off the forecasts were.

    Exit code 1 when no forecast has an outcome that counts.
    """
    from workbench.forecasts.ledger import default_ledger, read_ledger
    from workbench.forecasts.scores import build_cases, score_cases

    path = ledger or default_ledger()
    entries = read_ledger(path)
    _tell_torn_line(entries, path, removed=False)
    scored = score_cases(build_cases(entries, in_time=in_time))
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
            "n_torn_bytes": entries.n_torn_bytes,
            "scores": scored.scores.to_dicts(),
            "forecasts": scored.forecasts.to_dicts(),
        },
        as_json=as_json,
        is_valid=not scored.reasons,
        written=[out] if out else [],
    )


def _select_given(run: str | None, values: Mapping[str, Any], by_hand: str) -> dict[str, Any]:
    """The values that were given in place of a run; it is an error to give both, or neither."""
    given = {name: value for name, value in values.items() if value is not None}
    if (run is None) == (not given):
        raise ConfigError(
            f"give either a run or {by_hand}",
            where="workbench forecast",
            found="neither" if run is None else "both: " + ", ".join(_FLAGS[name] for name in given),
        )
    return given


def _refuse_without_run(values: Mapping[str, object]) -> None:
    """Refuse options that only say something about a run, where there is none."""
    if unused := [flag for flag, value in values.items() if value]:
        raise ConfigError("only used with a run", where=unused[0], do="give RUN in place of a value, or remove it")


def _build_entry_by_hand(model: type[Forecast] | type[Outcome], fields: Mapping[str, Any]) -> Any:
    from workbench.forecasts.ledger import build_entry

    do = "correct it; values are finite and at least 0, with low <= value <= high"
    return build_entry(model, dict(fields), where=None, flags=_FLAGS, error_type=ConfigError, do=do)


def _match_by_hand(
    path: Path, given: Mapping[str, Any], now: datetime, begun: datetime, *, again: bool, note: str, as_json: bool
) -> None:
    from workbench.forecasts import matching
    from workbench.forecasts.ledger import Outcome, append_entries

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


def _format_matches(rows: Sequence[MatchRow], counts: Mapping[str, int], of: str) -> str:
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


def _format_scores(scored: Scores, *, show_open: bool) -> str:
    from workbench.forecasts.scores import format_share

    by_area = []
    for row in scored.scores.iter_rows(named=True):
        counts = [row[f"n_{name}"] for name in ("forecasts", "open", "matched", "failed", "invalid", "retrospective")]
        held = f"{row['n_covered']} of {row['n_intervals']}"
        coverage = format_share(row["coverage_low"], row["coverage"], row["coverage_high"])
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
