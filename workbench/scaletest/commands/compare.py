"""`workbench scaletest compare`: two sides of one plan, with the run as the unit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER…", help="A folder of runs by side (from `run --scheduler default,kai`), or two: A and B."
        ),
    ],
    clock: Annotated[
        str | None,
        typer.Option(help="Whose times: client, server, mixed.", show_default="client; mixed for imported runs"),
    ] = None,
    all_steps: Annotated[bool, typer.Option("--all", help="Every step; without it those that are told apart.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Say in which steps side B is faster or slower than side A.

    The unit is the run: the 500 workloads of one run shared its queue and its minute. Ratios are of each run's p50 and
    p95, in pairs by turn, with 95 % intervals; claims hold over all steps together. With one run a side the difference
    is shown and nothing is claimed. Where more workloads than that never got there in some run, nothing is claimed
    either, and the side is named.

    Exit code 0 when the runs are valid, 1 when one of them is not (the reasons are told).

    Example: workbench scaletest compare data/runs/scaletest/20261122T031500Z-1a2b3c
    """
    from workbench.errors import ConfigError, InputError
    from workbench.scaletest import sides, telling

    if clock is not None and clock not in sides.CLOCKS:
        raise ConfigError("no such clock", where="--clock", found=clock[:40], allowed=sides.CLOCKS)
    if len(runs) > 2:
        raise ConfigError("compare takes one folder, or two", where="FOLDER", found=len(runs))
    found = sides.read(runs[0]) if len(runs) == 1 else sides.together(runs[:1], runs[1:])
    if len(found.names) < 2:
        raise ConfigError(
            "one side alone cannot be compared",
            where=runs[0],
            found=found.names[0],
            do="name a second folder, or measure both: workbench scaletest run --scheduler default,kai",
        )
    if not found.pairs:
        raise InputError(
            "no turn has a run of both sides", where=runs[0], do=f"workbench scaletest run --resume {runs[0]}"
        )
    comparison = found.comparison(clock)
    if as_json:
        typer.echo(telling.comparison_json(found, comparison))
    else:
        telling.say_comparison(found, comparison, all_steps=all_steps)
    if found.reasons:
        raise typer.Exit(1)
