"""`workbench speedup validate`: estimates against accelerated runs that were measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.speedup.commands.generate import Method


def validate(
    cpu_log: Annotated[str, typer.Option("--cpu_log", "--cpu-log", help="Event log(s) without accelerator.")],
    gpu_log: Annotated[str, typer.Option("--gpu_log", "--gpu-log", help="Accelerated event log(s).")],
    output: Annotated[Path, typer.Option(help="New folder for profiles, factors and estimates.")],
    method: Annotated[Method, typer.Option(help="How factors and estimates are made.")] = Method.calibrated,
    speedups: Annotated[Path | None, typer.Option(help="Factor file to use instead of a generated one.")] = None,
    cpu_profile: Annotated[
        Path | None, typer.Option("--cpu_profile", "--cpu-profile", help="Profile of the CPU log, made before.")
    ] = None,
    gpu_profile: Annotated[
        Path | None, typer.Option("--gpu_profile", "--gpu-profile", help="Profile of the accelerated log.")
    ] = None,
    jar: Annotated[Path | None, typer.Option(help="Accepted for old command lines; not needed.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print times per operator and factors.")] = False,
) -> None:
    """Generate factors, estimate with them, and print how far the estimates are from what was measured.

    Example: workbench speedup validate --method seed --cpu_log cpu.zstd --gpu_log gpu.zstd --output out
    """
    from workbench.errors import ConfigError
    from workbench.speedup.commands.seed import seed_validate

    if method is not Method.seed:
        raise ConfigError("this command has one method so far", where="--method", found=method.value, allowed="seed")
    seed_validate(
        cpu_log,
        gpu_log,
        output,
        speedups=speedups,
        cpu_profile=cpu_profile,
        gpu_profile=gpu_profile,
        jar=jar,
        verbose=verbose,
    )
