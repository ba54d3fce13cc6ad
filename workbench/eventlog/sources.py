"""Find the event logs at a path, and cut each into chunks of whole lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from workbench.core.errors import InputError
from workbench.core.files import open_store, raise_as_os_errors
from workbench.eventlog.codecs import HEAD_BYTES, MAGIC, Codec, CodecFaultError, decode_blocks, detect_codec
from workbench.eventlog.fold import MAX_LINE_BYTES, Chunk
from workbench.eventlog.secret_removal import remove_secrets

ROLLED = re.compile(r"events_(\d+)_.*")
DATABRICKS = re.compile(r"eventlog(-\d{4}-\d\d-\d\d--\d\d-\d\d)?(\.[A-Za-z0-9]+)?")
# Files beside logs: checksums of Hadoop's local file system, markers, temporary files.
NOT_A_LOG = re.compile(r"[._].*|appstatus_.*|.*\.crc")
MAX_LOGS = 100_000


@dataclass(frozen=True)
class LogFile:
    """One file of a log; `local` is its path on this machine, or None."""

    url: str
    size_bytes: int
    codec: Codec
    local: str | None


@dataclass(frozen=True)
class LogSource:
    """Log of one application: its path, and its files in the order of the events."""

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


def list_logs(path: str) -> list[LogSource]:
    """List the event logs at a local path or fsspec URL: the file itself, or all logs in the folder and below it.

    Raises
    ------
    InputError
        No such path, it cannot be read, the file is empty or no event log, or the folder has none.
    """
    shown = remove_secrets(path)
    store, root = _open_store(path)
    try:
        with raise_as_os_errors():
            if not store.exists(root):
                raise InputError(
                    "no such file or folder", where=shown, do="check the path; folders and URLs such as s3://… work too"
                )
            if not store.isdir(root):
                return [_load_single_log(store, store.info(root), path)]
            logs = _list_logs_below(store, root)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            "cannot be read", where=shown, found=remove_secrets(f"{type(error).__name__}: {error}")
        ) from error
    if not logs:
        raise InputError(
            "no event log in this folder",
            where=shown,
            allowed="Spark event logs (plain, gzip, zstd, lz4, snappy, lzf), eventlog_v2_* folders, Databricks parts",
            do="point to the folder that spark.eventLog.dir names",
        )
    return logs


def list_all_logs(paths: Iterable[str | Path]) -> list[LogSource]:
    """Event logs at several paths, in order, without duplicates."""
    found: dict[tuple[str, ...], LogSource] = {}
    for path in paths:
        for source in list_logs(str(path)):
            files = tuple(os.path.realpath(file.local) if file.local else file.url for file in source.files)
            found.setdefault(files, source)
    return list(found.values())


class _LocalStore:
    """Local files with the needed calls of an fsspec store; loading fsspec takes 70 ms."""

    protocol = "file"

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def isdir(self, path: str) -> bool:
        return Path(path).is_dir()

    def info(self, path: str) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": Path(path).stat().st_size}

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        """Files and folders; links to files are followed, not those to folders, which may form loops."""
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
        local = Path(path).expanduser().absolute()
        # Names of links stay, but a way up through one is taken as the file system takes it.
        return _LocalStore(), str(local.resolve() if ".." in local.parts else local)
    return open_store(path, format_url=remove_secrets)


def _list_logs_below(store: Any, folder: str) -> list[LogSource]:
    entries = sorted(store.ls(folder, detail=True), key=lambda entry: _natural_sort_key(_entry_name(entry)))
    files = [entry for entry in entries if entry["type"] == "file"]
    if whole := _match_folder_log(store, folder, files):
        return [whole]
    logs = [
        log for entry in files if not NOT_A_LOG.fullmatch(_entry_name(entry)) for log in _list_single_log(store, entry)
    ]
    for entry in entries:
        if entry["type"] == "directory" and not _entry_name(entry).startswith((".", "_")) and len(logs) < MAX_LOGS:
            logs += _list_logs_below(store, entry["name"])
    return logs


def _match_folder_log(store: Any, folder: str, files: list[dict[str, Any]]) -> LogSource | None:
    """The folder as the log of one application, if its file names match."""
    name = PurePosixPath(folder).name
    rolled = {
        int(match[1]): file
        for file in files
        if (match := ROLLED.fullmatch(_entry_name(file))) and not _entry_name(file).endswith(".compact")
    }
    compacted = {
        int(match[1]): file
        for file in files
        if (match := ROLLED.fullmatch(_entry_name(file))) and _entry_name(file).endswith(".compact")
    }
    if rolled or compacted:
        start = max(compacted, default=0)
        chosen = ([compacted[start]] if compacted else []) + [
            file for number, file in sorted(rolled.items()) if number > start
        ]
        in_progress = any(
            _entry_name(file).startswith("appstatus_") and _entry_name(file).endswith(".inprogress") for file in files
        )
        return _join_files(store, folder, chosen, in_progress=in_progress)
    parts = [file for file in files if DATABRICKS.fullmatch(_entry_name(file))]
    if (any(_entry_name(file) == "eventlog" for file in parts) and len(parts) > 1) or (parts and name.isdigit()):
        # Dated parts by date; the undated one is the newest.
        return _join_files(
            store, folder, sorted(parts, key=lambda file: (_entry_name(file) == "eventlog", _entry_name(file)))
        )
    return None


def _join_files(store: Any, folder: str, entries: list[dict[str, Any]], *, in_progress: bool = False) -> LogSource:
    files, notes = [], []
    for entry in entries:
        file = _detect_log_file(store, entry)
        if file is None:
            notes.append(f"{_entry_name(entry)}: {'empty' if not entry['size'] else 'no event log'}")
        else:
            files.append(file)
    if not files:
        raise InputError("none of the log's files can be read", where=remove_secrets(folder), found=notes)
    return LogSource(
        store.unstrip_protocol(folder) if _is_remote(store) else folder, tuple(files), in_progress, tuple(notes)
    )


def _list_single_log(store: Any, entry: dict[str, Any]) -> list[LogSource]:
    """A file of a folder; other files than logs are skipped."""
    file = _detect_log_file(store, entry, strict=True)
    return [LogSource(file.url, (file,), _entry_name(entry).endswith(".inprogress"))] if file else []


def _load_single_log(store: Any, entry: dict[str, Any], path: str) -> LogSource:
    """A file given by the user; other files than logs are refused."""
    if not entry["size"]:
        raise InputError(
            "the file is empty", where=remove_secrets(path), do="check that the application has written its event log"
        )
    file = _detect_log_file(store, entry)
    if file is None:
        head = _read_head(store, entry["name"])
        raise InputError(
            "not a Spark event log",
            where=remove_secrets(path),
            found=f"first bytes {head[:8]!r}",
            allowed=["JSON lines", *(codec for _, codec in MAGIC[:5])],
            do="give the file that Spark wrote below spark.eventLog.dir",
        )
    return LogSource(path, (file,), _entry_name(entry).endswith(".inprogress"))


def _detect_log_file(store: Any, entry: dict[str, Any], *, strict: bool = False) -> LogFile | None:
    head = _read_head(store, entry["name"])
    codec = detect_codec(head)
    if codec is None or (strict and codec == "plain" and not head.startswith(b'{"Event"')):
        return None
    url = store.unstrip_protocol(entry["name"]) if _is_remote(store) else entry["name"]
    return LogFile(url, int(entry["size"] or 0), codec, None if _is_remote(store) else entry["name"])


def _read_head(store: Any, name: str) -> bytes:
    with store.open(name, "rb") as file:
        head = file.read(HEAD_BYTES)
        while head and not head.strip() and (more := file.read(HEAD_BYTES)):
            head = more
        return bytes(head)


def _is_remote(store: Any) -> bool:
    protocols = (store.protocol,) if isinstance(store.protocol, str) else store.protocol
    return "file" not in protocols


def _entry_name(entry: dict[str, Any]) -> str:
    return PurePosixPath(entry["name"]).name


def _natural_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Sort key under which attempt_2 comes before attempt_10."""
    return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in re.split(r"(\d+)", name) if piece]


