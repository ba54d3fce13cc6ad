"""Where rows go as soon as they are final: columns in memory, or Parquet parts that bound what is held.

Rows are sorted by the table's key when a buffer is emptied, so that a log that fits one buffer gives sorted tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.eventlog import tables
from workbench.files import replacing
from workbench.tables import Table

if TYPE_CHECKING:
    import polars as pl

# The widest rows (plan nodes) hold up to 4,000 characters of text: this keeps a table below some 20 MB.
PART_ROWS = 10_000


class Sink:
    """Collects rows by table; `frames()` gives them as checked polars tables."""

    def __init__(self) -> None:
        self.columns: dict[str, dict[str, list[Any]]] = {
            table.name: {column.name: [] for column in table.columns} for table in tables.ALL
        }
        self.declared = {table.name: table for table in tables.ALL}

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Add one row; every declared column must be given."""
        for name, values in self.columns[table].items():
            values.append(row[name])

    def extend(self, table: str, columns: Mapping[str, list[Any]]) -> None:
        """Add several rows, given as columns."""
        for name, values in self.columns[table].items():
            values.extend(columns[name])

    def frame(self, table: str) -> pl.DataFrame:
        """What is held of a table, sorted by its key."""
        declared = self.declared[table]
        frame = declared.frame(self.columns[table])
        by = list(declared.key) or [column.name for column in declared.columns]
        return frame.sort(by, nulls_last=True, maintain_order=True)

    def frames(self) -> dict[str, pl.DataFrame]:
        """All tables."""
        return {name: self.frame(name) for name in self.columns}


class ParquetSink(Sink):
    """Writes to `folder`; holds at most `part_rows` rows of a table, earlier ones lie in part files meanwhile."""

    def __init__(self, folder: Path, part_rows: int = PART_ROWS) -> None:
        super().__init__()
        self.folder = folder
        self.part_rows = part_rows
        self.parts: dict[str, list[Path]] = {name: [] for name in self.columns}
        self.rows: dict[str, int] = dict.fromkeys(self.columns, 0)
        self.work = folder / ".parts"

    def __enter__(self) -> ParquetSink:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        super().add(table, row)
        self._spill(table)

    def extend(self, table: str, columns: Mapping[str, list[Any]]) -> None:
        super().extend(table, columns)
        self._spill(table)

    def _spill(self, table: str) -> None:
        if len(self.columns[table]["log_id"]) >= self.part_rows:
            self._write_part(table)

    def _write_part(self, table: str) -> None:
        frame = self.frame(table)
        path = self.work / f"{table}.{len(self.parts[table]):05d}.parquet"
        frame.write_parquet(path, compression="zstd")
        self.parts[table].append(path)
        self.rows[table] += frame.height
        for values in self.columns[table].values():
            values.clear()

    def finish(self) -> dict[str, Path]:
        """Write every table as one file and give the paths."""
        return {name: self._whole(self.declared[name]) for name in self.columns}

    def _whole(self, table: Table) -> Path:
        import polars as pl

        parts = self.parts[table.name]
        if not parts:
            frame = self.frame(table.name)
            self.rows[table.name] = frame.height
            return table.write(frame, self.folder)
        if self.columns[table.name]["log_id"]:
            self._write_part(table.name)
        with replacing(table.path(self.folder)) as temporary:
            # Streamed, in the order of the parts and without reading ahead: at 10 GB of log that halves the peak.
            scan = pl.scan_parquet(parts, glob=False, low_memory=True, parallel="none")
            scan.sink_parquet(temporary, compression="zstd", maintain_order=True, row_group_size=PART_ROWS)
        return table.path(self.folder)
