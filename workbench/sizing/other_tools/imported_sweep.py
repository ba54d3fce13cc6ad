"""Imported steps and requests: bounded file reading, checks, conversion to raw tables."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import msgspec
import numpy as np
import polars as pl

from workbench.core.errors import InputError, refuse_os_errors
from workbench.core.files import read_unpacked
from workbench.core.tool_formats import ToolFormat
from workbench.sizing.load.client_messages import BUFFERED, OTHER_COUNT
from workbench.sizing.tables import REQUESTS, STEPS

MAX_DOCUMENT_BYTES = 512 << 20
MAX_LINE_BYTES = 64 << 20
MAX_REQUESTS = 2_000_000
HEAD_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
_Shape = TypeVar("_Shape")
Arrivals = Literal["users", "poisson", "constant", "trace"]
MIN_KEPT_FRACTION = 0.75
MIN_BUFFERED_FRACTION = 0.05
MAX_COUNT_ERROR = 0.05
MAX_RATE_ERROR = 0.05
MAX_RATE_CHANGE = 1.5
MAX_TIME_S = 1e11
MAX_TOKENS = 10**12
MAX_USERS = 10**6
# A status stands behind a word for it, or before its own phrase; ports, seconds and lines of tracebacks are none.
_STATUS_PATTERN = re.compile(
    r"(?:status(?:[ _]?code)?|http(?:/\d(?:\.\d)?)?|error|code)['\":=\s(]{1,3}([45]\d\d)(?!\d|\.\d)"
    r"|(?<![\d.:])([45]\d\d) (?:bad|unauth|payment|forbidden|not |method|request|conflict|gone|too |unproc|internal|"
    r"service|gateway|client|server)",
    re.IGNORECASE,
)
_FAILURE_PATTERNS = (
    ("timeout", r"time[ds]? ?-?out"),
    (
        "refused",
        r"refused|cannot connect|connect call failed|connecterror|clientconnector|connection attempts failed|"
        r"name resolution|unreachable",
    ),
    ("cut", r"reset|disconnect|closed connection|peer closed|incomplete|remoteprotocol|broken pipe|payload"),
    ("malformed", r"json|decode|parse|malformed|invalid ?inference"),
)

STATUS_BY_PHRASE = {status.phrase.lower(): status.value for status in HTTPStatus if status >= 400}
# vLLM and others write numbers that JSON does not have.
_NOT_A_NUMBER = re.compile(rb"[:,\[]\s*(?:NaN|-?Infinity)")
# A cap of requests in flight held the rate down where more than this share of the requests met it.
MIN_CAPPED_FRACTION = 0.05
# So many tokens so close together were not made one after the other: no model gives 5,000 a second to a user.
MIN_STREAMED_TOKENS, MIN_TOKEN_GAP_S = 4, 2e-4


def read_json_document(path: Path, shape: type[_Shape]) -> _Shape:
    """Read a JSON file, plain or gzip, into a struct; unknown fields are ignored."""
    return decode_json(_read_document(path), shape, str(path))


def _read_document(path: Path) -> bytes:
    with refuse_os_errors("cannot read the file", path):
        return read_unpacked(path, MAX_DOCUMENT_BYTES)


def read_json_documents(path: Path, shape: type[_Shape]) -> list[_Shape]:
    """Read a JSON file, plain or gzip, or one with a document a line."""
    content = _read_document(path)
    lines = content.splitlines()
    if len(lines) < 2 or not all(
        line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines if line.strip()
    ):
        return [decode_json(content, shape, str(path))]
    return [decode_json(line, shape, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def read_file_head(path: Path, size_bytes: int = HEAD_BYTES) -> str:
    """First part of a file, decompressed, as text."""
    with _open_plain_or_gzip(path) as file:
        try:
            return file.read(size_bytes).decode("utf-8", "replace")
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error


def read_json_lines(path: Path, shape: type[_Shape]) -> Iterator[_Shape]:
    """Read the lines of a JSONL file, plain or gzip, into structs; an incomplete last line is ignored."""
    decoder = msgspec.json.Decoder(shape)
    with _open_plain_or_gzip(path) as file:
        number = 0
        try:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise InputError("line is too long", where=where, allowed=f"{MAX_LINE_BYTES >> 20} MiB")
                if number > MAX_REQUESTS:
                    raise InputError("too many requests", where=path, allowed=f"{MAX_REQUESTS} lines")
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as error:
                    if not line.endswith(b"\n") and not isinstance(error, msgspec.ValidationError):
                        return  # the tool was stopped while it wrote
                    raise InputError("invalid record", where=where, found=str(error)[:300]) from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error


def decode_json(content: bytes, shape: type[_Shape], where: str) -> _Shape:
    """Decode JSON into a struct; NaN, which Python's tools write, is null, and Infinity a number."""
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.ValidationError as error:
        raise InputError("not in the expected format", where=where, found=str(error)[:300]) from error
    except msgspec.DecodeError as error:
        if _NOT_A_NUMBER.search(content):
            try:
                document = json.loads(content, parse_constant=lambda name: None if name == "NaN" else float(name))
                return msgspec.convert(document, shape)
            except (ValueError, RecursionError) as wrong:
                raise InputError("not in the expected format", where=where, found=str(wrong)[:300]) from wrong
        # A validation error names the field: "... - at `$.benchmarks[0].config`".
        raise InputError("not in the expected format", where=where, found=str(error)[:300]) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise InputError("not valid JSON", where=where, found=type(error).__name__) from error


