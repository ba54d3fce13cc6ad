"""The operator of a dump as a function of its inputs: rows are changed, and it runs again."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from workbench.core.errors import ConfigError, InputError
from workbench.lore.dump_reader.dump_inspection import DumpTables
from workbench.lore.dumps.dump_folder import InputColumn, InputEntry
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.replays import operator_replay, row_differences
from workbench.lore.replays.output_verification import collect_table, name_columns
from workbench.lore.replays.row_differences import choose_display_names
from workbench.lore.spark_bridge import replay_session
from workbench.lore.spark_bridge.operator_isolation import rebuild_operator
from workbench.lore.spark_bridge.query_runs import describe_failure, refuse_environment_fault
from workbench.lore.spark_bridge.spark_internals import connect_bridge

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

MAX_SHOWN_ROWS = 20


class RunOptions(operator_replay.SessionOptions):
    """Options of a run over changed inputs."""

    inputs: dict[str, Path] = Field(
        default={}, description="Rows of an input as a Parquet file, input-0=FILE.parquet; repeat."
    )
    confs: dict[str, str] = Field(default={}, description="A Spark setting; repeat.")
    out: Path | None = Field(default=None, description="Parquet file to write the output rows to.")
    show: int = Field(default=MAX_SHOWN_ROWS, ge=0, le=1000, description="Rows of the output to show.")


class RunResult(BaseModel):
    """Result of a run, as one JSON document.

    `n_rows`: Rows of the output; null when the operator failed.
    `failure`: Its error; null when it did not fail.
    """

    folder: str
    lore_id: int
    operator: str
    operator_text: str
    changed: list[str]
    n_rows: int | None = None
    failure: str | None = None
    rows: list[str] = []
    out: str | None = None
    notes: list[str] = []

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        over = f"with other rows in {', '.join(self.changed)}" if self.changed else "over the rows of the dump"
        return f"failed {over}: {self.failure}" if self.failure is not None else f"{self.n_rows} rows {over}"


def run_operator(folder: str, options: RunOptions, *, report: operator_replay.ReportLine) -> RunResult:
    """Run the operator of a dump once, with other rows in some inputs.

    A changed input with as many rows as the dumped one keeps their partitions; another number of rows is one
    partition. Then the exchanges and sorts are inserted that the operator asks of its inputs, as Spark's planner does,
    so that a changed key meets its match. The result does not show in which partition a row would be in the query.
    """
    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise ConfigError("no such folder", where="--out", found=options.out.parent, do="make it, or name another file")
    replay_options = operator_replay.ReplayOptions(
        **{name: getattr(options, name) for name in (*operator_replay.SessionOptions.model_fields, "confs")}
    )
    with (
        operator_replay.open_dump(folder, replay_options, report=report) as dump,
        tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch,
    ):
        return _run_over(dump, options, Path(scratch))


def _run_over(dump: operator_replay.OpenDump, options: RunOptions, scratch: Path) -> RunResult:
    sidecar = dump.sidecar
    result = RunResult(
        folder=dump.url,
        lore_id=sidecar.lore_id,
        operator=sidecar.operator,
        operator_text=sidecar.operator_text,
        changed=sorted(options.inputs),
        notes=[sidecar.masked] if sidecar.masked else [],
    )
    entries = _write_changed_inputs(DumpTables(dump.local, sidecar), options.inputs, scratch)
    replay_session.apply_dump_settings(dump.spark, sidecar, options.confs)
    bridge = connect_bridge(dump.spark)
    store = DumpStore(bridge, str(scratch))
    plan = (dump.local / "plan.meta").read_bytes()
    try:
        over = rebuild_operator(
            DumpStore(bridge, dump.url),
            sidecar,
            plan,
            bridge,
            changed={index: (store, entry) for index, entry in entries.items()},
        )
        frame = row_differences.number_columns(bridge.quiet_bridge(), over.output_rdd(), over.attributes)
        named = name_columns(frame, [str(attribute.name()) for attribute in over.attributes])
        rows = collect_table(named)
        n_rows = rows.height if rows.width else named.count()
    except Exception as error:  # noqa: BLE001 - a failure of the operator is the result
        failure = describe_failure(error)
        refuse_environment_fault(failure, f"loreId {sidecar.lore_id}")
        return result.model_copy(update={"failure": str(failure)})
    if options.out is not None:
        rows.write_parquet(options.out)
    shown = rows.head(options.show).write_ndjson().splitlines() if rows.width else []
    return result.model_copy(
        update={"n_rows": n_rows, "rows": shown, "out": None if options.out is None else str(options.out)}
    )


def _write_changed_inputs(tables: DumpTables, paths: Mapping[str, Path], scratch: Path) -> dict[int, InputEntry]:
    """Write the files of the changed inputs in the layout of a dump; returns their entries by number."""
    entries = {f"input-{entry.index}": entry for entry in tables.sidecar.inputs}
    if unknown := sorted(set(paths) - set(entries)):
        raise ConfigError("no such input", where="--input", found=unknown, allowed=list(entries))
    changed_entries = {}
    for name, path in paths.items():
        entry = entries[name]
        table = _to_stored_form(_read_table(path, name), tables.folder, entry)
        changed_entries[entry.index] = _write_partitions(
            table, _count_partition_rows(tables.folder, entry), entry, scratch
        )
    return changed_entries


def _read_table(path: Path, name: str) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(path, hive_partitioning=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            "the rows of an input cannot be read", where=f"--input {name}", found=str(error)[:200], allowed="Parquet"
        ) from None


def _to_stored_form(frame: pl.DataFrame, folder: Path, entry: InputEntry) -> pa.Table:
    """Convert the rows to the columns and types of the dump's files."""
    import pyarrow as pa

    columns = [column for column in entry.columns if column.masked != "dropped"]
    shown, stored = choose_display_names(column.name for column in columns), [column.stored_as for column in columns]
    names = shown if set(frame.columns) == set(shown) else stored
    where = f"input-{entry.index}"
    if entry.zero_columns or set(frame.columns) != set(names):
        raise ConfigError(
            "these rows have other columns than the input",
            where=where,
            found=frame.columns[:50],
            allowed=shown[:50] or "an input without columns cannot be changed",
            do='take the rows of lore.open(DUMP).inputs["input-0"] and change their values',
        )
    table = frame.select(names).to_arrow()
    _refuse_nulls(table, columns, where)
    try:
        return table.rename_columns(stored).cast(_read_stored_types(folder, entry, columns))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ConfigError(
            "a value does not fit the type of its column",
            where=where,
            found=str(error)[:300],
            allowed=[f"{name}: {column.type}" for name, column in zip(shown, columns, strict=True)][:50],
        ) from None


