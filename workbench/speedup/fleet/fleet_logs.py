"""Logs of a fleet: candidates below folders, globs and URLs, and the cache of their tables."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.core.errors import InputError, refuse_os_errors
from workbench.core.files import cache_folder, open_store
from workbench.eventlog.log_redaction import remove_secrets
from workbench.eventlog.sources import (
    MAX_LOGS,
    OF_FOLDER,
    ROLLED_FOLDER,
    LogFile,
    LogSource,
    group_file_names,
    list_logs,
)

if TYPE_CHECKING:
    import polars as pl

    from workbench.core.tables import Table

MAGIC = "*?["
# Files beside logs that are clearly not logs; other files that are not logs are listed with the reason.
DOCUMENTS = frozenset(
    {".md", ".txt", ".py", ".ipynb", ".html", ".csv", ".json", ".yaml", ".yml", ".toml", ".conf", ".properties"}
    | {".sh", ".parquet", ".jar", ".sql", ".pdf", ".png"}
)
LIMIT_BYTES = 2 << 30
PACKAGE = Path(__file__).parents[2]
# Age from which an unfinished entry counts as left behind by a killed process.
STALE_S = 86_400
# A file that changed more recently may change again within the resolution of its time stamp.
SETTLED_NS = 2_000_000_000
READ_BYTES = 8 << 20
DIGEST = re.compile(r"[0-9a-f]{64}")
# Source files that decide the tables of a log: when one of them changes, logs are read again.
CODE_PATTERNS = (
    "eventlog/*.py",
    "core/tables.py",
    "speedup/engines.py",
    "speedup/tables.py",
    "speedup/attribution/*.py",
    "speedup/comparison/comparability.py",
)
# Of a file in a listing, by the store: S3, Google, Azure and HTTP have a tag, files a time.
STAMP_NAMES = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "Last-Modified")
PART_PREFIX, SEEN_FOLDER = ".part-", "seen"


@dataclass(frozen=True)
class LogCandidate:
    """A possible log; `reason` says why it cannot be opened.

    `stamp`: Tag or time of its files, which changes when they do; empty where the store gives neither.
    """

    path: str
    size_bytes: int = 0
    reason: str | None = None
    stamp: str = ""


def list_log_candidates(paths: Sequence[str | Path]) -> list[LogCandidate]:
    """List all possible logs at these files, folders, globs or URLs, each once, sorted by path."""
    candidates: dict[str, LogCandidate] = {}
    for path in paths:
        for candidate in _list_candidates_at(str(path)):
            candidates.setdefault(candidate.path, candidate)
    return sorted(candidates.values(), key=lambda log: log.path)


def _list_opened_candidates(path: str) -> list[LogCandidate]:
    """Logs that only the contents tell apart."""
    try:
        return [_build_opened_candidate(source) for source in list_logs(path)]
    except InputError as error:
        return [LogCandidate(path, reason=error.what)]


def _build_opened_candidate(source: LogSource) -> LogCandidate:
    return LogCandidate(source.path, source.size_bytes, stamp=_stat_fingerprint(source) or "")


def _build_stamp(entries: Sequence[Mapping[str, Any]]) -> str:
    """Tags or times of files in a store's listing; empty where one has neither.

    >>> _build_stamp([{"size": 3, "ETag": '"9f"'}, {"size": 4, "mtime": 2.5}]), _build_stamp([{"size": 3}])
    ('"9f" 2.5', '')
    """
    stamps = [next((str(entry[name]) for name in STAMP_NAMES if entry.get(name)), "") for entry in entries]
    return " ".join(stamps) if all(stamps) else ""


def _list_candidates_at(path: str) -> list[LogCandidate]:
    # The store of a path; a local name may hold the "::" of chained URLs.
    if "://" in path:
        store, root = open_store(path, format_url=remove_secrets)
    else:
        import fsspec

        store, root = fsspec.filesystem("file"), str(Path(path).expanduser().absolute())
    try:
        if not store.exists(root) and OF_FOLDER in path:
            return [_build_opened_candidate(source) for source in list_logs(path)]
        roots = [root] if store.exists(root) or not set(MAGIC) & set(path) else sorted(store.glob(root))
        if not roots or not store.exists(roots[0]):
            raise InputError(
                "no such file or folder", where=remove_secrets(path), do="check the path; folders, globs and URLs work"
            )
        candidates: list[LogCandidate] = []
        for place in roots:
            info = store.info(place)
            if info["type"] == "directory":
                candidates += _list_candidates_below(store, place)
            elif _file_name(place).endswith(".zip"):
                candidates += _list_opened_candidates(_build_url(store, place))
            elif len(roots) == 1 or not _is_document(place):
                size_bytes = int(info.get("size") or 0)
                file_candidate = LogCandidate(_build_url(store, info["name"]), size_bytes, stamp=_build_stamp([info]))
                candidates.append(file_candidate)
    except OSError as error:
        raise InputError("cannot be read", where=remove_secrets(path), found=remove_secrets(str(error))) from error
    if not candidates:
        raise InputError(
            "no possible event log",
            where=remove_secrets(path),
            do="give the folder that spark.eventLog.dir names",
        )
    return candidates


def _list_candidates_below(store: Any, folder: str) -> list[LogCandidate]:
    candidates: list[LogCandidate] = []
    todo = [folder]
    while todo and len(candidates) < MAX_LOGS:
        place = todo.pop()
        try:
            entries = store.ls(place, detail=True)
        except OSError as error:
            candidates.append(
                LogCandidate(_build_url(store, place), reason=f"folder cannot be read: {error.strerror or error}")
            )
            continue
        files = {_file_name(entry["name"]): entry for entry in entries if entry["type"] == "file"}
        groups, other_names = group_file_names(place, sorted(files))
        n_rolled = sum(bool(group.application) for group in groups)
        for group in groups:
            if not group.application:  # parts of Databricks: their first lines tell the applications
                candidates += _list_opened_candidates(_build_url(store, place))
                continue
            size = sum(int(files[name].get("size") or 0) for name in group.names)
            label = f"{OF_FOLDER}{group.application}" if n_rolled > 1 else ""
            stamp = _build_stamp([files[name] for name in group.names])
            candidates.append(LogCandidate(_build_url(store, place) + label, size, stamp=stamp))
        if not groups and _file_name(place).startswith(ROLLED_FOLDER):
            candidates.append(LogCandidate(_build_url(store, place), reason="no file with events in it"))
            continue
        for name in other_names:
            entry = files[name]
            if name.endswith(".zip"):
                candidates += _list_opened_candidates(_build_url(store, entry["name"]))
            elif not _is_document(name):
                candidates.append(
                    LogCandidate(
                        _build_url(store, entry["name"]), int(entry.get("size") or 0), stamp=_build_stamp([entry])
                    )
                )
        # Linked folders are skipped, because they may form loops.
        todo += [
            entry["name"]
            for entry in entries
            if entry["type"] == "directory"
            and not entry.get("islink")
            and not _file_name(entry["name"]).startswith((".", "_"))
        ]
    return candidates


def _is_document(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in DOCUMENTS


def _file_name(path: str) -> str:
    return PurePosixPath(path.rstrip("/")).name


def _build_url(store: Any, path: str) -> str:
    protocols = (store.protocol,) if isinstance(store.protocol, str) else store.protocol
    return path if "file" in protocols else str(store.unstrip_protocol(path))


@dataclass(frozen=True)
class FactsCache:
    """Tables of logs by key, in a folder of at most `limit_bytes`; least recently used entries are removed first."""

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def load_tables(self, key: str, tables: Sequence[Table]) -> dict[str, pl.DataFrame] | None:
        """The tables of a log; null if they are missing, incomplete, or declared differently."""
        place = self._entry_folder(key)
        if place is None or not place.is_dir() or place.is_symlink():
            return None
        try:
            frames = {table.name: table.read(place) for table in tables}
        except InputError:
            shutil.rmtree(place, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return frames

    def store_tables(self, key: str, frames: Mapping[Table, pl.DataFrame]) -> bool:
        """Store the tables of a log, all or none; false if the cache cannot be written."""
        place = self._entry_folder(key)
        if place is None:
            return False
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=PART_PREFIX, dir=place.parent))
        except OSError:
            return False
        try:
            for table, frame in frames.items():
                table.write(frame, temporary)
            temporary.rename(place)
        except OSError:
            # Another process has stored the same, or the disk is full.
            shutil.rmtree(temporary, ignore_errors=True)
            return place.is_dir()
        return True

    def prune(self) -> int:
        """Remove the least recently used logs beyond the limit, and return their number."""
        entries = []
        for place in self._list_entries():
            with contextlib.suppress(OSError):
                size = sum(file.stat().st_size for file in place.iterdir())
                entries.append((place.stat().st_mtime, size, place))
        total, removed = sum(size for _, size, _ in entries), 0
        for used, size, place in sorted(entries):
            stale = place.name.startswith(PART_PREFIX) and time.time() - used > STALE_S
            if total <= self.limit_bytes and not stale:
                continue
            shutil.rmtree(place, ignore_errors=True)
            total, removed = total - size, removed + 1
        return removed

    def hash_source(self, source: LogSource) -> str:
        """The sha256 of a log's content; an unchanged local file is not read again."""
        stamp = _stat_fingerprint(source)
        place = self.folder / SEEN_FOLDER / stamp if stamp and self._is_usable() else None
        if place is not None and (digest := _read_digest(place)) is not None:
            return digest
        key = hash_log(source)
        # Skipped if it changed while it was read.
        if place is not None and _stat_fingerprint(source) == stamp:
            with contextlib.suppress(OSError):
                files.write_text(place, key)
        return key

    def _entry_folder(self, key: str) -> Path | None:
        if not DIGEST.fullmatch(key) or not self._is_usable():
            return None
        return self.folder / hash_reader_code() / key[:2] / key

    def _is_usable(self) -> bool:
        """Whether the folder exists and belongs to this user alone: in a shared location it may be another user's."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.folder.lstat()
        except OSError:
            return False
        is_private = not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & 0o022)
        return is_private and self.folder.is_dir() and not self.folder.is_symlink()

    def _list_entries(self) -> Iterator[Path]:
        for place in self.folder.glob("*/*/*"):
            if place.is_dir() and not place.is_symlink():
                yield place


def open_default_cache() -> FactsCache:
    """The cache in the user's cache folder."""
    return FactsCache(cache_folder() / "logs")


