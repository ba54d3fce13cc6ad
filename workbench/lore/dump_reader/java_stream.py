"""Java serialization (protocol version 2) read without a JVM: values and class names."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator
from typing import Any, NoReturn, cast

from workbench.core.errors import InputError
from workbench.lore.dump_reader.java_values import (
    BLOCK_DATA,
    ENUM,
    EXTERNALIZABLE,
    SERIALIZABLE,
    WRITE_METHOD,
    Descriptor,
    Field,
    JavaArray,
    JavaClass,
    JavaEnum,
    JavaObject,
    Value,
)

# In bytes: 1,365 characters in three-byte form.
MAX_NAME_BYTES = 4096
_CANDIDATE = re.compile(rb"(?:r[\x00-\x10]|\x7d\x00\x00)")
_PRINTED = re.compile(rb"[\x20-\xef]+")
_MIN_NAME_BYTES = 3
_MAX_INTERFACES = 65_535
_PRIMITIVES = {"boolean", "byte", "char", "double", "float", "int", "long", "short", "void"}
_CODES = frozenset(b"BCDFIJSZL[")
MAGIC = b"\xac\xed\x00\x05"
MAX_STREAM_BYTES = 32 << 20
MAX_OBJECTS = 1_000_000
MAX_CLASSES = 50_000
# Maximum nesting of rules, about three per object; deeper than a JVM's stack.
MAX_DEPTH = 20_000
MAX_PARENTS = 100
NULL, REFERENCE, CLASS_DESCRIPTOR, OBJECT, STRING, ARRAY, CLASS, BLOCK, END = range(0x70, 0x79)
RESET, LONG_BLOCK, EXCEPTION, LONG_STRING, PROXY_DESCRIPTOR, ENUM_CONSTANT = range(0x79, 0x7F)
FIRST_HANDLE = 0x7E0000
_FORMATS = {"B": "b", "C": "H", "D": "d", "F": "f", "I": "i", "J": "q", "S": "h", "Z": "?"}
Rule = Generator["Rule", Any, Any]
__all__ = ["MAGIC", "list_class_names", "read_values"]


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
    """Read a class descriptor's name at offset `at` of a Java stream; empty if the bytes there cannot be one."""
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
    """Read the interface names of a proxy class descriptor at offset `at` of a Java stream."""
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
    """Read the length-prefixed name at offset `at`: the name, null if there is none, and the offset behind it."""
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
            self.raise_fault("more parts than fit into the rest of the stream", found=count)
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


