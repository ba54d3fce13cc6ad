"""`workbench speedup validate`: predictions against what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.speedup.commands.generate import Method


def validate(
    recording: Annotated[
        Path | None, typer.Argument(help="Folder that `workbench speedup record` wrote; or give logs of both sides.")
    ] = None,
    cpu_log: Annotated[
        list[str] | None, typer.Option("--cpu_log", "--cpu-log", "--cpu", help="Event log(s) without accelerator.")
    ] = None,
    gpu_log: Annotated[
        list[str] | None, typer.Option("--gpu_log", "--gpu-log", "--gpu", help="Accelerated event log(s).")
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="Name of the baseline: a side of the recording.")] = None,
    candidate: Annotated[str | None, typer.Option(help="Name of the candidate.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "--out", help="New folder: run folder with the tables; seed method: all its files."),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence of the intervals, as a share.")] = 0.9,
    seed: Annotated[
        bool, typer.Option(help="Put the seed method's predictions beside (about 20 s more for ten logs).")
    ] = True,
    method: Annotated[Method, typer.Option(help="How factors and predictions are made.")] = Method.calibrated,
    speedups: Annotated[Path | None, typer.Option(help="Seed method: factor file instead of a generated one.")] = None,
    cpu_profile: Annotated[
        Path | None, typer.Option("--cpu_profile", "--cpu-profile", help="Seed method: profile of the CPU log.")
    ] = None,
    gpu_profile: Annotated[
        Path | None, typer.Option("--gpu_profile", "--gpu-profile", help="Seed method: profile of the GPU log.")
    ] = None,
    jar: Annotated[Path | None, typer.Option(help="Accepted for old command lines; not needed.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Seed method: print times per operator.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Predict each query from all the others, and say how far off that is, beside simpler predictors.

    The seed method is validated as its script did: on the pair that its factors come from.

    Example: workbench speedup validate data/samples/speedup/tpch-sf1
    """
    from workbench.errors import ConfigError
    from workbench.speedup.commands import calibrated
    from workbench.speedup.commands.seed import seed_validate

    if method is Method.calibrated:
        found = calibrated.load_pair(recording, cpu_log or [], gpu_log or [], baseline, candidate)
        raise typer.Exit(calibrated.validate(found, out=output, level=level, seed=seed, as_json=as_json))
    if recording is not None or len(cpu_log or []) != 1 or len(gpu_log or []) != 1 or output is None:
        raise ConfigError("the seed method takes one log a side", do="give --cpu_log LOG --gpu_log LOG --output DIR")
    seed_validate(
        (cpu_log or [""])[0],
        (gpu_log or [""])[0],
        output,
        speedups=speedups,
        cpu_profile=cpu_profile,
        gpu_profile=gpu_profile,
        jar=jar,
        verbose=verbose,
    )
