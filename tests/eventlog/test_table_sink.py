"""Rows go to disk in parts and come back whole, whatever the size of a part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.eventlog.conftest import LOGS
from workbench.core.errors import InputError
from workbench.eventlog import tables
from workbench.eventlog.reader import EventLogFacts, read_event_logs, write_tables
from workbench.eventlog.table_sink import ParquetSink, TableSink


def failure(log_id: int, task_id: int) -> dict[str, Any]:
    given = {"log_id": log_id, "kind": "task", "task_id": task_id}
    return dict.fromkeys(column.name for column in tables.FAILURES.columns) | given


def environment(name: str) -> dict[str, Any]:
    return {"log_id": 0, "section": "spark", "name": name, "value": "x"}


def test_rows_come_back_sorted_by_the_key_of_their_table() -> None:
    sink = TableSink()
    for name in ("c", "a", "b"):
        sink.add_row("environment", environment(name))
    frames = sink.table_frames()
    assert frames["environment"]["name"].to_list() == ["a", "b", "c"]
    assert set(frames) == {table.name for table in tables.ALL_TABLES}


def test_a_row_that_lacks_a_column_is_an_error_at_once() -> None:
    with pytest.raises(KeyError, match="value"):
        TableSink().add_row("environment", {"log_id": 0, "section": "spark", "name": "a"})


def test_a_key_that_comes_twice_is_told() -> None:
    sink = TableSink()
    sink.add_row("environment", environment("a"))
    sink.add_row("environment", environment("a"))
    with pytest.raises(InputError, match="key is not unique"):
        sink.table_frame("environment")


@pytest.mark.parametrize("part_rows", [1, 3, 100])
def test_parts_make_one_file_with_all_rows_and_leave_nothing_behind(part_rows: int, tmp_path: Path) -> None:
    with ParquetSink(tmp_path, part_rows=part_rows) as sink:
        for task_id in range(10):
            sink.add_row("failures", failure(0, task_id))
        paths = sink.write_files()
    assert sink.rows["failures"] == 10
    assert pl.read_parquet(paths["failures"])["task_id"].to_list() == list(range(10))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{table.name}.parquet" for table in tables.ALL_TABLES
    )


def test_a_run_that_fails_leaves_no_tables_and_no_parts(tmp_path: Path) -> None:
    def fail() -> None:
        with ParquetSink(tmp_path, part_rows=1) as sink:
            sink.add_row("failures", failure(0, 1))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_earlier_run_that_died_are_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".parts").mkdir()
    (tmp_path / ".parts" / "failures.00000.parquet").write_bytes(b"old")
    with ParquetSink(tmp_path) as sink:
        sink.write_files()
    assert not (tmp_path / ".parts").exists()


def test_tables_written_in_parts_equal_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.eventlog.table_sink.PART_ROWS", 50)
    path = LOGS / "failing.zstd"
    facts, written = read_event_logs(path), write_tables([path], tmp_path)
    for table in tables.ALL_TABLES:
        frame = table.read(tmp_path)
        assert written.rows[table.name] == frame.height
        by = list(table.key) or frame.columns
        assert frame.sort(by).equals(getattr(facts, table.name).sort(by)), table.name
    assert set(EventLogFacts.__dataclass_fields__) == {table.name for table in tables.ALL_TABLES}
