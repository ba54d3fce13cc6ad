"""`workbench indicators export`: export a session for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The session.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.json|DIR", help="FILE.json: one suite with all arms. DIR: one file per arm, for compare_to."
        ),
    ],
    form: Annotated[str, typer.Option("--format", help="pyperf.")] = "pyperf",
    as_json: JsonFlag = False,
) -> None:
    """Write a session in pyperf's JSON format: one benchmark per metric and arm.

    Times are converted to seconds and sizes to bytes; metrics with other units are listed and skipped. pyperf ignores
    rounds, so differences that its compare_to finds may be drift of the machine. Verdicts are in the session's report.

    Example: workbench indicators export SESSION --out suites/ && pyperf compare_to suites/*.json --table
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.store import pyperf_suites

    if form != "pyperf":
        raise ConfigError("no such format", where="--format", found=form, allowed="pyperf")
    result = pyperf_suites.export_session(folder, out)
    lines = [*(f"skipped: {note}" for note in result.notes), *map(str, result.paths)]
    finish_command(
        "\n".join([*lines, f"{result.benchmarks} benchmarks, {result.runs} runs"]),
        {"paths": result.paths, "benchmarks": result.benchmarks, "runs": result.runs, "notes": result.notes},
        as_json=as_json,
    )
