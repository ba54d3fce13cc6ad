"""A small HTTP service that misbehaves on purpose, counts by kind what it did, and logs its own latencies.

It speaks the toolkit's `/generate/full`, OpenAI's streams and plain JSON, from bare asyncio streams, so that answers
may be torn anywhere. Runs in a thread of its own with its own event loop; `Hostile` as a context manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

OK = "ok"
MODES = ("ok", "4xx", "500", "reset", "cut", "stall", "invalid", "big", "error", "silent", "huge")


@dataclass
class Plan:
    """How it behaves: a share of requests for each bad mode, the rest are answered well."""

    shares: dict[str, float] = field(default_factory=dict)
    delay_s: float = 0.0
    stall_s: float = 30.0
    big_bytes: int = 5_000_000
    events: int = 2
    tokens: int = 5
    token_s: float = 0.0
    admit: int | None = None
    seed: int = 0
    cycle: list[str] | None = None
    echo: bool = False
    server_name: str = "hostile"
    stall_above: int | None = None
    # No answer before so many requests have been in flight at a time.
    hold_until: int = 0


class Hostile:
    """The service; `counts` by mode, `in_flight`, `peak` and `latencies_s` are as the service saw them."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan or Plan()
        self.counts: Counter[str] = Counter()
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        self.latencies_s: list[float] = []
        self.in_flight = 0
        self.peak = 0
        self.seen_in_flight: Counter[int] = Counter()
        self.connections = 0
        self.port = 0
        self._random = random.Random(self.plan.seed)
        self._head = b""
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._readers: dict[asyncio.StreamWriter, asyncio.StreamReader] = {}
        self._gate: asyncio.Semaphore | None = None
        self._full = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def connected(self) -> int:
        return sum(not reader.at_eof() for reader in list(self._readers.values()))

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def __enter__(self) -> Self:
        self._thread.start()
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._down(cancel=True))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def up(self) -> None:
        """Listen, on the port of before."""
        self._call(self._up())

    def down(self) -> None:
        """Die: the port is closed, connections are reset."""
        self._call(self._down())

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _up(self) -> None:
        if self.plan.admit is not None and self._gate is None:
            self._gate = asyncio.Semaphore(self.plan.admit)
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=4096, limit=1 << 20, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _down(self, *, cancel: bool = False) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            _reset(writer)
        if cancel:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        self._readers[writer] = reader
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass
        finally:
            self._writers.discard(writer)
            self._readers.pop(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        began = time.perf_counter()
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = await reader.readexactly(length)
        path = head.split(b" ", 2)[1].decode()
        self.heads.append(head)
        self._head = head
        self.bodies.append(body)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.seen_in_flight[self.in_flight] += 1
        if self.in_flight >= self.plan.hold_until:
            self._full.set()
        mode = self._mode()
        self.counts[mode] += 1
        goes_on = True
        try:
            goes_on = await self._answer(mode, path, writer)
            return goes_on
        finally:
            if goes_on and writer.transport.is_closing():
                # It died while it worked on this one.
                self.counts[mode] -= 1
                self.counts["torn"] += 1
            self.in_flight -= 1
            self.latencies_s.append(time.perf_counter() - began)

    def _mode(self) -> str:
        if self.plan.stall_above is not None and self.in_flight > self.plan.stall_above:
            return "stall"
        if self.plan.cycle is not None:
            return self.plan.cycle[self.total % len(self.plan.cycle)]
        drawn, passed = self._random.random(), 0.0
        for mode, share in self.plan.shares.items():
            passed += share
            if drawn < passed:
                return mode
        return OK

    async def _answer(self, mode: str, path: str, writer: asyncio.StreamWriter) -> bool:
        await self._full.wait()
        if mode == "4xx" and self.plan.echo:
            return _whole(writer, b"who is " + self._head.replace(b"\r\n", b" "), "401 Unauthorized")
        if mode == "4xx":
            return _whole(writer, b'{"detail": "field required"}', "422 Unprocessable Entity")
        if mode == "500":
            return _whole(writer, b"down for a moment", "503 Service Unavailable")
        if mode == "silent":
            _reset(writer)
            return False
        if mode == "stall":
            await asyncio.sleep(self.plan.stall_s)
        parts = self._parts(mode, path)
        if path.startswith("/json"):
            async for part in parts:
                return _whole(writer, part)
        head = f"HTTP/1.1 200 OK\r\nServer: {self.plan.server_name}\r\nContent-Type: text/event-stream\r\n"
        writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        async for part in parts:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
            if mode == "reset":
                _reset(writer)
                return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _parts(self, mode: str, path: str) -> AsyncIterator[bytes]:
        if path.startswith("/v1"):
            async for part in self._chat(mode):
                yield part
        elif path.startswith("/json"):
            await self._work()
            yield b'{"answer": ' if mode == "invalid" else b'{"answer": {"text": "yes", "tokens": 7}}'
        else:
            async for part in self._workflow(mode):
                yield part

    async def _work(self) -> None:
        if self._gate is None:
            await asyncio.sleep(self.plan.delay_s)
            return
        async with self._gate:
            await asyncio.sleep(self.plan.delay_s)

    async def _workflow(self, mode: str) -> AsyncIterator[bytes]:
        if self._gate is not None:
            await self._gate.acquire()
        try:
            began = time.time()
            yield event("WORKFLOW_START", began, "w")
            await asyncio.sleep(self.plan.delay_s)
            ended = time.time()
        finally:
            if self._gate is not None:
                self._gate.release()
        step_s = (ended - began) / max(1, self.plan.events)
        lines = []
        for number in range(self.plan.events):
            lines.append(event("LLM_START", began + number * step_s, f"c{number}"))
            lines.append(event("LLM_END", began + (number + 1) * step_s, f"c{number}", tokens=(11, 3)))
        if mode == "big":
            lines.append(event("FUNCTION_END", ended, "f", padding="x" * self.plan.big_bytes))
        if mode == "huge":
            lines.append(b"intermediate_data: " + b"x" * (self.plan.big_bytes * 4))
        lines.append(event("WORKFLOW_END", ended, "w"))
        if mode == "invalid":
            lines.append(b"data: {not json\n\n")
        elif mode == "error":
            lines.append(b'data: {"error": "the model is gone"}\n\n')
        elif mode != "cut":
            lines.append(b'data: {"value": "yes"}\n\n')
        yield b"".join(lines)

    async def _chat(self, mode: str) -> AsyncIterator[bytes]:
        await self._work()
        for number in range(self.plan.tokens):
            if number and self.plan.token_s:
                await asyncio.sleep(self.plan.token_s)
            yield chat({"choices": [{"index": 0, "delta": {"content": "yes "}}]})
            if mode == "invalid":
                yield b"data: {not json\n\n"
            if mode == "error":
                yield chat({"error": {"message": "out of memory"}})
        if mode != "cut":
            yield chat({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            yield chat({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": self.plan.tokens}})
            yield b"data: [DONE]\n\n"


def event(kind: str, at: float, name: str, *, tokens: tuple[int, int] | None = None, padding: str = "") -> bytes:
    """A line of the toolkit's stream."""
    usage = None
    if tokens is not None:
        usage = {"token_usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}, "num_llm_calls": 1}
    payload = {"event_type": kind, "event_timestamp": at, "UUID": name, "usage_info": usage, "data": padding}
    line = {"id": name, "parent_id": "root", "type": kind, "name": name, "payload": json.dumps(payload)}
    return b"intermediate_data: " + json.dumps(line).encode() + b"\n\n"


def chat(chunk: dict[str, Any]) -> bytes:
    """An event of OpenAI's stream."""
    return b"data: " + json.dumps({"object": "chat.completion.chunk"} | chunk).encode() + b"\n\n"


def _whole(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK") -> bool:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return True


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        # Linger 0: the peer sees a reset, not an orderly end.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.contextmanager
def hostile(**plan: Any) -> Iterator[Hostile]:
    """The service, for a while."""
    with Hostile(Plan(**plan)) as server:
        yield server
