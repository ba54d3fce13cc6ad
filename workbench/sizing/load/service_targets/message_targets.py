"""Targets for OpenAI's responses and Anthropic's messages: their events are translated into those of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from workbench.sizing.load.service_targets.openai_target import (
    Choice,
    Chunk,
    Delta,
    OpenAiTarget,
    Usage,
    decode_event,
    read_count,
)

DEFAULT_MAX_TOKENS = 1024
"""Longest answer to ask Anthropic's API for, which requires one, where none is given."""
ANTHROPIC_VERSION = "2023-06-01"
_decoder: msgspec.json.Decoder[dict[str, Any] | None] = msgspec.json.Decoder(dict[str, Any] | None)
_RESPONSE_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
_ARGUMENT_DELTAS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_INCOMPLETE_REASONS = {"max_output_tokens": "length"}
_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def translate_response_event(text: bytes) -> Chunk | None:
    """An event of the responses API as a chunk of a chat; null where it holds neither tokens nor the end.

    >>> translate_response_event(b'{"type": "response.output_text.delta", "delta": "Hi"}').choices[0].delta.content
    'Hi'
    """
    event = decode_event(text, _decoder) or {}
    kind = event.get("type")
    if (field := _RESPONSE_DELTAS.get(str(kind))) is not None:
        return _build_part(Delta(**{field: event.get("delta")}))
    if kind in _ARGUMENT_DELTAS:
        return _build_part(Delta(tool_calls=[{"function": {"arguments": event.get("delta")}}]))
    if kind == "error":
        return Chunk(error=event.get("error") or event)
    if kind in ("response.completed", "response.incomplete", "response.failed"):
        return _end_response(_read_object(event.get("response")))
    return None


def translate_response(text: bytes) -> Chunk | None:
    """A whole response as a completion of a chat."""
    document = decode_event(text, _decoder) or {}
    chunk = _end_response(document)
    parts = [part for item in _list_objects(document.get("output")) for part in _list_objects(item.get("content"))]
    calls = [item for item in _list_objects(document.get("output")) if str(item.get("type")).endswith("_call")]
    functions = [{"function": {"name": call.get("name"), "arguments": call.get("arguments")}} for call in calls]
    if chunk.choices:
        chunk.choices[0].message = Delta(content=parts, tool_calls=functions or None)
    return chunk


def _end_response(response: dict[str, Any]) -> Chunk:
    """The end of a response: why it ended, and its counts."""
    if response.get("error") or response.get("status") == "failed":
        return Chunk(error=response.get("error") or "the response failed")
    reason = "stop"
    if any(str(item.get("type")).endswith("_call") for item in _list_objects(response.get("output"))):
        reason = "tool_calls"
    if response.get("status") == "incomplete":
        told = str(_read_object(response.get("incomplete_details")).get("reason"))
        reason = _INCOMPLETE_REASONS.get(told, told)
    usage = _read_object(response.get("usage"))
    counts = Usage(
        prompt_tokens=usage.get("input_tokens"),
        prompt_tokens_details=usage.get("input_tokens_details"),
        completion_tokens=usage.get("output_tokens"),
        completion_tokens_details=usage.get("output_tokens_details"),
    )
    return Chunk(choices=[Choice(finish_reason=reason)], usage=counts)


def translate_message_event(text: bytes) -> Chunk | None:
    """An event of Anthropic's messages API as a chunk of a chat; null where it holds neither tokens nor the end.

    >>> chunk = translate_message_event(b'{"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}')
    >>> chunk.choices[0].finish_reason
    'length'
    """
    event = decode_event(text, _decoder) or {}
    kind, delta = event.get("type"), _read_object(event.get("delta"))
    if kind == "content_block_delta":
        if delta.get("type") == "input_json_delta":
            return _build_part(Delta(tool_calls=[{"function": {"arguments": delta.get("partial_json")}}]))
        return _build_part(Delta(content=delta.get("text"), reasoning=delta.get("thinking")))
    if kind == "content_block_start":
        block = _read_object(event.get("content_block"))
        named = [{"function": {"name": block.get("name")}}] if block.get("type") == "tool_use" else None
        return _build_part(Delta(content=block.get("text"), tool_calls=named))
    if kind == "message_start":
        usage = _read_object(_read_object(event.get("message")).get("usage"))
        # Its count of the answer is that of its first token.
        return Chunk(usage=_count_message(usage | {"output_tokens": None}))
    if kind == "message_delta":
        return Chunk(choices=[_end_message(delta)], usage=_count_message(_read_object(event.get("usage"))))
    return Chunk(error=event.get("error") or event) if kind == "error" else None


def translate_message(text: bytes) -> Chunk | None:
    """A whole message as a completion of a chat."""
    document = decode_event(text, _decoder) or {}
    if document.get("type") == "error":
        return Chunk(error=document.get("error") or document)
    blocks = _list_objects(document.get("content"))
    thoughts = "".join(str(block.get("thinking") or "") for block in blocks)
    functions = [{"function": {"name": block.get("name")}} for block in blocks if block.get("type") == "tool_use"]
    choice = _end_message(document)
    choice.message = Delta(content=blocks, reasoning=thoughts, tool_calls=functions or None)
    return Chunk(choices=[choice], usage=_count_message(_read_object(document.get("usage"))))


def _end_message(delta: dict[str, Any]) -> Choice:
    reason = delta.get("stop_reason")
    return Choice(finish_reason=None if reason is None else _STOP_REASONS.get(str(reason), str(reason)))


def _count_message(usage: dict[str, Any]) -> Usage:
    """Counts of a message: prompt tokens that were read from a cache or written into one are counted apart."""
    parts = [read_count(usage.get(f"{name}input_tokens")) for name in ("", "cache_read_", "cache_creation_")]
    prompt = None if parts[0] is None else sum(part or 0 for part in parts)
    cached = None if parts[1] is None else {"cached_tokens": parts[1]}
    return Usage(prompt_tokens=prompt, prompt_tokens_details=cached, completion_tokens=usage.get("output_tokens"))


def _build_part(delta: Delta) -> Chunk:
    return Chunk(choices=[Choice(delta=delta)])


def _read_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class ResponsesTarget(OpenAiTarget):
    """`POST {url}/v1/responses` streamed."""

    limit_field = "max_output_tokens"
    own_fields: ClassVar[dict[str, Any]] = {"stream": True, "store": False}

    parse_event = staticmethod(translate_response_event)
    parse_answer = staticmethod(translate_response)

    def build_content(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        """The messages of a session are its input."""
        return {"input": messages}


class AnthropicTarget(OpenAiTarget):
    """`POST {url}/v1/messages` streamed; the key is `--header-env x-api-key=VARIABLE`."""

    own_fields: ClassVar[dict[str, Any]] = {"stream": True, "max_tokens": DEFAULT_MAX_TOKENS}

    parse_event = staticmethod(translate_message_event)
    parse_answer = staticmethod(translate_message)

    def __init__(self, url: str, *, headers: Mapping[str, str], **shared: Any) -> None:
        super().__init__(url, headers={"anthropic-version": ANTHROPIC_VERSION, **headers}, **shared)

    def build_content(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        """The messages of a session."""
        return {"messages": messages}
