"""Commands of `workbench speedup`, one module each, and the options that several of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table


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


class Judged(Protocol):
    """A result with its verdict, reasons and answer."""

    @property
    def verdict(self) -> Literal["valid", "invalid"]: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...

    @property
    def answer(self) -> str: ...


def write_log_run(
    out: Path,
    command: str,
    title: str,
    config: Mapping[str, Any],
    frames: Iterable[tuple[Table, pl.DataFrame]],
    result: Judged,
    *,
    logs: str,
    details: Sequence[str] = (),
    digest: bool = True,
) -> None:
    """Write what a command found in event logs as a run folder.

    `logs`: Name of the field of `config` that holds the place of the logs; a URL there loses its user and password.
    `digest`: As for `Run.add_input`.
    """
    from workbench.eventlog.log_redaction import remove_secrets
    from workbench.runs import run_folder

    place = str(config[logs])
    place = remove_secrets(place) if "://" in place else place
    run = run_folder.start_run(
        "speedup", folder=out, title=title, config={**config, logs: place}, command=f"workbench speedup {command}"
    )
    for declared, frame in frames:
        run.write_table(declared, frame)
    run.add_input(place, digest=digest)
    run.conclude(result.verdict, result.reasons, result.answer, details=details)
