"""Whole files or none: writing under a temporary name, and the sha256 that names an input."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


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
