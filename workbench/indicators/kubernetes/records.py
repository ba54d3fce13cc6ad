"""What pods told in their logs: signed lines found in whatever else the log holds, put together to documents.

Logs are not trusted: lines may be cut, mixed with others, repeated, out of order, or made up by a script. What is not
signed with the session's key does not count, and what is not whole is not guessed at.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.indicators.kubernetes.pod import LINE_CHARACTERS

POD = "pod"
DONE = "done"
MOST_LOG_BYTES = 1 << 30
MOST_DOCUMENT_BYTES = 16 << 20
_MOST_PARTS = 1000
_CHUNK = 1 << 20
_MARK = b"@workbench "
_LINE = re.compile(
    rb"@workbench ((begin|part|end) (\d{1,6})\.(\d{1,9}|pod|done)\.([0-9a-f]{8}) (\d{1,4})/(\d{1,4}) "
    rb"([A-Za-z0-9+/=:-]{1,%d})) ([0-9a-f]{32})@" % LINE_CHARACTERS
)
_LONGEST = LINE_CHARACTERS + 200


@dataclass(frozen=True, order=True)
class Told:
    """What a document is of: a round, what of it (a run's position, `pod` or `done`), which attempt at the round."""

    round: int
    what: str
    attempt: str


@dataclass
class Records:
    """What the logs hold.

    `documents` are whole and signed; `begun` are the runs that a pod began; `torn` are documents of which parts are
    missing; `damaged` counts lines that are cut or not signed with the session's key.
    """

    documents: dict[Told, dict[str, Any]] = field(default_factory=dict)
    begun: set[Told] = field(default_factory=set)
    torn: set[Told] = field(default_factory=set)
    damaged: int = 0


@dataclass
class _Parts:
    count: int
    parts: dict[int, str] = field(default_factory=dict)
    end: str | None = None


def read(logs: Iterable[Iterable[bytes]], key: str) -> Records:
    """The documents in these logs, each given as blocks of bytes in their order; the logs in any order.

    Parameters
    ----------
    logs
        Blocks of each log.
    key
        The session's key.

    Raises
    ------
    InputError
        A log is larger than a log may be.
    """
    found, gathered = Records(), dict[Told, _Parts]()
    for blocks in logs:
        for line in _lines(blocks, found):
            _take(line, bytes.fromhex(key), found, gathered)
    for told, parts in gathered.items():
        document = _document(parts)
        if document is None:
            found.torn.add(told)
        else:
            found.documents[told] = document
    return found


def blocks_of(path: Path) -> Iterator[bytes]:
    """A log file in blocks.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                yield block
    except OSError as error:
        raise InputError("cannot read the log", where=path, found=error.strerror) from None


def _lines(blocks: Iterable[bytes], found: Records) -> Iterator[re.Match[bytes]]:
    """All that looks like a line of ours, wherever it stands; what only begins like one is counted as damaged."""
    held, total = b"", 0
    for block in blocks:
        total += len(block)
        if total > MOST_LOG_BYTES:
            raise InputError("a log too large to be one", allowed=f"up to {MOST_LOG_BYTES >> 20} MiB")
        held += block
        # Enough is kept that a line across two blocks is found whole.
        held = yield from _matched(held, max(0, len(held) - _LONGEST), found)
    yield from _matched(held, len(held), found)


def _matched(held: bytes, until: int, found: Records) -> Generator[re.Match[bytes], None, bytes]:
    """Matches that begin before `until`; the bytes that are to be looked at again with the next block are returned."""
    at = 0
    while (start := held.find(_MARK, at)) != -1 and start < until:
        line = _LINE.match(held, start)
        if line is None:
            found.damaged += 1
            at = start + 1
        else:
            yield line
            at = line.end()
    # A mark itself may be cut by the end of the block, hence `until` and not the end.
    return held[max(at, until) :]


def _take(line: re.Match[bytes], key: bytes, found: Records, gathered: dict[Told, _Parts]) -> None:
    body, kind, number, what, attempt, at, of, text, signature = line.groups()
    if not hmac.compare_digest(hmac.new(key, body, hashlib.sha256).hexdigest()[:32].encode(), signature):
        found.damaged += 1
        return
    told, place, count = Told(int(number), what.decode(), attempt.decode()), int(at), int(of)
    if kind == b"begin":
        found.begun.add(told)
        return
    parts = gathered.setdefault(told, _Parts(count))
    if count != parts.count or count > _MOST_PARTS:
        found.damaged += 1
    elif kind == b"end":
        parts.end = text.decode()
    else:
        parts.parts[place] = text.decode()


def _document(parts: _Parts) -> dict[str, Any] | None:
    """The document of these parts; null when one is missing, or they are not what the runner had."""
    if parts.end is None or sorted(parts.parts) != list(range(parts.count)):
        return None
    length, _, digest = parts.end.partition(":")
    try:
        packed = base64.b64decode("".join(parts.parts[at] for at in range(parts.count)), validate=True)
        if str(len(packed)) != length or hashlib.sha256(packed).hexdigest() != digest:
            return None
        unpacked = zlib.decompressobj().decompress(packed, MOST_DOCUMENT_BYTES)
        found = json.loads(unpacked)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
