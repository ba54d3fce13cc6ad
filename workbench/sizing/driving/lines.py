"""Lines of a stream as they come, within a bound: what a server sends decides nothing about the memory it takes."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.sizing.driving.reply import MalformedAnswerError


class Lines:
    """Cuts chunks of bytes into lines; holds at most one unfinished line.

    Parameters
    ----------
    max_bytes
        Longest line, its LF not counted.

    Examples
    --------
    >>> lines = Lines(10)
    >>> list(lines.feed(b"data: 1\\r\\n\\nda")), list(lines.feed(b"ta: 2")), lines.rest()
    ([b'data: 1', b''], [], b'data: 2')
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes, without their ends (LF or CRLF).

        Raises
        ------
        MalformedAnswerError
            A line is longer than the bound.
        """
        first, *others = chunk.split(b"\n")
        if not others:
            self._hold(first)
            return
        self._hold(first)
        yield self.rest()
        for line in others[:-1]:
            self._refuse_over(len(line))
            yield line.removesuffix(b"\r")
        self._hold(others[-1])

    def rest(self) -> bytes:
        """What was held: the last line of a stream that does not end with a line end."""
        # Joined once a line: a line of many chunks would be copied at each of them otherwise.
        line = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return line.removesuffix(b"\r")

    def _hold(self, part: bytes) -> None:
        if part:
            self._held_bytes += len(part)
            self._refuse_over(self._held_bytes)
            self._held.append(part)

    def _refuse_over(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise MalformedAnswerError(f"a line of more than {self._max_bytes} bytes")
