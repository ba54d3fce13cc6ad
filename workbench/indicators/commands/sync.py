"""`workbench indicators sync`: synchronise sessions into a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        help="SQLite file, or postgresql://USER@HOST/NAME (password in $PGPASSWORD or the URL in "
        "$WORKBENCH_DATABASE_URL).",
        show_default="indicators.db in the default out folder",
    ),
]


def sync(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER…", help="Sessions, or folders of sessions.")],
    database: DatabaseOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 if any document failed.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Insert all runs of these sessions into typed tables; repeating it changes nothing.

    The archive is the source: a deleted database can be rebuilt from it, with the same answers. Damaged documents,
    and runs that exist with other content, are reported and skipped.

    Runs whose indicator was declared only later get their typed values now. Sessions that wait for their cluster are
    skipped until they are collected.

    Exit code 0 if runs were inserted, existed or are waited for; 1 if all failed (with --strict: if any failed).

    Example: workbench indicators sync sample:numpy --database numpy.db
    """
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.indicators.store.archive_sync import sync_sessions
    from workbench.indicators.store.sql_database import open_database, refuse_password

    refuse_password(database)
    with open_database(database) as opened, show_progress_count("runs") as progress:
        report = sync_sessions(folders, opened, progress=progress)
        place = opened.place

    def print_report() -> None:
        for path, reason in report.reasons[:20]:
            print_text(f"failed: {path}\n        {reason}")
        if report.failed > 20:
            print_text(f"        … and {report.failed - 20} more")
        for note in report.notes:
            print_text(f"note: {note}")
        if report.typed:
            print_text(f"{report.typed} existing runs got their typed values")
        print_text(
            f"{report.processed} documents: {report.synced} inserted, {report.skipped} existed, {report.failed} failed"
            f"\ndatabase: {place}\nnext: workbench indicators show sessions"
        )

    counts = {name: getattr(report, name) for name in ("processed", "synced", "skipped", "failed", "waiting", "typed")}
    reasons = [{"path": path, "reason": reason} for path, reason in report.reasons]
    finish_command(
        print_report,
        counts | {"database": place, "reasons": reasons, "notes": report.notes},
        as_json=as_json,
        is_valid=not report.failed or (not strict and report.synced + report.skipped > 0),
    )