def _open_plain_or_gzip(path: Path) -> IO[bytes]:
    with refuse_os_errors("cannot read the file", path):
        file: IO[bytes] = path.open("rb")
    if file.read(2) == GZIP_MAGIC:
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    file.seek(0)
    return file


@dataclass(slots=True)
class ImportedRequest:
    """One request; times in s on the tool's clock, null if the file does not contain them."""

    intended_s: float
    sent_s: float
    ended_s: float
    outcome: str = "ok"
    status: int | None = None
    first_token_s: float | None = None
    first_output_s: float | None = None
    longest_gap_s: float | None = None
    itl_s: float | None = None
    llm_s: list[float] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt: str = ""
    later_tokens: float | None = None
    event_tokens: float | None = None
    stream: str | None = None


@dataclass(slots=True)
class ImportedStep:
    """One load level; `requests` in any order.

    `is_placed`: Whether the tool tells no times of day, and requests were placed in time by their durations.
    """

    arrivals: Arrivals
    users: int | None
    rate_per_s: float | None
    timeout_s: float | None
    requests: list[ImportedRequest]
    is_placed: bool = False


@dataclass(slots=True)
class ImportedSweep:
    """Result of another load tool: steps, and notes for the user on the conversion.

    The version is empty if the file does not contain it.
    """

    tool: str
    version: str
    simulated: bool
    steps: list[ImportedStep]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LoadFormat(ToolFormat):
    """A load tool's format: what reads a file or folder of it, and the default name of its report in a folder."""

    read: Callable[[Path], ImportedSweep]
    report_name: str | None = None


def correct_arrival_rate(
    asked_per_s: float | None, requests: list[ImportedRequest], label: str, notes: list[str]
) -> float:
    """Arrivals per second: those that were sent, with a note where they are not what was asked for.

    A tool may not keep up with the requested rate; the answer must be for the load that was sent. Raises for a rate
    that changed: such requests are no level.
    """
    times = [request.intended_s for request in requests]
    span_s = max(times) - min(times)
    measured = (len(times) - 1) / span_s if span_s > 0 else None
    if not asked_per_s:
        if not measured:
            raise InputError("no request rate, and none can be computed from the times", where=label)
        return measured
    counts = np.histogram(times, bins=3)[0]
    first, last, third_s = int(counts[0]), int(counts[2]), span_s / 3
    # Rates of the thirds that differ by half or more, and by four standard deviations of the difference of two Poisson
    # counts.
    if (
        abs(last - first) > 4 * (first + last) ** 0.5
        and not 1 / MAX_RATE_CHANGE < last / max(first, 1) < MAX_RATE_CHANGE
    ):
        raise InputError(
            "the rate changed while the requests were sent, so that they are no level",
            where=label,
            found=f"{first / third_s:.3g} a second in the first third of the time, {last / third_s:.3g} in the last",
            do="measure each rate by itself, without a ramp",
        )
    if measured is None or abs(measured / asked_per_s - 1) <= MAX_RATE_ERROR:
        return asked_per_s
    # Deviations of up to three standard deviations of a Poisson count are random.
    if abs(measured / asked_per_s - 1) > 3 / len(times) ** 0.5:
        notes.append(
            f"{label}: the measured rate of {measured:.3g} requests per second differs from the requested "
            f"{asked_per_s:g}; the measured rate is used as the load"
        )
    return measured


