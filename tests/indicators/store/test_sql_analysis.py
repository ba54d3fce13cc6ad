from __future__ import annotations

from pathlib import Path

import pytest

from tests.indicators.store import making
from tests.indicators.store.conftest import Place
from workbench.core.errors import InputError
from workbench.indicators.store import sql_queries
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.store.sql_queries import connect_duckdb, export_tables

MEDIANS = """
    SELECT arm, median(value) AS value FROM observations WHERE metric = 'PiSorted' GROUP BY arm ORDER BY arm
"""


def test_duckdb_answers_the_same_of_archive_database_and_export(tmp_path: Path, place: Place) -> None:
    making.archive(tmp_path / "a")
    with open_database(place()) as database:
        sync_sessions([tmp_path / "a"], database)
        export_tables(database, tmp_path / "tables")
        answers = [
            connect_duckdb(source).execute(MEDIANS).fetchall()
            for source in (database, tmp_path / "a", tmp_path / "tables")
        ]

    assert answers == [[("2.2.6", 1.1875), ("2.4.6", 1.1875), ("control", 1.1875)]] * 3


def test_a_database_file_is_read_with_its_typed_tables(tmp_path: Path) -> None:
    making.archive(tmp_path / "a")
    with open_database(tmp_path / "x.db") as database:
        sync_sessions([tmp_path / "a"], database)

    with connect_duckdb(tmp_path / "x.db") as duck:
        names = {row[0] for row in duck.execute("SHOW TABLES").fetchall()}
        typed = next(name for name in names if name.startswith("pi_sorted_"))
        assert duck.execute(f"SELECT sum(n), min(padding) FROM {typed}").fetchone() == (12_000, "SAME")
    assert {"runs", "observations", "checks", "sessions", "stacks", "packages", "indicators"} < names


def test_a_table_that_is_too_large_is_refused_and_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making.archive(tmp_path / "a")
    with open_database(tmp_path / "x.db") as database:
        sync_sessions([tmp_path / "a"], database)
        monkeypatch.setattr(sql_queries, "MAX_TABLE_ROWS", 11)

        with pytest.raises(InputError, match="too many rows"):
            export_tables(database, tmp_path / "tables")
        with pytest.raises(InputError, match="too many rows"):
            connect_duckdb(database)


def test_what_is_none_of_the_three_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a session nor exported tables"):
        connect_duckdb(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        connect_duckdb(tmp_path / "none.db")
    (tmp_path / "x.parquet").write_text("none")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        connect_duckdb(tmp_path)
