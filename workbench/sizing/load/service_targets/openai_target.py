"""Target for streamed OpenAI chat completions: time to first token, inter-token latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

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
    name_finish_reason,
    shorten_detail,
)
from workbench.sizing.load.service_targets.event_times import EventTimes
from workbench.sizing.load.service_targets.http_target import HttpTarget, LineSplitter

DATA_PREFIX = b"data:"
COMPLETIONS_PATH, CHAT_PATH = "/completions", "/chat/completions"
STREAM_OPTIONS = "stream_options"
ERROR_EVENT = b"event:error"
DONE_MARK = b"[DONE]"
STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/stream+json", "text/plain")
MAX_COUNT = 10**12
FAILED_REASONS = ("error", "abort", "aborted", "cancelled")
"""Finish reasons with which servers end an answer that they did not complete."""


class Delta(msgspec.Struct):
    """Part of an answer."""

    content: Any = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None

    def holds_tokens(self) -> bool:
        return bool(self.text() or self.holds_output())

    def holds_output(self) -> bool:
        """Whether it holds tokens besides reasoning."""
        said = _join_parts(self.content) or _join_parts(self.refusal)
        return bool(said or self.tool_calls or self.function_call or self.holds_sound())

    def holds_sound(self) -> bool:
        return isinstance(self.audio, dict) and bool(self.audio.get("data") or self.audio.get("transcript"))

    def text(self) -> str:
        """Text that a user reads or hears."""
        if self.content and isinstance(self.content, str):
            return self.content  # nearly always; this runs for every event of every answer
        spoken = self.audio.get("transcript") if isinstance(self.audio, dict) else None
        texts = (self.content, self.refusal, self.reasoning_content, self.reasoning, spoken)
        return next((text for text in map(_join_parts, texts) if text), "")

    def token_text(self) -> str | None:
        """Text of everything that tokens were spent on, including tool calls; null for sound without text."""
        text = self.text()
        if not (self.tool_calls or self.function_call):
            return text or (None if self.holds_sound() else "")
        calls = self.tool_calls if isinstance(self.tool_calls, list) else []
        functions = [self.function_call, *(_find_function(call) for call in calls)]
        return text + "".join(map(_write_function, functions))


def _find_function(call: Any) -> Any:
    return (call.get("function") or call.get("custom")) if isinstance(call, dict) else None


def _write_function(function: Any) -> str:
    if not isinstance(function, dict):
        return ""
    return "".join(str(function.get(name) or "") for name in ("name", "arguments", "input"))


def _join_parts(content: Any) -> str:
    """Text of a message: a string, or a list of parts with texts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


class Choice(msgspec.Struct):
    """One of the answers that a chunk goes on with."""

    index: Any = 0
    delta: Delta | None = None
    message: Delta | None = None
    text: Any = None
    finish_reason: str | None = None

    def output(self) -> Delta | None:
        """Part of the answer that it holds: a delta, or the text of a completion that is no chat."""
        return self.delta if self.text is None else Delta(content=self.text)

    def message_or_text(self) -> Delta | None:
        """The whole answer, of a chat or of another completion."""
        return self.message if self.text is None else Delta(content=self.text)


class Usage(msgspec.Struct):
    """Counts of tokens, as servers write them."""

    prompt_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens: Any = None
    completion_tokens_details: Any = None
    reasoning_tokens: Any = None

    def count_cached(self) -> int | None:
        """Prompt tokens that came from the server's prefix cache; null if the server does not report it."""
        return _read_detail(self.prompt_tokens_details, "cached_tokens")

    def count_prompt(self) -> int | None:
        """Tokens of the prompt; null if the server does not report it."""
        return read_count(self.prompt_tokens)

    def count_answer(self) -> int | None:
        """Tokens of the answer, with those that were not streamed; null if the server does not report it."""
        return read_count(self.completion_tokens)

    def count_hidden(self) -> int | None:
        """Tokens of the answer that were not part of its text, as it says; null where it does not."""
        details = self.completion_tokens_details
        reasoning = _read_detail(details, "reasoning_tokens")
        counts = (
            read_count(self.reasoning_tokens) if reasoning is None else reasoning,
            _read_detail(details, "rejected_prediction_tokens"),
        )
        told = [count for count in counts if count is not None]
        return sum(told) if told else None


def _read_detail(details: Any, name: str) -> int | None:
    return read_count(details.get(name)) if isinstance(details, dict) else None


def read_count(value: Any) -> int | None:
    """A count as servers write it: a whole number, as a float or as text too; null for anything else.

    >>> [read_count(value) for value in (12, 12.0, "12", "12.0", 12.5, True, -1, "many", None)]
    [12, 12, 12, 12, None, None, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < MAX_COUNT and number.is_integer() else None


class Chunk(msgspec.Struct):
    """An event of a chat's stream; other protocols translate theirs into it."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None


