"""`workbench eventlog facts`: write event logs as Parquet tables, with a short summary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import build_group

if TYPE_CHECKING:
    from workbench.eventlog.reader import WriteResult
    from workbench.runs.run_folder import Run

app = build_group(
    "Read Spark event logs into tables.",
    first_steps="  workbench eventlog facts sample:failing --out facts --csv",
)


@app.command()
def facts(
    log: Annotated[
        list[str],
        typer.Argument(
            help="Event logs: files, rolling (eventlog_v2_*) or Databricks folders, folders of logs, fsspec URLs."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the run: run.json and tables/*.parquet.")],
    jobs: Annotated[int | None, typer.Option(help="Processes; the machine's cores by default.", min=1)] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Also hash users, hosts, paths and SQL literals (secrets are always removed)."),
    ] = False,
    digest: Annotated[
        bool, typer.Option("--hash/--no-hash", help="Record the sha256 of the logs in run.json (0.6 s per GB).")
    ] = True,
    csv: Annotated[bool, typer.Option("--csv", help="Also write every table as CSV.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write the queries, plans, stages, exact metric statistics and failures of applications as tables.

    The codec is detected by the first bytes (plain, gzip, zstd, lz4, snappy, lzf). Cut and damaged logs are read up to
    the damage and marked incomplete; what a log shows to be missing is listed, and in the table completeness. Exit code
    1 when a log is damaged, unreadable or lacks parts, 2 when a path has no event log.

    Example: workbench eventlog facts sample:eventlogs --out facts && ls facts/tables
    """
    from workbench.console import terminal
    from workbench.core.books import BOOKS, describe_broken_books
    from workbench.eventlog import tables
    from workbench.eventlog.reader import write_tables
    from workbench.eventlog.sources import list_all_logs
    from workbench.runs import run_folder

    list_all_logs(log)  # before anything is written
    config = {"jobs": jobs, "redact": redact, "csv": csv, "hash": digest}
    run = run_folder.start_run(
        "eventlog", folder=out, title="Facts of event logs", config=config, command="workbench eventlog facts"
    )
    # Hashing takes a third of the time of reading, so both run concurrently.
    inputs = [partial(_add_input, run, path, redact, digest) for path in log]
    with _close_run(run, redact), terminal.open_status() as status:

        def show_progress(done_bytes: int, log_id: int) -> None:
            status.show_when_due(f"read {done_bytes / 1e6:,.0f} MB, log {log_id + 1}")

        status.delay()
        written = write_tables(
            log, run.tables_folder, jobs=jobs, redact=redact, csv=csv, progress=show_progress, meanwhile=inputs
        )
        declared = {table.name: table for table in tables.ALL_TABLES}
        run.record["tables"] = [
            run_folder.build_table_entry(declared[name], rows) for name, rows in written.rows.items()
        ]
        # Only now: with polars loaded, the reader could not fork.
        from workbench.eventlog.invariants import read_log_books

        books = read_log_books(run.tables_folder)
        run.write_table(BOOKS, books)
    broken = describe_broken_books(books)
    finish_command(
        lambda: "\n".join([_format_summary(written), *(f"fault: {sentence}" for sentence in broken)]),
        lambda: _build_document(written, out) | {"books": books.to_dicts()},
        as_json=as_json,
        is_valid=not any(_list_faults(written).values()) and not broken,
        written=[out / "tables"],
    )


@contextlib.contextmanager
def _close_run(run: Run, redact: bool) -> Iterator[None]:
    """Close the run's record, on errors with the message, unless it may have paths."""
    from workbench.eventlog.log_redaction import remove_secrets
    from workbench.runs.run_folder import build_failure

    try:
        yield
    except BaseException as error:
        text = None if redact else remove_secrets(str(error))
        failure = build_failure(type(error).__name__, text)
        run.end("cancelled" if isinstance(error, KeyboardInterrupt) else "failed", failure)
        raise
    run.end("succeeded")


def _add_input(run: Run, path: str, redact: bool, digest: bool) -> None:
    """Record an input; with `--redact` only size and sha256, since paths are personal data."""
    from workbench.core import files
    from workbench.eventlog.log_redaction import REDACTED, remove_secrets

    if not redact:
        run.add_input(remove_secrets(path) if "://" in path else path, digest=digest)
        return
    file = Path(path)
    is_local = "://" not in path and file.is_file()
    size_bytes = file.stat().st_size if is_local else None
    sha256 = files.hash_file(file) if is_local and digest else None
    run.record["inputs"] = [*run.record["inputs"], {"path": REDACTED, "bytes": size_bytes, "sha256": sha256}]


def _build_document(written: WriteResult, out: Path) -> dict[str, Any]:
    return {
        "out": str(out),
        "logs": written.logs.to_dicts(),
        "completeness": written.completeness.to_dicts(),
        "applications": written.applications.to_dicts(),
        "tables": {name: {"path": str(path), "rows": written.rows.get(name)} for name, path in written.paths.items()},
    }


def _format_summary(written: WriteResult) -> str:
    from workbench.console.tables import format_table

    names = dict(zip(written.applications["log_id"], written.applications.iter_rows(named=True), strict=True))
    rows = []
    for log in written.logs.iter_rows(named=True):
        application = names.get(log["log_id"])
        content = f"{log['content_bytes'] / 1e6:,.1f} MB"
        if application is None:
            summary_row = [Path(log["path"]).name, "unread", None, None, content, log["n_bad_lines"]]
        else:
            duration = None if application["duration_ms"] is None else f"{application['duration_ms'] / 1000:,.1f} s"
            label = application["app_id"] or application["app_name"] or "?"
            summary_row = [label, application["status"], application["engine"], duration, content, log["n_bad_lines"]]
        rows.append(summary_row)
    headers = ["application", "status", "engine", "duration", "content", "bad lines"]
    lines = format_table(rows, headers, right=["duration", "content", "bad lines"])
    faults = _list_faults(written)
    for row, log_id in zip(rows, written.logs["log_id"], strict=True):
        lines += [f"fault: {row[0]}: {fault}" for fault in faults[log_id]]
    counts = ", ".join(f"{name} {n_rows:,}" for name, n_rows in written.rows.items() if n_rows)
    return "\n".join([*lines, f"rows: {counts}"])


def _list_faults(written: WriteResult) -> dict[int, list[str]]:
    """List, for each log, what is damaged in it or missing from it."""
    from workbench.eventlog.completeness import describe_holes

    holes = written.completeness.partition_by("log_id", as_dict=True)
    return {
        log_id: ([fault] if fault else []) + (describe_holes(holes[log_id,]) if (log_id,) in holes else [])
        for log_id, fault in written.logs.select("log_id", "fault").iter_rows()
    }
