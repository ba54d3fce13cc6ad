"""Find the event logs at a path, and cut each into chunks of whole lines."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, get_args

import msgspec

from workbench.core.errors import InputError
from workbench.core.files import open_store, raise_as_os_errors
from workbench.core.formats import format_items
from workbench.core.samples import find_sample
from workbench.eventlog import history_server
from workbench.eventlog.codecs import (
    ENDINGS,
    HEAD_BYTES,
    MAGIC,
    Codec,
    CodecFaultError,
    decode_blocks,
    detect_codec,
    iter_zstd_frames,
)
from workbench.eventlog.completeness import ALL_FIGURES, COMPACTION, MAX_NAMED, Hole
from workbench.eventlog.fold import MAX_LINE_BYTES, Chunk
from workbench.eventlog.listener_events import DECODERS, PartStart
from workbench.eventlog.log_redaction import remove_secrets

# events_NUMBER_APPLICATION[.CODEC][.compact], as Spark rolls a log.
ROLLED = re.compile(rf"events_(\d+)_(.+?)(?:\.(?:{'|'.join(ENDINGS)}|inprogress))?(\.compact)?")
DATABRICKS = re.compile(r"eventlog(-\d{4}-\d\d-\d\d--\d\d-\d\d)?(\..+)?")
ROLLED_FOLDER = "eventlog_v2_"
# Files beside logs: checksums of Hadoop's local file system, markers, temporary files.
NOT_A_LOG = re.compile(r"[._].*|appstatus_.*|.*\.crc")
MAX_LOGS = 100_000
# Between a folder and one of several applications whose files lie in it.
OF_FOLDER = "#"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
ZIP_MAGIC = b"PK\x03\x04"
PART_START = b"DBCEventLoggingListenerMetadata"
FIRST_LINE_BYTES = 1 << 20
CHUNK_BYTES = 32 << 20
MAX_CHUNKS_A_FRAME = 4


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
    notes: tuple[str, ...] = ()
    holes: tuple[Hole, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def codec(self) -> str:
        return "+".join(sorted({file.codec for file in self.files}))


def list_logs(path: str) -> list[LogSource]:
    """List the event logs at a path, URL or `sample:NAME`: the file itself, or all logs in the folder and below it.

    `history:URL` means those of a history server (`history_server`).
    """
    if path.startswith(history_server.PREFIX):
        return [
            replace(log, path=fetched.path, in_progress=fetched.is_running)
            for fetched in history_server.fetch_history_logs(path)
            for log in _list_zipped_logs(str(fetched.file))
        ]
    path = find_sample(path)
    shown = remove_secrets(path)
    # A chain of stores has "::", and a local name may have it, too.
    if "://" not in path and ("::" not in path or os.path.lexists(Path(path).expanduser())):
        local = Path(path).expanduser().absolute()
        # Names of links stay, but a way up through one is taken as the file system takes it.
        store, root = _LocalStore(), str(local.resolve() if ".." in local.parts else local)
    else:
        store, root = open_store(path, format_url=remove_secrets)
    try:
        with raise_as_os_errors():
            if not store.exists(root):
                folder, mark, _ = path.rpartition(OF_FOLDER)
                if mark and (named := [log for log in list_logs(folder) if log.path == path]):
                    return named
                raise InputError(
                    "no such file or folder", where=shown, do="check the path; folders and URLs such as s3://… work too"
                )
            if store.isdir(root):
                logs = _list_logs_below(store, root)
            elif _read_head(store, root).startswith(ZIP_MAGIC):
                logs = _list_zipped_logs(path)
            else:
                return [_load_single_log(store, store.info(root), path)]
    except (OSError, ValueError, ImportError) as error:
        raise InputError(
            "cannot be read", where=shown, found=remove_secrets(f"{type(error).__name__}: {error}")
        ) from error
    if not logs:
        raise InputError(
            "no event log in this folder",
            where=shown,
            allowed=f"Spark event logs ({', '.join(get_args(Codec))}), eventlog_v2_* folders, Databricks parts",
            do="point to the folder that spark.eventLog.dir names",
        )
    return logs


def list_all_logs(paths: Iterable[str | Path]) -> list[LogSource]:
    """Event logs at several paths, in order, without duplicates."""
    logs: dict[tuple[str, ...], LogSource] = {}
    for path in paths:
        for source in list_logs(str(path)):
            files = tuple(os.path.realpath(file.local) if file.local else file.url for file in source.files)
            logs.setdefault(files or (source.path,), source)
    return list(logs.values())


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
        listing = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    listing.append({"name": entry.path, "type": "directory", "size": 0})
                elif entry.is_file():
                    listing.append({"name": entry.path, "type": "file", "size": entry.stat().st_size})
        return listing

    def open(self, path: str, mode: str) -> Any:
        return Path(path).open(mode)


def _list_zipped_logs(path: str) -> list[LogSource]:
    """Logs in a zip, as the history server hands them out; nothing is unpacked on disk."""
    import zipfile

    import fsspec

    origin = path if "://" in path else Path(path).expanduser().absolute().as_posix()
    try:
        store = fsspec.filesystem("zip", fo=origin, skip_instance_cache=True)
        logs = _list_logs_below(store, "")
    except zipfile.BadZipFile as error:
        raise InputError("a damaged zip", where=remove_secrets(path), found=str(error)) from error
    return [
        replace(
            log,
            path=f"{log.path}::{origin}",
            files=tuple(replace(file, url=f"{file.url}::{origin}") for file in log.files),
        )
        for log in logs
    ]


@dataclass(frozen=True)
class FileGroup:
    """Files of a folder that belong to one application by their names; empty application: by their contents."""

    application: str
    names: tuple[str, ...]


def group_file_names(folder: str, names: Sequence[str]) -> tuple[list[FileGroup], list[str]]:
    """Groups of rolled files and of Databricks parts in a folder, and the names of all other possible logs.

    >>> groups, rest = group_file_names("logs", ["events_1_app-7", "events_2_app-7.zstd", "other"])
    >>> [group.application for group in groups], rest
    (['app-7'], ['other'])
    """
    rolled: dict[str, list[str]] = {}
    other_names = []
    for name in names:
        if match := ROLLED.fullmatch(name):
            rolled.setdefault(match[2], []).append(name)
        elif not NOT_A_LOG.fullmatch(name):
            other_names.append(name)
    groups = [FileGroup(application, tuple(rolled_names)) for application, rolled_names in rolled.items()]
    parts = [name for name in other_names if DATABRICKS.fullmatch(name)]
    if len(parts) > 1 or (parts and PurePosixPath(folder).name.isdigit()):
        groups.append(FileGroup("", tuple(other_names)))
        other_names = []
    return groups, other_names


def _list_logs_below(store: Any, folder: str) -> list[LogSource]:
    try:
        entries = store.ls(folder, detail=True)
    except OSError as error:
        return [_describe_unreadable(store, folder, f"folder cannot be read: {error.strerror or error}")]
    entries = sorted(entries, key=lambda entry: _natural_sort_key(_entry_name(entry)))
    files = {_entry_name(entry): entry for entry in entries if entry["type"] == "file"}
    groups, other_names = group_file_names(folder, list(files))
    n_rolled = sum(bool(group.application) for group in groups)
    logs: list[LogSource] = []
    for group in groups:
        chosen = {name: files[name] for name in group.names}
        if group.application:
            running = f"appstatus_{group.application}.inprogress" in files
            name = "" if n_rolled == 1 else group.application
            logs.append(_join_rolled_files(store, folder, name, chosen, in_progress=running))
        else:
            logs += _join_parts(store, folder, chosen)
    if not groups and PurePosixPath(folder).name.startswith(ROLLED_FOLDER):
        return [_describe_unreadable(store, folder, "no file with events in it")]
    logs += [log for name in other_names for log in _list_single_log(store, files[name])]
    for entry in entries:
        if entry["type"] == "directory" and not _entry_name(entry).startswith((".", "_")) and len(logs) < MAX_LOGS:
            logs += _list_logs_below(store, entry["name"])
    return logs


def _describe_unreadable(store: Any, name: str, reason: str) -> LogSource:
    """A log of which nothing can be read."""
    return LogSource(_build_path(store, name), (), notes=(reason,))


def _build_path(store: Any, name: str) -> str:
    return store.unstrip_protocol(name) if _is_remote(store) else name


def _join_rolled_files(
    store: Any, folder: str, application: str, files: Mapping[str, dict[str, Any]], *, in_progress: bool
) -> LogSource:
    """The files of a roll in order; those before the newest compacted one are in it."""
    rolled: dict[int, dict[str, Any]] = {}
    compacted: dict[int, dict[str, Any]] = {}
    for name, entry in files.items():
        match = ROLLED.fullmatch(name)
        assert match is not None, "grouped by it"
        (compacted if match[3] else rolled)[int(match[1])] = entry
    start = max(compacted, default=0)
    numbers = sorted(number for number in rolled if number > start)
    chosen = ([compacted[start]] if compacted else []) + [rolled[number] for number in numbers]
    holes = []
    if compacted:
        holes.append(
            Hole(
                COMPACTION,
                f"files 1 to {start} of the roll",
                "they were compacted: work that had finished in them was discarded",
                ALL_FIGURES,
            )
        )
    if missing := sorted(set(range(start + 1, max(numbers, default=start) + 1)) - set(numbers)):
        holes.append(
            Hole(
                "file",
                f"file{'s' if len(missing) > 1 else ''} {format_items(missing, MAX_NAMED)} of the roll",
                f"missing, and there are files up to number {max(numbers)}",
                ALL_FIGURES,
                max(numbers),
                len(numbers) + start,
            )
        )
    return _join_files(store, folder, application, chosen, in_progress=in_progress, holes=holes)


def _join_files(
    store: Any,
    folder: str,
    application: str,
    entries: Iterable[dict[str, Any]],
    *,
    in_progress: bool = False,
    holes: Iterable[Hole] = (),
) -> LogSource:
    files, notes = [], []
    for entry in entries:
        try:
            file = _detect_log_file(store, entry)
        except OSError as error:
            notes.append(f"{_entry_name(entry)}: cannot be read: {error.strerror or error}")
            continue
        if file is None:
            notes.append(f"{_entry_name(entry)}: {'empty' if not entry['size'] else 'no event log'}")
        else:
            files.append(file)
    path = _build_path(store, folder) + (f"{OF_FOLDER}{application}" if application else "")
    return LogSource(path, tuple(files), in_progress, tuple(notes), tuple(holes))


def _join_parts(store: Any, folder: str, files: Mapping[str, dict[str, Any]]) -> list[LogSource]:
    """The parts of Databricks' rollover in a folder, a log for each context, by the first lines of the parts.

    Without such lines, as in edited logs, by the dates in the names; the undated one is the newest.
    """
    starts = {name: _read_part_start(store, entry) for name, entry in files.items()}
    contexts: dict[str, list[tuple[int, str]]] = {}
    for name, start in starts.items():
        if start is not None and start.number is not None:
            contexts.setdefault(str(start.context_id), []).append((start.number, name))
    others = [name for name in files if starts[name] is None or starts[name].number is None]  # type: ignore[union-attr]
    if not contexts:
        parts = sorted(
            (name for name in others if DATABRICKS.fullmatch(name)), key=lambda name: (name == "eventlog", name)
        )
        logs = [_join_files(store, folder, "", [files[name] for name in parts])]
        single_names = [name for name in others if not DATABRICKS.fullmatch(name)]
        return logs + [log for name in single_names for log in _list_single_log(store, files[name])]
    logs = []
    for context, numbered in contexts.items():
        chosen: dict[int, str] = {}
        holes = []
        for number, name in sorted(
            numbered, key=lambda part: (part[0], -int(files[part[1]]["size"] or 0), len(part[1]))
        ):
            first = chosen.setdefault(number, name)
            if first != name and files[first]["size"] != files[name]["size"]:
                evidence = f"skipped: it has number {number} of the rollover, as {first} has"
                holes.append(Hole("part left out", name, evidence, ALL_FIGURES))
        holes += [
            Hole("part left out", name, _explain_left_out(store, files[name]), ALL_FIGURES)
            for name in others
            if DATABRICKS.fullmatch(name)
        ]
        label = context if len(contexts) > 1 else ""
        logs.append(
            _join_files(store, folder, label, [files[chosen[number]] for number in sorted(chosen)], holes=holes)
        )
    single_names = [name for name in others if not DATABRICKS.fullmatch(name)]
    return logs + [log for name in single_names for log in _list_single_log(store, files[name])]


def _explain_left_out(store: Any, entry: dict[str, Any]) -> str:
    if not entry["size"]:
        return "skipped: it is empty"
    is_log = detect_codec(_read_head(store, entry["name"])) is not None
    return "skipped: its first line has no rollover number" if is_log else "skipped: it is not an event log"


def _read_part_start(store: Any, entry: dict[str, Any]) -> PartStart | None:
    """The first line of a Databricks part; None for other files and those that cannot be read."""
    line = b""
    try:
        if (codec := detect_codec(_read_head(store, entry["name"]))) is None:
            return None
        with store.open(entry["name"], "rb") as opened:
            for block in decode_blocks(opened, codec):
                line += block
                if b"\n" in block or len(line) > FIRST_LINE_BYTES:
                    break
    except (OSError, CodecFaultError):
        pass
    line = line.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    if PART_START not in line:
        return None
    try:
        event: PartStart = DECODERS[PART_START].decode(line)
    except (msgspec.DecodeError, ValueError):
        return None
    return event


def _list_single_log(store: Any, entry: dict[str, Any]) -> list[LogSource]:
    """A file of a folder; other files than logs are skipped."""
    try:
        if not entry["size"] and not PurePosixPath(entry["name"]).suffix:
            return [_describe_unreadable(store, entry["name"], "the file is empty")]
        if _read_head(store, entry["name"]).startswith(ZIP_MAGIC) and not _is_remote(store):
            return _list_zipped_logs(entry["name"])
        file = _detect_log_file(store, entry, strict=True)
    except (OSError, InputError) as error:
        return [_describe_unreadable(store, entry["name"], f"cannot be read: {error}")]
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
        if head.startswith(UTF16_MARKS):
            raise InputError(
                "the log is UTF-16 text",
                where=remove_secrets(path),
                found=f"first bytes {head[:8]!r}",
                allowed="UTF-8, as Spark writes it",
                do="convert it: iconv -f UTF-16 -t UTF-8 LOG > NEW",
            )
        raise InputError(
            "not a Spark event log",
            where=remove_secrets(path),
            found=f"first bytes {head[:8]!r}",
            allowed=["JSON lines", *dict.fromkeys(codec for _, codec in MAGIC)],
            do="give the file that Spark wrote below spark.eventLog.dir",
        )
    return LogSource(path, (file,), _entry_name(entry).endswith(".inprogress"))


def _detect_log_file(store: Any, entry: dict[str, Any], *, strict: bool = False) -> LogFile | None:
    head = _read_head(store, entry["name"])
    codec = detect_codec(head)
    if codec is None or (strict and codec == "plain" and not head.startswith(b'{"Event"')):
        return None
    url = _build_path(store, entry["name"])
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
            start = 0
            if file.codec == "zstd" and file.local is not None:
                for start, stop in self._group_frames(file.local):
                    yield Chunk(self.log_id, number, start, stop, path=file.local, codec=file.codec)
                    start = stop
            if start < file.size_bytes:
                yield from self.iter_stream(number, start)

    def iter_stream(self, number: int, start: int = 0) -> Iterator[Chunk]:
        """Chunks of one file, which this process decodes from byte `start` on."""
        file = self.source.files[number]
        try:
            with _open_file(file) as opened:
                if start:
                    opened.seek(start)
                yield from self._iter_blocks(number, file, opened)
        except OSError as error:
            self._add_fault(file, f"cannot be read: {error}")

    def _group_frames(self, path: str) -> Iterator[tuple[int, int]]:
        """Ranges of whole frames of about a chunk each, up to a frame of many chunks; Spark ends a frame at a flush."""
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as opened:
            first = last = n_bytes = 0
            for start, stop, content_bytes in iter_zstd_frames(opened, MAX_CHUNKS_A_FRAME * self.chunk_bytes):
                if n_bytes + content_bytes > self.chunk_bytes and start > first:
                    yield first, start
                    first, n_bytes = start, 0
                last, n_bytes = stop, n_bytes + content_bytes
            if last > first:
                yield first, last

    def _iter_ranges(self, number: int, file: LogFile) -> Iterator[Chunk]:
        for start in range(0, file.size_bytes, self.chunk_bytes):
            yield Chunk(self.log_id, number, start, start + self.chunk_bytes, path=file.local)

    def _iter_blocks(self, number: int, file: LogFile, opened: IO[bytes]) -> Iterator[Chunk]:
        pieces: list[bytes] = []
        start, n_pending, stop = 0, 0, self.chunk_bytes
        try:
            for block in decode_blocks(opened, file.codec):
                pieces.append(block)
                n_pending += len(block)
                # A block may hold the ends of several chunks.
                while start + n_pending >= stop:
                    # Lines that begin before `stop` belong to the chunk: cut after the first line end from there.
                    # It is in the last piece; joining all pieces each time would be quadratic.
                    before = n_pending - len(pieces[-1])
                    line_end = pieces[-1].find(b"\n", max(0, stop - 1 - start - before)) + 1
                    if not line_end and n_pending <= MAX_LINE_BYTES:
                        break
                    data = b"".join(pieces)
                    end = before + line_end if line_end else n_pending
                    yield Chunk(self.log_id, number, start, start + end, data=data[:end])
                    pieces, n_pending, start = [data[end:]], n_pending - end, start + end
                    stop = max(stop, start) + self.chunk_bytes
                    stop -= stop % self.chunk_bytes
        except CodecFaultError as fault:
            self._add_fault(file, str(fault))
        if n_pending:
            yield Chunk(self.log_id, number, start, start + n_pending, data=b"".join(pieces))

    def _add_fault(self, file: LogFile, message: str) -> None:
        self.faults.append(f"{file.url.rsplit('/', 1)[-1]}: {message}")


def _open_file(file: LogFile) -> contextlib.AbstractContextManager[IO[bytes]]:
    if file.local is not None:
        return open(file.local, "rb", buffering=1 << 20)
    import fsspec

    # Its own context keeps the stores of a chain open.
    opened: contextlib.AbstractContextManager[IO[bytes]] = fsspec.open(file.url, "rb")
    return opened
