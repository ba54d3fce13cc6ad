"""`workbench speedup generate`: two sides in, a factor per operator out."""

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
    output: Annotated[Path, typer.Option(help="File to write: a factor model (.json), or CPUOperator,Score (.csv).")],
    recording: Annotated[
        Path | None, typer.Argument(help="Folder that `workbench speedup record` wrote; or give --cpu and --gpu.")
    ] = None,
    cpu: Annotated[
        list[str] | None, typer.Option(help="Event log(s) or a folder of them, without accelerator; repeatable.")
    ] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Event log(s) of the accelerated side; repeatable.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Name of the baseline: a side of the recording.")] = None,
    candidate: Annotated[str | None, typer.Option(help="Name of the candidate.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the tables as a run folder here.")] = None,
    level: Annotated[float, typer.Option(help="Confidence of the intervals, as a share.")] = 0.9,
    method: Annotated[Method, typer.Option(help="How factors are made.")] = Method.calibrated,
    verbose: Annotated[bool, typer.Option("--verbose", help="Seed method: print times per operator.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Write a factor per operator: how many times faster it is on the candidate.

    Each log is one session: give five a side for intervals worth having. Exit code 1 when the pair is no fair one
    (the factors are written, the reasons said).

    Example: workbench speedup generate data/samples/speedup/tpch-sf1 --output factors.json
    """
    from workbench.errors import ConfigError
    from workbench.speedup.commands import calibrated
    from workbench.speedup.commands.seed import seed_generate

    if method is Method.seed:
        if recording is not None or len(cpu or []) != 1 or len(gpu or []) != 1:
            raise ConfigError(
                "the seed method takes one path a side", do="give --cpu PATH --gpu PATH, folders for many"
            )
        seed_generate((cpu or [""])[0], (gpu or [""])[0], output, verbose=verbose)
        return
    if output.suffix.lower() not in (".json", ".csv"):
        raise ConfigError("unknown kind of output", where="--output", found=output.name, allowed=["*.json", "*.csv"])
    found = calibrated.load_pair(recording, cpu or [], gpu or [], baseline, candidate)
    raise typer.Exit(calibrated.generate(found, output, out=out, level=level, as_json=as_json))
