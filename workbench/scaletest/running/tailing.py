"""The end of a file of lines that somebody else is writing: each whole line once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

_BLOCK = 4 << 20
_Record = TypeVar("_Record")


class Tail(Generic[_Record]):
    """Lines since the last look.

    Parameters
    ----------
    kind
        What is read of a line; fields beyond it are passed over.
    """

    def __init__(self, path: Path, kind: type[_Record]) -> None:
        self._path, self._decoder = path, msgspec.json.Decoder(kind)
        self._at = 0
        self._rest = b""

    def new(self) -> Iterator[_Record]:
        """What came since; nothing while the file is not there. A block at a time, so that no look takes long."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read(_BLOCK)
        except FileNotFoundError:
            return
        self._at += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            if line:
                yield self._decoder.decode(line)
