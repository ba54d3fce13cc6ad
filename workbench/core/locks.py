"""Lock on a run folder, released by the kernel when the process exits.

`run.lock` is locked with flock; its content is the process id. The file is removed at the end; a leftover file means
nothing, only the lock counts. A process may acquire the lock of a folder several times; `lock_exclusively` is for work
that must not run twice.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.core.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = "run.lock"
# Probing holds the lock for microseconds, so a short retry tells a probe from an owner.
_PATIENCE_S, _ATTEMPTS = 0.02, 25
_UNSUPPORTED_ERRNOS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class _OwnLock:
    """A lock of this process; `handle` is null on file systems without locks."""

    handle: int | None
    pid: int


_own_locks: dict[Path, _OwnLock] = {}
_guard = threading.Lock()


class _UnsupportedError(Exception):
    """The system or the file system has no locks."""


def acquire_lock(folder: str | Path) -> None:
    """Acquire the lock of a run folder for this process, until `release_lock` or the end of the process.

    Acquiring it again has no effect. Without locks (Windows, some network file systems) nothing is locked or refused.
    """
    folder = Path(folder).absolute()
    with _guard:
        if _find_own_lock(folder):
            return
        try:
            handle = _acquire_lock_file(folder)
        except _UnsupportedError:
            handle = None
        _own_locks[folder] = _OwnLock(handle, os.getpid())


def release_lock(folder: str | Path) -> None:
    """Release the lock of a run folder and remove the lock file; no effect when this process does not hold it."""
    folder = Path(folder).absolute()
    with _guard:
        if (lock := _find_own_lock(folder)) is None:
            return
        del _own_locks[folder]
        with contextlib.suppress(OSError):
            (folder / LOCK_FILE).unlink()
        if lock.handle is not None:
            os.close(lock.handle)


@contextlib.contextmanager
def hold_lock(folder: str | Path) -> Iterator[None]:
    """Hold the lock of a folder, as for work on a run of an earlier process."""
    before = _find_own_lock(Path(folder).absolute()) is not None
    acquire_lock(folder)
    try:
        yield
    finally:
        if not before:
            release_lock(folder)


@contextlib.contextmanager
def lock_exclusively(folder: str | Path, doing: str, *, do: str = "wait for it, or end it") -> Iterator[None]:
    """Hold the lock, and exclude the same work in this and all other processes.

    `doing`, `do`: Texts of the error: what the other process is doing, and the next step.
    """
    handle = lock_path(folder, doing, do=do)
    try:
        with hold_lock(folder):
            yield
    finally:
        os.close(handle)


def lock_path(path: str | Path, doing: str, *, do: str = "wait for it, or end it", wait_s: float = 0.0) -> int:
    """Lock a folder, or a file that is created, until the returned handle is closed.

    Without locks nothing is locked or refused.

    `wait_s`: How long to wait for another holder, for work of milliseconds.
    """
    path = Path(path)
    is_folder = path.is_dir()
    try:
        # A handle to lock; of a folder itself, so that no file is left behind.
        if fcntl is None:
            raise _UnsupportedError  # Windows, which opens no folders either
        handle = os.open(path, os.O_CLOEXEC | (os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT), 0o600)
    except _UnsupportedError:
        return os.open(os.devnull, os.O_RDONLY)
    try:
        # Some network file systems lock only writable files; there only `hold_lock` excludes other processes.
        free, until_s = _try_flock(handle), time.monotonic() + wait_s
        while not free and time.monotonic() < until_s:
            threading.Event().wait(_PATIENCE_S)
            free = _try_flock(handle)
    except (_UnsupportedError, OSError):
        free = True
    if not free:
        os.close(handle)
        raise ConfigError(doing, where=path if is_folder else path.parent, do=do)
    return handle


def find_holder(folder: str | Path) -> int | None:
    """Id of the process that holds a run folder, above 0; null for none.

    Null also without locks, or when the lock file cannot be read. On a shared file system the process may be on
    another machine.
    """
    with contextlib.suppress(_UnsupportedError, OSError):
        return _probe_lock(Path(folder) / LOCK_FILE)
    return None


def supports_locks(folder: str | Path) -> bool:
    """Whether `find_holder` works here: False without locks, where a missing holder does not mean a dead process."""
    try:
        _probe_lock(Path(folder) / LOCK_FILE)
    except _UnsupportedError:
        return False
    except OSError:
        return True
    return True


def _find_own_lock(folder: Path) -> _OwnLock | None:
    """The lock of this process; a forked child shares its parent's, and must not release it."""
    lock = _own_locks.get(folder)
    return lock if lock is not None and lock.pid == os.getpid() else None


def _acquire_lock_file(folder: Path) -> int | None:
    path = folder / LOCK_FILE
    for attempt in range(_ATTEMPTS):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            # The previous owner may have removed the file between open and lock.
            if _try_flock(handle) and _is_same_file(handle, path):
                with contextlib.suppress(OSError):
                    # On a full disk the lock works without the id.
                    os.ftruncate(handle, 0)
                    os.write(handle, f"{os.getpid()}\n".encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if attempt >= 1 and (pid := find_holder(folder)) is not None:
            raise ConfigError(
                "another process writes into this run folder",
                where=folder,
                found=f"process {pid}",
                do="choose another folder, or wait until it has ended",
            )
        threading.Event().wait(_PATIENCE_S)
    raise ConfigError("another process writes into this run folder", where=folder, do="choose another folder")


def _try_flock(handle: int, *, shared: bool = False) -> bool:
    if fcntl is None:
        raise _UnsupportedError
    try:
        # Probes use a shared lock: on network file systems an exclusive one needs a writable file.
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _UNSUPPORTED_ERRNOS:
            raise _UnsupportedError from error
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        current = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), current)


def _probe_lock(path: Path) -> int | None:
    if fcntl is None:
        raise _UnsupportedError
    for _ in range(_ATTEMPTS):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return None
        try:
            if _try_flock(handle, shared=True):
                return None
            text = os.read(handle, 20).strip()
        finally:
            os.close(handle)
        if text.isdigit() and int(text) > 0:
            return int(text)
        threading.Event().wait(_PATIENCE_S)
    return None
