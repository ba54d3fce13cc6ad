"""`workbench indicators export`: a session for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The session.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.json|DIR", help="FILE.json: one suite of all arms. DIR: one file an arm, to be compared."
        ),
    ],
    form: Annotated[str, typer.Option("--format", help="pyperf.")] = "pyperf",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write a session as pyperf's JSON: one benchmark for each metric and arm, one run for each run.

    Times are in seconds and sizes in bytes; what has another unit is left out and named. pyperf does not know of
    rounds: what its compare_to finds may be the machine's drift. Verdicts are in the session's own report.

    Example: workbench indicators export SESSION --out suites/ && pyperf compare_to suites/*.json --table
    """
    import json

    from workbench.errors import ConfigError
    from workbench.indicators.exchange import pyperf
    from workbench.terminal import say

    if form != "pyperf":
        raise ConfigError("no such format", where="--format", found=form, allowed="pyperf")
    found = pyperf.export(folder, out)
    if as_json:
        paths = [str(path) for path in found.paths]
        typer.echo(
            json.dumps({"paths": paths, "benchmarks": found.benchmarks, "runs": found.runs, "notes": found.notes})
        )
        return
    for note in found.notes:
        say(f"left out: {note}")
    for path in found.paths:
        say(str(path))
    say(f"{found.benchmarks} benchmarks, {found.runs} runs")
