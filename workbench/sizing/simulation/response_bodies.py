"""Response bodies of the simulated service: toolkit events and OpenAI completions.

Formats follow NeMo Agent Toolkit 1.9.0 (`POST /generate/full`): the payload of each event is a JSON string inside the
JSON of the line, with null for missing fields.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from workbench.sizing.simulation.cluster_model import Call, Workflow
from workbench.sizing.simulation.http_connection import BadRequestError

MODEL_NAME = "workbench-simulator"
WORKFLOW_NAME, FUNCTION_NAME = "simulated_workflow", "<workflow>"
ANSWER_TEXT = "This answer is simulated."
# One token in common vocabularies, so that tokens counted by the client match the simulation.
ANSWER_WORD = " one"


def build_event_lines(workflow: Workflow, question: str, epoch_s: float) -> bytes:
    """Response to `POST /generate/full`: one event line per start and end, and the value.

    As with `nat serve`, events start at the admission of the workflow and do not include the wait before it. The value
    precedes the last events, which are the ends of the last call, the function and the workflow.
    """
    assert workflow.started_s is not None
    assert workflow.ended_s is not None
    base = str(uuid.uuid4())[:24].encode()
    values = {
        b"base": base,
        b"trace": base.replace(b"-", b""),
        # JSON within JSON, without the outer quotes.
        b"question": orjson.dumps(orjson.dumps(question).decode())[3:-3],
        b"began": b"%a" % (epoch_s + workflow.started_s),
        b"ended": b"%a" % (epoch_s + workflow.ended_s),
    }
    for number, call in enumerate(workflow.calls):
        assert call.ended_s is not None
        values[b"sent%d" % number] = b"%a" % (epoch_s + call.sent_s)
        values[b"ended%d" % number] = b"%a" % (epoch_s + call.ended_s)
        values[b"input%d" % number] = b"%d" % call.input_tokens
        values[b"output%d" % number] = b"%d" % call.output_tokens
        values[b"total%d" % number] = b"%d" % (call.input_tokens + call.output_tokens)
    return _event_template(len(workflow.calls)) % values


@lru_cache(maxsize=8)
def _event_template(calls: int) -> bytes:
    """Response template of a workflow with the given number of calls, with %(name)b where requests differ.

    Filling the template takes a tenth of the time of building the lines; server and client share the CPU.
    """
    text = b"".join(_build_template_lines(calls)).replace(b"%", b"%%")
    text = re.sub(rb'\\"#(\w+)#\\"', rb"%(\1)b", text)  # a number: without the quotes
    return re.sub(rb"@(\w+)@", rb"%(\1)b", text)


def _build_template_lines(calls: int) -> list[bytes]:
    """Lines of a response with `calls` LLM calls; @name@ marks strings to fill in, #name# numbers."""
    inputs, answered = {"input": {"input_message": "@question@"}}, [{"value": ANSWER_TEXT}]
    root, function = _event_id(0), _event_id(1)
    metadata = _build_workflow_metadata()
    lines = [
        _build_event("WORKFLOW_START", WORKFLOW_NAME, root, "root", "#began#", inputs, metadata=metadata),
        _build_event("FUNCTION_START", FUNCTION_NAME, function, root, "#began#", inputs),
    ]
    for number in range(calls):
        lines += _build_call_events(number, function)
    lines.insert(-1, b'data: {"value":"%b"}\n\n' % ANSWER_TEXT.encode())
    return [
        *lines,
        _build_event("FUNCTION_END", FUNCTION_NAME, function, root, "#ended#", inputs | {"output": answered}),
        _build_event("WORKFLOW_END", WORKFLOW_NAME, root, "root", "#ended#", {"output": answered}, metadata=metadata),
    ]


def _event_id(number: int) -> str:
    return f"@base@{number:012x}"


def _build_call_events(number: int, parent: str) -> Iterator[bytes]:
    identity, inputs = _event_id(number + 2), {"input": "@question@"}
    payload = inputs | {"output": ANSWER_TEXT}
    yield _build_event("LLM_START", MODEL_NAME, identity, parent, f"#sent{number}#", inputs)
    yield _build_event(
        "LLM_END", MODEL_NAME, identity, parent, f"#ended{number}#", payload, usage_info=_build_usage_info(number)
    )


def _build_event(
    kind: str,
    name: str,
    identity: str,
    parent: str,
    time_s: str,
    data: Mapping[str, Any],
    *,
    metadata: dict[str, Any] | None = None,
    usage_info: dict[str, Any] | None = None,
) -> bytes:
    """Build one line of the toolkit's event stream; `parent` is the id of the surrounding event."""
    payload = {
        "event_type": kind,
        "event_timestamp": time_s,
        "span_event_timestamp": None,
        "framework": None,
        "name": name,
        "tags": None,
        "metadata": metadata,
        "data": {"input": None, "output": None, "chunk": None, "payload": None, **data},
        "usage_info": usage_info,
        "UUID": identity,
    }
    line = {"id": identity, "parent_id": parent, "type": kind, "name": name, "payload": orjson.dumps(payload).decode()}
    return b"intermediate_data: %b\n\n" % orjson.dumps(line)


