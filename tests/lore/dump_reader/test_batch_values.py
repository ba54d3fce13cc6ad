"""Batches are described by their footers; those that cannot be read are said and passed over."""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lore.dump_reader import made
from workbench.core.errors import MissingToolError
from workbench.lore.dump_reader import batch_values
from workbench.lore.dump_reader.batch_values import MAX_VALUE_CHARS, SKETCH_SIZE, ColumnStatistics
from workbench.lore.dumps import dump_folder


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return made.gpu_dump(tmp_path) / "input-0"


def found(given: Path) -> list[batch_values.Batch]:
    return list(batch_values.list_batches(dump_folder.read_layout(given.parent).inputs[0]))


def partitions(given: Path) -> dict[int, batch_values.PartitionSummary]:
    one = dump_folder.read_layout(given.parent).inputs[0]
    read = list(batch_values.list_batches(one))
    return {
        number: batch_values.summarize_partition(folder, [batch for batch in read if batch.partition == number])
        for number, folder in one.partitions.items()
    }


def test_rows_bytes_and_columns_are_those_of_the_files(given: Path) -> None:
    read = found(given)
    assert [(batch.partition, batch.batch, batch.n_rows) for batch in read] == [(0, 0, 30), (0, 1, 10), (1, 0, 10)]
    assert [batch.n_bytes for batch in read] == [batch.path.stat().st_size for batch in read if batch.path]
    assert read[0].columns is not None
    assert [name for name, _ in read[0].columns] == made.gpu_table(1).column_names


def test_a_batch_that_is_no_parquet_one_that_is_cut_and_a_missing_one_are_told(given: Path) -> None:
    folder = given / "partition-0"
    whole = (folder / "batch-0.parquet").read_bytes()
    (folder / "batch-1.parquet").write_bytes(b"no Parquet")
    (folder / "batch-2.parquet").write_bytes(whole[:-100])
    (folder / "batch-3.parquet").write_bytes(b"")
    shutil.copy(folder / "batch-0.parquet", folder / "batch-5.parquet")
    read = [batch for batch in found(given) if batch.partition == 0]
    assert [batch.batch for batch in read if batch.fault is None] == [0, 5]
    assert {batch.batch: batch.n_rows for batch in read if batch.fault} == {1: None, 2: None, 3: None, 4: None}
    assert read[4].fault == "missing"
    account = partitions(given)[0]
    assert (account.n_rows, account.n_batches, account.promised_batches, account.damaged) == (60, 5, 2, True)
    assert "4 of 6 batches cannot be read" in account.note
    assert "2 batches promised, 5 found" in account.note


def test_a_lone_batch_with_a_huge_number_makes_no_list_of_missing_ones(given: Path) -> None:
    shutil.move(given / "partition-1" / "batch-0.parquet", given / "partition-1" / "batch-999999999.parquet")
    read = [batch for batch in found(given) if batch.partition == 1]
    assert len(read) == 2 + batch_values.MAX_MISSING_BATCHES
    assert read[-1].n_rows == 10


def test_an_empty_partition_one_of_unreadable_batches_and_a_damaged_meta_are_told(given: Path) -> None:
    (given / "partition-2").mkdir()
    (given / "partition-1" / "batch-0.parquet").write_bytes(b"no Parquet")
    account = partitions(given)
    assert (account[2].n_rows, account[2].n_bytes) == (0, 0)
    assert account[2].note.endswith("empty")
    assert account[1].n_rows is None
    (given / "partition-0" / "partition.meta").write_bytes(b"{")
    assert "partition.meta: not JSON" in partitions(given)[0].note


def test_only_so_many_rows_are_looked_at(given: Path) -> None:
    columns, notes = batch_values.read_column_values(found(given), max_rows=1_000)
    assert (columns[0].n_rows, notes) == (50, [])
    columns, notes = batch_values.read_column_values(found(given), max_rows=35)
    assert columns[0].n_rows == 35
    assert notes == ["values of the first 35 rows; 1 batches not inspected"]
    assert batch_values.read_column_values(found(given), max_rows=0)[0] == []


