"""HTTP connections to a cluster's API server: requests, JSON answers and streams of lines."""

from __future__ import annotations

import asyncio
import io
import re
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.core.errors import RunFailedError
from workbench.kubernetes.client import Target, format_error
from workbench.kubernetes.manifests import Object
from workbench.kubernetes.resources import find_resource

if TYPE_CHECKING:
    import aiohttp

NS_PER_S = 1_000_000_000
_WALL_NS, _MONOTONIC_NS = time.time_ns(), time.monotonic_ns()
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
# etcd limits objects to 1.5 MiB by default; the limit can be raised.
MAX_LINE_BYTES = 16 << 20
TOO_LONG = b""
MAX_ANSWER_BYTES = 256 << 20
CONNECT_TIMEOUT_S = 10.0
_BLOCK = 4 << 20
_MAX_WHOLE_BYTES = 1 << 20
# A server that is too busy answers 429 before it does anything, so the same request may be sent again; as often as
# client-go does.
THROTTLED, MAX_TRIES, MAX_PAUSE_S = 429, 10, 5.0
FORBIDDEN, CONFLICT = 403, 409
_CREATE_AGAIN_S = 0.2
GRANT_HINT = "an administrator grants what `workbench scaletest plan SCENARIO --rbac` prints"


def now_ns() -> int:
    """The client's time: never steps, whatever happens to the wall clock meanwhile."""
    return _WALL_NS + time.monotonic_ns() - _MONOTONIC_NS


@dataclass(frozen=True)
class ServerTime:
    """A server's time.

    `ns`: Nanoseconds since 1970, by the server's clock; truncated to the resolution.
    `resolution_ns`: The true time lies within [ns, ns + resolution_ns): Kubernetes cuts most of its times to whole
    seconds.
    """

    ns: int
    resolution_ns: int


def parse_timestamp(text: object) -> ServerTime | None:
    """A time as Kubernetes writes it; null where it is none (some components write null or the year 1).

    >>> parse_timestamp("2026-11-22T02:45:30Z")
    ServerTime(ns=1795315530000000000, resolution_ns=1000000000)
    >>> parse_timestamp("2026-11-22T02:45:30.123456Z").resolution_ns
    1000
    >>> parse_timestamp("0001-01-01T00:00:00Z") is None
    True
    """
    match = _STAMP.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    moment, fraction, zone = match.groups()
    try:
        seconds = datetime.fromisoformat(moment + ("+00:00" if zone == "Z" else zone)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    if seconds <= 0:
        return None
    digits = fraction or ""
    return ServerTime(int(seconds) * NS_PER_S + int(digits.ljust(9, "0")), 10 ** (9 - len(digits)))


class LineSplitter:
    """Splits blocks of bytes into lines, in linear time for long lines too."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._most, self._parts, self._size = max_bytes, list[bytes](), 0

    @property
    def too_long(self) -> bool:
        """Whether the current line is already too long."""
        return self._size > self._most

    def split(self, block: bytes) -> list[bytes]:
        """The lines that end in this block; empty ones are left out, `TOO_LONG` stands for one that is cut."""
        *ended, tail = block.split(b"\n")
        lines = []
        for piece in ended:
            self._add_piece(piece)
            if self.too_long:
                lines.append(TOO_LONG)
            elif self._size:
                lines.append(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._add_piece(tail)
        return lines

    def _add_piece(self, piece: bytes) -> None:
        self._size += len(piece)
        if self.too_long:
            self._parts = []
        elif piece:
            self._parts.append(piece)


class UnreachableError(RunFailedError):
    """The server cannot be reached, or the connection broke; a retry may help."""


class ApiError(RunFailedError):
    """The server refused. `status` is the HTTP status, `reason` the one of Kubernetes."""

    def __init__(self, what: str, *, status: int, reason: str = "", where: object = None, found: object = None) -> None:
        # Quotas and admission answer with 403, too; this is how the authorizer says it.
        lacks_right = status == FORBIDDEN and " cannot " in str(found)
        super().__init__(what, where=where, found=found, do=GRANT_HINT if lacks_right else None)
        self.status, self.reason = status, reason


def parse_retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header; None without one. Dates, which Kubernetes never sends, are ignored.

    >>> [parse_retry_after(text) for text in ("1", "2.5", "Wed, 21 Oct 2026 07:28:00 GMT", "-1")]
    [1.0, 2.5, None, None]
    """
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, with the client's times of the request's begin and of the last byte."""

    status: int
    body: bytes
    headers: dict[str, str]
    sent_ns: int
    done_ns: int

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the server asks to wait (Retry-After); null without a number."""
        return parse_retry_after(
            next((text for name, text in self.headers.items() if name.lower() == "retry-after"), None)
        )

    def json(self) -> Any:
        """The body as JSON; an empty mapping where it is none."""
        import orjson

        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}

    @property
    def refusal(self) -> str:
        """Status and the server's message on one line, for the text of an error."""
        document = self.json()
        message = str(document.get("message", "")) if isinstance(document, dict) else ""
        return f"{self.status} {' '.join(message.split())[:300]}"


