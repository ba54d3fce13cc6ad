"""Read-only SQL: one bounded SELECT on the database, and DuckDB over sessions, databases and exports."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError
from workbench.core.files import replace_atomically
from workbench.core.tables import read_parquet
from workbench.indicators.store.archive import SESSION_FILE
from workbench.indicators.store.sql_queries import MAX_ROWS, Answer
from workbench.indicators.store.sql_schema import METADATA

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from workbench.indicators.store.sql_database import Database
    from workbench.indicators.store.sql_queries import Filters

MAX_S = 60.0


MAX_TABLE_ROWS = 10_000_000
_QUERIES = ("sessions", "stacks", "indicators", "runs", "observations", "checks", "packages")


def select_rows(database: Database, sql: str, *, max_rows: int = MAX_ROWS, max_s: float = MAX_S) -> Answer:
    """Run one SELECT statement.

    The statement is wrapped in parentheses, so that only queries are valid. A database opened with `create=False` is
    also read-only.
    """
    text = sql.strip().rstrip(";").strip()
    if not text or "\0" in text:
        raise InputError("not a query", where="--sql", allowed="one SELECT")
    # On separate lines, so that a trailing comment of the query does not hide the rest.
    wrapped = f"SELECT * FROM (\n{text}\n) AS asked LIMIT {max_rows + 1}"  # noqa: S608 - the input is a query
    names, rows = (_select_from_sqlite if database.sqlite else _select_from_postgresql)(database, wrapped, max_s)
    return Answer(_build_frame(names, rows[:max_rows]), len(rows) > max_rows)


def _select_from_sqlite(database: Database, sql: str, max_s: float) -> tuple[list[str], list[tuple[Any, ...]]]:
    import sqlite3

    with database.translate_errors(), database.engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        until = time.monotonic() + max_s
        raw.set_progress_handler(lambda: int(time.monotonic() > until), 100_000)
        try:
            cursor = raw.execute(sql)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()
        except sqlite3.Error as error:
            if "interrupted" in str(error) or not isinstance(
                error, sqlite3.OperationalError | sqlite3.ProgrammingError
            ):
                raise
            raise _explain_refusal(error) from None
        except sqlite3.Warning as error:  # two statements, until Python 3.12
            raise _explain_refusal(error) from None
        finally:
            raw.set_progress_handler(None, 0)


def _select_from_postgresql(database: Database, sql: str, max_s: float) -> tuple[list[str], list[tuple[Any, ...]]]:
    import psycopg

    with database.transaction() as connection:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(max_s * 1000)}")
        raw: Any = connection.connection.driver_connection
        try:
            # A prepared statement cannot contain a second one after a semicolon.
            cursor = raw.cursor().execute(sql, prepare=True)
            return [column.name for column in cursor.description or ()], cursor.fetchall()
        except psycopg.errors.QueryCanceled as error:
            raise database.translate_error(error) from None
        except psycopg.Error as error:
            raise _explain_refusal(error) from None


def _explain_refusal(error: BaseException) -> InputError:
    message = (str(error).strip().splitlines() or [""])[0][:300]
    return InputError(
        "the query failed",
        where="--sql",
        found=message,
        allowed="one SELECT",
        do=f'tables: {", ".join(METADATA.tables)}, and those of `show indicators`; quote the column "case"',
    )


def _build_frame(names: list[str], rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    import polars as pl

    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    columns = [_build_column(name, [row[i] for row in rows]) for i, name in enumerate(unique)]
    return pl.DataFrame(columns)


def _build_column(name: str, values: list[Any]) -> pl.Series:
    """Column with the type of its values; text if SQLite returns mixed types."""
    import polars as pl

    values = [_convert_decimal(value) if isinstance(value, Decimal) else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds:
        return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64, strict=False)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


def _convert_decimal(value: Decimal) -> int | float:
    """Convert PostgreSQL's sums and means to int if whole, otherwise to float."""
    is_whole = value.is_finite() and value == value.to_integral_value() and abs(value) < 2**63
    return int(value) if is_whole else float(value)


def connect_duckdb(source: Path | str | Database) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB connection with the tables of a session, a database or an export.

    Parameters
    ----------
    source
        Session folder, folder written by `export`, or database (open, a path or a URL).

    Returns
    -------
    duckdb.DuckDBPyConnection
        In-memory database; the column "case" needs quotes.

    Raises
    ------
    InputError
        The source is none of these, or a table is too large.

    Examples
    --------
    Median of each stack from a session::

        duck = connect_duckdb("data/runs/indicators/SESSION")
        duck.sql("SELECT arm, metric, median(value) FROM observations GROUP BY ALL ORDER BY ALL").show()

    Medians over a session include its drift; to compare stacks, see `effects`.
    """
    import duckdb

    tables = _iterate_tables(source)
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    # Via Parquet, because DuckDB reads polars frames only with pyarrow.
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in tables:
            path = Path(folder) / "table.parquet"
            frame.write_parquet(path)
            connection.execute(f"CREATE TABLE {_quote_name(name)} AS SELECT * FROM read_parquet(?)", [str(path)])  # noqa: S608
    return connection


def export_tables(database: Database, folder: Path) -> list[Path]:
    """Write all tables of a database atomically as Parquet files, and return the paths.

    Raises
    ------
    InputError
        A table has more than 10,000,000 rows.
    """
    written = []
    for name, frame in _iterate_database_tables(database):
        path = folder / f"{name}.parquet"
        with replace_atomically(path) as temporary:
            frame.write_parquet(temporary, compression="zstd")
        written.append(path)
    return written


def _iterate_tables(source: Path | str | Database) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.store.sql_database import Database

    if isinstance(source, Database):
        return _iterate_database_tables(source)
    folder = Path(source)
    if folder.is_dir() and (folder / SESSION_FILE).is_file():
        return _iterate_session_tables(folder)
    if folder.is_dir():
        return _iterate_export_tables(folder)
    return _iterate_place_tables(source)


def _iterate_place_tables(place: Path | str) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.store.sql_database import open_database

    with open_database(place, create=False) as database:
        yield from _iterate_database_tables(database)


def _iterate_session_tables(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.analysis.observations import load_observations

    observations = load_observations(folder)
    yield "runs", observations.runs
    yield "observations", observations.values
    yield "checks", observations.checks


def _iterate_export_tables(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise InputError("neither a session nor exported tables", where=folder, allowed=f"{SESSION_FILE}, or *.parquet")
    for path in paths:
        yield path.stem, read_parquet(path)


def _iterate_database_tables(database: Database) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.store.sql_queries import Filters

    for name in _QUERIES:
        yield name, _read_whole_table(database, name)
    for row in _read_whole_table(database, "indicators").iter_rows(named=True):
        if row["table_name"] is not None:
            which = Filters(indicator=f"{row['indicator']}@{row['indicator_version']}")
            yield row["table_name"], _read_whole_table(database, "values", which)


def _read_whole_table(database: Database, name: str, filters: Filters | None = None) -> pl.DataFrame:
    """Read a table with all rows."""
    from workbench.indicators.store.sql_queries import run_query

    answer = run_query(database, name, filters, max_rows=MAX_TABLE_ROWS)
    if answer.truncated:
        allowed = f"at most {MAX_TABLE_ROWS:,} rows"
        raise InputError(
            "too many rows for DuckDB's tables", where=name, allowed=allowed, do="query it with show --sql"
        )
    return answer.frame


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
