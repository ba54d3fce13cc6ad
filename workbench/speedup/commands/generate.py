"""`workbench speedup generate`: two runs in, a factor per operator out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Method(StrEnum):
    """How factors are made: from measured operator times, or as the original scripts did."""

    calibrated = "calibrated"
    seed = "seed"


def generate(
    cpu: Annotated[str, typer.Option(help="Runs without accelerator: event log(s), or a folder of profiles.")],
    gpu: Annotated[str, typer.Option(help="Accelerated runs: event log(s), or a folder of profiles.")],
    output: Annotated[Path, typer.Option(help="Factor file to write (CPUOperator,Score).")],
    method: Annotated[Method, typer.Option(help="How factors are made.")] = Method.calibrated,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print times per operator and factors.")] = False,
) -> None:
    """Write a factor per operator from a run without and a run with the accelerator.

    Example: workbench speedup generate --method seed --cpu cpu.zstd --gpu gpu.zstd --output factors.csv
    """
    from workbench.errors import ConfigError
    from workbench.speedup.commands.seed import seed_generate

    if method is not Method.seed:
        raise ConfigError("this command has one method so far", where="--method", found=method.value, allowed="seed")
    seed_generate(cpu, gpu, output, verbose=verbose)
