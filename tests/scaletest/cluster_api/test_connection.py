"""Connections to a cluster: whose identity, what is refused, what is cut off, what is left behind. Scripted servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import random
import shutil
import ssl
import subprocess
import warnings
from pathlib import Path

import pytest
from aiohttp import web

from tests.kubernetes.test_client import TOKEN, written
from tests.scaletest.serving import Handler, served
from workbench.kubernetes.client import Target, load_target
from workbench.scaletest.cluster_api import connection
from workbench.scaletest.cluster_api.connection import (
    TOO_LONG,
    ApiError,
    Connection,
    LineSplitter,
    UnreachableError,
)


def to(url: str, tls: ssl.SSLContext | None = None) -> Target:
    return Target(url, "scripted", tls, lambda: {"Authorization": f"Bearer {TOKEN}"})


def blocks(*parts: bytes, cut: bool = False, endless: asyncio.Event | None = None) -> Handler:
    """An answer in parts; then it ends, is cut, or waits until the event."""

    async def handle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for part in parts:
            await answer.write(part)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        if endless is not None:
            await endless.wait()
        return answer

    return handle


# What is asked, and what comes back.


async def test_an_answer_has_its_times_and_its_body() -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"you": request.headers["Authorization"], "sent": await request.json()}, status=201)

    async with served(handle) as url, Connection(to(url)) as api:
        found = await api.request("POST", "/x", body=b"[1]")
        assert (found.status, found.json()) == (201, {"you": f"Bearer {TOKEN}", "sent": [1]})
        assert 0 < found.sent_ns < found.done_ns
        assert await api.json("POST", "/x", [1]) == found.json()


async def test_a_refusal_has_its_status_and_reason_and_no_secret() -> None:
    async def handle(request: web.Request) -> web.Response:
        message = f"https://ann:{TOKEN}@example.org says no\nin two lines"
        return web.json_response({"reason": "Forbidden", "message": message}, status=403)

    async with served(handle) as url, Connection(to(url)) as api:
        with pytest.raises(ApiError) as error:
            await api.json("GET", "/x")
        assert (error.value.status, error.value.reason) == (403, "Forbidden")
        assert TOKEN not in str(error.value)
        assert "says no in two lines" in str(error.value)


async def test_nobody_there_is_away_and_names_no_token(tmp_path: Path) -> None:
    async with Connection(load_target(written(tmp_path, "a"), "a")) as api:
        with pytest.raises(UnreachableError) as error:
            await api.request("GET", "/x")
        assert TOKEN not in str(error.value)
        assert "GET /x" in str(error.value)


async def test_an_answer_that_is_cut_or_late_is_away() -> None:
    over = asyncio.Event()
    async with served(blocks(b"half", cut=True)) as url, Connection(to(url)) as api:
        with pytest.raises(UnreachableError):
            await api.request("GET", "/x")
    async with served(blocks(b"half", endless=over)) as url, Connection(to(url)) as api:
        with pytest.raises(UnreachableError):
            await api.request("GET", "/x", timeout_s=0.05)
        over.set()


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_without_end_is_cut_off(packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 100_000)

    async def handle(request: web.Request) -> web.Response:
        if not packed:
            return web.Response(body=bytes(100_001))
        # A hundredth on the wire: what it says of its length is no bound.
        return web.Response(body=gzip.compress(bytes(10_000_000)), headers={"Content-Encoding": "gzip"})

    async with served(handle) as url, Connection(to(url)) as api:
        with pytest.raises(UnreachableError, match="too long"):
            await api.request("GET", "/x")


# Streams.


async def all_lines(handler: Handler) -> list[bytes]:
    async with served(handler) as url, Connection(to(url)) as api:
        return [line async for _, line in api.stream("/watch")]


def test_lines_of_a_stream_are_whole_however_they_come() -> None:
    assert asyncio.run(all_lines(blocks(b"on", b"e\n\ntwo\nth", b"ree\nhalf"))) == [b"one", b"two", b"three"]


def test_a_line_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_LINE_BYTES", 1000)
    with pytest.raises(UnreachableError, match="a line of the watch is too long"):
        asyncio.run(all_lines(blocks(*[b"x" * 100] * 11)))


def test_a_stream_that_is_cut_gives_what_came_before() -> None:
    async def one() -> list[bytes]:
        async with served(blocks(b"one\n", cut=True)) as url, Connection(to(url)) as api:
            lines = api.stream("/watch")
            _, line = await anext(lines)
            with pytest.raises(UnreachableError, match="broken off"):
                await anext(lines)
        return [line]

    assert asyncio.run(one()) == [b"one"]


def test_a_refused_stream_says_so() -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response({"message": "too old"}, status=410)

    with pytest.raises(ApiError, match="the watch was refused") as error:
        asyncio.run(all_lines(handle))
    assert error.value.status == 410


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's certificate that nobody knows."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([openssl, *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    return made


def trusting() -> ssl.SSLContext:
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


async def left_in_the_middle(api: Connection) -> None:
    """Streams that are left after a line, and a request that is given up."""
    for _ in range(3):
        lines = api.stream("/watch")
        await anext(lines)
        await lines.aclose()
    await anext(api.stream("/watch"))  # not even closed
    with contextlib.suppress(UnreachableError):
        await api.request("GET", "/watch", timeout_s=0.05)


@pytest.mark.parametrize("by_tls", [False, True])
def test_what_is_left_in_the_middle_leaves_no_transport_open(by_tls: bool, tls: ssl.SSLContext) -> None:
    async def one() -> None:
        over = asyncio.Event()
        handler = blocks(b"one\n", endless=over)
        async with served(handler, tls if by_tls else None) as url:
            made = Connection(to(url, trusting() if by_tls else None))
            async with made as api:
                await left_in_the_middle(api)
                kept = list(api._transports)
            assert kept
            assert all(transport.is_closing() for transport in kept)
            over.set()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(one())
        gc.collect()
    assert [str(one.message) for one in told if issubclass(one.category, ResourceWarning)] == []


def test_lines_are_the_same_however_the_bytes_come() -> None:
    draws = random.Random(8)
    lines = [draws.randbytes(draws.randrange(1, 200)).replace(b"\n", b"x") for _ in range(200)]
    text = b"".join(line + b"\n" for line in lines)
    for size in (1, 7, 64, len(text)):
        splitter, found = LineSplitter(), list[bytes]()
        for begin in range(0, len(text), size):
            found += splitter.split(text[begin : begin + size])
        assert found == lines


def test_a_line_that_is_too_long_is_said_and_not_kept() -> None:
    splitter = LineSplitter(10)
    assert splitter.split(b"0123456789\n") == [b"0123456789"]
    assert splitter.split(b"012345") == []
    assert splitter.split(b"6789a") == []
    assert splitter._parts == []
    found = splitter.split(b"bc\nnext\n")
    assert found[0] is TOO_LONG
    assert found[1:] == [b"next"]


@pytest.mark.parametrize(
    ("message", "names_command"),
    [('pods is forbidden: User "x" cannot list resource "pods"', True), ("exceeded quota: workbench-limits", False)],
)
def test_a_missing_right_names_the_command_that_prints_it(message: str, names_command: bool) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"message": message, "reason": "Forbidden"}, status=403)

    async def ask() -> None:
        async with served(refuse) as url, Connection(to(url)) as api:
            await api.json("GET", "/api/v1/pods")

    with pytest.raises(ApiError) as refused:
        asyncio.run(ask())
    assert ("plan SCENARIO --rbac" in str(refused.value)) is names_command
