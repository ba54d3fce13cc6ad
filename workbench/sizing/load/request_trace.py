"""Reads recorded traffic: arrival times, and the lengths and shared prefixes of prompts where a trace has them."""

from __future__ import annotations

import csv
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from workbench.core.errors import InputError
from workbench.sizing.load.request_plan import MAX_TRACE_BYTES, infer_block_tokens, list_recorded_times

T = TypeVar("T")
TimeUnit = Literal["s", "ms"]
TIME_NAMES = ("timestamp", "arrivaltime", "arrivedat")
INPUT_NAMES = ("contexttokens", "requesttokens", "inputtokens", "prompttokens", "inputlength", "promptlength")
OUTPUT_NAMES = ("generatedtokens", "responsetokens", "outputtokens", "completiontokens", "outputlength")
"""Columns of a CSV trace, in small letters without blanks and underscores: those of Azure, of BurstGPT, and others."""
FAILED_OUTPUT_NAME = "responsetokens"
"""BurstGPT: an answer of 0 tokens is a failed request."""
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
BAILIAN_FIELDS = ("chat_id", "parent_chat_id")
"""Fields of the Bailian traces, whose times are in seconds."""
MAX_TOKENS = 1_000_000
MAX_BLOCKS = 10_000
MAX_RATE_IN_MS = 100.0
"""Requests a second above which times are hardly milliseconds: rather seconds, 1000 times as slow. Chosen."""
MIN_TIMES_FOR_UNIT = 10
"""Fewest times whose rate tells their unit; with fewer they are as Mooncake's format states them. Chosen."""
MIN_RATE_IN_S = 0.01
"""Requests a second below which times are hardly seconds. Chosen."""


@dataclass(frozen=True)
class TraceReplay:
    """What is read of a trace, and how.

    `from_s`, `for_s`: Begin of the window that is replayed, in seconds after the first arrival, and its length; null
    for all that follows.
    `time_unit`, `block_tokens`: Unit of its times and tokens of a prompt's block; null where the file tells them.
    """

    from_s: float = 0.0
    for_s: float | None = None
    time_unit: TimeUnit | None = None
    block_tokens: int | None = None


@dataclass(frozen=True)
class RequestTrace:
    """Requests of a trace in the order they arrived.

    `times_s`: Arrivals of the requests, or of the sessions where the trace has them.
    `input_tokens`, `output_tokens`: Lengths of prompts and answers; empty where the trace has none.
    `block_ids`: Ids of the prompts' blocks: equal beginnings have equal ids. Empty without them.
    `sessions`: Places of the requests of each session, turn by turn. `pauses_s`: Pause of each request after the answer
    before it. Both are empty without sessions.
    `block_tokens`: Tokens of a block; 0 without blocks. `notes`: What was read in another way than it was recorded.
    """

    times_s: list[float]
    input_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    block_ids: list[list[int]] = field(default_factory=list)
    kind: str = "times"
    sessions: list[list[int]] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    block_tokens: int = 0
    notes: list[str] = field(default_factory=list)

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
                "shared_prefixes": bool(self.block_ids),
            }
        if self.output_tokens:
            facts["mean_output_tokens"] = sum(self.output_tokens) / len(self.output_tokens)
        if self.block_ids:
            facts["block_tokens"] = self.block_tokens
        if self.notes:
            facts["notes"] = self.notes
        return facts


