"""Blocks of bytes into lines of bounded length."""

from __future__ import annotations

# Objects are at most 1.5 MiB in etcd as it is installed, and can be set to be larger.
MOST_LINE_BYTES = 16 << 20
TOO_LONG = b""


class Splitter:
    """Blocks of bytes into lines, without joining what has come of a long line again and again."""

    def __init__(self, most_bytes: int = MOST_LINE_BYTES) -> None:
        self._most, self._parts, self._size = most_bytes, list[bytes](), 0

    @property
    def too_long(self) -> bool:
        """Is the line that has begun too long already?"""
        return self._size > self._most

    def split(self, block: bytes) -> list[bytes]:
        """The lines that end in this block; empty ones are left out, `TOO_LONG` stands for one that is cut."""
        *ended, rest = block.split(b"\n")
        found = []
        for piece in ended:
            self._take(piece)
            if self.too_long:
                found.append(TOO_LONG)
            elif self._size:
                found.append(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._take(rest)
        return found

    def _take(self, piece: bytes) -> None:
        self._size += len(piece)
        if self.too_long:
            self._parts = []
        elif piece:
            self._parts.append(piece)
