"""`workbench eventlog facts`: event logs in, Parquet tables and a short summary out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.commands import group

if TYPE_CHECKING:
    from workbench.eventlog.reader import Written
    from workbench.runs import Run

app = group(
    "Read Spark event logs into tables.",
    first_steps="  workbench eventlog facts data/samples/eventlogs/failing.zstd --out facts --csv",
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
        typer.Option("--redact", help="Also hash users, hosts, paths and SQL literals (secrets are taken out always)."),
    ] = False,
    digest: Annotated[
        bool, typer.Option("--hash/--no-hash", help="Note the sha256 of the logs in run.json (0.6 s per GB).")
    ] = True,
    csv: Annotated[bool, typer.Option("--csv", help="Write every table as CSV, too.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
    ] = False,
) -> None:
    """Write what an application did: queries, plans, stages, exact metric statistics, failures.

    Codecs are told by the first bytes (plain, gzip, zstd, lz4, snappy, lzf); cut and damaged logs are read up to the
    damage and marked incomplete. Exit code 2 when a path holds no event log.

    Example: workbench eventlog facts data/samples/eventlogs --out facts && ls facts/tables
    """
    from workbench import records, runs
    from workbench.eventlog import tables
    from workbench.eventlog.reader import write
    from workbench.eventlog.sources import find_all

    find_all(log)  # before anything is written
    config = {"jobs": jobs, "redact": redact, "csv": csv, "hash": digest}
    run = runs.start(
        "eventlog", folder=out, title="Facts of event logs", config=config, command="workbench eventlog facts"
    )
    # Hashing a large log takes a third as long as reading it, so both are done at once.
    inputs = [partial(_add_input, run, path, redact, digest) for path in log]
    with _ended(run, redact), _Bar() as bar:
        written = write(log, run.tables_folder, jobs=jobs, redact=redact, csv=csv, progress=bar.show, meanwhile=inputs)
        declared = {table.name: table for table in tables.ALL}
        run.record["tables"] = [records.table_entry(declared[name], rows) for name, rows in written.rows.items()]
    if as_json:
        import json

        typer.echo(json.dumps(_document(written, out), indent=2))
    else:
        _print(written, out)


@contextlib.contextmanager
def _ended(run: Run, redact: bool) -> Iterator[None]:
    """Close the run's record whatever happens; of an error, its text too, unless that may hold paths."""
    from workbench.eventlog.scrub import scrub

    try:
        yield
    except BaseException as error:
        text = None if redact else scrub(str(error))
        failure = {"cell_number": None, "source": None, "error_name": type(error).__name__, "error": text}
        run.end("cancelled" if isinstance(error, KeyboardInterrupt) else "failed", failure)
        raise
    run.end("succeeded")


def _add_input(run: Run, path: str, redact: bool, digest: bool) -> None:
    """Note what was read; with `--redact` by size and sha256 alone, since a log's own path is personal."""
    from workbench import files
    from workbench.eventlog.scrub import REDACTED, scrub

    if not redact:
        run.add_input(scrub(path) if "://" in path else path, digest=digest)
        return
    file = Path(path)
    known = "://" not in path and file.is_file()
    size_bytes = file.stat().st_size if known else None
    found = files.sha256(file) if known and digest else None
    run.record["inputs"] = [*run.record["inputs"], {"path": REDACTED, "bytes": size_bytes, "sha256": found}]


class _Bar:
    """Progress on stderr, only where a person looks at it: most logs are read before a bar would be drawn."""

    def __enter__(self) -> _Bar:
        self.live = sys.stderr.isatty()
        return self

    def show(self, done_bytes: int, log_id: int) -> None:
        if self.live:
            print(f"\r\033[Kread {done_bytes / 1e6:,.0f} MB, log {log_id + 1}", end="", file=sys.stderr, flush=True)  # noqa: T201

    def __exit__(self, *_: object) -> None:
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201


def _document(written: Written, out: Path) -> dict[str, Any]:
    return {
        "out": str(out),
        "logs": written.logs.to_dicts(),
        "applications": written.applications.to_dicts(),
        "tables": {name: {"path": str(path), "rows": written.rows.get(name)} for name, path in written.paths.items()},
    }


def _print(written: Written, out: Path) -> None:
    names = dict(zip(written.applications["log_id"], written.applications.iter_rows(named=True), strict=True))
    typer.echo(f"{'application':<42} {'status':<10} {'engine':<7} {'duration':>10} {'content':>10} {'bad lines':>9}")
    for log in written.logs.iter_rows(named=True):
        application = names.get(log["log_id"])
        label = (application["app_id"] or application["app_name"] or "?") if application else Path(log["path"]).name
        duration = application["duration_ms"] if application else None
        typer.echo(
            f"{_printable(label)[:42]:<42} {application['status'] if application else 'unread':<10} "
            f"{application['engine'] if application else '–':<7} "
            f"{f'{duration / 1000:,.1f} s' if duration is not None else '–':>10} "
            f"{log['content_bytes'] / 1e6:>7,.1f} MB {log['n_bad_lines']:>9,}"
        )
        if log["fault"]:
            typer.echo(f"  fault: {_printable(log['fault'])}")
    counts = ", ".join(f"{name} {rows:,}" for name, rows in written.rows.items() if rows)
    typer.echo(f"rows: {counts}\nwritten: {out / 'tables'}")


def _printable(text: str) -> str:
    """A log's text must not steer the terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)
