"""Copies of runs between folders and URLs: run.json is written last, so that no half copy reads as a run."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.locks import LOCK_FILE
from workbench.runs import run_folder
from workbench.runs.catalogue import StoredRun
from workbench.runs.run_stores import Store, format_error, list_files, open_place

# The record of a run that is being deleted: see `workbench.runs.prune`.
DELETED_RECORD = "run.json.deleted"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LEFT_OUT = (run_folder.RECORD_FILE, run_folder.PROGRESS_FILE, LOCK_FILE)


def copy_run(run: StoredRun, place: str | Path) -> str:
    """Copy a run that has ended to `<place>/<area>/<run id>`; returns that folder or URL, without user and password.

    Each file is compared by its size after it was written, and run.json comes last: whatever stops the copy, nothing
    there reads as a run until it is whole. The same copy again completes it, and one that is whole is left alone.
    """
    if run.record["status"] == "running":
        raise ConfigError("only a run that has ended can be copied", where=run.place, found=run.state)
    if bad := [name for name in (run.area, run.run_id) if not _NAME.fullmatch(name)]:
        raise ConfigError("not a name of a folder", where=run.place, found=bad[0][:100], do="see its run.json")
    store, root = open_place(place)
    target = f"{root}/{run.area}/{run.run_id}"
    record = _read_file(run, run_folder.RECORD_FILE)
    if _is_there(store, target, record):
        return store.display_path(target)
    try:
        members = list_files(run.store, run.root)
    except OSError as error:
        raise InputError("cannot list the run", where=run.place, found=format_error(error)) from error
    for name, _ in members:
        if name not in _LEFT_OUT and not name.endswith(".part"):
            _copy_file(run, name, store, target)
    try:
        store.write_bytes(f"{target}/{run_folder.RECORD_FILE}", record)
    except OSError as error:
        raise _build_error(store, target, error) from error
    return store.display_path(target)


def _read_file(run: StoredRun, name: str) -> bytes:
    try:
        return run.store.read_bytes(f"{run.root}/{name}", run_folder.MAX_RECORD_BYTES)
    except OSError as error:
        raise InputError("cannot read the run", where=f"{run.place}/{name}", found=format_error(error)) from error


def _is_there(store: Store, target: str, record: bytes) -> bool:
    """Whether this very run is there, whole."""
    try:
        names = {PurePosixPath(path).name for path, _, _ in store.list_entries(target)}
        if DELETED_RECORD in names:
            do = "delete the rest first: workbench runs prune --keep 1000000 --yes --out of that place"
            raise ConfigError("this run is half deleted there", where=store.display_path(target), do=do)
        if run_folder.RECORD_FILE not in names:
            return False
        stored_record = store.read_bytes(f"{target}/{run_folder.RECORD_FILE}", run_folder.MAX_RECORD_BYTES)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _build_error(store, target, error) from error
    if stored_record != record:
        raise ConfigError("another run is there", where=store.display_path(target), do="choose another place")
    return True


def _copy_file(run: StoredRun, name: str, store: Store, target: str) -> None:
    try:
        with run.store.local_copy(f"{run.root}/{name}") as path:
            try:
                store.put_file(path, f"{target}/{name}")
            except OSError as error:
                raise _build_error(store, f"{target}/{name}", error) from error
    except OSError as error:
        raise InputError("cannot read the run", where=f"{run.place}/{name}", found=format_error(error)) from error


def _build_error(store: Store, path: str, error: OSError) -> RunFailedError:
    where = redaction.strip_user_info(store.display_path(path))
    return RunFailedError(
        "cannot write the copy of the run",
        where=where,
        found=format_error(error),
        do="the run is kept where it is; copy it again: the same command completes the copy",
    )
