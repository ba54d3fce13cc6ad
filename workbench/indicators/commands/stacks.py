"""`workbench indicators stacks`: solve requirements and free packages to hashed locks and environments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption, Parse


def _parse_with(name: str, *, takes_flag: bool = True) -> Parse:
    """A parser of `stack_request`, imported when a command needs it."""

    def parse(value: Any, flag: str) -> Any:
        from workbench.indicators.stacks import stack_request

        parser = getattr(stack_request, name)
        return parser(value, flag) if takes_flag else parser(value)

    return parse


@take_options_from(
    "workbench.indicators.stacks.stack_request:StackRequest",
    options={
        "free": FieldOption(kind=list[str], metavar="PACKAGE"),
        "requirements": FieldOption(
            kind=Path, parse=_parse_with("read_requirements", takes_flag=False), metavar="FILE"
        ),
        "count": FieldOption(kind=int, show_default="all; random: 3"),
        "seed": FieldOption(kind=int, show_default="random, and printed"),
        "latest": FieldOption(kind=int, flags=("--latest", "--limit-latest-versions"), metavar="N"),
        "first_day": FieldOption("first", ("--from",), parse=_parse_with("parse_day"), metavar="DAY"),
        "last_day": FieldOption("last", ("--to",), parse=_parse_with("parse_day"), metavar="DAY", show_default="today"),
        "most": FieldOption(kind=int),
        "before": FieldOption("exclude_newer", kind=str, metavar="DAY|TIME|never", show_default="the start of today"),
        "python": FieldOption("python_version", show_default="this one's"),
        "platform": FieldOption(show_default="this one"),
        "max_download_bytes": FieldOption(
            "max_download", parse=_parse_with("parse_size"), metavar="SIZE", default="2GB"
        ),
        "context": FieldOption(parse=_parse_with("read_context", takes_flag=False), metavar="JSON|FILE"),
    },
    groups={
        "Versions": "free requirements decision decision_type step count seed latest",
        "Days": "first_day last_day every most before",
        "Target": "python platform max_download_bytes",
    },
    omit="no_limit",
)
def stacks(
    settings: OptionValues,
    decision_type: Annotated[
        str | None, typer.Option(help="Older name of --decision, with the values all (grid) and random.")
    ] = None,
    stacks_file: Annotated[
        Path | None, typer.Option("--in", metavar="FILE", help="Use the stacks in this file; solve nothing.")
    ] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A matrix (.yaml): Pythons, packages, indexes, variables, threads."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Stacks file to write.", show_default="stacks.json")
    ] = None,
    stack_output: Annotated[
        str | None,
        typer.Option(metavar="DIR|-", help="Also write N/requirements.txt and N/pylock.toml; -: all locks to stdout."),
    ] = None,
    report_output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a report in Dependency Monkey's format.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the points; solve and install nothing.")] = False,
    install: Annotated[bool, typer.Option("--install", help="Also create the environments.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Install from uv's cache alone.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Solve library stacks to locks with hashes: free packages vary, all others follow.

    uv solves each point of the version space. Points without a solution are listed with uv's reason; equal locks are
    merged. The same request with the same seed and --exclude-newer gives the same file. Only wheels are used.

    --matrix reads Pythons, packages, indexes, variables and threads from a YAML file, each list a dimension.

    Exit code 0 with at least one stack, 1 when every point was rejected.

    Example: workbench indicators stacks --free 'numpy>=1.24' --latest 5 --install
    """
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.core.errors import ConfigError, refuse_os_errors
    from workbench.indicators.stacks import (
        environments,
        stack_matrix,
        stack_report,
        stack_request,
        stack_sets,
        stack_solver,
    )

    max_download_bytes = settings.pop("max_download_bytes")
    flags = [settings.flags[name] for name in settings]
    _complete_request(settings, decision_type)
    to_stdout = stack_output == "-"
    if to_stdout and as_json:
        raise ConfigError("two outputs on stdout", where="--stack-output -", do="leave out --json")
    if stack_output and "://" in stack_output:
        raise ConfigError(
            "stacks are not sent to a service",
            where="--stack-output",
            allowed="a folder, or - for stdout",
            do="measure them here: workbench indicators run",
        )
    _refuse_unused_flags(flags, matrix, stacks_file, out, dry_run=dry_run)
    if offline and not install:
        raise ConfigError("--offline is for --install", where="--offline", do="add --install, or omit it")
    path = stacks_file or out or Path(stack_sets.FILE_NAME)
    if stacks_file is not None:
        solved = stack_sets.read_stack_set(stacks_file)
    elif matrix is not None:
        with show_progress_count("solving stacks") as progress:
            solved = stack_matrix.solve_stack_matrix(
                stack_matrix.read_stack_matrix(matrix), max_download_bytes=max_download_bytes, progress=progress
            )
    else:
        settings["max_download_bytes"] = max_download_bytes
        plan = stack_solver.build_stack_plan(settings.build_model(stack_request.StackRequest))
        if dry_run:
            finish_command(
                lambda: stack_report.format_plan(plan), lambda: stack_report.build_plan_document(plan), as_json=as_json
            )
        with show_progress_count("solving stacks") as progress:
            solved = stack_solver.solve_stack_plan(plan, progress)
    if stacks_file is None:
        with refuse_os_errors("cannot write the stacks", path, do="choose --out FILE", error_type=ConfigError):
            path = solved.write(path)
    if not as_json:
        print_text(stack_report.format_stacks(solved) + f"\nwritten: {path}", err=to_stdout)
    folders = stack_report.write_stack_folders(solved, stack_output) if stack_output and not to_stdout else []
    if report_output is not None:
        stack_report.write_stack_report(solved, folders, report_output)
    installed: list[environments.Environment] = []
    if install:
        environments.refuse_large_downloads(solved.stacks, max_download_bytes)
        print_text(stack_report.format_download(solved.stacks), err=True)
        with show_progress_count("installing") as progress:
            installed = environments.install_environments(
                [(stack, 0) for stack in solved.stacks],
                offline=offline,
                max_download_bytes=max_download_bytes,
                progress=progress,
                indexes=solved.indexes,
            )
    if to_stdout:
        print_text(stack_report.format_requirement_files(solved))
    if installed and not as_json:
        print_text(stack_report.format_environments(installed, solved.stacks), err=to_stdout)
    document = {
        "written": str(path),
        "stacks": stack_sets.build_stack_set_document(solved),
        "environments": stack_report.build_environment_documents(installed, solved.stacks if installed else []),
    }
    finish_command(lambda: None, document, as_json=as_json, is_valid=bool(solved.stacks or solved.variations))


