"""`workbench speedup qualify`: logs and factors in, estimates per application out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.speedup.commands.generate import Method


def qualify(
    logs: Annotated[list[str] | None, typer.Argument(help="Event logs, or folders of them.")] = None,
    eventlogs: Annotated[list[str] | None, typer.Option("--eventlogs", help="The same, as an option.")] = None,
    factors: Annotated[
        Path | None,
        typer.Option("--factors", "--speedup-factor-file", help="Factor file (CPUOperator,Score)."),
    ] = None,
    platform: Annotated[str | None, typer.Option(help="Built-in factors, for example onprem-a100.")] = None,
    local_folder: Annotated[
        Path | None, typer.Option("--local_folder", "--local-folder", help="Write the estimates' files below it.")
    ] = None,
    method: Annotated[Method, typer.Option(help="How estimates are made.")] = Method.calibrated,
) -> None:
    """Estimate how long applications would take on the accelerator, the most promising first.

    Example: workbench speedup qualify --method seed app.zstd --platform onprem-a100
    """
    from workbench.errors import ConfigError
    from workbench.speedup.commands.seed import seed_factors, seed_qualify

    if method is not Method.seed:
        raise ConfigError("this command has one method so far", where="--method", found=method.value, allowed="seed")
    paths = [*(logs or []), *(eventlogs or [])]
    if not paths:
        raise ConfigError("no event log given", do="workbench speedup qualify LOG --platform onprem-a100")
    seed_qualify(paths, seed_factors(factors, platform), local_folder)
