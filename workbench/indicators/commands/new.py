"""`workbench indicators new`: write the skeleton of a new indicator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it measures, such as FftSize or fft-size.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write into; created if missing.")] = Path(),
    sql: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A query for DuckDB, to be measured in place of the example's work."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a new indicator: its declaration, its script and a test, all ready to run.

    An indicator is a class and a script. The class declares parameters, results (unit, direction, tolerance) and
    checks of the answer. The script gets its parameters from environment variables, measures, and prints one JSON
    document; it runs with the Python of a stack, where the workbench is not installed. The skeleton sorts numbers:
    change the work, the names, then the test. --sql writes one whose work is your query: its last statement is
    measured, those before it make the tables; files are named by absolute paths.

    Results get typed tables of their own, without a migration. A later change of the class or the script makes a new
    version, which is never compared with the old one. Existing files are never overwritten.

    Example: workbench indicators new FftSize --out indicators
    """
    import shlex

    from workbench.indicators.contract.new_indicator import write_skeleton

    skeleton = write_skeleton(name, out, sql=sql)
    declaration, script, test = (shlex.quote(str(path)) for path in skeleton.paths[:3])
    stacks = "--stack numpy==2.2.6 --stack numpy==1.26.4" if sql is None else "--stack duckdb==1.3.2 --stack duckdb"
    named = shlex.quote(skeleton.reference)
    steps = [
        f"python {script}",
        f"python -m pytest {test}",
        f"workbench indicators run --indicator {named} {stacks}",
    ]
    labels = ("its document", "its test", "measure it on two stacks")
    lines = [f"{skeleton.name} is declared in {declaration}, measured by {script}, tested by {test}."]
    finish_command(
        "\n".join([*lines, *(f"  {label}:\n    {step}" for label, step in zip(labels, steps, strict=True))]),
        {"name": skeleton.name, "indicator": skeleton.reference, "written": skeleton.paths, "next": steps},
        as_json=as_json,
    )
