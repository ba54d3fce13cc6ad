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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from workbench import __version__
from workbench.core import files, host, redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError, refuse_os_errors
from workbench.core.files import CHECKOUT, default_out
from workbench.core.locks import acquire_lock, find_holder, release_lock, supports_locks
from workbench.core.samples import describe_samples

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table


FORMAT_VERSION = 1
Json = dict[str, Any]
# By format version: the function that upgrades a record to the next version.
UPGRADES: dict[int, Callable[[Json], Json]] = {}
_MAX_DURATION_S = 100 * 366 * 86400.0
_TEXT = (str,)
_REQUIRED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("run_id", "area", "title", "status", "started_at"), _TEXT),
    "config": (dict,),
    "inputs": (list,),
    "tables": (list,),
    "verdict": (str, type(None)),
    "reasons": (list,),
}
RUN_DIR_VARIABLE = "WORKBENCH_RUN_DIR"
# The same as a command names it where the run was started; empty for a folder that is not below there.
RUN_PLACE_VARIABLE = "WORKBENCH_RUN_PLACE"
RECORD_FILE = "run.json"
PROGRESS_FILE = "progress.json"
MAX_RECORD_BYTES = 16 << 20
Status = Literal["running", "succeeded", "failed", "cancelled"]
State = Literal["running", "succeeded", "failed", "cancelled", "died"]
Verdict = Literal["valid", "invalid"]
NO_VERDICT = "it has no verdict"
_live_runs: dict[str, Run] = {}
# Monotonic start times of the runs that this process writes.
_start_times_s: dict[Path, float] = {}


def build_record(run_id: str, area: str, now: datetime) -> Json:
    return {
        "format_version": FORMAT_VERSION,
        "run_id": run_id,
        "area": area,
        "title": area,
        "notebook": None,
        "status": "running",
        "started_at": now.isoformat(timespec="milliseconds"),
        "ended_at": None,
        "duration_s": None,
        "config": {},
        "command": None,
        "package_version": __version__,
        "git_commit": host.read_git_commit(CHECKOUT),
        "versions": host.list_versions(),
        "host": host.read_host_facts(),
        "inputs": [],
        "tables": [],
        "verdict": None,
        "reasons": [],
        "answer": None,
        "details": [],
        "conditions": [],
        "failure": None,
    }


def parse_record(content: bytes, where: object) -> Json:
    """Parse the bytes of a run.json, upgraded to the current format version."""
    try:
        # Deep nesting ends in a RecursionError.
        record = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError("unreadable run record", where=where, found=str(error)[:200]) from error
    record = _upgrade_record(record, where)
    if missing := [name for name in _REQUIRED if name not in record]:
        raise InputError("not a run record", where=where, found="missing: " + ", ".join(missing))
    if wrong := [name for name, kinds in _REQUIRED.items() if not isinstance(record[name], kinds)]:
        raise InputError("not a run record", where=where, found="of another type: " + ", ".join(wrong))
    return record


