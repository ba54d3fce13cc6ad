"""Imported steps and requests: bounded file reading, checks, conversion to raw tables."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from workbench.core.errors import InputError
from workbench.sizing.tables import REQUESTS, STEPS

if TYPE_CHECKING:
    import polars as pl

MAX_DOCUMENT_BYTES = 512 << 20
MAX_LINE_BYTES = 64 << 20
MAX_REQUESTS = 2_000_000
GZIP_MAGIC = b"\x1f\x8b"
_Shape = TypeVar("_Shape")


def read_json_document(path: Path, shape: type[_Shape]) -> _Shape:
    """A JSON file, plain or gzip, in the shape that is expected of it; other fields are passed over.

    Raises
    ------
    InputError
        It cannot be read, is larger than 512 MiB unpacked, is no JSON, or a field is missing or of another type.
    """
    with _open_plain_or_gzip(path) as file:
        try:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error
    if len(content) > MAX_DOCUMENT_BYTES:
        raise InputError("larger than is read at once", where=path, allowed=f"{MAX_DOCUMENT_BYTES >> 20} MiB")
    return decode_json(content, shape, str(path))


def read_file_head(path: Path, size_bytes: int) -> bytes:
    """The first bytes of a file, unpacked."""
    with _open_plain_or_gzip(path) as file:
        try:
            return file.read(size_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error


def read_json_lines(path: Path, shape: type[_Shape]) -> Iterator[_Shape]:
    """The lines of a JSONL file, plain or gzip, each in its shape; a last line that is cut short is passed over.

    Raises
    ------
    InputError
        It cannot be read, a line is longer than 64 MiB, there are more than two million, or one is not as expected.
    """
    decoder = msgspec.json.Decoder(shape)
    with _open_plain_or_gzip(path) as file:
        number = 0
        try:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise InputError("a line is too long", where=where, allowed=f"{MAX_LINE_BYTES >> 20} MiB")
                if number > MAX_REQUESTS:
                    raise InputError("too many requests", where=path, allowed=f"{MAX_REQUESTS} lines")
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as error:
                    if not line.endswith(b"\n") and not isinstance(error, msgspec.ValidationError):
                        return  # the tool was stopped while it wrote
                    raise InputError("not as expected", where=where, found=str(error)[:300]) from error
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("cannot read the file", where=path, found=str(error)[:200]) from error


def decode_json(content: bytes, shape: type[_Shape], where: str) -> _Shape:
    """JSON in the shape that is expected of it."""
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.DecodeError as error:
        # A validation error names the field: "... - at `$.benchmarks[0].config`".
        raise InputError("not as expected", where=where, found=str(error)[:300]) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise InputError("not readable as JSON", where=where, found=type(error).__name__) from error


def _open_plain_or_gzip(path: Path) -> IO[bytes]:
    try:
        file: IO[bytes] = path.open("rb")
    except OSError as error:
        raise InputError("cannot read the file", where=path, found=error.strerror) from error
    if file.read(2) == GZIP_MAGIC:
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    file.seek(0)
    return file


Arrivals = Literal["users", "poisson", "constant", "trace"]
MIN_KEPT_FRACTION = 0.75
MAX_TIME_S = 1e11
MAX_TOKENS = 10**12
MAX_USERS = 10**6
_STATUS_PATTERN = re.compile(r"(?<!\d)([1-5]\d\d)(?!\d)")
_FAILURE_PATTERNS = (
    ("timeout", r"time[ds]? ?-?out"),
    ("refused", r"refused|connecterror|clientconnector|connection attempts failed|name resolution|unreachable"),
    ("cut", r"reset|disconnect|closed connection|peer closed|incomplete|remoteprotocol|broken pipe|payload"),
    ("malformed", r"json|decode|parse|malformed|invalid ?inference"),
)


@dataclass(slots=True)
class ImportedRequest:
    """One request: times in s on the tool's clock; null for what its file does not tell."""

    intended_s: float
    sent_s: float
    ended_s: float
    outcome: str = "ok"
    status: int | None = None
    first_token_s: float | None = None
    itl_s: float | None = None
    llm_s: list[float] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt: str = ""


