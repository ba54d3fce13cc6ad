"""`workbench indicators stacks`: from requirements and free packages to hashed locks and environments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.indicators.stacks.environments import Environment
    from workbench.indicators.stacks.model import StackSet


def stacks(
    free: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE", help="A package whose version varies, such as 'numpy>=1.24'. Repeatable."),
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Requirements that hold for every stack.")
    ] = None,
    decision: Annotated[
        str | None, typer.Option(help="grid, random, latest, dates or bounds.", show_default="grid")
    ] = None,
    decision_type: Annotated[str | None, typer.Option(help="The old name of --decision: all (grid) or random.")] = None,
    step: Annotated[
        str | None,
        typer.Option(help="minor: the newest patch of each minor; major; patch: every one.", show_default="minor"),
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="How many different stacks are enough.", show_default="all; random: 3")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Start of the random numbers.", show_default="chosen and told")
    ] = None,
    latest: Annotated[
        int | None,
        typer.Option("--latest", "--limit-latest-versions", metavar="N", help="Newest steps of each free package."),
    ] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="DAY", help="First day of --decision dates.")] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="Last day of --decision dates.", show_default="today")
    ] = None,
    every: Annotated[str | None, typer.Option(help="month, quarter or year (dates).", show_default="quarter")] = None,
    most: Annotated[int | None, typer.Option(help="Points that may be solved at most.", show_default="200")] = None,
    exclude_newer: Annotated[
        str | None,
        typer.Option(
            metavar="DAY|TIME|never",
            help="Use only files uploaded before it (UTC); never: no limit.",
            show_default="the begin of today",
        ),
    ] = None,
    python_version: Annotated[
        str | None, typer.Option(help="Solve for this Python.", show_default="this one's")
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="Solve for this platform, such as x86_64-manylinux_2_28.", show_default="this")
    ] = None,
    max_download: Annotated[
        str, typer.Option(metavar="SIZE", help="Reject stacks whose download is larger, such as 500MB.")
    ] = "2GB",
    context: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="An Amun specification without its python part.")
    ] = None,
    given: Annotated[
        Path | None, typer.Option("--in", metavar="FILE", help="Take the stacks of this file and solve nothing.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write.", show_default="stacks.json")
    ] = None,
    stack_output: Annotated[
        str | None,
        typer.Option(metavar="DIR|-", help="Also N/requirements.txt and N/pylock.toml; -: all locks on stdout."),
    ] = None,
    report_output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also a report in the old tool's form.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the points; solve and install nothing.")] = False,
    install: Annotated[bool, typer.Option("--install", help="Make the environments, too.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Install from uv's cache alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Solve library stacks to locks with hashes: free packages vary, the rest follows.

    Each point of the space is solved by uv. Points without a solution are kept with uv's reason, equal locks merged.
    The same question with the same seed and --exclude-newer gives the same file. Only wheels are used.

    Exit code 0 when there is a stack, 1 when every point was rejected.

    Example: workbench indicators stacks --free 'numpy>=1.24' --latest 5 --install
    """
    from workbench.indicators.stacks import request

    asked = {
        "free": tuple(free or ()) or None,
        "requirements": None if requirements is None else request.read_requirements(requirements),
        "decision": _decision(decision, decision_type) or (None if latest in (None, -1) else "latest"),
        "step": step,
        "count": count,
        "seed": seed,
        "latest": None if latest == -1 else latest,
        "first_day": None if first is None else request.read_day(first, "--from"),
        "last_day": None if last is None else request.read_day(last, "--to"),
        "every": every,
        "most": most,
        "before": None if exclude_newer in (None, "never") else request.read_moment(exclude_newer, "--exclude-newer"),
        "no_limit": True if exclude_newer == "never" else None,
        "python": python_version,
        "platform": platform,
        "context": None if context is None else request.read_context(context),
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    wanted = _Wanted(
        out, stack_output, report_output, dry_run, install, offline, as_json, request.size_bytes(max_download)
    )
    _refuse_at_odds(wanted, given, list(asked))
    if given is not None:
        _finish(_read(given), given, wanted)
    else:
        _solve(asked, wanted)


@dataclass(frozen=True)
class _Wanted:
    """What is to become of the stacks."""

    out: Path | None
    stack_output: str | None
    report_output: Path | None
    dry_run: bool
    install: bool
    offline: bool
    as_json: bool
    max_download_bytes: int


def _decision(decision: str | None, old: str | None) -> str | None:
    from workbench.errors import ConfigError

    names = {"all": "grid", "random": "random"}
    if old is None:
        return decision
    if old not in names:
        raise ConfigError("unknown decision type", where="--decision-type", found=old[:40], allowed=names)
    if decision not in (None, names[old]):
        raise ConfigError("two decisions", where="--decision, --decision-type", found=f"{decision}, {old}")
    return names[old]


def _refuse_at_odds(wanted: _Wanted, given: Path | None, asked: list[str]) -> None:
    from workbench.errors import ConfigError

    if wanted.stack_output == "-" and wanted.as_json:
        raise ConfigError("two outputs on stdout", where="--stack-output -", do="leave --json away")
    if wanted.stack_output and "://" in wanted.stack_output:
        raise ConfigError(
            "stacks are not sent to a service",
            where="--stack-output",
            allowed="a folder, or - for stdout",
            do="measure them here: workbench indicators run",
        )
    if given is not None and (asked or wanted.out or wanted.dry_run):
        raise ConfigError(
            "these stacks are solved already",
            where="--in",
            found=[*asked, *(["out"] if wanted.out else []), *(["dry_run"] if wanted.dry_run else [])],
            do="leave --in away to solve, or the other options to use the file",
        )
    if wanted.offline and not wanted.install:
        raise ConfigError("--offline is for --install", where="--offline", do="add --install, or leave it away")


def _read(path: Path) -> StackSet:
    from workbench.indicators.stacks import model

    return model.read(path)


def _solve(asked: dict[str, Any], wanted: _Wanted) -> None:
    import json

    from workbench.errors import ConfigError
    from workbench.indicators.stacks import making, model, planning, request, telling
    from workbench.progress import counter
    from workbench.terminal import say

    plan = planning.plan(request.checked(**asked, max_download_bytes=wanted.max_download_bytes))
    if wanted.dry_run:
        say(json.dumps(telling.plan_document(plan), indent=1) if wanted.as_json else telling.plan_text(plan))
        return
    with counter("solving stacks") as progress:
        found = making.solve(plan, progress)
    path = wanted.out or Path(model.FILE_NAME)
    try:
        found.write(path)
    except OSError as error:
        raise ConfigError(
            "cannot write the stacks", where=path, found=error.strerror, do="choose --out FILE"
        ) from error
    _finish(found, path, wanted)


def _finish(found: StackSet, path: Path, wanted: _Wanted) -> None:
    """Tell the stacks, write what else is wanted, install."""
    import json

    from workbench.indicators.stacks import telling
    from workbench.terminal import say

    to_stdout = wanted.stack_output == "-"
    if not wanted.as_json:
        say(telling.text(found) + f"\nwritten: {path}", err=to_stdout)
    places = telling.write_folders(found, wanted.stack_output) if wanted.stack_output and not to_stdout else []
    if wanted.report_output is not None:
        telling.write_report(found, places, wanted.report_output)
    made = _installed(found, wanted) if wanted.install else []
    if to_stdout:
        say(telling.requirement_files(found))
    if wanted.as_json:
        document = {"written": str(path), "stacks": found.model_dump(mode="json")}
        say(json.dumps(document | {"environments": telling.environment_documents(made, found.stacks)}, indent=1))
    elif made:
        say(telling.environments_text(made, found.stacks), err=to_stdout)
    raise typer.Exit(0 if found.stacks else 1)


def _installed(found: StackSet, wanted: _Wanted) -> list[Environment]:
    from workbench.indicators.stacks import environments, telling
    from workbench.progress import counter
    from workbench.terminal import say

    environments.refuse_large(found.stacks, wanted.max_download_bytes)
    say(telling.download_text(found.stacks), err=True)

    with counter("installing") as progress:
        return environments.install_all(
            [(stack, 0) for stack in found.stacks],
            offline=wanted.offline,
            max_download_bytes=wanted.max_download_bytes,
            progress=progress,
        )
