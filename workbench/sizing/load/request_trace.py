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
from typing import Any

from workbench.core.errors import InputError
from workbench.sizing.load.request_plan import MAX_TRACE_BYTES, read_arrival_trace

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
MAX_TOKENS = 1_000_000
MAX_BLOCKS = 10_000


@dataclass(frozen=True)
class RequestTrace:
    """Requests of a trace in the order they arrived.

    `input_tokens`, `output_tokens`: Lengths of prompts and answers; empty where the trace has times only.
    `block_ids`: Ids of the prompts' blocks of 512 tokens: equal beginnings have equal ids. Empty without them.
    """

    times_s: list[float]
    input_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    block_ids: list[list[int]] = field(default_factory=list)
    kind: str = "times"

    @property
    def rate_per_s(self) -> float:
        """Mean rate of the trace as it was recorded."""
        return (len(self.times_s) - 1) / (self.times_s[-1] - self.times_s[0])

    def describe(self) -> dict[str, Any]:
        """Facts for the sweep's record."""
        facts: dict[str, Any] = {"trace": self.kind, "requests": len(self.times_s), "rate_per_s": self.rate_per_s}
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
    `output_length`, and `hash_ids` of blocks of 512 tokens). More columns are allowed and not read.
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
    times = [row[0] for row in requests]
    for earlier, later in itertools.pairwise(times):
        if later < earlier:
            raise InputError("times of the trace decrease", where=path, found=f"{later} s after {earlier} s")
    if len(times) < 2 or times[0] == times[-1]:
        raise InputError("trace needs two different times", where=path, found=f"{len(times)} requests")
    has_blocks = any(row[3] for row in requests)
    return RequestTrace(
        [time - times[0] for time in times],
        [row[1] for row in requests],
        [row[2] for row in requests],
        [row[3] for row in requests] if has_blocks else [],
        "mooncake" if first.startswith("{") else "azure",
    )


_Row = tuple[float, int, int, list[int]]


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
                yield _parse_timestamp(row[AZURE_COLUMNS[0]], where), counts[0], counts[1], []
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
            if not isinstance(row, dict) or any(name not in row for name in MOONCAKE_FIELDS):
                raise InputError("not a request of a trace", where=where, allowed=list(MOONCAKE_FIELDS))
            time_ms = row["timestamp"]
            if isinstance(time_ms, bool) or not isinstance(time_ms, int | float) or not 0 <= time_ms < 1e15:
                raise InputError("not a time in milliseconds", where=where, found=str(time_ms)[:60])
            counts = [_parse_tokens(row[name], name, where) for name in MOONCAKE_FIELDS[1:]]
            yield time_ms / 1000, counts[0], counts[1], _parse_blocks(row.get("hash_ids"), where)


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