@dataclass(slots=True)
class ImportedStep:
    """One load that was held; `requests` in any order."""

    arrivals: Arrivals
    users: int | None
    rate_per_s: float | None
    timeout_s: float | None
    requests: list[ImportedRequest]
    began_s: float | None = None


@dataclass(slots=True)
class ImportedSweep:
    """A file of another tool: its steps, and what the user should know of how they came to be.

    The version is empty where the file does not tell it.
    """

    tool: str
    version: str
    simulated: bool
    steps: list[ImportedStep]
    notes: list[str] = field(default_factory=list)


def correct_arrival_rate(
    asked_per_s: float | None, requests: list[ImportedRequest], label: str, notes: list[str]
) -> float:
    """Arrivals a second: as asked, or as they were due where that is another rate, which is noted.

    A tool may not hold the rate that it was asked for, and an answer for a load that nobody sent would be wrong.

    Raises
    ------
    InputError
        No rate was asked for, and none follows from the times.
    """
    times = [request.intended_s for request in requests]
    span_s = max(times) - min(times)
    measured = (len(times) - 1) / span_s if span_s > 0 else None
    if not asked_per_s:
        if not measured:
            raise InputError("no rate, and none that follows from the times of requests", where=label)
        return measured
    # Three standard deviations of a Poisson count are chance.
    if measured is None or abs(measured / asked_per_s - 1) <= max(0.05, 3 / len(times) ** 0.5):
        return asked_per_s
    notes.append(
        f"{label}: {measured:.3g} requests a second were due, not the {asked_per_s:g} that were asked for; "
        "the measured rate is the load"
    )
    return measured


def classify_failure(words: str, status: int | None = None) -> tuple[str, int | None]:
    """The kind of a failure, of `tables.OUTCOMES`, from what a tool says about it, and the HTTP status if it has one.

    Examples
    --------
    >>> classify_failure("Server error '503 Service Unavailable' for url")
    ('http_error', 503)
    >>> [classify_failure(words)[0] for words in ("TimeoutError()", "ConnectError: connection refused", "?")]
    ['timeout', 'refused', 'failed']
    """
    if status is not None:
        return "http_error", status
    lowered = words.lower()
    if ("error '" in lowered or "status" in lowered or "http" in lowered) and (
        found := _STATUS_PATTERN.search(lowered)
    ):
        return "http_error", int(found[1])
    return next((kind for kind, pattern in _FAILURE_PATTERNS if re.search(pattern, lowered)), "failed"), None


