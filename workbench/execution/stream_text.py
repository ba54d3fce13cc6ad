"""Printed text of a cell as a terminal shows it: carriage returns and backspaces applied, the length bounded."""

from __future__ import annotations

import re

MAX_CHARS = 4_000_000
"""Characters that are kept of a printed text: half of its begin, half of its end."""
_BACKSPACE, _RETURN = "\b", "\r"
_RETURNS_AT_END = re.compile(r"\r+(?=\n)")


class StreamText:
    """A text that comes in pieces, in time and memory linear in its length, and at most twice what is kept of it."""

    def __init__(self, begin: str = "") -> None:
        self._pieces = [begin]
        self._size, self._n_dropped = len(begin), 0
        self._begin = ""

    def append(self, piece: str) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > 2 * MAX_CHARS:
            self._shorten()

    def _shorten(self) -> None:
        """Apply what is there, and drop the middle where too much is left."""
        text = apply_controls("".join(self._pieces))
        half = MAX_CHARS // 2
        if len(text) > MAX_CHARS:
            if not self._begin:
                self._begin, text = text[:half], text[half:]
            self._n_dropped += len(text) - half
            text = text[-half:]
        self._pieces, self._size = [text], len(text)

    def join(self) -> str:
        """The text that is kept; says in its middle how much of it is not."""
        self._shorten()
        text = self._pieces[0].rstrip(_RETURN)
        if not self._n_dropped:
            return text
        return f"{self._begin}\n… {self._n_dropped:,} characters were dropped here …\n{text}"


def apply_controls(text: str) -> str:
    r"""Text with carriage returns and backspaces applied line by line, as JupyterLab shows it.

    What follows a carriage return overwrites as much of its line as it is long.

    >>> apply_controls("50 %\r100 %\nabc\rX\nab\bc"), apply_controls("done\r")
    ('100 %\nXbc\nac', 'done\r')
    """
    text = _RETURNS_AT_END.sub("", text)
    if _RETURN not in text and _BACKSPACE not in text:
        return text
    return "\n".join(map(_overwrite_line, text.split("\n")))


def _overwrite_line(line: str) -> str:
    """A line after its carriage returns and backspaces; one at its end stays, since more may come after it."""
    if _BACKSPACE in line:
        kept: list[str] = []
        for sign in line:
            if sign != _BACKSPACE:
                kept.append(sign)
            elif kept and kept[-1] != _RETURN:
                kept.pop()
        line = "".join(kept)
    body = line.rstrip(_RETURN)
    if _RETURN not in body:
        return line
    shown: list[str] = []
    covered = 0
    # What comes last lies on top: of earlier parts only what is longer is seen.
    for part in reversed(body.split(_RETURN)):
        if len(part) > covered:
            shown.append(part[covered:])
            covered = len(part)
    return "".join(shown) + line[len(body) :]