def _complete_request(settings: OptionValues, decision_type: str | None) -> None:
    """Fill in what several options decide together: the decision, and whether there is a time limit."""
    from workbench.core.errors import ConfigError
    from workbench.indicators.stacks.stack_request import parse_moment

    if settings.get("latest") == -1:
        del settings["latest"]
    decision = settings.get("decision")
    if decision_type is not None:
        names = {"all": "grid", "random": "random"}
        if decision_type not in names:
            raise ConfigError("unknown decision type", where="--decision-type", found=decision_type[:40], allowed=names)
        if decision not in (None, names[decision_type]):
            found = f"{decision}, {decision_type}"
            raise ConfigError("two decisions", where="--decision, --decision-type", found=found)
        decision = names[decision_type]
    if decision or "latest" in settings:
        settings["decision"] = decision or "latest"
    limit = settings.pop("before", None)
    if limit == "never":
        settings["no_limit"] = True
    elif limit is not None:
        settings["before"] = parse_moment(limit, settings.flags["before"])


def _refuse_unused_flags(
    flags: list[str], matrix: Path | None, stacks_file: Path | None, out: Path | None, *, dry_run: bool
) -> None:
    """Refuse what a matrix defines, and what stacks that are solved already do not need."""
    from workbench.core.errors import ConfigError

    flags = [*flags, "--dry-run"] if dry_run else flags
    if stacks_file is not None and (unused := [*flags, *(["--out"] if out else [])]):
        raise ConfigError(
            "these stacks are solved already",
            where="--in",
            found=unused,
            do="omit --in to solve, or omit the other options to use the file",
        )
    if matrix is not None and (unused := [*flags, *(["--in"] if stacks_file else [])]):
        raise ConfigError(
            "the matrix defines what is solved", where="--matrix", found=unused, do="leave these options out"
        )
