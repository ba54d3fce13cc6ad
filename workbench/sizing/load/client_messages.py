"""Messages between a sweep and its client processes, and the reply of one request."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Sequence
from typing import Literal

import msgspec

from workbench.core.message_kinds import MessageKind
from workbench.sizing.load.arrival_processes import ArrivalName
from workbench.sizing.load.request_plan import Prompts

clock = time.perf_counter
"""Clock of the client: monotonic, and shared by all processes of a machine."""

MAX_DETAIL = 200
BUFFERED, SEVERAL, HIDDEN, UNCOUNTED = "buffered", "several tokens an event", "hidden tokens", "tokens not counted"
OTHER_COUNT = "other count"
FEWER, UNSTREAMED, UNCLEAR = "fewer counted", "count refuted", "buffered, tokens unclear"
BURSTS, CHOICES = "bursts", "several choices"
STREAM_NOTES = {
    BUFFERED: "the stream did not come token by token: something between buffers it, or the server gives equally many "
    "at one moment each time, so ttft, itl and tpot are unknown",
    UNCLEAR: "the stream did not come token by token, and its tokens are not known: something between buffers it, so "
    "ttft and all figures per token are unknown",
    SEVERAL: "events hold about {n:.2g} tokens each; itl and tpot are over the tokens after the first event",
    HIDDEN: "the server counts more tokens than it streams (about {n:.2g} per event), or "
    "one event held several: itl, tpot and all figures per token are unknown",
    UNSTREAMED: "the server counts more tokens than the text can hold (about {n:.2g} an event): not streamed, or "
    "counted wrong; itl, tpot and all figures per token are over the events",
    FEWER: "the server counts fewer tokens than it streams, so itl, tpot and all figures per token are unknown",
    OTHER_COUNT: "the file counts about {n:.2g} tokens an event: several came at once, some were not streamed, or the "
    "counts are of another tokenizer, so itl, tpot and all figures per token are unknown",
    UNCOUNTED: "events may hold several tokens each (about {n:.2g} by their text) and nothing counts them, so itl, "
    "tpot and all figures per token are unknown",
    BURSTS: "several events arrive at once, as with speculative decoding or a small buffer; ttft is the time of "
    "the first, itl "
    "and tpot are means over the later tokens",
    CHOICES: "an answer is several choices at once: itl and tpot are those of one choice, token is over all",
}
"""What a level says of its streams, by the note of a request; n is the median of its tokens an event."""
UNCLEAR_NOTES = (HIDDEN, FEWER, UNCOUNTED, OTHER_COUNT, UNCLEAR)
"""Notes of streams whose tokens are only known where `streamed_tokens` has them."""
LENGTH_REASON = "length"
FINISH_REASONS = ("stop", LENGTH_REASON, "tool_calls", "content_filter", "function_call")
"""Finish reasons of the OpenAI API."""
OTHER_REASON = "other"

MAX_FRAME_BYTES = 1 << 30
_LENGTH_STRUCT = struct.Struct(">I")
_frame_encoder = msgspec.msgpack.Encoder()


class Reply(msgspec.Struct):
    """Outcome of one request.

    `status`: HTTP status; null without one.
    `first_token`: Time of the first token, on `clock`; null if the answer is not streamed.
    `first_output`: Time of the first token that is no reasoning; null where none came, or without `first_token`.
    `longest_gap_s`: Longest time between two events of the answer; null where they all came at one moment.
    `itl_s`: Mean time between output tokens; null with fewer than two tokens, or where the stream does not tell.
    `llm_s`: Duration of each LLM call of the request; null if unknown.
    `server_runtime_s`: Runtime by the server's clock; null if the server does not report it.
    `answer`: Text of the answer, or of what was taken for it; null if unknown.
    `streamed_tokens`: Tokens that were streamed: those of the answer less the hidden ones; null if unknown.
    `later_tokens`: Streamed tokens after the first event, between whose arrivals time passed, of one choice; null if
    unknown.
    `event_tokens`: Tokens an event, about: the server's count over the events, else pieces of text over events.
    `cached_tokens`: Prompt tokens from the server's prefix cache; null if the server does not report it.
    `stream`: What the stream does not tell, or how it differs from one token an event (`STREAM_NOTES`); null
    otherwise.
    `finish_reason`: Why the answer ended, one of `FINISH_REASONS` or `OTHER_REASON`; null if unknown.
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
    answer: bytes | None = None
    retry_after_s: float | None = None
    streamed_tokens: int | None = None
    later_tokens: float | None = None
    event_tokens: float | None = None
    stream: str | None = None
    cached_tokens: int | None = None
    first_output: float | None = None
    longest_gap_s: float | None = None
    finish_reason: str | None = None


class RequestExtra(msgspec.Struct, frozen=True):
    """Parts of a request besides its prompt.

    `output_tokens`: Longest answer to ask for; null for what the target says.
    """

    output_tokens: int | None = None
    history: tuple[tuple[str, str], ...] = ()


NO_EXTRA = RequestExtra()


class MalformedAnswerError(Exception):
    """The answer does not parse, or exceeds the size limit."""


class CutAnswerError(Exception):
    """The answer ended before it was complete."""


class FailedAnswerError(Exception):
    """The service reported a failure."""


def shorten_detail(text: object) -> str:
    r"""Shorten an error detail to one line without control characters.

    >>> shorten_detail("connection\nreset")
    'connection reset'
    """
    words = " ".join(str(text)[: 4 * MAX_DETAIL].split())
    return "".join(sign for sign in words if sign.isprintable())[:MAX_DETAIL]


