"""`workbench speedup generate`: a factor per operator from the logs of two sides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag
from workbench.speedup.commands import (
    Baseline,
    Candidate,
    FirstRuns,
    Level,
    Method,
    Recordings,
    RunFolder,
    SeedVerbose,
    UseFirstRuns,
)


def generate(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="File to write: a factor model (.json), or CPUOperator,Score (.csv).")],
    recordings: Recordings = None,
    cpu: Annotated[
        list[str] | None, typer.Option(help="Event log(s) or a folder of them, without accelerator; repeatable.")
    ] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Event log(s) of the accelerated side; repeatable.")] = None,
    baseline: Baseline = None,
    candidate: Candidate = None,
    out: RunFolder = None,
    level: Level = 0.9,
    first_runs: UseFirstRuns = FirstRuns.auto,
    method: Annotated[Method, typer.Option(help="How factors are made.")] = Method.calibrated,
    verbose: SeedVerbose = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a factor per operator: how many times faster it is on the candidate.

    Each log is one session; five per side give useful intervals. A pair whose queries ran once each, such as a Power
    Run, is compared by these first runs, with wide intervals. Exit code 1 when the comparison is not fair: the
    factors are written, and the reasons are printed. A rapids_4_spark_profile folder implies --method seed; there,
    exit code 1 when a log or an application could not be used: it is named, and the others are.

    Factors of several recordings of the same engines rest on the queries of all.

    Example: workbench speedup generate sample:tpch-sf1 --output factors.json
    """
    from workbench.core.errors import ConfigError
    from workbench.speedup.commands import methods

    method = methods.infer_method(context, method, methods.find_profile([*(cpu or []), *(gpu or [])]))
    kinds = [".csv"] if method is Method.seed else [".json", ".csv"]
    if output.suffix.lower() not in kinds or output.is_dir():
        allowed = [f"*{kind}" for kind in kinds]
        raise ConfigError(
            f"unknown kind of output for --method {method.value}", where="--output", found=output.name, allowed=allowed
        )
    if method is Method.seed:
        if recordings or len(cpu or []) != 1 or len(gpu or []) != 1:
            raise ConfigError(
                "the seed method takes one path per side", do="give --cpu PATH --gpu PATH, folders for several logs"
            )
        methods.refuse_unused_flags(context, "baseline candidate out level first_runs as_json", "the seed method")
        methods.generate_seed_factors((cpu or [""])[0], (gpu or [""])[0], output, verbose=verbose)
        return
    methods.refuse_unused_flags(context, "verbose", "the calibrated method", "add --method seed, or remove it")
    pair = methods.load_pair(recordings or [], cpu or [], gpu or [], baseline, candidate, first_runs.value)
    methods.generate_calibrated_model(pair, output, out=out, level=level, as_json=as_json)
