"""Lines of a stream as they come, within a bound: what a server sends decides nothing about the memory it takes."""

from __future__ import annotations

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
    >>> lines.feed(b"data: 1\\r\\n\\nda"), lines.feed(b"ta: 2"), lines.rest()
    ([b'data: 1', b''], [], b'data: 2')
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends (LF or CRLF).

        Raises
        ------
        MalformedAnswerError
            A line is longer than the bound.
        """
        # A list and no generator: this runs for every chunk of every answer.
        parts = chunk.split(b"\n")
        self._hold(parts[0])
        if len(parts) == 1:
            return []
        parts[0] = self.rest()
        self._hold(parts.pop())
        lines = [line.removesuffix(b"\r") for line in parts]
        if len(chunk) > self._max_bytes:
            self._refuse_over(max(map(len, lines)))
        return lines

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