def _upgrade_record(record: Any, where: object) -> Json:
    """Bring a run record of an older format version to the current one, step by step."""
    version = record.get("format_version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError("not a run record", where=where, found="no format_version")
    if version > FORMAT_VERSION:
        raise InputError(
            "run record of a newer workbench",
            where=where,
            found=f"format version {version}",
            allowed=f"up to {FORMAT_VERSION}",
            do="pip install --upgrade accelerated-workbench",
        )
    while version < FORMAT_VERSION:
        if version not in UPGRADES:
            raise InputError("run record of an unknown format", where=where, found=f"format version {version}")
        record = UPGRADES[version](dict(record))
        version += 1
        record["format_version"] = version
    return dict(record)


def read_start_time(record: Mapping[str, Any]) -> datetime:
    """Start time of a run in UTC: end time minus duration where known, since a clock may be corrected during a run.

    The year 1 when the record has no readable time.
    """
    ended, started = (parse_time(record.get(name)) for name in ("ended_at", "started_at"))
    took_s = record.get("duration_s")
    if ended is not None and isinstance(took_s, int | float) and 0 <= took_s < _MAX_DURATION_S:
        with contextlib.suppress(OverflowError):
            return ended - timedelta(seconds=took_s)
    return started or datetime.min.replace(tzinfo=UTC)


def find_objection(record: Mapping[str, Any]) -> str:
    """Why nothing should rest on a run: not finished, failed, without a verdict, or invalid; empty for none."""
    if (status := record["status"]) != "succeeded":
        texts = dict.fromkeys(("running", "unfinished"), "it is not finished") | {"cancelled": "it was cancelled"}
        return texts.get(status, f"it {status}")
    if record["verdict"] is None:
        return NO_VERDICT
    if record["verdict"] != "valid":
        reasons = "; ".join(str(reason) for reason in record["reasons"])
        return f"it is invalid: {reasons[:300]}" if reasons else "it is invalid"
    return ""


def parse_time(text: Any) -> datetime | None:
    """Parse an ISO time of a run record; null for anything else.

    >>> parse_time("2026-01-02T03:04:05+00:00"), parse_time(None)
    (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), None)
    """
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def build_table_entry(table: Table, rows: int) -> Json:
    """The entry of a table in run.json, with the key and interval columns that comparisons of runs need."""
    from workbench.runs.columns import find_interval_columns

    numeric = [column.name for column in table.columns if column.dtype in ("int", "float")]
    units = {column.name: column.unit for column in table.columns if column.unit}
    ends = {name: list(pair) for name, pair in find_interval_columns(numeric).items()}
    ends |= {column.name: list(column.ends) for column in table.columns if column.ends}
    meanings = {column.name: column.meaning for column in table.columns if column.meaning}
    better = {column.name: column.better for column in table.columns if column.better}
    named = {"units": units, "meanings": meanings, "better": better, "intervals": ends}
    return {"name": table.name, "rows": rows, "meaning": table.meaning, "key": list(table.key)} | named


def build_input_entry(path: str | Path, *, digest: bool = True) -> Json:
    if "://" in str(path):
        return {"path": redaction.strip_user_info(str(path)), "bytes": None, "sha256": None}
    path = Path(path)
    full = path.resolve()
    # Paths in the checkout are relative, so that samples have the same name on every machine.
    shown = full.relative_to(CHECKOUT).as_posix() if full.is_relative_to(CHECKOUT) else str(full)
    if set("*?[") & set(str(path)) and not path.exists():
        return {"path": shown, "bytes": None, "sha256": None}
    members = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    with refuse_os_errors("cannot read the input", path):
        size_bytes = sum(file.stat().st_size for file in members)
        sha256 = None
        if digest:
            sha256 = files.hash_file(path) if not path.is_dir() else _hash_folder(path, members)
    return {"path": shown, "bytes": size_bytes, "sha256": sha256}


def _hash_folder(folder: Path, members: list[Path]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for file in members:
        digest.update(f"{file.relative_to(folder).as_posix()}\0{files.hash_file(file)}\n".encode())
    return digest.hexdigest()


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

        The frame is one of polars, pandas or Arrow. Secrets of this run are removed from text columns. Writing a table
        again replaces it.

        Raises
        ------
        InputError
            The frame does not match the declaration.
        """
        frame = table.check(frame)
        path = table.write(redaction.redact_frame(frame), self.tables_folder)
        others = [entry for entry in self.record["tables"] if entry["name"] != table.name]
        self.record["tables"] = [*others, build_table_entry(table, frame.height)]
        self.save()
        return path

    def read_table(self, table: Table) -> pl.DataFrame:
        """Read and check a table of this run."""
        return table.read(self.tables_folder)

    def add_input(self, path: str | Path, *, digest: bool = True) -> None:
        """Record an input with its size and SHA-256, of a folder over its files; of a URL or pattern only the name.

        With `digest=False` the SHA-256 is null; hashing takes about 0.6 s per GB.

        Raises
        ------
        InputError
            A local path does not exist or cannot be read.
        """
        entry = build_input_entry(path, digest=digest)
        self.record["inputs"] = [*(old for old in self.record["inputs"] if old["path"] != entry["path"]), entry]
        self.save()

    def list_conditions(self, conditions: Iterable[str] = ()) -> list[str]:
        """What was not real, in a few words each: the conditions of a study, and that inputs are samples."""
        samples = describe_samples(entry["path"] for entry in self.record["inputs"])
        return list(dict.fromkeys([*map(str, conditions), *([samples] if samples else [])]))

    def conclude(
        self,
        verdict: Verdict,
        reasons: Iterable[str] = (),
        answer: str | None = None,
        *,
        details: Iterable[str] = (),
        conditions: Iterable[str] = (),
    ) -> None:
        """Record verdict, reasons and answer, with the sentences below it and what was not real; ends a live run.

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
        told = (self.record["verdict"], self.record["answer"])
        if _is_own_kernel(self.folder) and told not in ((None, None), (verdict, answer)):
            found = f"{told[0]}, then {verdict}" if told[0] != verdict else "two answers"
            do = "conclude once, at the end"
            raise ConfigError("a run has one verdict and answer", where="Run.conclude", found=found, do=do)
        self.record |= {"verdict": verdict, "reasons": reason_list, "answer": answer}
        self.record |= {"details": list(map(str, details)), "conditions": self.list_conditions(conditions)}
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
        with refuse_os_errors(
            "cannot write the run's record",
            self.folder,
            do="make room there, or choose another folder with --out DIR",
            error_type=RunFailedError,
        ):
            files.write_text(self.folder / RECORD_FILE, text)


def build_failure(name: str, error: str | None) -> Json:
    """What a record says of a failed run, with no cell of a notebook: the class of an error, and its text."""
    return {"cell_number": None, "source": None, "error_name": name, "error": error}


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
    # A named folder may be written again, but only by runs of the same area.
    with contextlib.suppress(InputError):
        if (existing := load_run(folder)).area != area:
            raise ConfigError(
                "the folder holds a run of another area",
                where=folder,
                found=f"run {existing.run_id} ({existing.area})",
                do="choose another folder with --out DIR",
            )
    with refuse_os_errors(
        "cannot make the run folder", folder, do="choose another with --out DIR", error_type=ConfigError
    ):
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        acquire_lock(folder)
    _start_times_s[folder] = time.monotonic()
    run = Run(folder, build_record(run_id, area, now))
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


def find_live_run(area: str) -> Run | None:
    """The run that cells of this kernel made last; null when they made none."""
    return _live_runs.get(area)


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
    """List all runs below a folder, newest first.

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
