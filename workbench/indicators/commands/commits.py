"""`workbench indicators commits`: how a metric went over the commits of one's own project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.indicators.commands import MoreRequirements, Repository, Subfolder, refuse_resumed_settings


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    "ends repository subfolder indicators script better max_download_bytes",
    units={"s": "S"},
    groups=("Commits", "What runs", "Measurement"),
    omit="pytest pyperf output warmup margin",
)
def commits(
    settings: OptionValues,
    ends: Annotated[
        str | None, typer.Argument(metavar="OLD..NEW", help="First and last commit, such as v1.2..HEAD.")
    ] = None,
    repository: Repository = Path(),
    subfolder: Subfolder = ".",
    fixed: MoreRequirements = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel="What runs", help="Metric to follow.", show_default="the only one"
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="S", min=0, help="Time after which no other commit is measured.")
    ] = 900.0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the series' own folder.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the series in this folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Follow a metric over the commits of your own project, within a budget of time.

    Both ends are measured against each other, then one commit after the other against the first one, in rounds and
    beside a control: first where the largest change lies between two commits, then where the longest gap may hide one.
    Each commit on the first-parent line is built once to a wheel; building runs its code. --resume goes on later.

    Exit code 0 if the ends could be compared, else 1.

    Example: workbench indicators commits v1.2..HEAD --script BENCH.py --budget 1800
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.measurement import version_bisection
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    if resume is not None:
        arguments = {"OLD..NEW": ends, "--with": fixed, "--out": out}
        place = {"--repository": repository != Path(), "--subfolder": subfolder != "."}
        refuse_resumed_settings("series", settings, {**arguments, **place}, allowed="--metric, --budget")
        bisection = version_bisection.load_bisection(resume, metric=metric)
    elif ends is None:
        raise ConfigError("no range of commits", where="OLD..NEW", do="give one, such as v1.2..HEAD; or --resume DIR")
    else:
        bisection = version_bisection.start_commit_bisection(
            ends,
            settings.build_model(SessionConfig),
            repository=repository,
            subfolder=subfolder,
            requirements=tuple(fixed or ()),
            metric=metric,
            out=out,
        )
    series = version_bisection.measure_bisection(
        bisection, watch=select_watcher, command=format_command_line(), series_budget_s=budget
    )
    answer = version_bisection.format_series_answer(series)
    finish_command(
        lambda: version_bisection.format_bisection(series, answer),
        lambda: version_bisection.build_bisection_document(series) | {"answer": answer},
        as_json=as_json,
        is_valid=not series.reasons,
        is_cancelled=series.interrupted,
    )
