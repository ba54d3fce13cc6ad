"""`workbench lore inspect`: contents of a dump, ours or the GPU plugin's, without Spark and without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command

if TYPE_CHECKING:
    from workbench.lore.dump_reader.dump_inspection import Inspection


def inspect(
    path: Annotated[Path, typer.Argument(help="loreId-N, or a folder with such folders in it.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Write the tables as a run folder here.")] = None,
    rows: Annotated[
        int, typer.Option(help="Rows of each input whose values are looked at; 0 for none.", min=0)
    ] = 1_000_000,
    top: Annotated[int, typer.Option(help="Rows of each table to print.", min=1, max=1000)] = 12,
    as_json: JsonFlag = False,
) -> None:
    """Show the contents of a dump: operator, inputs, partitions and their skew, columns and their values.

    Reads dumps of the RAPIDS accelerator, too. It starts no JVM and unpickles nothing, so it is safe on dumps that you
    do not trust. Exit code 1 when something is damaged or never loaded.

    Example: workbench lore inspect dump/loreId-7
    """
    from workbench.lore.dump_reader import inspection_text
    from workbench.lore.dump_reader.dump_inspection import inspect_dumps

    inspection = inspect_dumps(path, max_rows=rows)
    if out is not None:
        _write_run(inspection, path, out, rows)
    finish_command(
        lambda: inspection_text.format_inspection(inspection, limit=top),
        lambda: inspection_text.build_document(inspection) | {"out": str(out) if out else None},
        as_json=as_json,
        is_valid=not inspection.faults,
        written=[] if out is None else [out],
    )


def _write_run(inspection: Inspection, path: Path, out: Path, rows: int) -> None:
    from workbench.lore import tables
    from workbench.runs import run_folder

    settings = {"path": str(path), "rows": rows}
    run = run_folder.start_run(
        "lore", folder=out, title="Inspection", config=settings, command="workbench lore inspect"
    )
    for declared in tables.INSPECTION_TABLES:
        run.write_table(declared, getattr(inspection, declared.name))
    run.add_input(path, digest=False)
    run.conclude("invalid" if inspection.faults else "valid", inspection.faults, inspection.answer)