def build_raw_tables(imported: ImportedSweep, gpus: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The raw tables `requests` and `steps`, steps in the order in which they were driven.

    Times count from the first intended sending of a step. What no file tells (the client's event loop and CPU) is null.

    Raises
    ------
    InputError
        There is no request at all, or one that ended before it was sent.
    """
    if not imported.steps:
        raise InputError("no request in this result", where=f"result of {imported.tool}", found=imported.notes or None)
    requests: dict[str, list[Any]] = {column.name: [] for column in REQUESTS.columns}
    steps = []
    items: dict[str, int] = {}
    ordered = sorted(imported.steps, key=lambda step: step.began_s or 0.0)
    for number, step in enumerate(ordered):
        if step.users is not None and not 1 <= step.users <= MAX_USERS:
            raise InputError("users that cannot be", found=step.users, allowed=f"1 to {MAX_USERS}")
        rows = sorted(map(_check_request, step.requests), key=lambda request: (request.intended_s, request.sent_s))
        began_s = rows[0].intended_s
        tail = _find_tail_start(rows)
        for place, row in enumerate(rows):
            # A prompt that is not named counts as one of its own.
            item = items.setdefault(row.prompt or f"\0{number}/{place}", len(items))
            _append_request(requests, number, place, item, row, began_s)
            requests["tail"].append(place >= tail)
        steps.append(_build_step_row(number, step, gpus, imported, max(row.ended_s for row in rows) - began_s))
    return REQUESTS.frame(requests), STEPS.frame(steps)


def _check_request(request: ImportedRequest) -> ImportedRequest:
    """Refuse times that no clock shows, counts that nobody counts; a request is due when it is sent at the latest."""
    if not 0 <= request.sent_s <= request.ended_s <= MAX_TIME_S or request.intended_s < 0:
        told = f"due at {request.intended_s} s, sent at {request.sent_s} s, ended at {request.ended_s} s"
        raise InputError("times that cannot be", found=told)
    request.intended_s = min(request.intended_s, request.sent_s)
    first_s = request.first_token_s
    if first_s is not None and not request.intended_s <= first_s <= MAX_TIME_S:
        raise InputError("times that cannot be", found=f"sent at {request.sent_s} s, first token at {first_s} s")
    if request.itl_s is not None and not 0 <= request.itl_s <= MAX_TIME_S:
        raise InputError("times that cannot be", found=f"{request.itl_s} s between tokens")
    for tokens in (request.input_tokens, request.output_tokens):
        if tokens is not None and not 0 <= tokens <= MAX_TOKENS:
            raise InputError("tokens that cannot be", found=tokens, allowed=f"0 to {MAX_TOKENS}")
    return request


def _find_tail_start(rows: list[ImportedRequest]) -> int:
    """From which place on requests ran while nothing was sent any more, so that they met a load that went down.

    Cut in the order of sending, not by what was still running: those would be the slow ones, and the p95 too good. All
    count when the cut would take more than a quarter of a step.
    """
    last_s, latest_s = max(row.sent_s for row in rows), 0.0
    for place, row in enumerate(rows):
        latest_s = max(latest_s, row.ended_s)
        if latest_s > last_s:
            return place if place >= MIN_KEPT_FRACTION * len(rows) else len(rows)
    return len(rows)


def _append_request(
    columns: dict[str, list[Any]], step: int, place: int, item: int, row: ImportedRequest, began_s: float
) -> None:
    ok = row.outcome == "ok"
    values = {
        "step": step,
        "request": place,
        "item": item,
        "intended_s": row.intended_s - began_s,
        "sent_s": row.sent_s - began_s,
        "ended_s": row.ended_s - began_s,
        "outcome": row.outcome,
        "status": row.status,
        "retries": 0,
        "runtime_s": row.ended_s - row.intended_s if ok else None,
        "ttft_s": row.first_token_s - row.intended_s if ok and row.first_token_s is not None else None,
        "itl_s": row.itl_s if ok else None,
        "llm_s": row.llm_s if ok else None,
        "server_runtime_s": None,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens if ok else None,
    }
    for name, value in values.items():
        columns[name].append(value)


def _build_step_row(
    number: int, step: ImportedStep, gpus: int, imported: ImportedSweep, duration_s: float
) -> dict[str, Any]:
    closed = step.arrivals == "users"
    began = None if step.began_s is None else datetime.fromtimestamp(step.began_s, UTC)
    return {
        "step": number,
        "loop": "closed" if closed else "open",
        "users": step.users if closed else None,
        "rate_per_s": None if closed else step.rate_per_s,
        "think_s": 0.0,
        "arrivals": step.arrivals,
        "gpus": gpus,
        "clock": "real",
        "simulated": imported.simulated,
        "started_at": None if began is None else began.isoformat(timespec="milliseconds"),
        "duration_s": duration_s,
        "timeout_s": step.timeout_s,
        "processes": 1,
        "loop_lag_p99_s": None,
        "client_cpu_share": None,
        "stopped": "limit",
    }
