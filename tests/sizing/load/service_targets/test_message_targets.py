"""Events of the responses and the messages API become those of a chat: tokens, counts, ends, failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workbench.sizing.load.client_messages import CutAnswerError, FailedAnswerError, Reply, RequestExtra
from workbench.sizing.load.service_targets.message_targets import (
    AnthropicTarget,
    ResponsesTarget,
    translate_message,
    translate_message_event,
    translate_response,
    translate_response_event,
)
from workbench.sizing.load.service_targets.openai_target import ChatStream, ParseEvent
from workbench.sizing.load.service_targets.vector_targets import EmbeddingsTarget, RerankTarget

SHARED: dict[str, Any] = {"timeout_s": 1.0, "headers": {}, "max_answer_bytes": 1 << 20, "model": "m", "extra": {}}
USAGE = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 1},
}
RESPONSE_EVENTS = [
    {"type": "response.created", "response": {"status": "in_progress"}},
    {"type": "response.in_progress", "response": {"status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
    {"type": "response.output_text.delta", "delta": "Good"},
    {"type": "response.output_text.delta", "delta": " day"},
    {"type": "response.output_text.delta", "delta": "."},
    {"type": "response.output_text.done", "text": "Good day."},
    {"type": "response.completed", "response": {"status": "completed", "usage": USAGE, "output": []}},
]
MESSAGE_EVENTS = [
    {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 5, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Good"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " day"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]


def read_stream(events: list[dict[str, Any]], translate: ParseEvent) -> Reply:
    """The reply of a stream whose events come a tenth of a second apart."""
    stream = ChatStream(parse_event=translate)
    for place, event in enumerate(events):
        now = 10.0 + 0.1 * place
        stream.add_line(f"event: {event['type']}".encode(), now)
        stream.add_line(b"data: " + json.dumps(event).encode(), now)
        stream.add_line(b"", now)
    return stream.build_reply(10.0 + 0.1 * len(events), 200, 10.0)


def test_a_stream_of_responses_tells_first_token_counts_and_end() -> None:
    reply = read_stream(RESPONSE_EVENTS, translate_response_event)
    assert (reply.answer, reply.finish_reason) == (b"Good day.", "stop")
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (12, 5, 4)
    assert reply.first_token == pytest.approx(10.3)
    # One of four tokens was reasoning that was not streamed.
    assert reply.streamed_tokens == 3
    assert reply.itl_s == pytest.approx(0.1)


def test_a_stream_of_messages_counts_what_a_cache_gave_too() -> None:
    reply = read_stream(MESSAGE_EVENTS, translate_message_event)
    assert (reply.answer, reply.finish_reason) == (b"Good day.", "stop")
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (12, 5, 3)
    assert reply.first_token == pytest.approx(10.3)
    assert reply.itl_s == pytest.approx(0.1)


def test_reasoning_is_no_output_and_a_tool_call_is() -> None:
    thought = {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}}
    called = {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "search"}}
    given = {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}}
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}}
    reply = read_stream([MESSAGE_EVENTS[0], thought, called, given, end], translate_message_event)
    assert (reply.first_token, reply.first_output) == (pytest.approx(10.1), pytest.approx(10.2))
    assert reply.finish_reason == "tool_calls"
    words = [
        {"type": "response.reasoning_text.delta", "delta": "Hm"},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        {"type": "response.completed", "response": {"status": "completed", "output": [{"type": "function_call"}]}},
    ]
    reply = read_stream(words, translate_response_event)
    assert (reply.first_token, reply.first_output) == (pytest.approx(10.0), pytest.approx(10.1))
    assert reply.finish_reason == "tool_calls"


def test_an_answer_at_its_limit_says_so() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "usage": USAGE}
    events = [*RESPONSE_EVENTS[:-1], {"type": "response.incomplete", "response": cut}]
    assert read_stream(events, translate_response_event).finish_reason == "length"
    events = [*MESSAGE_EVENTS[:-2], {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}]
    assert read_stream(events, translate_message_event).finish_reason == "length"


@pytest.mark.parametrize(
    ("event", "translate"),
    [
        ({"type": "response.failed", "response": {"error": {"message": "out of memory"}}}, translate_response_event),
        ({"type": "error", "message": "out of memory"}, translate_response_event),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "out of memory"}}, translate_message_event),
    ],
)
def test_a_failure_in_the_stream_is_no_answer(event: dict[str, Any], translate: ParseEvent) -> None:
    with pytest.raises(FailedAnswerError, match="out of memory"):
        read_stream([event], translate)


@pytest.mark.parametrize(
    ("events", "translate"),
    [(RESPONSE_EVENTS[:-1], translate_response_event), (MESSAGE_EVENTS[:-2], translate_message_event)],
)
def test_a_stream_without_its_end_is_cut(events: list[dict[str, Any]], translate: ParseEvent) -> None:
    with pytest.raises(CutAnswerError):
        read_stream(events, translate)


def test_whole_answers_are_read_as_well() -> None:
    response = {
        "object": "response",
        "status": "completed",
        "usage": USAGE,
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": "Good day."}]},
        ],
    }
    chunk = translate_response(json.dumps(response).encode())
    assert chunk is not None
    assert chunk.choices is not None
    assert chunk.choices[0].message is not None
    assert chunk.choices[0].message.text() == "Good day."
    message = {
        "type": "message",
        "content": [{"type": "text", "text": "Good"}, {"type": "text", "text": " day."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    chunk = translate_message(json.dumps(message).encode())
    assert chunk is not None
    assert chunk.choices is not None
    assert chunk.choices[0].message is not None
    assert (chunk.choices[0].message.text(), chunk.choices[0].finish_reason) == ("Good day.", "stop")
    failed = translate_message(b'{"type": "error", "error": {"message": "no"}}')
    assert failed is not None
    assert failed.error == {"message": "no"}


def test_bodies_are_as_each_protocol_has_them() -> None:
    extra = RequestExtra(output_tokens=7, history=(("Hello", "Hi"),))
    lengths: dict[str, Any] = {"output_tokens": None}
    said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    said.append({"role": "user", "content": "How?"})
    target = ResponsesTarget("http://a/v1/responses", **SHARED, **lengths)
    body = json.loads(target.request_body("How?", extra))
    assert body == {"model": "m", "stream": True, "store": False, "input": said, "max_output_tokens": 7}
    anthropic = AnthropicTarget("http://a/v1/messages", **SHARED, **lengths)
    body = json.loads(anthropic.request_body("How?", extra))
    assert body == {"model": "m", "stream": True, "messages": said, "max_tokens": 7}
    # The API requires a longest answer.
    assert json.loads(anthropic.request_body("How?"))["max_tokens"] == 1024
    body = json.loads(EmbeddingsTarget("http://a", **SHARED).request_body("some words"))
    assert body == {"model": "m", "input": "some words"}
    body = json.loads(RerankTarget("http://a", **SHARED).request_body(" ".join(map(str, range(52)))))
    assert (body["query"].split()[-1], len(body["documents"]), body["documents"][-1].split()[-1]) == ("11", 8, "51")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"data": [{"embedding": [0.1, 0.2]}]}, None),
        ({"data": [{"embedding": "AAAA"}]}, None),
        ({"data": [{"embedding": []}]}, "without an embedding"),
        ({"data": []}, "without an embedding"),
        ({"data": [{"embedding": [0.1, None]}]}, "not all numbers"),
    ],
)
def test_an_embedding_is_checked(document: dict[str, Any], told: str | None) -> None:
    fault = EmbeddingsTarget("http://a", **SHARED).find_fault(document)
    assert fault is None if told is None else told in str(fault)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"results": [{"index": 1, "relevance_score": 0.9}]}, None),
        ({"results": []}, "without results"),
        ({"results": [{"index": 1}]}, "without index and relevance_score"),
    ],
)
def test_a_ranking_is_checked(document: dict[str, Any], told: str | None) -> None:
    fault = RerankTarget("http://a", **SHARED).find_fault(document)
    assert fault is None if told is None else told in str(fault)
