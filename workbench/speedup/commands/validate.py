"""`workbench speedup validate`: predictions compared with measured times."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.speedup.commands import Baseline, Candidate, FirstRuns, Level, Method, SeedVerbose, UseFirstRuns


def validate(
    recording: Annotated[
        Path | None, typer.Argument(help="Folder that `workbench speedup record` wrote, or of the logs of two engines.")
    ] = None,
    cpu_log: Annotated[
        list[str] | None, typer.Option("--cpu_log", "--cpu-log", "--cpu", help="Event log(s) without accelerator.")
    ] = None,
    gpu_log: Annotated[
        list[str] | None, typer.Option("--gpu_log", "--gpu-log", "--gpu", help="Accelerated event log(s).")
    ] = None,
    baseline: Baseline = None,
    candidate: Candidate = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "--out", help="New folder: run folder with the tables; seed method: all its files."),
    ] = None,
    level: Level = 0.9,
    first_runs: UseFirstRuns = FirstRuns.auto,
    seed: Annotated[
        bool, typer.Option(help="Also show the seed method's predictions (about 20 s more for ten logs).")
    ] = True,
    method: Annotated[Method, typer.Option(help="How factors and predictions are made.")] = Method.calibrated,
    speedups: Annotated[
        Path | None, typer.Option(help="Seed method: factor file to use; generated from the logs by default.")
    ] = None,
    cpu_profile: Annotated[
        Path | None, typer.Option("--cpu_profile", "--cpu-profile", help="Seed method: profile of the CPU log.")
    ] = None,
    gpu_profile: Annotated[
        Path | None, typer.Option("--gpu_profile", "--gpu-profile", help="Seed method: profile of the GPU log.")
    ] = None,
    jar: Annotated[Path | None, typer.Option(help="Accepted for old command lines; not needed.")] = None,
    verbose: SeedVerbose = False,
    as_json: JsonFlag = False,
) -> None:
    """Predict each query from all the others, and compare the errors with those of simpler predictors.

    The seed method is validated as its script did: on the pair that its factors come from.

    Example: workbench speedup validate data/samples/speedup/tpch-sf1
    """
    from workbench.core.errors import ConfigError
    from workbench.speedup.commands import methods

    if method is Method.calibrated:
        pair = methods.load_pair(recording, cpu_log or [], gpu_log or [], baseline, candidate, first_runs.value)
        methods.validate_calibrated_model(pair, out=output, level=level, seed=seed, as_json=as_json)
    if recording is not None or len(cpu_log or []) != 1 or len(gpu_log or []) != 1 or output is None:
        raise ConfigError("the seed method takes one log per side", do="give --cpu_log LOG --gpu_log LOG --output DIR")
    logs = (cpu_log or [""])[0], (gpu_log or [""])[0]
    profiles = cpu_profile, gpu_profile
    methods.validate_seed_method(logs, output, speedups=speedups, profiles=profiles, jar=jar, verbose=verbose)
