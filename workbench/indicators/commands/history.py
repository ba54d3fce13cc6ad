"""`workbench indicators history`: figures over time, their changes of level, and regressions since a date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.indicators.commands.sync import DatabaseOption


def history(
    indicator: Annotated[
        str,
        typer.Argument(metavar="[INDICATOR]", help="Only this indicator or metric, such as sort.", show_default="all"),
    ] = "",
    database: DatabaseOption = None,
    stack: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this stack, without its versions, such as numpy.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Compare the sessions since this date (UTC) with those before: a gate."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="KEY", help="Start of the reference's key.", show_default="of most sessions")
    ] = None,
    clock: Annotated[Literal["wall", "cpu"], typer.Option(help="Time that is compared.")] = "wall",
    absolute: Annotated[
        bool, typer.Option("--absolute", help="Also imported sessions (asv, pyperf), by their own values.")
    ] = False,
    points: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Table history_points (.parquet) instead of a database.")
    ] = None,
    commits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Order of the commits, oldest first: git rev-list --reverse HEAD > FILE."),
    ] = None,
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="With --since: exit code 0 where a regression is not excluded.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the tables into this folder.")] = None,
    site: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write pages for a team: all series, and one for each metric.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            help="With --since: send regressions to the address that this environment variable holds.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the figures of synchronised sessions over time, and when their level changed.

    Figures are ratios to a reference that every session measures again in the same rounds (`indicators run
    --reference`), so that another day, load or kernel does not look like another library. A changed machine is seen in
    the reference's own value. Each change is shown with its packages and commits before and after; a drift is told as
    one, and fewer than four sessions far from their neighbours are outliers. Sessions of pytest-benchmark and asv are
    in the order of their commits, others in that of time, or of --commits.

    With --webhook, regressions are posted as JSON (text, since, regressions), and what is sent is shown; without one
    nothing is sent.

    Exit code 0 with an answer. With --since 1 for a regression, also where it is not excluded or nothing was measured
    since; without it 1 for too few sessions.

    Example: workbench indicators history sort --points sample:points

    Pages for a team: workbench indicators history --points sample:points --site site
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.history import history_site, study
    from workbench.indicators.history.history_points import HistoryFilter, load_history
    from workbench.indicators.history.level_changes import analyse_history
    from workbench.indicators.store.sql_database import refuse_password

    if points is not None and database is not None:
        raise ConfigError("two sources", where="--points, --database", do="give one of them")
    if points is not None and points.suffix != ".parquet":
        raise ConfigError("not a table of points", where="--points", found=points.name[:100], allowed="*.parquet")
    if webhook is not None and since is None:
        raise ConfigError("alerts are of regressions since a date", where="--webhook", do="add --since DATE")
    refuse_password(database)
    wanted = HistoryFilter(indicator or None, stack, reference, clock, absolute, commits)
    analysis = analyse_history(load_history(points or database, wanted), since=since)
    written = [] if out is None else [table.write(frame, out) for table, frame in analysis.tables]
    if site is not None:
        written.append(history_site.write_site(analysis, site, command=format_command_line()))
    alert = history_site.build_alert(analysis) if webhook is not None and analysis.regressions.height else None
    if webhook is not None and alert is not None:
        history_site.send_alert(alert, webhook)
    failed = since is not None and (analysis.regressions.height or (analysis.unknown.height and not allow_undecided))
    finish_command(
        lambda: study.format_history(analysis) + (f"\n\nsent: {json.dumps(alert)}" if alert else ""),
        lambda: study.build_history_document(analysis) | {"sent": alert},
        as_json=as_json,
        is_valid=not failed and (study.is_known(analysis) or (since is not None and allow_undecided)),
        written=written,
    )
