"""`workbench scaletest compare`: compare the runs of two variants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER…", help="One folder written by `run --scheduler A,B`, or two run folders: A and B."
        ),
    ],
    clock: Annotated[
        str | None,
        typer.Option(help="Clock of the times: client, server, mixed.", show_default="client; mixed for imported runs"),
    ] = None,
    all_steps: Annotated[bool, typer.Option("--all", help="Show every step, not only those that differ.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare two variants step by step: which is faster, by what ratio.

    The unit of replication is the run, because the workloads of one run share its queue. Ratios are taken of each run's
    p50 and p95, in pairs by turn, with 95 % intervals corrected over all steps (Holm). With one run per variant the
    difference is shown without a verdict. A quantile that some run never reached gets no verdict; the reason names the
    variant.

    Exit code 0 when all runs are valid, 1 when one is not; the reasons are printed.

    Example: workbench scaletest compare data/runs/scaletest/20261122T031500Z-1a2b3c
    """
    from workbench.console.finish import finish_command
    from workbench.core.errors import ConfigError, InputError
    from workbench.scaletest.analysis import terminal_report, variants

    if clock is not None and clock not in variants.CLOCKS:
        raise ConfigError("unknown clock", where="--clock", found=clock[:40], allowed=variants.CLOCKS)
    if len(runs) > 2:
        raise ConfigError("too many folders to compare", where="FOLDER", found=len(runs), allowed="one or two")
    sides = variants.read_variants(runs[0]) if len(runs) == 1 else variants.combine_variants(runs[:1], runs[1:])
    if len(sides.names) < 2:
        raise ConfigError(
            "only one variant: nothing to compare with",
            where=runs[0],
            found=sides.names[0],
            do="name a second folder, or measure both: workbench scaletest run --scheduler default,kai",
        )
    if not sides.pairs:
        raise InputError(
            "no turn has a run of both variants", where=runs[0], do=f"workbench scaletest run --resume {runs[0]}"
        )
    comparison = sides.comparison(clock)
    finish_command(
        lambda: terminal_report.print_comparison(sides, comparison, all_steps=all_steps),
        lambda: terminal_report.format_comparison_json(sides, comparison),
        as_json=as_json,
        is_valid=not sides.reasons,
    )
