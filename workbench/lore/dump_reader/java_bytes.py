"""Bytes of a Java stream: class names found at any offset, and a bounded cursor."""

from __future__ import annotations

import re
import struct
from typing import Any, NoReturn

from workbench.core.errors import InputError

# In bytes: 1,365 characters in three-byte form.
MAX_NAME_BYTES = 4096
_CANDIDATE = re.compile(rb"(?:r[\x00-\x10]|\x7d\x00\x00)")
_PRINTED = re.compile(rb"[\x20-\xef]+")
_MIN_NAME_BYTES = 3
_MAX_INTERFACES = 65_535
_PRIMITIVES = {"boolean", "byte", "char", "double", "float", "int", "long", "short", "void"}
_CODES = frozenset(b"BCDFIJSZL[")


def decode_modified_utf8(raw: bytes) -> str:
    """Decode Java's modified UTF-8 as a JVM does, including overlong forms, which could hide a name.

    >>> decode_modified_utf8(b"java.lang.Long"), decode_modified_utf8(bytes([0xC1, 0xA1]))
    ('java.lang.Long', 'a')
    """
    if raw.isascii():
        return raw.decode("ascii")
    units, at = [], 0
    while at < len(raw):
        first = raw[at]
        more = 0 if first < 0x80 else 1 if first >> 5 == 0b110 else 2 if first >> 4 == 0b1110 else -1
        continuation = raw[at + 1 : at + 1 + more] if more >= 0 else b""
        if more < 0 or len(continuation) != more or any(byte >> 6 != 0b10 for byte in continuation):
            raise InputError("text that is not Java's UTF-8", found=raw[at : at + 3].hex(" "))
        unit = first if not more else first & (0x1F if more == 1 else 0x0F)
        for byte in continuation:
            unit = unit << 6 | byte & 0x3F
        units.append(unit)
        at += 1 + more
    # Surrogate pairs become one character; single surrogates are replaced.
    return struct.pack(f"<{len(units)}H", *units).decode("utf-16-le", "replace")


def array_element_class(name: str) -> str | None:
    """The class that a JVM resolves for a name: the element class of an array; None for primitives.

    >>> array_element_class("[[Ljava.lang.String;"), array_element_class("[J"), array_element_class("java.io.File")
    ('java.lang.String', None, 'java.io.File')
    """
    bare = name.lstrip("[")
    if bare == name:
        return None if name in _PRIMITIVES else name
    if len(bare) == 1 and bare in "BCDFIJSZ":
        return None
    # Malformed array names are returned unchanged, so no allow list has them.
    return bare[1:-1] if bare.startswith("L") and bare.endswith(";") and len(bare) > 2 else name


def scan_class_names(data: bytes) -> set[str]:
    """Class names in the head of a class descriptor at any offset of `data`.

    Returns: Every class that a JVM could resolve from these bytes, wherever it starts to read: arrays by element
    class, proxies by their interfaces. Field types are not among them, for a JVM resolves none of those.

    The time is linear: a name holds no control characters, and so never the head of another descriptor. Does not see
    what is compressed or encoded, and names longer than 4,096 bytes. Random bytes look like a descriptor about once in
    100 MB. Source: Java Object Serialization Specification, chapter 6.
    """
    names: set[str] = set()
    for match in _CANDIDATE.finditer(data):
        at = match.start()
        names |= set(
            _read_class_names(data, at + 1) if data[at] == CLASS_DESCRIPTOR else _read_proxy_names(data, at + 1)
        )
    return {element for name in names if (element := array_element_class(name)) is not None}


def _read_class_names(data: bytes, at: int) -> list[str]:
    name, at = _read_name(data, at)
    # A JVM reads serial version, flags and number of fields before it resolves a class.
    if name is None or at + 11 > len(data):
        return []
    # A reference whose number ends in 0x72, two truth values and a null behind it look like a class called p. Classes
    # of so short a name are left to the grammar and to the JVM's own filter.
    if len(name) < _MIN_NAME_BYTES:
        return []
    serial_version, flags, n_fields = struct.unpack_from(">qBh", data, at)
    # What a JVM throws at before it resolves anything: both kinds of writing at once, an enum with a version or fields.
    if flags & 0x06 == 0x06 or (flags & 0x10 and (serial_version or n_fields)):
        return []
    if n_fields > 0 and (at + 11 == len(data) or data[at + 11] not in _CODES):
        return []
    return [name]


def _read_proxy_names(data: bytes, at: int) -> list[str]:
    if at + 4 > len(data):
        return []
    (count,) = struct.unpack_from(">i", data, at)
    names: list[str] = []
    at += 4
    for _ in range(min(count, _MAX_INTERFACES)):
        name, at = _read_name(data, at)
        if name is None:
            break
        names.append(name)
    return names


def _read_name(data: bytes, at: int) -> tuple[str | None, int]:
    """The length-prefixed name at an offset and its end; None without one."""
    length = int.from_bytes(data[at : at + 2])
    end = at + 2 + length
    if not 0 < length <= MAX_NAME_BYTES or end > len(data) or not _PRINTED.fullmatch(data, at + 2, end):
        return None, at
    try:
        return decode_modified_utf8(data[at + 2 : end]), end
    except InputError:
        return None, at


class ByteCursor:
    """Reads big-endian values in sequence, within bounds.

    >>> at = ByteCursor(b"\\x00\\x04lore", "a stream")
    >>> at.read_text(at.read_numbers("H")[0])
    'lore'
    """

    def __init__(self, data: bytes, where: object) -> None:
        self.data, self.where, self.at = data, where, 0

    def read_name(self) -> str:
        """A class name."""
        (length,) = self.read_numbers("H")
        if not 0 < length <= MAX_NAME_BYTES:
            self.raise_fault("length of a class name", found=length, allowed=f"1 to {MAX_NAME_BYTES}")
        return self.read_text(length)

    def read_text(self, length: int) -> str:
        """A text of `length` bytes."""
        try:
            return decode_modified_utf8(self.read_bytes(length))
        except InputError as error:
            self.raise_fault(error.what, found=error.facts["found"])

    def check_count(self, count: int, each_bytes: int) -> int:
        """Check a number of parts against the rest of the stream."""
        if not 0 <= count * each_bytes <= len(self.data) - self.at:
            self.raise_fault("more parts than the rest of the stream can hold", found=count)
        return count

    def peek_byte(self) -> int:
        """The next byte, without consuming it."""
        if self.at >= len(self.data):
            self.raise_fault("the stream ends too soon")
        return self.data[self.at]

    def read_byte(self) -> int:
        """The next byte."""
        tag = self.peek_byte()
        self.at += 1
        return tag

    def read_bytes(self, size: int) -> bytes:
        """`size` bytes."""
        if not 0 <= size <= len(self.data) - self.at:
            self.raise_fault("the stream ends too soon", found=f"{size:,} bytes asked for")
        self.at += size
        return self.data[self.at - size : self.at]

    def read_numbers(self, form: str) -> tuple[Any, ...]:
        """Numbers, big-endian."""
        return struct.unpack(f">{form}", self.read_bytes(struct.calcsize(f">{form}")))

    def raise_fault(self, message: str, *, found: object = None, allowed: object = None) -> NoReturn:
        """Raise an InputError for this position."""
        raise InputError(message, where=f"{self.where}, byte {self.at:,}", found=found, allowed=allowed)
