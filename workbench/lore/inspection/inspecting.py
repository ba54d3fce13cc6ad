"""A dump looked into: whose it is, whether it is whole, which operator, inputs and values. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import ConfigError, InputError
from workbench.lore import trust
from workbench.lore.inspection import batches, layout, metas, planmeta, tables
from workbench.lore.inspection.batches import Batch, Partition
from workbench.lore.inspection.layout import OUTPUT, InputFolder
from workbench.lore.inspection.metas import ColumnMeta, RddMeta
from workbench.lore.inspection.values import ColumnValues
from workbench.lore.intact import PLAN, read_sidecar
from workbench.lore.sidecar import FILE_NAME, Sidecar

if TYPE_CHECKING:
    import polars as pl

Origin = Literal["workbench", "gpu", "unknown"]
Signature = Literal["yours", "another's", "none"]


@dataclass
class InputFound:
    """An input: what its meta says, and what lies there."""

    name: str
    kind: str | None
    meta: RddMeta | None
    n_partitions: int | None
    n_dumped: int
    n_rows: int | None
    n_bytes: int
    median_rows: float | None
    notes: list[str] = field(default_factory=list)


@dataclass
class DumpFound:
    """loreId-N: `faults` say what is damaged, `notes` what else should be known."""

    lore_id: int
    folder: Path
    origin: Origin = "unknown"
    sidecar: Sidecar | None = None
    plan: planmeta.PlanMeta | None = None
    signature: Signature | None = None
    inputs: list[InputFound] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def operator(self) -> str | None:
        """Spark's name of the operator; null where nothing tells."""
        if self.sidecar is not None:
            return self.sidecar.operator
        return self.plan.operator if self.plan is not None else None


@dataclass
class Inspection:
    """What was found at a path, and the tables of all its dumps."""

    dumps: list[DumpFound]
    batches: pl.DataFrame
    partitions: pl.DataFrame
    columns: pl.DataFrame

    @property
    def faults(self) -> list[str]:
        """What is damaged, with the folder."""
        return [f"loreId-{dump.lore_id}: {fault}" for dump in self.dumps for fault in dump.faults]

    @property
    def answer(self) -> str:
        """How many dumps, and whether they are whole."""
        damaged = sum(bool(dump.faults) for dump in self.dumps)
        many = "1 dump" if len(self.dumps) == 1 else f"{len(self.dumps)} dumps"
        return f"{many}, {damaged or 'nothing'} damaged."


def inspect(path: str | Path, *, most_rows: int = 1_000_000) -> Inspection:
    """What is in a dump, or in a folder of dumps, of the workbench or of the GPU plugin?

    Parameters
    ----------
    path
        loreId-N, or a folder of such folders, on this machine.
    most_rows
        Rows of each input whose values are looked at; 0 for none. Rows are counted for all.

    Returns
    -------
    Inspection
        Its frames are `tables.BATCHES`, `tables.PARTITIONS` and `tables.COLUMNS`.

    Raises
    ------
    InputError
        There is no dump.
    MissingToolError
        pyarrow is not installed.

    Notes
    -----
    No JVM is started and nothing is unpickled. Does not show whether the operator still gives the same: see verify.
    """
    rows: dict[str, list[dict[str, Any]]] = {declared.name: [] for declared in tables.ALL}
    found = [_inspect(folder, rows, most_rows) for folder in layout.dumps(Path(path))]
    frames = {declared.name: declared.frame(rows[declared.name]) for declared in tables.ALL}
    order = ["lore_id", "input", "n_rows", "partition"]
    most_first = frames["partitions"].sort(order, descending=[False, False, True, False], nulls_last=True)
    return Inspection(found, frames["batches"], most_first, frames["columns"])


def _inspect(folder: Path, rows: dict[str, list[dict[str, Any]]], most_rows: int) -> DumpFound:
    place = layout.layout(folder)
    found = DumpFound(place.lore_id, folder)
    _sidecar(found)
    if (folder / PLAN).is_file():
        found.plan = _tried(lambda: planmeta.plan_meta(folder / PLAN), PLAN, found)
    elif found.sidecar is None or found.sidecar.has_plan:
        found.notes.append("no plan.meta: the operator is not known, and cannot be replayed")
    for one in place.inputs:
        found.inputs.append(_input(one, found, rows, most_rows))
    if not place.inputs:
        found.notes.append("no inputs")
    if found.origin == "unknown" and any(each.meta and each.meta.origin == "gpu" for each in found.inputs):
        found.origin = "gpu"
    return found


