"""Replies to programs that ask: plain JSON data, bounded as a whole, that say what is left out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from workbench.core.formats import cut_text

MAX_REPLY_BYTES = 100_000
MAX_TEXT_CHARS = 2_000
_MAX_CUTS = 200
Document = dict[str, Any]


def to_document(content: Mapping[str, Any]) -> Document:
    """A mapping as JSON data; see `to_plain`."""
    return {str(name): to_plain(entry) for name, entry in content.items()}


def to_plain(value: Any) -> Any:
    """Data that JSON can hold: null for NaN and infinite numbers, text for times, long texts cut."""
    if isinstance(value, Mapping):
        return to_document(value)
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return cut_text(value, MAX_TEXT_CHARS) if isinstance(value, str) else value


def measure_reply(document: Any) -> int:
    """Bytes of a reply on its way to a client: once as indented text in a string, and once as data."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return sum(len(json.dumps(part, ensure_ascii=False).encode("utf-8", "surrogatepass")) for part in (text, document))


def take_entries(entries: Iterable[Mapping[str, Any]], max_entries: int) -> list[Document]:
    """The first entries as JSON data, at most as many as a reply can hold."""
    taken: list[Document] = []
    size_bytes = 0
    for entry in entries:
        if len(taken) >= max_entries or size_bytes > MAX_REPLY_BYTES:
            break
        taken.append(to_document(entry))
        size_bytes += len(json.dumps(taken[-1]))
    return taken


def bound_reply(
    document: Mapping[str, Any], *, rest: str, paged: str = "", offset: int = 0, total: int = 0
) -> Document:
    """A reply of at most 100 kB; `left_out` says what was left out of it, and how to ask for it.

    `rest`: How to get what is left out. `paged`: The list that goes on at an offset, of which there are `total`.
    """
    reply = to_document(document)
    counts: dict[str, str] = {}
    for _ in range(_MAX_CUTS):
        if (size_bytes := measure_reply(reply)) <= MAX_REPLY_BYTES - 2_000:
            break
        if paged and len(reply[paged]) > 1:
            share = _find_share(size_bytes, len(json.dumps(reply[paged])) / len(json.dumps(reply)))
            reply[paged] = reply[paged][: max(1, int(len(reply[paged]) * share))]
        else:
            _cut_largest(reply, size_bytes, counts)
    if paged:
        counts.pop(paged, None)
    lines = [f"{name}: {text}; {rest}" for name, text in counts.items()]
    if paged and (end := offset + len(reply[paged])) < total:
        reply["next_offset"] = end
        lines.insert(0, f"{paged}: {offset} to {end} of {total} given; go on with offset={end}, or choose fewer")
    return reply | ({"left_out": lines[:20]} if lines else {})


def _cut_largest(reply: Document, size_bytes: int, counts: dict[str, str]) -> None:
    """Shorten the largest list, mapping or text of a reply, so that the reply has about its size."""
    parent: Any = {"": reply}
    key: Any = ""
    path: list[str] = []
    while True:
        node = parent[key]
        sizes = {name: len(json.dumps(child)) for name, child in _list_children(node)}
        whole = sum(sizes.values())
        name = max(sizes, key=lambda one: sizes[one], default=None)
        if name is None or (path and len(sizes) > 1 and sizes[name] < whole / 2):
            break
        parent, key = node, name
        path.append(str(name))
    share = _find_share(size_bytes, 1.0)
    where = ".".join(part for part in path if not part.isdigit()) or "reply"
    node = parent[key]
    n_kept = int(len(node) * share) if hasattr(node, "__len__") else 0
    if isinstance(node, str):
        parent[key] = cut_text(node, max(1, n_kept))
        counts[where] = "texts are cut"
    else:
        total = counts.get(where, "").split(" of ")[-1].split(" ")[0]
        counts[where] = f"{n_kept} of {total or len(node)} given"
        parent[key] = node[:n_kept] if isinstance(node, list) else dict(list(node.items())[:n_kept])


def _find_share(size_bytes: int, part: float) -> float:
    """What share of a part of a reply leaves about the size that it may have."""
    return min(0.9, max(0.1, 1 - (size_bytes - 0.9 * MAX_REPLY_BYTES) / (part * size_bytes)))


def _list_children(node: Any) -> list[tuple[Any, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, list) else []
