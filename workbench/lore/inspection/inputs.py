"""One input of a dump: what its meta says, what lies there, and the rows of the tables that say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workbench.lore.inspection import batches, scala
from workbench.lore.inspection.batches import Batch, Partition
from workbench.lore.inspection.layout import OUTPUT, InputFolder
from workbench.lore.inspection.metas import ColumnMeta, RddMeta
from workbench.lore.inspection.values import ColumnValues
from workbench.lore.sidecar import InputEntry, Sidecar

Rows = list[dict[str, Any]]


@dataclass
class InputFound:
    """An input: what its meta says, and what lies there; `rows` are those of the tables, by name."""

    name: str
    kind: str | None
    meta: RddMeta | None
    n_partitions: int | None
    n_dumped: int
    n_rows: int | None
    n_bytes: int
    median_rows: float | None
    notes: list[str] = field(default_factory=list)
    rows: dict[str, Rows] = field(default_factory=dict)


def read_input(
    folder: InputFolder, meta: RddMeta | None, sidecar: Sidecar | None, *, most_rows: int
) -> tuple[InputFound, list[str]]:
    """What lies in an input's folder, and which of it is damaged?

    Raises
    ------
    MissingToolError
        pyarrow is not installed.
    """
    read = list(batches.batches(folder))
    by_partition: dict[int, list[Batch]] = {number: [] for number in folder.partitions}
    for batch in read:
        by_partition[batch.partition].append(batch)
    parts = [
        batches.partition(folder.partitions[number], by_partition[number], with_meta=folder.name != OUTPUT)
        for number in sorted(by_partition)
    ]
    values, notes = batches.column_values(read, most_rows=most_rows)
    notes += [f"column {index}: {one.fault}" for index, one in enumerate(values) if one.fault]
    rows = {
        "batches": [_batch_row(batch) for batch in read],
        "partitions": _partition_rows(parts),
        "columns": _column_rows(_columns(folder, meta, sidecar, read), values),
    }
    known = [one.n_rows for one in parts if one.n_rows is not None]
    found = InputFound(
        name=folder.name,
        kind=_kind(folder, sidecar),
        meta=meta,
        n_partitions=meta.n_partitions if meta else None,
        n_dumped=len(parts),
        n_rows=sum(known) if known or not read else None,
        n_bytes=sum(one.n_bytes for one in parts),
        median_rows=batches.median_rows(parts),
        notes=notes,
        rows={name: [{"input": folder.name} | row for row in each] for name, each in rows.items()},
    )
    return found, [f"{folder.name}/partition-{one.partition}: {one.note}" for one in parts if one.damaged]


def _kind(folder: InputFolder, sidecar: Sidecar | None) -> str | None:
    entries: list[InputEntry] = sidecar.inputs if sidecar else []
    return next((entry.kind for entry in entries if f"input-{entry.index}" == folder.name), None)


def _columns(folder: InputFolder, meta: RddMeta | None, sidecar: Sidecar | None, read: list[Batch]) -> list[ColumnMeta]:
    """The columns of an input by what its meta says, else by what its first readable file has."""
    if meta is not None and meta.columns:
        return meta.columns
    stored = next((batch.columns for batch in read if batch.columns is not None), ())
    if [name for name, _ in stored] == [batches.ROWS_ONLY]:
        return []
    if folder.name == OUTPUT and sidecar is not None and len(sidecar.output.columns) == len(stored):
        output = sidecar.output.columns
        return [ColumnMeta(scala.text_of(each.name), scala.json_type(each.type), each.nullable) for each in output]
    return [ColumnMeta(name, kind) for name, kind in stored]


def _batch_row(batch: Batch) -> dict[str, Any]:
    return {
        "partition": batch.partition,
        "batch": batch.batch,
        "n_rows": batch.n_rows,
        "n_bytes": batch.n_bytes,
        "unpacked_bytes": batch.unpacked_bytes,
        "n_columns": len(batch.columns) if batch.columns is not None else None,
        "fault": batch.fault,
    }


def _partition_rows(parts: list[Partition]) -> list[dict[str, Any]]:
    total = sum(one.n_rows or 0 for one in parts)
    median = batches.median_rows(parts)
    return [
        {
            "partition": one.partition,
            "n_batches": one.n_batches,
            "promised_batches": one.promised_batches,
            "n_rows": one.n_rows,
            "n_bytes": one.n_bytes,
            "rows_share": one.n_rows / total if one.n_rows is not None and total else None,
            "skew_ratio": one.n_rows / median if one.n_rows is not None and median else None,
            "note": one.note,
        }
        for one in parts
    ]


def _column_rows(columns: list[ColumnMeta], values: list[ColumnValues]) -> list[dict[str, Any]]:
    """Columns with their values by position; a dropped one has none in the files."""
    left = iter(values)
    found = []
    for position, column in enumerate(columns):
        known = next(left, None) if column.masked != "dropped" else None
        usable = known if known is not None and known.fault is None else None
        n_distinct, exact = usable.distinct if usable else (None, None)
        found.append(
            {
                "position": position,
                "name": column.name,
                "type": column.type,
                "nullable": column.nullable,
                "masked": column.masked,
                "n_rows": usable.n_rows if usable else 0,
                "n_nulls": usable.n_nulls if usable else None,
                "n_nan": usable.n_nan if usable else None,
                "minimum": usable.minimum if usable else None,
                "maximum": usable.maximum if usable else None,
                "n_distinct": n_distinct,
                "distinct_exact": exact,
            }
        )
    return found
