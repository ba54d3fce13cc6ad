"""Write rows to tables in memory or to Parquet parts, redacted and in bounded memory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.files import replace_atomically
from workbench.core.tables import Table
from workbench.eventlog import tables
from workbench.eventlog.completeness import Ledger
from workbench.eventlog.log_redaction import Redactor
from workbench.eventlog.stage_statistics import Summaries

if TYPE_CHECKING:
    import polars as pl

# Plan nodes have up to 4,000 characters of text per row: this keeps a table below about 20 MB.
PART_ROWS = 10_000


class TableSink:
    """Collects rows by table; `table_frames()` returns them as checked polars tables."""

    def __init__(self) -> None:
        self.declared = {table.name: table for table in tables.ALL_TABLES}
        # What came as single rows, and what came as columns.
        self.columns: dict[str, dict[str, list[Any]]] = {
            table.name: {column.name: [] for column in table.columns} for table in tables.ALL_TABLES
        }
        self.frames: dict[str, list[pl.DataFrame]] = {name: [] for name in self.declared}

    def add_row(self, table: str, row: Mapping[str, Any]) -> None:
        """Add one row; every declared column must be given."""
        for name, values in self.columns[table].items():
            values.append(row[name])

    def add_columns(self, table: str, columns: Mapping[str, Any]) -> None:
        """Add many rows, given as columns that `Table.build_frame` takes."""
        self.frames[table].append(self.declared[table].build_frame(columns))

    def table_frame(self, table: str) -> pl.DataFrame:
        """Current rows of a table, sorted by its key."""
        import polars as pl

        declared = self.declared[table]
        frame = declared.check(pl.concat([*self.frames[table], declared.build_frame(self.columns[table])]))
        by = list(declared.key) or [column.name for column in declared.columns]
        return frame.sort(by, nulls_last=True, maintain_order=True)

    def _count_rows(self, table: str) -> int:
        return len(self.columns[table]["log_id"]) + sum(frame.height for frame in self.frames[table])

    def _clear(self, table: str) -> None:
        self.frames[table].clear()
        for values in self.columns[table].values():
            values.clear()

    def table_frames(self) -> dict[str, pl.DataFrame]:
        """Return all tables."""
        return {name: self.table_frame(name) for name in self.columns}


class ParquetSink(TableSink):
    """Writes to `folder`; keeps at most `part_rows` rows of a table in memory, earlier ones in part files."""

    def __init__(self, folder: Path, part_rows: int = PART_ROWS) -> None:
        super().__init__()
        self.folder = folder
        self.part_rows = part_rows
        self.parts: dict[str, list[Path]] = {name: [] for name in self.columns}
        self.rows: dict[str, int] = dict.fromkeys(self.columns, 0)
        self.work = folder / ".parts"
        self.writer = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def __enter__(self) -> ParquetSink:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.shutdown()
        shutil.rmtree(self.work, ignore_errors=True)

    def add_row(self, table: str, row: Mapping[str, Any]) -> None:
        super().add_row(table, row)
        self._spill_full_part(table)

    def add_columns(self, table: str, columns: Mapping[str, Any]) -> None:
        super().add_columns(table, columns)
        self._spill_full_part(table)

    def _spill_full_part(self, table: str) -> None:
        if self._count_rows(table) >= self.part_rows:
            self._write_part(table)

    def _write_part(self, table: str) -> None:
        frame = self.table_frame(table)
        path = self.work / f"{table}.{len(self.parts[table]):05d}.arrow"
        self.parts[table].append(path)
        self.rows[table] += frame.height
        self._clear(table)
        # One part is written while the next one is collected.
        if self.writing:
            self.writing.result()
        self.writing = self.writer.submit(frame.write_ipc, path, compression="lz4")

    def write_files(self) -> dict[str, Path]:
        """Write every table as one file; returns the paths."""
        return {name: self._write_whole_table(self.declared[name]) for name in self.columns}

    def _write_whole_table(self, table: Table) -> Path:
        import polars as pl

        parts = self.parts[table.name]
        if not parts:
            frame = self.table_frame(table.name)
            self.rows[table.name] = frame.height
            return table.write(frame, self.folder)
        if self._count_rows(table.name):
            self._write_part(table.name)
        if self.writing:
            self.writing.result()
        with replace_atomically(table.path(self.folder)) as temporary:
            # Streamed without read-ahead, which halves the peak memory for a 10 GB log.
            scan = pl.scan_ipc(parts, glob=False)
            scan.sink_parquet(temporary, compression="zstd", maintain_order=True, row_group_size=PART_ROWS)
        return table.path(self.folder)


class RowWriter:
    """Writes rows of one log; `late` counts events after their rows were written, `ledger` notes what it names."""

    def __init__(self, log_id: int, sink: TableSink, redactor: Redactor) -> None:
        self.log_id, self.sink, self.redactor = log_id, sink, redactor
        self.last_ms = self.last_stamp_ms = 0
        self.late = 0
        self.ledger = Ledger()

    def add_row(self, table: str, **row: Any) -> None:
        """Add one row of this log."""
        self.sink.add_row(table, {"log_id": self.log_id, **row})

    def note_time(self, time_ms: int | None) -> int | None:
        """Record a time stamp of the log, and return it."""
        if time_ms is not None and time_ms > self.last_ms:
            self.last_ms = time_ms
        return time_ms

    def note_stamp(self, time_ms: int | None) -> int | None:
        """Record a time that the driver takes as it writes the event: never earlier than those before it."""
        if time_ms is not None:
            self.ledger.step_back_ms = max(self.ledger.step_back_ms, self.last_stamp_ms - time_ms)
            self.last_stamp_ms = max(self.last_stamp_ms, time_ms)
        return self.note_time(time_ms)

    def add_failure(self, kind: str, **row: Any) -> None:
        """Add a row to the table of failures; missing fields are null."""
        names = ("sql_id", "job_id", "stage_id", "stage_attempt_id", "task_id", "executor_id", "time_ms")
        full = dict.fromkeys((*names, "reason", "message")) | row
        full["message"] = self.redactor.redact_message(full["message"]) or None
        full["reason"] = self.redactor.redact_message(full["reason"])
        full["executor_id"] = self.redactor.redact_label(full["executor_id"])
        self.add_row(tables.FAILURES.name, kind=kind, **full)


def statistics_columns(summaries: Summaries) -> dict[str, Any]:
    """Columns of summaries, by the names of the tables."""
    is_empty = summaries.n == 0
    of_values = {name: getattr(summaries, name) for name in ("min", "median", "p95", "max")}
    return {
        "n": summaries.n,
        **{name: np.ma.array(values, mask=is_empty) for name, values in of_values.items()},
        "total": np.ma.array(summaries.total, mask=~summaries.fits),
    }


def clamp_to_64_bits(value: int | None) -> int | None:
    """The nearest 64-bit integer; only damage gives larger ones."""
    return None if value is None else max(-(2**63), min(2**63 - 1, value))


def string_or_none(value: object) -> str | None:
    """A text; None for other values."""
    return value if isinstance(value, str) else None
