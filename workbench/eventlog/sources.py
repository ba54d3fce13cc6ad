"""Which event logs lie at a path, and which files make up each: one file, a rolling directory, Databricks parts.

Rules of order: `eventlog_v2_*` folders hold `events_<n>_<app>` by number, and a compacted `events_<n>_….compact`
stands for itself and all lower numbers; Databricks writes `eventlog-YYYY-MM-DD--HH-MM.gz` parts and last `eventlog`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import InputError
from workbench.eventlog.codecs import HEAD_BYTES, MAGIC, Codec, sniff
from workbench.eventlog.scrub import scrub
from workbench.stores import open_store

ROLLED = re.compile(r"events_(\d+)_.*")
DATABRICKS = re.compile(r"eventlog(-\d{4}-\d\d-\d\d--\d\d-\d\d)?(\.[A-Za-z0-9]+)?")
# What stands beside logs and is none: checksums of Hadoop's local file system, markers, temporary files.
BYSTANDER = re.compile(r"[._].*|appstatus_.*|.*\.crc")
MAX_LOGS = 100_000


@dataclass(frozen=True)
class LogFile:
    """One file of a log. `local` is a path that can be opened and sought without fsspec, else None."""

    url: str
    size_bytes: int
    codec: Codec
    local: str | None


@dataclass(frozen=True)
class LogSource:
    """One application's log: the path that names it and its files in the order of the events."""

    path: str
    files: tuple[LogFile, ...]
    in_progress: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def codec(self) -> str:
        return "+".join(sorted({file.codec for file in self.files}))


def find_logs(path: str) -> list[LogSource]:
    """List the event logs at a local path or fsspec URL: the file itself, or all logs in the folder and below it.

    Raises
    ------
    InputError
        Nothing is there, it cannot be reached, a named file is empty or no event log, or a folder holds none.
    """
    shown = scrub(path)
    store, root = _open_store(path)
    try:
        if not store.exists(root):
            raise InputError(
                "no such file or folder", where=shown, do="check the path; folders and URLs such as s3://… work too"
            )
        if not store.isdir(root):
            return [_single(store, store.info(root), path)]
        logs = _below(store, root)
    except (OSError, ValueError, ImportError) as error:
        raise InputError("cannot be read", where=shown, found=scrub(f"{type(error).__name__}: {error}")) from error
    if not logs:
        raise InputError(
            "no event log in this folder",
            where=shown,
            allowed="Spark event logs (plain, gzip, zstd, lz4, snappy, lzf), eventlog_v2_* folders, Databricks parts",
            do="point to the folder that spark.eventLog.dir names",
        )
    return logs


def find_all(paths: Iterable[str | Path]) -> list[LogSource]:
    """The event logs at several paths, one after the other; one that is named twice counts once."""
    found: dict[tuple[str, ...], LogSource] = {}
    for path in paths:
        for source in find_logs(str(path)):
            files = tuple(os.path.realpath(file.local) if file.local else file.url for file in source.files)
            found.setdefault(files, source)
    return list(found.values())


