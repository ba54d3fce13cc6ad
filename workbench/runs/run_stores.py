"""Where runs are kept: folders of this machine, and stores at URLs (fsspec), whose failed requests are sent again."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from workbench.core import files, redaction
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder

MAX_FILES = 20_000
MAX_FILE_DEPTH = 8
# Objects of a store that are asked for at once, all of which are held.
MANY_AT_ONCE = 100
# A request is sent up to six times, 3 s in all; drivers such as s3fs send some again by themselves before.
_ATTEMPTS = 6
_FIRST_DELAY_S = 0.1
_T = TypeVar("_T")
Content = bytes | OSError | InputError
"""What a file holds, or the error of reading it."""
# Elsewhere a folder that is not there is one without runs.
BUCKET_PROTOCOLS = {"s3", "s3a", "gs", "gcs", "abfs", "az", "oci", "oss"}


class LocalStore:
    """Local files, without fsspec; links are not followed."""

    has_locks = True

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """The bytes of a file of at most `max_bytes`."""
        return files.read_up_to(path, max_bytes)

    def read_each(self, paths: Sequence[str], max_bytes: int) -> Iterator[Content]:
        """The content of each file of at most `max_bytes`, one after the other; a link is a file not found."""
        for path in paths:
            yield FileNotFoundError(path) if Path(path).is_symlink() else try_to_read(self, path, max_bytes)

    def has_each(self, paths: Sequence[str]) -> list[bool]:
        """Whether each file is there; a link is not."""
        return [Path(path).is_file() and not Path(path).is_symlink() for path in paths]

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a file, atomically."""
        with files.replace_atomically(path) as temporary:
            temporary.write_bytes(content)

    def put_file(self, source: Path, path: str) -> None:
        """Copy a file of this machine to `path`."""
        with files.replace_atomically(path) as temporary:
            shutil.copyfile(source, temporary)

    @contextlib.contextmanager
    def local_copy(self, path: str) -> Iterator[Path]:
        """Yield a local file with the content of `path`; not to be changed."""
        yield Path(path)

    def delete_file(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""
        Path(path).unlink(missing_ok=True)

    def display_path(self, path: str) -> str:
        """The path for messages and records."""
        return path

    def read_state(self, root: str, record: dict[str, Any]) -> str:
        """State of the run in the folder `root`; see `StoredRun.state`."""
        return run_folder.Run(Path(root), record).state

    def list_entries(self, path: str) -> list[tuple[str, bool, int]]:
        """Path, whether it is a folder, and size in bytes, of each entry of a folder; links are left out.

        An entry that another process removes meanwhile is left out, too; FileNotFoundError means the folder itself.
        """
        listing = []
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if not entry.is_symlink():
                        listing.append((entry.path, entry.is_dir(follow_symlinks=False), entry.stat().st_size))
        return listing


class RemoteStore:
    """A store of fsspec. It has no locks: whether a process still writes a run is unknown."""

    has_locks = False

    def __init__(self, store: Any) -> None:
        self.store = store

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """The bytes of a file of at most `max_bytes`."""

        def open_and_read() -> bytes:
            # The driver opens what its last listing shows, and refuses what was written since.
            self._forget_listings()
            with self.store.open(path, "rb") as file:
                return bytes(file.read(max_bytes + 1))

        try:
            with files.raise_as_os_errors():
                content = bytes(self.store.cat_file(path, start=0, end=max_bytes + 1))
        except OSError:
            # Some stores have no range of an empty object.
            content = send_request(open_and_read)
        if len(content) > max_bytes:
            raise InputError("file is too large", where=self.display_path(path), allowed=f"{max_bytes:,} bytes")
        return content

    def read_each(self, paths: Sequence[str], max_bytes: int) -> Iterator[Content]:
        """The content of each file of at most `max_bytes`, by many requests at once."""
        for path, content in self._read_starts(paths, max_bytes + 1):
            is_too_large = isinstance(content, bytes) and len(content) > max_bytes
            yield try_to_read(self, path, max_bytes) if content is None or is_too_large else content

    def has_each(self, paths: Sequence[str]) -> list[bool]:
        """Whether each object is there, by many requests at once.

        Raises
        ------
        OSError
            The store does not answer.
        """
        there = []
        for path, content in self._read_starts(paths, 1):
            answer = try_to_read(self, path, 0) if content is None else content
            if isinstance(answer, OSError) and not files.is_permanent_error(answer):
                raise answer
            there.append(not isinstance(answer, OSError))
        return there

    def _read_starts(self, paths: Sequence[str], n_bytes: int) -> Iterator[tuple[str, bytes | OSError | None]]:
        """The first bytes of each object; null where they are to be asked for again, by `read_bytes`."""
        self._forget_listings()
        for begin in range(0, len(paths), MANY_AT_ONCE):
            batch = list(paths[begin : begin + MANY_AT_ONCE])
            for path, content in zip(batch, self.store.cat_ranges(batch, 0, n_bytes), strict=True):
                if isinstance(content, FileNotFoundError):
                    yield path, content
                else:
                    yield path, None if isinstance(content, Exception) else bytes(content)

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write an object; it is seen whole or not at all."""
        send_request(lambda: self.store.pipe_file(path, content))
        self._check_size(path, len(content))

    def put_file(self, source: Path, path: str) -> None:
        """Copy a file of this machine to `path`, and compare the sizes."""
        send_request(lambda: self.store.put_file(str(source), path))
        self._check_size(path, source.stat().st_size)

    def _check_size(self, path: str, size_bytes: int) -> None:
        def ask() -> int:
            self._forget_listings()
            return int(self.store.info(path)["size"])

        if (stored_bytes := send_request(ask)) != size_bytes:
            raise OSError(f"{self.display_path(path)} has {stored_bytes} bytes, not the {size_bytes} that were sent")

    @contextlib.contextmanager
    def local_copy(self, path: str) -> Iterator[Path]:
        """Yield a temporary local file with the content of `path`."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "file"
            send_request(lambda: self.store.get_file(path, str(copy)))
            yield copy

    def delete_file(self, path: str) -> None:
        """Delete an object; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            send_request(lambda: self.store.rm_file(path))
        self._forget_listings()

    def display_path(self, path: str) -> str:
        """The URL for messages and records, without user and password."""
        return redaction.strip_user_info(str(self.store.unstrip_protocol(path)))

    def read_state(self, root: str, record: dict[str, Any]) -> str:
        """State of the run at `root`; see `StoredRun.state`."""
        del root
        return "unfinished" if record["status"] == "running" else str(record["status"])

    def list_entries(self, path: str) -> list[tuple[str, bool, int]]:
        """Path, whether it is a folder, and size in bytes, of each entry of a folder."""

        def ask() -> list[dict[str, Any]]:
            self._forget_listings()
            return list(self.store.ls(path, detail=True))

        return [
            (str(entry["name"]).rstrip("/"), entry.get("type") == "directory", int(entry.get("size") or 0))
            for entry in send_request(ask)
        ]

    def has_bucket(self, path: str) -> bool:
        """Whether the bucket of a path is there; true for a store without buckets."""
        protocols = {self.store.protocol} if isinstance(self.store.protocol, str) else set(self.store.protocol)
        bucket = path.strip("/").partition("/")[0]
        return not protocols & BUCKET_PROTOCOLS or bool(send_request(lambda: self.store.exists(bucket)))

    def _forget_listings(self) -> None:
        """Drop what the driver remembers of folders: another machine may have written since."""
        self.store.invalidate_cache()


Store = LocalStore | RemoteStore


def try_to_read(store: Store, path: str, max_bytes: int) -> Content:
    """The bytes of a file of at most `max_bytes`, or the error of reading it."""
    try:
        return store.read_bytes(path, max_bytes)
    except (OSError, InputError) as error:
        return error


def open_place(place: str | Path) -> tuple[Store, str]:
    """The store of a folder or URL, and the path in it; makes no request yet."""
    if not is_url(place):
        return LocalStore(), str(Path(place).expanduser().absolute())
    store, root = files.open_store(str(place))
    return RemoteStore(store), root.rstrip("/")


def is_url(place: str | Path | None) -> bool:
    """Whether a place is a URL and no folder of this machine.

    >>> is_url("s3://bucket/runs"), is_url("data/runs"), is_url(None)
    (True, False, False)
    """
    return "://" in str(place)


def list_files(store: Store, root: str) -> list[tuple[str, int]]:
    """Path below `root` and size of each file, by name."""
    listing: list[tuple[str, int]] = []
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        for path, is_folder, size_bytes in store.list_entries(folder):
            inner = PurePosixPath(path.removeprefix(f"{root}/"))
            if path == folder:
                continue
            if inner.is_absolute() or ".." in inner.parts or not path.startswith(f"{root}/"):
                raise InputError("a path outside of the run folder", where=store.display_path(root), found=path[:200])
            if not is_folder:
                listing.append((inner.as_posix(), size_bytes))
            else:
                waiting.append((path, depth + 1))
        if len(listing) > MAX_FILES or any(depth > MAX_FILE_DEPTH for _, depth in waiting):
            allowed = f"{MAX_FILES:,} files, {MAX_FILE_DEPTH} folders deep"
            raise InputError("too much in a run folder", where=store.display_path(root), allowed=allowed)
    return sorted(listing)


def check_writable(place: str | Path) -> None:
    """Write and delete a small object at a URL, before a long run whose result must go there."""
    shown = redaction.strip_user_info(str(place))
    if redaction.has_user_info(str(place)):
        do = "give credentials as the store's environment variables, such as AWS_ACCESS_KEY_ID"
        raise ConfigError("a secret cannot be part of a URL", where=shown, do=do)
    store, root = open_place(place)
    path = f"{root}/.write-test-{os.getpid()}-{random.getrandbits(32):08x}"
    try:
        store.write_bytes(path, b"workbench\n")
    except OSError as error:
        do = "check the bucket, the rights and the credentials in the environment"
        raise ConfigError("cannot write there", where=shown, found=format_error(error), do=do) from error
    with contextlib.suppress(OSError):
        # A place that may only be written to, never deleted from, is fine.
        store.delete_file(path)


def send_request(request: Callable[[], _T]) -> _T:
    """The result of a request to a store, sent again after a failure that may pass."""
    for attempt in range(_ATTEMPTS):
        try:
            with files.raise_as_os_errors():
                return request()
        except OSError as error:
            if files.is_permanent_error(error) or attempt + 1 == _ATTEMPTS:
                raise
            # Drawn, so that machines that failed at the same moment do not meet again.
            time.sleep(_FIRST_DELAY_S * 2**attempt * (0.5 + random.random() / 2))  # noqa: S311 - no secret
    raise AssertionError("unreachable")


def format_error(error: BaseException) -> str:
    """An error of a store in a short text, without user and password.

    >>> format_error(FileNotFoundError("no such bucket"))
    'no such bucket'
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return redaction.strip_user_info(text)[:200]
