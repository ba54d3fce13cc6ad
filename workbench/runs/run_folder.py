"""Run folders `OUT/<area>/<run id>/`: run.json, tables/*.parquet, report.ipynb, report.html.

Files are written atomically, versioned, and cleaned of secrets. OUT is `data/runs` in the checkout, or the user's
cache where that is not writable.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from workbench.core import files, redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.locks import acquire_lock, find_holder, release_lock, supports_locks
from workbench.core.paths import default_out
from workbench.runs import run_record
from workbench.runs.run_record import Json, parse_record, parse_time, read_start_time

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table

RUN_DIR_VARIABLE = "WORKBENCH_RUN_DIR"
# The same as a command names it where the run was started; empty for a folder that is not below there.
RUN_PLACE_VARIABLE = "WORKBENCH_RUN_PLACE"
RECORD_FILE = "run.json"
PROGRESS_FILE = "progress.json"
MAX_RECORD_BYTES = 16 << 20

Status = Literal["running", "succeeded", "failed", "cancelled"]
State = Literal["running", "succeeded", "failed", "cancelled", "died"]
Verdict = Literal["valid", "invalid"]

_live_runs: dict[str, Run] = {}
# Monotonic start times of the runs that this process writes.
_start_times_s: dict[Path, float] = {}


@dataclass
class Run:
    """A run folder and its record; every change is written to run.json immediately.

    Attributes
    ----------
    folder
        The run folder.
    record
        The content of run.json, format version 1.
    """

    folder: Path
    record: Json

    @property
    def run_id(self) -> str:
        """UTC start time and six random hex digits."""
        return str(self.record["run_id"])

    @property
    def area(self) -> str:
        """Stem of the notebook without its number."""
        return str(self.record["area"])

    @property
    def title(self) -> str:
        """The question that the notebook asks."""
        return str(self.record["title"])

    @property
    def status(self) -> str:
        """running, succeeded, failed or cancelled."""
        return str(self.record["status"])

    @property
    def state(self) -> State:
        """The status, or "died" when the status is "running" but no process holds the folder."""
        if self.status != "running":
            return cast("State", self.status)
        if find_holder(self.folder) is not None or not supports_locks(self.folder):
            return "running"
        # The run may have ended since the record was read: the lock is released after the record is written.
        with contextlib.suppress(InputError):
            if (now := load_run(self.folder)).status != "running" and now.run_id == self.run_id:
                return cast("State", now.status)
        return "died"

    @property
    def verdict(self) -> str | None:
        """valid, invalid, or null when the run has not concluded."""
        verdict = self.record["verdict"]
        return None if verdict is None else str(verdict)

    @property
    def answer(self) -> str | None:
        """The answer in a sentence; null without one."""
        answer = self.record.get("answer")
        return None if answer is None else str(answer)

    @property
    def tables_folder(self) -> Path:
        """Folder of the Parquet files."""
        return self.folder / "tables"

    @property
    def report(self) -> Path:
        """Path of the HTML report, which exists once the run has ended."""
        return self.folder / "report.html"

    def write_table(self, table: Table, frame: pl.DataFrame) -> Path:
        """Check a frame against its declaration, write it to `tables/` and register it in run.json.

        Secrets of this run are removed from text columns. Writing a table again replaces it.

        Raises
        ------
        InputError
            The frame does not match the declaration.
        """
        path = table.write(redaction.redact_frame(frame), self.tables_folder)
        others = [entry for entry in self.record["tables"] if entry["name"] != table.name]
        self.record["tables"] = [*others, run_record.build_table_entry(table, frame.height)]
        self.save()
        return path

    def read_table(self, table: Table) -> pl.DataFrame:
        """Read and check a table of this run."""
        return table.read(self.tables_folder)

    def add_input(self, path: str | Path, *, digest: bool = True) -> None:
        """Record an input with its size and SHA-256, of a folder over its files; of a URL only the name.

        With `digest=False` the SHA-256 is null; hashing takes about 0.6 s per GB.

        Raises
        ------
        InputError
            A local path does not exist or cannot be read.
        """
        entry = run_record.build_input_entry(path, digest=digest)
        self.record["inputs"] = [*(old for old in self.record["inputs"] if old["path"] != entry["path"]), entry]
        self.save()

    def conclude(self, verdict: Verdict, reasons: Iterable[str] = (), answer: str | None = None) -> None:
        """Record verdict, reasons and answer; ends a live run.

        Raises
        ------
        ConfigError
            The verdict is neither valid nor invalid, or invalid without a reason.
        """
        reason_list = [reasons] if isinstance(reasons, str) else [str(reason) for reason in reasons]
        if verdict not in ("valid", "invalid"):
            raise ConfigError("unknown verdict", where="Run.conclude", found=verdict, allowed=["valid", "invalid"])
        if verdict == "invalid" and not reason_list:
            raise ConfigError("an invalid run needs a reason", where="Run.conclude", do="pass reasons=[…]")
        self.record |= {"verdict": verdict, "reasons": reason_list, "answer": answer}
        if _is_own_kernel(self.folder):
            self.save()
        else:
            self.end("succeeded")

    def end(self, status: Status, failure: Json | None = None) -> None:
        """Close the run with its status, end time, duration and failure; removes lock and progress file."""
        self.settle(status, failure)
        self.close()

    def close(self) -> None:
        """Write the record and remove lock and progress file, even if writing fails."""
        try:
            self.save()
        finally:
            with contextlib.suppress(OSError):
                (self.folder / PROGRESS_FILE).unlink(missing_ok=True)
            _start_times_s.pop(self.folder, None)
            release_lock(self.folder)

    def settle(self, status: Status, failure: Json | None = None) -> None:
        """Set status, end time, duration and failure in memory, for work to finish before run.json shows the end.

        The duration comes from the monotonic clock when this process started the run, else from the two times; null
        when the clock went backwards between them.
        """
        now, started = datetime.now(UTC), parse_time(self.record["started_at"])
        took_s = (now - started).total_seconds() if started else -1.0
        if (begun_s := _start_times_s.get(self.folder)) is not None:
            took_s = time.monotonic() - begun_s
        self.record |= {
            "status": status,
            "ended_at": now.isoformat(timespec="milliseconds"),
            "duration_s": round(took_s, 3) if took_s >= 0 else None,
            "failure": failure,
        }

    def note_progress(self, cell: int, cells: int, label: str) -> None:
        """Write progress.json: index of the next cell, number of cells, heading above the cell."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {"cell": cell, "cells": cells, "label": label[:200], "at": at}
        # A failed progress write, on a full disk, must not stop the run.
        with contextlib.suppress(OSError):
            files.write_text(self.folder / PROGRESS_FILE, json.dumps(entry, ensure_ascii=False) + "\n")

    def save(self) -> None:
        """Write run.json atomically, without secrets.

        Raises
        ------
        RunFailedError
            It cannot be written, as on a full disk.
        """
        clean = redaction.redact_value(self.record)
        text = json.dumps(clean, indent=1, ensure_ascii=False, default=str) + "\n"
        try:
            files.write_text(self.folder / RECORD_FILE, text)
        except OSError as error:
            raise RunFailedError(
                "cannot write the run's record",
                where=self.folder,
                found=error.strerror,
                do="make room there, or choose another folder with --out DIR",
            ) from error


