"""`workbench indicators import`: what Amun or pyperf measured becomes a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.indicators.exchange.imported import Imported


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Amun inspections (folders or single documents), printed documents (*.stdout, *.json), pyperf suites.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder below which each session gets its own.", show_default="default out folder"
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="amun or pyperf; told by the content without it.")
    ] = None,
    indicator: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="An indicator that documents name, beside the known. Repeatable."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="STACK", help="What others are compared with.", show_default="the first")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 when any file could not be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Make sessions of what was measured elsewhere: one for each machine, since machines are never compared.

    Amun: the layouts of old and new releases, with the lock of each inspection as its stack. pyperf: each file is a
    stack. Nobody knows in which order such runs were made, so no verdict follows from them: they can be shown, queried
    and exported. Names of hosts are dropped. Importing again changes nothing.

    Exit code 0 when there is a run with values, else 1.

    Example: workbench indicators import inspections/ --out data/runs/indicators
    """
    from workbench import runs
    from workbench.errors import ConfigError
    from workbench.indicators.exchange import amun, pyperf_import
    from workbench.indicators.shipped.registry import indicator_named
    from workbench.progress import counter

    if form not in (None, "amun", "pyperf"):
        raise ConfigError("no such format", where="--format", found=form, allowed="amun, pyperf")
    folder = out if out is not None else runs.default_out() / "indicators"
    if form is None:
        form = "pyperf" if all(_has_suites(path) for path in paths) else "amun"
    problems: list[tuple[Path, str]] = []
    notices: dict[str, int] = {}
    with counter("documents") as progress:
        if form == "pyperf":
            if indicator:
                raise ConfigError("pyperf's benchmarks need no indicator", where="--indicator")
            sessions = pyperf_import.import_suites(paths, folder, baseline=baseline, progress=progress)
        else:
            own = [indicator_named(name) for name in indicator or []]
            report = amun.import_documents(paths, folder, indicators=own, baseline=baseline, progress=progress)
            sessions, problems, notices = report.sessions, report.problems, report.notices
    (_print_json if as_json else _print)(form, sessions, problems, notices)
    raise typer.Exit(int(not any(one.ok for one in sessions) or (strict and bool(problems))))


def _has_suites(path: Path) -> bool:
    from workbench.indicators.exchange.pyperf_import import is_suite

    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if file.is_file()]
        return bool(files) and any(map(is_suite, files[:5]))
    return is_suite(path)


def _print_json(form: str, sessions: list[Imported], problems: list[tuple[Path, str]], notices: dict[str, int]) -> None:
    import json

    found = {
        "format": form,
        "sessions": [
            {"folder": str(one.folder), "session_id": one.session.session_id, "runs": one.runs, "ok": one.ok}
            for one in sessions
        ],
        "problems": [{"path": str(path), "reason": reason} for path, reason in problems],
        "notices": notices,
    }
    typer.echo(json.dumps(found))


def _print(form: str, sessions: list[Imported], problems: list[tuple[Path, str]], notices: dict[str, int]) -> None:
    from workbench.indicators.exchange.imported import UNKNOWN
    from workbench.terminal import say

    for path, reason in problems[:20]:
        say(f"left out: {path}\n          {reason}")
    if len(problems) > 20:
        say(f"          … and {len(problems) - 20} more")
    for notice, count in notices.items():
        say(f"note: {notice} ({count} document(s))")
    for one in sessions:
        session = one.session
        machine = session.hardware.cpu_model if session.hardware.cpu_model != UNKNOWN else "a machine that is not told"
        say(f"{session.session_id}: {one.runs} run(s) from {form}, {one.ok} with values, on {machine}")
        say(f"  stacks: {', '.join(arm.name for arm in session.arms)}")
        say(f"  cases: {', '.join(case.label for case in session.cases)}")
        say(f"  session: {one.folder}")
    say("no verdicts: nobody knows in which order these runs were made")
    say(f"next: workbench indicators sync {sessions[0].folder}")
