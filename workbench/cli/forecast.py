"""`workbench forecast`: keep forecasts, match them with what came, and score them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.console.options import build_group

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
    from workbench.cli import forecast_output

    values = {"area": area, "subject": subject, "quantity": quantity, "value": value, "low": low, "high": high}
    forecast_output.add_forecasts(
        run,
        out,
        values | {"level": level, "unit": unit},
        ledger,
        note=note,
        retrospective=retrospective,
        accept_invalid=accept_invalid,
        as_json=as_json,
    )


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
    from workbench.cli import forecast_output

    values = {"forecast": forecast, "value": value, "low": low, "high": high, "unit": unit, "failure": failed}
    forecast_output.match_outcomes(
        run, out, values, ledger, measured_at=measured_at, made_by=made_by, again=again, note=note, as_json=as_json
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
    from workbench.cli import forecast_output

    forecast_output.print_scores(ledger, show_open=show_open, in_time=in_time, out=out, as_json=as_json)
