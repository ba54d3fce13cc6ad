"""One folder a run: run.json, tables/*.parquet, report.ipynb, report.html; whole files, versioned, never a secret.

`OUT/<area>/<run id>/`; OUT is `data/runs` in the checkout, or the user's cache where that cannot be written.
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

from workbench import files, records, redaction
from workbench.errors import ConfigError, InputError, RunFailedError
from workbench.holding import hold, holder, release
from workbench.holding import supported as _locks_are_told
from workbench.places import OUT_VARIABLE, cache_folder, default_out
from workbench.records import CHECKOUT, Json, began, parse, time_of

if TYPE_CHECKING:
    import polars as pl

    from workbench.tables import Table

RUN_DIR_VARIABLE = "WORKBENCH_RUN_DIR"
RECORD = "run.json"
PROGRESS = "progress.json"
MOST_RECORD_BYTES = 16 << 20

Status = Literal["running", "succeeded", "failed", "cancelled"]
State = Literal["running", "succeeded", "failed", "cancelled", "died"]
Verdict = Literal["valid", "invalid"]

_live: dict[str, Run] = {}
# When this process began the runs that it still writes, by a clock that nobody sets.
_begun_s: dict[Path, float] = {}

__all__ = [
    "CHECKOUT",
    "OUT_VARIABLE",
    "Run",
    "attach",
    "began",
    "cache_folder",
    "current",
    "default_out",
    "find",
    "hold",
    "holder",
    "load",
    "parse",
    "release",
    "start",
]


@dataclass
class Run:
    """A run folder and what its run.json says; every change is written at once, as a whole file.

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
        """Its name: UTC start and six random hex digits."""
        return str(self.record["run_id"])

    @property
    def area(self) -> str:
        """The notebook's stem without its number."""
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
        """The status; "died" when it says running and nobody runs it: its process was killed, or ended in between."""
        if self.status != "running":
            return cast("State", self.status)
        if holder(self.folder) is not None or not _locks_are_told(self.folder):
            return "running"
        # It may have ended since its record was read; the lock goes after the record says so.
        with contextlib.suppress(InputError):
            if (now := load(self.folder)).status != "running" and now.run_id == self.run_id:
                return cast("State", now.status)
        return "died"

    @property
    def verdict(self) -> str | None:
        """valid, invalid, or null when the run did not get that far."""
        verdict = self.record["verdict"]
        return None if verdict is None else str(verdict)

    @property
    def answer(self) -> str | None:
        """The sentence that answers the question; null when there is none."""
        answer = self.record.get("answer")
        return None if answer is None else str(answer)

    @property
    def tables_folder(self) -> Path:
        """Where the Parquet files lie."""
        return self.folder / "tables"

    @property
    def report(self) -> Path:
        """The page, which is there once the run has ended."""
        return self.folder / "report.html"

    def write_table(self, table: Table, frame: pl.DataFrame) -> Path:
        """Check a frame against its declaration, write it to `tables/` and note its rows in run.json.

        Text columns are cleaned of secrets that this run was given. A table written again replaces the first.

        Raises
        ------
        InputError
            The frame is not the declared table.
        """
        path = table.write(redaction.clean_frame(frame), self.tables_folder)
        others = [entry for entry in self.record["tables"] if entry["name"] != table.name]
        self.record["tables"] = [*others, records.table_entry(table, frame.height)]
        self.save()
        return path

    def read_table(self, table: Table) -> pl.DataFrame:
        """Read a table of this run back, checked."""
        return table.read(self.tables_folder)

    def add_input(self, path: str | Path, *, digest: bool = True) -> None:
        """Note an input with its bytes and sha256; a folder counts as its files, a URL is noted by name alone.

        Without `digest` its sha256 is null: hashing takes about 0.6 s per GB.

        Raises
        ------
        InputError
            A local path is not there or cannot be read.
        """
        entry = records.input_entry(path, digest=digest)
        self.record["inputs"] = [*(old for old in self.record["inputs"] if old["path"] != entry["path"]), entry]
        self.save()

    def conclude(self, verdict: Verdict, reasons: Iterable[str] = (), answer: str | None = None) -> None:
        """Say whether the run is valid, why (not), and the answer in one sentence; ends a live run.

        Raises
        ------
        ConfigError
            The verdict is neither valid nor invalid, or invalid without a reason.
        """
        listed = [reasons] if isinstance(reasons, str) else [str(reason) for reason in reasons]
        if verdict not in ("valid", "invalid"):
            raise ConfigError("unknown verdict", where="Run.conclude", found=verdict, allowed=["valid", "invalid"])
        if verdict == "invalid" and not listed:
            raise ConfigError("an invalid run needs a reason", where="Run.conclude", do="pass reasons=[…]")
        self.record |= {"verdict": verdict, "reasons": listed, "answer": answer}
        if _runs_headless(self.folder):
            self.save()
        else:
            self.end("succeeded")

    def end(self, status: Status, failure: Json | None = None) -> None:
        """Close the run: status, end time, duration, and what failed; its lock and its progress go."""
        self.settle(status, failure)
        self.close()

    def close(self) -> None:
        """Write what `settle` has noted; the lock and the progress go, also when it cannot be written."""
        try:
            self.save()
        finally:
            with contextlib.suppress(OSError):
                (self.folder / PROGRESS).unlink(missing_ok=True)
            _begun_s.pop(self.folder, None)
            release(self.folder)

    def settle(self, status: Status, failure: Json | None = None) -> None:
        """What `end` notes, in memory only: for what must be whole before run.json says that the run has ended.

        The duration is by a clock that nobody sets, when this process began the run; else by the two times, and null
        when the clock went backwards between them.
        """
        now, started = datetime.now(UTC), time_of(self.record["started_at"])
        took_s = (now - started).total_seconds() if started else -1.0
        if (begun_s := _begun_s.get(self.folder)) is not None:
            took_s = time.monotonic() - begun_s
        self.record |= {
            "status": status,
            "ended_at": now.isoformat(timespec="milliseconds"),
            "duration_s": round(took_s, 3) if took_s >= 0 else None,
            "failure": failure,
        }

    def note_progress(self, cell: int, cells: int, label: str) -> None:
        """Say in progress.json which cell is next, from 0 on, of how many, and the heading above it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {"cell": cell, "cells": cells, "label": label[:200], "at": at}
        # How far it is must never stop a run, on a full disk, say: there its tables will.
        with contextlib.suppress(OSError):
            files.write_text(self.folder / PROGRESS, json.dumps(entry, ensure_ascii=False) + "\n")

    def save(self) -> None:
        """Write run.json, cleaned of secrets, whole or not at all.

        Raises
        ------
        RunFailedError
            It cannot be written: the disk is full, or was taken away.
        """
        clean = redaction.clean(self.record)
        text = json.dumps(clean, indent=1, ensure_ascii=False, default=str) + "\n"
        try:
            files.write_text(self.folder / RECORD, text)
        except OSError as error:
            raise RunFailedError(
                "cannot write the run's record",
                where=self.folder,
                found=error.strerror,
                do="make room there, or choose another folder with --out DIR",
            ) from error


def start(
    area: str,
    out: str | Path | None = None,
    *,
    folder: str | Path | None = None,
    title: str | None = None,
    notebook: str | None = None,
    config: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Run:
    """Make a new run folder below `out` (`default_out()` without one), or just `folder`; write its first run.json.

    This process holds the folder from then on, until the run has ended.

    Raises
    ------
    ConfigError
        The folder cannot be made, another process writes into it, it holds a run of another area, or a key of `config`,
        or of a KEY=VALUE text in it, is named like a secret.
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
        hold(folder)
    except OSError as error:
        raise ConfigError(
            "cannot make the run folder", where=folder, found=error.strerror, do="choose another with --out DIR"
        ) from error
    _begun_s[folder] = time.monotonic()
    run = Run(folder, records.first(run_id, area, now))
    run.record |= {"title": title or area.replace("_", " ").capitalize(), "notebook": notebook, "command": command}
    run.record["config"] = dict(config or {})
    try:
        run.save()
    except BaseException:
        release(folder)
        with contextlib.suppress(OSError):
            # What was just made and holds nothing; a folder that held something stays.
            (folder / "tables").rmdir()
            folder.rmdir()
        raise
    return run


