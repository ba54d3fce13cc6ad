"""Questions in SQL: one SELECT, nothing written, bounded in rows and in time."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from workbench.errors import InputError
from workbench.indicators.storage.queries import MOST_ROWS, Answer
from workbench.indicators.storage.schema import METADATA

if TYPE_CHECKING:
    import polars as pl

    from workbench.indicators.storage.database import Database

MOST_S = 60.0


def select(database: Database, sql: str, *, most_rows: int = MOST_ROWS, most_s: float = MOST_S) -> Answer:
    """What does a SELECT answer?

    The statement is put into parentheses: whatever is no query fails there. A database opened with `create=False`
    refuses to write besides.

    Parameters
    ----------
    sql
        One SELECT (or WITH … SELECT, VALUES).
    most_rows, most_s
        Rows that the answer may have, and seconds that it may take.

    Raises
    ------
    InputError
        It is no SELECT, more than one statement, or names what is not there.
    RunFailedError
        It took too long.
    """
    text = sql.strip().rstrip(";").strip()
    if not text or "\0" in text:
        raise InputError("no query", where="--sql", allowed="one SELECT")
    # On lines of its own: a comment at the end of the query must not swallow the rest.
    wrapped = f"SELECT * FROM (\n{text}\n) AS asked LIMIT {most_rows + 1}"  # noqa: S608 - a query is what was asked for
    names, rows = (_sqlite if database.sqlite else _postgresql)(database, wrapped, most_s)
    return Answer(_frame(names, rows[:most_rows]), len(rows) > most_rows)


def _sqlite(database: Database, sql: str, most_s: float) -> tuple[list[str], list[tuple[Any, ...]]]:
    import sqlite3

    with database.explained(), database.engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        until = time.monotonic() + most_s
        raw.set_progress_handler(lambda: int(time.monotonic() > until), 100_000)
        try:
            cursor = raw.execute(sql)
            return [one[0] for one in cursor.description or ()], cursor.fetchall()
        except sqlite3.Error as error:
            if "interrupted" in str(error) or not isinstance(
                error, sqlite3.OperationalError | sqlite3.ProgrammingError
            ):
                raise
            raise _refused(error) from None
        except sqlite3.Warning as error:  # two statements, until Python 3.12
            raise _refused(error) from None
        finally:
            raw.set_progress_handler(None, 0)


def _postgresql(database: Database, sql: str, most_s: float) -> tuple[list[str], list[tuple[Any, ...]]]:
    import psycopg

    with database.transaction() as connection:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(most_s * 1000)}")
        raw: Any = connection.connection.driver_connection
        try:
            # Prepared: the server then takes one statement and no second one after a semicolon.
            cursor = raw.cursor().execute(sql, prepare=True)
            return [one.name for one in cursor.description or ()], cursor.fetchall()
        except psycopg.errors.QueryCanceled as error:
            raise database.explain(error) from None
        except psycopg.Error as error:
            raise _refused(error) from None


def _refused(error: BaseException) -> InputError:
    said = (str(error).strip().splitlines() or [""])[0][:300]
    return InputError(
        "not a query that can be answered",
        where="--sql",
        found=said,
        allowed="one SELECT",
        do=f'tables: {", ".join(METADATA.tables)}, and those of `show indicators`; quote the column "case"',
    )


def _frame(names: list[str], rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    import polars as pl

    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    columns = [_column(name, [row[i] for row in rows]) for i, name in enumerate(unique)]
    return pl.DataFrame(columns)


def _column(name: str, values: list[Any]) -> pl.Series:
    """A column of the type that its values have; of several types, as text. SQLite may mix them."""
    import polars as pl

    values = [_number(value) if isinstance(value, Decimal) else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and kinds:
        return pl.Series(name, values, dtype=pl.Float64 if float in kinds else pl.Int64, strict=False)
    if kinds == {bool}:
        return pl.Series(name, values, dtype=pl.Boolean)
    return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)


def _number(value: Decimal) -> int | float:
    """PostgreSQL's sums and means as numbers; a whole one that fits stays whole."""
    whole = value.is_finite() and value == value.to_integral_value() and abs(value) < 2**63
    return int(value) if whole else float(value)