def start_run(
    area: str,
    out: str | Path | None = None,
    *,
    folder: str | Path | None = None,
    title: str | None = None,
    notebook: str | None = None,
    config: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Run:
    """Create a run folder below `out` (by default `default_out()`), or use `folder`, and write its first run.json.

    This process holds the lock of the folder until the run ends.
    """
    now = datetime.now(UTC)
    _refuse_secrets(config or {})
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    if folder is None:
        folder = (Path(out) if out is not None else default_out()) / area / run_id
    folder = Path(folder).absolute()
    _refuse_other_area(folder, area)
    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        acquire_lock(folder)
    except OSError as error:
        raise ConfigError(
            "cannot make the run folder", where=folder, found=error.strerror, do="choose another with --out DIR"
        ) from error
    _start_times_s[folder] = time.monotonic()
    run = Run(folder, run_record.build_record(run_id, area, now))
    run.record |= {"title": title or area.replace("_", " ").capitalize(), "notebook": notebook, "command": command}
    run.record["config"] = dict(config or {})
    try:
        run.save()
    except BaseException:
        release_lock(folder)
        with contextlib.suppress(OSError):
            # Removes empty folders only.
            (folder / "tables").rmdir()
            folder.rmdir()
        raise
    return run


def attach_run(folder: str | Path) -> Run:
    """The run of another process, as in a notebook's kernel with $WORKBENCH_RUN_DIR."""
    return load_run(folder)


def current_run(area: str, *, config: Mapping[str, Any] | None = None) -> Run:
    """The run of this notebook.

    Under `workbench run` it is the run folder of that command. In JupyterLab it is a new folder below `default_out()`,
    and the same one until `conclude`, so that running a cell twice creates one folder.
    """
    if folder := os.environ.get(RUN_DIR_VARIABLE):
        return attach_run(folder)
    run = _live_runs.get(area)
    if run is None or run.status != "running" or not run.folder.is_dir():
        run = _live_runs[area] = start_run(area, config=config, command="live")
    return run


def load_run(folder: str | Path) -> Run:
    """Read a run folder; an older run.json is upgraded in memory, a newer one refused."""
    path = Path(folder) / RECORD_FILE
    try:
        content = files.read_up_to(path, MAX_RECORD_BYTES)
    except FileNotFoundError as error:
        raise InputError(
            "not a run folder", where=folder, found=f"no {RECORD_FILE}", do="workbench runs list"
        ) from error
    except OSError as error:
        raise InputError("unreadable run record", where=path, found=error.strerror or str(error)[:200]) from error
    return Run(Path(folder).absolute(), parse_record(content, path))


def list_run_folders(folder: str | Path, *, unreadable: Callable[[InputError], None] | None = None) -> list[Run]:
    """All runs below a folder, newest first.

    `unreadable`: Called with the error of each unreadable run.json; without it they are skipped.
    """
    runs = []
    for path in sorted(Path(folder).rglob(RECORD_FILE)):
        try:
            runs.append(load_run(path.parent))
        except InputError as error:
            if unreadable:
                unreadable(error)
    return sorted(runs, key=lambda run: (read_start_time(run.record), run.run_id), reverse=True)


def _is_own_kernel(folder: Path) -> bool:
    """Whether this process is the kernel of a run, which its runner ends."""
    run_dir = os.environ.get(RUN_DIR_VARIABLE)
    return run_dir is not None and Path(run_dir).absolute() == folder


def _refuse_other_area(folder: Path, area: str) -> None:
    """A named folder may be written again, but only by runs of the same area."""
    with contextlib.suppress(InputError):
        if (existing := load_run(folder)).area != area:
            raise ConfigError(
                "the folder holds a run of another area",
                where=folder,
                found=f"run {existing.run_id} ({existing.area})",
                do="choose another folder with --out DIR",
            )


def _refuse_secrets(config: Mapping[str, Any]) -> None:
    secret_names = [name for name in config if redaction.is_secret_name(name)]
    secret_names += [
        f"{name}: {key}" for name, value in config.items() for key in redaction.find_secret_settings(name, value)
    ]
    if secret_names:
        raise ConfigError(
            "a secret cannot be part of a run's record",
            where=", ".join(secret_names),
            do="pass the name of an environment variable instead, such as api_key_env, or KEY=${env.NAME}",
        )