class StreamReader(ByteCursor):
    """State of reading one stream: position, assigned handles, class names."""

    def __init__(self, data: bytes, where: object) -> None:
        super().__init__(data, where)
        self.handles: list[Value] = []
        self.descriptors: list[Descriptor] = []
        self.blocks: list[bytes] = []
        self.n_objects = 0
        self._rules: dict[int, Callable[[], Rule]] = {
            OBJECT: self._read_object,
            ARRAY: self._read_array,
            CLASS: self._read_class,
            ENUM_CONSTANT: self._read_enum,
        }

    def read_all(self) -> list[Value]:
        """Objects and block data of the whole stream."""
        if len(self.data) > MAX_STREAM_BYTES:
            self.raise_fault("too large", found=f"{len(self.data):,} bytes", allowed=f"at most {MAX_STREAM_BYTES:,}")
        if self.data[:4] != MAGIC:
            self.raise_fault(
                "not a Java serialization stream", found=self.data[:4].hex(" ") or "nothing", allowed="ac ed 00 05"
            )
        self.at = 4
        contents: list[Value] = []
        while self.at < len(self.data):
            tag = self.data[self.at]
            if tag == RESET:
                self.at += 1
                self.handles.clear()
            elif tag in (BLOCK, LONG_BLOCK):
                contents.append(self._read_blocks())
            else:
                contents.append(self._run_rule(self._read_item()))
        if not contents:
            self.raise_fault("the stream holds nothing")
        return contents

    def _run_rule(self, rule: Rule) -> Value:
        stack, value = [rule], None
        while stack:
            try:
                child = stack[-1].send(value)
            except StopIteration as stop:
                stack.pop()
                value = stop.value
                continue
            if len(stack) >= MAX_DEPTH:
                self.raise_fault("objects are nested too deeply", allowed=f"at most {MAX_DEPTH:,} rules")
            stack.append(child)
            value = None
        return cast("Value", value)

    # Rules of the grammar: generators that yield other rules and receive their values.

    def _read_item(self) -> Rule:
        tag = self.read_byte()
        if tag == NULL:
            return None
        if tag == REFERENCE:
            return self._read_reference()
        if tag in (STRING, LONG_STRING):
            return self._read_string(tag)
        if tag in (CLASS_DESCRIPTOR, PROXY_DESCRIPTOR):
            self.at -= 1
            return (yield self._read_descriptor())
        if tag == EXCEPTION:
            self.raise_fault("the writer of the stream failed: it contains an exception instead of the object")
        if tag not in self._rules:
            self.raise_fault("type code that is not allowed here", found=f"0x{tag:02x}")
        return (yield self._rules[tag]())

    def _read_object(self) -> Rule:
        descriptor = yield self._read_described_class("an object")
        instance = JavaObject(descriptor)
        self._add_handle(instance)
        if descriptor.flags & EXTERNALIZABLE:
            # In protocol version 1 the end is not marked.
            if not descriptor.flags & BLOCK_DATA:
                self.raise_fault("external data of protocol version 1", found=descriptor.name, allowed="version 2")
            instance.written = yield self._read_annotation()
            return instance
        for part in descriptor.layout:
            yield from self._read_fields(part, instance)
            if part.flags & WRITE_METHOD:
                instance.written += yield self._read_annotation()
        return instance

    def _read_fields(self, part: Descriptor, instance: JavaObject) -> Rule:
        primitives = [field for field in part.fields if field.code in _FORMATS]
        values = self.read_numbers("".join(_FORMATS[field.code] for field in primitives))
        for field, value in zip(primitives, values, strict=True):
            instance.fields[field.name] = _decode_char(value) if field.code == "C" else value
        for field in part.fields[len(primitives) :]:
            instance.fields[field.name] = yield self._read_item()

    def _read_array(self) -> Rule:
        descriptor = yield self._read_described_class("an array")
        array = JavaArray(descriptor)
        handle = self._add_handle(array)
        (size,) = self.read_numbers("i")
        code = descriptor.name[1:2]
        if not descriptor.name.startswith("[") or code not in {*_FORMATS, "L", "["}:
            self.raise_fault("array of something that is not a class", found=descriptor.name)
        if size < 0 or size > len(self.data) - self.at:
            self.raise_fault("array longer than the rest of the stream", found=size)
        if code not in _FORMATS:
            items: list[Value] = []
            array.items = items
            for _ in range(size):
                # Sparse arrays are mostly null; no rule for each.
                if self.peek_byte() == NULL:
                    self.at += 1
                    items.append(None)
                else:
                    items.append((yield self._read_item()))
            return array
        if code == "B":
            # Byte arrays become bytes, also where they are referenced.
            self.handles[handle] = self.read_bytes(size)
            return self.handles[handle]
        if code == "C":
            array.items = self.read_bytes(2 * size).decode("utf-16-be", "replace")
        else:
            array.items = list(self.read_numbers(f"{size}{_FORMATS[code]}"))
        return array

    def _read_class(self) -> Rule:
        descriptor = yield self._read_described_class("a class")
        java_class = JavaClass(descriptor)
        self._add_handle(java_class)
        return java_class

    def _read_enum(self) -> Rule:
        descriptor = yield self._read_described_class("an enum's constant")
        if not descriptor.flags & ENUM:
            self.raise_fault("constant of a class that is no enum", found=descriptor.name)
        java_enum = JavaEnum(descriptor)
        self._add_handle(java_enum)
        java_enum.constant = self._read_type_string("an enum's constant")
        return java_enum

    def _read_annotation(self) -> Rule:
        items: list[Value] = []
        while (tag := self.peek_byte()) != END:
            items.append(self._read_blocks() if tag in (BLOCK, LONG_BLOCK) else (yield self._read_item()))
        self.at += 1
        return items

    def _read_described_class(self, subject: str) -> Rule:
        descriptor = yield self._read_descriptor()
        if descriptor is None:
            self.raise_fault(f"{subject} without a class")
        return descriptor

    def _read_descriptor(self) -> Rule:
        tag = self.read_byte()
        if tag == NULL:
            return None
        if tag == REFERENCE:
            referent = self._read_reference()
            if not isinstance(referent, Descriptor) or not referent.complete:
                self.raise_fault("class descriptor expected, reference to something else found")
            return referent
        if tag not in (CLASS_DESCRIPTOR, PROXY_DESCRIPTOR):
            self.raise_fault("class descriptor expected", found=f"0x{tag:02x}")
        descriptor = Descriptor()
        if tag == CLASS_DESCRIPTOR:
            self._read_descriptor_head(descriptor)
        else:
            self._add_handle(descriptor)
            descriptor.flags = SERIALIZABLE
            (count,) = self.read_numbers("i")
            descriptor.interfaces = tuple(self.read_name() for _ in range(self.check_count(count, 2)))
        self.descriptors.append(descriptor)
        if len(self.descriptors) > MAX_CLASSES:
            self.raise_fault("too many classes", allowed=f"at most {MAX_CLASSES:,}")
        descriptor.written = yield self._read_annotation()
        descriptor.parent = yield self._read_descriptor()
        self._complete_descriptor(descriptor)
        return descriptor

    # Parts without their own rules.

    def _read_descriptor_head(self, descriptor: Descriptor) -> None:
        descriptor.name = self.read_name()
        (descriptor.serial_version_uid,) = self.read_numbers("q")
        self._add_handle(descriptor)
        descriptor.flags, n_fields = self.read_numbers("Bh")
        if descriptor.flags & EXTERNALIZABLE and descriptor.flags & SERIALIZABLE:
            self.raise_fault("class both serializable and externalizable", found=descriptor.name)
        descriptor.fields = tuple(self._read_field() for _ in range(self.check_count(n_fields, 3)))
        kinds = [field.code in _FORMATS for field in descriptor.fields]
        if kinds != sorted(kinds, reverse=True):
            # A JVM requires primitives first.
            self.raise_fault("fields in an order that Java does not write", found=descriptor.name)

    def _read_field(self) -> Field:
        code = chr(self.read_byte())
        name = self.read_text(self.read_numbers("H")[0])
        if code in _FORMATS:
            return Field(name, code, code)
        if code not in ("L", "["):
            self.raise_fault("unknown type of a field", found=repr(code))
        signature = self._read_type_string("a field's type")
        # The JVM uses the signature; a different type code would change the bytes that it reads.
        if signature[:1] != code:
            self.raise_fault("a field's type code and signature differ", found=f"{code} and {signature[:80]}")
        return Field(name, code, signature)

    def _complete_descriptor(self, descriptor: Descriptor) -> None:
        parent = descriptor.parent
        descriptor.n_parents = parent.n_parents + 1 if parent else 0
        if descriptor.n_parents > MAX_PARENTS:
            self.raise_fault("too many parents of a class", found=descriptor.name, allowed=f"at most {MAX_PARENTS}")
        layout_part = (descriptor,) if descriptor.fields or descriptor.flags & WRITE_METHOD else ()
        descriptor.layout = (parent.layout if parent else ()) + layout_part
        descriptor.complete = True

    def _read_blocks(self) -> bytes:
        """Block data up to the next object, joined.

        Also kept in `blocks`: a writer may hide another stream in them, whose class names `list_class_names` looks for.
        """
        joined = bytearray()
        while self.at < len(self.data) and (tag := self.data[self.at]) in (BLOCK, LONG_BLOCK):
            self.at += 1
            (size,) = self.read_numbers("B" if tag == BLOCK else "i")
            joined += self.read_bytes(size)
        self.blocks.append(bytes(joined))
        return self.blocks[-1]

    def _read_type_string(self, subject: str) -> str:
        tag = self.read_byte()
        text = self._read_reference() if tag == REFERENCE else None
        if tag in (STRING, LONG_STRING):
            text = self._read_string(tag)
        if not isinstance(text, str):
            self.raise_fault(f"{subject} is no text")
        return text

    def _read_string(self, tag: int) -> str:
        (length,) = self.read_numbers("H" if tag == STRING else "q")
        text = self.read_text(length)
        self._add_handle(text)
        return text

    def _add_handle(self, value: Value) -> int:
        self.n_objects += 1
        if self.n_objects > MAX_OBJECTS:
            self.raise_fault("too many objects", allowed=f"at most {MAX_OBJECTS:,}")
        self.handles.append(value)
        return len(self.handles) - 1

    def _read_reference(self) -> Value:
        handle = int(self.read_numbers("i")[0])
        index = handle - FIRST_HANDLE
        if not 0 <= index < len(self.handles):
            self.raise_fault("reference to nothing", found=f"0x{handle & 0xFFFFFFFF:x}")
        return self.handles[index]


