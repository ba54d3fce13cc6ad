"""The two files that the sampler writes: line by line, appended, never with a torn line in the middle."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from workbench.errors import RunFailedError
from workbench.scaletest import records
from workbench.scaletest.times import now_ns

SPILL_BYTES = 1 << 20
MOST_NOTES = 1000


class Appending:
    """One file of lines that grows; what a killed writer left of its last line is cut off first.

    Raises
    ------
    RunFailedError
        From all: the file cannot be written, or the disk is full. What stands in the file is whole lines then.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._buffer, self._size = path, list[bytes](), 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._end = _last_line_end(self._file)
            os.ftruncate(self._file, self._end)
        except OSError as error:
            raise self._failed(error) from None

    def put(self, record: msgspec.Struct) -> None:
        """One line more; on disk with the next `flush`, or when much has gathered."""
        text = records.line(record)
        self._buffer.append(text)
        self._size += len(text)
        if self._size >= SPILL_BYTES:
            self.flush()

    def flush(self) -> None:
        """Give all lines to the operating system."""
        if not self._buffer:
            return
        text, written = b"".join(self._buffer), 0
        self._buffer, self._size = [], 0
        try:
            while written < len(text):
                written += os.pwrite(self._file, memoryview(text)[written:], self._end + written)
        except OSError as error:
            # What fits stays; nobody must read half a line as a whole one.
            self._end += text.rfind(b"\n", 0, written) + 1
            os.ftruncate(self._file, self._end)
            raise self._failed(error) from None
        self._end += written

    def close(self) -> None:
        """Write what is left and let go of the file."""
        if self._file < 0:
            return
        try:
            self.flush()
        finally:
            os.close(self._file)
            self._file = -1

    def _failed(self, error: OSError) -> RunFailedError:
        return RunFailedError(
            "observations cannot be written",
            where=self.path,
            found=error.strerror or type(error).__name__,
            do="free some space and go on with the same folder: what was written before is whole",
        )


def _last_line_end(file: int) -> int:
    """Where the last whole line ends."""
    end = os.fstat(file).st_size
    while end > 0:
        begin = max(0, end - (64 << 10))
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


class Files:
    """Observations and health of a run."""

    def __init__(self, folder: Path) -> None:
        self.observed = Appending(folder / records.OBSERVED)
        self.health = Appending(folder / records.HEALTH)
        self._notes = 0

    def note(self, text: str, *, spoils: bool = False) -> None:
        """Something that a reader must know; so many at most, the last says that others were left out."""
        self._notes += 1
        if self._notes > MOST_NOTES:
            return
        if self._notes == MOST_NOTES:
            text = "there are more notes: they are left out"
        self.health.put(records.Note(at_ns=now_ns(), text=text[:1000], spoils=spoils))

    def flush(self) -> None:
        """Both to disk."""
        self.observed.flush()
        self.health.flush()

    def close(self) -> None:
        """Write what is left."""
        try:
            self.observed.close()
        finally:
            self.health.close()
