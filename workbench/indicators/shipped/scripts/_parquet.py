"""A Parquet file by the standard library alone: one row group, plain pages, required columns.

So every stack reads the same bytes; a file written by the stack itself would differ from stack to stack. Made after
the format's public description (file layout, Thrift's compact protocol). What readers do for dictionaries, nulls,
statistics and many row groups is not measured with it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

MAGIC = b"PAR1"
INT64, DOUBLE, BYTE_ARRAY = 2, 5, 6
PLAIN, RLE = 0, 3
REQUIRED, UTF8 = 0, 0
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_GZIP = 2


def written(columns: Mapping[str, Sequence[Any]], *, gzip: bool = False) -> bytes:
    """The file: each column of whole numbers, of fractions, or of texts, by its first value."""
    rows = len(next(iter(columns.values())))
    data, chunks, schema = bytearray(MAGIC), [], [_struct((4, _text("schema")), (5, _i32(len(columns))))]
    for name, values in columns.items():
        kind, plain = _plain(values)
        body = _gzipped(plain) if gzip else plain
        page = _struct((1, _i32(rows)), (2, _i32(PLAIN)), (3, _i32(RLE)), (4, _i32(RLE)))
        header = _struct((1, _i32(0)), (2, _i32(len(plain))), (3, _i32(len(body))), (5, (_STRUCT, page)))
        start, size = len(data), len(header) + len(body)
        data += header + body
        meta = _struct(
            (1, _i32(kind)),
            (2, _list(_I32, [_varint(_zigzag(PLAIN))])),
            (3, _list(_BINARY, [_text(name)[1]])),
            (4, _i32(_GZIP if gzip else 0)),
            (5, _i64(rows)),
            (6, _i64(len(header) + len(plain))),
            (7, _i64(size)),
            (9, _i64(start)),
        )
        chunks.append(_struct((2, _i64(start)), (3, (_STRUCT, meta))))
        converted = [(6, _i32(UTF8))] if kind == BYTE_ARRAY else []
        schema.append(_struct((1, _i32(kind)), (3, _i32(REQUIRED)), (4, _text(name)), *converted))
    total = len(data) - len(MAGIC)
    group = _struct((1, _list(_STRUCT, chunks)), (2, _i64(total)), (3, _i64(rows)))
    footer = _struct((1, _i32(1)), (2, _list(_STRUCT, schema)), (3, _i64(rows)), (4, _list(_STRUCT, [group])))
    return bytes(data + footer + struct.pack("<I", len(footer)) + MAGIC)


def _plain(values: Sequence[Any]) -> tuple[int, bytes]:
    if isinstance(values[0], str):
        texts = [value.encode() for value in values]
        return BYTE_ARRAY, b"".join(struct.pack("<I", len(text)) + text for text in texts)
    kind, code = (INT64, "q") if isinstance(values[0], int) else (DOUBLE, "d")
    return kind, struct.pack(f"<{len(values)}{code}", *values)


def _gzipped(data: bytes) -> bytes:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
    return squeeze.compress(data) + squeeze.flush()


def _struct(*fields: tuple[int, tuple[int, bytes]]) -> bytes:
    """Fields by ascending number, none more than 15 after the one before: each with a short header."""
    buffer, last = bytearray(), 0
    for number, (kind, body) in fields:
        buffer.append((number - last) << 4 | kind)
        buffer += body
        last = number
    return bytes(buffer) + b"\0"


def _list(kind: int, items: Sequence[bytes]) -> tuple[int, bytes]:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + _varint(len(items))
    return _LIST, head + b"".join(items)


def _text(text: str) -> tuple[int, bytes]:
    body = text.encode()
    return _BINARY, _varint(len(body)) + body


def _i32(value: int) -> tuple[int, bytes]:
    return _I32, _varint(_zigzag(value))


def _i64(value: int) -> tuple[int, bytes]:
    return _I64, _varint(_zigzag(value))


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    buffer = bytearray()
    while value > 0x7F:
        buffer.append(value & 0x7F | 0x80)
        value >>= 7
    buffer.append(value)
    return bytes(buffer)
