"""`workbench lore inspect`: what is in a dump, ours or the GPU plugin's, without Spark and without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.lore.inspection.inspecting import Inspection


def inspect(
    path: Annotated[Path, typer.Argument(help="loreId-N, or a folder with such folders in it.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Write the tables as a run folder here.")] = None,
    rows: Annotated[
        int, typer.Option(help="Rows of each input whose values are looked at; 0 for none.", min=0)
    ] = 1_000_000,
    top: Annotated[int, typer.Option(help="Rows of each table to print.", min=1, max=1000)] = 12,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Say what a dump holds: operator, inputs, partitions and their skew, columns and their values.

    Reads dumps of the RAPIDS accelerator, too. Starts no JVM and unpickles nothing, so that a dump of anybody may be
    looked into. Exit code 1 when something is damaged or never loaded.

    Example: workbench lore inspect dump/loreId-7
    """
    from workbench.lore.inspection import text
    from workbench.lore.inspection.inspecting import inspect as inspected
    from workbench.terminal import say

    found = inspected(path, most_rows=rows)
    if out is not None:
        _write(found, path, out, rows)
    if as_json:
        import json

        typer.echo(json.dumps(text.document(found) | {"out": str(out) if out else None}, indent=2))
    else:
        say(text.text_of(found, limit=top))
        if out is not None:
            say(f"\ntables: {out}")
    raise typer.Exit(1 if found.faults else 0)


def _write(found: Inspection, path: Path, out: Path, rows: int) -> None:
    from workbench import runs
    from workbench.lore.inspection import tables

    settings = {"path": str(path), "rows": rows}
    run = runs.start("lore", folder=out, title="Inspection", config=settings, command="workbench lore inspect")
    for declared in tables.ALL:
        run.write_table(declared, getattr(found, declared.name))
    run.add_input(path, digest=False)
    run.conclude("invalid" if found.faults else "valid", found.faults, found.answer)
