"""Script that makes TPC-DS tables or queries; it runs in the environment that holds DuckDB's extension (`PACKAGES`).

python tpcds_generator.py tables SCALE FOLDER    a Parquet file per table
python tpcds_generator.py queries FILE           JSON: name to Spark SQL
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# The extension's version must equal DuckDB's, and the newest extension may lag behind the newest DuckDB.
PACKAGES = ("duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5", "sqlglot==30.30.0")
# dsdgen fills a database file; beyond this limit DuckDB spills to disk.
MEMORY_LIMIT = "2GB"


def main(arguments: list[str]) -> None:
    """Make what the arguments ask for."""
    if arguments[0] == "tables":
        write_tables(float(arguments[1]), Path(arguments[2]))
    else:
        write_queries(Path(arguments[1]))


def write_tables(scale: float, folder: Path) -> None:
    """Generate the tables, and export one after the other to `folder/NAME.parquet`."""
    folder.mkdir()
    database = folder / "generated.duckdb"
    connection = connect(database)
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    connection.execute("CALL dsdgen(sf = ?)", [scale])
    for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall():
        target = str(folder / f"{name}.parquet").replace("'", "''")
        connection.execute(f"COPY {name} TO '{target}' (FORMAT parquet)")
    connection.close()
    database.unlink()


def write_queries(path: Path) -> None:
    """Write the 99 queries, with the extension's parameters, in Spark's dialect."""
    import sqlglot  # type: ignore[import-not-found]

    rows = connect(":memory:").execute("SELECT query_nr, query FROM tpcds_queries() ORDER BY ALL").fetchall()
    queries = {f"query{number}": sqlglot.transpile(text, read="duckdb", write="spark")[0] for number, text in rows}
    path.write_text(json.dumps(queries, indent=1), encoding="utf-8")


def connect(database: str | Path) -> Any:
    """A connection with the extension, which is loaded from its wheel."""
    import duckdb

    files = metadata.files("duckdb-extension-tpcds") or []
    extension = next(Path(str(file.locate())) for file in files if file.suffix == ".duckdb_extension")
    connection = duckdb.connect(str(database))
    connection.load_extension(str(extension))
    return connection


if __name__ == "__main__":
    main(sys.argv[1:])
