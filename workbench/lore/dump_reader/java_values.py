"""Values of a Java stream as Python values: objects, Scala collections, Spark types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from workbench.core.errors import InputError

Value: TypeAlias = (
    "bool | int | float | str | bytes | JavaObject | JavaArray | JavaEnum | JavaClass | Descriptor | None"
)

WRITE_METHOD, SERIALIZABLE, EXTERNALIZABLE, BLOCK_DATA, ENUM = 0x01, 0x02, 0x04, 0x08, 0x10
MODULE_PROXY = "scala.runtime.ModuleSerializationProxy"
MAX_SEQ_ITEMS = 1_000_000
MAX_TEXT_CHARS = 200
# Maximum parts of a formatted type; the graph of a stream may be cyclic.
MAX_TYPE_PARTS = 400
_SQL_NAMES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "timestampntz": "timestamp_ntz",
    "null": "void",
    "calendarinterval": "interval",
}
_INTERVALS = {"DayTimeInterval": ("day", "hour", "minute", "second"), "YearMonthInterval": ("year", "month")}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a class descriptor: type code (one of BCDFIJSZ, L, [) and signature."""

    name: str
    code: str
    signature: str


@dataclass(eq=False, repr=False, slots=True)
class Descriptor:
    """A class descriptor; proxy classes have interfaces instead of a name."""

    name: str = ""
    serial_version_uid: int = 0
    flags: int = 0
    fields: tuple[Field, ...] = ()
    interfaces: tuple[str, ...] = ()
    written: list[Value] = field(default_factory=list)
    parent: Descriptor | None = None
    # Descriptors with data in an object, superclass first.
    layout: tuple[Descriptor, ...] = ()
    n_parents: int = 0
    complete: bool = False

    @property
    def lineage(self) -> tuple[str, ...]:
        """Names of the class and its serializable superclasses."""
        names, at = [], self
        while at.parent is not None:
            names.append(at.name)
            at = at.parent
        return (*names, at.name)


@dataclass(eq=False, repr=False, slots=True)
class JavaObject:
    """An object: its fields by name (subclasses override superclasses) and its custom data.

    `written` has the objects and joined block data (`bytes`) of all its classes, in order.
    """

    descriptor: Descriptor
    fields: dict[str, Value] = field(default_factory=dict)
    written: list[Value] = field(default_factory=list)

    @property
    def class_name(self) -> str:
        """Name of the class."""
        return self.descriptor.name


@dataclass(eq=False, repr=False, slots=True)
class JavaArray:
    """An array: `bytes` for bytes, a text for chars, else a list."""

    descriptor: Descriptor
    items: list[Value] | str = field(default_factory=list)

    @property
    def class_name(self) -> str:
        """Name of the class, such as "[I"."""
        return self.descriptor.name


@dataclass(eq=False, repr=False, slots=True)
class JavaEnum:
    """An enum constant."""

    descriptor: Descriptor
    constant: str = ""

    @property
    def class_name(self) -> str:
        """Name of the class."""
        return self.descriptor.name


@dataclass(eq=False, repr=False, slots=True)
class JavaClass:
    """A class as a value."""

    descriptor: Descriptor

    @property
    def class_name(self) -> str:
        """Name of this class."""
        return self.descriptor.name


def value_class_name(value: Value) -> str:
    """Class name of a value; for a Scala object (a proxy in 2.13) that of the object.

    >>> value_class_name("text"), value_class_name(None)
    ('str', 'NoneType')
    """
    if isinstance(value, JavaObject) and value.class_name == MODULE_PROXY:
        module = value.fields.get("moduleClass")
        return module.class_name if isinstance(module, JavaClass) else MODULE_PROXY
    return str(getattr(value, "class_name", type(value).__name__))


