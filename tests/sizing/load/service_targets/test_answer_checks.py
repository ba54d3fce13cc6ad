"""What counts as an answer: a successful status alone does not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from aiohttp import web

from workbench.sizing.load.client_messages import CutAnswerError, FailedAnswerError, MalformedAnswerError, Reply
from workbench.sizing.load.service_targets.http_target import HttpTarget
from workbench.sizing.load.service_targets.json_target import JsonTarget, find_reported_failure
from workbench.sizing.load.service_targets.openai_target import ChatStream, OpenAiTarget

TOKEN = {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": None}]}
EMPTY = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def stream(events: Iterable[dict[str, Any] | str], lines: Iterable[bytes] = ()) -> Reply:
    found = ChatStream()
    for line in lines:
        found.add_line(line, 1.0)
    for event in events:
        found.add_line(b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode(), 1.0)
    return found.build_reply(2.0, 200, 0.5)


def test_a_stream_with_a_token_and_an_end_is_an_answer() -> None:
    assert stream([EMPTY, TOKEN, TOKEN, END, "[DONE]"]).output_tokens == 2
    assert stream([TOKEN, END]).outcome == "ok", "some servers send no [DONE]"
    tools = {"choices": [{"delta": {"tool_calls": [{"index": 0}]}, "finish_reason": "tool_calls"}]}
    assert stream([tools]).outcome == "ok", "a call of a tool is an answer, too"


@pytest.mark.parametrize(
    ("events", "error", "told"),
    [
        ([], CutAnswerError, "without"),
        ([TOKEN], CutAnswerError, "without"),
        (["[DONE]"], MalformedAnswerError, "no token"),
        ([EMPTY, END, "[DONE]"], MalformedAnswerError, "no token"),
        ([TOKEN, "[DONE]"], MalformedAnswerError, "no finish_reason"),
        ([TOKEN, {"error": {"message": "out of memory"}}], FailedAnswerError, "out of memory"),
        ([TOKEN, {"error": "gone"}, END, "[DONE]"], FailedAnswerError, "gone"),
    ],
)
def test_a_stream_without_an_answer_is_none(events: list[Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        stream(events)


def test_an_error_event_fails_whatever_its_data() -> None:
    with pytest.raises(FailedAnswerError, match="overloaded"):
        stream(["overloaded"], [b"event: error"])


@pytest.mark.parametrize(
    "body",
    [
        {"error": "out of memory"},
        {"error": {"code": 7}, "answer": "yes"},
        {"detail": "no model", "status": "error"},
        {"message": "try later", "code": 503},
        {"message": "try later", "status_code": "429"},
        {"detail": [{"msg": "field required"}], "status": 422},
    ],
)
def test_a_failure_in_a_body_is_seen(body: Any) -> None:
    assert find_reported_failure(body)


@pytest.mark.parametrize(
    "body",
    [
        {"answer": "yes"},
        {"error": None, "answer": "yes"},
        {"error": "", "answer": "yes"},
        {"error": False, "message": "hello"},
        {"message": "hello", "code": 200},
        {"message": "hello", "status": "ok"},
        {"message": "hello", "status": True},
        {"detail": "long", "code": "E401x"},
        ["error"],
        "error",
        429,
    ],
)
def test_an_answer_is_no_failure(body: Any) -> None:
    assert find_reported_failure(body) is None


def send_once(target_of: Any, body: Any) -> Reply:
    """Reply of a target to a server that answers 200 with this body."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body)

    async def run() -> Reply:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        target: HttpTarget = target_of(f"http://127.0.0.1:{port}")
        await target.open()
        try:
            return await target.send("q")
        finally:
            await target.close()
            await runner.cleanup()

    return asyncio.run(run())


def json_target(answer_at: str | None) -> Any:
    def build(url: str) -> JsonTarget:
        paths = {"answer_at": answer_at, "input_tokens_at": None, "output_tokens_at": None}
        shared: Any = {"timeout_s": 10, "headers": {}, "max_answer_bytes": 1 << 20}
        return JsonTarget(url, method="POST", body={"q": "{prompt}"}, **paths, **shared)

    return build


@pytest.mark.parametrize(
    ("answer_at", "body", "outcome"),
    [
        (None, {"answer": "yes"}, "ok"),
        (None, {"error": "out of memory"}, "failed"),
        (None, {}, "malformed"),
        (None, "", "malformed"),
        (None, None, "malformed"),
        (None, 0, "ok"),
        ("answer", {"answer": "yes"}, "ok"),
        ("answer", {"answer": 0}, "ok"),
        ("answer", {"answer": ""}, "malformed"),
        ("answer", {"answer": []}, "malformed"),
        ("answer", {"text": "yes"}, "malformed"),
        ("answer", {"answer": "yes", "error": "half of it is missing"}, "failed"),
    ],
)
def test_json_with_status_200_is_an_answer_only_with_one_in_it(answer_at: str | None, body: Any, outcome: str) -> None:
    found = send_once(json_target(answer_at), body)
    assert (found.outcome, found.status) == (outcome, 200)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}, "ok"),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}, "malformed"),
        ({"choices": [{"message": {}}]}, "malformed"),
        ({"choices": []}, "malformed"),
        ({"error": {"message": "no such model"}}, "failed"),
    ],
)
def test_a_chat_answer_that_is_not_streamed_needs_a_token(body: Any, outcome: str) -> None:
    def build(url: str) -> OpenAiTarget:
        shared: Any = {"timeout_s": 10, "headers": {}, "max_answer_bytes": 1 << 20}
        return OpenAiTarget(url, model="m", output_tokens=4, extra={}, **shared)

    found = send_once(build, body)
    assert (found.outcome, found.status) == (outcome, 200)
