"""Target for any JSON service, with a body template and paths into the answer."""

from __future__ import annotations

import math
from typing import Any

import aiohttp
import msgspec
import orjson
from yarl import URL

from workbench.sizing.load.client_messages import (
    NO_EXTRA,
    CutAnswerError,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    RequestExtra,
    clock,
    find_longest_gap_s,
    mean_token_gap_s,
    shorten_detail,
)
from workbench.sizing.load.service_targets.http_target import HttpTarget, LineSplitter
from workbench.sizing.load.service_targets.openai_target import parse_answer, read_bounded_body

PLACEHOLDER = "{prompt}"
ERROR_STATUSES = ("error", "failed", "failure", "fail")
EVENT_PREFIX = b"intermediate_data:"
ANSWER_PREFIX = b"data:"
ERROR_PREFIX = b"error:"


class Template:
    """JSON body with `{prompt}` in some of its strings.

    >>> Template({"text": "Q: {prompt}", "n": 1}).fill_prompt('say "hi"')
    b'{"text":"Q: say \\\\"hi\\\\"","n":1}'
    """

    def __init__(self, body: Any) -> None:
        # Split once, so that each request costs one join.
        self._parts = orjson.dumps(body).split(PLACEHOLDER.encode())

    def fill_prompt(self, prompt: str) -> bytes:
        """Body of one request."""
        return orjson.dumps(prompt)[1:-1].join(self._parts)


def find_json_value(answer: Any, path: str) -> Any:
    """Value at a path of keys and indices separated by dots; null if the path does not exist.

    >>> find_json_value({"choices": [{"text": "a"}]}, "choices.0.text"), find_json_value({"a": 1}, "a.b")
    ('a', None)
    """
    for step in path.split("."):
        if isinstance(answer, dict):
            answer = answer.get(step)
        elif isinstance(answer, list) and step.isdigit() and int(step) < len(answer):
            answer = answer[int(step)]
        else:
            return None
    return answer


def find_reported_failure(answer: Any) -> str | None:
    """Failure that the body of a successful status reports; null for an answer.

    A non-empty `error` at the top; or a `detail` or `message` beside a code or status of 400 and more, or beside a
    status that says error or failed. What it cannot see: an apology in words, or a failure under another name.

    >>> find_reported_failure({"error": {"message": "out of memory"}})
    'out of memory'
    >>> find_reported_failure({"status": "error", "detail": "no model"})
    'no model'
    >>> find_reported_failure({"error": None, "message": "hello", "code": 200}) is None
    True
    """
    if not isinstance(answer, dict):
        return None
    if error := answer.get("error"):
        return shorten_detail(error.get("message", error) if isinstance(error, dict) else error)
    message = answer.get("detail") or answer.get("message")
    if message and any(_is_error_code(answer.get(name)) for name in ("code", "status", "status_code", "statusCode")):
        return shorten_detail(message)
    return None


def _is_error_code(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in ERROR_STATUSES or (value.isascii() and value.isdigit() and 400 <= int(value[:4]) < 600)
    return isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600


class JsonTarget(HttpTarget):
    """Target whose requests follow a template.

    `url`: Full URL; `{prompt}` in it is replaced, for requests without a body.
    `body`: JSON body with `{prompt}` in its strings; null for none.
    `answer_at`, `input_tokens_at`, `output_tokens_at`: Paths in the answer; an answer without a value at `answer_at`
    is malformed, and so is an empty one. An answer that reports a failure (`find_reported_failure`) has failed,
    whatever its status.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str,
        body: Any,
        answer_at: str | None,
        input_tokens_at: str | None,
        output_tokens_at: str | None,
        **shared: Any,
    ) -> None:
        super().__init__(url.replace(PLACEHOLDER, ""), **shared)
        self.method = method
        self._template = None if body is None else Template(body)
        self._in_url = url if PLACEHOLDER in url else None
        self._answer_at = answer_at
        self._tokens_at = (input_tokens_at, output_tokens_at)

    def request_url(self, prompt: str) -> URL:
        """URL with the quoted prompt in place of `{prompt}`."""
        if self._in_url is None:
            return self._url
        from urllib.parse import quote

        return URL(self._in_url.replace(PLACEHOLDER, quote(prompt, safe="")), encoded=True)

    def request_body(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> bytes | None:
        """Body of the request from the template."""
        del extra
        return None if self._template is None else self._template.fill_prompt(prompt)

    async def read_reply(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Read the whole answer and the values at the paths."""
        del sent
        text = await read_bounded_body(response, self._max_bytes)
        ended = clock()
        answer = parse_answer(text)
        if (failure := find_reported_failure(answer)) is not None:
            raise FailedAnswerError(failure)
        value = answer if self._answer_at is None else find_json_value(answer, self._answer_at)
        if value is None or value in ("", [], {}):
            where = "an empty answer" if self._answer_at is None else f"no value at {self._answer_at} in the answer"
            raise MalformedAnswerError(where)
        counts = (_count_at_path(answer, path) for path in self._tokens_at)
        input_tokens, output_tokens = counts
        shown = text if self._answer_at is None else value.encode() if isinstance(value, str) else orjson.dumps(value)
        return Reply(
            "ok",
            ended,
            status=response.status,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            answer=shown,
        )


def _count_at_path(answer: Any, path: str | None) -> int | None:
    if path is None:
        return None
    value = find_json_value(answer, path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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
            longest_gap_s=find_longest_gap_s(tokens),
            itl_s=mean_token_gap_s(first, last, len(tokens)),
            llm_s=times.llm_s or None,
            server_runtime_s=times.runtime_s,
            input_tokens=times.input_tokens,
            output_tokens=times.output_tokens,
            answer=b"".join(answers),
        )


def _read_stream_line(line: bytes, times: ServerTimes, tokens: list[float], answers: list[bytes]) -> None:
    """Read one line of a stream: its times and token counts; parts of the answer are added to `answers`."""
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
