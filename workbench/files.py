"""Whole files or none: writing under a temporary name, reading no more than allowed, the sha256 of an input."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import InputError


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` when the block ends well, remove it when not.

    A crash never leaves a half-written file under the real name.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> (folder / "a.txt").read_text(), len(list(folder.iterdir()))
    ('whole', 1)
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; results are meant to be read by colleagues.
        temporary.chmod(0o666 & ~_UMASK)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Read once: it can only be read by setting it, and runs write from several threads.
_UMASK = _read_umask()


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` to `path` as a whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def read_bounded(path: str | Path, most_bytes: int) -> bytes:
    """The bytes of a file that may be anybody's: a regular one, of no more than `most_bytes`.

    Never waits (a FIFO has no end, and perhaps no writer), and never holds more, however long the file has become.

    Raises
    ------
    InputError
        It is no regular file, or too large.
    OSError
        It cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> path = write_text(Path(tempfile.mkdtemp()) / "a.txt", "whole")
    >>> read_bounded(path, 5)
    b'whole'
    """
    # O_NONBLOCK: opening a FIFO would wait for its writer; a terminal must not become this process's own.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError("not a regular file", where=path)
        with open(handle, "rb", closefd=False) as file:
            found = file.read(most_bytes + 1)
    finally:
        os.close(handle)
    if len(found) > most_bytes:
        allowed = f"at most {most_bytes >> 20} MiB" if most_bytes >> 20 else f"at most {most_bytes} bytes"
        raise InputError("a file too large to be one", where=path, allowed=allowed)
    return found


def sha256(path: str | Path) -> str:
    """Hex digest of a file's bytes.

    Read in large blocks: each block waits for the interpreter's lock, up to 5 ms while another thread computes.
    """
    digest = hashlib.sha256()
    block = memoryview(bytearray(8 << 20))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()
