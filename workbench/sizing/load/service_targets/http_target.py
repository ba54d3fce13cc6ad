"""Base of all HTTP targets: session, bounded line reader, classified failures."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

import aiohttp
from yarl import URL

from workbench.sizing.load.client_messages import (
    CutAnswerError,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    clock,
    shorten_detail,
)


class LineSplitter:
    """Cuts chunks of bytes into lines; holds at most one unfinished line.

    Parameters
    ----------
    max_bytes
        Longest line, its LF not counted.

    Examples
    --------
    >>> lines = LineSplitter(10)
    >>> lines.add_chunk(b"data: 1\\r\\n\\nda"), lines.add_chunk(b"ta: 2"), lines.take_rest()
    ([b'data: 1', b''], [], b'data: 2')
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0

    def add_chunk(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends (LF or CRLF).

        Raises
        ------
        MalformedAnswerError
            A line is longer than the bound.
        """
        # A list and no generator: this runs for every chunk of every answer.
        parts = chunk.split(b"\n")
        self._hold_part(parts[0])
        if len(parts) == 1:
            return []
        parts[0] = self.take_rest()
        self._hold_part(parts.pop())
        lines = [line.removesuffix(b"\r") for line in parts]
        if len(chunk) > self._max_bytes:
            self._check_line_bytes(max(map(len, lines)))
        return lines

    def take_rest(self) -> bytes:
        """What was held: the last line of a stream that does not end with a line end."""
        # Joined once a line: a line of many chunks would be copied at each of them otherwise.
        line = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return line.removesuffix(b"\r")

    def _hold_part(self, part: bytes) -> None:
        if part:
            self._held_bytes += len(part)
            self._check_line_bytes(self._held_bytes)
            self._held.append(part)

    def _check_line_bytes(self, n_bytes: int) -> None:
        if n_bytes > self._max_bytes:
            raise MalformedAnswerError(f"a line of more than {self._max_bytes} bytes")


MAX_REFUSAL_BYTES = 4096
MAX_READ_REFUSAL_BYTES = 64 << 10
SIMULATOR_SERVER_NAME = "workbench-simulator"


class HttpTarget(ABC):
    """One HTTP request per prompt on connections that are kept; a subclass says what is sent and how to read it.

    Parameters
    ----------
    url
        Where to, whole.
    timeout_s
        Longest time of a request, from sending to its last byte.
    headers
        Of every request; may hold secrets, and is told to nobody.
    max_answer_bytes
        Longest line of a stream, and longest answer that is read as a whole.
    """

    method = "POST"
    accepts = "application/json"

    def __init__(self, url: str, *, timeout_s: float, headers: Mapping[str, str], max_answer_bytes: int) -> None:
        self._url = URL(url)
        self._timeout_s = timeout_s
        self._headers = {
            "Content-Type": "application/json",
            "Accept": self.accepts,
            # Unpacking would cost the client time that is not the server's.
            "Accept-Encoding": "identity",
            **headers,
        }
        self._max_bytes = max_answer_bytes
        self._session: aiohttp.ClientSession | None = None
        self._unheard = True
        self.simulated = False

    async def open(self) -> None:
        """Make the session; belongs to the loop that it is made in."""
        # aiohttp's default holds at most 100 connections, which silently caps the load.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # It would send idempotent requests twice without a word; a retry here is asked for and counted.
        self._session._retry_connection = False

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def request_url(self, prompt: str) -> URL:
        """Where this prompt is sent."""
        del prompt
        return self._url

    @abstractmethod
    def request_body(self, prompt: str) -> bytes | None:
        """What is sent."""

    @abstractmethod
    async def read_reply(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """The answer to a request that was sent at this time, read to its end."""

    async def send(self, prompt: str) -> Reply:
        """Send one request and say what came of it; a failure is an outcome and never raised."""
        session = self._session
        if session is None:
            raise RuntimeError("open() comes before send()")
        status: int | None = None
        sent = clock()
        try:
            # A redirect would carry the load to a host that nobody confirmed.
            async with session.request(
                self.method, self.request_url(prompt), data=self.request_body(prompt), allow_redirects=False
            ) as response:
                status = response.status
                if self._unheard:
                    # Whoever forgets to say so is not told of GPUs that are none.
                    self._unheard = False
                    self.simulated = response.headers.get("Server", "").startswith(SIMULATOR_SERVER_NAME)
                if 200 <= status < 300:
                    return await self.read_reply(response, sent)
                return await _read_refusal(response)
        except Exception as error:  # noqa: BLE001 - whatever a server does to us is an outcome, never the sweep's end
            return Reply(classify_error(error), clock(), status=status, detail=_format_error(error))


async def _read_refusal(response: aiohttp.ClientResponse) -> Reply:
    text = bytearray()
    # To its end if it is short: only then can the connection be used again.
    while len(text) < MAX_READ_REFUSAL_BYTES and (chunk := await response.content.read(MAX_REFUSAL_BYTES)):
        text += chunk
    detail = shorten_detail(text[:MAX_REFUSAL_BYTES].decode(errors="replace"))
    return Reply("http_error", clock(), status=response.status, detail=detail)


def classify_error(error: BaseException) -> str:
    """The outcome that an exception of a request stands for (OUTCOMES).

    Examples
    --------
    >>> classify_error(TimeoutError()), classify_error(aiohttp.ServerDisconnectedError()), classify_error(ValueError())
    ('timeout', 'cut', 'malformed')
    """
    if isinstance(error, asyncio.TimeoutError | TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "refused"
    if isinstance(error, FailedAnswerError):
        return "failed"
    if isinstance(error, MalformedAnswerError | aiohttp.ClientResponseError | ValueError):
        return "malformed"
    if isinstance(error, CutAnswerError | aiohttp.ClientError | OSError | EOFError):
        return "cut"
    return "malformed"


def _format_error(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, MalformedAnswerError | CutAnswerError | FailedAnswerError):
        return shorten_detail(error)
    return shorten_detail(f"{name}: {error}") if str(error) else name
