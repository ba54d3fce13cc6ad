"""Target for workflows served by the NeMo Agent Toolkit (`POST /generate/full`)."""

from __future__ import annotations

import math

import aiohttp
import msgspec
import orjson

from workbench.sizing.load.client_messages import (
    NO_EXTRA,
    CutAnswerError,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    RequestExtra,
    clock,
    mean_token_gap_s,
    shorten_detail,
)
from workbench.sizing.load.service_targets.http_target import HttpTarget, LineSplitter

EVENT_PREFIX = b"intermediate_data:"
ANSWER_PREFIX = b"data:"
ERROR_PREFIX = b"error:"


class _Tokens(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Usage(msgspec.Struct, gc=False):
    token_usage: _Tokens | None = None


class ServerEvent(msgspec.Struct, gc=False):
    """Fields that are decoded from a server event."""

    event_type: str
    event_timestamp: float
    UUID: str = ""
    usage_info: _Usage | None = None


class _Line(msgspec.Struct, gc=False):
    payload: str


_line_decoder = msgspec.json.Decoder(_Line)
_event_decoder = msgspec.json.Decoder(ServerEvent)


def parse_event_line(line: bytes) -> ServerEvent:
    """Parse the event in a line `intermediate_data: {…}`, whose payload is JSON within JSON.

    >>> payload = '{"event_type": "LLM_START", "event_timestamp": 1.5}'
    >>> parse_event_line(b"intermediate_data:" + orjson.dumps({"payload": payload})).event_timestamp
    1.5
    """
    try:
        return _event_decoder.decode(_line_decoder.decode(line[len(EVENT_PREFIX) :]).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswerError(f"event does not parse: {shorten_detail(error)}") from error


class ServerTimes:
    """Totals over the events of one request, on the server's clock."""

    def __init__(self) -> None:
        self._first = math.inf
        self._last = -math.inf
        self.llm_s: list[float] = []
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self._started: dict[str, float] = {}

    def add_event(self, event: ServerEvent) -> None:
        """Add one event; start and end of a call are paired by UUID, so parallel calls do not mix."""
        at, kind = event.event_timestamp, event.event_type
        if at < self._first:
            self._first = at
        if at > self._last:
            self._last = at
        if kind == "LLM_START":
            self._started[event.UUID] = at
        elif kind == "LLM_END":
            started = self._started.pop(event.UUID, None)
            # If the server clock was set back, the call has no duration.
            if started is not None and at >= started:
                self.llm_s.append(at - started)
            self._count_tokens(event)

    def _count_tokens(self, event: ServerEvent) -> None:
        if event.usage_info is not None and event.usage_info.token_usage is not None:
            used = event.usage_info.token_usage
            self.input_tokens = (self.input_tokens or 0) + used.prompt_tokens
            self.output_tokens = (self.output_tokens or 0) + used.completion_tokens

    @property
    def runtime_s(self) -> float | None:
        """Time from the first to the last event; null with fewer than two events."""
        return self._last - self._first if self._last > self._first else None


class NatTarget(HttpTarget):
    """`POST {url}/generate/full` with `{"input_message": prompt}`."""

    accepts = "text/event-stream"

    def request_body(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> bytes:
        """Body with the field `input_message`, as the toolkit's calculator sends it."""
        del extra
        return orjson.dumps({"input_message": prompt})

    async def read_reply(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Read the events and then the answer."""
        del sent
        lines, times = LineSplitter(self._max_bytes), ServerTimes()
        answers: list[bytes] = []
        tokens: list[float] = []
        content = response.content
        while not content.at_eof():
            for line in lines.add_chunk(await content.readany()):
                if line:
                    _read_stream_line(line, times, tokens, answers)
        _read_stream_line(lines.take_rest(), times, tokens, answers)
        ended = clock()
        if not answers:
            raise CutAnswerError("the stream ended without an answer")
        first, last = (tokens[0], tokens[-1]) if tokens else (None, None)
        return Reply(
            "ok",
            ended,
            status=response.status,
            first_token=first,
            itl_s=mean_token_gap_s(first, last, len(tokens)),
            llm_s=times.llm_s or None,
            server_runtime_s=times.runtime_s,
            input_tokens=times.input_tokens,
            output_tokens=times.output_tokens,
            answer=b"".join(answers),
        )


def _read_stream_line(line: bytes, times: ServerTimes, tokens: list[float], answers: list[bytes]) -> None:
    """Process one line; what is part of the answer is added to `answers`."""
    if line.startswith(EVENT_PREFIX):
        event = parse_event_line(line)
        times.add_event(event)
        if event.event_type == "LLM_NEW_TOKEN":
            tokens.append(clock())
    elif line.startswith(ANSWER_PREFIX):
        _check_answer(line[len(ANSWER_PREFIX) :])
        answers.append(line[len(ANSWER_PREFIX) :])
    elif line.startswith(ERROR_PREFIX):
        raise FailedAnswerError(shorten_detail(line.decode(errors="replace")))


def _check_answer(text: bytes) -> None:
    if text.strip() == b"[DONE]":
        return
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswerError(f"answer does not parse: {shorten_detail(error)}") from error
    if isinstance(answer, dict) and "value" not in answer and ("error" in answer or "code" in answer):
        raise FailedAnswerError(shorten_detail(answer.get("message") or answer.get("error") or answer))
