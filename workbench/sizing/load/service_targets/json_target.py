"""Target for any JSON service, with a body template and paths into the answer."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson
from yarl import URL

from workbench.sizing.load.client_messages import MalformedAnswerError, Reply, clock, shorten_detail
from workbench.sizing.load.service_targets.http_target import HttpTarget
from workbench.sizing.load.service_targets.openai_target import read_bounded_body

PLACEHOLDER = "{prompt}"


class Template:
    """JSON body with `{prompt}` in some of its strings.

    Examples
    --------
    >>> Template({"text": "Q: {prompt}", "n": 1}).fill_prompt('say "hi"')
    b'{"text":"Q: say \\\\"hi\\\\"","n":1}'
    """

    def __init__(self, body: Any) -> None:
        # Split once, so that each request costs one join.
        self._parts = orjson.dumps(body).split(PLACEHOLDER.encode())

    @property
    def takes_a_prompt(self) -> bool:
        """Whether the template contains `{prompt}`."""
        return len(self._parts) > 1

    def fill_prompt(self, prompt: str) -> bytes:
        """Body of one request."""
        return orjson.dumps(prompt)[1:-1].join(self._parts)


def find_json_value(answer: Any, path: str) -> Any:
    """Value at a path of keys and indices separated by dots; null if the path does not exist.

    Examples
    --------
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


class JsonTarget(HttpTarget):
    """Target whose requests follow a template.

    Parameters
    ----------
    url
        Full URL; `{prompt}` in it is replaced, for requests without a body.
    method
        HTTP method.
    body
        JSON body with `{prompt}` in its strings; null for none.
    answer_at, input_tokens_at, output_tokens_at
        Paths in the answer; an answer without a value at `answer_at` is malformed.
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

    def request_body(self, prompt: str) -> bytes | None:
        """Body of the request from the template."""
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
        if self._answer_at is not None and find_json_value(answer, self._answer_at) is None:
            raise MalformedAnswerError(f"no value at {self._answer_at} in the answer")
        counts = (_count_at_path(answer, path) for path in self._tokens_at)
        input_tokens, output_tokens = counts
        return Reply("ok", ended, status=response.status, input_tokens=input_tokens, output_tokens=output_tokens)


def _count_at_path(answer: Any, path: str | None) -> int | None:
    if path is None:
        return None
    found = find_json_value(answer, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
