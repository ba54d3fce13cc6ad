"""`workbench indicators import`: import measurements of Amun, pyperf, asv or pytest-benchmark as sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.core.files import default_out
from workbench.core.formats import format_items

if TYPE_CHECKING:
    from workbench.indicators.store.session_import import ImportedSession

MAX_SHOWN = 20
FORMATS = ("amun", "pyperf", "asv", "pytest-benchmark")


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Amun inspections (folders or single documents), printed documents (*.stdout, *.json), pyperf suites, "
            "asv results (.asv/results, a machine's folder in it, or single files), files of pytest-benchmark "
            "(--benchmark-json) or .benchmarks.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the sessions' own folders.", show_default="default out folder"),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="amun, pyperf, asv or pytest-benchmark; by default detected from the content."),
    ] = None,
    indicator: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A further indicator that documents may name. Repeatable."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="STACK", help="The stack that the others are compared with.", show_default="the first"),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="pyperf, pytest-benchmark: each file is a session of this stack, for `history`."
        ),
    ] = None,
    machine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="pyperf, pytest-benchmark, asv: the machine of all files, whatever they say, such as ci for a pool of "
            "equal hosts.",
            show_default="by host, processor and cores",
        ),
    ] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if any file could not be read.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import measurements of other tools as sessions: one per machine, since machines are never compared.

    Amun: the layouts of all releases; the lock of each inspection is its stack. pyperf: each file is a stack; with
    --stack, and of pytest-benchmark always, each file is a session. asv: each result file is a session of its own, with
    the commit as its revision and the environment as its stack; recorded samples are runs, and failed or skipped
    benchmarks are counted. As the order of such runs is unknown, no verdict follows from them: they can be shown,
    queried and exported, and after `sync`, `history --absolute` shows them over time. Another host, processor, timer,
    or a commit with local changes is another series; --machine joins hosts. Host names are dropped. Importing again
    changes nothing.

    Exit code 0 with at least one run with values, else 1.

    Example: workbench indicators import inspections/ --out data/runs/indicators
    """
    from workbench.core.errors import ConfigError

    if form not in (None, *FORMATS):
        raise ConfigError("no such format", where="--format", found=form, allowed=FORMATS)
    folder = out if out is not None else default_out() / "indicators"
    form = form or _detect_format(paths)
    if form != "amun" and indicator:
        raise ConfigError(f"{form}'s benchmarks need no indicator", where="--indicator")
    if baseline is not None and (form in ("asv", "pytest-benchmark") or stack):
        raise ConfigError(f"each session of {form} has one stack", where="--baseline", found=baseline[:80])
    if stack and form not in ("pyperf", "pytest-benchmark"):
        raise ConfigError(f"{form} tells its stacks", where="--stack", found=stack[:80])
    if machine and form == "amun":
        raise ConfigError("amun tells its machines", where="--machine", found=machine[:80])
    sessions, problems, notices = _import_paths(form, paths, folder, indicator or [], baseline, stack, machine)
    finish_command(
        lambda: _print_import(form, sessions, problems, notices),
        lambda: _build_import_document(form, sessions, problems, notices),
        as_json=as_json,
        is_valid=any(session.ok for session in sessions) and not (strict and problems),
    )


def _import_paths(
    form: str,
    paths: list[Path],
    folder: Path,
    indicators: list[str],
    baseline: str | None,
    stack: str | None,
    machine: str,
) -> tuple[list[ImportedSession], list[tuple[Path, str]], dict[str, int]]:
    """Import all paths: the sessions, the unreadable files with reasons, and notices with their counts."""
    from workbench.console.terminal import show_progress_count
    from workbench.indicators.compat_thoth import amun_import
    from workbench.indicators.shipped.indicator_classes import load_indicator
    from workbench.indicators.store import asv_results, pyperf_suites, pytest_benchmarks

    with show_progress_count("documents") as progress:
        if form == "pyperf":
            imported = pyperf_suites.import_suites(
                paths, folder, baseline=baseline, stack=stack, machine=machine, progress=progress
            )
            return imported, [], {}
        if form == "pytest-benchmark":
            imported = pytest_benchmarks.import_benchmarks(
                paths, folder, stack=stack, machine=machine, progress=progress
            )
            return imported, [], {}
        if form == "asv":
            report = asv_results.import_results(paths, folder, machine=machine, progress=progress)
        else:
            classes = [load_indicator(name) for name in indicators]
            report = amun_import.import_documents(
                paths, folder, indicators=classes, baseline=baseline, progress=progress
            )
        return report.sessions, report.problems, report.notices


