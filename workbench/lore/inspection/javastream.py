"""Java serialization read without a JVM: which classes a stream names, and what it holds.

An own reader and not a library, because it is a check before anything is loaded: it must see every class that a JVM
would resolve, in bounded time and memory, whatever the bytes.
"""

from __future__ import annotations

from workbench.lore.inspection import classnames
from workbench.lore.inspection.grammar import MAGIC, Reader
from workbench.lore.inspection.javavalues import Value

__all__ = ["MAGIC", "class_names", "read"]


def class_names(data: bytes, *, where: object = "the stream") -> set[str]:
    """Which classes would a JVM resolve if it read this stream, with whatever classes it has?

    Parameters
    ----------
    data
        A whole stream, as the bytes of plan.meta.
    where
        What the bytes are, for messages.

    Returns
    -------
    set of str
        Binary names: classes and their serializable parents, enums, classes as values, interfaces of proxies, element
        classes of arrays; also those of streams nested in byte arrays or block data. Primitives are left out.

    Raises
    ------
    InputError
        The bytes are no well-formed stream of protocol version 2, or go beyond the limits of this module.

    Notes
    -----
    Those that the grammar gives, and those that stand at any other offset: see `classnames.scan`. Does not show classes
    named in texts, which code of an object may load (as a lambda's), nor streams that are compressed or encoded: allow
    few classes and none that do such things.
    """
    reader = Reader(data, where)
    reader.read_all()
    names = classnames.scan(data)
    for descriptor in reader.descriptors:
        given = [*descriptor.interfaces, *([descriptor.name] if descriptor.name else [])]
        names |= {element for name in given if (element := classnames.element_class(name)) is not None}
    # A nested stream may be cut by the heads of its blocks, anywhere.
    for block in reader.blocks:
        names |= classnames.scan(block)
    return names


def read(data: bytes, *, where: object = "the stream") -> list[Value]:
    """What does the stream hold, object by object? Nothing is loaded or run.

    Raises
    ------
    InputError
        The bytes are no well-formed stream of protocol version 2, or go beyond the limits of this module.

    Examples
    --------
    >>> read(MAGIC + b"\\x74\\x00\\x04lore")
    ['lore']
    """
    return Reader(data, where).read_all()
