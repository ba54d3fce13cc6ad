"""Who writes a run folder now: a lock that its process holds, and that no kill leaves behind.

`run.lock` is locked with flock, which the system lets go however its process ends; its content is the process id. The
file is removed at the end, and says nothing when it was left: only the lock counts. A process may hold a folder at
several places of its code; work that a second of its kind would disturb is done `alone`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "run.lock"
# Somebody who only asks has the lock for microseconds; a process that has just taken it writes its id as fast.
_PATIENCE_S, _ATTEMPTS = 0.02, 25
_NOT_HERE = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class _Held:
    """A lock of this process; `handle` is null where the file system knows no locks."""

    handle: int | None
    pid: int


_held: dict[Path, _Held] = {}
_guard = threading.Lock()


class _UnsupportedError(Exception):
    """This system, or this file system, has no locks."""


def hold(folder: str | Path) -> None:
    """Take the lock of a run folder for this process, until `release` or the process's end.

    A process may ask again for what it has. Where there are no locks (Windows, some network file systems) nothing is
    locked and nothing is refused.

    Raises
    ------
    ConfigError
        Another process holds it.
    OSError
        The lock file cannot be made.
    """
    folder = Path(folder).absolute()
    with _guard:
        if _mine(folder):
            return
        try:
            handle = _taken(folder)
        except _UnsupportedError:
            handle = None
        _held[folder] = _Held(handle, os.getpid())


def release(folder: str | Path) -> None:
    """Let go of a run folder and remove the lock file; nothing happens when this process does not hold it."""
    folder = Path(folder).absolute()
    with _guard:
        if (mine := _mine(folder)) is None:
            return
        del _held[folder]
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
        if mine.handle is not None:
            os.close(mine.handle)


@contextlib.contextmanager
def held(folder: str | Path) -> Iterator[None]:
    """Within, this process holds the folder: for work that takes up a run of an earlier process.

    Raises
    ------
    ConfigError
        Another process holds it.
    """
    before = _mine(Path(folder).absolute()) is not None
    hold(folder)
    try:
        yield
    finally:
        if not before:
            release(folder)


@contextlib.contextmanager
def alone(folder: str | Path, doing: str, *, do: str = "wait for it, or end it") -> Iterator[None]:
    """Within, this is the only such work in the folder, of this process and of all others; the folder is held, too.

    Parameters
    ----------
    folder
        Is there.
    doing
        What another process must be doing when it has the lock, for the message; and `do`, what to do then.

    Raises
    ------
    ConfigError
        Another process, or another caller in this one, is at it.
    """
    handle = lock(folder, doing, do=do)
    try:
        with held(folder):
            yield
    finally:
        os.close(handle)


def lock(path: str | Path, doing: str, *, do: str = "wait for it, or end it") -> int:
    """Lock a folder, or a file that is made for it, until the handle that is returned is closed.

    Nothing is locked, and nothing refused, where there are no locks.

    Raises
    ------
    ConfigError
        It is locked, by another process or another caller in this one; `doing` and `do` are its words.
    """
    path = Path(path)
    is_folder = path.is_dir()
    try:
        handle = _opened(path, is_folder=is_folder)
    except _UnsupportedError:
        return os.open(os.devnull, os.O_RDONLY)
    try:
        # Some network file systems lock only what may be written: there `held` alone tells processes apart.
        free = _locked(handle)
    except (_UnsupportedError, OSError):
        free = True
    if not free:
        os.close(handle)
        raise ConfigError(doing, where=path if is_folder else path.parent, do=do)
    return handle


def holder(folder: str | Path) -> int | None:
    """Which process writes this run folder now? Its id, always above 0; null when nobody does.

    Null also where there are no locks, or the lock file cannot be read. On a shared file system the id may be of
    another machine's process.
    """
    with contextlib.suppress(_UnsupportedError, OSError):
        return _asked(Path(folder) / LOCK)
    return None


def supported(folder: str | Path) -> bool:
    """Can `holder` tell here? False where nothing can be locked, so that nobody is thought dead for want of a lock."""
    try:
        _asked(Path(folder) / LOCK)
    except _UnsupportedError:
        return False
    except OSError:
        return True
    return True


def _mine(folder: Path) -> _Held | None:
    """What this process holds; a forked child shares its parent's lock, and has none of its own to end."""
    held = _held.get(folder)
    return held if held is not None and held.pid == os.getpid() else None


def _taken(folder: Path) -> int | None:
    path = folder / LOCK
    for attempt in range(_ATTEMPTS):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            # Whoever had it may have removed the file between our opening and our locking.
            if _locked(handle) and _same(handle, path):
                with contextlib.suppress(OSError):
                    # On a full disk the lock holds all the same; it only names nobody.
                    os.ftruncate(handle, 0)
                    os.write(handle, f"{os.getpid()}\n".encode())
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if attempt >= 1 and (pid := holder(folder)) is not None:
            raise ConfigError(
                "another process writes into this run folder",
                where=folder,
                found=f"process {pid}",
                do="choose another folder, or wait until it has ended",
            )
        threading.Event().wait(_PATIENCE_S)
    raise ConfigError("another process writes into this run folder", where=folder, do="choose another folder")


def _opened(path: Path, *, is_folder: bool) -> int:
    """A handle to lock. A folder needs no file of its own for this, so that nothing is left behind."""
    if fcntl is None:
        raise _UnsupportedError  # Windows, which opens no folders either
    return os.open(path, os.O_CLOEXEC | (os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT), 0o600)


def _locked(handle: int, *, shared: bool = False) -> bool:
    if fcntl is None:
        raise _UnsupportedError
    try:
        # Network file systems want a file that may be written for a lock that excludes others: askers share.
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NOT_HERE:
            raise _UnsupportedError from error
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def _same(handle: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _asked(path: Path) -> int | None:
    if fcntl is None:
        raise _UnsupportedError
    for _ in range(_ATTEMPTS):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return None
        try:
            if _locked(handle, shared=True):
                return None
            text = os.read(handle, 20).strip()
        finally:
            os.close(handle)
        if text.isdigit() and int(text) > 0:
            return int(text)
        threading.Event().wait(_PATIENCE_S)
    return None