def _detect_format(paths: list[Path]) -> str:
    from workbench.indicators.store.asv_results import is_results
    from workbench.indicators.store.pytest_benchmarks import is_benchmark_file

    if all(map(is_benchmark_file, paths)):
        return "pytest-benchmark"
    if all(map(_has_suites, paths)):
        return "pyperf"
    return "asv" if all(map(is_results, paths)) else "amun"


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
            {"folder": str(entry.folder), "session_id": entry.session.session_id, "runs": entry.runs, "ok": entry.ok}
            for entry in sessions
        ],
        "problems": [{"path": str(path), "reason": reason} for path, reason in problems],
        "notices": notices,
    }


def _print_import(
    form: str, sessions: list[ImportedSession], problems: list[tuple[Path, str]], notices: dict[str, int]
) -> None:
    from workbench.console.terminal import print_text
    from workbench.indicators.store.session_import import UNKNOWN

    for path, reason in problems[:MAX_SHOWN]:
        print_text(f"left out: {path}\n          {reason}")
    if len(problems) > MAX_SHOWN:
        print_text(f"          … and {len(problems) - MAX_SHOWN} more")
    for notice, count in notices.items():
        print_text(f"note: {notice} ({count} document(s))")
    for entry in sessions[:MAX_SHOWN]:
        session = entry.session
        machine = session.hardware.cpu_model if session.hardware.cpu_model != UNKNOWN else "an unknown machine"
        print_text(f"{session.session_id}: {entry.runs} run(s) from {form}, {entry.ok} with values, on {machine}")
        print_text(f"  stacks: {', '.join(arm.name for arm in session.arms)}")
        cases = [case.label for case in session.cases]
        print_text(f"  cases: {format_items(cases, MAX_SHOWN)}")
        print_text(f"  session: {entry.folder}")
    if len(sessions) > MAX_SHOWN:
        print_text(f"… and {len(sessions) - MAX_SHOWN} more session(s)")
    print_text("no verdicts: the order of these runs is unknown")
    folder = sessions[0].folder
    print_text(f"next: workbench indicators sync {folder if len(sessions) == 1 else folder.parent}")
    if len(sessions) > 1:
        print_text("next: workbench indicators history --absolute")


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The session.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE.json|DIR", help="FILE.json: one suite with all arms. DIR: one file per arm, for compare_to."
        ),
    ],
    form: Annotated[str, typer.Option("--format", help="pyperf.")] = "pyperf",
    as_json: JsonFlag = False,
) -> None:
    """Write a session in pyperf's JSON format: one benchmark per metric and arm.

    Times are converted to seconds and sizes to bytes; metrics with other units are listed and skipped. pyperf ignores
    rounds, so differences that its compare_to finds may be drift of the machine. Verdicts are in the session's report.

    Example: workbench indicators export SESSION --out suites/ && pyperf compare_to suites/*.json --table
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.store import pyperf_suites

    if form != "pyperf":
        raise ConfigError("no such format", where="--format", found=form, allowed="pyperf")
    result = pyperf_suites.export_session(folder, out)
    lines = [*(f"skipped: {note}" for note in result.notes), *map(str, result.paths)]
    finish_command(
        "\n".join([*lines, f"{result.benchmarks} benchmarks, {result.runs} runs"]),
        {"paths": result.paths, "benchmarks": result.benchmarks, "runs": result.runs, "notes": result.notes},
        as_json=as_json,
    )
