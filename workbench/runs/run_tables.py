"""Tables of a run as frames of polars or pandas, and SQL over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError
from workbench.core.frames import convert_frame, load_into_duckdb

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from workbench.runs.catalogue import StoredRun


class RunTables(Mapping[str, "pl.DataFrame"]):
    """The tables of one run by name; a table is read when it is first asked for.

    Missing values are null, never 0. Times are in the unit that ends the column's name (`wall_s`). The tables hold what
    the run measured: they show nothing about another machine, and rows of one run are no repeats.

    Examples
    --------
    >>> from workbench import runs
    >>> result = runs.open("data/samples/capacity/sizing")
    >>> result.tables["estimates"].height > 0
    True
    >>> result.tables.sql("SELECT count(*) AS n FROM estimates")["n"][0] == result.tables["estimates"].height
    True
    >>> type(result.tables.pandas("estimates")).__name__
    'DataFrame'
    """

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._read: dict[str, pl.DataFrame] = {}

    def __getitem__(self, name: str) -> pl.DataFrame:
        """The table as a polars frame.

        Raises
        ------
        InputError
            The run has no such table, or its file is missing or unreadable.
        """
        if name not in self._read:
            self._read[name] = self._run.read_table(name, all_rows=True)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._run.list_table_names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.list_table_names())

    def __len__(self) -> int:
        return len(self._run.list_table_names())

    def __repr__(self) -> str:
        return f"Tables of {self._run.run_id}: {', '.join(self)}"

    def describe(self) -> pl.DataFrame:
        """One row per table: `table`, `rows`, `columns` (their names), `meaning`."""
        import polars as pl

        entries = [(name, self._run.table_entry(name)) for name in self]
        rows = [
            (name, entry.get("rows"), ", ".join(self[name].columns), entry.get("meaning")) for name, entry in entries
        ]
        schema = {"table": pl.String, "rows": pl.Int64, "columns": pl.String, "meaning": pl.String}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def pandas(self, name: str) -> pd.DataFrame:
        """The table as a pandas frame; an int column with nulls is float there, with NaN for null."""
        return self[name].to_pandas()

    def sql(self, query: str, **frames: Any) -> pl.DataFrame:
        """The result of a query in DuckDB's SQL, in which the tables have their names.

        `frames`: Further frames (polars, pandas, Arrow) by the name that they have in the query. A file of your own is
        read by its path: `SELECT * FROM 'mine.csv'`.

        Raises
        ------
        InputError
            DuckDB refuses the query; its message names the place.
        """
        import duckdb
        import polars as pl

        given = {name: convert_frame(frame, "sql") for name, frame in frames.items()}
        with load_into_duckdb({**self, **given}) as connection:
            try:
                relation = connection.sql(query)
                # A statement such as COPY has no rows.
                answer: pl.DataFrame = pl.DataFrame() if relation is None else relation.pl()
            except duckdb.Error as error:
                allowed = f"the tables {', '.join([*self, *given])}, and files by their path"
                raise InputError("the SQL failed", where="sql", found=str(error)[:500], allowed=allowed) from error
        return answer