def _sidecar(found: DumpFound) -> None:
    """Ours have plan.json: is it true of the files, and who signed it?"""
    if not (found.folder / FILE_NAME).exists():
        return
    found.origin = "workbench"
    found.sidecar = _tried(lambda: read_sidecar(found.folder), FILE_NAME, found)
    if found.sidecar is None:
        return
    if layout.is_numbered(found.folder) and found.lore_id != found.sidecar.lore_id:
        found.faults.append(f"{FILE_NAME}: it is of loreId {found.sidecar.lore_id}")
    elif not layout.is_numbered(found.folder):
        found.lore_id = found.sidecar.lore_id
    # With trust: what is asked here is only whether it is whole and holds nothing that is never loaded.
    _tried(lambda: trust.check(found.folder, trust=True, report=lambda _: None), "", found)
    try:
        found.signature = "yours" if trust.is_own(found.sidecar) else "another's" if found.sidecar.hmac else "none"
    except ConfigError as error:
        found.notes.append(f"signature not checked: {error.what}")


def _input(folder: InputFolder, found: DumpFound, rows: dict[str, list[dict[str, Any]]], most_rows: int) -> InputFound:
    identity = {"lore_id": found.lore_id, "input": folder.name}
    meta = None
    path = folder.meta
    if path is not None:
        meta = _tried(lambda: metas.rdd_meta(path), f"{folder.name}/rdd.meta", found)
    read = list(batches.batches(folder))
    rows["batches"] += [identity | _batch_row(batch) for batch in read]
    by_partition: dict[int, list[Batch]] = {number: [] for number in folder.partitions}
    for batch in read:
        by_partition[batch.partition].append(batch)
    parts = [
        batches.partition(folder.partitions[number], by_partition[number], with_meta=folder.name != OUTPUT)
        for number in sorted(by_partition)
    ]
    found.faults += [f"{folder.name}/partition-{one.partition}: {one.note}" for one in parts if one.damaged]
    rows["partitions"] += [identity | row for row in _partition_rows(parts)]
    values, notes = batches.column_values(read, most_rows=most_rows)
    notes += [f"column {index}: {one.fault}" for index, one in enumerate(values) if one.fault]
    rows["columns"] += [identity | row for row in _column_rows(_columns(folder, meta, found, read), values)]
    known = [one.n_rows for one in parts if one.n_rows is not None]
    entry = _entry(folder, found)
    return InputFound(
        name=folder.name,
        kind=entry.kind if entry else None,
        meta=meta,
        n_partitions=meta.n_partitions if meta else None,
        n_dumped=len(parts),
        n_rows=sum(known) if known or not read else None,
        n_bytes=sum(one.n_bytes for one in parts),
        median_rows=batches.median_rows(parts),
        notes=notes,
    )


def _entry(folder: InputFolder, found: DumpFound) -> Any:
    entries = found.sidecar.inputs if found.sidecar else []
    return next((entry for entry in entries if f"input-{entry.index}" == folder.name), None)


def _columns(folder: InputFolder, meta: RddMeta | None, found: DumpFound, read: list[Batch]) -> list[ColumnMeta]:
    """The columns of an input by what its meta says, else by what its first readable file has."""
    if meta is not None and meta.columns:
        return meta.columns
    stored = next((batch.columns for batch in read if batch.columns is not None), ())
    if [name for name, _ in stored] == [batches.ROWS_ONLY]:
        return []
    if folder.name == OUTPUT and found.sidecar is not None and len(found.sidecar.output.columns) == len(stored):
        names = [column.name for column in found.sidecar.output.columns]
        return [ColumnMeta(name, kind) for name, (_, kind) in zip(names, stored, strict=True)]
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


def _tried(read: Callable[[], Any], what: str, found: DumpFound) -> Any:
    """What `read` gives; a fault and null where it cannot."""
    try:
        return read()
    except InputError as error:
        told = (
            error.what if error.facts["found"] is None else f"{error.what} (found: {str(error.facts['found'])[:200]})"
        )
        where = what or _below(error.facts["where"], found.folder)
        found.faults.append(f"{where}: {told}")
        return None


def _below(where: object, folder: Path) -> str:
    path = str(where)
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else path.rpartition("/")[2] or path