def list_items(value: Value) -> list[Value]:
    """The elements of a Scala Seq, a Java list or an array, in order."""
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, JavaArray):
        return list(value.items)
    if isinstance(value, JavaObject):
        fields = value.fields
        if value.class_name in _READERS:
            return _READERS[value.class_name](value)
        # WrappedArray, ArraySeq, ArrayBuffer: an array; a buffer uses a part of it.
        for name in ("array", "unsafeArray"):
            if isinstance(array := fields.get(name), JavaArray | bytes):
                size = fields.get("size0")
                return list_items(array)[: size if isinstance(size, int) else None]
        if value_class_name(value) == "scala.collection.immutable.Nil$":
            return []
    raise InputError("unknown kind of sequence", found=value_class_name(value))


def _read_until_end(value: JavaObject) -> list[Value]:
    ends = ("scala.collection.immutable.ListSerializeEnd$", "scala.collection.generic.SerializeEnd$")
    end = next((index for index, item in enumerate(value.written) if value_class_name(item) in ends), None)
    return [item for item in value.written[:end] if not isinstance(item, bytes)]


def _read_java_list(value: JavaObject) -> list[Value]:
    return [item for item in value.written if not isinstance(item, bytes)]


def _read_wrapped_list(value: JavaObject) -> list[Value]:
    inner = value.fields.get("underlying")
    # No nested wrappers: a stream can make one wrap itself.
    if isinstance(inner, JavaObject) and inner.class_name in ("java.util.ArrayList", "java.util.LinkedList"):
        return _read_java_list(inner)
    raise InputError("unknown kind of wrapped list", found=value_class_name(inner))


def _read_range(value: JavaObject) -> list[Value]:
    start, end, step = (value.fields.get(name) for name in ("start", "end", "step"))
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step):
        raise InputError("a range without bounds")
    inclusive = value.class_name.endswith("Inclusive") or value.fields.get("isInclusive")
    return list(range(start, end + ((1 if step > 0 else -1) if inclusive else 0), step)[:MAX_SEQ_ITEMS])


def _read_vector(value: JavaObject) -> list[Value]:
    """Items of a Scala 2.12 Vector, which is a tree of arrays of 32, from its startIndex to its endIndex."""
    depth, start, end = (value.fields.get(name) for name in ("depth", "startIndex", "endIndex"))
    if not (isinstance(depth, int) and isinstance(start, int) and isinstance(end, int)):
        raise InputError("a vector without bounds")
    if not 0 <= end - start <= MAX_SEQ_ITEMS or not 0 <= depth <= 6:
        raise InputError("a vector with invalid bounds", found=(depth, start, end))
    vector_leafs = []
    for index in range(start, end):
        at = value.fields.get(f"display{depth - 1}")
        for level in range(depth - 1, -1, -1):
            place = index >> 5 * level & 31
            if not isinstance(at, JavaArray) or place >= len(at.items):
                raise InputError("a vector with a missing part", found=value_class_name(at))
            at = at.items[place]
        vector_leafs.append(at)
    return vector_leafs


_READERS: dict[str, Callable[[JavaObject], list[Value]]] = {
    "scala.collection.immutable.List$SerializationProxy": _read_until_end,
    "scala.collection.generic.DefaultSerializationProxy": _read_until_end,
    "scala.collection.convert.Wrappers$JListWrapper": _read_wrapped_list,
    "scala.collection.convert.JavaCollectionWrappers$JListWrapper": _read_wrapped_list,
    "java.util.ArrayList": _read_java_list,
    "java.util.LinkedList": _read_java_list,
    "scala.collection.immutable.Range": _read_range,
    "scala.collection.immutable.Range$Inclusive": _read_range,
    "scala.collection.immutable.Range$Exclusive": _read_range,
    "scala.collection.immutable.Vector": _read_vector,
}


def to_number(value: Value) -> int:
    """An Int or a Long, boxed or not."""
    inner = value.fields.get("value") if isinstance(value, JavaObject) else value
    if isinstance(inner, bool) or not isinstance(inner, int):
        raise InputError("a number expected", found=value_class_name(value))
    return inner


