"""Inspect a dump: origin, integrity, operator, inputs and values; nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_bytes, format_number
from workbench.lore import tables
from workbench.lore.dump_reader import batch_values, java_values, meta_files
from workbench.lore.dump_reader.batch_values import Batch, ColumnStatistics, PartitionSummary
from workbench.lore.dump_reader.meta_files import ColumnMeta, PlanMeta, RddMeta
from workbench.lore.dumps import dump_folder
from workbench.lore.dumps.dump_folder import (
    OUTPUT_FOLDER,
    PLAN_FILE,
    SIDECAR_FILE,
    InputColumn,
    InputEntry,
    InputFolder,
    Sidecar,
    check_integrity,
    format_some_names,
    read_sidecar,
)
from workbench.lore.replays.row_differences import choose_display_names
from workbench.lore.trust import trust_check
from workbench.lore.trust.allow_lists import find_conf_fault, list_refused_classes
from workbench.report.display import table

if TYPE_CHECKING:
    import polars as pl

TableRows = list[dict[str, Any]]
DumpOrigin = Literal["workbench", "gpu", "unknown"]
Signature = Literal["yours", "another's", "none"]
MAX_LINES = 40
MAX_JSON_ROWS = 10_000
MAX_LINE_CHARS = 200
_MAKER_TEXTS = {"workbench": "the workbench", "gpu": "the GPU plugin", "unknown": "an unknown maker"}
_SIGNATURE_TEXTS = {
    "yours": "with your key",
    "another's": "with another key than yours; loading it asks for --trust",
    "none": "no; loading it asks for --trust",
    None: "not checked",
}


@dataclass
class InspectedInput:
    """An input: its meta file and its files; `rows` are table rows by table name."""

    name: str
    kind: str | None
    meta: RddMeta | None
    n_partitions: int | None
    n_dumped: int
    n_rows: int | None
    n_bytes: int
    median_rows: float | None
    notes: list[str] = field(default_factory=list)
    rows: dict[str, TableRows] = field(default_factory=dict)


def read_input(
    folder: InputFolder, meta: RddMeta | None, sidecar: Sidecar | None, *, max_rows: int
) -> tuple[InspectedInput, list[str]]:
    """Inspect the folder of an input, and find damage."""
    read = list(batch_values.list_batches(folder))
    by_partition: dict[int, list[Batch]] = {number: [] for number in folder.partitions}
    for batch in read:
        by_partition[batch.partition].append(batch)
    parts = [
        batch_values.summarize_partition(
            folder.partitions[number], by_partition[number], with_meta=folder.name != OUTPUT_FOLDER
        )
        for number in sorted(by_partition)
    ]
    values, notes = batch_values.read_column_values(read, max_rows=max_rows)
    notes += [f"column {index}: {column.fault}" for index, column in enumerate(values) if column.fault]
    rows = {
        "batches": [_build_batch_row(batch) for batch in read],
        "partitions": _build_partition_rows(parts),
        "columns": _build_column_rows(_find_columns(folder, meta, sidecar, read), values),
    }
    counts = [part.n_rows for part in parts if part.n_rows is not None]
    entries: list[InputEntry] = sidecar.inputs if sidecar else []
    kind = next((entry.kind for entry in entries if f"input-{entry.index}" == folder.name), None)
    inspected_input = InspectedInput(
        name=folder.name,
        kind=kind,
        meta=meta,
        n_partitions=meta.n_partitions if meta else None,
        n_dumped=len(parts),
        n_rows=sum(counts) if counts or not read else None,
        n_bytes=sum(part.n_bytes for part in parts),
        median_rows=batch_values.median_partition_rows(parts),
        notes=notes,
        rows={name: [{"input": folder.name} | row for row in each] for name, each in rows.items()},
    )
    return inspected_input, [f"{folder.name}/partition-{part.partition}: {part.note}" for part in parts if part.damaged]


def _find_columns(
    folder: InputFolder, meta: RddMeta | None, sidecar: Sidecar | None, read: list[Batch]
) -> list[ColumnMeta]:
    """Columns of an input by its meta file, else by its first readable batch file."""
    if meta is not None and meta.columns:
        return meta.columns
    stored = next((batch.columns for batch in read if batch.columns is not None), ())
    if [name for name, _ in stored] == [batch_values.ROWS_ONLY]:
        return []
    if folder.name == OUTPUT_FOLDER and sidecar is not None and len(sidecar.output.columns) == len(stored):
        output = sidecar.output.columns
        return [
            ColumnMeta(java_values.to_text(each.name), java_values.format_json_type(each.type), each.nullable)
            for each in output
        ]
    return [ColumnMeta(name, kind) for name, kind in stored]


def _build_batch_row(batch: Batch) -> dict[str, Any]:
    return {
        "partition": batch.partition,
        "batch": batch.batch,
        "n_rows": batch.n_rows,
        "n_bytes": batch.n_bytes,
        "unpacked_bytes": batch.unpacked_bytes,
        "n_columns": len(batch.columns) if batch.columns is not None else None,
        "fault": batch.fault,
    }


def _build_partition_rows(parts: list[PartitionSummary]) -> list[dict[str, Any]]:
    """Rows of the table of partitions: counts, each one's share of all rows and its ratio to the median."""
    total = sum(part.n_rows or 0 for part in parts)
    median = batch_values.median_partition_rows(parts)
    return [
        {
            "partition": part.partition,
            "n_batches": part.n_batches,
            "promised_batches": part.promised_batches,
            "n_rows": part.n_rows,
            "n_bytes": part.n_bytes,
            "rows_share": part.n_rows / total if part.n_rows is not None and total else None,
            "skew_ratio": part.n_rows / median if part.n_rows is not None and median else None,
            "note": part.note,
        }
        for part in parts
    ]


