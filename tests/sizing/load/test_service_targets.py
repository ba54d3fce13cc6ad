"""What came of one request: every protocol, every way in which a service fails, by kind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest

from tests.fakes.hostile import Hostile, Plan, hostile
from workbench.core.errors import ConfigError
from workbench.sizing.load.client_messages import Reply, clock
from workbench.sizing.load.client_messages import TargetSpec as Described
from workbench.sizing.load.load_driver import Target
from workbench.sizing.load.service_targets.function_target import FunctionTarget, check_workflow, load_workflow
from workbench.sizing.load.service_targets.target_factory import create_target, resolve_secret_headers

LIMIT_S = 20.0


def described(url: str, protocol: str = "nat", **more: Any) -> Described:
    shared: dict[str, Any] = {"timeout_s": LIMIT_S, "model": "m"} | more
    if protocol == "http":
        shared = {"body": orjson.dumps({"q": "{prompt}"})} | shared
        url += "/json"
    return Described(protocol=protocol, url=url, **shared)  # type: ignore[arg-type]


def sent(target: Target, count: int = 1, prompt: str = "hello") -> list[Reply]:
    async def work() -> list[Reply]:
        await target.open()
        try:
            return [await target.send(prompt) for _ in range(count)]
        finally:
            await target.close()

    return asyncio.run(work())


def reply_to(mode: str, protocol: str = "nat", *, plan: dict[str, Any] | None = None, **more: Any) -> Reply:
    with hostile(cycle=[mode], **(plan or {})) as server:
        return sent(create_target(described(server.url, protocol, **more)))[0]


@pytest.mark.parametrize("protocol", ["nat", "openai", "http"])
@pytest.mark.parametrize(
    ("mode", "outcome", "status"),
    [
        ("ok", "ok", 200),
        ("4xx", "http_error", 422),
        ("500", "http_error", 503),
        ("invalid", "malformed", 200),
        ("silent", "cut", None),
    ],
)
def test_outcomes_are_told_apart(protocol: str, mode: str, outcome: str, status: int | None) -> None:
    reply = reply_to(mode, protocol)
    assert (reply.outcome, reply.status) == (outcome, status)
    assert (reply.detail is None) == (outcome == "ok")


@pytest.mark.parametrize("protocol", ["nat", "openai"])
@pytest.mark.parametrize(("mode", "outcome"), [("reset", "cut"), ("cut", "cut"), ("error", "failed")])
def test_outcomes_of_streams_are_told_apart(protocol: str, mode: str, outcome: str) -> None:
    assert reply_to(mode, protocol).outcome == outcome


@pytest.mark.parametrize("protocol", ["nat", "openai", "http"])
def test_a_stall_is_a_timeout_at_the_limit(protocol: str) -> None:
    began = clock()
    reply = reply_to("stall", protocol, plan={"stall_s": 30.0}, timeout_s=0.3)
    assert reply.outcome == "timeout"
    assert 0.3 <= reply.ended - began < 15


def test_a_port_without_a_service_is_refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        reply = sent(create_target(described(f"http://127.0.0.1:{free.getsockname()[1]}")))[0]
    assert (reply.outcome, reply.status) == ("refused", None)


def test_an_event_line_of_five_megabytes_is_read() -> None:
    reply = reply_to("big", plan={"big_bytes": 5_000_000})
    assert reply.outcome == "ok"
    assert reply.llm_s is not None


def test_what_is_beyond_the_bound_is_malformed() -> None:
    reply = reply_to("huge", plan={"big_bytes": 1_000_000}, max_answer_bytes=1 << 20)
    assert reply.outcome == "malformed"
    assert str(reply.detail).startswith("a line of more than 1048576 bytes (asked http://127.0.0.1:")
    assert reply_to("ok", "http", max_answer_bytes=20).outcome == "malformed"


@pytest.mark.live
def test_the_toolkits_events_give_the_servers_own_times() -> None:
    reply = reply_to("ok", plan={"delay_s": 0.1, "events": 4})
    assert reply.server_runtime_s == pytest.approx(0.1, abs=0.5)
    assert reply.llm_s is not None
    assert len(reply.llm_s) == 4
    assert sum(reply.llm_s) == pytest.approx(reply.server_runtime_s, rel=1e-3)
    assert (reply.input_tokens, reply.output_tokens) == (44, 12)


def test_a_connection_is_used_again_even_after_a_refusal() -> None:
    with Hostile(Plan(cycle=["ok", "4xx"])) as server:
        replies = sent(create_target(described(server.url)), 8)
        assert server.connections == 2  # the first one rests a moment
    assert [reply.outcome for reply in replies] == ["ok", "http_error"] * 4


@pytest.mark.parametrize(("protocol", "method"), [("nat", "POST"), ("http", "GET")])
def test_nothing_is_sent_twice_behind_our_back(protocol: str, method: str) -> None:
    with Hostile(Plan(cycle=["ok", "silent"])) as server:
        replies = sent(create_target(described(server.url, protocol, method=method)), 4)
        assert [reply.outcome for reply in replies] == ["ok", "cut", "ok", "cut"]
        assert server.total == 4


def test_what_is_sent_is_what_the_protocol_says() -> None:
    with hostile() as server:
        sent(create_target(described(server.url + "/")), prompt='say "hi"')
        chat_spec = described(server.url + "/v1", "openai", output_tokens=7, extra_body=b'{"top_k": 1}')
        sent(create_target(chat_spec), prompt="q")
        sent(create_target(described(server.url, "http", body=b'{"a": ["<{prompt}>"]}')), prompt='say "hi"')
        toolkit, chat, template = (orjson.loads(body) for body in server.bodies)
        paths = [head.split(b" ")[1] for head in server.heads]
    assert paths == [b"/generate/full", b"/v1/chat/completions", b"/json"]
    assert toolkit == {"input_message": 'say "hi"'}
    assert chat["messages"] == [{"role": "user", "content": "q"}]
    assert (chat["max_tokens"], chat["top_k"], chat["stream"], chat["model"]) == (7, 1, True, "m")
    assert template == {"a": ['<say "hi">']}


def test_a_null_takes_a_field_out_of_the_request_since_some_servers_refuse_what_they_do_not_know() -> None:
    with hostile() as server:
        extra = b'{"stream_options": null, "seed": 0}'
        sent(create_target(described(server.url, "openai", output_tokens=7, extra_body=extra)), prompt="q")
        sent(create_target(described(server.url, "openai", output_tokens=7)), prompt="q")
        without, usual = (orjson.loads(body) for body in server.bodies)
    assert "stream_options" not in without
    assert without["seed"] == 0
    assert usual["stream_options"] == {"include_usage": True}


def test_paths_of_a_template_give_tokens_and_tell_an_answer_from_none() -> None:
    found = reply_to("ok", "http", answer_at="answer.text", output_tokens_at="answer.tokens")
    assert (found.outcome, found.output_tokens, found.input_tokens) == ("ok", 7, None)
    assert reply_to("ok", "http", answer_at="answer.words").outcome == "malformed"


def test_a_header_has_what_its_variable_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_TEST", "Bearer abc-123")
    with hostile() as server:
        sent(create_target(described(server.url, header_env={"Authorization": "KEY_OF_TEST"})))
        assert b"Authorization: Bearer abc-123" in server.heads[0]


@pytest.mark.parametrize("value", [None, "", "a\nb"])
def test_a_variable_that_no_header_can_be_made_of_is_refused(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY_OF_TEST", raising=False)
    if value is not None:
        monkeypatch.setenv("KEY_OF_TEST", value)
    with pytest.raises(ConfigError, match="KEY_OF_TEST"):
        resolve_secret_headers({"Authorization": "KEY_OF_TEST"})


async def answers(prompt: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"text": prompt, "llm_s": [0.5, 0.25], "output_tokens": 3}


async def fails(prompt: str) -> str:
    raise KeyError(prompt)


async def gives_up(prompt: str) -> str:
    raise TimeoutError("the tool took too long")


async def stalls(prompt: str) -> str:
    await asyncio.sleep(30)
    return prompt


async def streams(prompt: str) -> AsyncIterator[str]:
    for word in prompt.split():
        await asyncio.sleep(0.01)
        yield word


@pytest.mark.parametrize(
    ("workflow", "outcome"), [(answers, "ok"), (fails, "failed"), (gives_up, "failed"), (stalls, "timeout")]
)
def test_outcomes_of_a_function_are_told_apart(workflow: Callable[[str], Any], outcome: str) -> None:
    limit_s = 0.2 if workflow is stalls else LIMIT_S
    assert sent(FunctionTarget(workflow, timeout_s=limit_s))[0].outcome == outcome


def test_a_function_may_tell_more_of_itself() -> None:
    reply = sent(FunctionTarget(answers, timeout_s=5))[0]
    assert (reply.llm_s, reply.output_tokens, reply.input_tokens) == ([0.5, 0.25], 3, None)


def test_a_function_that_yields_has_a_first_token() -> None:
    reply = sent(FunctionTarget(streams, timeout_s=5), prompt="a b c d")[0]
    assert reply.output_tokens == 4
    assert reply.first_token is not None
    assert reply.first_token < reply.ended
    assert reply.itl_s is not None
    assert 0.009 <= reply.itl_s <= (reply.ended - reply.first_token) / 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", "module:function"),
        ("no_such_module_here:f", "ModuleNotFoundError"),
        ("json:no_such_name", "AttributeError"),
        ("json:dumps", "not an async callable"),
    ],
)
def test_a_name_of_no_async_function_is_refused(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_workflow(name)


def test_an_object_that_can_be_awaited_when_called_is_one() -> None:
    class Agent:
        async def __call__(self, prompt: str) -> str:
            return prompt

    assert sent(FunctionTarget(check_workflow(Agent(), "agent"), timeout_s=5))[0].outcome == "ok"
