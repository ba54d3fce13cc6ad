"""A log cut into pieces of whole lines that can be folded side by side.

A plain local file is cut without reading it; everything else is decoded here, in order, and handed on as bytes. Both
are cut at the same places of the decoded content, so that the result does not depend on how a log is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from workbench.eventlog.codecs import CodecFaultError, decode
from workbench.eventlog.fold import MAX_LINE_BYTES, Chunk
from workbench.eventlog.sources import LogFile, LogSource

CHUNK_BYTES = 32 << 20


class Cutter:
    """Cuts one log; `faults` tells afterwards what was damaged."""

    def __init__(self, log_id: int, source: LogSource, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.log_id = log_id
        self.source = source
        self.chunk_bytes = chunk_bytes
        self.faults: list[str] = list(source.notes)

    def chunks(self) -> Iterator[Chunk]:
        for number, file in enumerate(self.source.files):
            if file.codec == "plain" and file.local is not None:
                yield from self._ranges(number, file)
                continue
            try:
                with _open(file) as opened:
                    yield from self._blocks(number, file, opened)
            except OSError as error:
                self._fault(file, f"cannot be read: {error}")

    def _ranges(self, number: int, file: LogFile) -> Iterator[Chunk]:
        for start in range(0, file.size_bytes, self.chunk_bytes):
            yield Chunk(self.log_id, number, start, start + self.chunk_bytes, path=file.local)

    def _blocks(self, number: int, file: LogFile, opened: IO[bytes]) -> Iterator[Chunk]:
        pieces: list[bytes] = []
        start, held, stop = 0, 0, self.chunk_bytes
        try:
            for block in decode(opened, file.codec):
                pieces.append(block)
                held += len(block)
                # A block may hold the ends of several chunks.
                while start + held >= stop:
                    # Lines that begin before `stop` belong to the chunk: cut behind the first line end from there on.
                    # Only the last piece can hold it: joining all each time would never end for a file of zeros.
                    before = held - len(pieces[-1])
                    found = pieces[-1].find(b"\n", max(0, stop - 1 - start - before)) + 1
                    if not found and held <= MAX_LINE_BYTES:
                        break
                    data = b"".join(pieces)
                    end = before + found if found else held
                    yield Chunk(self.log_id, number, start, start + end, data=data[:end])
                    pieces, held, start = [data[end:]], held - end, start + end
                    stop = max(stop, start) + self.chunk_bytes
                    stop -= stop % self.chunk_bytes
        except CodecFaultError as fault:
            self._fault(file, str(fault))
        if held:
            yield Chunk(self.log_id, number, start, start + held, data=b"".join(pieces))

    def _fault(self, file: LogFile, what: str) -> None:
        self.faults.append(f"{file.url.rsplit('/', 1)[-1]}: {what}")


def _open(file: LogFile) -> IO[bytes]:
    if file.local is not None:
        return open(file.local, "rb", buffering=1 << 20)
    import fsspec

    opened: IO[bytes] = fsspec.open(file.url, "rb").open()
    return opened
