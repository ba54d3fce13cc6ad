"""`workbench indicators show`: query the database, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag
from workbench.indicators.commands.sync import DatabaseOption

if TYPE_CHECKING:
    from workbench.indicators.store.sql_queries import Answer

_MAX_SHOWN_ROWS = 50
# Columns that fit a terminal; --csv, --json and --parquet have all.
_MAIN_COLUMNS = {
    "runs": (
        *("session_id", "case", "arm", "run", "component", "status", "reason", "passed", "overall_score"),
        *("duration_s", "ru_utime", "started_at"),
    ),
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
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this session.")] = None,
    stack: Annotated[
        str | None,
        typer.Option(metavar="NAME|KEY", help="Only this stack: its name, its arm, or the start of its key."),
    ] = None,
    indicator: Annotated[
        str | None, typer.Option(metavar="NAME[@VERSION]", help="Only this indicator; required by `values`.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only runs with this status: ok, timeout, out of memory, …")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs since this time (UTC), such as 2026-01-31.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(metavar="SELECT", help="Your own query instead: one SELECT, read-only.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of rows.", min=1, max=1_000_000, show_default="10,000")
    ] = 10_000,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on stdout.")] = False,
    as_json: JsonFlag = False,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Parquet file.")] = None,
) -> None:
    """Query the database, read-only, and show a table; without a query, list the queries.

    Examples, after workbench indicators sync sample:numpy --database numpy.db:

    workbench indicators show runs --database numpy.db --status timeout

    workbench indicators show --database numpy.db --sql 'SELECT "case" FROM run'
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.store import sql_queries
    from workbench.indicators.store.sql_database import open_database, refuse_password

    if sql is not None and query:
        raise ConfigError("two queries", where="--sql", found=query, do="give a query, or --sql")
    if sum((as_csv, as_json, parquet is not None)) > 1:
        raise ConfigError("several output formats", allowed="one of --csv, --json, --parquet")
    filters = sql_queries.Filters(session, stack, indicator, status, since)
    if sql is not None and filters.list_set_names():
        raise ConfigError("--sql takes no filters", found=[f"--{name}" for name in sorted(filters.list_set_names())])
    if not query and sql is None:
        if as_json:
            typer.echo(json.dumps({name: listed.about for name, listed in sql_queries.QUERIES.items()}))
            return
        for name, listed in sql_queries.QUERIES.items():
            typer.echo(f"  {name:<13} {listed.about}")
        typer.echo("\nworkbench indicators show QUERY [--session --stack --indicator --status --since]")
        return
    refuse_password(database)
    with open_database(database, create=False) as opened:
        if sql is not None:
            answer = sql_queries.select_rows(opened, sql, max_rows=limit)
        else:
            answer = sql_queries.run_query(opened, query, filters, max_rows=limit)
    _output_answer(answer, _MAIN_COLUMNS.get(query), as_csv=as_csv, as_json=as_json, parquet=parquet)


def _output_answer(
    answer: Answer, main: tuple[str, ...] | None, *, as_csv: bool, as_json: bool, parquet: Path | None
) -> None:
    import polars as pl

    from workbench.console.terminal import print_text

    frame = answer.frame
    if as_json:
        # JSON has no other numbers.
        numbers = [pl.col(name) for name, dtype in frame.schema.items() if dtype.is_float()]
        rows = frame.with_columns(pl.when(column.is_finite()).then(column) for column in numbers).to_dicts()
        typer.echo(json.dumps({"rows": rows, "truncated": answer.truncated}, allow_nan=False))
        return
    if as_csv:
        from workbench.core.tables import escape_formulas

        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        typer.echo(escape_formulas(frame.with_columns(pl.col(lists).list.join("; "))).write_csv(), nl=False)
    elif parquet is not None:
        from workbench.core.errors import ConfigError, refuse_os_errors
        from workbench.core.files import replace_atomically

        with (
            refuse_os_errors("cannot write the table", parquet, do="choose another file", error_type=ConfigError),
            replace_atomically(parquet) as temporary,
        ):
            frame.write_parquet(temporary, compression="zstd")
        print_text(f"rows: {frame.height}\n{parquet}")
    else:
        _print_table(frame.select(main) if main else frame)
    if answer.truncated:
        print_text(f"only the first {frame.height} rows: --limit N gives more", err=True)


def _print_table(frame: Any) -> None:
    """Print the first rows."""
    from workbench.console.tables import format_cells
    from workbench.console.terminal import print_text

    shown = frame.head(_MAX_SHOWN_ROWS)
    names = [name for name in shown.columns if not shown.height or shown[name].null_count() < shown.height]
    cells = {name: [_format_cell(value) for value in shown[name]] for name in names}
    if "stack_key" in cells:  # its start identifies it
        cells["stack_key"] = [key[:12] for key in cells["stack_key"]]
    numbers = [shown.schema[name].is_numeric() for name in names]
    print_text("\n".join(format_cells(list(cells.values()), names, right=numbers)))
    n_hidden = frame.height - shown.height
    print_text(
        f"rows: {frame.height}"
        + (f", {n_hidden} not shown: --csv, --json or --parquet FILE gives all" if n_hidden else "")
    )


def _format_cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    return " ".join(text.split())
