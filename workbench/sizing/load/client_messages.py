"""Messages between a sweep and its client processes, and the reply to one request."""

from __future__ import annotations

import struct
import time
from typing import Literal

import msgspec

from workbench.sizing.load.request_plan import Prompts

clock = time.perf_counter
"""The one clock of the client: monotonic, and the same in all processes of a machine."""

MAX_DETAIL = 200


class Reply(msgspec.Struct):
    """How one request ended.

    Attributes
    ----------
    outcome
        One of `OUTCOMES` in `workbench/sizing/tables.py`.
    ended
        When its last byte came or it failed, on `clock`.
    status
        HTTP status; null where there is none.
    first_token
        When the first token of the answer came, on `clock`; null where answers come whole.
    itl_s
        Mean time between output tokens; null with fewer than two.
    llm_s
        Duration of each model call in it; null if unknown.
    server_runtime_s
        Runtime by the server's own clock; null where it tells none.
    detail
        The failure in a few words, as the server or the system put them.
    """

    outcome: str
    ended: float
    status: int | None = None
    first_token: float | None = None
    itl_s: float | None = None
    llm_s: list[float] | None = None
    server_runtime_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    detail: str | None = None


class MalformedAnswerError(Exception):
    """The answer does not parse, or is larger than what is read of one."""


class CutAnswerError(Exception):
    """The answer ended before its end."""


class FailedAnswerError(Exception):
    """The service says itself that it failed."""


def shorten_detail(text: object) -> str:
    """A detail short enough to be kept: one line, no controls."""
    words = " ".join(str(text)[: 4 * MAX_DETAIL].split())
    return "".join(sign for sign in words if sign.isprintable())[:MAX_DETAIL]


def mean_token_gap_s(first: float | None, last: float | None, tokens: int | None) -> float | None:
    """Mean time between tokens, from the arrival of the first and of the last one.

    Examples
    --------
    >>> mean_token_gap_s(10.0, 11.0, 5), mean_token_gap_s(10.0, 10.0, 1)
    (0.25, None)
    """
    if first is None or last is None or tokens is None or tokens < 2:
        return None
    return (last - first) / (tokens - 1)


MAX_FRAME_BYTES = 1 << 30
_LENGTH_STRUCT = struct.Struct(">I")


class TargetSpec(msgspec.Struct, frozen=True):
    """What is driven: enough for a process to open it. Headers are names of environment variables, never values."""

    protocol: Literal["nat", "openai", "http", "function"]
    url: str = ""
    function: str = ""
    timeout_s: float = 300.0
    header_env: dict[str, str] = {}
    max_answer_bytes: int = 8 << 20
    model: str = ""
    output_tokens: int | None = None
    extra_body: bytes = b"{}"
    method: str = "POST"
    body: bytes | None = None
    answer_at: str | None = None
    input_tokens_at: str | None = None
    output_tokens_at: str | None = None


class StepLoad(msgspec.Struct, frozen=True):
    """A step's load, the same for all processes that share it; `share` of `shares` is what a process takes of it."""

    step: int
    loop: Literal["closed", "open"]
    seed: int
    users: int = 0
    think_s: float = 0.0
    ramp_s: float = 0.0
    rate_per_s: float = 0.0
    arrivals: Literal["users", "poisson", "constant", "trace"] = "users"
    trace_s: list[float] = []
    max_in_flight: int = 4096
    retries: int = 0
    share: int = 0
    shares: int = 1


class Open(msgspec.Struct, tag=True):
    """First of all: what to drive, with what."""

    target: TargetSpec
    prompts: Prompts


class Begin(msgspec.Struct, tag=True):
    """Hold a load; times count from `base`, on the clock that all processes share. `allowance`: requests at most."""

    load: StepLoad
    base: float
    allowance: int | None = None


class Tail(msgspec.Struct, tag=True):
    """What is sent from now on only keeps the load on."""


class Stop(msgspec.Struct, tag=True):
    """Send nothing more; say `Drained` once all that is in flight has ended. `now`: do not wait for it."""

    now: bool = False


class Ready(msgspec.Struct, tag=True):
    """The target is open."""


class Rows(msgspec.Struct, tag=True):
    """Requests that ended, in the order of their ends."""

    requests: list[RequestRow]
    in_flight: int
    kept_open: int
    tail_begun: bool
    exhausted: bool


class Drained(msgspec.Struct, tag=True):
    """The step is over for this process: how late its loop was, how much of a core it used."""

    lags_s: list[float]
    cpu_share: float
    failures: list[tuple[str, int]]
    simulated: bool = False


class Broken(msgspec.Struct, tag=True):
    """The process cannot go on; nothing to do with the service."""

    what: str
    facts: dict[str, str | None] = {}


class RequestRow(msgspec.Struct, array_like=True, gc=False):
    """A request that ended; times since the step's base, in s."""

    item: int
    intended_s: float
    sent_s: float
    ended_s: float
    outcome: str
    status: int | None
    retries: int
    first_token_s: float | None
    itl_s: float | None
    llm_s: list[float] | None
    server_runtime_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    tail: bool


Command = Open | Begin | Tail | Stop
Report = Ready | Rows | Drained | Broken
_frame_encoder = msgspec.msgpack.Encoder()
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def encode_frame(message: Command | Report) -> bytes:
    """A message with its length before it."""
    body = _frame_encoder.encode(message)
    return _LENGTH_STRUCT.pack(len(body)) + body


def frame_length(head: bytes) -> int:
    """How many bytes follow these four."""
    found: int = _LENGTH_STRUCT.unpack(head)[0]
    if found > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {found} bytes")
    return found


def decode_command(body: bytes) -> Command:
    """A command in a frame's body."""
    found: Command = _command_decoder.decode(body)
    return found


def decode_report(body: bytes) -> Report:
    """A report in a frame's body."""
    found: Report = _report_decoder.decode(body)
    return found