class Connection:
    """A pool of connections to one target: `async with Connection(target) as api`."""

    def __init__(self, target: Target, *, max_connections: int = 64) -> None:
        self.target, self._most = target, max_connections
        self._session: aiohttp.ClientSession | None = None
        self._transports: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool itself, for requests that are read in a way of their own; only within `async with`."""
        assert self._session is not None
        return self._session

    async def __aenter__(self) -> Self:
        import aiohttp

        connector = _build_connector(self._transports, limit=self._most, ssl=self.target.tls or False, ttl_dns_cache=60)
        self._session = aiohttp.ClientSession(
            connector=connector, read_bufsize=_BLOCK, timeout=aiohttp.ClientTimeout(total=None), trust_env=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            # An aborted connection has left the pool, and its TLS shutdown waits for a
            # reply that may never come.
            for transport in list(self._transports):
                if isinstance(transport, asyncio.WriteTransport):
                    transport.abort()
            await asyncio.sleep(0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        timeout_s: float = 60,
    ) -> Answer:
        """One request, whatever the server answers.

        Raises
        ------
        UnreachableError
            No answer: connection refused or reset, or timeout.
        """
        import aiohttp

        headers = self.target.headers() | ({"Content-Type": content_type} if body is not None else {})
        limit = aiohttp.ClientTimeout(total=timeout_s)
        # A large body of bytes would hold up the event loop while it is written; a file is sent in pieces.
        data = io.BytesIO(body) if body is not None and len(body) > _MAX_WHOLE_BYTES else body
        sent = now_ns()
        try:
            async with self.session.request(
                method, self.target.server + path, data=data, params=query, headers=headers, timeout=limit
            ) as answer:
                # The body; endless or hugely compressed answers are cut off.
                where = f"{method} {path}"
                blocks, size = [], 0
                async for block in answer.content.iter_any():
                    blocks.append(block)
                    size += len(block)
                    if size > MAX_ANSWER_BYTES:
                        abort_answer(answer)
                        raise UnreachableError(
                            "the answer is too long", where=where, found=f"above {MAX_ANSWER_BYTES} bytes"
                        )
                content = blocks[0] if len(blocks) == 1 else b"".join(blocks)
                return Answer(answer.status, content, dict(answer.headers), sent, now_ns())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(
                "no answer from the cluster", where=f"{method} {path}", found=format_error(error)
            ) from None

    async def request_with_retry(self, method: str, path: str, **options: Any) -> Answer:
        """A request that is sent again while the server throttles, up to ten times, after its Retry-After."""
        for number in range(MAX_TRIES):
            answer = await self.request(method, path, **options)
            if answer.status != THROTTLED or number == MAX_TRIES - 1:
                break
            await asyncio.sleep(min(1.0 if answer.retry_after_s is None else answer.retry_after_s, MAX_PAUSE_S))
        return answer

    async def create_object(self, manifest: Object, *, refusal: str, retry_s: float = 0) -> None:
        """Create an object; one that is there already stays as it is.

        `refusal`: What went wrong if the server refuses.
        `retry_s`: For how long a failure of the server, or of a webhook that is still starting, is no refusal.
        """
        import orjson

        namespace = manifest["metadata"].get("namespace") or ""
        path = find_resource(str(manifest["apiVersion"]), str(manifest["kind"])).path(namespace)
        deadline = time.monotonic() + retry_s
        while True:
            answer = await self.request("POST", path, body=orjson.dumps(manifest))
            if answer.status in (201, CONFLICT):
                return
            if answer.status < 500 or time.monotonic() >= deadline:
                raise RunFailedError(refusal, where=path, found=answer.refusal)
            await asyncio.sleep(_CREATE_AGAIN_S)

    async def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """A request with JSON body and answer; any status but 2xx is an error, 429 only after ten tries.

        Raises
        ------
        ApiError
            The server refused; `found` has its message.
        UnreachableError
            No answer.
        """
        import orjson

        encoded = None if body is None else orjson.dumps(body)
        answer = await self.request_with_retry(method, path, body=encoded, **options)
        document = answer.json()
        if answer.status >= 300:
            details = document if isinstance(document, dict) else {}
            raise ApiError(
                "the cluster refused",
                status=answer.status,
                reason=str(details.get("reason", ""))[:80],
                where=f"{method} {path}",
                found=f"{answer.status} {format_error(details.get('message', ''))}",
            )
        return document

    async def stream(
        self,
        path: str,
        query: dict[str, str] | None = None,
        *,
        idle_s: float = 600,
        opened: Callable[[], None] | None = None,
        marks_long: bool = False,
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Lines of a streamed answer (a watch), until the server ends it.

        Parameters
        ----------
        idle_s
            Idle timeout; bookmarks arrive every minute.
        opened
            Called when the server has accepted the watch; the first line may come much later.
        marks_long
            `TOO_LONG` stands in place of a line of more than 16 MiB; else such a line ends it.

        Yields
        ------
        tuple[int, bytes]
            The client's time of the block that ended the line, and the line. What stands after the last line break is
            dropped: it is half an object, and will be sent again.

        Raises
        ------
        ApiError
            Refused: 410 when the resource version is too old.
        UnreachableError
            Not reached, interrupted, or a line longer than 16 MiB.
        """
        import aiohttp

        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_s)
        try:
            async with self.session.get(
                self.target.server + path, params=query, headers=self.target.headers(), timeout=limit
            ) as answer:
                if answer.status != 200:
                    message = (await answer.content.read(2000)).decode(errors="replace")
                    raise ApiError(
                        "the watch was refused", status=answer.status, where=path, found=format_error(message)
                    )
                if opened is not None:
                    opened()
                splitter = LineSplitter(MAX_LINE_BYTES)
                try:
                    async for block in answer.content.iter_any():
                        arrived = now_ns()
                        lines = splitter.split(block)
                        if not marks_long and (splitter.too_long or TOO_LONG in lines):
                            raise UnreachableError("a line of the watch is too long", where=path, found="above 16 MiB")
                        for line in lines:
                            yield arrived, line
                finally:
                    abort_answer(answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError("the watch was broken off", where=path, found=format_error(error)) from None


def _build_connector(transports: weakref.WeakSet[asyncio.BaseTransport], **options: Any) -> aiohttp.TCPConnector:
    """A connector that remembers its transports, so that they can be aborted."""
    import aiohttp

    class Counted(aiohttp.TCPConnector):
        async def connect(self, *args: Any, **more: Any) -> Any:
            connection = await super().connect(*args, **more)
            if connection.transport is not None:
                transports.add(connection.transport)
            return connection

    return Counted(**options)


def abort_answer(answer: aiohttp.ClientResponse) -> None:
    """Abort an answer: an orderly TLS shutdown would wait for the server, and outlive the event loop."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()
