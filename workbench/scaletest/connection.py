"""A cluster's API at the speed of a load generator: the kubeconfig's identity, on a pool of plain HTTP/1.1 connections.

Credentials are read by the `kubernetes` package (certificates, tokens, exec plugins, refresh); requests go by aiohttp,
which costs a fifth of the client's processor time. HTTP/2 gains nothing here: one connection is one flow.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from workbench.errors import RunFailedError
from workbench.scaletest.kubeconfig import Target as Target
from workbench.scaletest.kubeconfig import short
from workbench.scaletest.kubeconfig import target as target
from workbench.scaletest.splitting import MOST_LINE_BYTES, TOO_LONG, Splitter
from workbench.scaletest.times import now_ns

if TYPE_CHECKING:
    import aiohttp

MOST_ANSWER_BYTES = 256 << 20
CONNECT_S = 10.0
_BLOCK = 4 << 20


class AwayError(RunFailedError):
    """The server cannot be reached, or broke off: another try may help."""


class ApiError(RunFailedError):
    """The server answered, and refused. `status` is the HTTP status, `reason` Kubernetes' word for it."""

    def __init__(self, what: str, *, status: int, reason: str = "", where: object = None, found: object = None) -> None:
        super().__init__(what, where=where, found=found)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, with the client's times of the request's begin and of the last byte."""

    status: int
    body: bytes
    headers: dict[str, str]
    sent_ns: int
    done_ns: int

    def json(self) -> Any:
        """The body as JSON; an empty mapping where it is none."""
        import orjson

        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}


class Connection:
    """A pool of connections to one target: `async with Connection(target) as api`."""

    def __init__(self, target: Target, *, most: int = 64) -> None:
        self.target, self._most = target, most
        self._session: aiohttp.ClientSession | None = None
        self._transports: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool itself, for requests that are read in a way of their own; only within `async with`."""
        assert self._session is not None
        return self._session

    async def __aenter__(self) -> Self:
        import aiohttp

        connector = _connector(self._transports, limit=self._most, ssl=self.target.tls or False, ttl_dns_cache=60)
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
            # A connection that was given up in the middle of an answer is in no pool any more, and its TLS waits for a
            # goodbye that may never come.
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
        AwayError
            There is no answer: refused, reset, cut, or not within the time.
        """
        import aiohttp

        headers = self.target.headers() | ({"Content-Type": content_type} if body is not None else {})
        limit = aiohttp.ClientTimeout(total=timeout_s)
        sent = now_ns()
        try:
            async with self.session.request(
                method, self.target.server + path, data=body, params=query, headers=headers, timeout=limit
            ) as answer:
                found = await _bounded(answer, f"{method} {path}")
                return Answer(answer.status, found, dict(answer.headers), sent, now_ns())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AwayError("no answer from the cluster", where=f"{method} {path}", found=short(error)) from None

    async def json(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The same for a body and an answer in JSON; any status but 2xx is an error.

        Raises
        ------
        ApiError
            Refused; the server's own message is told.
        AwayError
            There is no answer.
        """
        import orjson

        encoded = None if body is None else orjson.dumps(body)
        answer = await self.request(method, path, body=encoded, **options)
        found = answer.json()
        if answer.status >= 300:
            told = found if isinstance(found, dict) else {}
            raise ApiError(
                "the cluster refused",
                status=answer.status,
                reason=str(told.get("reason", ""))[:80],
                where=f"{method} {path}",
                found=f"{answer.status} {short(told.get('message', ''))}",
            )
        return found

    async def stream(
        self,
        path: str,
        query: dict[str, str] | None = None,
        *,
        idle_s: float = 600,
        opened: Callable[[], None] | None = None,
        marks_long: bool = False,
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Lines of an answer that goes on (a watch), until the server ends it.

        Parameters
        ----------
        idle_s
            It counts as broken off when nothing came for so long (a bookmark comes every minute).
        opened
            Called when the server has accepted the watch: it may be long before there is a line.
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
        AwayError
            Not reached, broken off, or a line longer than 16 MiB.
        """
        import aiohttp

        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=idle_s)
        try:
            async with self.session.get(
                self.target.server + path, params=query, headers=self.target.headers(), timeout=limit
            ) as answer:
                if answer.status != 200:
                    told = (await answer.content.read(2000)).decode(errors="replace")
                    raise ApiError("the watch was refused", status=answer.status, where=path, found=short(told))
                if opened is not None:
                    opened()
                splitter = Splitter(MOST_LINE_BYTES)
                try:
                    async for block in answer.content.iter_any():
                        arrived = now_ns()
                        found = splitter.split(block)
                        if not marks_long and (splitter.too_long or TOO_LONG in found):
                            raise AwayError("a line of the watch is too long", where=path, found="above 16 MiB")
                        for line in found:
                            yield arrived, line
                finally:
                    abort(answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AwayError("the watch was broken off", where=path, found=short(error)) from None


def _connector(made: weakref.WeakSet[asyncio.BaseTransport], **options: Any) -> aiohttp.TCPConnector:
    """A pool that keeps account of the transports that it gave out."""
    import aiohttp

    class Counted(aiohttp.TCPConnector):
        async def connect(self, *args: Any, **more: Any) -> Any:
            found = await super().connect(*args, **more)
            if found.transport is not None:
                made.add(found.transport)
            return found

    return Counted(**options)


def abort(answer: aiohttp.ClientResponse) -> None:
    """Leave an answer in the middle: closing TLS well would wait for the server, and outlive the loop."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


async def _bounded(answer: aiohttp.ClientResponse, where: str) -> bytes:
    """The body; an answer that never ends, or is much longer than it was packed, is cut off."""
    blocks, size = [], 0
    async for block in answer.content.iter_any():
        blocks.append(block)
        size += len(block)
        if size > MOST_ANSWER_BYTES:
            abort(answer)
            raise AwayError("the answer is too long", where=where, found=f"above {MOST_ANSWER_BYTES} bytes")
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)