def find_cap_share(requests: list[ImportedRequest], cap: int) -> float:
    """Share of the requests that were sent into a full cap of requests in flight: they had waited in the tool.

    >>> one_by_one = [ImportedRequest(0.0, float(i), i + 1.0) for i in range(4)]
    >>> find_cap_share(one_by_one, 1), find_cap_share(one_by_one, 2)
    (1.0, 0.0)
    """
    sent = np.sort([request.sent_s for request in requests])
    ended = np.sort([request.ended_s for request in requests])
    # What ended at that moment made room for it.
    in_flight = np.arange(1, len(sent) + 1) - np.searchsorted(ended, sent + 1e-9, side="right")
    return float((in_flight >= cap).mean())


def is_held_down(requests: list[ImportedRequest], cap: int | None, label: str, notes: list[str]) -> bool:
    """Whether the tool's own cap of requests in flight held its rate down, with a note; no level is left then."""
    share = find_cap_share(requests, cap) if cap else 0.0
    if share <= MIN_CAPPED_FRACTION:
        return False
    notes.append(
        f"{label}: left out: {100 * share:.0f} % of the requests met the tool's own cap of {cap} in flight, "
        f"which limited the rate, and the "
        "planned times are unknown; raise the limit"
    )
    return True


def check_totals(succeeded: int | None, requests: list[ImportedRequest], where: str) -> None:
    """Refuse a file whose own count of successes is not that of its entries."""
    n_ok = sum(request.outcome == "ok" for request in requests)
    if succeeded is not None and succeeded != n_ok:
        raise InputError(
            "the entries do not fit the file's own totals",
            where=where,
            found=f"{n_ok} successes of {len(requests)} entries, {succeeded} by its totals",
            do="import the complete result; the entries may be a sample, or of another run",
        )


def classify_failure(words: str, status: int | None = None) -> tuple[str, int | None]:
    """Classify an error message as one of `tables.OUTCOMES`, with the HTTP status if there is one.

    >>> classify_failure("Server error '503 Service Unavailable' for url")
    ('http_error', 503)
    >>> [classify_failure(words)[0] for words in ("TimeoutError()", "ConnectError: connection refused", "?")]
    ['timeout', 'refused', 'failed']
    >>> classify_failure("Cannot connect to host 127.0.0.1:8500, line 503"), classify_failure("Not Found")
    (('refused', None), ('http_error', 404))
    """
    if status is not None:
        return "http_error", status
    if match := _STATUS_PATTERN.search(words):
        return "http_error", int(match[1] or match[2])
    if (named := STATUS_BY_PHRASE.get(words.strip().lower())) is not None:
        return "http_error", named
    lowered = words.lower()
    return next((kind for kind, pattern in _FAILURE_PATTERNS if re.search(pattern, lowered)), "failed"), None


