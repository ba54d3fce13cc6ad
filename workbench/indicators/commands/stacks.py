"""`workbench indicators stacks`: solve requirements and free packages to hashed locks and environments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption, Parse

if TYPE_CHECKING:
    from workbench.indicators.stacks.environments import Environment
    from workbench.indicators.stacks.stack_sets import StackSet


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
    max_download_bytes = settings.pop("max_download_bytes")
    flags = [settings.flags[name] for name in settings]
    _complete_request(settings, decision_type)
    output = _OutputOptions(out, stack_output, report_output, dry_run, install, offline, as_json, max_download_bytes)
    _refuse_conflicting_options(output, stacks_file, flags)
    if matrix is not None:
        _solve_matrix(matrix, stacks_file, [*flags, *(["--dry-run"] if dry_run else [])], output)
    if stacks_file is not None:
        _write_and_install(_read_stack_set(stacks_file), stacks_file, output)
    else:
        _solve_and_finish(OptionValues({**settings, "max_download_bytes": max_download_bytes}, settings.flags), output)


def _complete_request(settings: OptionValues, decision_type: str | None) -> None:
    """Fill in what several options decide together: the decision, and whether there is a time limit."""
    from workbench.indicators.stacks.stack_request import parse_moment

    if settings.get("latest") == -1:
        del settings["latest"]
    decision = _merge_decision_options(settings.get("decision"), decision_type)
    if decision or "latest" in settings:
        settings["decision"] = decision or "latest"
    limit = settings.pop("before", None)
    if limit == "never":
        settings["no_limit"] = True
    elif limit is not None:
        settings["before"] = parse_moment(limit, settings.flags["before"])


@dataclass(frozen=True)
class _OutputOptions:
    """Destination of the stacks, and whether they are installed."""

    out: Path | None
    stack_output: str | None
    report_output: Path | None
    dry_run: bool
    install: bool
    offline: bool
    as_json: bool
    max_download_bytes: int


def _merge_decision_options(decision: str | None, decision_type: str | None) -> str | None:
    """The decision, which has an older option; refused if both are given and differ."""
    from workbench.core.errors import ConfigError

    names = {"all": "grid", "random": "random"}
    if decision_type is None:
        return decision
    if decision_type not in names:
        raise ConfigError("unknown decision type", where="--decision-type", found=decision_type[:40], allowed=names)
    if decision not in (None, names[decision_type]):
        raise ConfigError("two decisions", where="--decision, --decision-type", found=f"{decision}, {decision_type}")
    return names[decision_type]


def _refuse_conflicting_options(output: _OutputOptions, stacks_file: Path | None, flags: list[str]) -> None:
    from workbench.core.errors import ConfigError

    if output.stack_output == "-" and output.as_json:
        raise ConfigError("two outputs on stdout", where="--stack-output -", do="leave out --json")
    if output.stack_output and "://" in output.stack_output:
        raise ConfigError(
            "stacks are not sent to a service",
            where="--stack-output",
            allowed="a folder, or - for stdout",
            do="measure them here: workbench indicators run",
        )
    unfit = [*flags, *(["--out"] if output.out else []), *(["--dry-run"] if output.dry_run else [])]
    if stacks_file is not None and unfit:
        raise ConfigError(
            "these stacks are solved already",
            where="--in",
            found=unfit,
            do="omit --in to solve, or omit the other options to use the file",
        )
    if output.offline and not output.install:
        raise ConfigError("--offline is for --install", where="--offline", do="add --install, or omit it")


def _read_stack_set(path: Path) -> StackSet:
    from workbench.indicators.stacks import stack_sets

    return stack_sets.read_stack_set(path)


def _solve_and_finish(settings: OptionValues, output: _OutputOptions) -> NoReturn:
    from workbench.console.terminal import show_progress_count
    from workbench.indicators.stacks import stack_report, stack_request, stack_sets, stack_solver

    plan = stack_solver.build_stack_plan(settings.build_model(stack_request.StackRequest))
    if output.dry_run:
        finish_command(
            lambda: stack_report.format_plan(plan),
            lambda: stack_report.build_plan_document(plan),
            as_json=output.as_json,
        )
    with show_progress_count("solving stacks") as progress:
        solved = stack_solver.solve_stack_plan(plan, progress)
    _write_and_install(solved, _write_stack_set(solved, output.out or Path(stack_sets.FILE_NAME)), output)


def _write_stack_set(solved: StackSet, path: Path) -> Path:
    from workbench.core.errors import ConfigError

    try:
        return solved.write(path)
    except OSError as error:
        raise ConfigError(
            "cannot write the stacks", where=path, found=error.strerror, do="choose --out FILE"
        ) from error


def _solve_matrix(matrix: Path, stacks_file: Path | None, flags: list[str], output: _OutputOptions) -> NoReturn:
    from workbench.console.terminal import show_progress_count
    from workbench.core.errors import ConfigError
    from workbench.indicators.stacks import stack_matrix, stack_sets

    unfit = [*flags, *(["--in"] if stacks_file else [])]
    if unfit:
        raise ConfigError(
            "the matrix defines what is solved", where="--matrix", found=unfit, do="leave these options out"
        )
    with show_progress_count("solving stacks") as progress:
        solved = stack_matrix.solve_stack_matrix(
            stack_matrix.read_stack_matrix(matrix), max_download_bytes=output.max_download_bytes, progress=progress
        )
    _write_and_install(solved, _write_stack_set(solved, output.out or Path(stack_sets.FILE_NAME)), output)


def _write_and_install(solved: StackSet, path: Path, output: _OutputOptions) -> NoReturn:
    """Print the stacks, write the other files, install."""
    from workbench.console.terminal import print_text
    from workbench.indicators.stacks import stack_report, stack_sets

    to_stdout = output.stack_output == "-"
    if not output.as_json:
        print_text(stack_report.format_stacks(solved) + f"\nwritten: {path}", err=to_stdout)
    folders = (
        stack_report.write_stack_folders(solved, output.stack_output) if output.stack_output and not to_stdout else []
    )
    if output.report_output is not None:
        stack_report.write_stack_report(solved, folders, output.report_output)
    installed = _install_environments(solved, output) if output.install else []
    if to_stdout:
        print_text(stack_report.format_requirement_files(solved))
    if installed and not output.as_json:
        print_text(stack_report.format_environments(installed, solved.stacks), err=to_stdout)
    document = {
        "written": str(path),
        "stacks": stack_sets.build_stack_set_document(solved),
        "environments": stack_report.build_environment_documents(installed, solved.stacks if installed else []),
    }
    finish_command(lambda: None, document, as_json=output.as_json, is_valid=bool(solved.stacks or solved.variations))


def _install_environments(solved: StackSet, output: _OutputOptions) -> list[Environment]:
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.indicators.stacks import environments, stack_report

    environments.refuse_large_downloads(solved.stacks, output.max_download_bytes)
    print_text(stack_report.format_download(solved.stacks), err=True)
    with show_progress_count("installing") as progress:
        return environments.install_environments(
            [(stack, 0) for stack in solved.stacks],
            offline=output.offline,
            max_download_bytes=output.max_download_bytes,
            progress=progress,
            indexes=solved.indexes,
        )
