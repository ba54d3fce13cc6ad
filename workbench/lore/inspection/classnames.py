"""Class names in Java serialization, found at every offset: the reader that a crafted stream cannot lead astray.

How a JVM reads a stream depends on its own classes, too: a `readObject` that never asks for the declared fields takes
an object from where the grammar has numbers. So a reader of the grammar alone can be made to miss a class. What no
stream can avoid: a JVM resolves a class only after it has read a whole descriptor, and a descriptor's head lies in one
piece in the bytes. All of them are found by looking at each offset.
"""

from __future__ import annotations

import re
import struct

from workbench.errors import InputError

CLASS_DESCRIPTOR, PROXY_DESCRIPTOR = 0x72, 0x7D
# In bytes; a class name in three-byte form has 1,365 characters then.
LONGEST_NAME_BYTES = 4096
_CANDIDATE = re.compile(rb"(?:r[\x00-\x10]|\x7d\x00\x00)")
_PRINTED = re.compile(rb"[\x20-\xef]+")
_SHORTEST_NAME = 3
_LONGEST_INTERFACES = 65_535
_PRIMITIVES = {"boolean", "byte", "char", "double", "float", "int", "long", "short", "void"}
_CODES = frozenset(b"BCDFIJSZL[")


def modified_utf8(raw: bytes) -> str:
    """Java's form of UTF-8 as a JVM decodes it: overlong forms are taken, and so cannot hide a name.

    Raises
    ------
    InputError
        Bytes that a JVM refuses, too.

    Examples
    --------
    >>> modified_utf8(b"java.lang.Long"), modified_utf8(bytes([0xC1, 0xA1]))
    ('java.lang.Long', 'a')
    """
    if raw.isascii():
        return raw.decode("ascii")
    units, at = [], 0
    while at < len(raw):
        first = raw[at]
        more = 0 if first < 0x80 else 1 if first >> 5 == 0b110 else 2 if first >> 4 == 0b1110 else -1
        rest = raw[at + 1 : at + 1 + more] if more >= 0 else b""
        if more < 0 or len(rest) != more or any(byte >> 6 != 0b10 for byte in rest):
            raise InputError("text that is not Java's UTF-8", found=raw[at : at + 3].hex(" "))
        unit = first if not more else first & (0x1F if more == 1 else 0x0F)
        for byte in rest:
            unit = unit << 6 | byte & 0x3F
        units.append(unit)
        at += 1 + more
    # Pairs of surrogates become one character; half a pair is no text and is replaced.
    return struct.pack(f"<{len(units)}H", *units).decode("utf-16-le", "replace")


def element_class(name: str) -> str | None:
    """The class that a name makes a JVM resolve: an array's element class; None for primitives.

    Examples
    --------
    >>> element_class("[[Ljava.lang.String;"), element_class("[J"), element_class("java.io.File")
    ('java.lang.String', None, 'java.io.File')
    """
    bare = name.lstrip("[")
    if bare == name:
        return None if name in _PRIMITIVES else name
    if len(bare) == 1 and bare in "BCDFIJSZ":
        return None
    # Malformed array names are given back whole, so that no list of allowed classes has them.
    return bare[1:-1] if bare.startswith("L") and bare.endswith(";") and len(bare) > 2 else name


def scan(data: bytes) -> set[str]:
    """Which class names stand in a class descriptor's head at any offset of `data`?

    Returns
    -------
    set of str
        Every class that a JVM could resolve from these bytes, wherever it starts to read: arrays by element class,
        proxies by their interfaces. Field types are not among them, for a JVM resolves none of those.

    Notes
    -----
    The time is linear: a name holds no control characters, and so never the head of another descriptor. Does not see
    what is compressed or encoded, and names longer than 4,096 bytes. Random bytes look like a descriptor about once in
    100 MB. Source: Java Object Serialization Specification, chapter 6.
    """
    found: set[str] = set()
    for match in _CANDIDATE.finditer(data):
        at = match.start()
        found |= set(_plain(data, at + 1) if data[at] == CLASS_DESCRIPTOR else _proxy(data, at + 1))
    return {element for name in found if (element := element_class(name)) is not None}


def _plain(data: bytes, at: int) -> list[str]:
    name, at = _name(data, at)
    # Serial version, flags and number of fields: a JVM resolves nothing before it has read them.
    if name is None or at + 11 > len(data):
        return []
    # A reference whose number ends in 0x72, two truth values and a null behind it look like a class called p. Classes
    # of so short a name are left to the grammar and to the JVM's own filter.
    if len(name) < _SHORTEST_NAME:
        return []
    serial_version, flags, n_fields = struct.unpack_from(">qBh", data, at)
    # What a JVM throws at before it resolves anything: both kinds of writing at once, an enum with a version or fields.
    if flags & 0x06 == 0x06 or (flags & 0x10 and (serial_version or n_fields)):
        return []
    if n_fields > 0 and (at + 11 == len(data) or data[at + 11] not in _CODES):
        return []
    return [name]


def _proxy(data: bytes, at: int) -> list[str]:
    if at + 4 > len(data):
        return []
    (count,) = struct.unpack_from(">i", data, at)
    names: list[str] = []
    at += 4
    for _ in range(min(count, _LONGEST_INTERFACES)):
        name, at = _name(data, at)
        if name is None:
            break
        names.append(name)
    return names


def _name(data: bytes, at: int) -> tuple[str | None, int]:
    """The length-prefixed name at an offset and where it ends; None where there is none."""
    length = int.from_bytes(data[at : at + 2])
    end = at + 2 + length
    if not 0 < length <= LONGEST_NAME_BYTES or end > len(data) or not _PRINTED.fullmatch(data, at + 2, end):
        return None, at
    try:
        return modified_utf8(data[at + 2 : end]), end
    except InputError:
        return None, at