def hash_log(source: LogSource) -> str:
    """The sha256 of a log: of its file, or of the digests of its files in order."""
    with refuse_os_errors("cannot be read", source.path):
        parts = [_hash_log_file(file) for file in source.files]
    missing = [*source.notes, *map(repr, source.holes)]
    if len(parts) == 1 and not missing:
        return parts[0]
    # What is missing changes the result, too.
    return hashlib.sha256("\n".join([*parts, *missing]).encode()).hexdigest()


def _hash_log_file(file: LogFile) -> str:
    if file.local is not None:
        return files.hash_file(file.local)
    import fsspec

    digest = hashlib.sha256()
    with fsspec.open(file.url, "rb") as opened:
        while block := opened.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _stat_fingerprint(source: LogSource) -> str | None:
    """Digest of path, size and times of a log's files; null for remote, recently changed or missing files."""
    parts = [*source.notes, *map(repr, source.holes)]
    for file in source.files:
        if file.local is None:
            return None
        try:
            info = Path(file.local).stat()
        except OSError:
            return None
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) < SETTLED_NS:
            return None
        parts.append(f"{os.path.realpath(file.local)}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _read_digest(place: Path) -> str | None:
    try:
        with place.open(encoding="ascii") as file:
            text = file.read(65)
    except (OSError, ValueError):
        return None
    return text if DIGEST.fullmatch(text) else None


@lru_cache(maxsize=1)
def hash_reader_code() -> str:
    """Digest of the code that makes the tables."""
    digest = hashlib.sha256()
    for pattern in CODE_PATTERNS:
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
