"""Inspection as text for a terminal and as a JSON document, both of bounded length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.core.formats import format_bytes, format_number
from workbench.lore import tables
from workbench.lore.dump_reader.dump_inspection import InspectedDump, InspectedInput, Inspection
from workbench.lore.dump_reader.meta_files import PlanMeta
from workbench.report.display import table

if TYPE_CHECKING:
    import polars as pl

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
    """Partitions, largest first, and columns of one dump."""
    import polars as pl

    of_dump = pl.col("lore_id") == dump.lore_id
    shown = []
    for declared, caption in ((tables.PARTITIONS, "Partitions, most rows first"), (tables.COLUMNS, "Columns")):
        frame: pl.DataFrame = getattr(inspection, declared.name).filter(of_dump)
        for (name,), rows in frame.partition_by("input", as_dict=True, maintain_order=True).items():
            shown_rows = rows.drop("lore_id", "input")
            shown.append(table(_shorten_frame(shown_rows), declared, caption=f"{caption}: {name}", limit=limit).text)
    return shown


def _shorten_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without uninformative columns, and with short texts."""
    import polars as pl

    optional = [name for name in ("note", "masked", "n_nan", "promised_batches") if name in frame.columns]
    empty = [name for name in optional if set(frame[name].unique()) <= {None, ""}]
    cut = [
        pl.col(name).str.slice(0, 120 if name == "note" else 40)
        for name in frame.columns
        if frame[name].dtype == pl.String
    ]
    return frame.with_columns(cut).drop(empty)


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
