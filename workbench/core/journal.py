"""Append-only files of lines: one writer, readers beside it, and whole lines whatever happens to the writer.

What a killed writer left of its last line is no line: readers leave it out, and the next writer removes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Self, TypeVar

from workbench.core import locks
from workbench.core.errors import InputError, RunFailedError

# Lines wait in memory up to this size.
SPILL_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
_BLOCK = 4 << 20
_Record = TypeVar("_Record")


class Journal(Generic[_Record]):
    """An append-only file of lines; nothing of it changes before the first line is written.

    `encode`: The line of a record, with its end.
    `noun`, `do`: Words of the errors.
    `as_one`: What waits is written by `flush` alone, all of it or nothing; by default what there is room for stays.
    `busy`: What another process that holds the file is doing; by default the file is not locked.
    `is_whole`: Whether a last line that lacks its end is to stay; by default it is removed.
    """

    def __init__(
        self,
        path: Path,
        encode: Callable[[_Record], bytes],
        *,
        noun: str,
        do: str | None = None,
        as_one: bool = False,
        busy: str | None = None,
        wait_s: float = 0.0,
        mode: int = 0o666,
        is_whole: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.path, self._encode, self._is_whole = path, encode, is_whole
        self._noun, self._do, self._as_one = noun, do, as_one
        self._waiting, self._n_waiting_bytes = list[bytes](), 0
        with contextlib.ExitStack() as handles, self._name_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
            handles.callback(os.close, self._file)
            if busy is not None:
                handles.callback(os.close, locks.lock_path(path, busy, wait_s=wait_s))
            self._end = _find_end(self._file)
            self._handles = handles.pop_all()

    def put(self, record: _Record) -> None:
        """Add a line; written with the next `flush`, or when many lines wait."""
        line = self._encode(record)
        self._waiting.append(line)
        self._n_waiting_bytes += len(line)
        if self._n_waiting_bytes >= SPILL_BYTES and not self._as_one:
            self.flush()

    def flush(self, *, sync: bool = False) -> None:
        """Write the lines that wait; with `sync` they survive a crash of the machine, too."""
        text, n_written = b"".join(self._waiting), 0
        self._waiting, self._n_waiting_bytes = [], 0
        with self._name_errors():
            try:
                if text and (n_rest := os.fstat(self._file).st_size - self._end) > 0:
                    if self._is_whole is not None and self._is_whole(os.pread(self._file, n_rest, self._end)):
                        self._end, text = self._end + n_rest, b"\n" + text
                    else:
                        os.ftruncate(self._file, self._end)
                while n_written < len(text):
                    n_written += os.pwrite(self._file, memoryview(text)[n_written:], self._end + n_written)
                if sync:
                    os.fsync(self._file)
                self._end += n_written
            except OSError:
                self._end += 0 if self._as_one else text.rfind(b"\n", 0, n_written) + 1
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._end)
                raise

    def close(self) -> None:
        """Write what waits, close the file, and let others in; again does nothing."""
        with self._handles:
            if self._waiting:
                self.flush()

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            found = error.strerror or type(error).__name__
            raise RunFailedError(f"cannot write {self._noun}", where=self.path, found=found, do=self._do) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _find_end(file: int) -> int:
    """End of the last whole line."""
    end = os.fstat(file).st_size
    while end > 0:
        begin = max(0, end - (64 << 10))
        if (position := os.pread(file, end - begin, begin).rfind(b"\n")) >= 0:
            return begin + position + 1
        end = begin
    return 0


def read_lines(path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes]]:
    """Numbers and bytes of the whole lines of a journal, in order; none if the file does not exist."""
    if not path.is_file():
        return
    number = 0
    with path.open("rb") as file:
        while line := file.readline(max_line_bytes):
            number += 1
            if not line.endswith(b"\n"):
                if file.read(1):
                    where = f"{path}, line {number}"
                    raise InputError("a line is too long", where=where, allowed=f"{max_line_bytes} bytes")
                return
            yield number, line


class LineTail(Generic[_Record]):
    """New lines of a journal that grows, as `decode` reads them."""

    def __init__(self, path: Path, decode: Callable[[bytes], _Record]) -> None:
        self._path, self._decode, self._at = path, decode, 0

    def read_new(self) -> Iterator[_Record]:
        """Lines since the last call, up to one block per call; none while the file does not exist."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read(_BLOCK)
        except FileNotFoundError:
            return
        # Never behind the last whole line: a writer that goes on removes the rest.
        n_whole = text.rfind(b"\n") + 1
        if not n_whole and len(text) == _BLOCK:
            raise InputError("a line is too long", where=self._path, allowed=f"{_BLOCK} bytes")
        self._at += n_whole
        yield from map(self._decode, filter(None, text[:n_whole].split(b"\n")))