def to_text(value: Value) -> str:
    """Convert a value to text, cut when it is long; other values than texts give their class name in brackets."""
    shown = value if isinstance(value, str) else f"<{value_class_name(value)}>"
    # JSON may have single surrogates, which cannot be printed.
    shown = shown[: MAX_TEXT_CHARS + 1].encode("utf-8", "replace").decode()
    return shown if len(shown) <= MAX_TEXT_CHARS else shown[:MAX_TEXT_CHARS] + "…"


class _TypeFormatter:
    """Formats a type, up to a maximum number of parts."""

    def __init__(self) -> None:
        self.left = MAX_TYPE_PARTS

    def format_java(self, value: Value, depth: int = 0) -> str:
        self.left -= 1
        if self.left < 0 or depth > 30 or not isinstance(value, JavaObject):
            return "…"
        name = value_class_name(value).rpartition(".")[2].rstrip("$").removesuffix("Type")
        fields = value.fields
        if name == "Array":
            return f"array<{self.format_java(fields.get('elementType'), depth + 1)}>"
        if name == "Map":
            key, value = (self.format_java(fields.get(part), depth + 1) for part in ("keyType", "valueType"))
            return f"map<{key},{value}>"
        if name == "Struct":
            parts = [item.fields for item in list_items(fields.get("fields")) if isinstance(item, JavaObject)]
            inner = [
                f"{to_text(part.get('name'))}:{self.format_java(part.get('dataType'), depth + 1)}"
                for part in parts[:50]
            ]
            return f"struct<{','.join(inner + ['…'] * (len(parts) > 50))}>"
        if name == "Decimal":
            return f"decimal({to_number(fields.get('precision'))},{to_number(fields.get('scale'))})"
        if name in ("Char", "Varchar"):
            return f"{name.lower()}({to_number(fields.get('length'))})"
        if name in _INTERVALS:
            # Format an interval type from its first and last unit, which are indices into `units`.
            units = _INTERVALS[name]
            start = fields.get("startField")
            end = fields.get("endField")
            if not (isinstance(start, int) and isinstance(end, int)) or not 0 <= start <= end < len(units):
                return "interval"
            return f"interval {units[start]}" + (f" to {units[end]}" if end > start else "")
        return _SQL_NAMES.get(name.lower(), name.lower())

    def format_json(self, value: Any, depth: int = 0) -> str:
        """Format a Spark type in its JSON form, like array<int>; deep or large types are cut with `…`."""
        self.left -= 1
        if self.left < 0 or depth > 30:
            return "…"
        if isinstance(value, str):
            return _SQL_NAMES.get(value, to_text(value))
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "array":
            return f"array<{self.format_json(value.get('elementType'), depth + 1)}>"
        if kind == "map":
            pair = (self.format_json(value.get(part), depth + 1) for part in ("keyType", "valueType"))
            return f"map<{','.join(pair)}>"
        if kind == "struct" and isinstance(fields := value.get("fields"), list):
            parts = [part for part in fields if isinstance(part, dict)]
            inner = [
                f"{to_text(part.get('name'))}:{self.format_json(part.get('type'), depth + 1)}" for part in parts[:50]
            ]
            return f"struct<{','.join(inner + ['…'] * (len(parts) > 50))}>"
        return "udt" if kind == "udt" else "…"


def format_java_type(value: Value) -> str:
    """A Spark DataType of a Java stream as SQL; "…" for invalid or too large types."""
    return _TypeFormatter().format_java(value)


def format_json_type(value: Any) -> str:
    """A Spark DataType in JSON as SQL; "…" for invalid or too large types.

    >>> format_json_type("long")
    'bigint'
    >>> format_json_type({"type": "array", "elementType": "decimal(12,2)", "containsNull": True})
    'array<decimal(12,2)>'
    """
    return _TypeFormatter().format_json(value)