def mean_token_gap_s(first: float | None, last: float | None, tokens: int | None) -> float | None:
    """Mean time between tokens, from the arrival of the first and the last token.

    >>> mean_token_gap_s(10.0, 11.0, 5), mean_token_gap_s(10.0, 10.0, 1)
    (0.25, None)
    """
    if first is None or last is None or tokens is None or tokens < 2:
        return None
    return (last - first) / (tokens - 1)


def find_longest_gap_s(times: Sequence[float]) -> float | None:
    """Longest time between events at these moments, which are in order; null where all are one moment.

    >>> find_longest_gap_s([1.0, 1.5, 3.0]), find_longest_gap_s([2.0, 2.0]), find_longest_gap_s([2.0])
    (1.5, None, None)
    """
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0) or None


def name_finish_reason(reason: str | None) -> str | None:
    """A finish reason as tables have it; a server may write anything.

    >>> name_finish_reason("length"), name_finish_reason("<script>"), name_finish_reason("")
    ('length', 'other', None)
    """
    return reason if reason in FINISH_REASONS else OTHER_REASON if reason else None


ProtocolName = Literal["nat", "openai", "responses", "anthropic", "embeddings", "rerank", "http", "function"]
CHAT_PROTOCOLS: tuple[ProtocolName, ...] = ("openai", "responses", "anthropic")
"""Protocols of answers that are streamed token by token."""
VECTOR_PROTOCOLS: tuple[ProtocolName, ...] = ("embeddings", "rerank")
"""Protocols whose answers have no tokens."""


class TargetSpec(msgspec.Struct, frozen=True):
    """Specification of a target, for client processes. Headers hold names of environment variables, never values."""

    protocol: ProtocolName
    url: str = ""
    function: str = ""
    timeout_s: float = 300.0
    header_env: dict[str, str] = {}
    max_answer_bytes: int = 8 << 20
    model: str = ""
    output_tokens: int | None = None
    exact_output: bool = False
    extra_body: bytes = b"{}"
    method: str = "POST"
    body: bytes | None = None
    answer_at: str | None = None
    input_tokens_at: str | None = None
    output_tokens_at: str | None = None


class StepLoad(msgspec.Struct, frozen=True):
    """Load of a step, equal for all client processes; a process takes part `share` of `shares` parts.

    With `watches_refusals` it ends early where the first requests all meet one and the same refusal. `tool_factor`: On
    the times of tools in tasks of agents.
    """

    step: int
    loop: Literal["closed", "open"]
    seed: int
    users: int = 0
    think_s: float = 0.0
    ramp_s: float = 0.0
    rate_per_s: float = 0.0
    arrivals: ArrivalName = "users"
    arrivals_cv: float = 1.0
    trace_s: list[float] = []
    sessions: list[list[int]] = []
    pauses_s: list[float] = []
    max_in_flight: int = 4096
    turns: int = 1
    retries: int = 0
    share: int = 0
    shares: int = 1
    watches_refusals: bool = False
    tool_factor: float = 1.0


class Open(msgspec.Struct, tag=True):
    """First command: target and prompts."""

    target: TargetSpec
    prompts: Prompts


class Begin(msgspec.Struct, tag=True):
    """Start a step; times count from `base` on the shared clock. `allowance` is the maximum number of requests."""

    load: StepLoad
    base: float
    allowance: int | None = None


class Tail(msgspec.Struct, tag=True):
    """Start the tail: further requests only keep up the load."""


class Stop(msgspec.Struct, tag=True):
    """Stop sending and report `Drained` after the requests in flight have ended; with `now`, cancel them."""

    now: bool = False


class Ready(msgspec.Struct, tag=True):
    """The target is open."""


class Rows(msgspec.Struct, tag=True):
    """Finished requests in the order they ended."""

    requests: list[RequestRow]
    in_flight: int
    kept_open: int
    tail_begun: bool
    exhausted: bool
    refusal: str | None = None


class Drained(msgspec.Struct, tag=True):
    """The step is over for this process; reports event loop lag, CPU use, and the first answer, shortened."""

    lags_s: list[float]
    cpu_share: float
    failures: list[MessageKind]
    simulated: bool = False
    example: str | None = None
    notes: list[str] = []
    time_scale: float | None = None


class Broken(msgspec.Struct, tag=True):
    """The process cannot continue, for a reason other than the service."""

    what: str
    facts: dict[str, str | None] = {}


class RequestRow(msgspec.Struct, array_like=True, gc=False):
    """Finished request; times in s since the base of the step."""

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
    answer_bytes: int | None = None
    answer_hash: int | None = None
    retry_after_s: float | None = None
    turn: int | None = None
    worker: int | None = None
    streamed_tokens: int | None = None
    later_tokens: float | None = None
    event_tokens: float | None = None
    stream: str | None = None
    cached_tokens: int | None = None
    first_output_s: float | None = None
    longest_gap_s: float | None = None
    finish_reason: str | None = None
    right: bool | None = None


Command = Open | Begin | Tail | Stop
Report = Ready | Rows | Drained | Broken
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def encode_frame(message: Command | Report) -> bytes:
    """Encode a message with a length prefix."""
    body = _frame_encoder.encode(message)
    return _LENGTH_STRUCT.pack(len(body)) + body


def frame_length(head: bytes) -> int:
    """Decode the length of a message from the four bytes before it.

    >>> frame_length((5).to_bytes(4, "big"))
    5
    """
    length: int = _LENGTH_STRUCT.unpack(head)[0]
    if length > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {length} bytes")
    return length


def decode_command(body: bytes) -> Command:
    """Decode the command in a frame body."""
    command: Command = _command_decoder.decode(body)
    return command


def decode_report(body: bytes) -> Report:
    """Decode the report in a frame body."""
    report: Report = _report_decoder.decode(body)
    return report
