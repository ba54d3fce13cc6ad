"""Protocols of the simulated service besides the toolkit's: how a request is read and its answer written.

A new one is a `Dialect` and its path in `DIALECTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from workbench.sizing.simulation import response_bodies
from workbench.sizing.simulation.cluster_model import Call
from workbench.sizing.simulation.http_connection import BadRequestError
from workbench.sizing.simulation.response_bodies import ANSWER_WORD, MODEL_NAME, ChatRequest

VECTOR = [0.6, 0.8]
_TEXT_PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


@dataclass(frozen=True)
class Answered:
    """Whose answer is written: its id, when it was made, and why it ended."""

    identity: str
    created_s: int
    reason: str


@dataclass(frozen=True)
class Dialect:
    """How requests of a protocol are read and answered.

    `begin`, `token`, `end`: Pieces of a stream: before the first token, of each token, and after the last one.
    `whole`: An answer that is not streamed. `has_tokens`: Whether an answer is made of tokens at all.
    """

    read: Callable[[bytes], ChatRequest]
    begin: Callable[[Answered], bytes]
    token: Callable[[Answered], bytes]
    end: Callable[[Call, Answered, ChatRequest], bytes]
    whole: Callable[[Call, Answered], bytes]
    has_tokens: bool = True


def _write_event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))


def _read_responses_request(body: bytes) -> ChatRequest:
    document = response_bodies.parse_json_object(body)
    said = document.get("input")
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
    return response_bodies.read_chat_fields(document | {"messages": messages}, "max_output_tokens")


def _build_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text.strip(), "annotations": []}


def _build_item(status: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": list(parts)}


def _build_response(call: Call | None, answered: Answered, status: str) -> dict[str, Any]:
    usage = None
    if call is not None:
        usage = {
            "input_tokens": call.input_tokens,
            "input_tokens_details": {"cached_tokens": call.cached_tokens or 0},
            "output_tokens": call.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": call.input_tokens + call.output_tokens,
        }
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": answered.identity,
        "object": "response",
        "created_at": answered.created_s,
        "status": status,
        "error": None,
        "incomplete_details": cut,
        "model": MODEL_NAME,
        "output": [] if call is None else [_build_item(status, _build_part(ANSWER_WORD * call.output_tokens))],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _name_status(answered: Answered) -> str:
    return "incomplete" if answered.reason == "length" else "completed"


def _begin_response(answered: Answered) -> bytes:
    return (
        _write_event("response.created", sequence_number=0, response=_build_response(None, answered, "in_progress"))
        + _write_event("response.output_item.added", sequence_number=1, output_index=0, item=_build_item("in_progress"))
        + _write_event("response.content_part.added", sequence_number=2, **_TEXT_PLACE, part=_build_part(""))
    )


def _end_response(call: Call, answered: Answered, _: ChatRequest) -> bytes:
    status, part = _name_status(answered), _build_part(ANSWER_WORD * call.output_tokens)
    return (
        _write_event("response.output_text.done", sequence_number=4, **_TEXT_PLACE, text=part["text"], logprobs=[])
        + _write_event("response.content_part.done", sequence_number=5, **_TEXT_PLACE, part=part)
        + _write_event("response.output_item.done", sequence_number=6, output_index=0, item=_build_item(status, part))
        + _write_event(f"response.{status}", sequence_number=7, response=_build_response(call, answered, status))
    )


RESPONSES = Dialect(
    _read_responses_request,
    _begin_response,
    lambda _: _write_event(
        "response.output_text.delta", sequence_number=3, **_TEXT_PLACE, delta=ANSWER_WORD, logprobs=[]
    ),
    _end_response,
    lambda call, answered: orjson.dumps(_build_response(call, answered, _name_status(answered))),
)


def _read_messages_request(body: bytes) -> ChatRequest:
    document = response_bodies.parse_json_object(body)
    if document.get("max_tokens") is None:
        raise BadRequestError(400)
    return response_bodies.read_chat_fields(document, "max_tokens")


def _build_message(call: Call | None, answered: Answered) -> dict[str, Any]:
    text = "" if call is None else (ANSWER_WORD * call.output_tokens).strip()
    return {
        "id": answered.identity,
        "type": "message",
        "role": "assistant",
        "model": MODEL_NAME,
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": None if call is None else _STOP_REASONS[answered.reason],
        "stop_sequence": None,
        "usage": _count_message(call),
    }


def _count_message(call: Call | None) -> dict[str, int]:
    if call is None:
        return {"input_tokens": 0, "output_tokens": 1}
    cached = call.cached_tokens or 0
    counts = {"input_tokens": call.input_tokens - cached, "cache_read_input_tokens": cached}
    return counts | {"output_tokens": call.output_tokens}


MESSAGES = Dialect(
    _read_messages_request,
    lambda answered: (
        _write_event("message_start", message=_build_message(None, answered))
        + _write_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    ),
    lambda _: _write_event("content_block_delta", index=0, delta={"type": "text_delta", "text": ANSWER_WORD}),
    lambda call, answered, _: (
        _write_event("content_block_stop", index=0)
        + _write_event(
            "message_delta",
            delta={"stop_reason": _STOP_REASONS[answered.reason], "stop_sequence": None},
            usage=_count_message(call),
        )
        + _write_event("message_stop")
    ),
    lambda call, answered: orjson.dumps(_build_message(call, answered)),
)

CHAT = Dialect(
    response_bodies.parse_chat_request,
    lambda answered: response_bodies.build_first_chunk(answered.identity, answered.created_s),
    lambda answered: response_bodies.build_token_chunk(answered.identity, answered.created_s),
    lambda call, answered, request: response_bodies.build_last_chunks(
        call, answered.identity, answered.created_s, answered.reason, usage=request.usage
    ),
    lambda call, answered: response_bodies.build_completion(
        call, answered.identity, answered.created_s, answered.reason
    ),
)


def _build_text_chunk(answered: Answered, text: str, reason: str | None, usage: dict[str, Any] | None = None) -> Any:
    choices = [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]
    chunk = {"id": answered.identity, "object": "text_completion", "created": answered.created_s, "model": MODEL_NAME}
    return chunk | {"choices": choices} | ({"usage": usage} if usage else {})


def _read_completion_request(body: bytes) -> ChatRequest:
    document = response_bodies.parse_json_object(body)
    prompt = document.get("prompt")
    messages = [{"role": "user", "content": prompt}] if prompt else None
    return response_bodies.read_chat_fields(document | {"messages": messages}, "max_tokens")


COMPLETIONS = Dialect(
    _read_completion_request,
    lambda _: b"",
    lambda answered: b"data: %b\n\n" % orjson.dumps(_build_text_chunk(answered, ANSWER_WORD, None)),
    lambda call, answered, request: (
        b"data: %b\n\ndata: [DONE]\n\n"
        % orjson.dumps(
            _build_text_chunk(
                answered, "", answered.reason, response_bodies.build_usage(call) if request.usage else None
            )
        )
    ),
    lambda call, answered: orjson.dumps(
        _build_text_chunk(
            answered,
            (ANSWER_WORD * call.output_tokens).strip(),
            answered.reason,
            response_bodies.build_usage(call),
        )
    ),
)


def _read_vector_request(field: str) -> Callable[[bytes], ChatRequest]:
    def read(body: bytes) -> ChatRequest:
        document = response_bodies.parse_json_object(body)
        if not document.get(field):
            raise BadRequestError(400)
        return ChatRequest(False, False, 1, True, hash(str(document[field])), 1)

    return read


def _build_embedding(call: Call, _: Answered) -> bytes:
    data = [{"object": "embedding", "index": 0, "embedding": VECTOR}]
    usage = {"prompt_tokens": call.input_tokens, "total_tokens": call.input_tokens}
    return orjson.dumps({"object": "list", "model": MODEL_NAME, "data": data, "usage": usage})


def _build_ranking(call: Call, answered: Answered) -> bytes:
    results = [{"index": 0, "relevance_score": 0.5}]
    usage = {"total_tokens": call.input_tokens}
    return orjson.dumps({"id": answered.identity, "model": MODEL_NAME, "results": results, "usage": usage})


def _write_nothing(*_: Any) -> bytes:
    return b""


EMBEDDINGS, RERANK = (
    Dialect(_read_vector_request(field), _write_nothing, _write_nothing, _write_nothing, whole, has_tokens=False)
    for field, whole in (("input", _build_embedding), ("documents", _build_ranking))
)
DIALECTS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/rerank": RERANK,
}
