"""A workflow served by the NeMo Agent Toolkit: `POST /generate/full`, whose stream carries the server's own times."""

from __future__ import annotations

import math

import aiohttp
import msgspec
import orjson

from workbench.sizing.driving.lines import Lines
from workbench.sizing.driving.reply import (
    CutAnswerError,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    brief,
    clock,
    token_gap_s,
)
from workbench.sizing.driving.targets.http_session import HttpTarget

EVENT = b"intermediate_data:"
ANSWER = b"data:"
ERROR = b"error:"


class _Tokens(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Usage(msgspec.Struct, gc=False):
    token_usage: _Tokens | None = None


class Event(msgspec.Struct, gc=False):
    """What is read of an event of the server; the rest of it is passed over undecoded."""

    event_type: str
    event_timestamp: float
    UUID: str = ""
    usage_info: _Usage | None = None


class _Line(msgspec.Struct, gc=False):
    payload: str


_line = msgspec.json.Decoder(_Line)
_event = msgspec.json.Decoder(Event)


def event_in(line: bytes) -> Event:
    """The event in a line `intermediate_data: {…}`; its payload is JSON within JSON.

    Raises
    ------
    MalformedAnswerError
        It is not.

    Examples
    --------
    >>> payload = '{"event_type": "LLM_START", "event_timestamp": 1.5}'
    >>> event_in(b"intermediate_data:" + orjson.dumps({"payload": payload})).event_timestamp
    1.5
    """
    try:
        return _event.decode(_line.decode(line[len(EVENT) :]).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswerError(f"an event that does not parse: {brief(error)}") from error


class ServerTimes:
    """What the events of one request add up to, on the server's clock."""

    def __init__(self) -> None:
        self._first = math.inf
        self._last = -math.inf
        self.llm_s: list[float] = []
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self._started: dict[str, float] = {}

    def add(self, event: Event) -> None:
        """Take in one event; calls are paired by UUID, so that calls side by side are told apart."""
        at, kind = event.event_timestamp, event.event_type
        if at < self._first:
            self._first = at
        if at > self._last:
            self._last = at
        if kind == "LLM_START":
            self._started[event.UUID] = at
        elif kind == "LLM_END":
            started = self._started.pop(event.UUID, None)
            # Clocks of servers are set back now and then; such a call has no duration.
            if started is not None and at >= started:
                self.llm_s.append(at - started)
            self._count(event)

    def _count(self, event: Event) -> None:
        if event.usage_info is not None and event.usage_info.token_usage is not None:
            used = event.usage_info.token_usage
            self.input_tokens = (self.input_tokens or 0) + used.prompt_tokens
            self.output_tokens = (self.output_tokens or 0) + used.completion_tokens

    @property
    def runtime_s(self) -> float | None:
        """Last event minus first; null without two of them."""
        return self._last - self._first if self._last > self._first else None


class NatTarget(HttpTarget):
    """`POST {url}/generate/full` with `{"input_message": prompt}`."""

    accepts = "text/event-stream"

    def body(self, prompt: str) -> bytes:
        """The toolkit names the argument of the workflow's function; `input_message` is the calculator's."""
        return orjson.dumps({"input_message": prompt})

    async def read(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Events as they come, then the answer."""
        del sent
        lines, times = Lines(self._max_bytes), ServerTimes()
        answered = False
        tokens: list[float] = []
        content = response.content
        while not content.at_eof():
            for line in lines.feed(await content.readany()):
                if line:
                    answered = _take(line, times, tokens) or answered
        answered = _take(lines.rest(), times, tokens) or answered
        ended = clock()
        if not answered:
            raise CutAnswerError("the stream ended without an answer")
        first, last = (tokens[0], tokens[-1]) if tokens else (None, None)
        return Reply(
            "ok",
            ended,
            status=response.status,
            first_token=first,
            itl_s=token_gap_s(first, last, len(tokens)),
            llm_s=times.llm_s or None,
            server_runtime_s=times.runtime_s,
            input_tokens=times.input_tokens,
            output_tokens=times.output_tokens,
        )


def _take(line: bytes, times: ServerTimes, tokens: list[float]) -> bool:
    """Take in one line; is it part of the answer?"""
    if line.startswith(EVENT):
        event = event_in(line)
        times.add(event)
        if event.event_type == "LLM_NEW_TOKEN":
            tokens.append(clock())
    elif line.startswith(ANSWER):
        return _answer(line[len(ANSWER) :])
    elif line.startswith(ERROR):
        raise FailedAnswerError(brief(line.decode(errors="replace")))
    return False


def _answer(text: bytes) -> bool:
    if text.strip() == b"[DONE]":
        return True
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswerError(f"an answer that does not parse: {brief(error)}") from error
    if isinstance(answer, dict) and "value" not in answer and ("error" in answer or "code" in answer):
        raise FailedAnswerError(brief(answer.get("message") or answer.get("error") or answer))
    return True
