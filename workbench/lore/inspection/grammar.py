"""The grammar of Java serialization (protocol version 2) as rules that read one stream.

Rules are generators on a stack of our own, so that depth is a number and not Python's recursion. Every step reads at
least one byte; sizes are held against what is left before memory is taken. Source: Java Object Serialization
Specification, chapter 6, and how the JDK's ObjectInputStream reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from workbench.lore.inspection.cursor import Cursor
from workbench.lore.inspection.javavalues import (
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
LARGEST_BYTES = 32 << 20
MOST_OBJECTS = 1_000_000
MOST_CLASSES = 50_000
# Of rules within each other, about three an object. A JVM's stack holds fewer.
DEEPEST = 20_000
MOST_PARENTS = 100

NULL, REFERENCE, CLASS_DESCRIPTOR, OBJECT, STRING, ARRAY, CLASS, BLOCK, END = range(0x70, 0x79)
RESET, LONG_BLOCK, EXCEPTION, LONG_STRING, PROXY_DESCRIPTOR, ENUM_CONSTANT = range(0x79, 0x7F)
FIRST_HANDLE = 0x7E0000
_FORMATS = {"B": "b", "C": "H", "D": "d", "F": "f", "I": "i", "J": "q", "S": "h", "Z": "?"}

Rule = Generator["Rule", Any, Any]


class Reader(Cursor):
    """The state of reading one stream: the place, the handles given out so far, what was met."""

    def __init__(self, data: bytes, where: object) -> None:
        super().__init__(data, where)
        self.handles: list[Value] = []
        self.descriptors: list[Descriptor] = []
        self.blocks: list[bytes] = []
        self.n_objects = 0
        self._rules: dict[int, Callable[[], Rule]] = {
            OBJECT: self._object,
            ARRAY: self._array,
            CLASS: self._class,
            ENUM_CONSTANT: self._enum,
        }

    def read_all(self) -> list[Value]:
        """The objects and the block data of the whole stream."""
        if len(self.data) > LARGEST_BYTES:
            self.refuse("too large", found=f"{len(self.data):,} bytes", allowed=f"at most {LARGEST_BYTES:,}")
        if self.data[:4] != MAGIC:
            self.refuse(
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
                contents.append(self._blocks())
            else:
                contents.append(self._run(self._item()))
        if not contents:
            self.refuse("the stream holds nothing")
        return contents

    def _run(self, rule: Rule) -> Value:
        stack, value = [rule], None
        while stack:
            try:
                child = stack[-1].send(value)
            except StopIteration as done:
                stack.pop()
                value = done.value
                continue
            if len(stack) >= DEEPEST:
                self.refuse("objects lie too deep in each other", allowed=f"at most {DEEPEST:,} rules")
            stack.append(child)
            value = None
        return cast("Value", value)

    # Rules: each yields the rules that it is made of, and is sent what they gave.

    def _item(self) -> Rule:
        tag = self.byte()
        if tag == NULL:
            return None
        if tag == REFERENCE:
            return self._referenced()
        if tag in (STRING, LONG_STRING):
            return self._string(tag)
        if tag in (CLASS_DESCRIPTOR, PROXY_DESCRIPTOR):
            self.at -= 1
            return (yield self._descriptor())
        if tag == EXCEPTION:
            self.refuse("the writer of the stream failed: it holds an exception in place of the object")
        if tag not in self._rules:
            self.refuse("type code that may not stand here", found=f"0x{tag:02x}")
        return (yield self._rules[tag]())

    def _object(self) -> Rule:
        descriptor = yield self._described("an object")
        made = JavaObject(descriptor)
        self._new(made)
        if descriptor.flags & EXTERNALIZABLE:
            # Of protocol version 1 the end could not be told.
            if not descriptor.flags & BLOCK_DATA:
                self.refuse("external data of protocol version 1", found=descriptor.name, allowed="version 2")
            made.written = yield self._annotation()
            return made
        for part in descriptor.layout:
            yield from self._fields(part, made)
            if part.flags & WRITE_METHOD:
                made.written += yield self._annotation()
        return made

    def _fields(self, part: Descriptor, made: JavaObject) -> Rule:
        primitives = [field for field in part.fields if field.code in _FORMATS]
        values = self.unpack("".join(_FORMATS[field.code] for field in primitives))
        for field, value in zip(primitives, values, strict=True):
            made.fields[field.name] = _text(value) if field.code == "C" else value
        for field in part.fields[len(primitives) :]:
            made.fields[field.name] = yield self._item()

    def _array(self) -> Rule:
        descriptor = yield self._described("an array")
        made = JavaArray(descriptor)
        handle = self._new(made)
        (size,) = self.unpack("i")
        code = descriptor.name[1:2]
        if not descriptor.name.startswith("[") or code not in {*_FORMATS, "L", "["}:
            self.refuse("array of a class that is none", found=descriptor.name)
        if size < 0 or size > len(self.data) - self.at:
            self.refuse("array longer than the rest of the stream", found=size)
        if code not in _FORMATS:
            items: list[Value] = []
            made.items = items
            for _ in range(size):
                # Most of a sparse array: no rule for each.
                if self.peek() == NULL:
                    self.at += 1
                    items.append(None)
                else:
                    items.append((yield self._item()))
            return made
        if code == "B":
            # A byte array is its bytes, and is so wherever it is referred to.
            self.handles[handle] = self.take(size)
            return self.handles[handle]
        if code == "C":
            made.items = self.take(2 * size).decode("utf-16-be", "replace")
        else:
            made.items = list(self.unpack(f"{size}{_FORMATS[code]}"))
        return made

    def _class(self) -> Rule:
        descriptor = yield self._described("a class")
        made = JavaClass(descriptor)
        self._new(made)
        return made

    def _enum(self) -> Rule:
        descriptor = yield self._described("an enum's constant")
        if not descriptor.flags & ENUM:
            self.refuse("constant of a class that is no enum", found=descriptor.name)
        made = JavaEnum(descriptor)
        self._new(made)
        made.constant = self._type_string("an enum's constant")
        return made

    def _annotation(self) -> Rule:
        items: list[Value] = []
        while (tag := self.peek()) != END:
            items.append(self._blocks() if tag in (BLOCK, LONG_BLOCK) else (yield self._item()))
        self.at += 1
        return items

    def _described(self, what: str) -> Rule:
        descriptor = yield self._descriptor()
        if descriptor is None:
            self.refuse(f"{what} without a class")
        return descriptor

    def _descriptor(self) -> Rule:
        tag = self.byte()
        if tag == NULL:
            return None
        if tag == REFERENCE:
            found = self._referenced()
            if not isinstance(found, Descriptor) or not found.complete:
                self.refuse("class descriptor expected, reference to something else found")
            return found
        if tag not in (CLASS_DESCRIPTOR, PROXY_DESCRIPTOR):
            self.refuse("class descriptor expected", found=f"0x{tag:02x}")
        made = Descriptor()
        if tag == CLASS_DESCRIPTOR:
            self._head(made)
        else:
            self._new(made)
            made.flags = SERIALIZABLE
            (count,) = self.unpack("i")
            made.interfaces = tuple(self.name() for _ in range(self.count(count, 2)))
        self.descriptors.append(made)
        if len(self.descriptors) > MOST_CLASSES:
            self.refuse("too many classes", allowed=f"at most {MOST_CLASSES:,}")
        made.written = yield self._annotation()
        made.parent = yield self._descriptor()
        self._complete(made)
        return made

    # Parts without rules of their own.

    def _head(self, made: Descriptor) -> None:
        made.name = self.name()
        (made.serial_version_uid,) = self.unpack("q")
        self._new(made)
        made.flags, n_fields = self.unpack("Bh")
        if made.flags & EXTERNALIZABLE and made.flags & SERIALIZABLE:
            self.refuse("class both serializable and externalizable", found=made.name)
        made.fields = tuple(self._field() for _ in range(self.count(n_fields, 3)))
        kinds = [field.code in _FORMATS for field in made.fields]
        if kinds != sorted(kinds, reverse=True):
            # A JVM reads primitives first and refuses any other order.
            self.refuse("fields in an order that Java does not write", found=made.name)

    def _field(self) -> Field:
        code = chr(self.byte())
        name = self.utf(self.unpack("H")[0])
        if code in _FORMATS:
            return Field(name, code, code)
        if code not in ("L", "["):
            self.refuse("unknown type of a field", found=repr(code))
        signature = self._type_string("a field's type")
        # The JVM goes by the signature: told otherwise, it would read other bytes than we do.
        if signature[:1] != code:
            self.refuse("a field's type code and signature differ", found=f"{code} and {signature[:80]}")
        return Field(name, code, signature)

    def _complete(self, made: Descriptor) -> None:
        parent = made.parent
        made.n_parents = parent.n_parents + 1 if parent else 0
        if made.n_parents > MOST_PARENTS:
            self.refuse("too many parents of a class", found=made.name, allowed=f"at most {MOST_PARENTS}")
        own = (made,) if made.fields or made.flags & WRITE_METHOD else ()
        made.layout = (parent.layout if parent else ()) + own
        made.complete = True

    def _blocks(self) -> bytes:
        """Block data up to the next object, joined: where it was cut means nothing."""
        joined = bytearray()
        while self.at < len(self.data) and (tag := self.data[self.at]) in (BLOCK, LONG_BLOCK):
            self.at += 1
            (size,) = self.unpack("B" if tag == BLOCK else "i")
            joined += self.take(size)
        self.blocks.append(bytes(joined))
        return self.blocks[-1]

    def _type_string(self, what: str) -> str:
        tag = self.byte()
        found = self._referenced() if tag == REFERENCE else None
        if tag in (STRING, LONG_STRING):
            found = self._string(tag)
        if not isinstance(found, str):
            self.refuse(f"{what} is no text")
        return found

    def _string(self, tag: int) -> str:
        (length,) = self.unpack("H" if tag == STRING else "q")
        text = self.utf(length)
        self._new(text)
        return text

    def _new(self, value: Value) -> int:
        self.n_objects += 1
        if self.n_objects > MOST_OBJECTS:
            self.refuse("too many objects", allowed=f"at most {MOST_OBJECTS:,}")
        self.handles.append(value)
        return len(self.handles) - 1

    def _referenced(self) -> Value:
        handle = int(self.unpack("i")[0])
        index = handle - FIRST_HANDLE
        if not 0 <= index < len(self.handles):
            self.refuse("reference to nothing", found=f"0x{handle & 0xFFFFFFFF:x}")
        return self.handles[index]


def _text(unit: int) -> str:
    return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= unit < 0xE000 else chr(unit)