def _decode_char(unit: int) -> str:
    return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= unit < 0xE000 else chr(unit)


def list_class_names(data: bytes, *, where: object = "the stream") -> set[str]:
    """Classes that a JVM might resolve when it reads this stream.

    Returns: Binary names: classes and their serializable parents, enums, classes as values, interfaces of proxies,
    element classes of arrays; also those of streams nested in byte arrays or block data. Primitives are left out.

    Includes class names at any other offset: see `scan_class_names`. Does not show classes named in texts,
    which the code of an object may load (such as a lambda), nor compressed or encoded streams: allow few classes, and
    none that do such things.
    """
    reader = StreamReader(data, where)
    reader.read_all()
    names = scan_class_names(data)
    for descriptor in reader.descriptors:
        raw_names = [*descriptor.interfaces, *([descriptor.name] if descriptor.name else [])]
        names |= {element for name in raw_names if (element := array_element_class(name)) is not None}
    # Block headers may split a nested stream anywhere.
    for block in reader.blocks:
        names |= scan_class_names(block)
    return names


def read_values(data: bytes, *, where: object = "the stream") -> list[Value]:
    """Read the values of a stream; nothing is loaded or run.

    >>> read_values(MAGIC + b"\\x74\\x00\\x04lore")
    ['lore']
    """
    return StreamReader(data, where).read_all()
