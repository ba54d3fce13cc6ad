"""Commands of `workbench speedup`, one module each, and the options that several of them share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Method(StrEnum):
    """How factors and predictions are made: from measured operator times, or as the original scripts did."""

    calibrated = "calibrated"
    seed = "seed"


class FirstRuns(StrEnum):
    """Whether the first run of each query in a session is compared."""

    auto = "auto"
    use = "use"
    skip = "skip"


Baseline = Annotated[str | None, typer.Option(help="Name of the baseline: a side of the recording.")]
Candidate = Annotated[str | None, typer.Option(help="Name of the candidate.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals, as a share.")]
MinRatio = Annotated[float, typer.Option(help="Minimum ratio of a recommendation.")]
Recordings = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Folders that `workbench speedup record` wrote, joined if several; or a folder of the logs of two engines."
    ),
]
RunFolder = Annotated[Path | None, typer.Option(help="Write the tables as a run folder here.")]
UseFirstRuns = Annotated[
    FirstRuns,
    typer.Option(help="Compare the first run of each query; auto: where no query ran warm on both sides."),
]
SeedVerbose = Annotated[bool, typer.Option("--verbose", help="Seed method: print times per operator.")]
