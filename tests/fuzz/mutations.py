"""Strategies that damage real inputs: bytes cut, spliced and flipped; JSON and texts changed in their structure."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

HOSTILE_TEXTS = (
    "",
    " ",
    "\x00",
    "\ud800",
    "\u202eevil",
    "\x1b]0;title\x07\x1b[31m",
    "NaN",
    "-1",
    "1e999",
    "9" * 400,
    "٣",
    "../../../../tmp/escaped",
    "/etc/passwd",
    "C:\\windows\\system32",
    "file:///etc/passwd",
    "<script>window.__pwned=1</script>",
    "=cmd|' /C calc'!A0",
    "${HOME}",
    "{{7*7}}",
    "%s%n",
    "a" * 5_000,
    "2026-02-30T25:61:61Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
)
HOSTILE_NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    0.5,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
)


class Sample(bytes):
    """Drawn bytes that a failure shows shortened: hypothesis would print all of them."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes, {bytes(self[:120])!r}…>" if len(self) > 120 else bytes.__repr__(self)


hostile_values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, [], {}, [[]], {"": None}, [None], [1, "a", None]]),
    st.sampled_from(HOSTILE_NUMBERS),
    st.sampled_from(HOSTILE_TEXTS),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
).map(copy.deepcopy)  # a list that was put in may be changed by the next change


@st.composite
def damaged(draw: st.DrawFn, samples: Sequence[bytes], most: int = 4) -> Sample:
    """One of the samples with up to `most` wounds: flips, cuts, splices, zeros, repeats; or noise of its own."""
    data = bytearray(draw(st.sampled_from(list(samples))))
    for _ in range(draw(st.integers(0, most))):
        _wound(draw, data, samples)
    return Sample(data)


def _wound(draw: st.DrawFn, data: bytearray, samples: Sequence[bytes]) -> None:
    kind = draw(st.sampled_from(["flip", "flip", "set", "cut", "drop", "insert", "splice", "repeat", "zero", "words"]))
    at = draw(st.integers(0, max(0, len(data))))
    length = draw(st.sampled_from([1, 2, 4, 8, 64, 1024]))
    if kind == "flip" and at < len(data):
        data[at] ^= 1 << draw(st.integers(0, 7))
    elif kind == "set" and at < len(data):
        data[at] = draw(st.sampled_from([0, 1, 0x22, 0x7F, 0x80, 0xFF]))
    elif kind == "cut":
        del data[at:]
    elif kind == "drop":
        del data[at : at + length]
    elif kind == "insert":
        data[at:at] = draw(st.binary(max_size=24))
    elif kind == "splice":
        other = draw(st.sampled_from(list(samples)))
        begin = draw(st.integers(0, max(0, len(other))))
        data[at:] = other[begin:]
    elif kind == "repeat":
        data[at:at] = data[at : at + length] * draw(st.integers(1, 20))
    elif kind == "zero":
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == "words":
        # Lengths and counts of binary formats.
        data[at : at + 4] = draw(st.sampled_from([b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff" * 4, b"\0" * 4]))


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON document, the document itself not among them."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        one = waiting.pop()
        items: Iterator[tuple[Any, Any]]
        if isinstance(one, dict):
            items = iter(one.items())
        elif isinstance(one, list):
            items = enumerate(one)
        else:
            continue
        for key, value in items:
            found.append((one, key))
            waiting.append(value)
    return found


@st.composite
def restructured(draw: st.DrawFn, documents: Sequence[Any], most: int = 3) -> Any:
    """One of the documents with some nodes replaced, removed, renamed, doubled or swapped."""
    document = copy.deepcopy(draw(st.sampled_from(list(documents))))
    for _ in range(draw(st.integers(0, most))):
        where = places(document)
        if not where:
            return draw(hostile_values)
        holder, key = where[draw(st.integers(0, len(where) - 1))]
        _change(draw, where, holder, key)
    return document


def _change(draw: st.DrawFn, where: list[tuple[Any, Any]], holder: Any, key: Any) -> None:
    kind = draw(st.sampled_from(["value", "value", "value", "remove", "rename", "double", "swap", "wrap", "more"]))
    if kind == "value":
        holder[key] = draw(hostile_values)
    elif kind == "remove":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[draw(st.sampled_from(HOSTILE_TEXTS))] = holder.pop(key)
    elif kind == "double" and isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key])] * draw(st.integers(1, 3))
    elif kind == "swap":
        other, its = where[draw(st.integers(0, len(where) - 1))]
        if (isinstance(other, dict) and its in other) or (isinstance(other, list) and its < len(other)):
            holder[key] = copy.deepcopy(other[its])
    elif kind == "wrap":
        holder[key] = draw(st.sampled_from([[holder[key]], {"a": holder[key]}]))
    elif kind == "more" and isinstance(holder[key], dict):
        holder[key][draw(st.sampled_from(HOSTILE_TEXTS))] = draw(hostile_values)


def json_text(document: Any) -> str:
    """The document as JSON text; infinities and NaN as other people's writers write them, big numbers in digits."""
    return json.dumps(document, separators=(",", ":"))


def as_lines(documents: Sequence[Any]) -> bytes:
    return b"".join(json_text(one).encode() + b"\n" for one in documents)


@st.composite
def json_documents(draw: st.DrawFn, documents: Sequence[Any], most: int = 3) -> Sample:
    """A document changed in its structure, in its bytes, or nested until recursion ends."""
    kind = draw(st.sampled_from(["structure", "structure", "structure", "structure", "bytes", "deep", "digits"]))
    if kind == "structure":
        return Sample(json_text(draw(restructured(documents, most))).encode())
    if kind == "bytes":
        return draw(damaged([json_text(one).encode() for one in documents]))
    if kind == "digits":
        text = json_text(draw(restructured(documents, 1))).encode()
        return Sample(text.replace(b":0", b":" + b"9" * 5_000, 1))
    depth = draw(st.sampled_from([100, 1_000, 100_000]))
    opened, closed = draw(st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))
    inner = json_text(draw(st.sampled_from(list(documents)))).encode()
    return Sample(opened * depth + inner + closed * depth)


@st.composite
def json_lines(draw: st.DrawFn, documents: Sequence[Any], most: int = 4) -> Sample:
    """Lines of JSON: some changed, dropped, doubled, moved, cut; between them what is none."""
    lines = [json_text(one).encode() for one in documents]
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        kind = draw(st.sampled_from(["change", "change", "change", "drop", "double", "move", "foreign", "bytes"]))
        if not lines:
            break
        if kind == "change":
            lines[at] = draw(json_documents([documents[draw(st.integers(0, len(documents) - 1))]]))
        elif kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif kind == "foreign":
            lines.insert(at, draw(st.sampled_from([b"", b"\xff\xfe", b"null", b"[]", b"0", b'""', b"\x00" * 40, b"{"])))
        else:
            lines[at] = draw(damaged([lines[at]]))
    text = b"\n".join(lines) + draw(st.sampled_from([b"\n", b"", b"\r\n"]))
    return Sample(text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text)
