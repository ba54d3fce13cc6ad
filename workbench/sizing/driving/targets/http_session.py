"""What all HTTP targets share: the session without limits, and failures told from each other."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

import aiohttp
from yarl import URL

from workbench.sizing.driving.reply import (
    CutAnswerError,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    brief,
    clock,
)

MAX_REFUSAL_BYTES = 4096
LONGEST_REFUSAL_BYTES = 64 << 10
SIMULATOR = "workbench-simulator"


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

    def address(self, prompt: str) -> URL:
        """Where this prompt is sent."""
        del prompt
        return self._url

    @abstractmethod
    def body(self, prompt: str) -> bytes | None:
        """What is sent."""

    @abstractmethod
    async def read(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
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
                self.method, self.address(prompt), data=self.body(prompt), allow_redirects=False
            ) as response:
                status = response.status
                if self._unheard:
                    # Whoever forgets to say so is not told of GPUs that are none.
                    self._unheard = False
                    self.simulated = response.headers.get("Server", "").startswith(SIMULATOR)
                if 200 <= status < 300:
                    return await self.read(response, sent)
                return await _refusal(response)
        except Exception as error:  # noqa: BLE001 - whatever a server does to us is an outcome, never the sweep's end
            return Reply(kind_of(error), clock(), status=status, detail=_told(error))


async def _refusal(response: aiohttp.ClientResponse) -> Reply:
    text = bytearray()
    # To its end if it is short: only then can the connection be used again.
    while len(text) < LONGEST_REFUSAL_BYTES and (chunk := await response.content.read(MAX_REFUSAL_BYTES)):
        text += chunk
    detail = brief(text[:MAX_REFUSAL_BYTES].decode(errors="replace"))
    return Reply("http_error", clock(), status=response.status, detail=detail)


def kind_of(error: BaseException) -> str:
    """The outcome that an exception of a request stands for (OUTCOMES).

    Examples
    --------
    >>> kind_of(TimeoutError()), kind_of(aiohttp.ServerDisconnectedError()), kind_of(ValueError())
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


def _told(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, MalformedAnswerError | CutAnswerError | FailedAnswerError):
        return brief(error)
    return brief(f"{name}: {error}") if str(error) else name
