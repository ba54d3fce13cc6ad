"""`workbench indicators sync`: the archive's runs brought into a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.indicators.storage.sync import SyncReport

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
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 when any document failed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Bring every run of these sessions into typed tables; once more, and nothing changes.

    The archive stays the truth: delete the database and sync again, and every question has the same answer. A damaged
    document, or a run that is there with another content, is named, counted and left out.

    Runs that were kept before anybody declared their indicator get their typed values now. A session that waits for
    its cluster is left out until it was collected.

    Exit code 0 when something was brought in, was there, or waits; 1 when nothing could be (with --strict: when
    anything failed).

    Example: workbench indicators sync data/runs/indicators
    """
    from workbench.indicators.storage.database import open_database, refuse_password
    from workbench.indicators.storage.sync import sync as bring
    from workbench.progress import counter

    refuse_password(database)
    with open_database(database) as opened, counter("runs") as progress:
        report = bring(folders, opened, progress=progress)
        place = opened.place
    if as_json:
        _print_json(report, place)
    else:
        _print(report, place)
    raise typer.Exit(int(report.failed > 0 and (strict or not report.synced + report.skipped)))


def _print_json(report: SyncReport, place: str) -> None:
    import json

    counts = {name: getattr(report, name) for name in ("processed", "synced", "skipped", "failed", "waiting", "typed")}
    reasons = [{"path": str(path), "reason": reason} for path, reason in report.reasons]
    typer.echo(json.dumps(counts | {"database": place, "reasons": reasons, "notes": report.notes}))


def _print(report: SyncReport, place: str) -> None:
    from workbench.terminal import say

    for path, reason in report.reasons[:20]:
        say(f"failed: {path}\n        {reason}")
    if report.failed > 20:
        say(f"        … and {report.failed - 20} more")
    for note in report.notes:
        say(f"note: {note}")
    if report.typed:
        say(f"{report.typed} that were there have got their typed values")
    say(
        f"{report.processed} documents: {report.synced} brought in, {report.skipped} were there, {report.failed} failed"
        f"\ndatabase: {place}\nnext: workbench indicators show sessions"
    )
