"""A service that costs as little as asyncio allows: each answer after a fixed time; counts and times for itself.

    python -m bench.plain_service DELAY_S [--events N]

Prints its URL; a line on stdin makes it print what it counted since the last as JSON; the end of stdin ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from tests.fakes.hostile import event

JSON_ANSWER = b'{"answer": {"text": "yes"}}'


class Counted:
    """What the service saw since it was last asked."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        self.peak = self.in_flight
        self.latencies_s: list[float] = []

    def told(self) -> str:
        latencies = sorted(self.latencies_s)
        p95 = latencies[int(0.95 * len(latencies))] if latencies else None
        return json.dumps({"peak": self.peak, "requests": len(latencies), "p95_s": p95})


class Connection(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, counted: Counted, delay_s: float, answer: bytes) -> None:
        self._counted = counted
        self._delay_s = delay_s
        self._answer = answer
        self._data = b""
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._data = b""
        self._began = time.perf_counter()
        counted = self._counted
        counted.in_flight += 1
        counted.peak = max(counted.peak, counted.in_flight)
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._counted.in_flight -= 1
        if not self._transport.is_closing():
            self._transport.write(self._answer)
        self._counted.latencies_s.append(time.perf_counter() - self._began)


def answer(events: int) -> bytes:
    """The whole answer: JSON, or the toolkit's stream with so many model calls."""
    body, kind = JSON_ANSWER, b"application/json"
    if events:
        lines = [event("WORKFLOW_START", 1.0, "w")]
        for number in range(events):
            lines.append(event("LLM_START", 1.0 + number, f"c{number}"))
            lines.append(event("LLM_END", 1.5 + number, f"c{number}", tokens=(11, 3)))
        body, kind = b"".join([*lines, b'data: {"value": "yes"}\n\n']), b"text/event-stream"
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


async def serve(delay_s: float, events: int) -> None:
    counted = Counted()
    loop = asyncio.get_running_loop()
    whole = answer(events)
    server = await loop.create_server(lambda: Connection(counted, delay_s, whole), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(counted.told(), flush=True)
        counted.reset()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("delay_s", type=float)
    parser.add_argument("--events", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.delay_s, arguments.events))
