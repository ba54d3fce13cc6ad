"""Target for streamed OpenAI chat completions: time to first token, inter-token latency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    shorten_detail,
)
from workbench.sizing.load.service_targets.http_target import EventTimes, HttpTarget, LineSplitter

DATA_PREFIX = b"data:"
STREAM_OPTIONS = "stream_options"
ERROR_EVENT = b"event:error"
DONE_MARK = b"[DONE]"
STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/stream+json", "text/plain")
FAILED_REASONS = ("error", "abort", "aborted", "cancelled")
"""Finish reasons with which servers end an answer that they did not complete."""


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None

    def holds_tokens(self) -> bool:
        return bool(self.text() or self.tool_calls)

    def text(self) -> str:
        return _join_parts(self.content) or self.reasoning_content or self.reasoning or ""

    def token_text(self) -> str:
        """Text of everything that tokens were spent on, including tool calls."""
        calls = self.tool_calls if isinstance(self.tool_calls, list) else []
        functions = [
            call["function"] for call in calls if isinstance(call, dict) and isinstance(call.get("function"), dict)
        ]
        return self.text() + "".join(
            str(function.get("name") or "") + str(function.get("arguments") or "") for function in functions
        )


def _join_parts(content: Any) -> str:
    """Text of a message: a string, or a list of parts with texts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _TokenDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens: int | None = None
    completion_tokens_details: _TokenDetails | None = None

    def count_cached(self) -> int | None:
        """Prompt tokens that came from the server's prefix cache; null where it does not say."""
        return None if self.prompt_tokens_details is None else self.prompt_tokens_details.cached_tokens


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_chunk_decoder = msgspec.json.Decoder(_Chunk | None)


class ChatStream:
    """State of one streamed answer."""

    def __init__(self) -> None:
        self.events = EventTimes()
        self.is_done = False
        self.has_finish_reason = False
        self.has_empty_reason = False
        self.streams_reasoning = False
        self.is_error_event = False
        self.usage = _Usage()
        self._texts: list[str] = []

    def add_line(self, line: bytes, now: float) -> None:
        """Process a line received at time `now`."""
        if not line.startswith(DATA_PREFIX):
            self.is_error_event = self.is_error_event or line.replace(b" ", b"") == ERROR_EVENT
            return
        text = line[len(DATA_PREFIX) :].strip()
        if self.is_error_event:
            raise FailedAnswerError(shorten_detail(text.decode(errors="replace")))
        if text == DONE_MARK:
            self.is_done = True
            return
        chunk = _parse_chunk(text)
        if chunk is None:
            return  # OpenAI's own client skips it, too
        if chunk.error is not None:
            raise _build_failure(chunk.error)
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices or ():
            self._add_choice(choice, now)

    def _add_choice(self, choice: _Choice, now: float) -> None:
        if choice.finish_reason in FAILED_REASONS:
            raise FailedAnswerError(f"finish_reason {choice.finish_reason}")
        # An empty reason is none: some servers send it with every event.
        self.has_finish_reason = self.has_finish_reason or bool(choice.finish_reason)
        self.has_empty_reason = self.has_empty_reason or choice.finish_reason == ""
        delta = choice.delta
        if delta is not None and delta.holds_tokens():
            self.streams_reasoning = self.streams_reasoning or bool(delta.reasoning_content or delta.reasoning)
            self.events.add_event(delta.token_text(), now)
            self._texts.append(delta.text())

    def build_reply(self, ended: float, status: int, sent: float) -> Reply:
        """Build the reply of the request."""
        if not (self.is_done or self.has_finish_reason):
            raise CutAnswerError("the stream ended without [DONE] or a finish reason")
        if not self.events.n_events:
            raise MalformedAnswerError("the stream holds no token")
        if not self.has_finish_reason and not self.has_empty_reason:
            raise MalformedAnswerError("the stream has no finish_reason: the server did not end the answer")
        counted, details = self.usage.completion_tokens, self.usage.completion_tokens_details
        hidden = None if details is None else details.reasoning_tokens
        timing = self.events.measure(sent, counted, 0 if self.streams_reasoning and hidden is not None else hidden)
        return Reply(
            "ok",
            ended,
            status=status,
            first_token=timing.first,
            itl_s=timing.itl_s,
            llm_s=[ended - sent],
            input_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.count_cached(),
            output_tokens=timing.streamed_tokens if counted is None else counted,
            answer="".join(self._texts).encode(errors="replace"),
            streamed_tokens=timing.streamed_tokens,
            later_tokens=timing.later_tokens,
            event_tokens=timing.event_tokens,
            stream=timing.note,
        )


