"""One process a session: two that measured into one folder would disturb each other's runs and files."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import ConfigError
from workbench.holding import held


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a session's folder for this process; let go at the end, however the process ends.

    The folder itself is locked; its run is held, too, so that it is told from one that died. Nothing is left behind.
    Where the file system has no locks, nothing is held.

    Raises
    ------
    ConfigError
        Another process holds it.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another process is measuring this session",
                where=folder,
                do="let it end, or end it; then go on: workbench indicators run --resume, with this folder",
            ) from None
        except OSError:
            # Some network file systems have no locks: no reason not to measure there.
            pass
        with held(folder):
            yield
    finally:
        os.close(handle)
