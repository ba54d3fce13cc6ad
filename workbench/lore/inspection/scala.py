"""Scala's collections, objects and Spark's types as they lie in a Java stream, for Scala 2.12 and 2.13 alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.errors import InputError
from workbench.lore.inspection.javavalues import JavaArray, JavaClass, JavaObject, Value

MODULE_PROXY = "scala.runtime.ModuleSerializationProxy"
LONGEST_SEQ = 1_000_000
LONGEST_TEXT = 200
# Parts of one type that are spelled out; a stream's graph may be cyclic.
MOST_PARTS = 400
_SQL_NAMES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "timestampntz": "timestamp_ntz",
    "null": "void",
    "calendarinterval": "interval",
}


def class_of(value: Value) -> str:
    """Name of a value's class; of a Scala object (2.13 writes a stand-in for it) that of the object.

    Examples
    --------
    >>> class_of("text"), class_of(None)
    ('str', 'NoneType')
    """
    if isinstance(value, JavaObject) and value.class_name == MODULE_PROXY:
        module = value.fields.get("moduleClass")
        return module.class_name if isinstance(module, JavaClass) else MODULE_PROXY
    return str(getattr(value, "class_name", type(value).__name__))


def items_of(value: Value) -> list[Value]:
    """The elements of a Scala Seq, a Java list or an array, in order.

    Raises
    ------
    InputError
        A kind of sequence that is not known, as a lazy one.
    """
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, JavaArray):
        return list(value.items)
    if isinstance(value, JavaObject):
        fields = value.fields
        if value.class_name in _READERS:
            return _READERS[value.class_name](value)
        # WrappedArray, ArraySeq, ArrayBuffer: an array, of which a buffer uses a part.
        for name in ("array", "unsafeArray"):
            if isinstance(array := fields.get(name), JavaArray | bytes):
                size = fields.get("size0")
                return items_of(array)[: size if isinstance(size, int) else None]
        if class_of(value) == "scala.collection.immutable.Nil$":
            return []
    raise InputError("a sequence of a kind that is not known", found=class_of(value))


def _until_end(value: JavaObject) -> list[Value]:
    ends = ("scala.collection.immutable.ListSerializeEnd$", "scala.collection.generic.SerializeEnd$")
    end = next((index for index, item in enumerate(value.written) if class_of(item) in ends), None)
    return [item for item in value.written[:end] if not isinstance(item, bytes)]


def _java_list(value: JavaObject) -> list[Value]:
    return [item for item in value.written if not isinstance(item, bytes)]


def _wrapped_list(value: JavaObject) -> list[Value]:
    inner = value.fields.get("underlying")
    # Of a known kind and no wrapper again: a stream can make one wrap itself.
    if isinstance(inner, JavaObject) and inner.class_name in ("java.util.ArrayList", "java.util.LinkedList"):
        return _java_list(inner)
    raise InputError("a wrapped list of a kind that is not known", found=class_of(inner))


def _range(value: JavaObject) -> list[Value]:
    start, end, step = (value.fields.get(name) for name in ("start", "end", "step"))
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step):
        raise InputError("a range without bounds")
    inclusive = value.class_name.endswith("Inclusive") or value.fields.get("isInclusive")
    return list(range(start, end + ((1 if step > 0 else -1) if inclusive else 0), step)[:LONGEST_SEQ])


def _vector(value: JavaObject) -> list[Value]:
    """Of Scala 2.12, a tree of arrays of 32: its leaves in order, from startIndex up to endIndex."""
    depth, start, end = (value.fields.get(name) for name in ("depth", "startIndex", "endIndex"))
    if not (isinstance(depth, int) and isinstance(start, int) and isinstance(end, int)):
        raise InputError("a vector without bounds")
    if not 0 <= end - start <= LONGEST_SEQ or not 0 <= depth <= 6:
        raise InputError("a vector with bounds that none has", found=(depth, start, end))
    return [_leaf(value.fields.get(f"display{depth - 1}"), depth, index) for index in range(start, end)]


def _leaf(at: Value, depth: int, index: int) -> Value:
    for level in range(depth - 1, -1, -1):
        place = index >> 5 * level & 31
        if not isinstance(at, JavaArray) or place >= len(at.items):
            raise InputError("a vector with a part missing", found=class_of(at))
        at = at.items[place]
    return at


_READERS: dict[str, Callable[[JavaObject], list[Value]]] = {
    "scala.collection.immutable.List$SerializationProxy": _until_end,
    "scala.collection.generic.DefaultSerializationProxy": _until_end,
    "scala.collection.convert.Wrappers$JListWrapper": _wrapped_list,
    "scala.collection.convert.JavaCollectionWrappers$JListWrapper": _wrapped_list,
    "java.util.ArrayList": _java_list,
    "java.util.LinkedList": _java_list,
    "scala.collection.immutable.Range": _range,
    "scala.collection.immutable.Range$Inclusive": _range,
    "scala.collection.immutable.Range$Exclusive": _range,
    "scala.collection.immutable.Vector": _vector,
}


def number_of(value: Value) -> int:
    """An Int or a Long, boxed or not.

    Raises
    ------
    InputError
        It is none.
    """
    inner = value.fields.get("value") if isinstance(value, JavaObject) else value
    if isinstance(inner, bool) or not isinstance(inner, int):
        raise InputError("a number expected", found=class_of(value))
    return inner


def text_of(value: Value) -> str:
    """A text, cut where it is long; what is none gives the name of its class in brackets."""
    shown = value if isinstance(value, str) else f"<{class_of(value)}>"
    # JSON can spell half a pair of surrogates, which no output takes.
    shown = shown[: LONGEST_TEXT + 1].encode("utf-8", "replace").decode()
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + "…"


class _Parts:
    """Spells a type, up to a number of parts."""

    def __init__(self) -> None:
        self.left = MOST_PARTS

    def java(self, value: Value, depth: int = 0) -> str:
        self.left -= 1
        if self.left < 0 or depth > 30 or not isinstance(value, JavaObject):
            return "…"
        name = class_of(value).rpartition(".")[2].rstrip("$").removesuffix("Type")
        fields = value.fields
        if name == "Array":
            return f"array<{self.java(fields.get('elementType'), depth + 1)}>"
        if name == "Map":
            return f"map<{self.java(fields.get('keyType'), depth + 1)},{self.java(fields.get('valueType'), depth + 1)}>"
        if name == "Struct":
            parts = [item.fields for item in items_of(fields.get("fields")) if isinstance(item, JavaObject)]
            inner = [f"{text_of(part.get('name'))}:{self.java(part.get('dataType'), depth + 1)}" for part in parts[:50]]
            return f"struct<{','.join(inner + ['…'] * (len(parts) > 50))}>"
        if name == "Decimal":
            return f"decimal({number_of(fields.get('precision'))},{number_of(fields.get('scale'))})"
        if name in ("Char", "Varchar"):
            return f"{name.lower()}({number_of(fields.get('length'))})"
        if name in _INTERVALS:
            return _interval(_INTERVALS[name], fields.get("startField"), fields.get("endField"))
        return _SQL_NAMES.get(name.lower(), name.lower())

    def json(self, value: Any, depth: int = 0) -> str:
        self.left -= 1
        if self.left < 0 or depth > 30:
            return "…"
        if isinstance(value, str):
            return _SQL_NAMES.get(value, text_of(value))
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "array":
            return f"array<{self.json(value.get('elementType'), depth + 1)}>"
        if kind == "map":
            return f"map<{self.json(value.get('keyType'), depth + 1)},{self.json(value.get('valueType'), depth + 1)}>"
        if kind == "struct" and isinstance(fields := value.get("fields"), list):
            parts = [part for part in fields if isinstance(part, dict)]
            inner = [f"{text_of(part.get('name'))}:{self.json(part.get('type'), depth + 1)}" for part in parts[:50]]
            return f"struct<{','.join(inner + ['…'] * (len(parts) > 50))}>"
        return "udt" if kind == "udt" else "…"


_INTERVALS = {"DayTimeInterval": ("day", "hour", "minute", "second"), "YearMonthInterval": ("year", "month")}


def _interval(units: tuple[str, ...], start: Value, end: Value) -> str:
    if not (isinstance(start, int) and isinstance(end, int)) or not 0 <= start <= end < len(units):
        return "interval"
    return f"interval {units[start]}" + (f" to {units[end]}" if end > start else "")


def java_type(value: Value) -> str:
    """A Spark DataType of a Java stream as SQL spells it; "…" stands for what is no type or too large."""
    return _Parts().java(value)


def json_type(value: Any) -> str:
    """A Spark DataType in Spark's JSON as SQL spells it; "…" stands for what is no type or too large.

    Examples
    --------
    >>> json_type("long"), json_type({"type": "array", "elementType": "decimal(12,2)", "containsNull": True})
    ('bigint', 'array<decimal(12,2)>')
    """
    return _Parts().json(value)