def _build_failure(error: Any) -> FailedAnswerError:
    return FailedAnswerError(shorten_detail(error.get("message", error) if isinstance(error, dict) else error))


def _parse_chunk(text: bytes) -> _Chunk | None:
    try:
        chunk: _Chunk | None = _chunk_decoder.decode(text)
        return chunk
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswerError(f"event does not parse: {shorten_detail(error)}") from error


class OpenAiTarget(HttpTarget):
    """`POST {url}/v1/chat/completions` with `stream: true`."""

    accepts = "text/event-stream"

    def __init__(
        self,
        url: str,
        *,
        model: str,
        output_tokens: int | None,
        extra: Mapping[str, Any],
        exact_output: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(url, **shared)
        self._is_exact = exact_output
        limit = {} if output_tokens is None else {"max_tokens": output_tokens}
        fields = {"model": model, "stream": True, STREAM_OPTIONS: {"include_usage": True}, **limit, **extra}
        self._fixed = {name: value for name, value in fields.items() if value is not None}

    def request_body(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> bytes:
        """Body with the user's message, after those of the session, and the length of the answer."""
        messages = [
            {"role": role, "content": text}
            for turn in extra.history
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        body = self._fixed | {"messages": [*messages, {"role": "user", "content": prompt}]}
        if extra.output_tokens is not None:
            body["max_tokens"] = extra.output_tokens
        if self._is_exact and "max_tokens" in body:
            # Fields of vLLM, NIM and SGLang beside those of the OpenAI API: else a model ends when it likes.
            body |= {"ignore_eos": True, "min_tokens": body["max_tokens"]}
        return orjson.dumps(body)

    def adapt_to_refusal(self, reply: Reply) -> str | None:
        """Some servers refuse fields that they do not know, such as stream_options: then go on without it."""
        is_refused = reply.status in (400, 422) and STREAM_OPTIONS in (reply.detail or "")
        if not is_refused or self._fixed.pop(STREAM_OPTIONS, None) is None:
            return None
        return f"the server refuses {STREAM_OPTIONS} ({reply.status}): asked without it, so it may not count tokens"

    async def read_reply(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Read the events with their arrival times."""
        if response.content_type == "application/json":
            return await self._read_whole_answer(response, sent)
        lines, stream = LineSplitter(self._max_bytes), ChatStream()
        content = response.content
        try:
            while not content.at_eof():
                chunk = await content.readany()
                now = clock()
                for line in lines.add_chunk(chunk):
                    if line:
                        stream.add_line(line, now)
        except aiohttp.ClientPayloadError:
            if not stream.is_done:  # all was sent, and only the last chunk's end is missing
                raise
        ended = clock()
        stream.add_line(lines.take_rest(), ended)
        if not stream.events.n_events and response.content_type not in STREAM_TYPES and not stream.is_done:
            raise MalformedAnswerError(f"{response.content_type or 'no content type'}, and no stream of events")
        return stream.build_reply(ended, response.status, sent)

    async def _read_whole_answer(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Read an answer that is not streamed; it has no time to first token."""
        text = await read_bounded_body(response, self._max_bytes)
        ended = clock()
        chunk = _parse_chunk(text)
        if chunk is not None and chunk.error is not None:
            raise _build_failure(chunk.error)
        if chunk is None or not chunk.choices:
            raise MalformedAnswerError("answer without choices")
        if not any(choice.message is not None and choice.message.holds_tokens() for choice in chunk.choices):
            raise MalformedAnswerError("answer without a token")
        if failed := [choice.finish_reason for choice in chunk.choices if choice.finish_reason in FAILED_REASONS]:
            raise FailedAnswerError(f"finish_reason {failed[0]}")
        usage = chunk.usage or _Usage()
        texts = [choice.message.text() for choice in chunk.choices if choice.message is not None]
        return Reply(
            "ok",
            ended,
            status=response.status,
            llm_s=[ended - sent],
            input_tokens=usage.prompt_tokens,
            cached_tokens=usage.count_cached(),
            output_tokens=usage.completion_tokens,
            answer="".join(texts).encode(),
        )


async def read_bounded_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Read a whole answer up to a size limit."""
    parts, n_bytes = [], 0
    content = response.content
    while not content.at_eof():
        part = await content.readany()
        n_bytes += len(part)
        if n_bytes > max_bytes:
            raise MalformedAnswerError(f"answer of more than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)
