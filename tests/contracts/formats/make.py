"""python -m tests.contracts.formats.make FOLDER: one small sample of each format that no sample of data/samples has.

Run once for each format version, by the workbench that introduced it, with a FOLDER of the version's number; a sample
is never made anew.
"""

import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

import polars as pl

from tests.contracts.introspection import call_command

SQL = "SELECT k, sum(v) AS total FROM t GROUP BY k"
ONE_PARTITION = ("--conf", "spark.sql.shuffle.partitions=1")


def make_samples(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        table, database = Path(scratch) / "t.parquet", Path(scratch) / "indicators.db"
        pl.DataFrame({"k": ["a", "b", "a", None], "v": [1, 2, 3, 4]}).write_parquet(table)
        dump = ["lore", "dump", "--sql", SQL, "--view", f"t={table}", *ONE_PARTITION, "--ids", "2[*]"]
        for words in (
            [*dump, "--path", str(target)],
            ["lore", "bundle", str(target / "loreId-2"), "--out", str(target / "bundle.zip")],
            ["indicators", "sync", "data/samples/gpu/indicators", "--database", str(database)],
        ):
            said = call_command(words)
            assert said.code == 0, said.err
        with sqlite3.connect(database) as connection:
            connection.execute("VACUUM")
        (target / "indicators.db.gz").write_bytes(gzip.compress(database.read_bytes(), mtime=0))


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]))
