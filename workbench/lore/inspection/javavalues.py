"""What a Java serialization stream holds, as plain Python values.

Primitives and strings are Python's own, null is None, a byte array is `bytes`; the rest is one of the classes here.
They are compared by identity and have no long text form: graphs of objects are cyclic and deep.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = (
    "bool | int | float | str | bytes | JavaObject | JavaArray | JavaEnum | JavaClass | Descriptor | None"
)

WRITE_METHOD, SERIALIZABLE, EXTERNALIZABLE, BLOCK_DATA, ENUM = 0x01, 0x02, 0x04, 0x08, 0x10


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a class descriptor declares: its type code (one of BCDFIJSZ, L, [) and its signature."""

    name: str
    code: str
    signature: str


@dataclass(eq=False, repr=False, slots=True)
class Descriptor:
    """A class as the stream describes it; a proxy class has no name but interfaces."""

    name: str = ""
    serial_version_uid: int = 0
    flags: int = 0
    fields: tuple[Field, ...] = ()
    interfaces: tuple[str, ...] = ()
    written: list[Value] = field(default_factory=list)
    parent: Descriptor | None = None
    # Those that put data into an object, topmost class first.
    layout: tuple[Descriptor, ...] = ()
    n_parents: int = 0
    complete: bool = False

    @property
    def lineage(self) -> tuple[str, ...]:
        """Names of the class and of its serializable parents, upwards."""
        names, at = [], self
        while at.parent is not None:
            names.append(at.name)
            at = at.parent
        return (*names, at.name)


@dataclass(eq=False, repr=False, slots=True)
class JavaObject:
    """An object: its fields by name (a class's own hide those of its parents), and what custom code wrote.

    `written` holds in their order the objects and the joined block data (`bytes`) of all its classes.
    """

    descriptor: Descriptor
    fields: dict[str, Value] = field(default_factory=dict)
    written: list[Value] = field(default_factory=list)

    @property
    def class_name(self) -> str:
        """Name of its class."""
        return self.descriptor.name


@dataclass(eq=False, repr=False, slots=True)
class JavaArray:
    """An array; that of bytes is `bytes`, that of chars a text, any other a list."""

    descriptor: Descriptor
    items: list[Value] | str = field(default_factory=list)

    @property
    def class_name(self) -> str:
        """Name of its class, as "[I"."""
        return self.descriptor.name


@dataclass(eq=False, repr=False, slots=True)
class JavaEnum:
    """A constant of an enum."""

    descriptor: Descriptor
    constant: str = ""

    @property
    def class_name(self) -> str:
        """Name of its class."""
        return self.descriptor.name


@dataclass(eq=False, repr=False, slots=True)
class JavaClass:
    """A class as a value."""

    descriptor: Descriptor

    @property
    def class_name(self) -> str:
        """Name of the class that it is."""
        return self.descriptor.name
