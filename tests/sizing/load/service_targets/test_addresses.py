"""Addresses of services: a query stays behind the path, and every failure names what was asked, without secrets."""

from __future__ import annotations

import asyncio
import json

import pytest

from workbench.sizing.load.client_messages import RequestExtra, TargetSpec
from workbench.sizing.load.service_targets.http_target import redact_address
from workbench.sizing.load.service_targets.openai_target import OpenAiTarget
from workbench.sizing.load.service_targets.target_factory import append_path, create_target

CHAT = "/chat/completions"
HOST = "http://h:1"


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1?a=1&b=2", "/v1/chat/completions?a=1&b=2"),
        ("?a=x/y", "/v1/chat/completions?a=x/y"),
        ("/m/v1/chat/completions", "/m/v1/chat/completions"),
        ("/m/v1/chat/completions/", "/m/v1/chat/completions"),
        ("/v1/completions?a=1", "/v1/completions?a=1"),
        (
            "/openai/deployments/m/chat/completions?api-version=1",
            "/openai/deployments/m/chat/completions?api-version=1",
        ),
        ("/openai/deployments/m?api-version=1", "/openai/deployments/m/chat/completions?api-version=1"),
        ("/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("/v1#top", "/v1/chat/completions"),
    ],
)
def test_the_path_is_joined_before_the_query(given: str, asked: str) -> None:
    assert append_path(HOST + given, CHAT, stem="/v1") == HOST + asked


def test_the_path_of_a_workflow_is_joined_before_the_query() -> None:
    assert append_path("http://h/a?k=1", "/generate/full") == "http://h/a/generate/full?k=1"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h/a?api-version=2024-10-21", "http://h/a?api-version=2024-10-21"),
        ("http://ann:pw@h/a", "http://h/a"),
        ("http://h/a?api-key=Zq7&v=1", "http://h/a?api-key=[redacted]&v=1"),
        ("http://h/a?access_token=Zq7", "http://h/a?access_token=[redacted]"),
        ("http://h/a?v=1&X-Amz-Signature=Zq7", "http://h/a?v=1&X-Amz-Signature=[redacted]"),
        ("http://h/a?s%69g=Zq7", "http://h/a?s%69g=[redacted]"),
        ("http://h/a?Zq7", "http://h/a?[redacted]"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_address(url) == shown


ANSWERS = {
    "refusal": b'HTTP/1.1 404 Not Found\r\nContent-Length: 22\r\n\r\n{"detail":"Not Found"}',
    "no http": b"\x00\x01 this is no HTTP\r\n\r\n",
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
    "page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\n<html",
}


@pytest.mark.parametrize("kind", [*ANSWERS, "refused"])
def test_every_failure_names_the_address_without_secrets(kind: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWERS[kind])
        await writer.drain()
        writer.close()

    async def ask() -> tuple[str | None, int]:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if kind == "refused":
            server.close()
            await server.wait_closed()
        url = f"http://127.0.0.1:{port}/m?api-version=7&sig=Zq7secret"
        target = create_target(TargetSpec(protocol="openai", url=url, model="m", timeout_s=5.0))
        await target.open()
        reply = await target.send("x")
        await target.close()
        server.close()
        assert reply.outcome != "ok"
        return reply.detail, port

    detail, port = asyncio.run(ask())
    assert detail is not None
    assert detail.endswith(f"(asked http://127.0.0.1:{port}/m/v1/chat/completions?api-version=7&sig=[redacted])")
    assert "Zq7secret" not in detail


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_completions_that_are_no_chat_get_a_prompt(path: str) -> None:
    target = create_target(TargetSpec(protocol="openai", url=HOST + path, model="m"))
    assert isinstance(target, OpenAiTarget)
    body = json.loads(target.request_body("c", RequestExtra(history=(("a", "b"),))))
    messages = [{"role": role, "content": text} for role, text in (("user", "a"), ("assistant", "b"), ("user", "c"))]
    assert (body.get("prompt"), body.get("messages")) == (
        (None, messages) if path.endswith(CHAT) else ("a\nb\nc", None)
    )  # fmt: skip
