"""`workbench scaletest show`: what a run says, worked out anew from what it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, also of a run that was broken off.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Work a run out from its lines, write its tables, and say what they say.

    Also for a run that was killed: what had been seen until then is told, with what is missing. The report with its
    charts: workbench run scaletest -p runs=RUN

    Exit code 0 when the run is valid, 1 when it is not (the reasons are told).

    Example: workbench scaletest show data/runs/scaletest/20261122T031500Z-1a2b3c
    """
    from workbench.errors import ConfigError
    from workbench.scaletest import records, reducing, sides, telling
    from workbench.scaletest.analysing import analyse

    if (folder / sides.FILE).is_file():
        raise ConfigError(
            "these are runs by side, not one run",
            where=folder,
            found=[one.folder for one in sides.read_session(folder).runs][:10],
            do=f"show one of them, or: workbench scaletest compare {folder}",
        )
    # A recorded sample, or an imported run, has its tables and no lines.
    if (folder / records.JOURNAL).is_file():
        reducing.reduce(folder)
    found = analyse(folder)
    if as_json:
        typer.echo(telling.run_json(found))
    else:
        telling.say_run(found)
    raise typer.Exit(1 if found.reasons else 0)
