"""An inspection in words for a terminal, and as a document for other programs; both of bounded length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.display import table
from workbench.formats import number, size
from workbench.lore.inspection import tables
from workbench.lore.inspection.inputs import InputFound
from workbench.lore.inspection.inspecting import DumpFound, Inspection
from workbench.lore.inspection.planmeta import PlanMeta

if TYPE_CHECKING:
    import polars as pl

MOST_LINES = 40
MOST_ROWS_OF_JSON = 10_000
LONGEST_LINE = 200
_MAKERS = {"workbench": "the workbench", "gpu": "the GPU plugin", "unknown": "an unknown maker"}


def text_of(found: Inspection, *, limit: int = 12) -> str:
    """What was found, dump by dump; `limit` rows of each table of a dump."""
    parts = [found.answer]
    for dump in found.dumps[:MOST_LINES]:
        parts += ["\n".join(_about(dump)), *_tables(found, dump, limit)]
    if len(found.dumps) > MOST_LINES:
        parts.append(f"{len(found.dumps) - MOST_LINES} more dumps: name one of them to see it, or --out DIR for tables")
    return "\n\n".join(parts)


def _about(dump: DumpFound) -> list[str]:
    title = f"loreId-{dump.lore_id}: {_cut(dump.operator or 'operator not known')}, by {_MAKERS[dump.origin]}"
    lines = [title, *(f"  FAULT {fault}" for fault in dump.faults[:MOST_LINES])]
    if len(dump.faults) > MOST_LINES:
        lines.append(f"  {len(dump.faults) - MOST_LINES} more faults")
    lines += [f"  {note}" for note in dump.notes]
    lines += [f"  {line}" for line in [*_sidecar(dump), *(_plan(dump.plan) if dump.plan else [])]]
    return [_cut(line) for line in [*lines, *(f"  {line}" for one in dump.inputs for line in _input(one))]]


def _sidecar(dump: DumpFound) -> list[str]:
    sidecar = dump.sidecar
    if sidecar is None:
        return []
    versions = {name: value for name, value in sidecar.versions.model_dump().items() if value is not None}
    lines = [
        f"operator: {_cut(sidecar.operator_text)}",
        f"made: {sidecar.created_at} with {', '.join(f'{name} {value}' for name, value in versions.items())}",
        f"checksums: {f'hold for all {len(sidecar.files)} files' if dump.whole else 'do not hold'}",
        f"signed: {_SIGNED[dump.signature]}",
        f"compared with: {sidecar.output.compared_with}",
    ]
    if sidecar.masked:
        lines.append(f"masked: {sidecar.masked}")
    if sidecar.output.error:
        lines.append(f"expected error: {sidecar.output.error.error_class}: {sidecar.output.error.message}")
    if sidecar.python_functions:
        lines.append(f"Python functions: {', '.join(sidecar.python_functions[:MOST_LINES])}")
    return lines


_SIGNED = {
    "yours": "with your key",
    "another's": "with another key than yours; loading it asks for --trust",
    "none": "no; loading it asks for --trust",
    None: "not checked",
}


def _plan(plan: PlanMeta) -> list[str]:
    lines = [f"plan.meta: {plan.operator_class}, {size(plan.n_bytes)}, {number(sum(plan.classes.values()))} objects"]
    lines += [f"{'  ' * min(node.depth, 20)}  {node.name}" for node in plan.nodes[:MOST_LINES]]
    if len(plan.nodes) > MOST_LINES:
        lines.append(f"  {len(plan.nodes) - MOST_LINES} more nodes")
    for function in plan.functions[:MOST_LINES]:
        facts = [function.evaluation, f"Python {function.python}" if function.python else None]
        told = ", ".join(fact for fact in [*facts, f"{size(function.n_bytes)} pickled"] if fact)
        lines.append(f"Python function {function.name}: {told}")
    if plan.attributes:
        shown = [f"{each.name} {each.type}" for each in plan.attributes[:12]]
        more = f" and {len(plan.attributes) - 12} more" if len(plan.attributes) > 12 else ""
        lines.append(f"attributes: {', '.join(shown)}{more}")
    return lines


def _input(one: InputFound) -> list[str]:
    of = f" (of {number(one.n_partitions)} in the original)" if one.n_partitions is not None else ""
    kind = f" ({one.kind})" if one.kind else ""
    facts = f"partitions: {number(one.n_dumped)}{of}, rows: {number(one.n_rows)}, files: {size(one.n_bytes)}"
    lines = [f"{one.name}{kind}: {facts}"]
    if one.meta is not None and one.meta.origin == "gpu" and one.n_dumped < one.meta.n_partitions:
        lines.append("  partitions without a folder were empty or not chosen: the plugin does not say which")
    return lines + [f"  {note}" for note in one.notes[:MOST_LINES]]


def _tables(found: Inspection, dump: DumpFound, limit: int) -> list[str]:
    """Partitions, largest first, and columns of one dump."""
    import polars as pl

    own = pl.col("lore_id") == dump.lore_id
    shown = []
    for declared, caption in ((tables.PARTITIONS, "Partitions, most rows first"), (tables.COLUMNS, "Columns")):
        frame: pl.DataFrame = getattr(found, declared.name).filter(own)
        for (name,), rows in frame.partition_by("input", as_dict=True, maintain_order=True).items():
            told = rows.drop("lore_id", "input")
            shown.append(table(_short(told), declared, caption=f"{caption}: {name}", limit=limit).text)
    return shown


def _short(frame: pl.DataFrame) -> pl.DataFrame:
    """Without columns that say nothing here, and with texts that fit a line."""
    import polars as pl

    optional = [name for name in ("note", "masked", "n_nan", "promised_batches") if name in frame.columns]
    empty = [name for name in optional if set(frame[name].unique()) <= {None, ""}]
    cut = [
        pl.col(name).str.slice(0, 120 if name == "note" else 40)
        for name in frame.columns
        if frame[name].dtype == pl.String
    ]
    return frame.with_columns(cut).drop(empty)


def document(found: Inspection) -> dict[str, Any]:
    """The inspection as one JSON document; tables end at 10,000 rows, with how many were left out."""
    listed = []
    for dump in found.dumps:
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
                "sidecar": _sidecar_document(dump),
                "plan": _plan_document(dump.plan) if dump.plan else None,
                "inputs": [_input_document(one) for one in dump.inputs],
            }
        )
    whole = {"answer": found.answer, "verdict": "invalid" if found.faults else "valid", "reasons": found.faults}
    frames = {declared.name: getattr(found, declared.name) for declared in tables.ALL}
    left_out = {name: max(0, frame.height - MOST_ROWS_OF_JSON) for name, frame in frames.items()}
    rows = {name: frame.head(MOST_ROWS_OF_JSON).to_dicts() for name, frame in frames.items()}
    return whole | {"dumps": listed} | rows | {"rows_left_out": left_out}


def _sidecar_document(dump: DumpFound) -> dict[str, Any] | None:
    if dump.sidecar is None:
        return None
    shown = dump.sidecar.model_dump(mode="json", exclude={"files", "hmac"})
    return shown | {"n_files": len(dump.sidecar.files)}


def _plan_document(plan: PlanMeta) -> dict[str, Any]:
    from dataclasses import asdict

    shown = asdict(plan)
    shown["names"] = sorted(plan.names)[:MOST_ROWS_OF_JSON]
    shown["classes"] = dict(list(plan.classes.items())[:MOST_ROWS_OF_JSON])
    shown["attributes"] = shown["attributes"][:MOST_ROWS_OF_JSON]
    return shown


def _input_document(one: InputFound) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "n_partitions": one.n_partitions,
        "n_dumped": one.n_dumped,
        "n_rows": one.n_rows,
        "n_bytes": one.n_bytes,
        "median_rows": one.median_rows,
        "notes": one.notes,
    }


def _cut(text: str) -> str:
    line = " ".join(text.split("\n"))
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "…"
