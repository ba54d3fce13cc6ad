"""`workbench indicators show`: what the database holds, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.indicators.commands.sync import DatabaseOption

if TYPE_CHECKING:
    from workbench.indicators.storage.queries import Answer

_ROWS = 50
# What fits a terminal; --csv, --json and --parquet have all.
_MAIN = {
    "runs": ("session_id", "case", "arm", "run", "status", "reason", "passed", "duration_s", "ru_utime", "started_at"),
    "observations": ("session_id", "metric", "arm", "run", "value", "unit", "better"),
    "checks": ("session_id", "case", "arm", "run", "field", "value", "compared"),
    "failures": ("session_id", "case", "arm", "run", "status", "reason", "failed_checks", "started_at"),
}


def show(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="sessions, stacks, indicators, runs, observations, checks, values, failures or packages.",
        ),
    ] = "",
    database: DatabaseOption = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Of this session alone.")] = None,
    stack: Annotated[
        str | None, typer.Option(metavar="NAME|KEY", help="Of this stack: its name, its arm, or its key's begin.")
    ] = None,
    indicator: Annotated[
        str | None, typer.Option(metavar="NAME[@VERSION]", help="Of this indicator; `values` needs one.")
    ] = None,
    status: Annotated[str | None, typer.Option(help="Runs that ended so: ok, timeout, out of memory, …")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Runs since then (UTC), such as 2026-01-31.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(metavar="SELECT", help="A question of your own instead: one SELECT, read-only.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Rows at most.", min=1, max=1_000_000, show_default="10,000")
    ] = 10_000,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on stdout.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Parquet file.")] = None,
) -> None:
    """Answer a question to the database as a table; nothing is written to it.

    Without a query: the questions that there are. Versions of an indicator are never put together.

    Examples: workbench indicators show runs --status timeout
    workbench indicators show --sql 'SELECT "case", count(*) AS n FROM run GROUP BY 1'
    """
    from workbench.errors import ConfigError
    from workbench.indicators.storage import queries, reading
    from workbench.indicators.storage.database import open_database, refuse_password

    if sql is not None and query:
        raise ConfigError("two questions at once", where="--sql", found=query, do="give a query, or --sql")
    if sum((as_csv, as_json, parquet is not None)) > 1:
        raise ConfigError("two forms at once", allowed="one of --csv, --json, --parquet")
    filters = queries.Filters(session, stack, indicator, status, since)
    if sql is not None and filters.given():
        raise ConfigError("--sql takes no filters", found=[f"--{one}" for one in sorted(filters.given())])
    if not query and sql is None:
        _print_queries(as_json)
        return
    refuse_password(database)
    with open_database(database, create=False) as opened:
        if sql is not None:
            answer = reading.select(opened, sql, most_rows=limit)
        else:
            answer = queries.ask(opened, query, filters, most_rows=limit)
    _give(answer, _MAIN.get(query), as_csv=as_csv, as_json=as_json, parquet=parquet)


def _print_queries(as_json: bool) -> None:
    import json

    from workbench.indicators.storage.queries import QUERIES

    if as_json:
        typer.echo(json.dumps({name: query.about for name, query in QUERIES.items()}))
        return
    for name, query in QUERIES.items():
        typer.echo(f"  {name:<13} {query.about}")
    typer.echo("\nworkbench indicators show QUERY [--session --stack --indicator --status --since]")


def _give(answer: Answer, main: tuple[str, ...] | None, *, as_csv: bool, as_json: bool, parquet: Path | None) -> None:
    from workbench.terminal import say

    frame = answer.frame
    if as_json:
        import json

        rows = _finite(frame).to_dicts()
        typer.echo(json.dumps({"rows": rows, "truncated": answer.truncated}, allow_nan=False))
        return
    if as_csv:
        import polars as pl

        from workbench.tables import for_spreadsheets

        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        typer.echo(for_spreadsheets(frame.with_columns(pl.col(lists).list.join("; "))).write_csv(), nl=False)
    elif parquet is not None:
        _write(frame, parquet)
        say(f"rows: {frame.height}\n{parquet}")
    else:
        _print(frame.select(main) if main else frame)
    if answer.truncated:
        say(f"only the first {frame.height} rows: --limit N gives more", err=True)


def _finite(frame: Any) -> Any:
    """The table with null for numbers that JSON has none for."""
    import polars as pl

    numbers = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    return frame.with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in numbers)


def _write(frame: Any, path: Path) -> None:
    from workbench.errors import ConfigError
    from workbench.files import replacing

    try:
        with replacing(path) as temporary:
            frame.write_parquet(temporary, compression="zstd")
    except OSError as error:
        raise ConfigError("cannot be written", where=path, found=error.strerror, do="choose another file") from None


def _print(frame: Any) -> None:
    """The first rows, in columns that fit their values."""
    from workbench.terminal import say

    shown = frame.head(_ROWS)
    names = [name for name in shown.columns if not shown.height or shown[name].null_count() < shown.height]
    cells = [names, *([_text(value) for value in row] for row in shown.select(names).rows())]
    if "stack_key" in names:  # its begin is enough to tell it, and to ask for it
        at = names.index("stack_key")
        cells = [[*row[:at], row[at][:12], *row[at + 1 :]] for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    rest = frame.height - shown.height
    say(f"rows: {frame.height}" + (f", {rest} not shown: --csv, --json or --parquet FILE gives all" if rest else ""))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"
