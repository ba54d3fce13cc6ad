"""Parquet batches of an input: rows and bytes from footers, statistics of column values."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError, MissingToolError
from workbench.lore.dump_reader import meta_files
from workbench.lore.dumps.dump_folder import InputFolder, PartitionFolder

if TYPE_CHECKING:
    import polars as pl

MAX_VALUE_CHARS = 60
# Number of smallest hashes: the estimate has a standard error of 3 %.
SKETCH_SIZE = 1024
_SPAN = 2.0**64

# A row group may be unpacked in memory as a whole, and a small file can claim a large one.
MAX_GROUP_BYTES = 1 << 30
MAX_COLUMNS = 2_000
MAX_MISSING_BATCHES = 100
BATCH_ROWS = 65_536
# Column of the files of an input without columns.
ROWS_ONLY = "__rows"


class ColumnStatistics:
    """Nulls, NaNs, extremes and number of distinct values of all added data.

    Source of the estimate: Bar-Yossef and others, Counting distinct elements in a data stream (2002), k smallest
    hashes.

    >>> import polars as pl
    >>> values = ColumnStatistics()
    >>> values.add_series(pl.Series([3, None, 1, 3]))
    >>> values.n_rows, values.n_nulls, values.minimum, values.maximum, values.distinct
    (4, 1, '1', '3', (2, True))
    """

    def __init__(self) -> None:
        self.n_rows = self.n_nulls = 0
        self.n_nan: int | None = None
        self.fault: str | None = None
        self._lowest: Any = None
        self._highest: Any = None
        self._hashes: Any = None
        self._full = False

    def add_array(self, array: Any) -> None:
        """Add an Arrow array; a type that polars does not support is noted as a fault and ends the statistics."""
        import polars as pl

        if self.fault is not None:
            return
        if array.type.num_fields:
            # Nested types: only nulls, since polars refuses some, such as structs with duplicate names.
            self.n_rows += len(array)
            self.n_nulls += array.null_count
            return
        try:
            # Spark has no such type; polars would print a panic before it raises.
            if str(array.type).startswith("decimal256"):
                raise TypeError("wider than any number of Spark")
            self.add_series(pl.Series(pl.from_arrow(array)))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, TypeError) as error:
            self.fault = f"values of type {str(array.type)[:80]} cannot be read: {str(error)[:80]}"

    def add_series(self, series: pl.Series) -> None:
        """Add the values of one batch."""
        self.n_rows += len(series)
        self.n_nulls += series.null_count()
        if series.dtype.is_nested():
            return
        present = series.drop_nulls()
        if series.dtype.is_float():
            numbers = present.filter(present.is_not_nan())
            self.n_nan = (self.n_nan or 0) + len(present) - len(numbers)
            self._update_bounds(numbers)
        else:
            self._update_bounds(present)
        self._update_sketch(present)

    def _update_bounds(self, values: pl.Series) -> None:
        if not len(values):
            return
        lowest, highest = values.min(), values.max()
        self._lowest = lowest if self._lowest is None else min(self._lowest, lowest)
        self._highest = highest if self._highest is None else max(self._highest, highest)

    def _update_sketch(self, values: pl.Series) -> None:
        """Add values to the sketch of distinct values: the SKETCH_SIZE smallest hashes."""
        import numpy as np

        new_hashes = values.hash(seed=0).unique().to_numpy()
        hashes = new_hashes if self._hashes is None else np.union1d(self._hashes, new_hashes)
        if len(hashes) > SKETCH_SIZE:
            self._full = True
            hashes = np.partition(hashes, SKETCH_SIZE - 1)[:SKETCH_SIZE]
        self._hashes = np.sort(hashes)

    @property
    def minimum(self) -> str | None:
        """Smallest value as text, cut; null without values."""
        return _format_value(self._lowest)

    @property
    def maximum(self) -> str | None:
        """Largest value as text, cut; null without values."""
        return _format_value(self._highest)

    @property
    def distinct(self) -> tuple[int | None, bool | None]:
        """Number of distinct values, and whether it is exact; null for types without hashes."""
        if self._hashes is None:
            return None, None
        if not self._full:
            return len(self._hashes), True
        estimate = round((SKETCH_SIZE - 1) * _SPAN / (float(self._hashes[-1]) + 1))
        return min(estimate, self.n_rows - self.n_nulls), False


def _format_value(value: Any) -> str | None:
    if value is None:
        return None
    text = value[:MAX_VALUE_CHARS].hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"


@dataclass(frozen=True)
class Batch:
    """A Parquet file, described by its footer; unknown values are null."""

    partition: int
    batch: int
    path: Path | None
    n_rows: int | None = None
    n_bytes: int | None = None
    unpacked_bytes: int | None = None
    columns: tuple[tuple[str, str], ...] | None = None
    largest_group_bytes: int = 0
    fault: str | None = None


@dataclass(frozen=True)
class PartitionSummary:
    """A partition of the dump; see `tables.PARTITIONS`."""

    partition: int
    n_batches: int
    promised_batches: int | None
    n_rows: int | None
    n_bytes: int
    note: str
    damaged: bool


def list_batches(folder: InputFolder) -> Iterator[Batch]:
    """Batches of an input in reading order, described by their footers, including missing ones."""
    for number in sorted(folder.partitions):
        present = folder.partitions[number].batches
        # Bounded: a lone batch-999999999 would make a list of all missing ones before it.
        below = range(min(max(present, default=-1) + 1, len(present) + MAX_MISSING_BATCHES))
        for batch in sorted({*present, *below}):
            path = present.get(batch)
            yield Batch(number, batch, None, fault="missing") if path is None else _read_footer(number, batch, path)


def _read_footer(partition: int, batch: int, path: Path) -> Batch:
    n_bytes = path.stat().st_size
    try:
        with import_parquet().ParquetFile(path) as file:
            footer, schema = file.metadata, file.schema_arrow
            groups = [footer.row_group(index).total_byte_size for index in range(footer.num_row_groups)]
            columns = tuple((str(field.name), str(field.type)) for field in list(schema)[:MAX_COLUMNS])
            n_rows = int(footer.num_rows)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        return Batch(partition, batch, path, n_bytes=n_bytes, fault=_shorten_error(error))
    if n_rows < 0 or any(group < 0 for group in groups):
        return Batch(partition, batch, path, n_bytes=n_bytes, fault="counts below 0")
    return Batch(partition, batch, path, n_rows, n_bytes, min(sum(groups), 1 << 62), columns, max(groups, default=0))


def summarize_partition(folder: PartitionFolder, batches: list[Batch], *, with_meta: bool = True) -> PartitionSummary:
    """Summarize a partition from its batches and its meta file, if expected."""
    notes: list[str] = []
    damaged = any(batch.fault for batch in batches)
    promised: int | None = None
    if folder.meta is None and with_meta:
        # The plugin writes it after the last batch is consumed; a LIMIT above stops earlier.
        notes.append("no partition.meta: not read to its end, as below a LIMIT, or the dump was cut off")
    elif folder.meta is not None:
        try:
            promised = meta_files.read_partition_meta(folder.meta).n_batches
        except InputError as error:
            notes.append(f"partition.meta: {error.what}")
    n_faulty = sum(batch.fault is not None for batch in batches)
    if n_faulty:
        notes.append(f"{n_faulty} of {len(batches)} batches cannot be read")
    if promised is not None and promised != len(folder.batches):
        notes.append(f"{promised} batches promised, {len(folder.batches)} found")
        damaged = True
    if folder.strange:
        notes.append(f"{len(folder.strange)} files that no dump has")
    rows = [batch.n_rows for batch in batches if batch.n_rows is not None]
    if not batches:
        notes.append("empty")
    return PartitionSummary(
        folder.number,
        len(folder.batches),
        promised,
        sum(rows) if rows or not batches else None,
        sum(batch.n_bytes or 0 for batch in batches),
        "; ".join(notes),
        damaged,
    )


def median_partition_rows(partitions: list[PartitionSummary]) -> float | None:
    """Median of the known numbers of rows; null without any."""
    counts = [partition.n_rows for partition in partitions if partition.n_rows is not None]
    return float(statistics.median(counts)) if counts else None


def read_column_values(batches: list[Batch], *, max_rows: int) -> tuple[list[ColumnStatistics], list[str]]:
    """Statistics of the values of each column, by position, and notes on skipped batches."""
    columns: list[ColumnStatistics] = []
    notes: list[str] = []
    rows_left, n_left_out = max_rows, 0
    for batch in batches:
        if batch.path is None or batch.fault or rows_left <= 0:
            n_left_out += batch.fault is None
            continue
        if batch.largest_group_bytes > MAX_GROUP_BYTES:
            notes.append(
                f"values of {batch.path.parent.name}/{batch.path.name} not read: they unpack to more than 1 GiB"
            )
            continue
        try:
            # Add the values of one batch file to the columns' statistics, by position.
            n_rows = 0
            with import_parquet().ParquetFile(batch.path) as file:
                if len(file.schema_arrow) > MAX_COLUMNS:
                    raise InputError(f"more than {MAX_COLUMNS:,} columns")
                for part in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                    part = part.slice(0, rows_left - n_rows)
                    while len(columns) < part.num_columns:
                        columns.append(ColumnStatistics())
                    for values, array in zip(columns, part.columns, strict=False):
                        values.add_array(array)
                    n_rows += part.num_rows
                    if n_rows >= rows_left:
                        break
            rows_left -= n_rows
        except (OSError, ValueError, NotImplementedError, InputError) as error:
            notes.append(f"values of {batch.path.parent.name}/{batch.path.name} not read: {_shorten_error(error)}")
    if rows_left <= 0 and n_left_out:
        notes.append(f"values of the first {max_rows:,} rows; {n_left_out} batches not inspected")
    return columns, notes


def import_parquet() -> Any:
    """The module pyarrow.parquet."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        if error.name not in ("pyarrow", "pyarrow.parquet"):
            raise
        do = "pip install 'accelerated-workbench[spark]'"
        raise MissingToolError("pyarrow is needed to read batches", do=do) from error


def _shorten_error(error: Exception) -> str:
    text = error.what if isinstance(error, InputError) else str(error)
    return " ".join(text.split())[:160] or type(error).__name__