def _build_workflow_metadata() -> dict[str, Any]:
    """Metadata of a workflow's events; the ids are marks that each response replaces with its own."""
    names = ("chat_responses", "chat_inputs", "tool_inputs", "tool_outputs", "tool_info", "span_inputs", "span_outputs")
    provided = {
        "workflow_run_id": "@base@ffffffffffff",
        "workflow_trace_id": "@trace@ffffffffffff",
        "conversation_id": None,
        "display_name": FUNCTION_NAME,
    }
    return {**dict.fromkeys(names), "provided_metadata": provided, "tools_schema": []}


def _build_usage_info(number: int) -> dict[str, Any]:
    """Token counts of LLM call `number`; the texts between # are marks that each response replaces."""
    usage = {
        "prompt_tokens": f"#input{number}#",
        "completion_tokens": f"#output{number}#",
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "total_tokens": f"#total{number}#",
    }
    return {"token_usage": usage, "num_llm_calls": 1, "seconds_between_calls": 0}


def parse_question(body: bytes) -> str:
    """Parse the `input_message` of a request to the toolkit."""
    question = parse_json_object(body).get("input_message")
    if not isinstance(question, str):
        raise BadRequestError(422)
    return question


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Fields of a chat request; without a limit, the simulation draws the answer length.

    `opening`: Hash of the first message, by which a later turn finds its conversation. `message`: The last one.
    """

    stream: bool
    usage: bool
    limit: int | None
    exact: bool
    opening: int
    n_messages: int
    message: Any = None

    def count_words(self) -> int:
        """Words of the last message."""
        content = self.message.get("content") if isinstance(self.message, dict) else self.message
        return len(str(content).split()) or 1

    def answer_length(self, drawn: int) -> tuple[int, str]:
        """Number of answer tokens and the finish reason."""
        if self.limit is None:
            return drawn, "stop"
        if self.exact or drawn >= self.limit:
            return self.limit, "length"
        return drawn, "stop"


def parse_chat_request(body: bytes) -> ChatRequest:
    """Parse and check a request to `/v1/chat/completions`.

    >>> body = b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "ignore_eos": true}'
    >>> parse_chat_request(body).answer_length(60)
    (5, 'length')
    """
    document = parse_json_object(body)
    limit_field = "max_completion_tokens" if "max_completion_tokens" in document else "max_tokens"
    return read_chat_fields(document, limit_field)


def read_chat_fields(document: dict[str, Any], limit_field: str) -> ChatRequest:
    """Read the fields that requests for an answer have in common; HTTP status 400 where they are wrong."""
    options, limit = document.get("stream_options"), document.get(limit_field)
    messages = document.get("messages")
    if (
        not isinstance(messages, list)
        or not messages
        or not (limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= 1_000_000))
    ):
        raise BadRequestError(400)
    exact = document.get("ignore_eos") is True or (limit is not None and document.get("min_tokens") == limit)
    usage = isinstance(options, dict) and options.get("include_usage") is True
    is_streamed, opening = document.get("stream") is True, hash(str(messages[0]))
    return ChatRequest(is_streamed, usage, limit, exact, opening, len(messages), messages[-1])


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Parse a request's body. HTTP status 400 if it is not JSON, 422 if it is no object."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(400) from error
    if not isinstance(document, dict):
        raise BadRequestError(422)
    return document


def build_completion(call: Call, identity: str, created_s: int, reason: str) -> bytes:
    """Build a chat completion that is not streamed."""
    message = {"role": "assistant", "content": (ANSWER_WORD * call.output_tokens).strip()}
    return orjson.dumps(
        {
            "id": identity,
            "object": "chat.completion",
            "created": created_s,
            "model": MODEL_NAME,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": build_usage(call),
        }
    )


def build_first_chunk(identity: str, created_s: int) -> bytes:
    """Build the chunk with the role; sent with the first token."""
    return _build_chunk(identity, created_s, [{"index": 0, "delta": {"role": "assistant", "content": ""}}])


def build_token_chunk(identity: str, created_s: int) -> bytes:
    """Build the chunk of one token; equal for all tokens of an answer."""
    return _build_chunk(identity, created_s, [{"index": 0, "delta": {"content": ANSWER_WORD}, "finish_reason": None}])


def build_last_chunks(call: Call, identity: str, created_s: int, reason: str, *, usage: bool) -> bytes:
    """Build the end of a stream: finish reason, usage if requested, and [DONE]."""
    text = _build_chunk(identity, created_s, [{"index": 0, "delta": {}, "finish_reason": reason}])
    if usage:
        text += _build_chunk(identity, created_s, [], build_usage(call))
    return text + b"data: [DONE]\n\n"


def _build_chunk(
    identity: str, created_s: int, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None
) -> bytes:
    chunk = {"id": identity, "object": "chat.completion.chunk", "created": created_s, "model": MODEL_NAME}
    return b"data: %b\n\n" % orjson.dumps(chunk | {"choices": choices} | ({"usage": usage} if usage else {}))


def build_usage(call: Call) -> dict[str, Any]:
    """Counts of an answer, as the OpenAI API has them."""
    usage = {
        "prompt_tokens": call.input_tokens,
        "completion_tokens": call.output_tokens,
        "total_tokens": call.input_tokens + call.output_tokens,
    }
    if call.cached_tokens is None:
        return usage
    return usage | {"prompt_tokens_details": {"cached_tokens": call.cached_tokens}}


def build_models_list() -> bytes:
    """Build the response of `/v1/models`."""
    return orjson.dumps(
        {"object": "list", "data": [{"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "simulated"}]}
    )