def attach(folder: str | Path) -> Run:
    """The run that somebody else started: what a notebook's kernel does with $WORKBENCH_RUN_DIR."""
    return load(folder)


def current(area: str, *, config: Mapping[str, Any] | None = None) -> Run:
    """The run that this notebook belongs to.

    Started by `workbench run`, it is that run folder. Live in JupyterLab, a new folder is made below `default_out()`;
    asked again before `conclude`, the same one is given, so that running a cell twice leaves one folder.
    """
    if folder := os.environ.get(RUN_DIR_VARIABLE):
        return attach(folder)
    run = _live.get(area)
    if run is None or run.status != "running" or not run.folder.is_dir():
        run = _live[area] = start(area, config=config, command="live")
    return run


def load(folder: str | Path) -> Run:
    """Read a run folder; an older run.json is upgraded in memory, a newer one refused.

    Raises
    ------
    InputError
        There is no run.json, it is no run record, or its format is newer than this version of the workbench.
    """
    path = Path(folder) / RECORD
    try:
        content = files.read_bounded(path, MOST_RECORD_BYTES)
    except FileNotFoundError as error:
        raise InputError("not a run folder", where=folder, found=f"no {RECORD}", do="workbench runs list") from error
    except OSError as error:
        raise InputError("unreadable run record", where=path, found=error.strerror or str(error)[:200]) from error
    return Run(Path(folder).absolute(), parse(content, path))


def find(folder: str | Path, *, unreadable: Callable[[InputError], None] | None = None) -> list[Run]:
    """All runs below a folder, newest first.

    Parameters
    ----------
    folder
        Where to look, at any depth; a folder that is not there has no runs.
    unreadable
        Called with the error of each run.json that cannot be read; without it those are left out.
    """
    found = []
    for path in sorted(Path(folder).rglob(RECORD)):
        try:
            found.append(load(path.parent))
        except InputError as error:
            if unreadable:
                unreadable(error)
    return sorted(found, key=lambda run: (began(run.record), run.run_id), reverse=True)


def _runs_headless(folder: Path) -> bool:
    """Is this process the kernel of that run, which its runner will end?"""
    given = os.environ.get(RUN_DIR_VARIABLE)
    return given is not None and Path(given).absolute() == folder


def _refuse_other_area(folder: Path, area: str) -> None:
    """A folder that is named by hand may be written again, but not with what is quite another run."""
    with contextlib.suppress(InputError):
        if (there := load(folder)).area != area:
            raise ConfigError(
                "the folder holds a run of another area",
                where=folder,
                found=f"run {there.run_id} ({there.area})",
                do="choose another folder with --out DIR",
            )


def _refuse_secrets(config: Mapping[str, Any]) -> None:
    named = [name for name in config if redaction.names_a_secret(name)]
    named += [f"{name}: {key}" for name, value in config.items() for key in redaction.secret_settings(name, value)]
    if named:
        raise ConfigError(
            "a secret cannot be part of a run's record",
            where=", ".join(named),
            do="pass the name of an environment variable instead, such as api_key_env, or KEY=${env.NAME}",
        )