def _build_column_rows(columns: list[ColumnMeta], values: list[ColumnStatistics]) -> list[dict[str, Any]]:
    """Rows of table `columns`; dropped columns have no values."""
    remaining_values = iter(values)
    rows = []
    for position, column in enumerate(columns):
        statistics = next(remaining_values, None) if column.masked != "dropped" else None
        usable = statistics if statistics is not None and statistics.fault is None else None
        n_distinct, exact = usable.distinct if usable else (None, None)
        rows.append(
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
    return rows


@dataclass
class InspectedDump:
    """loreId-N: `faults` tell what is damaged or never loaded; `notes` are other remarks.

    `whole` tells whether all checksums match; null without checksums.
    """

    lore_id: int
    folder: Path
    origin: DumpOrigin = "unknown"
    sidecar: Sidecar | None = None
    plan: meta_files.PlanMeta | None = None
    whole: bool | None = None
    signature: Signature | None = None
    inputs: list[InspectedInput] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def operator(self) -> str | None:
        """Spark's name of the operator, or null."""
        if self.sidecar is not None:
            return self.sidecar.operator
        return self.plan.operator if self.plan is not None else None


@dataclass
class Inspection:
    """Inspection of a path: its dumps and their tables."""

    dumps: list[InspectedDump]
    batches: pl.DataFrame
    partitions: pl.DataFrame
    columns: pl.DataFrame

    @property
    def faults(self) -> list[str]:
        """Faults of all dumps, with their folders."""
        return [f"loreId-{dump.lore_id}: {fault}" for dump in self.dumps for fault in dump.faults]

    @property
    def answer(self) -> str:
        """Number of dumps, and of those with faults."""
        faulty = sum(bool(dump.faults) for dump in self.dumps)
        many = "1 dump" if len(self.dumps) == 1 else f"{len(self.dumps)} dumps"
        return f"{many}, {faulty or 'none'} with faults."


def inspect_dumps(path: str | Path, *, max_rows: int = 1_000_000) -> Inspection:
    """Inspect a dump, or a folder of dumps, of the workbench or the GPU plugin.

    `max_rows`: Maximum rows of each input for value statistics; 0 for none. Rows are always counted.

    Returns: With the tables `BATCHES`, `PARTITIONS` and `COLUMNS` of `tables`.

    No JVM is started and nothing is unpickled. It does not verify the output of the operator: see `lore.verify`.
    """
    rows: dict[str, TableRows] = {declared.name: [] for declared in tables.INSPECTION_TABLES}
    dumps = [_inspect_dump(folder, rows, max_rows) for folder in dump_folder.list_dump_folders(Path(path))]
    frames = {declared.name: declared.frame(rows[declared.name]) for declared in tables.INSPECTION_TABLES}
    order = ["lore_id", "input", "n_rows", "partition"]
    most_first = frames["partitions"].sort(order, descending=[False, False, True, False], nulls_last=True)
    return Inspection(dumps, frames["batches"], most_first, frames["columns"])


def _inspect_dump(folder: Path, rows: dict[str, TableRows], max_rows: int) -> InspectedDump:
    """Read all files of a dump without running them; faults and notes go into the result, table rows into `rows`."""
    place = dump_folder.read_layout(folder)
    dump = InspectedDump(place.lore_id, folder)
    _inspect_sidecar(dump)
    if (folder / PLAN_FILE).is_file():
        _inspect_plan(dump)
    elif dump.sidecar is None or dump.sidecar.has_plan:
        dump.notes.append("no plan.meta: the operator is not known, and cannot be replayed")
    for input_folder in place.inputs:
        rdd, path = None, input_folder.meta
        if path is not None:
            rdd = _read_or_note(partial(meta_files.read_rdd_meta, path), f"{input_folder.name}/rdd.meta", dump)
        read, faults = read_input(input_folder, rdd, dump.sidecar, max_rows=max_rows)
        dump.faults += faults
        dump.inputs.append(read)
        for declared in tables.INSPECTION_TABLES:
            rows[declared.name] += [{"lore_id": dump.lore_id} | row for row in read.rows[declared.name]]
    if not place.inputs:
        dump.notes.append("no inputs")
    if dump.origin == "unknown" and any(each.meta and each.meta.origin == "gpu" for each in dump.inputs):
        dump.origin = "gpu"
    return dump


def _inspect_sidecar(dump: InspectedDump) -> None:
    """Check plan.json against the files, and its signature."""
    if not (dump.folder / SIDECAR_FILE).exists():
        return
    dump.origin = "workbench"
    sidecar = _read_or_note(lambda: read_sidecar(dump.folder), SIDECAR_FILE, dump)
    if sidecar is None:
        return
    dump.sidecar = sidecar
    if dump_folder.is_dump_folder_name(dump.folder) and dump.lore_id != sidecar.lore_id:
        dump.faults.append(f"{SIDECAR_FILE}: it is of loreId {sidecar.lore_id}")
    elif not dump_folder.is_dump_folder_name(dump.folder):
        dump.lore_id = sidecar.lore_id
    n_faults = len(dump.faults)
    _read_or_note(lambda: check_integrity(dump.folder, sidecar), "", dump)
    dump.whole = len(dump.faults) == n_faults
    for key, value in {**sidecar.confs, "spark.sql.session.timeZone": sidecar.time_zone}.items():
        if fault := find_conf_fault(key, value):
            dump.faults.append(f"{SIDECAR_FILE}: a setting that no dump may make: {java_values.to_text(key)}: {fault}")
    try:
        dump.signature = "yours" if trust_check.is_signed_by_user(sidecar) else "another's" if sidecar.hmac else "none"
    except ConfigError as error:
        dump.notes.append(f"signature not checked: {error.what}")


def _inspect_plan(dump: InspectedDump) -> None:
    path = dump.folder / PLAN_FILE
    dump.plan = _read_or_note(lambda: meta_files.read_plan_meta(path), PLAN_FILE, dump)
    # A plan of the plugin has its own classes and is not loaded here.
    if dump.plan is None or dump.sidecar is None:
        return
    if bad := list_refused_classes(dump.plan.names):
        dump.faults.append(f"{PLAN_FILE}: never loaded, for it names {', '.join(format_some_names(bad))}")
    if dump.sidecar.operator_class != dump.plan.operator_class:
        dump.faults.append(f"{PLAN_FILE}: of another operator than {SIDECAR_FILE} says")


def _read_or_note(read: Callable[[], Any], name: str, dump: InspectedDump) -> Any:
    """Call `read`.

    On failure return null, and add the reason as a fault, or as a note if another program can read it.
    """
    try:
        return read()
    except InputError as error:
        detail = error.facts["found"]
        parts = [str(part) for part in detail] if isinstance(detail, list | tuple) else [str(detail)]
        message = error.what if detail is None else f"{error.what} (found: {', '.join(parts)[:200]})"
        where = name or _shorten_to_folder(error.facts["where"], dump.folder)
        if error.what == meta_files.NOT_JAVA and dump.origin != "workbench":
            dump.notes.append(f"{where}: {message}; {error.facts['do']}")
        else:
            dump.faults.append(f"{where}: {message}")
        return None


def _shorten_to_folder(where: object, folder: Path) -> str:
    path = str(where)
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else path.rpartition("/")[2] or path


@dataclass(frozen=True)
class DumpTables:
    """A dump whose files are those of its sidecar.

    `inputs`: By name (`input-0`), polars tables in the order of partitions and batches; read when they are asked for.
    `output`: The kept output; null when the dump did not keep it.
    """

    folder: Path
    sidecar: Sidecar = field(repr=False)

    @property
    def inputs(self) -> Mapping[str, pl.DataFrame]:
        """Tables of the inputs by name."""
        return _InputTables(self)

    @property
    def output(self) -> pl.DataFrame | None:
        """The kept output."""
        if not self.sidecar.output.kept:
            return None
        return self.read_table("output", self.sidecar.output.columns)

    def read_table(self, name: str, columns: list[InputColumn]) -> pl.DataFrame:
        """Read the batches of one folder in order, with the query's column names; a repeated name gets its position."""
        import polars as pl

        stored_columns = [column for column in columns if column.masked != "dropped"]
        names = choose_display_names(column.name for column in stored_columns)
        files = sorted(
            (
                path
                for path in self.sidecar.files
                if path.startswith(f"{name}/partition-") and path.endswith(".parquet")
            ),
            key=lambda path: [int(part.rpartition("-")[2].removesuffix(".parquet")) for part in path.split("/")[1:]],
        )
        if not files:
            return pl.DataFrame({heading: [] for heading in names})
        frame = pl.concat([pl.read_parquet(self.folder / path, hive_partitioning=False) for path in files])
        return frame.select(
            pl.col(column.stored_as).alias(shown) for column, shown in zip(stored_columns, names, strict=True)
        )


class _InputTables(Mapping[str, "pl.DataFrame"]):
    def __init__(self, tables: DumpTables) -> None:
        self._tables = tables
        self._columns = {f"input-{entry.index}": entry.columns for entry in tables.sidecar.inputs}

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._columns:
            raise ConfigError("no such input", where=str(self._tables.folder), found=name, allowed=list(self._columns))
        return self._tables.read_table(name, self._columns[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def open_tables(folder: Path) -> DumpTables:
    """Open a dump to read its rows; every file is compared with its checksum first."""
    sidecar = read_sidecar(folder)
    check_integrity(folder, sidecar)
    return DumpTables(folder, sidecar)


def format_inspection(inspection: Inspection, *, limit: int = 12) -> str:
    """The inspection as text, by dump; `limit` rows of each table."""
    parts = [inspection.answer]
    for dump in inspection.dumps[:MAX_LINES]:
        parts += ["\n".join(_format_dump(dump)), *_format_tables(inspection, dump, limit)]
    if len(inspection.dumps) > MAX_LINES:
        parts.append(
            f"{len(inspection.dumps) - MAX_LINES} more dumps: name one of them to see it, or --out DIR for tables"
        )
    return "\n\n".join(parts)


def _format_dump(dump: InspectedDump) -> list[str]:
    title = f"loreId-{dump.lore_id}: {_cut_line(dump.operator or 'operator not known')}, by {_MAKER_TEXTS[dump.origin]}"
    lines = [title, *(f"  FAULT {fault}" for fault in dump.faults[:MAX_LINES])]
    if len(dump.faults) > MAX_LINES:
        lines.append(f"  {len(dump.faults) - MAX_LINES} more faults")
    lines += [f"  {note}" for note in dump.notes]
    lines += [f"  {line}" for line in [*_format_sidecar(dump), *(_format_plan(dump.plan) if dump.plan else [])]]
    return [
        _cut_line(line)
        for line in [*lines, *(f"  {line}" for dump_input in dump.inputs for line in _format_input(dump_input))]
    ]


def _format_sidecar(dump: InspectedDump) -> list[str]:
    sidecar = dump.sidecar
    if sidecar is None:
        return []
    versions = {name: value for name, value in sidecar.versions.model_dump().items() if value is not None}
    lines = [
        f"operator: {_cut_line(sidecar.operator_text)}",
        f"made: {sidecar.created_at} with {', '.join(f'{name} {value}' for name, value in versions.items())}",
        f"checksums: {f'hold for all {len(sidecar.files)} files' if dump.whole else 'do not hold'}",
        f"signed: {_SIGNATURE_TEXTS[dump.signature]}",
        f"compared with: {sidecar.output.compared_with}",
    ]
    if sidecar.masked:
        lines.append(f"masked: {sidecar.masked}")
    if sidecar.output.error:
        lines.append(f"expected error: {sidecar.output.error.error_class}: {sidecar.output.error.message}")
    if sidecar.python_functions:
        lines.append(f"Python functions: {', '.join(sidecar.python_functions[:MAX_LINES])}")
    return lines


def _format_plan(plan: PlanMeta) -> list[str]:
    lines = [
        f"plan.meta: {plan.operator_class}, {format_bytes(plan.n_bytes)}, "
        f"{format_number(sum(plan.classes.values()))} objects"
    ]
    lines += [f"{'  ' * min(node.depth, 20)}  {node.name}" for node in plan.nodes[:MAX_LINES]]
    if len(plan.nodes) > MAX_LINES:
        lines.append(f"  {len(plan.nodes) - MAX_LINES} more nodes")
    for function in plan.functions[:MAX_LINES]:
        facts = [function.evaluation, f"Python {function.python}" if function.python else None]
        facts += [f"imports {', '.join(function.modules)}"] if function.modules else []
        details = ", ".join(fact for fact in [*facts, f"{format_bytes(function.n_bytes)} pickled"] if fact)
        lines.append(f"Python function {function.name}: {details}")
    if plan.attributes:
        shown = [f"{each.name} {each.type}" for each in plan.attributes[:12]]
        more = f" and {len(plan.attributes) - 12} more" if len(plan.attributes) > 12 else ""
        lines.append(f"attributes: {', '.join(shown)}{more}")
    return lines


def _format_input(dump_input: InspectedInput) -> list[str]:
    of = (
        f" (of {format_number(dump_input.n_partitions)} in the original)" if dump_input.n_partitions is not None else ""
    )
    kind = f" ({dump_input.kind})" if dump_input.kind else ""
    sizes = f"rows: {format_number(dump_input.n_rows)}, files: {format_bytes(dump_input.n_bytes)}"
    facts = f"partitions: {format_number(dump_input.n_dumped)}{of}, {sizes}"
    lines = [f"{dump_input.name}{kind}: {facts}"]
    if (
        dump_input.meta is not None
        and dump_input.meta.origin == "gpu"
        and dump_input.n_dumped < dump_input.meta.n_partitions
    ):
        lines.append("  partitions without a folder were empty or not chosen: the plugin does not say which")
    return lines + [f"  {note}" for note in dump_input.notes[:MAX_LINES]]


def _format_tables(inspection: Inspection, dump: InspectedDump, limit: int) -> list[str]:
    """Lines of one dump's tables: partitions, largest first, and columns."""
    import polars as pl

    of_dump = pl.col("lore_id") == dump.lore_id
    shown = []
    for declared, caption in ((tables.PARTITIONS, "Partitions, most rows first"), (tables.COLUMNS, "Columns")):
        frame: pl.DataFrame = getattr(inspection, declared.name).filter(of_dump)
        for (name,), rows in frame.partition_by("input", as_dict=True, maintain_order=True).items():
            shown_rows = rows.drop("lore_id", "input")
            # Frame for the terminal, without columns that hold no information and with shortened texts.
            optional = [name for name in ("note", "masked", "n_nan", "promised_batches") if name in shown_rows.columns]
            empty = [name for name in optional if set(shown_rows[name].unique()) <= {None, ""}]
            cut = [
                pl.col(name).str.slice(0, 120 if name == "note" else 40)
                for name in shown_rows.columns
                if shown_rows[name].dtype == pl.String
            ]
            shown.append(
                table(
                    shown_rows.with_columns(cut).drop(empty), declared, caption=f"{caption}: {name}", limit=limit
                ).text
            )
    return shown


def build_document(inspection: Inspection) -> dict[str, Any]:
    """The inspection as one JSON document; tables have at most 10,000 rows, with the number of the others."""
    listed = []
    for dump in inspection.dumps:
        listed.append(
            {
                "lore_id": dump.lore_id,
                "folder": str(dump.folder),
                "origin": dump.origin,
                "operator": dump.operator,
                "checksums_hold": dump.whole,
                "signature": dump.signature,
                "faults": dump.faults,
                "notes": dump.notes,
                "sidecar": _build_sidecar_document(dump),
                "plan": _build_plan_document(dump.plan) if dump.plan else None,
                "inputs": [_build_input_document(dump_input) for dump_input in dump.inputs],
            }
        )
    head = {
        "answer": inspection.answer,
        "verdict": "invalid" if inspection.faults else "valid",
        "reasons": inspection.faults,
    }
    frames = {declared.name: getattr(inspection, declared.name) for declared in tables.INSPECTION_TABLES}
    left_out = {name: max(0, frame.height - MAX_JSON_ROWS) for name, frame in frames.items()}
    rows = {name: frame.head(MAX_JSON_ROWS).to_dicts() for name, frame in frames.items()}
    return head | {"dumps": listed} | rows | {"rows_left_out": left_out}


def _build_sidecar_document(dump: InspectedDump) -> dict[str, Any] | None:
    if dump.sidecar is None:
        return None
    shown = dump.sidecar.model_dump(mode="json", exclude={"files", "hmac"})
    return shown | {"n_files": len(dump.sidecar.files)}


def _build_plan_document(plan: PlanMeta) -> dict[str, Any]:
    from dataclasses import asdict

    shown = asdict(plan)
    shown["names"] = sorted(plan.names)[:MAX_JSON_ROWS]
    shown["classes"] = dict(list(plan.classes.items())[:MAX_JSON_ROWS])
    shown["attributes"] = shown["attributes"][:MAX_JSON_ROWS]
    return shown


def _build_input_document(dump_input: InspectedInput) -> dict[str, Any]:
    return {
        "name": dump_input.name,
        "kind": dump_input.kind,
        "n_partitions": dump_input.n_partitions,
        "n_dumped": dump_input.n_dumped,
        "n_rows": dump_input.n_rows,
        "n_bytes": dump_input.n_bytes,
        "median_rows": dump_input.median_rows,
        "notes": dump_input.notes,
    }


def _cut_line(text: str) -> str:
    line = " ".join(text.split("\n"))
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + "…"