class _Local:
    """The machine's own files, by the few calls of an fsspec store that are needed: loading fsspec takes 70 ms."""

    protocol = "file"

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def isdir(self, path: str) -> bool:
        return Path(path).is_dir()

    def info(self, path: str) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": Path(path).stat().st_size}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        """Files and folders; links to files are followed, links to folders not, for they may form loops."""
        assert detail
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.append({"name": entry.path, "type": "directory", "size": 0})
                elif entry.is_file():
                    found.append({"name": entry.path, "type": "file", "size": entry.stat().st_size})
        return found

    def open(self, path: str, mode: str) -> Any:
        return Path(path).open(mode)


def _open_store(path: str) -> tuple[Any, str]:
    if "://" not in path and "::" not in path:
        return _Local(), str(Path(path).expanduser().absolute())
    return open_store(path, told=scrub)


def _below(store: Any, folder: str) -> list[LogSource]:
    entries = sorted(store.ls(folder, detail=True), key=lambda entry: _natural(_name(entry)))
    files = [entry for entry in entries if entry["type"] == "file"]
    if whole := _as_one_log(store, folder, files):
        return [whole]
    logs = [log for entry in files if not BYSTANDER.fullmatch(_name(entry)) for log in _maybe_single(store, entry)]
    for entry in entries:
        if entry["type"] == "directory" and not _name(entry).startswith((".", "_")) and len(logs) < MAX_LOGS:
            logs += _below(store, entry["name"])
    return logs


def _as_one_log(store: Any, folder: str, files: list[dict[str, Any]]) -> LogSource | None:
    """The folder as a single application's log, when its file names say so."""
    name = PurePosixPath(folder).name
    rolled = {
        int(match[1]): file
        for file in files
        if (match := ROLLED.fullmatch(_name(file))) and not _name(file).endswith(".compact")
    }
    compacted = {
        int(match[1]): file
        for file in files
        if (match := ROLLED.fullmatch(_name(file))) and _name(file).endswith(".compact")
    }
    if rolled or compacted:
        start = max(compacted, default=0)
        chosen = ([compacted[start]] if compacted else []) + [
            file for number, file in sorted(rolled.items()) if number > start
        ]
        in_progress = any(
            _name(file).startswith("appstatus_") and _name(file).endswith(".inprogress") for file in files
        )
        return _joined(store, folder, chosen, in_progress=in_progress)
    parts = [file for file in files if DATABRICKS.fullmatch(_name(file))]
    if (any(_name(file) == "eventlog" for file in parts) and len(parts) > 1) or (parts and name.isdigit()):
        # Dated parts in order of their dates; the undated one is the newest.
        return _joined(store, folder, sorted(parts, key=lambda file: (_name(file) == "eventlog", _name(file))))
    return None


def _joined(store: Any, folder: str, entries: list[dict[str, Any]], *, in_progress: bool = False) -> LogSource:
    files, notes = [], []
    for entry in entries:
        file = _sniffed(store, entry)
        if file is None:
            notes.append(f"{_name(entry)}: {'empty' if not entry['size'] else 'no event log'}")
        else:
            files.append(file)
    if not files:
        raise InputError("none of the log's files can be read", where=scrub(folder), found=notes)
    return LogSource(
        store.unstrip_protocol(folder) if _remote(store) else folder, tuple(files), in_progress, tuple(notes)
    )


def _maybe_single(store: Any, entry: dict[str, Any]) -> list[LogSource]:
    """A file of a folder that is walked through: what is no log is passed over."""
    file = _sniffed(store, entry, strict=True)
    return [LogSource(file.url, (file,), _name(entry).endswith(".inprogress"))] if file else []


def _single(store: Any, entry: dict[str, Any], path: str) -> LogSource:
    """A file that the user named: what is no log is refused with the reason."""
    if not entry["size"]:
        raise InputError(
            "the file is empty", where=scrub(path), do="check that the application has written its event log"
        )
    file = _sniffed(store, entry)
    if file is None:
        head = _head(store, entry["name"])
        raise InputError(
            "not a Spark event log",
            where=scrub(path),
            found=f"first bytes {head[:8]!r}",
            allowed=["JSON lines", *(codec for _, codec in MAGIC[:5])],
            do="give the file that Spark wrote below spark.eventLog.dir",
        )
    return LogSource(path, (file,), _name(entry).endswith(".inprogress"))


def _sniffed(store: Any, entry: dict[str, Any], *, strict: bool = False) -> LogFile | None:
    head = _head(store, entry["name"])
    codec = sniff(head)
    if codec is None or (strict and codec == "plain" and not head.startswith(b'{"Event"')):
        return None
    url = store.unstrip_protocol(entry["name"]) if _remote(store) else entry["name"]
    return LogFile(url, int(entry["size"] or 0), codec, None if _remote(store) else entry["name"])


def _head(store: Any, name: str) -> bytes:
    with store.open(name, "rb") as file:
        head = file.read(HEAD_BYTES)
        while head and not head.strip() and (more := file.read(HEAD_BYTES)):
            head = more
        return bytes(head)


def _remote(store: Any) -> bool:
    protocols = (store.protocol,) if isinstance(store.protocol, str) else store.protocol
    return "file" not in protocols


def _name(entry: dict[str, Any]) -> str:
    return PurePosixPath(entry["name"]).name


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which attempt_2 comes before attempt_10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", name) if piece]
