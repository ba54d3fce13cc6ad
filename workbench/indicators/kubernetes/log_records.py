"""Reader of the signed records in pod logs."""

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

from workbench.core.errors import InputError, refuse_os_errors
from workbench.indicators.kubernetes.pod import LINE_CHARACTERS
from workbench.kubernetes.client import MAX_LOG_BYTES

POD = "pod"
DONE = "done"
MAX_DOCUMENT_BYTES = 16 << 20
_MAX_PARTS = 1000
_CHUNK = 1 << 20
_MARK = b"@workbench "
_LINE = re.compile(
    rb"@workbench ((begin|part|end) (\d{1,6})\.(\d{1,9}|pod|done)\.([0-9a-f]{8}) (\d{1,4})/(\d{1,4}) "
    rb"([A-Za-z0-9+/=:-]{1,%d})) ([0-9a-f]{32})@" % LINE_CHARACTERS
)
_LONGEST = LINE_CHARACTERS + 200


@dataclass(frozen=True, order=True)
class RecordKey:
    """Identity of a document: round, subject (position of a run, `pod` or `done`), and attempt at the round."""

    round: int
    what: str
    attempt: str


@dataclass
class Records:
    """Records found in the logs.

    `documents` are complete and signed; `begun` are started runs; `torn` are documents with missing parts; `damaged`
    counts lines that are cut or not signed with the session's key.
    """

    documents: dict[RecordKey, dict[str, Any]] = field(default_factory=dict)
    begun: set[RecordKey] = field(default_factory=set)
    torn: set[RecordKey] = field(default_factory=set)
    damaged: int = 0


@dataclass
class _Parts:
    count: int
    parts: dict[int, str] = field(default_factory=dict)
    end: str | None = None


def read_records(logs: Iterable[Iterable[bytes]], key: str) -> Records:
    """Read the documents of logs, each an iterable of byte blocks; logs may be in any order."""
    records, gathered = Records(), dict[RecordKey, _Parts]()
    for blocks in logs:
        for line in _find_lines(blocks, records):
            _take_line(line, bytes.fromhex(key), records, gathered)
    for record_key, parts in gathered.items():
        document = _assemble_document(parts)
        if document is None:
            records.torn.add(record_key)
        else:
            records.documents[record_key] = document
    return records


def read_blocks(path: Path) -> Iterator[bytes]:
    """Read a log file in blocks."""
    with refuse_os_errors("cannot read the log", path), path.open("rb") as file:
        while block := file.read(_CHUNK):
            yield block


def _find_lines(blocks: Iterable[bytes], records: Records) -> Iterator[re.Match[bytes]]:
    """Find record lines at any position; incomplete ones are counted as damaged."""
    buffer, total = b"", 0
    for block in blocks:
        total += len(block)
        if total > MAX_LOG_BYTES:
            raise InputError("log is too large", allowed=f"up to {MAX_LOG_BYTES >> 20} MiB")
        buffer += block
        # Keeps enough bytes to find a line across two blocks.
        buffer = yield from _match_lines(buffer, max(0, len(buffer) - _LONGEST), records)
    yield from _match_lines(buffer, len(buffer), records)


def _match_lines(buffer: bytes, until: int, records: Records) -> Generator[re.Match[bytes], None, bytes]:
    """Matches that start before `until`; returns the bytes to search again with the next block."""
    at = 0
    while (start := buffer.find(_MARK, at)) != -1 and start < until:
        line = _LINE.match(buffer, start)
        if line is None:
            records.damaged += 1
            at = start + 1
        else:
            yield line
            at = line.end()
    # The mark itself may be split at the end of the block, hence `until`.
    return buffer[max(at, until) :]


def _take_line(line: re.Match[bytes], key: bytes, records: Records, gathered: dict[RecordKey, _Parts]) -> None:
    body, kind, number, name, attempt, at, of, text, signature = line.groups()
    if not hmac.compare_digest(hmac.new(key, body, hashlib.sha256).hexdigest()[:32].encode(), signature):
        records.damaged += 1
        return
    record_key, place, count = RecordKey(int(number), name.decode(), attempt.decode()), int(at), int(of)
    if kind == b"begin":
        records.begun.add(record_key)
        return
    parts = gathered.setdefault(record_key, _Parts(count))
    if count != parts.count or count > _MAX_PARTS:
        records.damaged += 1
    elif kind == b"end":
        parts.end = text.decode()
    else:
        parts.parts[place] = text.decode()


def _assemble_document(parts: _Parts) -> dict[str, Any] | None:
    """Assemble a document from its parts; null if a part is missing or the digest differs."""
    if parts.end is None or sorted(parts.parts) != list(range(parts.count)):
        return None
    length, _, digest = parts.end.partition(":")
    try:
        packed = base64.b64decode("".join(parts.parts[at] for at in range(parts.count)), validate=True)
        if str(len(packed)) != length or hashlib.sha256(packed).hexdigest() != digest:
            return None
        unpacked = zlib.decompressobj().decompress(packed, MAX_DOCUMENT_BYTES)
        document = json.loads(unpacked)
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
