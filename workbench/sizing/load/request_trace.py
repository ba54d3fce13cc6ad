"""Reads recorded traffic: arrival times, and the lengths and shared prefixes of prompts where a trace has them."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from workbench.core.errors import InputError
from workbench.sizing.load.request_plan import MAX_TRACE_BYTES, read_arrival_trace

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
MAX_TOKENS = 1_000_000
MAX_BLOCKS = 10_000


@dataclass(frozen=True)
class RequestTrace:
    """Requests of a trace in the order they arrived.

    `times_s`: Arrivals of the requests, or of the sessions where the trace has them.
    `input_tokens`, `output_tokens`: Lengths of prompts and answers; empty where the trace has times only.
    `block_ids`: Ids of the prompts' blocks of 512 tokens: equal beginnings have equal ids. Empty without them.
    `sessions`: Places of the requests of each session, turn by turn. `pauses_s`: Pause of each request after the answer
    before it. Both are empty without sessions.
    """

    times_s: list[float]
    input_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    block_ids: list[list[int]] = field(default_factory=list)
    kind: str = "times"
    sessions: list[list[int]] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)

    @property
    def n_requests(self) -> int:
        """Number of requests, those of all turns."""
        return len(self.pauses_s) or len(self.times_s)

    @property
    def rate_per_s(self) -> float:
        """Mean rate of the requests as they were recorded."""
        arrivals_per_s = (len(self.times_s) - 1) / (self.times_s[-1] - self.times_s[0])
        return arrivals_per_s * self.n_requests / len(self.times_s)

    def describe(self) -> dict[str, Any]:
        """Facts for the sweep's record."""
        facts: dict[str, Any] = {"trace": self.kind, "requests": self.n_requests, "rate_per_s": self.rate_per_s}
        if self.sessions:
            facts["sessions"] = len(self.sessions)
        if self.input_tokens:
            facts |= {
                "mean_input_tokens": sum(self.input_tokens) / len(self.input_tokens),
                "mean_output_tokens": sum(self.output_tokens) / len(self.output_tokens),
                "shared_prefixes": bool(self.block_ids),
            }
        return facts


def read_request_trace(path: str | Path) -> RequestTrace:
    """Read a trace in one of three formats, told by its first line.

    `path`: Times in seconds, one a line; the CSV of the public Azure LLM inference traces (`TIMESTAMP`,
    `ContextTokens`, `GeneratedTokens`); or the JSON lines of the Mooncake traces (`timestamp` in ms, `input_length`,
    `output_length`, and `hash_ids` of blocks of 512 tokens). More columns are allowed and not read. Lines with a
    `session_id` are the turns of a session: the first has its `timestamp`, the later ones have a `delay` in ms after
    the answer before them, and `input_length` is what a turn adds.
    """
    path = Path(path)
    first = _read_first_line(path)
    if first.startswith("{"):
        rows = _iterate_mooncake_rows(path)
    elif AZURE_COLUMNS[0] in first:
        rows = _iterate_azure_rows(path)
    else:
        return RequestTrace(read_arrival_trace(path))
    requests = list(rows)
    sessions = _group_sessions(requests, path)
    times = [row.time_s for row in requests if row.time_s is not None]
    for earlier, later in itertools.pairwise(times):
        if later < earlier:
            raise InputError("times of the trace decrease", where=path, found=f"{later} s after {earlier} s")
    if len(times) < 2 or times[0] == times[-1]:
        raise InputError("trace needs two different times", where=path, found=f"{len(times)} arrivals")
    has_blocks = any(row.block_ids for row in requests)
    return RequestTrace(
        [time - times[0] for time in times],
        [row.input_tokens for row in requests],
        [row.output_tokens for row in requests],
        [row.block_ids for row in requests] if has_blocks else [],
        "mooncake" if first.startswith("{") else "azure",
        sessions,
        [row.pause_s for row in requests] if sessions else [],
    )


class _Row(NamedTuple):
    """Request of a trace; a later turn of a session has a pause after the answer before it, and no time."""

    time_s: float | None
    input_tokens: int
    output_tokens: int
    block_ids: list[int]
    session: str | None = None
    pause_s: float = 0.0


