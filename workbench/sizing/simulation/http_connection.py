"""Minimal HTTP/1.1 connections for the simulated service.

A web framework costs several times what the simulation itself does, and simulator and client share a machine: what the
server spends, the client lacks. So: one request after the other on a connection, bodies by their declared length.
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
    """A request that cannot be understood, with the status that it is answered with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class RequestHead:
    """What counts of a request's first lines."""

    method: str
    path: str
    length: int
    keep: bool
    chunks: bool
    waits: bool


def parse_request_head(head: bytes) -> RequestHead:
    """The request line and headers, up to the empty line.

    Raises
    ------
    BadRequestError
        It is no HTTP/1 request, its body has no declared length, or too great a one.

    Examples
    --------
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
    found = RequestHead(words[0].decode("latin-1"), words[1].split(b"?")[0].decode("latin-1"), 0, newer, newer, False)
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        _apply_header(found, name.lower(), value.strip().lower())
    return found


def _apply_header(found: RequestHead, name: bytes, value: bytes) -> None:
    if name == b"content-length":
        if not value.isdigit() or len(value) > 18:
            raise BadRequestError(400)
        found.length = int(value)
        if found.length > MAX_BODY_BYTES:
            raise BadRequestError(413)
    elif name == b"transfer-encoding":
        raise BadRequestError(411)
    elif name == b"connection":
        found.keep = value != b"close" and (found.keep or value == b"keep-alive")
    elif name == b"expect":
        found.waits = value == b"100-continue"


class Exchange:
    """A request and the way its answer goes: whole, or in pieces as they come."""

    __slots__ = ("_chunks", "_connection", "_keep", "arrived_s", "body", "gone", "method", "path")

    def __init__(self, connection: Connection, head: RequestHead, body: bytes, arrived_s: float) -> None:
        self._connection = connection
        self._keep = head.keep
        self._chunks = head.chunks
        self.method = head.method
        self.path = head.path
        self.body = body
        self.arrived_s = arrived_s
        self.gone = False  # the client hung up, and nobody reads the answer

    def send_answer(self, status: int, body: bytes, kind: str = JSON_TYPE) -> None:
        """Give the whole answer."""
        if not self.gone:
            self._connection.write(
                _format_response_head(status, kind, self._keep, f"content-length: {len(body)}") + body
            )
            self._connection.finish_answer(keep=self._keep)

    def begin_stream(self, kind: str = EVENT_STREAM_TYPE) -> None:
        """Start an answer in pieces; without chunks (HTTP/1.0) the connection's end is the answer's."""
        self._keep = self._keep and self._chunks
        if not self.gone:
            self._connection.write(
                _format_response_head(200, kind, self._keep, "transfer-encoding: chunked" if self._chunks else "")
            )

    def send_piece(self, text: bytes) -> None:
        """The next piece of it."""
        if not self.gone:
            self._connection.write(b"%x\r\n%b\r\n" % (len(text), text) if self._chunks else text)

    def end_stream(self) -> None:
        """That was the last piece."""
        if not self.gone:
            if self._chunks:
                self._connection.write(b"0\r\n\r\n")
            self._connection.finish_answer(keep=self._keep)


def _format_response_head(status: int, kind: str, keep: bool, framing: str) -> bytes:
    lines = f"HTTP/1.1 {status} {STATUS_REASONS[status]}\r\nserver: {SERVER_NAME}\r\ncontent-type: {kind}\r\n"
    lines += f"{framing}\r\n" if framing else ""
    return (lines + ("\r\n" if keep else "connection: close\r\n\r\n")).encode("latin-1")


class Connection(asyncio.Protocol):
    """One connection of a client; a request that comes before the last is answered waits its turn.

    Parameters
    ----------
    handle
        Called with each request; answers it now or later.
    lost
        Called with a request whose client hung up before its answer was given.
    others
        Where open connections are kept, so that a server that stops can close them.
    """

    def __init__(
        self,
        handle: Callable[[Exchange], None],
        lost: Callable[[Exchange], None],
        others: set[Connection],
    ) -> None:
        self._handle = handle
        self._lost = lost
        self._others = others
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._head: RequestHead | None = None
        self._exchange: Exchange | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio calls it when a client has connected."""
        self._transport = transport
        self._others.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Asyncio calls it when either side has closed."""
        del error
        self._others.discard(self)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.gone = True
            self._lost(exchange)

    def data_received(self, data: bytes) -> None:
        """Asyncio calls it with whatever came."""
        self._buffer += data
        if self._exchange is None:
            self._take_request()
        elif len(self._buffer) > MAX_HEAD_BYTES + MAX_BODY_BYTES:
            self._transport.pause_reading()

    def write(self, data: bytes) -> None:
        """Send bytes of an answer; a broken connection takes none, and asyncio says so only after this step."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def finish_answer(self, *, keep: bool) -> None:
        """The answer is out: the next request may come."""
        self._exchange = None
        if not keep:
            self.close()
        elif self._buffer:
            # Not at once: the answer may have come from the middle of the simulation's step.
            self._loop.call_soon(self._resume_reading)

    def close(self) -> None:
        """Close after what was written is out."""
        self._transport.close()

    def _resume_reading(self) -> None:
        if self._exchange is None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._take_request()

    def _take_request(self) -> None:
        """Take one request off the buffer if it is whole."""
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
        self.write(_format_response_head(status, JSON_TYPE, False, f"content-length: {len(body)}") + body)
        self.close()
