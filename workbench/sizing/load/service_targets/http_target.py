"""Base of HTTP targets: session, bounded line reader, failure classification."""

from __future__ import annotations

import asyncio
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from urllib.parse import unquote

import aiohttp
from yarl import URL

from workbench.core.redaction import REDACTION_MARK, strip_user_info
from workbench.sizing.load.client_messages import (
    NO_EXTRA,
    CutAnswerError,
    FailedAnswerError,
    MalformedAnswerError,
    Reply,
    RequestExtra,
    clock,
    shorten_detail,
)

MAX_REFUSAL_BYTES = 4096
MAX_READ_REFUSAL_BYTES = 64 << 10
MAX_RETRY_AFTER_S = 86_400.0
REST_S = 0.05
# Parameters of queries whose values are not shown: api-key, access_token, sig, X-Amz-Signature, code of Azure.
SECRET_PARAMETER = re.compile(r"key|token|sig|secret|passw|pwd|auth|cred|code|session|jwt", re.IGNORECASE)
SIMULATOR_SERVER_NAME = re.compile(r"workbench-simulator(?: \(time scale (\d+(?:\.\d+)?(?:e[+-]?\d+)?)\))?")


class LineSplitter:
    """Splits chunks of bytes into lines; buffers at most one incomplete line.

    >>> lines = LineSplitter(10)
    >>> lines.add_chunk(b"data: 1\\r\\n\\nda"), lines.add_chunk(b"ta: 2"), lines.take_rest()
    ([b'data: 1', b''], [], b'data: 2')
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0

    def add_chunk(self, chunk: bytes) -> list[bytes]:
        """Lines completed by this chunk, without line ends (LF or CRLF)."""
        # A list is faster than a generator; this runs for every chunk of every answer.
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
        """Buffered rest: the last line of a stream without a final line end."""
        # Joined once per line; otherwise each chunk of a long line would copy it.
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


def redact_address(url: str) -> str:
    """A URL without its user and without the values of parameters that may be secrets.

    >>> redact_address("https://me:pw@a/v1?api-version=1&api-key=k&sig=s#top")
    'https://a/v1?api-version=1&api-key=[redacted]&sig=[redacted]'
    """
    place, mark, query = strip_user_info(url.partition("#")[0]).partition("?")
    parts = []
    for part in query.split("&"):
        name, equals, _ = part.partition("=")
        is_secret = not equals or SECRET_PARAMETER.search(unquote(name))
        # A value without a name may be a key by itself.
        parts.append(f"{name if equals else ''}{equals}{REDACTION_MARK}" if is_secret else part)
    return f"{place}{mark}{'&'.join(parts)}" if query else place


class HttpTarget(ABC):
    """Sends one HTTP request per prompt over kept-alive connections; subclasses build requests and read answers.

    `max_answer_bytes`: Maximum length of a line in a stream, and of an answer that is not streamed.
    """

    method = "POST"
    accepts = "application/json"

    def __init__(self, url: str, *, timeout_s: float, headers: Mapping[str, str], max_answer_bytes: int) -> None:
        self._url = URL(url)
        self._address = shorten_detail(redact_address(url))
        self._timeout_s = timeout_s
        self._headers = {
            "Content-Type": "application/json",
            "Accept": self.accepts,
            # Decompression would add client time to the server's latency.
            "Accept-Encoding": "identity",
            **headers,
        }
        self._max_bytes = max_answer_bytes
        self._session: aiohttp.ClientSession | None = None
        self._fresh_session: aiohttp.ClientSession | None = None
        self._first_session: aiohttp.ClientSession | None = None
        self._is_first_taken = False
        self._resting: asyncio.Task[None] | None = None
        self._keeps: bool | None = None  # whether the service keeps connections; null until the first one has rested
        self._unheard = True
        self.simulated = False
        self.time_scale: float | None = None
        self.notes: list[str] = []

    async def open(self) -> None:
        """Create the session in the running event loop."""
        self._session, self._first_session = self._create_session(), self._create_session()

    def _create_session(self, *, keeps_connections: bool = True) -> aiohttp.ClientSession:
        # The default of aiohttp is 100 connections, which would silently cap the load.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=0, force_close=not keeps_connections)
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[tracing],
        )
        # It also retries idempotent requests silently; retries here are explicit and counted.
        session._retry_connection = False
        return session

    async def close(self) -> None:
        """Close all connections."""
        if self._resting is not None:
            self._resting.cancel()
        for session in (self._session, self._first_session, self._fresh_session):
            if session is not None:
                await session.close()

    def adapt_to_refusal(self, reply: Reply) -> str | None:
        """Change the requests after a refusal that says how; what was changed, or null: then it is final."""
        del reply
        return None

    def request_url(self, prompt: str) -> URL:
        """URL of the request for a prompt."""
        del prompt
        return self._url

    @abstractmethod
    def request_body(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> bytes | None:
        """Body of the request."""

    @abstractmethod
    async def read_reply(self, response: aiohttp.ClientResponse, sent: float) -> Reply:
        """Read the answer to a request, given its send time."""

    async def send(self, prompt: str, extra: RequestExtra = NO_EXTRA) -> Reply:
        """Send one request and return its reply; failures are outcomes, not exceptions.

        A service that closes each connection after its answer without a word breaks the next request on it. Such a one
        is known by the first connection, which is used once and then rests for a moment; what it broke is sent again
        at once, on a connection of its own.
        """
        if self._session is None or self._first_session is None:
            raise RuntimeError("call open() before send()")
        use = ConnectionUse()
        session = self._session
        if self._keeps is False:
            session = self._open_fresh_session()
        elif self._resting is None and not self._is_first_taken:
            session, self._is_first_taken = self._first_session, True
        reply = await self._send_once(session, prompt, extra, use)
        if session is self._first_session:
            self._is_first_taken = reply.outcome == "ok"
            if reply.outcome == "ok":
                self._resting = asyncio.get_running_loop().create_task(self._watch_rest(self._first_session))
        elif reply.outcome == "cut" and use.is_reused and self._resting is not None:
            await self._resting
            if self._keeps is False:
                reply = await self._send_once(self._open_fresh_session(), prompt, extra, use)
        if reply.outcome == "http_error" and (change := self.adapt_to_refusal(reply)) is not None:
            self.notes.append(change)
            reply = await self._send_once(session, prompt, extra, use)
        return reply if reply.outcome == "ok" else self._name_address(reply)

    def _name_address(self, reply: Reply) -> Reply:
        """Add the address that was asked to the detail of a failure."""
        reply.detail = f"{reply.detail or reply.outcome} (asked {self._address})"
        return reply

    def _open_fresh_session(self) -> aiohttp.ClientSession:
        if self._fresh_session is None:
            self._fresh_session = self._create_session(keeps_connections=False)
        return self._fresh_session

    async def _watch_rest(self, session: aiohttp.ClientSession) -> None:
        """Whether the service leaves a connection open that it said nothing of."""
        await asyncio.sleep(REST_S)
        assert session.connector is not None
        protocols = [protocol for resting in session.connector._conns.values() for protocol, _ in resting]
        self._keeps = all(protocol.is_connected() for protocol in protocols)
        if not self._keeps:
            self.notes.append("the service closes each connection after its answer: every request makes its own")

    async def _send_once(
        self, session: aiohttp.ClientSession, prompt: str, extra: RequestExtra, use: ConnectionUse
    ) -> Reply:
        status: int | None = None
        sent = clock()
        try:
            # A redirect could move the load to a host that the user did not confirm.
            async with session.request(
                self.method,
                self.request_url(prompt),
                data=self.request_body(prompt, extra),
                allow_redirects=False,
                trace_request_ctx=use,
            ) as response:
                status = response.status
                if self._unheard:
                    # The server identifies itself as a simulator, so results are marked even if the user forgets to.
                    self._unheard = False
                    simulator = SIMULATOR_SERVER_NAME.match(response.headers.get("Server", ""))
                    self.simulated = simulator is not None
                    self.time_scale = float(simulator[1]) if simulator is not None and simulator[1] else None
                if 200 <= status < 300:
                    return await self.read_reply(response, sent)
                return await _read_refusal(response)
        except Exception as error:  # noqa: BLE001 - any failure of a request is an outcome and does not end the sweep
            name = type(error).__name__
            if isinstance(error, MalformedAnswerError | CutAnswerError | FailedAnswerError):
                detail = shorten_detail(error)
            elif isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
                detail = shorten_detail(
                    f"its certificate is not trusted: set SSL_CERT_FILE to the authority's ({error})"
                )
            else:
                # Its own text has the whole URL, with the secrets in its query.
                text = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
                detail = shorten_detail(f"{name}: {text}") if text else name
            return Reply(classify_error(error), clock(), status=status, detail=detail)


@dataclass
class ConnectionUse:
    """Whether a request went over a kept connection."""

    is_reused: bool = False


async def _note_reuse(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.is_reused = True


async def _read_refusal(response: aiohttp.ClientResponse) -> Reply:
    text = bytearray()
    # Short bodies are read to the end, so that the connection can be reused.
    while len(text) < MAX_READ_REFUSAL_BYTES and (chunk := await response.content.read(MAX_REFUSAL_BYTES)):
        text += chunk
    detail = shorten_detail(text[:MAX_REFUSAL_BYTES].decode(errors="replace"))
    if 300 <= response.status < 400:
        # Never with the query: it may hold a token.
        place = response.headers.get("Location", "").partition("?")[0]
        detail = shorten_detail(f"redirected to {strip_user_info(place)}: if that is the service, give it as the URL")
    retry_after_s = _parse_retry_after(response.headers.get("Retry-After"))
    return Reply("http_error", clock(), status=response.status, detail=detail, retry_after_s=retry_after_s)


def _parse_retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header; 0 for a date, null without one."""
    if value is None:
        return None
    text = value.strip()
    return min(float(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0


def classify_error(error: BaseException) -> str:
    """Map an exception of a request to its outcome (OUTCOMES).

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
