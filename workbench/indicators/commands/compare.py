"""`workbench indicators compare`: is the later of two commits slower? For a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.indicators.commands import MoreRequirements, Repository, Subfolder


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    "base head repository subfolder indicators script pytest pyperf better output max_download_bytes",
    units={"s": "S"},
    groups=("Commits", "What runs", "Measurement"),
    omit="warmup",
)
def compare(
    settings: OptionValues,
    base: Annotated[str, typer.Argument(metavar="BASE", help="The earlier commit: branch, tag or id.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="The later one; . is the work tree as it is.")] = "HEAD",
    repository: Repository = Path(),
    subfolder: Subfolder = ".",
    fixed: MoreRequirements = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the text of a comment to this file.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the verdict of each metric as test results.")
    ] = None,
    count: Annotated[
        Literal["instructions"] | None,
        typer.Option(
            help="Judge scripts by the instructions of their process, too (perf, or valgrind): where time is noisy."
        ),
    ] = None,
    accept_undecided: Annotated[
        bool, typer.Option("--accept-undecided", help="Let metrics pass of which too little is known.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the session's own folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure two commits of your own project against each other: is any metric worse?

    Both are built to wheels, once, and measured in rounds beside a control as by `run`, on this machine: figures of
    another runner are never compared. Building runs the project's code. Your work tree stays as it is.

    Exit code 0 if no metric is worse, 1 if one is, or if that is not known: an invalid session, an undecided metric.

    Example: workbench indicators compare main HEAD --script BENCH.py --markdown FILE.md --junit FILE.xml
    """
    from dataclasses import asdict

    from workbench.core import files
    from workbench.core.errors import ConfigError
    from workbench.core.files import default_out
    from workbench.indicators.measurement import session_report
    from workbench.indicators.measurement.commit_comparison import compare_commits
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher
    from workbench.runs import catalogue, export

    config = settings.build_model(SessionConfig)
    if count is not None and not config.script:
        raise ConfigError("only scripts are counted", where="--count", do="add --script PATH, or leave it out")
    with select_watcher() as watcher:
        compared = compare_commits(
            (base, head),
            config,
            repository=repository,
            subfolder=subfolder,
            requirements=tuple(fixed or ()),
            accept_undecided=accept_undecided,
            with_counts=count is not None,
            out=out or default_out(),
            watcher=watcher,
            command=format_command_line(),
        )
    summary = export.summarize_run(catalogue.open_run(compared.outcome.folder))
    for path, text in ((markdown, export.format_markdown), (junit, export.format_junit)):
        if path is not None:
            files.write_text(path, text(summary))
    finish_command(
        lambda: session_report.format_session(compared.outcome),
        lambda: (
            session_report.build_session_document(compared.outcome)
            | {"rules": [asdict(rule) for rule in compared.rules]}
        ),
        as_json=as_json,
        is_valid=compared.has_passed,
        is_cancelled=compared.outcome.interrupted,
    )
