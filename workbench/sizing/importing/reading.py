"""Files of other tools read with bounds: plain or gzip, a document or lines; errors name the file and the field."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from workbench.errors import InputError

LARGEST_DOCUMENT_BYTES = 512 << 20
LONGEST_LINE_BYTES = 64 << 20
MOST_REQUESTS = 2_000_000
GZIP = b"\x1f\x8b"
_Shape = TypeVar("_Shape")


def document(path: Path, shape: type[_Shape]) -> _Shape:
    """A JSON file, plain or gzip, in the shape that is expected of it; other fields are passed over.

    Raises
    ------
    InputError
        It cannot be read, is larger than 512 MiB unpacked, is no JSON, or a field is missing or of another type.
    """
    with _opened(path) as file:
        try:
            content = file.read(LARGEST_DOCUMENT_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error
    if len(content) > LARGEST_DOCUMENT_BYTES:
        raise InputError("larger than is read at once", where=path, allowed=f"{LARGEST_DOCUMENT_BYTES >> 20} MiB")
    return decoded(content, shape, str(path))


def head(path: Path, size_bytes: int) -> bytes:
    """The first bytes of a file, unpacked."""
    with _opened(path) as file:
        try:
            return file.read(size_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error


def lines(path: Path, shape: type[_Shape]) -> Iterator[_Shape]:
    """The lines of a JSONL file, plain or gzip, each in its shape; a last line that is cut short is passed over.

    Raises
    ------
    InputError
        It cannot be read, a line is longer than 64 MiB, there are more than two million, or one is not as expected.
    """
    decoder = msgspec.json.Decoder(shape)
    with _opened(path) as file:
        number = 0
        try:
            while line := file.readline(LONGEST_LINE_BYTES + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(line) > LONGEST_LINE_BYTES:
                    raise InputError("a line is too long", where=where, allowed=f"{LONGEST_LINE_BYTES >> 20} MiB")
                if number > MOST_REQUESTS:
                    raise InputError("too many requests", where=path, allowed=f"{MOST_REQUESTS} lines")
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as error:
                    if not line.endswith(b"\n") and not isinstance(error, msgspec.ValidationError):
                        return  # the tool was stopped while it wrote
                    raise InputError("not as expected", where=where, found=str(error)[:300]) from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error


def decoded(content: bytes, shape: type[_Shape], where: str) -> _Shape:
    """JSON in the shape that is expected of it."""
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.DecodeError as error:
        # A validation error names the field: "... - at `$.benchmarks[0].config`".
        raise InputError("not as expected", where=where, found=str(error)[:300]) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise InputError("not readable as JSON", where=where, found=type(error).__name__) from error


def _opened(path: Path) -> IO[bytes]:
    try:
        file: IO[bytes] = path.open("rb")
    except OSError as error:
        raise InputError("cannot read the file", where=path, found=error.strerror) from error
    if file.read(2) == GZIP:
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    file.seek(0)
    return file