def _refuse_nulls(table: pa.Table, columns: list[InputColumn], where: str) -> None:
    """Refuse nulls where the plan says that there are none: Spark would read some other value there.

    `table`: Its columns are those of the input, in order.
    """
    for shown, values, column in zip(table.column_names, table.columns, columns, strict=True):
        path = _find_forbidden_null(values.combine_chunks(), column.type, column.nullable)
        if path is not None:
            raise ConfigError(
                "a null where the plan of this operator has none",
                where=f"{where}, {shown}{path}",
                found=f"{column.type if isinstance(column.type, str) else column.type.get('type')}, not nullable",
                do="give a value, or dump the operator over an input in which this column has nulls",
            )


def _find_forbidden_null(array: Any, kind: Any, nullable: bool) -> str | None:
    """Path below the column to where an array of a Spark type (its JSON) has a null that it forbids; null: nowhere."""
    import pyarrow as pa

    if array.null_count and not nullable:
        return ""
    if not isinstance(kind, dict) or not len(array):
        return None
    valid = array.drop_null()
    parts: list[tuple[str, Any, Any, bool]] = []
    if kind["type"] == "array":
        parts = [("[]", valid.flatten(), kind["elementType"], kind["containsNull"])]
    elif kind["type"] == "map" and pa.types.is_map(array.type):
        parts = [("{}", valid.items, kind["valueType"], kind["valueContainsNull"])]
    elif kind["type"] == "struct":
        parts = [
            (f".{field['name']}", valid.field(field["name"]), field["type"], field["nullable"])
            for field in kind["fields"]
        ]
    for place, inner_array, inner_kind, inner_nullable in parts:
        inner = _find_forbidden_null(inner_array, inner_kind, inner_nullable)
        if inner is not None:
            return place + inner
    return None


def _read_stored_types(folder: Path, entry: InputEntry, columns: list[InputColumn]) -> pa.Schema:
    """Arrow types of an input's stored columns, from its first file, or from its declared columns if it has none."""
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    for number in entry.partitions:
        if entry.batches[str(number)]:
            read = pq.read_schema(folder / f"input-{entry.index}/partition-{number}/batch-0.parquet")
            return read.remove_metadata()
    fields = [{"name": column.stored_as, "type": column.type, "nullable": True, "metadata": {}} for column in columns]
    return to_arrow_schema(StructType.fromJson({"type": "struct", "fields": fields}))


def _count_partition_rows(folder: Path, entry: InputEntry) -> list[int]:
    """Count the rows of each original partition; 0 for one that was not dumped."""
    import pyarrow.parquet as pq

    counts = [0] * entry.n_partitions
    for name, n_batches in entry.batches.items():
        parts = folder / f"input-{entry.index}" / f"partition-{name}"
        counts[int(name)] = sum(
            pq.read_metadata(parts / f"batch-{batch}.parquet").num_rows for batch in range(n_batches)
        )
    return counts


def _write_partitions(table: pa.Table, counts: list[int], entry: InputEntry, scratch: Path) -> InputEntry:
    """Write the rows into the dump's partitions if their number is the same, else all into the first one."""
    import pyarrow.parquet as pq

    if table.num_rows != sum(counts):
        counts = [table.num_rows, *[0] * (max(entry.n_partitions, 1) - 1)]
    begin, batches = 0, {}
    for number, n_rows in enumerate(counts):
        batches[str(number)] = int(n_rows > 0)
        if n_rows:
            folder = scratch / f"input-{entry.index}" / f"partition-{number}"
            folder.mkdir(parents=True)
            pq.write_table(table.slice(begin, n_rows), folder / "batch-0.parquet")
        begin += n_rows
    return entry.model_copy(
        update={
            "n_partitions": len(counts),
            "partitions": list(range(len(counts))),
            "batches": batches,
            "n_rows": table.num_rows,
        }
    )


def write_changed_rows(rows: Any, path: Path) -> None:
    """Write rows given in Python to a Parquet file: polars, pandas, pyarrow, or a Spark DataFrame."""
    import polars as pl

    kind = type(rows).__module__.partition(".")[0]
    if kind == "pandas":
        rows = pl.from_pandas(rows)
    elif kind == "pyarrow":
        rows = pl.from_arrow(rows)
    elif kind == "pyspark":
        rows = collect_table(rows)
    if not isinstance(rows, pl.DataFrame):
        raise ConfigError(
            "these are no rows", where="inputs", found=type(rows).__name__, allowed="polars, pandas, pyarrow or Spark"
        )
    rows.write_parquet(path)