def read_request_trace(path: str | Path, replay: TraceReplay | None = None) -> RequestTrace:
    """Read a trace, or a window of it, in one of five formats, told by its first line.

    `path`: Times in seconds, one a line; the CSV of the Azure LLM inference traces (`TIMESTAMP`, `ContextTokens`,
    `GeneratedTokens`, in either spelling) or of BurstGPT (`Timestamp` in seconds, `Request tokens`, `Response tokens`);
    or the JSON lines of Mooncake (`timestamp` in ms, `input_length`, `output_length`, and `hash_ids` of blocks of 512
    tokens) or of Bailian (`timestamp` in s, blocks of 16). More columns are allowed and not read. Lines with a
    `session_id` are the turns of a session: the first has its `timestamp`, the later ones have a `delay` in ms after
    the answer before them, and `input_length` is what a turn adds. `replay`: By default all of it is read.

    Raises
    ------
    InputError
        It is no trace, its window is empty, or neither the file nor `replay` tells its unit of time or its blocks.
    """
    path, replay = Path(path), replay or TraceReplay()
    try:
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise InputError("trace file is too large", where=path, allowed=f"up to {MAX_TRACE_BYTES >> 20} MiB")
        with path.open(encoding="utf-8-sig") as file:
            first = next((line.strip() for line in file if line.strip()), "")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the trace file", where=path, found=str(error)[:200]) from error
    if first.startswith("{"):
        kind, rows = "mooncake", list(_iterate_json_rows(path))
        is_bailian = any(row.is_bailian for row in rows)
        kind = "bailian" if is_bailian else kind
        unit = replay.time_unit or _infer_time_unit(rows, path)
    elif "," in first and not first.startswith("#"):
        kind, rows = _read_csv_rows(path)
        unit = replay.time_unit or _expect_seconds(rows, path)
    else:
        kind, rows = "times", [_Row(time, 1, None, []) for time in list_recorded_times(path)]
        unit = replay.time_unit or _expect_seconds(rows, path)
    if unit == "ms":
        rows = [row if row.time_s is None else row._replace(time_s=row.time_s / 1000) for row in rows]
    rows, notes = _keep_answered_rows(rows, path)
    trace = _arrange_requests(rows, kind, path)
    trace = replace(trace, notes=notes + trace.notes)
    if trace.block_ids:
        trace = replace(trace, block_tokens=replay.block_tokens or _require_block_tokens(trace, path))
    if replay.from_s or replay.for_s is not None:
        trace = _cut_window(trace, replay, path)
    return trace


def _arrange_requests(rows: list[_Row], kind: str, path: Path) -> RequestTrace:
    """Bring the requests, or the sessions, into the order of their times, which begin at 0."""
    sessions = _group_sessions(rows, path)
    notes = []
    if not sessions:
        rows, n_late = _sort_by_time(rows, operator.attrgetter("time_s"))
        times = [row.time_s for row in rows if row.time_s is not None]
    else:
        sessions, n_late = _sort_by_time(sessions, lambda turns: rows[turns[0]].time_s)
        times = [time for turns in sessions if (time := rows[turns[0]].time_s) is not None]
    if n_late:
        what = "sessions" if sessions else "requests"
        notes.append(f"{n_late} of {len(times)} {what} stood later in the trace than their time says: sorted")
    if len(times) < 2 or times[0] == times[-1]:
        raise InputError("trace needs two different times", where=path, found=f"{len(times)} arrivals")
    outputs = [row.output_tokens for row in rows if row.output_tokens is not None]
    has_lengths, has_blocks = kind != "times", any(row.block_ids for row in rows)
    if has_lengths and not outputs:
        notes.append("the trace has no lengths of answers: they are those of --output-tokens, or the model's")
    return RequestTrace(
        [time - times[0] for time in times] if has_lengths else times,
        [row.input_tokens for row in rows] if has_lengths else [],
        outputs,
        [row.block_ids for row in rows] if has_blocks else [],
        kind,
        sessions,
        [row.pause_s for row in rows] if sessions else [],
        notes=notes,
    )


def _sort_by_time(items: list[T], read_time: Callable[[T], Any]) -> tuple[list[T], int]:
    """Sort by time, and count the items that come after one of a later time."""
    latest = itertools.accumulate(map(read_time, items), max)
    n_late = sum(read_time(item) < time for item, time in zip(items, latest, strict=True))
    return sorted(items, key=read_time), n_late


def _keep_answered_rows(rows: list[_Row], path: Path) -> tuple[list[_Row], list[str]]:
    """Leave out requests that failed, and those without a length of the answer where others have one; tell how many."""
    notes = []
    n_empty = sum(row.output_tokens == 0 and not row.has_failed for row in rows)
    if n_empty:
        notes.append(f"{n_empty} of {len(rows)} requests have an answer of 0 tokens: read as 1")
    has_outputs = any(row.output_tokens is not None for row in rows)
    missing = [row for row in rows if row.output_tokens is None] if has_outputs else []
    if any(row.session is not None for row in missing):
        raise InputError("a turn of a session lacks its output_length", where=path)
    for left_out, why in ((missing, "lack the length of their answer"), ([r for r in rows if r.has_failed], "failed")):
        if left_out:
            notes.append(f"{len(left_out)} of {len(rows)} requests {why}: left out")
    kept = [row for row in rows if not row.has_failed and not (has_outputs and row.output_tokens is None)]
    lengths = [None if row.output_tokens is None else max(1, row.output_tokens) for row in kept]
    return [row._replace(output_tokens=length) for row, length in zip(kept, lengths, strict=True)], notes


