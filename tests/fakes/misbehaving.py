"""An HTTP service over loopback whose protocol goes wrong above so many requests in flight, or always."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web

FAULTS = (
    "429",
    "503",
    "empty stream",
    "no finish",
    "error in stream",
    "error event",
    "truncated",
    "finish error",
    "empty json",
    "error in json",
    "error in json beside an answer",
    "apology",
)
DELAY_S = 0.03


def _chunk(content: str | None, finish: str | None = None) -> bytes:
    delta = {} if content is None else {"content": content}
    event = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(event).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAMS = {
    "empty stream": [_chunk(None, "stop"), DONE],
    "no finish": [_chunk("yes"), DONE],
    "error in stream": [_chunk("yes"), b'data: {"error": {"message": "out of memory"}}\n\n', DONE],
    "error event": [_chunk("yes"), b"event: error\n", b"data: overloaded\n\n"],
    "truncated": [_chunk("yes")],
    "finish error": [_chunk("yes"), _chunk(None, "error"), DONE],
    "apology": [_chunk("Sorry, "), _chunk("busy."), _chunk(None, "stop"), DONE],
}
BODIES = {
    "empty json": {"answer": ""},
    "error in json": {"error": {"message": "out of memory"}},
    "error in json beside an answer": {"answer": "partly", "error": "half of it is missing"},
}


class Service:
    """Answers well after a pause, up to `admits` in flight; what comes on top meets the fault."""

    def __init__(self, fault: str, admits: int) -> None:
        self.fault = fault
        self.admits = admits
        self.in_flight = 0
        self._numbers = itertools.count()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.in_flight += 1
        try:
            if self.in_flight > self.admits:
                return await self._misbehave(request)
            await asyncio.sleep(DELAY_S)
            words = [f"word{next(self._numbers)} " for _ in range(30)]
            if request.path.endswith("/chat/completions"):
                return await self._stream(request, [*map(_chunk, words), _chunk(None, "stop"), DONE])
            return web.json_response({"answer": "".join(words)})
        finally:
            self.in_flight -= 1

    async def _misbehave(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(DELAY_S / 6)
        if self.fault in ("429", "503"):
            return web.json_response({"detail": "later"}, status=int(self.fault), headers={"Retry-After": "1"})
        if self.fault in BODIES:
            return web.json_response(BODIES[self.fault])
        return await self._stream(request, STREAMS[self.fault])

    async def _stream(self, request: web.Request, parts: list[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        await response.write_eof()
        return response


@contextlib.contextmanager
def misbehaving(fault: str, admits: int) -> Iterator[str]:
    """The URL of a running service."""
    with serve_in_thread(Service(fault, admits).handle) as url:
        yield url


@contextlib.contextmanager
def serve_in_thread(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Iterator[str]:
    """The URL of a server on loopback whose every path has this handler."""
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), []

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.append(site._server.sockets[0].getsockname()[1])  # type: ignore[union-attr]
        return runner

    async def end_tasks() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def serve() -> None:
        runner = loop.run_until_complete(start())
        # Not before the loop runs for good: it would take no notice of being stopped earlier.
        loop.call_soon(ready.set)
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.run_until_complete(end_tasks())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield f"http://127.0.0.1:{found[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