def build_raw_tables(imported: ImportedSweep, gpus: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Build the raw tables `requests` and `steps`, steps in the order in which they ran.

    Times count from the first intended send time of a step. Event loop lag and CPU use of the client are null, because
    no file contains them.
    """
    if not imported.steps:
        raise InputError("the result has no requests", where=f"result of {imported.tool}", found=imported.notes or None)
    columns: dict[str, list[Any]] = {}
    steps = []
    items: dict[str, int] = {}
    ordered = sorted(
        imported.steps,
        key=lambda step: 0.0 if step.is_placed else min(request.intended_s for request in step.requests),
    )
    for number, step in enumerate(ordered):
        if step.users is not None and not 1 <= step.users <= MAX_USERS:
            raise InputError("invalid number of users", found=step.users, allowed=f"1 to {MAX_USERS}")
        checked = list(map(_check_request, step.requests))
        _mark_buffered(checked)
        rows = sorted(checked, key=lambda request: (request.intended_s, request.sent_s))
        began_s = rows[0].intended_s
        tail = _find_tail_start(rows)
        for place, row in enumerate(rows):
            of_answer = {
                "runtime_s": row.ended_s - row.intended_s,
                "ttft_s": None if row.first_token_s is None else row.first_token_s - row.intended_s,
                "ttfo_s": None if row.first_output_s is None else row.first_output_s - row.intended_s,
                "longest_gap_s": row.longest_gap_s,
                "itl_s": row.itl_s,
                "llm_s": row.llm_s,
                "output_tokens": row.output_tokens,
                "later_tokens": row.later_tokens,
            }
            values = {
                "step": number,
                "request": place,
                # A request without a prompt id counts as a prompt of its own.
                "item": items.setdefault(row.prompt or f"\0{number}/{place}", len(items)),
                "intended_s": row.intended_s - began_s,
                "sent_s": row.sent_s - began_s,
                "ended_s": row.ended_s - began_s,
                "outcome": row.outcome,
                "status": row.status,
                "retries": 0,
                "input_tokens": row.input_tokens,
                "event_tokens": row.event_tokens,
                "stream": row.stream,
                "tail": place >= tail,
            } | (of_answer if row.outcome == "ok" else dict.fromkeys(of_answer))
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        closed = step.arrivals == "users"
        started = None if step.is_placed else datetime.fromtimestamp(began_s, UTC).isoformat(timespec="milliseconds")
        steps.append(
            {
                "step": number,
                "loop": "closed" if closed else "open",
                "users": step.users if closed else None,
                "rate_per_s": None if closed else step.rate_per_s,
                "think_s": 0.0,
                "arrivals": step.arrivals,
                "gpus": gpus,
                "clock": "real",
                "simulated": imported.simulated,
                "started_at": started,
                "duration_s": max(row.ended_s for row in rows) - began_s,
                "timeout_s": step.timeout_s,
                "processes": 1,
                "stopped": "limit",
            }
        )
    unknown = [None] * len(columns["step"])
    requests = REQUESTS.frame({column.name: columns.get(column.name, unknown) for column in REQUESTS.columns})
    return requests, STEPS.frame(steps)


def _check_request(request: ImportedRequest) -> ImportedRequest:
    """Check that times and token counts are plausible; the intended time is at most the send time."""
    if not 0 <= request.sent_s <= request.ended_s <= MAX_TIME_S or request.intended_s < 0:
        times = f"due at {request.intended_s} s, sent at {request.sent_s} s, ended at {request.ended_s} s"
        raise InputError("inconsistent request times", found=times)
    request.intended_s = min(request.intended_s, request.sent_s)
    for first_s in (request.first_token_s, request.first_output_s):
        if first_s is not None and not request.intended_s <= first_s <= MAX_TIME_S:
            found = f"sent at {request.sent_s} s, first token at {first_s} s"
            raise InputError("inconsistent request times", found=found)
    for gap_s in (request.itl_s, request.longest_gap_s):
        if gap_s is not None and not 0 <= gap_s <= MAX_TIME_S:
            raise InputError("inconsistent request times", found=f"{gap_s} s between tokens")
    for tokens in (request.input_tokens, request.output_tokens):
        if tokens is not None and not 0 <= tokens <= MAX_TOKENS:
            raise InputError("invalid number of tokens", found=tokens, allowed=f"0 to {MAX_TOKENS}")
    return request


def count_later_tokens(tokens: int | None, events: int) -> tuple[float | None, str | None]:
    """Count the tokens after the first event of a stream: all but the first where an event is about a token.

    Null with a note where it is not: a file does not tell whether several came at once or some were never streamed.
    `events`: 0 where the file does not say.

    >>> count_later_tokens(10, 10), count_later_tokens(None, 3), count_later_tokens(40, 10)
    ((9.0, None), (None, None), (None, 'other count'))
    """
    if not tokens or tokens < 2:
        return None, None
    if events > 1 and abs(tokens - events) > 1 + MAX_COUNT_ERROR * events:
        return None, OTHER_COUNT
    return tokens - 1.0, None


def _mark_buffered(requests: list[ImportedRequest]) -> None:
    """Mark answers whose tokens came all at once: their first token, and the time between tokens, are unknown.

    A single one may come from a late client; a proxy that buffers answers holds back several.
    """
    at_once = [
        request
        for request in requests
        if request.itl_s is not None
        and request.itl_s < MIN_TOKEN_GAP_S
        and (request.output_tokens or 0) >= MIN_STREAMED_TOKENS
    ]
    if len(at_once) > MIN_BUFFERED_FRACTION * len(requests):
        for request in at_once:
            request.first_token_s = request.first_output_s = None
            request.longest_gap_s = request.itl_s = request.later_tokens = None
            request.stream = BUFFERED


def _find_tail_start(rows: list[ImportedRequest]) -> int:
    """Index of the first request that ran under a decreasing load, after the last request was sent.

    The cut follows the order of sending. Dropping the requests that still ran would drop the slow ones and bias the p95
    downwards. If the cut would remove more than a quarter of the step, all requests count.
    """
    last_s, latest_s = max(row.sent_s for row in rows), 0.0
    for place, row in enumerate(rows):
        latest_s = max(latest_s, row.ended_s)
        if latest_s > last_s:
            return place if place >= MIN_KEPT_FRACTION * len(rows) else len(rows)
    return len(rows)