def _expect_seconds(rows: list[_Row], path: Path) -> TimeUnit:
    """Seconds, as these formats have them; refused where so few requests came a second that they may be ms."""
    times = [row.time_s for row in rows if row.time_s is not None]
    span = max(times, default=0.0) - min(times, default=0.0)
    if len(times) < MIN_TIMES_FOR_UNIT or (len(times) - 1) >= MIN_RATE_IN_S * span:
        return "s"
    raise _build_unit_error((len(times) - 1) / span, path)


def _infer_time_unit(rows: list[_Row], path: Path) -> TimeUnit:
    """Infer the unit of the times of JSON lines: stated by their fields, else by the only rate that is plausible."""
    if any(row.is_bailian for row in rows):
        return "s"
    times = [row.time_s for row in rows if row.time_s is not None]
    span = max(times, default=0.0) - min(times, default=0.0)
    has_sessions = any(row.session is not None for row in rows)
    if has_sessions or not span or len(times) < MIN_TIMES_FOR_UNIT:
        return "ms"
    rate_in_s = (len(times) - 1) / span
    has_fractions = any(time != int(time) for time in times)
    if 1000 * rate_in_s <= MAX_RATE_IN_MS and (not has_fractions or rate_in_s < MIN_RATE_IN_S):
        return "ms"
    if has_fractions and 1000 * rate_in_s > MAX_RATE_IN_MS:
        return "s"
    raise _build_unit_error(rate_in_s, path)


def _build_unit_error(rate_in_s: float, path: Path) -> InputError:
    return InputError(
        "the unit of the times is not certain",
        where=path,
        found=f"{rate_in_s:.3g} requests a second in seconds, {1000 * rate_in_s:.3g} in milliseconds",
        do="give it: --trace-unit s or --trace-unit ms",
    )


def _require_block_tokens(trace: RequestTrace, path: Path) -> int:
    tokens = infer_block_tokens(trace.input_tokens, trace.block_ids)
    if tokens is None:
        length, ids = next(pair for pair in zip(trace.input_tokens, trace.block_ids, strict=True) if pair[1])
        raise InputError(
            "the size of the prompts' blocks is not certain",
            where=path,
            found=f"such as input_length {length} with {len(ids)} hash_ids",
            do="give it in tokens: --trace-block 512 (Mooncake) or 16 (Bailian)",
        )
    return tokens


def _cut_window(trace: RequestTrace, replay: TraceReplay, path: Path) -> RequestTrace:
    """The requests, or whole sessions, that arrived within the window; times begin at the window's begin."""
    begin = trace.times_s[0] + replay.from_s
    end = math.inf if replay.for_s is None else begin + replay.for_s
    inside = [place for place, time in enumerate(trace.times_s) if begin <= time < end]
    if len(inside) < 2 or trace.times_s[inside[0]] == trace.times_s[inside[-1]]:
        span = trace.times_s[-1] - trace.times_s[0]
        what, found = "the window of the trace needs two different times", f"{len(inside)} arrivals in it"
        raise InputError(what, where=path, found=found, allowed=f"within the trace's {span:.6g} s")
    turns = itertools.chain.from_iterable(trace.sessions[place] for place in inside) if trace.sessions else inside
    rows = sorted(turns)
    new_place = {row: place for place, row in enumerate(rows)}
    upto = "its end" if replay.for_s is None else f"{replay.from_s + replay.for_s:g} s"
    note = f"window of the trace from {replay.from_s:g} s to {upto}: {len(rows)} of {trace.n_requests} requests"

    return replace(
        trace,
        times_s=[time - begin for time in _take(trace.times_s, inside)],
        input_tokens=_take(trace.input_tokens, rows),
        output_tokens=_take(trace.output_tokens, rows),
        block_ids=_take(trace.block_ids, rows),
        sessions=[[new_place[row] for row in turns] for turns in _take(trace.sessions, inside)],
        pauses_s=_take(trace.pauses_s, rows),
        notes=[*trace.notes, note],
    )


def _take(values: list[T], places: Iterable[int]) -> list[T]:
    """The values at these places; empty where the trace has none."""
    return [values[place] for place in places] if values else []


