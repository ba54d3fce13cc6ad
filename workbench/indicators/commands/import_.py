"""`workbench indicators import`: import measurements of other benchmark tools as sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.core.files import default_out
from workbench.core.formats import format_items

if TYPE_CHECKING:
    from workbench.indicators.store.session_import import ImportReport

MAX_SHOWN = 20
MAX_FAILURES = 5


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help="Files or folders of hyperfine (--export-json), Google Benchmark (--benchmark_out), criterion "
            "(target/criterion), JMH (-rf json), go test -bench, CodSpeed, pyperf, asv (.asv/results), "
            "pytest-benchmark (--benchmark-json), Amun; a CSV (time, series, value, unit, direction, commit, machine).",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the sessions' own folders.", show_default="default out folder"),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="hyperfine, google-benchmark, criterion, jmh, go-bench, codspeed, pyperf, asv, pytest-benchmark, amun "
            "or csv.",
            show_default="by the content",
        ),
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
        typer.Option(metavar="NAME", help="The stack of all files, for `history`. Not for asv and amun."),
    ] = None,
    machine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The machine of all files, whatever they say, such as ci for a pool of equal hosts. Not for amun.",
            show_default="by host, processor and cores",
        ),
    ] = "",
    revision: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="The commit of all files, if the tool states none.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the files were measured, if the tool does not state it (hyperfine, criterion, JMH, go).",
            show_default="last change of each file",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if any file could not be read.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import measurements of other tools as sessions: one per machine, since machines are never compared.

    Each file is a session; of Amun, and of pyperf without --stack, all files of a machine are one. Repetitions are
    runs: each time of hyperfine, repetition of Google Benchmark, fork of JMH, line of go test, sample of asv. Of
    criterion, CodSpeed and pytest-benchmark the median is one run. Failed runs have no value and are counted.

    As the order of such runs is unknown, no verdict follows from them: they can be shown, queried and exported, and
    after `sync`, `history --absolute` shows them over time. Another host, processor, timer, debug build, or a commit
    with local changes is another series; --machine joins hosts. Host names are dropped. Importing again changes
    nothing.

    Exit code 0 with at least one run with values, else 1.

    Example: hyperfine --export-json h.json ./job && workbench indicators import h.json --revision $(git rev-parse HEAD)
    """
    from workbench.console.terminal import show_progress_count
    from workbench.indicators.store import import_formats
    from workbench.indicators.store.benchmark_import import check_revision, check_time, import_results

    form = import_formats.find_import_format(paths, form)
    given = {"indicator": indicator, "baseline": baseline, "stack": stack, "machine": machine, "time": time}
    import_formats.check_options(form, {**given, "revision": revision})
    options = import_formats.ImportOptions(
        stack, machine, check_revision(revision), check_time(time), baseline, tuple(indicator or ())
    )
    folder = out if out is not None else default_out() / "indicators"
    with show_progress_count("documents") as progress:
        report = import_results(form, paths, folder, options, progress)
    document = {
        "format": form,
        "sessions": [
            {
                "folder": entry.folder,
                "session_id": entry.session.session_id,
                "runs": entry.runs,
                "ok": entry.ok,
                "failures": entry.failures,
            }
            for entry in report.sessions
        ],
        "problems": [{"path": path, "reason": reason} for path, reason in report.problems],
        "notices": report.notices,
    }
    finish_command(
        lambda: _print_import(form, report),
        document,
        as_json=as_json,
        is_valid=any(session.ok for session in report.sessions) and not (strict and report.problems),
    )


def _print_import(form: str, report: ImportReport) -> None:
    from workbench.console.terminal import print_text
    from workbench.indicators.store.session_import import UNKNOWN

    for path, reason in report.problems[:MAX_SHOWN]:
        print_text(f"left out: {path}\n          {reason}")
    if len(report.problems) > MAX_SHOWN:
        print_text(f"          … and {len(report.problems) - MAX_SHOWN} more")
    for notice, count in report.notices.items():
        print_text(f"note: {notice}" + (f" ({count} times)" if count > 1 else ""))
    for entry in report.sessions[:MAX_SHOWN]:
        session = entry.session
        machine = session.hardware.cpu_model if session.hardware.cpu_model != UNKNOWN else "an unknown machine"
        print_text(f"{session.session_id}: {entry.runs} run(s) from {form}, {entry.ok} with values, on {machine}")
        print_text(f"  stacks: {', '.join(arm.name for arm in session.arms)}")
        cases = [case.label for case in session.cases]
        print_text(f"  cases: {format_items(cases, MAX_SHOWN)}")
        for failure, count in list(entry.failures.items())[:MAX_FAILURES]:
            print_text(f"  no value: {failure}" + (f" ({count} runs)" if count > 1 else ""))
        if len(entry.failures) > MAX_FAILURES:
            print_text(f"  no value: {len(entry.failures) - MAX_FAILURES} more, see `show failures`")
        print_text(f"  session: {entry.folder}")
    if len(report.sessions) > MAX_SHOWN:
        print_text(f"… and {len(report.sessions) - MAX_SHOWN} more session(s)")
    print_text("no verdicts: the order of these runs is unknown")
    folder = report.sessions[0].folder
    print_text(f"next: workbench indicators sync {folder if len(report.sessions) == 1 else folder.parent}")
    if len(report.sessions) > 1:
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

    Example: workbench indicators export sample:numpy --out suites/ && pyperf compare_to suites/*.json --table
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
