"""A place in bytes from outside: numbers, names and texts are read there, and what is wrong is said with the place."""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from workbench.errors import InputError
from workbench.lore.inspection import classnames


class Cursor:
    """Reads big-endian values one after another; never more than there is.

    Examples
    --------
    >>> at = Cursor(b"\\x00\\x04lore", "a stream")
    >>> at.utf(at.unpack("H")[0])
    'lore'
    """

    def __init__(self, data: bytes, where: object) -> None:
        self.data, self.where, self.at = data, where, 0

    def name(self) -> str:
        """A class name."""
        (length,) = self.unpack("H")
        if not 0 < length <= classnames.LONGEST_NAME_BYTES:
            self.refuse("length of a class name", found=length, allowed=f"1 to {classnames.LONGEST_NAME_BYTES}")
        return self.utf(length)

    def utf(self, length: int) -> str:
        """A text of so many bytes."""
        try:
            return classnames.modified_utf8(self.take(length))
        except InputError as error:
            self.refuse(error.what, found=error.facts["found"])

    def count(self, count: int, each_bytes: int) -> int:
        """A number of parts, held against what is left of the stream."""
        if not 0 <= count * each_bytes <= len(self.data) - self.at:
            self.refuse("more parts than the rest of the stream can hold", found=count)
        return count

    def peek(self) -> int:
        """The next byte, which stays."""
        if self.at >= len(self.data):
            self.refuse("the stream ends too soon")
        return self.data[self.at]

    def byte(self) -> int:
        """The next byte."""
        tag = self.peek()
        self.at += 1
        return tag

    def take(self, size: int) -> bytes:
        """So many bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            self.refuse("the stream ends too soon", found=f"{size:,} bytes asked for")
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, form: str) -> tuple[Any, ...]:
        """Numbers, big-endian."""
        return struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))

    def refuse(self, what: str, *, found: object = None, allowed: object = None) -> NoReturn:
        """Say what is wrong at this place."""
        raise InputError(what, where=f"{self.where}, byte {self.at:,}", found=found, allowed=allowed)