Event = TypeVar("Event")
ParseEvent = Callable[[bytes], Chunk | None]
_chunk_decoder: msgspec.json.Decoder[Chunk | None] = msgspec.json.Decoder(Chunk | None)


class ChatStream:
    """State of one streamed answer."""

    def __init__(self, max_bytes: int = 8 << 20, parse_event: ParseEvent | None = None) -> None:
        self._parse_event = parse_event or parse_chunk
        self.events = EventTimes()
        self.is_done = False
        self.finish_reason: str | None = None
        self.has_empty_reason = False
        self.streams_reasoning = False
        self.is_error_event = False
        self._max_bytes = max_bytes
        self._prompt_usage = self._answer_usage = Usage()
        self._n_events_counted = 0
        self._texts: list[str] = []
        self._held: list[bytes] = []
        self._held_bytes = 0

    def add_line(self, line: bytes, now: float) -> None:
        """Process a line received at time `now`; an empty one ends an event of several lines."""
        if not line:
            self.end_event(now)
            return
        if not line.startswith(DATA_PREFIX):
            self.is_error_event = self.is_error_event or line.replace(b" ", b"") == ERROR_EVENT
            return
        text = line[len(DATA_PREFIX) :].strip()
        if self.is_error_event:
            raise FailedAnswerError(shorten_detail(text.decode(errors="replace")))
        if text == DONE_MARK:
            self.is_done = True
        elif self._held:
            self._hold_line(text)
        else:
            self._add_data(text, now)

    def end_event(self, now: float) -> None:
        """Process an event whose data came in several lines, if there is one."""
        text = b"\n".join(self._held).strip()
        self._held, self._held_bytes = [], 0
        if text:
            self._add_chunk(self._parse_event(text), now)

    def _add_data(self, text: bytes, now: float) -> None:
        """Process a line of data: a whole event, or the first line of one."""
        try:
            chunk = self._parse_event(text)
        except BrokenJsonError:
            self._hold_line(text)
            return
        self._add_chunk(chunk, now)

    def _hold_line(self, text: bytes) -> None:
        self._held_bytes += len(text)
        if self._held_bytes > self._max_bytes:
            raise MalformedAnswerError(f"an event of more than {self._max_bytes} bytes")
        self._held.append(text)

    def _add_chunk(self, chunk: Chunk | None, now: float) -> None:
        if chunk is None:
            return  # OpenAI's own client skips it, too
        if chunk.error is not None:
            raise _build_failure(chunk.error)
        for choice in chunk.choices or ():
            self._add_choice(choice, now)
        if chunk.usage is not None:
            self._add_usage(chunk.usage)

    def _add_choice(self, choice: Choice, now: float) -> None:
        if choice.finish_reason in FAILED_REASONS:
            raise FailedAnswerError(f"finish_reason {choice.finish_reason}")
        # An empty reason is none: some servers send it with every event.
        self.finish_reason = choice.finish_reason or self.finish_reason
        self.has_empty_reason = self.has_empty_reason or choice.finish_reason == ""
        delta = choice.output()
        if delta is not None and delta.holds_tokens():
            self.streams_reasoning = self.streams_reasoning or bool(delta.reasoning_content or delta.reasoning)
            index = choice.index if isinstance(choice.index, int) else 0
            self.events.add_event(delta.token_text(), now, index, is_output=delta.holds_output())
            self._texts.append(delta.text())

    def _add_usage(self, usage: Usage) -> None:
        if usage.count_prompt() is not None:
            self._prompt_usage = usage
        if usage.count_answer() is not None:
            self._answer_usage, self._n_events_counted = usage, self.events.n_events

    def _find_answer_count(self) -> tuple[int | None, int | None]:
        """Tokens of the answer and those of them that were not streamed, by the last count.

        One that came before the last token is none: it is of a part of the answer.
        """
        counted = self._answer_usage.count_answer()
        if counted is None or self._n_events_counted < self.events.n_events:
            return None, None
        hidden = self._answer_usage.count_hidden()
        return counted, 0 if self.streams_reasoning and hidden is not None else hidden

    def build_reply(self, ended: float, status: int, sent: float) -> Reply:
        """Build the reply of the request."""
        self.end_event(ended)
        if not (self.is_done or self.finish_reason):
            raise CutAnswerError("the stream ended without [DONE] or a finish reason")
        if not self.events.n_events:
            raise MalformedAnswerError("the stream holds no token")
        if not self.finish_reason and not self.has_empty_reason:
            raise MalformedAnswerError("the stream has no finish_reason: the server did not end the answer")
        counted, hidden = self._find_answer_count()
        timing = self.events.measure(sent, counted, hidden)
        return Reply(
            "ok",
            ended,
            status=status,
            first_token=timing.first,
            first_output=timing.first_output,
            longest_gap_s=timing.longest_gap_s,
            itl_s=timing.itl_s,
            llm_s=[ended - sent],
            input_tokens=self._prompt_usage.count_prompt(),
            cached_tokens=self._prompt_usage.count_cached(),
            output_tokens=timing.streamed_tokens if counted is None else counted,
            answer="".join(self._texts).encode(errors="replace"),
            streamed_tokens=timing.streamed_tokens,
            later_tokens=timing.later_tokens,
            event_tokens=timing.event_tokens,
            stream=timing.note,
            finish_reason=name_finish_reason(self.finish_reason),
        )


