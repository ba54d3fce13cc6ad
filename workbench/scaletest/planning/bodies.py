"""Objects encoded once, with gaps for what differs between workloads: a hundred thousand bodies in seconds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.scaletest.planned import Request

_GAP = re.compile(rb'"@@workbench#([a-z_]+)@@"|@@workbench:([a-z_]+)@@')
_HASH = "hash"


def gap(name: str) -> str:
    """What stands in a text of an object where a workload's own value comes in."""
    return f"@@workbench:{name}@@"


def number_gap(name: str) -> str:
    """The same for a value that is a number: as a whole, without its quotes."""
    return f"@@workbench#{name}@@"


@dataclass(frozen=True)
class Body:
    """An encoded object: texts and the names of the gaps between them, in turns."""

    path: str
    suffix: str
    parts: tuple[bytes, ...]

    def filled(self, values: Mapping[str, bytes]) -> bytes:
        """The bytes of one workload's object."""
        parts: list[bytes] = list(self.parts)
        for at in range(1, len(parts), 2):
            parts[at] = values[parts[at].decode()]
        return b"".join(parts)


def compiled(path: str, suffix: str, made: Mapping[str, Any]) -> Body:
    """Encode an object that holds gaps.

    Examples
    --------
    >>> body = compiled("/x", "", {"metadata": {"name": gap("name")}, "spec": {"n": number_gap("index")}})
    >>> body.filled({"name": b"a-1", "index": b"1"})
    b'{"metadata":{"name":"a-1"},"spec":{"n":1}}'
    """
    import orjson

    parts = _GAP.split(orjson.dumps(made))
    # Two groups a gap: the one that did not match is null.
    texts, names = parts[::3], [first or second for first, second in zip(parts[1::3], parts[2::3], strict=True)]
    turns = [texts[0]]
    for name, text in zip(names, texts[1:], strict=True):
        turns += [name, text]
    return Body(path, suffix, tuple(turns))


def digest(bodies: tuple[Body, ...], values: Mapping[str, bytes]) -> tuple[str, int]:
    """Hash of what is sent, and its size in bytes.

    The hash itself is in the objects, as an annotation: for the hash that place is empty.
    """
    found, size = hashlib.sha256(), 0
    empty = {**values, _HASH: b""}
    for body in bodies:
        filled = body.filled(empty)
        found.update(filled)
        size += len(filled) + 64 * body.parts[1::2].count(_HASH.encode())
    return found.hexdigest(), size


def requests(bodies: tuple[Body, ...], values: Mapping[str, bytes], name: str, spec_sha256: str) -> tuple[Request, ...]:
    """The requests of one workload, in order."""
    full = {**values, _HASH: spec_sha256.encode()}
    return tuple(Request(body.path, name + body.suffix, body.filled(full)) for body in bodies)
