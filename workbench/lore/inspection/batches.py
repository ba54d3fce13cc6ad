"""Rows, bytes and values of the batches of an input: what the Parquet files say, then what their columns hold.

Columns are read by position, since an operator may see a name twice. What cannot be read is said and passed over.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import InputError, MissingToolError
from workbench.lore.inspection import metas
from workbench.lore.inspection.layout import InputFolder, PartitionFolder
from workbench.lore.inspection.values import ColumnValues

# A batch unpacks in memory as a whole row group at worst; a small file can claim much more than it is.
LARGEST_GROUP_BYTES = 1 << 30
MOST_COLUMNS = 2_000
MOST_MISSING = 100
ROWS_AT_ONCE = 65_536
# The only column of the files of an input without columns.
ROWS_ONLY = "__rows"


@dataclass(frozen=True)
class Batch:
    """A Parquet file as its footer describes it; what is not known is null."""

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
class Partition:
    """A partition as it lies in the dump; see `tables.PARTITIONS`."""

    partition: int
    n_batches: int
    promised_batches: int | None
    n_rows: int | None
    n_bytes: int
    note: str
    damaged: bool


def batches(folder: InputFolder) -> Iterator[Batch]:
    """The batches of an input as their footers describe them, in the order of reading; missing ones between, too.

    Raises
    ------
    MissingToolError
        pyarrow is not there.
    """
    for number in sorted(folder.partitions):
        present = folder.partitions[number].batches
        # Bounded, for a lone batch-999999999 would make a list of all that is missing before it.
        below = range(min(max(present, default=-1) + 1, len(present) + MOST_MISSING))
        for batch in sorted({*present, *below}):
            path = present.get(batch)
            yield Batch(number, batch, None, fault="missing") if path is None else _footer(number, batch, path)


def _footer(partition: int, batch: int, path: Path) -> Batch:
    n_bytes = path.stat().st_size
    try:
        with parquet().ParquetFile(path) as file:
            footer, schema = file.metadata, file.schema_arrow
            groups = [footer.row_group(index).total_byte_size for index in range(footer.num_row_groups)]
            columns = tuple((str(field.name), str(field.type)) for field in list(schema)[:MOST_COLUMNS])
            n_rows = int(footer.num_rows)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        return Batch(partition, batch, path, n_bytes=n_bytes, fault=_short(error))
    if n_rows < 0 or any(group < 0 for group in groups):
        return Batch(partition, batch, path, n_bytes=n_bytes, fault="counts below 0")
    return Batch(partition, batch, path, n_rows, n_bytes, min(sum(groups), 1 << 62), columns, max(groups, default=0))


def partition(folder: PartitionFolder, found: list[Batch], *, with_meta: bool = True) -> Partition:
    """What can be said of a partition from its batches and its meta, where there should be one?"""
    notes: list[str] = []
    damaged = any(batch.fault for batch in found)
    promised: int | None = None
    if folder.meta is None and with_meta:
        # The plugin writes it after the last batch was consumed: a LIMIT above stops before.
        notes.append("no partition.meta: not read to its end, as below a LIMIT, or the dump was cut off")
    elif folder.meta is not None:
        try:
            promised = metas.partition_meta(folder.meta).n_batches
        except InputError as error:
            notes.append(f"partition.meta: {error.what}")
    n_faulty = sum(batch.fault is not None for batch in found)
    if n_faulty:
        notes.append(f"{n_faulty} of {len(found)} batches cannot be read")
    if promised is not None and promised != len(folder.batches):
        notes.append(f"{promised} batches promised, {len(folder.batches)} found")
        damaged = True
    if folder.strange:
        notes.append(f"{len(folder.strange)} files that no dump has")
    rows = [batch.n_rows for batch in found if batch.n_rows is not None]
    if not found:
        notes.append("empty")
    return Partition(
        folder.number,
        len(folder.batches),
        promised,
        sum(rows) if rows or not found else None,
        sum(batch.n_bytes or 0 for batch in found),
        "; ".join(notes),
        damaged,
    )


def median_rows(partitions: list[Partition]) -> float | None:
    """The median of the rows of partitions; null where none is known."""
    known = [one.n_rows for one in partitions if one.n_rows is not None]
    return float(statistics.median(known)) if known else None


def column_values(found: list[Batch], *, most_rows: int) -> tuple[list[ColumnValues], list[str]]:
    """What are the values of each column, by position, and which batches were left out?

    Parameters
    ----------
    found
        Batches of one input; those that cannot be read are passed over.
    most_rows
        How many rows are looked at, over all batches, from the first on.

    Returns
    -------
    columns, notes
        One entry for each position that any batch has; what was not looked at, in words.
    """
    columns: list[ColumnValues] = []
    notes: list[str] = []
    left, n_left_out = most_rows, 0
    for batch in found:
        if batch.path is None or batch.fault or left <= 0:
            n_left_out += batch.fault is None
            continue
        if batch.largest_group_bytes > LARGEST_GROUP_BYTES:
            notes.append(
                f"values of {batch.path.parent.name}/{batch.path.name} not read: they unpack to more than 1 GiB"
            )
            continue
        try:
            left -= _add(columns, batch.path, left)
        except (OSError, ValueError, NotImplementedError, InputError) as error:
            notes.append(f"values of {batch.path.parent.name}/{batch.path.name} not read: {_short(error)}")
    if left <= 0 and n_left_out:
        notes.append(f"values of the first {most_rows:,} rows; {n_left_out} batches not looked at")
    return columns, notes


def _add(columns: list[ColumnValues], path: Path, most_rows: int) -> int:
    """Add the values of one batch, by position; how many rows it were."""
    n_rows = 0
    with parquet().ParquetFile(path) as file:
        if len(file.schema_arrow) > MOST_COLUMNS:
            raise InputError(f"more than {MOST_COLUMNS:,} columns")
        for part in file.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
            part = part.slice(0, most_rows - n_rows)
            while len(columns) < part.num_columns:
                columns.append(ColumnValues())
            for values, array in zip(columns, part.columns, strict=False):
                values.add_array(array)
            n_rows += part.num_rows
            if n_rows >= most_rows:
                break
    return n_rows


def parquet() -> Any:
    """The module pyarrow.parquet.

    Raises
    ------
    MissingToolError
        It is not installed.
    """
    try:
        return importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        if error.name not in ("pyarrow", "pyarrow.parquet"):
            raise
        raise MissingToolError("pyarrow is needed to read batches", do="pip install -r requirements.lock") from error


def _short(error: Exception) -> str:
    text = error.what if isinstance(error, InputError) else str(error)
    return " ".join(text.split())[:160] or type(error).__name__
