"""DuckDB over what was measured: of a session, of a database, or of a folder of exported tables.

DuckDB reads here and never writes the database: several processes cannot write one DuckDB file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import InputError
from workbench.files import replacing
from workbench.indicators.archive import SESSION
from workbench.tables import read_parquet

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from workbench.indicators.storage.database import Database
    from workbench.indicators.storage.queries import Filters

MOST_ROWS = 10_000_000
_QUERIES = ("sessions", "stacks", "indicators", "runs", "observations", "checks", "packages")


def connect(source: Path | str | Database) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the tables of a session, a database or an export: runs, observations, checks and more.

    Parameters
    ----------
    source
        A session folder; a folder that `export` wrote; a database (open, a path or a URL).

    Returns
    -------
    duckdb.DuckDBPyConnection
        In memory; a column called case needs quotes.

    Raises
    ------
    InputError
        There is none of the three, or a table is too large.

    Examples
    --------
    The median of each stack, straight from a session::

        duck = connect("data/runs/indicators/SESSION")
        duck.sql("SELECT arm, metric, median(value) FROM observations GROUP BY ALL ORDER BY ALL").show()

    Does not show: whether stacks differ. A median over a session mixes its drift in; see `effects`.
    """
    import duckdb

    found = _frames(source)
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    # By way of Parquet: DuckDB takes a frame of polars only where pyarrow is installed.
    with tempfile.TemporaryDirectory() as folder:
        for name, frame in found:
            path = Path(folder) / "table.parquet"
            frame.write_parquet(path)
            connection.execute(f"CREATE TABLE {_quoted(name)} AS SELECT * FROM read_parquet(?)", [str(path)])  # noqa: S608
    return connection


def export(database: Database, folder: Path) -> list[Path]:
    """Write all tables of a database as Parquet files, each whole or not at all; give back their paths.

    Raises
    ------
    InputError
        A table has more than 10,000,000 rows.
    """
    written = []
    for name, frame in _of_database(database):
        path = folder / f"{name}.parquet"
        with replacing(path) as temporary:
            frame.write_parquet(temporary, compression="zstd")
        written.append(path)
    return written


def _frames(source: Path | str | Database) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.storage.database import Database

    if isinstance(source, Database):
        return _of_database(source)
    folder = Path(source)
    if folder.is_dir() and (folder / SESSION).is_file():
        return _of_session(folder)
    if folder.is_dir():
        return _of_export(folder)
    return _of_place(source)


def _of_place(place: Path | str) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.storage.database import open_database

    with open_database(place, create=False) as database:
        yield from _of_database(database)


def _of_session(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.observations import observed

    found = observed(folder)
    yield "runs", found.runs
    yield "observations", found.values
    yield "checks", found.checks


def _of_export(folder: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    paths = sorted(folder.glob("*.parquet"))
    if not paths:
        raise InputError("neither a session nor exported tables", where=folder, allowed=f"{SESSION}, or *.parquet")
    for path in paths:
        yield path.stem, read_parquet(path)


def _of_database(database: Database) -> Iterator[tuple[str, pl.DataFrame]]:
    from workbench.indicators.storage.queries import Filters

    for name in _QUERIES:
        yield name, _whole(database, name)
    for row in _whole(database, "indicators").iter_rows(named=True):
        if row["table_name"] is not None:
            which = Filters(indicator=f"{row['indicator']}@{row['indicator_version']}")
            yield row["table_name"], _whole(database, "values", which)


def _whole(database: Database, name: str, filters: Filters | None = None) -> pl.DataFrame:
    """A table with all of its rows.

    Raises
    ------
    InputError
        It has more than this can hold: a part would look like the whole.
    """
    from workbench.indicators.storage.queries import ask

    found = ask(database, name, filters, most_rows=MOST_ROWS)
    if found.truncated:
        allowed = f"at most {MOST_ROWS:,} rows"
        raise InputError(
            "too many rows for DuckDB's tables", where=name, allowed=allowed, do="ask it in SQL: show --sql"
        )
    return found.frame


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