class _Row(NamedTuple):
    """Request of a trace; a later turn of a session has a pause after the answer before it, and no time.

    `time_s`: In the unit of the file until that is known.
    """

    time_s: float | None
    input_tokens: int
    output_tokens: int | None
    block_ids: list[int]
    session: str | None = None
    pause_s: float = 0.0
    has_failed: bool = False
    is_bailian: bool = False


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


def _read_csv_rows(path: Path) -> tuple[str, list[_Row]]:
    """Read the kind and the rows of a CSV trace, whatever the spelling of its columns."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            names = {name.lower().replace("_", "").replace(" ", ""): name for name in reader.fieldnames or []}
            time_name, input_name, output_name = (
                next((known for known in wanted if known in names), None)
                for wanted in (TIME_NAMES, INPUT_NAMES, OUTPUT_NAMES)
            )
            if time_name is None or input_name is None or output_name is None:
                allowed = ["TIMESTAMP, ContextTokens, GeneratedTokens", "Timestamp, Request tokens, Response tokens"]
                raise InputError("column missing in the trace", where=path, found=reader.fieldnames, allowed=allowed)
            fails = output_name == FAILED_OUTPUT_NAME
            columns = names[time_name], names[input_name], names[output_name]
            rows = [_parse_csv_row(row, columns, f"{path}, line {reader.line_num}", fails=fails) for row in reader]
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError("not a CSV trace", where=path, found=str(error)[:120]) from error
    return "burstgpt" if fails else "azure", rows


def _parse_csv_row(row: dict[str, Any], columns: tuple[str, str, str], where: str, *, fails: bool) -> _Row:
    """Parse a row; with `fails` an answer of 0 tokens is a failed request."""
    time_name, input_name, output_name = columns
    time_s = _parse_timestamp(row[time_name], where)
    n_input = max(1, _parse_tokens(row[input_name], input_name, where))
    n_output = None if row[output_name] == "" else _parse_tokens(row[output_name], output_name, where)
    return _Row(time_s, n_input, n_output, [], has_failed=fails and n_output == 0)


def _parse_timestamp(text: str | None, where: str) -> float:
    """Parse a time of a CSV trace: a number, or a date with a time of day, in seconds."""
    text = (text or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0 <= number < 1e15:
        return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        allowed = "like 2023-11-16 18:15:46.680590, or seconds"
        raise InputError("not a time", where=where, found=text[:60], allowed=allowed) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _iterate_json_rows(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError("not JSON", where=where, found=str(error)[:120]) from error
            yield _parse_json_row(row, where)


def _parse_json_row(row: Any, where: str) -> _Row:
    """Parse a request of JSON lines; its time stays in the unit of the file."""
    session = row.get("session_id") if isinstance(row, dict) else None
    is_later_turn = session is not None and "delay" in row
    fields = ("delay" if is_later_turn else MOONCAKE_FIELDS[0], MOONCAKE_FIELDS[1])
    if not isinstance(row, dict) or any(name not in row for name in fields):
        raise InputError("not a request of a trace", where=where, allowed=[*fields, MOONCAKE_FIELDS[2]])
    output = row.get(MOONCAKE_FIELDS[2])
    return _Row(
        None if is_later_turn else _parse_number_of_time(row[fields[0]], where),
        max(1, _parse_tokens(row[fields[1]], fields[1], where)),
        None if output is None else _parse_tokens(output, MOONCAKE_FIELDS[2], where),
        _parse_blocks(row.get("hash_ids"), where),
        None if session is None else str(session)[:200],
        _parse_milliseconds(row["delay"], where) if is_later_turn else 0.0,
        is_bailian=all(name in row for name in BAILIAN_FIELDS),
    )


def _parse_number_of_time(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InputError("not a time", where=where, found=str(value)[:60], allowed="a number from 0 on")
    return value


def _parse_milliseconds(value: Any, where: str) -> float:
    """Parse a time or a pause in milliseconds, as seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InputError("not a time in milliseconds", where=where, found=str(value)[:60])
    return value / 1000


def _parse_tokens(value: Any, name: str, where: str) -> int:
    """Parse a whole number of tokens from a row of a trace."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= MAX_TOKENS or number != int(number):
        allowed = f"a whole number up to {MAX_TOKENS}"
        raise InputError("not a number of tokens", where=f"{where}, {name}", found=str(value)[:60], allowed=allowed)
    return int(number)


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
