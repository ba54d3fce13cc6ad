"""One process at a time: locks that the kernel takes back from a process that dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from workbench.errors import ConfigError
from workbench.holding import held

RUNNING = ".running"


def locked(path: Path, what: str) -> IO[bytes]:
    """Hold a file's lock until it is closed.

    Parameters
    ----------
    what
        What another process must be doing when it holds the lock, for the message.

    Raises
    ------
    ConfigError
        Another process holds it, or another caller in this one.
    """
    file = path.open("ab")
    try:
        import fcntl
    except ModuleNotFoundError:
        # Windows: two processes in one folder are not told apart there.
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ConfigError(what, where=path.parent, do="wait for it, or end it") from None
    return file


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within, this is the only test of the folder: a second one would write over what the first observes.

    Raises
    ------
    ConfigError
        There is another.
    """
    with locked(folder / RUNNING, "another process is running the test of this folder"), held(folder):
        yield