def test_a_small_file_that_unpacks_to_very_much_is_not_unpacked(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.write(pa.table({"id": ["x" * 1_000_000] * 50}), given / "partition-1" / "batch-0.parquet")
    monkeypatch.setattr(batch_values, "MAX_GROUP_BYTES", 100_000)
    read = [batch for batch in found(given) if batch.partition == 1]
    columns, notes = batch_values.read_column_values(read, max_rows=1_000)
    assert columns == []
    assert "unpack to more than" in notes[0]


def test_pages_that_are_damaged_behind_a_sound_footer_are_told(given: Path) -> None:
    path = given / "partition-1" / "batch-0.parquet"
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data[start : start + 200] = b"\xff" * 200
    path.write_bytes(data)
    read = [batch for batch in found(given) if batch.partition == 1]
    assert read[0].n_rows == 10
    _, notes = batch_values.read_column_values(read, max_rows=1_000)
    assert "values of partition-1/batch-0.parquet not read" in notes[0]


def test_batches_of_other_columns_than_the_first_are_added_by_position(given: Path) -> None:
    made.write(pa.table({"id": ["text"]}), given / "partition-1" / "batch-0.parquet")
    columns, _ = batch_values.read_column_values(found(given), max_rows=1_000)
    assert columns[0].fault is not None
    assert columns[13].n_rows == 40


def test_a_machine_without_pyarrow_is_told_what_to_install(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(MissingToolError, match="pyarrow"):
        found(given)


def of(*batches: Any) -> ColumnStatistics:
    values = ColumnStatistics()
    for batch in batches:
        values.add_series(batch if isinstance(batch, pl.Series) else pl.Series(batch, strict=False))
    return values


def facts(values: ColumnStatistics) -> tuple[Any, ...]:
    return values.n_rows, values.n_nulls, values.n_nan, values.minimum, values.maximum, values.distinct


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param(([3, None], [1, 3]), (4, 1, None, "1", "3", (2, True)), id="whole numbers"),
        pytest.param(([0.5, float("nan"), None], [-2.0]), (4, 1, 1, "-2.0", "0.5", (3, True)), id="floats"),
        pytest.param(([float("nan")],), (1, 0, 1, None, None, (1, True)), id="no number at all"),
        pytest.param((["b", "a"], [None]), (3, 1, None, "a", "b", (2, True)), id="texts"),
        pytest.param(([b"\x01", b"\xff\x00"],), (2, 0, None, "01", "ff00", (2, True)), id="bytes"),
        pytest.param(([True, False, True],), (3, 0, None, "False", "True", (2, True)), id="yes and no"),
        pytest.param(([dt.date(2024, 1, 2)],), (1, 0, None, "2024-01-02", "2024-01-02", (1, True)), id="days"),
        pytest.param(([decimal.Decimal("1.20")],), (1, 0, None, "1.20", "1.20", (1, True)), id="decimals"),
        pytest.param(([[1], None],), (2, 1, None, None, None, (None, None)), id="lists"),
        pytest.param(([None, None],), (2, 2, None, None, None, (0, True)), id="nulls"),
        pytest.param((), (0, 0, None, None, None, (None, None)), id="nothing"),
    ],
)
def test_extremes_nulls_and_different_values_of_each_type(batches: Any, expected: tuple[Any, ...]) -> None:
    assert facts(of(*batches)) == expected


def test_huge_texts_and_bytes_are_cut() -> None:
    assert of(["x" * 10_000_000]).maximum == "x" * MAX_VALUE_CHARS + "…"
    assert len(of([b"\x01" * 1_000_000]).maximum or "") == MAX_VALUE_CHARS + 1


@pytest.mark.parametrize("n_distinct", [SKETCH_SIZE, SKETCH_SIZE + 1, 5_000, 200_000])
def test_different_values_are_counted_up_to_a_number_and_estimated_beyond(n_distinct: int) -> None:
    numbers = np.random.default_rng(7).permutation(np.repeat(np.arange(n_distinct), 2))
    found, exact = of(*(pl.Series(part) for part in np.array_split(numbers, 6))).distinct
    assert exact is (n_distinct <= SKETCH_SIZE)
    assert found == (n_distinct if exact else pytest.approx(n_distinct, rel=0.1))


def test_the_account_does_not_depend_on_the_cut() -> None:
    numbers = pl.Series(np.random.default_rng(8).integers(0, 50_000, 30_000))
    assert facts(of(numbers)) == facts(of(*(numbers[start : start + 997] for start in range(0, 30_000, 997))))


def test_no_more_different_values_than_values() -> None:
    for seed in range(5):
        found, exact = of(pl.Series(np.random.default_rng(seed).integers(0, 2**62, 1_500))).distinct
        assert not exact
        assert found is not None
        assert found <= 1_500


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(pa.array([(1, 2, 3)], pa.month_day_nano_interval()), id="an interval of three parts"),
        pytest.param(pa.array([decimal.Decimal(1)], pa.decimal256(50, 2)), id="a decimal of 50 digits"),
    ],
)
def test_a_type_that_cannot_be_taken_is_a_fault_of_its_column_alone(array: pa.Array) -> None:
    values = ColumnStatistics()
    values.add_array(array)
    values.add_array(pa.array([1]))
    assert values.fault is not None
    assert f"values of type {array.type} cannot be read" in values.fault
    assert values.n_rows == 0


def test_of_nested_types_nulls_are_counted_even_where_a_name_stands_twice() -> None:
    values = ColumnStatistics()
    values.add_array(pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"]))
    values.add_array(pa.array([[1], None], pa.list_(pa.int64())))
    assert facts(values) == (4, 1, None, None, None, (None, None))