class BrokenJsonError(MalformedAnswerError):
    """What came is no JSON, or not the whole of it."""


def _build_failure(error: Any) -> FailedAnswerError:
    return FailedAnswerError(shorten_detail(error.get("message", error) if isinstance(error, dict) else error))


def parse_chunk(text: bytes) -> Chunk | None:
    """An event of a chat's stream, or a whole completion."""
    return decode_event(text, _chunk_decoder)


def decode_event(text: bytes, decoder: msgspec.json.Decoder[Event]) -> Event:
    """Decode an event; one that is no JSON may be the first line of several."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        is_broken = isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError)
        kind = BrokenJsonError if is_broken else MalformedAnswerError
        raise kind(f"event does not parse: {shorten_detail(error)}") from error


class OpenAiTarget(HttpTarget):
    """`POST {url}/v1/chat/completions` streamed; with a prompt at a path `/completions` that is no chat's."""

    accepts = "text/event-stream"
    limit_field = "max_tokens"
    own_fields: ClassVar[dict[str, Any]] = {"stream": True, STREAM_OPTIONS: {"include_usage": True}}

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
        limit = {} if output_tokens is None else {self.limit_field: output_tokens}
        fields = {"model": model, **self.own_fields, **limit, **extra}
        self._fixed = {name: value for name, value in fields.items() if value is not None}

    @staticmethod
    def parse_event(text: bytes) -> Chunk | None:
        """An event of the stream, as one of a chat's."""
        return parse_chunk(text)

    @staticmethod
    def parse_answer(text: bytes) -> Chunk | None:
        """A whole answer, as a completion of a chat."""
        return parse_chunk(text)

    def build_content(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        """Fields of the body that hold the messages of a session."""
        if self._url.path.endswith(COMPLETIONS_PATH) and not self._url.path.endswith(CHAT_PATH):
            return {"prompt": "\n".join(message["content"] for message in messages)}
        return {"messages": messages}

    def request_body(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> bytes:
        """Body with the user's message, after those of the session, and the length of the answer."""
        messages = [
            {"role": role, "content": text}
            for turn in extra.history
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        messages.append({"role": "user", "content": prompt})
        body = self._fixed | self.build_content(messages)
        if extra.output_tokens is not None:
            body[self.limit_field] = extra.output_tokens
        if self._is_exact and self.limit_field in body:
            # Fields of vLLM, NIM and SGLang beside those of the OpenAI API: else a model ends when it likes.
            body |= {"ignore_eos": True, "min_tokens": body[self.limit_field]}
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
        lines, stream = LineSplitter(self._max_bytes), ChatStream(self._max_bytes, self.parse_event)
        content = response.content
        try:
            while not content.at_eof():
                chunk = await content.readany()
                now = clock()
                for line in lines.add_chunk(chunk):
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
        chunk = self.parse_answer(text)
        if chunk is not None and chunk.error is not None:
            raise _build_failure(chunk.error)
        if chunk is None or not chunk.choices:
            raise MalformedAnswerError("answer without choices")
        messages = [message for choice in chunk.choices if (message := choice.message_or_text()) is not None]
        if not any(message.holds_tokens() for message in messages):
            raise MalformedAnswerError("answer without a token")
        if failed := [choice.finish_reason for choice in chunk.choices if choice.finish_reason in FAILED_REASONS]:
            raise FailedAnswerError(f"finish_reason {failed[0]}")
        usage = chunk.usage or Usage()
        counted, hidden = usage.count_answer(), usage.count_hidden()
        is_shown = any(message.reasoning_content or message.reasoning for message in messages)
        return Reply(
            "ok",
            ended,
            status=response.status,
            llm_s=[ended - sent],
            input_tokens=usage.count_prompt(),
            cached_tokens=usage.count_cached(),
            output_tokens=counted,
            streamed_tokens=counted - hidden if counted and hidden and not is_shown and hidden < counted else None,
            answer="".join(message.text() for message in messages).encode(errors="replace"),
            finish_reason=name_finish_reason(
                next((choice.finish_reason for choice in reversed(chunk.choices) if choice.finish_reason), None)
            ),
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


def parse_answer(text: bytes) -> Any:
    """Parse a whole answer that must be JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedAnswerError(f"answer does not parse: {shorten_detail(error)}") from error