CHUNK_BYTES = 32 << 20


class LogCutter:
    """Cuts one log into chunks; `faults` then lists damage."""

    def __init__(self, log_id: int, source: LogSource, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.log_id = log_id
        self.source = source
        self.chunk_bytes = chunk_bytes
        self.faults: list[str] = list(source.notes)

    def iter_chunks(self) -> Iterator[Chunk]:
        for number, file in enumerate(self.source.files):
            if file.codec == "plain" and file.local is not None:
                yield from self._iter_ranges(number, file)
                continue
            try:
                with _open_file(file) as opened:
                    yield from self._iter_blocks(number, file, opened)
            except OSError as error:
                self._add_fault(file, f"cannot be read: {error}")

    def _iter_ranges(self, number: int, file: LogFile) -> Iterator[Chunk]:
        for start in range(0, file.size_bytes, self.chunk_bytes):
            yield Chunk(self.log_id, number, start, start + self.chunk_bytes, path=file.local)

    def _iter_blocks(self, number: int, file: LogFile, opened: IO[bytes]) -> Iterator[Chunk]:
        pieces: list[bytes] = []
        start, held, stop = 0, 0, self.chunk_bytes
        try:
            for block in decode_blocks(opened, file.codec):
                pieces.append(block)
                held += len(block)
                # A block may hold the ends of several chunks.
                while start + held >= stop:
                    # Lines that begin before `stop` belong to the chunk: cut after the first line end from there.
                    # It is in the last piece; joining all pieces each time would be quadratic.
                    before = held - len(pieces[-1])
                    found = pieces[-1].find(b"\n", max(0, stop - 1 - start - before)) + 1
                    if not found and held <= MAX_LINE_BYTES:
                        break
                    data = b"".join(pieces)
                    end = before + found if found else held
                    yield Chunk(self.log_id, number, start, start + end, data=data[:end])
                    pieces, held, start = [data[end:]], held - end, start + end
                    stop = max(stop, start) + self.chunk_bytes
                    stop -= stop % self.chunk_bytes
        except CodecFaultError as fault:
            self._add_fault(file, str(fault))
        if held:
            yield Chunk(self.log_id, number, start, start + held, data=b"".join(pieces))

    def _add_fault(self, file: LogFile, what: str) -> None:
        self.faults.append(f"{file.url.rsplit('/', 1)[-1]}: {what}")


def _open_file(file: LogFile) -> IO[bytes]:
    if file.local is not None:
        return open(file.local, "rb", buffering=1 << 20)
    import fsspec

    opened: IO[bytes] = fsspec.open(file.url, "rb").open()
    return opened
