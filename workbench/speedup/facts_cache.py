"""What was read of a log, kept by the sha256 of its content, so that a growing folder is read once.

Only Parquet files of declared tables, checked when read: what somebody else put there is at worst read anew.
"""

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
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import files, runs
from workbench.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from workbench.eventlog.sources import LogFile, LogSource
    from workbench.tables import Table

LIMIT_BYTES = 2 << 30
# Left behind by a process that was killed while it wrote.
STALE_S = 86_400
# A file that changed this recently may change again within the resolution of its time stamp.
SETTLED_NS = 2_000_000_000
READ_BYTES = 8 << 20
DIGEST = re.compile(r"[0-9a-f]{64}")
PART, SEEN = ".part-", "seen"
# What decides the tables of a log: when one of these changes, logs are read anew.
_CODE = ("eventlog/*.py", "tables.py", *(f"speedup/{name}.py" for name in ("execution", "attribution", "measured")))
_CODE += ("speedup/work.py", "speedup/applications.py", "speedup/engines/*.py")


@dataclass(frozen=True)
class FactsCache:
    """Tables of logs by key, in `folder`, at most `limit_bytes` of them; the longest unused go first."""

    folder: Path
    limit_bytes: int = LIMIT_BYTES

    def load(self, key: str, tables: Sequence[Table]) -> dict[str, pl.DataFrame] | None:
        """The tables of a log; null when they are not here, not whole, or not these tables."""
        place = self._place(key)
        if place is None or not place.is_dir() or place.is_symlink():
            return None
        try:
            found = {table.name: table.read(place) for table in tables}
        except InputError:
            shutil.rmtree(place, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return found

    def store(self, key: str, frames: Mapping[Table, pl.DataFrame]) -> bool:
        """Keep the tables of a log, all or none; false where the cache cannot be written."""
        place = self._place(key)
        if place is None:
            return False
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=PART, dir=place.parent))
        except OSError:
            return False
        try:
            for table, frame in frames.items():
                table.write(frame, temporary)
            temporary.rename(place)
        except OSError:
            # Somebody else has stored the same, or the disk is full.
            shutil.rmtree(temporary, ignore_errors=True)
            return place.is_dir()
        return True

    def prune(self) -> int:
        """Remove the longest unused logs beyond the limit; how many."""
        entries = []
        for place in self._entries():
            with contextlib.suppress(OSError):
                size = sum(file.stat().st_size for file in place.iterdir())
                entries.append((place.stat().st_mtime, size, place))
        total, removed = sum(size for _, size, _ in entries), 0
        for used, size, place in sorted(entries):
            stale = place.name.startswith(PART) and time.time() - used > STALE_S
            if total <= self.limit_bytes and not stale:
                continue
            shutil.rmtree(place, ignore_errors=True)
            total, removed = total - size, removed + 1
        return removed

    def key_of(self, source: LogSource) -> str:
        """The sha256 of a log's content; a local file that is unchanged since it was hashed is not read again.

        Raises
        ------
        InputError
            A file of it cannot be read.
        """
        stamp = _stamp(source)
        place = self.folder / SEEN / stamp if stamp and self._usable() else None
        if place is not None and (known := _text(place)) is not None:
            return known
        key = digest(source)
        # Not when it changed while it was read.
        if place is not None and _stamp(source) == stamp:
            with contextlib.suppress(OSError):
                files.write_text(place, key)
        return key

    def _place(self, key: str) -> Path | None:
        if not DIGEST.fullmatch(key) or not self._usable():
            return None
        return self.folder / code_version() / key[:2] / key

    def _usable(self) -> bool:
        """Whether the folder is there and this user's alone: below a shared place it may be somebody else's."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.folder.lstat()
        except OSError:
            return False
        mine = not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & 0o022)
        return mine and self.folder.is_dir() and not self.folder.is_symlink()

    def _entries(self) -> Iterator[Path]:
        for place in self.folder.glob("*/*/*"):
            if place.is_dir() and not place.is_symlink():
                yield place


def default_cache() -> FactsCache:
    """The cache in the user's own folder of caches."""
    return FactsCache(runs.cache_folder() / "logs")


def digest(source: LogSource) -> str:
    """The sha256 of a log: of its file's bytes, or, where it has several, of their digests in order.

    Raises
    ------
    InputError
        A file of it cannot be read.
    """
    try:
        parts = [_file_digest(file) for file in source.files]
    except OSError as error:
        raise InputError("cannot be read", where=source.path, found=error.strerror or str(error)) from error
    if len(parts) == 1 and not source.notes:
        return parts[0]
    # What was missing changes the result, too.
    return hashlib.sha256("\n".join([*parts, *source.notes]).encode()).hexdigest()


def _file_digest(file: LogFile) -> str:
    if file.local is not None:
        return files.sha256(file.local)
    import fsspec

    found = hashlib.sha256()
    with fsspec.open(file.url, "rb") as opened:
        while block := opened.read(READ_BYTES):
            found.update(block)
    return found.hexdigest()


def _stamp(source: LogSource) -> str | None:
    """A digest of what the file system says of a log's files; null for remote, just changed or vanished ones."""
    told = [*source.notes]
    for file in source.files:
        if file.local is None:
            return None
        try:
            info = Path(file.local).stat()
        except OSError:
            return None
        if time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) < SETTLED_NS:
            return None
        told.append(f"{os.path.realpath(file.local)}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _text(place: Path) -> str | None:
    try:
        with place.open(encoding="ascii") as file:
            text = file.read(65)
    except (OSError, ValueError):
        return None
    return text if DIGEST.fullmatch(text) else None


@lru_cache(maxsize=1)
def code_version() -> str:
    """A digest of the code that makes the tables."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(package.glob(pattern)):
            found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