def _group_sessions(requests: list[_Row], path: Path) -> list[list[int]]:
    """Places of the requests of each session, in the order the sessions begin; empty without sessions."""
    if all(row.session is None for row in requests):
        return []
    sessions: dict[str, list[int]] = {}
    for place, row in enumerate(requests):
        turns = sessions.setdefault(f"request {place}" if row.session is None else row.session, [])
        if turns and row.time_s is not None:
            where = f"{path}, request {place + 1}"
            do = "give it a delay (ms after the answer before it) instead"
            raise InputError("a later turn of a session has a timestamp", where=where, found=row.session, do=do)
        if not turns and row.time_s is None:
            where = f"{path}, request {place + 1}"
            raise InputError("the first turn of a session has no timestamp", where=where, found=row.session)
        turns.append(place)
    return list(sessions.values())


def _read_first_line(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise InputError("trace file is too large", where=path, allowed=f"up to {MAX_TRACE_BYTES >> 20} MiB")
        with path.open(encoding="utf-8-sig") as file:
            return next((line.strip() for line in file if line.strip()), "")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the trace file", where=path, found=str(error)[:200]) from error


def _iterate_azure_rows(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in AZURE_COLUMNS if name not in (reader.fieldnames or [])]
        if missing:
            raise InputError("column missing in the trace", where=path, found=reader.fieldnames, allowed=missing)
        try:
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                counts = [_parse_tokens(row[name], name, where) for name in AZURE_COLUMNS[1:]]
                yield _Row(_parse_timestamp(row[AZURE_COLUMNS[0]], where), counts[0], counts[1], [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError("not a CSV trace", where=path, found=str(error)[:120]) from error


def _parse_timestamp(text: str | None, where: str) -> float:
    try:
        moment = datetime.fromisoformat((text or "").strip())
    except ValueError:
        raise InputError(
            "not a time", where=where, found=(text or "")[:60], allowed="like 2023-11-16 18:15:46.680590"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _iterate_mooncake_rows(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError("not JSON", where=where, found=str(error)[:120]) from error
            session = row.get("session_id") if isinstance(row, dict) else None
            time_field = "timestamp" if session is None or "delay" not in row else "delay"
            fields = (time_field, *MOONCAKE_FIELDS[1:])
            if not isinstance(row, dict) or any(name not in row for name in fields):
                raise InputError("not a request of a trace", where=where, allowed=list(fields))
            time_s = _parse_milliseconds(row[time_field], where)
            counts = [_parse_tokens(row[name], name, where) for name in MOONCAKE_FIELDS[1:]]
            blocks = _parse_blocks(row.get("hash_ids"), where)
            if session is None or time_field == "timestamp":
                yield _Row(time_s, counts[0], counts[1], blocks, None if session is None else str(session)[:200])
            else:
                yield _Row(None, counts[0], counts[1], blocks, str(session)[:200], time_s)


def _parse_milliseconds(value: Any, where: str) -> float:
    """Parse a time or a pause in milliseconds, as seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InputError("not a time in milliseconds", where=where, found=str(value)[:60])
    return value / 1000


def _parse_tokens(value: Any, name: str, where: str) -> int:
    """Parse a whole number of tokens from a row of a trace; at least 1."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= MAX_TOKENS or number != int(number):
        allowed = f"a whole number up to {MAX_TOKENS}"
        raise InputError("not a number of tokens", where=f"{where}, {name}", found=str(value)[:60], allowed=allowed)
    return max(1, int(number))


def _parse_blocks(value: Any, where: str) -> list[int]:
    """Parse the hashes of a prompt's token blocks in a row of a trace; empty where it has none.

    >>> _parse_blocks([3, 4], "line 1"), _parse_blocks(None, "line 1")
    ([3, 4], [])
    """
    if value is None:
        return []
    is_list = isinstance(value, list) and len(value) <= MAX_BLOCKS
    if not is_list or not all(
        isinstance(block, int) and not isinstance(block, bool) and 0 <= block < 2**62 for block in value
    ):
        raise InputError("hash_ids are not a list of whole numbers", where=where, found=str(value)[:60])
    return list(value)
