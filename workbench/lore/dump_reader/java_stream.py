"""Java serialization (protocol version 2) read without a JVM: values and class names."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from workbench.lore.dump_reader import java_bytes
from workbench.lore.dump_reader.java_bytes import ByteCursor
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
                self.raise_fault("objects lie too deep in each other", allowed=f"at most {MAX_DEPTH:,} rules")
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
            self.raise_fault("the writer of the stream failed: it holds an exception in place of the object")
        if tag not in self._rules:
            self.raise_fault("type code that may not stand here", found=f"0x{tag:02x}")
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
            self.raise_fault("array of a class that is none", found=descriptor.name)
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
        """Block data up to the next object, joined."""
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


__all__ = ["MAGIC", "list_class_names", "read_values"]


def list_class_names(data: bytes, *, where: object = "the stream") -> set[str]:
    """Classes that a JVM might resolve when it reads this stream.

    Returns: Binary names: classes and their serializable parents, enums, classes as values, interfaces of proxies,
    element classes of arrays; also those of streams nested in byte arrays or block data. Primitives are left out.

    Includes class names at any other offset: see `java_bytes.scan_class_names`. Does not show classes named in texts,
    which the code of an object may load (such as a lambda), nor compressed or encoded streams: allow few classes, and
    none that do such things.
    """
    reader = StreamReader(data, where)
    reader.read_all()
    names = java_bytes.scan_class_names(data)
    for descriptor in reader.descriptors:
        raw_names = [*descriptor.interfaces, *([descriptor.name] if descriptor.name else [])]
        names |= {element for name in raw_names if (element := java_bytes.array_element_class(name)) is not None}
    # Block headers may split a nested stream anywhere.
    for block in reader.blocks:
        names |= java_bytes.scan_class_names(block)
    return names


def read_values(data: bytes, *, where: object = "the stream") -> list[Value]:
    """Read the values of a stream; nothing is loaded or run.

    >>> read_values(MAGIC + b"\\x74\\x00\\x04lore")
    ['lore']
    """
    return StreamReader(data, where).read_all()
