"""`workbench indicators import`: import measurements of Amun or pyperf as sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.core.paths import default_out

if TYPE_CHECKING:
    from workbench.indicators.store.session_import import ImportedSession


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
        typer.Option(metavar="DIR", help="Folder for the sessions' own folders.", show_default="default out folder"),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="amun or pyperf; by default detected from the content.")
    ] = None,
    indicator: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A further indicator that documents may name. Repeatable."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="STACK", help="The stack that the others are compared with.", show_default="the first"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if any file could not be read.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import measurements of other tools as sessions: one per machine, since machines are never compared.

    Amun: the layouts of all releases; the lock of each inspection is its stack. pyperf: each file is a stack. As the
    order of such runs is unknown, no verdict follows from them: they can be shown, queried and exported. Host names
    are dropped. Importing again changes nothing.

    Exit code 0 with at least one run with values, else 1.

    Example: workbench indicators import inspections/ --out data/runs/indicators
    """
    from workbench.core.errors import ConfigError

    if form not in (None, "amun", "pyperf"):
        raise ConfigError("no such format", where="--format", found=form, allowed="amun, pyperf")
    folder = out if out is not None else default_out() / "indicators"
    form = form or ("pyperf" if all(_has_suites(path) for path in paths) else "amun")
    if form == "pyperf" and indicator:
        raise ConfigError("pyperf's benchmarks need no indicator", where="--indicator")
    sessions, problems, notices = _import_paths(form, paths, folder, indicator or [], baseline)
    finish_command(
        lambda: _print_import(form, sessions, problems, notices),
        lambda: _build_import_document(form, sessions, problems, notices),
        as_json=as_json,
        is_valid=any(one.ok for one in sessions) and not (strict and problems),
    )


def _import_paths(
    form: str, paths: list[Path], folder: Path, indicators: list[str], baseline: str | None
) -> tuple[list[ImportedSession], list[tuple[Path, str]], dict[str, int]]:
    """Import all paths: the sessions, the unreadable files with reasons, and notices with their counts."""
    from workbench.console.terminal import show_progress_count
    from workbench.indicators.compat_thoth import amun_import
    from workbench.indicators.shipped.registry import load_indicator
    from workbench.indicators.store import pyperf_suites

    with show_progress_count("documents") as progress:
        if form == "pyperf":
            return pyperf_suites.import_suites(paths, folder, baseline=baseline, progress=progress), [], {}
        own = [load_indicator(name) for name in indicators]
        report = amun_import.import_documents(paths, folder, indicators=own, baseline=baseline, progress=progress)
        return report.sessions, report.problems, report.notices


def _has_suites(path: Path) -> bool:
    from workbench.indicators.store.pyperf_suites import is_suite

    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if file.is_file()]
        return bool(files) and any(map(is_suite, files[:5]))
    return is_suite(path)


def _build_import_document(
    form: str, sessions: list[ImportedSession], problems: list[tuple[Path, str]], notices: dict[str, int]
) -> dict[str, Any]:
    return {
        "format": form,
        "sessions": [
            {"folder": str(one.folder), "session_id": one.session.session_id, "runs": one.runs, "ok": one.ok}
            for one in sessions
        ],
        "problems": [{"path": str(path), "reason": reason} for path, reason in problems],
        "notices": notices,
    }


def _print_import(
    form: str, sessions: list[ImportedSession], problems: list[tuple[Path, str]], notices: dict[str, int]
) -> None:
    from workbench.console.terminal import print_text
    from workbench.indicators.store.session_import import UNKNOWN

    for path, reason in problems[:20]:
        print_text(f"left out: {path}\n          {reason}")
    if len(problems) > 20:
        print_text(f"          … and {len(problems) - 20} more")
    for notice, count in notices.items():
        print_text(f"note: {notice} ({count} document(s))")
    for one in sessions:
        session = one.session
        machine = session.hardware.cpu_model if session.hardware.cpu_model != UNKNOWN else "an unknown machine"
        print_text(f"{session.session_id}: {one.runs} run(s) from {form}, {one.ok} with values, on {machine}")
        print_text(f"  stacks: {', '.join(arm.name for arm in session.arms)}")
        print_text(f"  cases: {', '.join(case.label for case in session.cases)}")
        print_text(f"  session: {one.folder}")
    print_text("no verdicts: the order of these runs is unknown")
    print_text(f"next: workbench indicators sync {sessions[0].folder}")
