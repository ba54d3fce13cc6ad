"""Named queries of the database; each returns an ordered, bounded table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from sqlalchemy import ColumnElement, Connection, Select, and_, case, distinct, func, or_, select

from workbench.core.errors import ConfigError, InputError
from workbench.core.files import replace_atomically
from workbench.core.frames import load_into_duckdb
from workbench.core.tables import Table, read_parquet
from workbench.indicators import tables
from workbench.indicators.contract.documents import Status
from workbench.indicators.store.archive import SESSION_FILE, parse_time
from workbench.indicators.store.sql_schema import (
    ARM,
    CHECK_VALUE,
    HARDWARE,
    INDICATOR,
    METADATA,
    OBSERVATION,
    PLANNED_CASE,
    RUN,
    SESSION,
    STACK,
    STACK_PACKAGE,
    Kind,
    build_typed_table,
    parse_declaration_fields,
)
from workbench.indicators.tables import CHECKS, OBSERVATIONS, RUNS

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from workbench.indicators.store.sql_database import Database


MAX_ROWS = 10_000
IDENTITY = ("session_id", "inspection_id", "run", "round", "arm", "case", "stack", "component")
_FAILED = func.count(case((RUN.c.status != "ok", 1)))
_ALL = frozenset({"session", "stack", "indicator", "status", "since"})
MAX_S = 60.0
MAX_TABLE_ROWS = 10_000_000
_QUERIES = ("sessions", "stacks", "indicators", "runs", "observations", "checks", "packages")


@dataclass(frozen=True)
class Filters:
    """Filters of runs; null means all.

    `stack` is the name of a stack, an arm, or a prefix of a stack key; `indicator` is NAME or NAME@VERSION; `since` is
    the earliest start, an ISO date or time, in UTC without a zone.
    """

    session: str | None = None
    stack: str | None = None
    indicator: str | None = None
    status: str | None = None
    since: str | None = None

    def list_set_names(self) -> set[str]:
        """Names of the filters that are set."""
        return {field.name for field in fields(self) if getattr(self, field.name) is not None}


@dataclass(frozen=True)
class Answer:
    """Table, and whether rows beyond the limit were cut."""

    frame: pl.DataFrame
    truncated: bool


@dataclass(frozen=True)
class _Query:
    """Named query: its table, its filters, and the function that builds the statement."""

    table: Table | None
    filters: frozenset[str]
    select: Callable[[Filters], Select[Any]]
    about: str


def run_query(database: Database, name: str, filters: Filters | None = None, *, max_rows: int = MAX_ROWS) -> Answer:
    """Run a named query.

    Returns: Table of the query; for `values`, the run and a column per field of the indicator.

    Results are not compared across versions; for differences between stacks see `effects`.
    """
    filters = filters or Filters()
    if name not in QUERIES:
        raise ConfigError("unknown query", found=name[:60], allowed=list(QUERIES))
    query = QUERIES[name]
    if unknown := sorted(filters.list_set_names() - query.filters):
        options = [f"--{filter_}" for filter_ in unknown]
        raise ConfigError(
            f"{name} does not support this filter",
            found=options,
            allowed=[f"--{filter_name}" for filter_name in sorted(query.filters)],
        )
    with database.transaction() as connection:
        _check_filters(connection, filters)
        if name == "values":
            return _select_values(connection, filters, max_rows)
        assert query.table is not None
        rows = connection.execute(query.select(filters).limit(max_rows + 1)).mappings().all()
    names = [column.name for column in query.table.columns]
    lists = {column.name for column in query.table.columns if column.dtype.startswith("list")}
    decoded = [
        {name: json.loads(row[name]) if name in lists else row[name] for name in names} for row in rows[:max_rows]
    ]
    return Answer(query.table.frame(decoded), len(rows) > max_rows)


def _check_filters(connection: Connection, filters: Filters) -> None:
    """Refuse a filter without matches, since an empty table would look like a result."""
    if filters.status is not None and filters.status not in get_args(Status):
        raise ConfigError("unknown status", where="--status", found=filters.status[:60], allowed=get_args(Status))
    wanted: list[tuple[str, Select[Any]]] = []
    if filters.session is not None:
        wanted.append(("session", select(SESSION.c.session_id).where(SESSION.c.session_id == filters.session)))
    if filters.stack is not None:
        wanted.append(("stack", select(ARM.c.arm).where(_arm_condition(filters.stack))))
    if filters.indicator is not None:
        name = filters.indicator.partition("@")[0]
        wanted.append(("indicator", select(INDICATOR.c.name).where(INDICATOR.c.name == name)))
    for kind, query in wanted:
        if connection.execute(query.limit(1)).first() is None:
            column = {"session": SESSION.c.session_id, "stack": ARM.c.stack, "indicator": INDICATOR.c.name}[kind]
            there = connection.execute(select(column).distinct().order_by(column).limit(10)).scalars().all()
            raise InputError(
                f"no such {kind}", where=f"--{kind}", found=getattr(filters, kind)[:80], allowed=list(there)
            )


def _arm_condition(stack: str) -> ColumnElement[bool]:
    same = [ARM.c.stack == stack, ARM.c.arm == stack]
    return or_(*same, ARM.c.stack_key.startswith(stack, autoescape=True)) if len(stack) >= 8 else or_(*same)


def _run_condition(filters: Filters) -> ColumnElement[bool]:
    """Condition on rows of `run`."""
    tests: list[ColumnElement[bool]] = [RUN.c.run_id.is_not(None)]
    if filters.session is not None:
        tests.append(RUN.c.session_id == filters.session)
    if filters.stack is not None:
        arm = and_(ARM.c.session_id == RUN.c.session_id, ARM.c.arm == RUN.c.arm, _arm_condition(filters.stack))
        tests.append(select(ARM.c.arm).where(arm).exists())
    if filters.indicator is not None:
        name, at, version = filters.indicator.partition("@")
        tests.append(RUN.c.indicator == name)
        if at:
            tests.append(RUN.c.indicator_version == version)
    if filters.status is not None:
        tests.append(RUN.c.status == filters.status)
    if filters.since is not None:
        tests.append(RUN.c.started_unix_s >= parse_since(filters.since))
    return and_(*tests)


def parse_since(text: str) -> float:
    """Time of a date or time in ISO format, in seconds since 1970."""
    moment = parse_time(text)
    if moment is None:
        raise ConfigError("not a time", where="--since", found=text[:60], allowed="like 2026-01-31 or 2026-01-31T12:00")
    return moment.timestamp()


def _select_sessions(filters: Filters) -> Select[Any]:
    """Query of table SESSIONS."""
    ran = select(RUN.c.session_id, func.count().label("runs"), _FAILED.label("failed"))
    counts = ran.where(_run_condition(filters)).group_by(RUN.c.session_id).subquery()
    arms = select(func.count()).where(ARM.c.session_id == SESSION.c.session_id).scalar_subquery()
    cases = select(func.count()).where(PLANNED_CASE.c.session_id == SESSION.c.session_id).scalar_subquery()
    wanted = select(
        *(
            column
            for column in SESSION.c
            if column.name in {table_column.name for table_column in tables.SESSIONS.columns}
        ),
        arms.label("arms"),
        cases.label("cases"),
        func.coalesce(counts.c.runs, 0).label("runs"),
        func.coalesce(counts.c.failed, 0).label("failed"),
        HARDWARE.c.cpu_model,
    ).join(HARDWARE, HARDWARE.c.hardware_key == SESSION.c.hardware_key)
    # Sessions without matching runs are left out if there is a filter on runs.
    only = bool(filters.list_set_names() - {"session"})
    wanted = wanted.join(counts, counts.c.session_id == SESSION.c.session_id, isouter=not only)
    if filters.session is not None:
        wanted = wanted.where(SESSION.c.session_id == filters.session)
    return wanted.order_by(SESSION.c.created_at, SESSION.c.session_id)


def _select_stacks(filters: Filters) -> Select[Any]:
    """Query of table STACKS."""
    ran = select(RUN.c.session_id, RUN.c.arm, func.count().label("runs"), _FAILED.label("failed"))
    counts = ran.where(_run_condition(filters)).group_by(RUN.c.session_id, RUN.c.arm).subquery()
    here = and_(counts.c.session_id == ARM.c.session_id, counts.c.arm == ARM.c.arm)
    only = bool(filters.list_set_names() - {"session", "stack"})
    names = ("session_id", "arm", "stack", "stack_key", "copy_number", "python", "platform")
    wanted = (
        select(
            *(ARM.c[name] for name in names),
            STACK.c.packages,
            func.coalesce(counts.c.runs, 0).label("runs"),
            func.coalesce(counts.c.failed, 0).label("failed"),
        )
        .join(STACK, STACK.c.stack_key == ARM.c.stack_key)
        .join(counts, here, isouter=not only)
    )
    if filters.session is not None:
        wanted = wanted.where(ARM.c.session_id == filters.session)
    if filters.stack is not None:
        wanted = wanted.where(_arm_condition(filters.stack))
    return wanted.order_by(ARM.c.session_id, ARM.c.arm)


def _select_indicators(filters: Filters) -> Select[Any]:
    """Query of table INDICATORS."""
    here = and_(
        RUN.c.indicator == INDICATOR.c.name, RUN.c.indicator_version == INDICATOR.c.version, _run_condition(filters)
    )
    only = bool(filters.list_set_names() - {"indicator"})
    wanted = select(
        INDICATOR.c.name.label("indicator"),
        INDICATOR.c.version.label("indicator_version"),
        INDICATOR.c.table_name,
        func.count(distinct(RUN.c.session_id)).label("sessions"),
        func.count(RUN.c.run_id).label("runs"),
        _FAILED.label("failed"),
    ).join(RUN, here, isouter=not only)
    if filters.indicator is not None:
        name, at, version = filters.indicator.partition("@")
        wanted = wanted.where(INDICATOR.c.name == name, *([INDICATOR.c.version == version] if at else []))
    key = (INDICATOR.c.name, INDICATOR.c.version)
    return wanted.group_by(*key, INDICATOR.c.table_name).order_by(*key)


def _select_runs(filters: Filters) -> Select[Any]:
    return _order_rows(select(*(RUN.c[column.name] for column in RUNS.columns)).where(_run_condition(filters)))


def _select_values_of_runs(child: Any, shown: Table, order: str, filters: Filters) -> Select[Any]:
    """The rows of a child table of the runs, in the columns of the shown one."""
    columns = [(RUN if column.name in RUN.c else child).c[column.name] for column in shown.columns]
    joined = select(*columns).join(child, child.c.run_id == RUN.c.run_id)
    return _order_rows(joined.where(_run_condition(filters)), child.c[order])


def _select_failures(filters: Filters) -> Select[Any]:
    failed = or_(RUN.c.status != "ok", RUN.c.passed.is_(False))
    return _order_rows(
        select(*(RUN.c[column.name] for column in tables.FAILURES.columns)).where(_run_condition(filters), failed)
    )


def _select_packages(filters: Filters) -> Select[Any]:
    """Query of table PACKAGES."""
    wanted = select(*(STACK_PACKAGE.c[column.name] for column in tables.PACKAGES.columns))
    arms = [ARM.c.stack_key == STACK_PACKAGE.c.stack_key]
    if filters.session is not None:
        arms.append(ARM.c.session_id == filters.session)
    if filters.stack is not None:
        arms.append(_arm_condition(filters.stack))
    wanted = wanted.where(select(ARM.c.arm).where(*arms).exists())
    return wanted.order_by(STACK_PACKAGE.c.stack_key, STACK_PACKAGE.c.package)


def _order_rows(wanted: Select[Any], *more: Any) -> Select[Any]:
    return wanted.order_by(RUN.c.session_id, RUN.c.case, RUN.c.arm, RUN.c.run, *more)


def _select_values(connection: Connection, filters: Filters, max_rows: int) -> Answer:
    """Typed table of one version of an indicator, with its runs."""
    import polars as pl

    name, _, version = (filters.indicator or "").partition("@")
    if not name:
        raise ConfigError("an indicator is required", where="--indicator", do="workbench indicators show indicators")
    query = select(INDICATOR.c.version, INDICATOR.c.table_name, INDICATOR.c.declaration).where(
        INDICATOR.c.name == name,
        INDICATOR.c.table_name.is_not(None),
        *([INDICATOR.c.version == version] if version else []),
    )
    rows = connection.execute(query.order_by(INDICATOR.c.version)).all()
    if len(rows) != 1:
        versions = [f"{name}@{row[0]}" for row in rows] or "no version with a typed table"
        message = "several versions of this indicator" if rows else "no typed values of this indicator"
        raise InputError(message, where="--indicator", found=versions, do="name one: --indicator NAME@VERSION")
    declared = parse_declaration_fields(json.loads(rows[0][2]))
    table = build_typed_table(rows[0][1], declared)
    columns = [*(RUN.c[column] for column in IDENTITY), *(table.c[field.column] for field in declared)]
    wanted = _order_rows(select(*columns).join(table, table.c.run_id == RUN.c.run_id).where(_run_condition(filters)))
    got = [tuple(row) for row in connection.execute(wanted.limit(max_rows + 1))]
    types: dict[Kind, Any] = {"int": pl.Int64(), "float": pl.Float64(), "bool": pl.Boolean(), "str": pl.String()}
    schema = {column: pl.Int64() if column in ("run", "round") else pl.String() for column in IDENTITY}
    schema |= {field.column: types[field.kind] for field in declared}
    return Answer(pl.DataFrame(got[:max_rows], schema=schema, orient="row"), len(got) > max_rows)


QUERIES: dict[str, _Query] = {
    "sessions": _Query(tables.SESSIONS, _ALL, _select_sessions, "measured sessions with machine and progress"),
    "stacks": _Query(tables.STACKS, _ALL, _select_stacks, "the arms of sessions"),
    "indicators": _Query(tables.INDICATORS, _ALL, _select_indicators, "indicators by version"),
    "runs": _Query(RUNS, _ALL, _select_runs, "all runs with status"),
    "observations": _Query(
        OBSERVATIONS,
        _ALL,
        partial(_select_values_of_runs, OBSERVATION, OBSERVATIONS, "metric"),
        "values used to compare stacks",
    ),
    "checks": _Query(
        CHECKS, _ALL, partial(_select_values_of_runs, CHECK_VALUE, CHECKS, "field"), "the values of checks"
    ),
    "values": _Query(None, _ALL - {"status"}, _select_runs, "all fields of one indicator, typed"),
    "failures": _Query(tables.FAILURES, _ALL, _select_failures, "runs without values, or with failed checks"),
    "packages": _Query(tables.PACKAGES, frozenset({"session", "stack"}), _select_packages, "packages of stacks"),
}
"""Queries by name."""


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
    """Column names and rows of a query, stopped after `max_s` seconds."""
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
    """Column names and rows of a query in a read-only transaction, stopped after `max_s` seconds."""
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
    """The database's own message, with the tables that can be asked."""
    message = (str(error).strip().splitlines() or [""])[0][:300]
    return InputError(
        "the query failed",
        where="--sql",
        found=message,
        allowed="one SELECT",
        do=f'tables: {", ".join(METADATA.tables)}, and those of `show indicators`; quote the column "case"',
    )


