"""`workbench indicators bisect`: which version of a package made an indicator slower, or faster?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.indicators.commands import refuse_resumed_settings


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    "package versions_range commits repository subfolder indicators script better max_download_bytes",
    {
        "indicators": FieldOption(
            help="What to measure: a shipped indicator, module:Class, or file.py:Class (its code runs)."
        ),
        "script": FieldOption(help="Measure a script that prints a document; name=value sets PI_NAME."),
        "max_download_bytes": FieldOption(group="Versions"),
        "seed": FieldOption(show_default="random for each session"),
    },
    units={"s": "S"},
    groups=("Versions", "What runs", "Measurement"),
    omit="pytest pyperf output warmup margin",
)
def bisect(
    settings: OptionValues,
    package: Annotated[str | None, typer.Argument(metavar="PACKAGE", help="Name of the package.")] = None,
    versions_range: Annotated[
        str | None, typer.Argument(metavar="OLD..NEW", help="Oldest and newest version, such as 2.2.0..2.3.3.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel="What runs", help="Metric to search by.", show_default="the only one"
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            rich_help_panel="Versions",
            metavar="REQUIREMENT",
            help="Requirement of another package. Repeatable.",
        ),
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(
            metavar="V,V,…",
            rich_help_panel="Versions",
            help="Versions between.",
            show_default="all final ones that have a wheel",
        ),
    ] = None,
    commits: Annotated[
        str | None,
        typer.Option(
            metavar="OLD..NEW",
            rich_help_panel="Versions",
            help="Search the commits of your own project in place of a package's versions. Building runs its code.",
        ),
    ] = None,
    repository: Annotated[
        Path, typer.Option(metavar="DIR", rich_help_panel="Versions", help="With --commits: the repository.")
    ] = Path(),
    subfolder: Annotated[
        str, typer.Option(metavar="PATH", rich_help_panel="Versions", help="With --commits: the project in it.")
    ] = ".",
    max_probes: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", rich_help_panel="Versions", help="Limit of versions to try.", show_default="as needed"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the bisection's own folder.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Resume the bisection in this folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find the version of a package that made an indicator slower or faster.

    All versions of the range are solved first, with all other packages as the solver chooses them. Both ends are
    measured against each other, in rounds and beside a control as by `run`; if they differ, one version after the other
    is measured against the oldest, each time in the middle of the largest step. The answer counts if the two versions
    of the step are told apart by more than the margin; where that is open, they are measured against each other.

    Each session is a folder in DIR/bisect-PACKAGE-…, as of `run`. Ctrl-C lets the current run end; --resume continues,
    also after a kill.

    Exit code 0 if the version is found, 1 if it is not known (also if both ends are the same), 130 after Ctrl-C.

    With --commits, each commit on the first-parent line is built once to a wheel, when it is measured.

    Example: workbench indicators bisect pandas 2.2.0..2.3.3 --indicator groupby

    Your own commits: workbench indicators bisect --commits v1.2..HEAD --script BENCH.py
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.measurement import version_bisection
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    if resume is not None:
        arguments = {"PACKAGE": package, "--with": fixed, "--versions": versions, "--commits": commits, "--out": out}
        place = {"--repository": repository != Path(), "--subfolder": subfolder != "."}
        refuse_resumed_settings("bisection", settings, {**arguments, **place}, allowed="--metric, --max-probes")
        bisection = version_bisection.load_bisection(resume, metric=metric, max_probes=max_probes)
    elif commits is not None:
        if unused := [name for name, value in {"PACKAGE": package, "--versions": versions}.items() if value]:
            raise ConfigError("only used without --commits", where=unused[0], do="leave it out")
        bisection = version_bisection.start_commit_bisection(
            commits,
            settings.build_model(SessionConfig),
            repository=repository,
            subfolder=subfolder,
            metric=metric,
            max_probes=max_probes,
            requirements=tuple(fixed or ()),
            out=out,
        )
    else:
        if package is None or versions_range is None:
            raise ConfigError(
                "no package and range of versions",
                where="PACKAGE OLD..NEW",
                found=package or "none",
                do="give both, such as pandas 2.2.0..2.3.3; or --commits OLD..NEW; or --resume DIR",
            )
        config = settings.build_model(SessionConfig)
        with select_watcher() as watcher:
            bisection = version_bisection.start_bisection(
                package,
                versions_range,
                config,
                named=versions.split(",") if versions else (),
                requirements=tuple(fixed or ()),
                metric=metric,
                max_probes=max_probes,
                out=out,
                progress=partial(watcher.report_preparation, "solved"),
            )
    outcome = version_bisection.measure_bisection(bisection, watch=select_watcher, command=format_command_line())
    finish_command(
        lambda: version_bisection.format_bisection(outcome),
        lambda: version_bisection.build_bisection_document(outcome),
        as_json=as_json,
        is_valid=outcome.found,
        is_cancelled=outcome.interrupted,
    )
