"""Target for any JSON service, with a body template and paths into the answer."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson
from yarl import URL

from workbench.sizing.load.client_messages import (
    NO_EXTRA,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    RequestExtra,
    clock,
    shorten_detail,
)
from workbench.sizing.load.service_targets.http_target import HttpTarget
from workbench.sizing.load.service_targets.openai_target import read_bounded_body

PLACEHOLDER = "{prompt}"
ERROR_STATUSES = ("error", "failed", "failure", "fail")


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
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedAnswerError(f"answer does not parse: {shorten_detail(error)}") from error
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