def _build_frame(names: list[str], rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """A frame of a query's rows; names that occur again get a number."""
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
    return load_into_duckdb(dict(_iterate_tables(source)))


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
    """Name and frame of each table of a session's folder, an export or a database."""
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
    """The tables of a database that is opened for them."""
    from workbench.indicators.store.sql_database import open_database

    with open_database(place, create=False) as database:
        yield from _iterate_database_tables(database)


def _iterate_session_tables(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables of a session's folder: RUNS, OBSERVATIONS and CHECKS."""
    from workbench.indicators.analysis.observations import load_observations

    observations = load_observations(folder)
    yield "runs", observations.runs
    yield "observations", observations.values
    yield "checks", observations.checks


def _iterate_export_tables(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables of a folder of Parquet files, by the names of the files."""
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise InputError("neither a session nor exported tables", where=folder, allowed=f"{SESSION_FILE}, or *.parquet")
    for path in paths:
        yield path.stem, read_parquet(path)


def _iterate_database_tables(database: Database) -> Iterator[tuple[str, pl.DataFrame]]:
    """The tables of all queries, and a typed one for every version of an indicator."""

    for name in _QUERIES:
        yield name, _read_whole_table(database, name)
    for row in _read_whole_table(database, "indicators").iter_rows(named=True):
        if row["table_name"] is not None:
            which = Filters(indicator=f"{row['indicator']}@{row['indicator_version']}")
            yield row["table_name"], _read_whole_table(database, "values", which)


def _read_whole_table(database: Database, name: str, filters: Filters | None = None) -> pl.DataFrame:
    """Read a table with all rows."""

    answer = run_query(database, name, filters, max_rows=MAX_TABLE_ROWS)
    if answer.truncated:
        allowed = f"at most {MAX_TABLE_ROWS:,} rows"
        raise InputError(
            "too many rows for DuckDB's tables", where=name, allowed=allowed, do="query it with show --sql"
        )
    return answer.frame
