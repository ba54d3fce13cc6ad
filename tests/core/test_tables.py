"""A table is what its declaration says, or the error names what is not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from workbench.core.errors import InputError
from workbench.core.tables import Column, Table

RUNS = Table(
    "runs",
    "One row per run.",
    ("query", "run"),
    (
        Column("query", "str", "Query."),
        Column("run", "int", "Number of the run."),
        Column("duration_s", "float", "Wall time.", "s", nullable=True),
        Column("stage_ids", "list[int]", "Stages.", nullable=True),
        Column("labels", "list[str]", "Labels."),
        Column("cold", "bool", "First run?"),
    ),
)
ROW = {"query": "q1", "run": 1, "duration_s": 1.5, "stage_ids": [1, 2], "labels": ["a", 'b"]'], "cold": True}


def test_rows_and_columns_make_the_same_frame() -> None:
    rows = [ROW, ROW | {"run": 2, "duration_s": None, "stage_ids": None, "labels": []}]
    columns = {name: [row[name] for row in rows] for name in ROW}
    assert RUNS.frame(rows).equals(RUNS.frame(columns))
    assert RUNS.frame(columns).schema == RUNS.schema()
    assert RUNS.frame(columns).to_dicts() == rows


def test_a_table_without_rows_keeps_its_columns() -> None:
    assert RUNS.frame([]).schema == RUNS.frame({name: [] for name in ROW}).schema == RUNS.schema()


def test_it_is_written_whole_and_read_back_equal(tmp_path: Path) -> None:
    frame = RUNS.frame([ROW])
    assert RUNS.write(frame, tmp_path) == tmp_path / "runs.parquet"
    assert RUNS.read(tmp_path).equals(frame)
    assert [file.name for file in tmp_path.iterdir()] == ["runs.parquet"]


def test_further_columns_are_left_out_and_the_order_is_the_declared_one() -> None:
    frame = RUNS.frame([ROW]).with_columns(more=pl.lit(1)).select(pl.all().reverse())
    mixed = frame.select(sorted(frame.columns))
    assert RUNS.check(mixed).columns == [column.name for column in RUNS.columns]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("run", "cold"), ["missing: run, cold", "table runs"]),
        (lambda frame: frame.with_columns(run=pl.lit(1.5)), ["another type", "run is Float64, not Int64"]),
        (
            lambda frame: frame.with_columns(query=pl.lit(None, pl.String)),
            ["nulls in a column that allows none", "column query", "1 of 1"],
        ),
        (lambda frame: pl.concat([frame, frame]), ["key is not unique", "(query, run)", "q1, 1 twice"]),
    ],
)
def test_what_is_not_the_table_is_refused_with_what_and_where(change: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        RUNS.check(change(RUNS.frame([ROW])), where="a test")  # type: ignore[operator]
    assert all(word in str(caught.value) for word in [*words, "a test"])


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tables at all"):
        RUNS.read(tmp_path)
    (tmp_path / "runs.parquet").write_text("no Parquet")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        RUNS.read(tmp_path)


def test_a_failed_write_leaves_the_old_table(tmp_path: Path) -> None:
    RUNS.write(RUNS.frame([ROW]), tmp_path)
    with pytest.raises(InputError):
        RUNS.write(RUNS.frame([ROW]).drop("cold"), tmp_path)
    assert RUNS.read(tmp_path).height == 1
