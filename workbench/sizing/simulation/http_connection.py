"""Minimal HTTP/1.1 connections for the simulated service.

A web framework would use several times the CPU of the simulation itself, and simulator and client share a machine. The
server therefore supports only sequential requests on a connection and bodies of declared length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_HEAD_BYTES = 32 << 10
MAX_BODY_BYTES = 16 << 20
SERVER_NAME = "workbench-simulator"
JSON_TYPE = "application/json"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8"
STATUS_REASONS = {
    100: "Continue",
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class BadRequestError(Exception):
    """Invalid request, with the HTTP status of the response."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class RequestHead:
    """Request line and the headers that are used."""

    method: str
    path: str
    length: int
    keep: bool
    chunks: bool
    waits: bool


def parse_request_head(head: bytes) -> RequestHead:
    """Parse the request line and headers, up to the empty line.

    >>> parse_request_head(b"POST /a?b=1 HTTP/1.1\\r\\nContent-Length: 5").length
    5
    """
    lines = head.split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/"):
        raise BadRequestError(400)
    if words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequestError(505)
    newer = words[2] == b"HTTP/1.1"
    request = RequestHead(words[0].decode("latin-1"), words[1].split(b"?")[0].decode("latin-1"), 0, newer, newer, False)
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        _apply_header(request, name.lower(), value.strip().lower())
    return request


def _apply_header(request: RequestHead, name: bytes, value: bytes) -> None:
    if name == b"content-length":
        if not value.isdigit() or len(value) > 18:
            raise BadRequestError(400)
        request.length = int(value)
        if request.length > MAX_BODY_BYTES:
            raise BadRequestError(413)
    elif name == b"transfer-encoding":
        raise BadRequestError(411)
    elif name == b"connection":
        request.keep = value != b"close" and (request.keep or value == b"keep-alive")
    elif name == b"expect":
        request.waits = value == b"100-continue"


class Exchange:
    """Request and its response, sent whole or in chunks."""

    __slots__ = ("_chunks", "_connection", "_keep", "arrived_s", "body", "gone", "method", "path")

    def __init__(self, connection: Connection, head: RequestHead, body: bytes, arrived_s: float) -> None:
        self._connection = connection
        self._keep = head.keep
        self._chunks = head.chunks
        self.method = head.method
        self.path = head.path
        self.body = body
        self.arrived_s = arrived_s
        self.gone = False  # the client closed the connection

    def send_answer(self, status: int, body: bytes, kind: str = JSON_TYPE) -> None:
        """Send the whole response."""
        if not self.gone:
            self._connection.write(
                self._connection.format_head(status, kind, self._keep, f"content-length: {len(body)}") + body
            )
            self._connection.finish_answer(keep=self._keep)

    def begin_stream(self, kind: str = EVENT_STREAM_TYPE) -> None:
        """Start a streamed response; without chunks (HTTP/1.0) it ends with the connection."""
        self._keep = self._keep and self._chunks
        if not self.gone:
            framing = "transfer-encoding: chunked" if self._chunks else ""
            self._connection.write(self._connection.format_head(200, kind, self._keep, framing))

    def send_piece(self, text: bytes) -> None:
        """Send the next piece of a streamed response."""
        if not self.gone:
            self._connection.write(b"%x\r\n%b\r\n" % (len(text), text) if self._chunks else text)

    def end_stream(self) -> None:
        """End the streamed response."""
        if not self.gone:
            if self._chunks:
                self._connection.write(b"0\r\n\r\n")
            self._connection.finish_answer(keep=self._keep)


class Connection(asyncio.Protocol):
    """One client connection; requests are answered one after the other.

    `lost`: Called with a request whose client disconnected before the response was complete.
    `server`: Value of the Server header.
    """

    def __init__(
        self,
        handle: Callable[[Exchange], None],
        lost: Callable[[Exchange], None],
        others: set[Connection],
        server: str = SERVER_NAME,
    ) -> None:
        self._handle = handle
        self._lost = lost
        self._others = others
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._head: RequestHead | None = None
        self._exchange: Exchange | None = None
        self._transport: Any = None

    def format_head(self, status: int, kind: str, keep: bool, framing: str) -> bytes:
        """Status line and headers of a response."""
        lines = f"HTTP/1.1 {status} {STATUS_REASONS[status]}\r\nserver: {self._server}\r\ncontent-type: {kind}\r\n"
        lines += f"{framing}\r\n" if framing else ""
        return (lines + ("\r\n" if keep else "connection: close\r\n\r\n")).encode("latin-1")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection (called by asyncio)."""
        self._transport = transport
        self._others.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Remove the connection after either side has closed it (called by asyncio)."""
        del error
        self._others.discard(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone = True
            self._lost(exchange)

    def data_received(self, data: bytes) -> None:
        """Process received bytes (called by asyncio)."""
        self._buffer += data
        if self._exchange is None:
            self._take_request()
        elif len(self._buffer) > MAX_HEAD_BYTES + MAX_BODY_BYTES:
            self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Send bytes of a response; skipped on a closing connection, which asyncio reports only later."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def finish_answer(self, *, keep: bool) -> None:
        """Finish a response and accept the next request."""
        self._exchange = None
        if not keep:
            self.close()
        elif self._buffer:
            # Deferred, because the response may come from the middle of a simulation step.
            self._loop.call_soon(self._resume_reading)

    def close(self) -> None:
        """Close the connection after pending bytes are sent."""
        self._transport.close()

    def _resume_reading(self) -> None:
        if self._exchange is None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._take_request()

    def _take_request(self) -> None:
        """Take one complete request from the buffer."""
        try:
            body = self._read_whole_body()
        except BadRequestError as error:
            self._send_refusal(error.status)
            return
        if body is not None:
            assert self._head is not None
            self._exchange = Exchange(self, self._head, body, self._loop.time())
            self._head = None
            self._handle(self._exchange)

    def _read_whole_body(self) -> bytes | None:
        buffer = self._buffer
        if self._head is None:
            end = buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
            if end < 0:
                if len(buffer) >= MAX_HEAD_BYTES:
                    raise BadRequestError(431)
                return None
            self._head = parse_request_head(bytes(buffer[:end]))
            del buffer[: end + 4]
            if self._head.waits and len(buffer) < self._head.length:
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(buffer) < self._head.length:
            return None
        body = bytes(buffer[: self._head.length])
        del buffer[: self._head.length]
        return body

    def _send_refusal(self, status: int) -> None:
        self._buffer.clear()
        body = b'{"error": {"message": "%b", "code": %d}}' % (STATUS_REASONS[status].encode(), status)
        self.write(self.format_head(status, JSON_TYPE, False, f"content-length: {len(body)}") + body)
        self.close()
