"""Faults that a real server cannot be brought to, from a scripted one: the answers are made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson

from workbench.scaletest.cluster_api.connection import ApiError, UnreachableError
from workbench.scaletest.cluster_api.list_watch import ResourceFollower

LIMIT_S = 30


def line(kind: str, name: str, version: int) -> bytes:
    return orjson.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}})


class ScriptedServer:
    """Lists and streams in the order given; an exception among a stream's lines breaks it."""

    def __init__(self, lists: list[dict[str, Any]], streams: list[list[bytes | Exception]]) -> None:
        self.lists, self.streams = lists, streams
        self.watched: list[str] = []
        self.asked: list[str | None] = []
        self.through = asyncio.Event()

    async def json(self, method: str, path: str, *, query: dict[str, str]) -> dict[str, Any]:
        del method, path
        self.asked.append(query.get("continue"))
        return self.lists.pop(0)

    async def stream(self, path: str, query: dict[str, str], *, idle_s: float) -> AsyncIterator[tuple[int, bytes]]:
        del path, idle_s
        self.watched.append(query["resourceVersion"])
        if not self.streams:
            self.through.set()
            await asyncio.Event().wait()
        for one in self.streams.pop(0):
            if isinstance(one, Exception):
                raise one
            yield 0, one


def followed(server: ScriptedServer) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []

    async def go() -> None:
        following = ResourceFollower(
            server,  # type: ignore[arg-type]
            "/things",
            lambda event, thing: seen.append((event, thing["metadata"]["name"])),
        )
        running = asyncio.create_task(following.run())
        await asyncio.wait_for(server.through.wait(), LIMIT_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(go())
    return seen


def listed(*names: str, version: int, more: str | None = None) -> dict[str, Any]:
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return {"kind": "ThingList", "metadata": metadata, "items": [{"metadata": {"name": name}} for name in names]}


def test_lists_are_read_page_by_page() -> None:
    server = ScriptedServer([listed("a", version=5, more="next"), listed("b", version=5)], [])
    assert followed(server) == [("ADDED", "a"), ("ADDED", "b")]
    assert (server.asked, server.watched) == ([None, "next"], ["5"])


def test_a_stream_that_ends_or_breaks_goes_on_where_it_was() -> None:
    streams: list[list[bytes | Exception]] = [
        [line("ADDED", "b", 6), line("BOOKMARK", "", 9)],
        [line("MODIFIED", "b", 10), UnreachableError("cut")],
        [ApiError("too busy", status=429)],
    ]
    server = ScriptedServer([listed("a", version=5)], streams)
    assert followed(server) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b")]
    assert server.watched == ["5", "9", "10", "10"]


def test_what_is_expired_is_listed_anew() -> None:
    gone = orjson.dumps({"type": "ERROR", "object": {"code": 410, "metadata": {}}})
    streams: list[list[bytes | Exception]] = [[gone], [ApiError("gone", status=410)]]
    server = ScriptedServer([listed("a", version=5), listed("a", version=7), listed("c", version=8)], streams)
    assert followed(server) == [("ADDED", "a"), ("ADDED", "a"), ("ADDED", "c")]
    assert server.watched == ["5", "7", "8"]
