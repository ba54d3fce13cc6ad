"""Objects by plain POST, on the pool of connections: deterministic names make a second POST harmless (409)."""

from __future__ import annotations

import asyncio

import msgspec

from workbench import redaction
from workbench.scaletest import names
from workbench.scaletest.connection import Answer, ApiError, AwayError, Connection
from workbench.scaletest.driving.reply import OBJECT, Metadata, Reply, retry_after, shown
from workbench.scaletest.planned import Request
from workbench.scaletest.times import now_ns

_QUERY = {"fieldManager": names.MANAGER}
_PAGE = "500"
_LIST_TRIES = 10


class Found(msgspec.Struct):
    """A page of a list."""

    class Meta(msgspec.Struct):
        """Where it goes on."""

        continue_: str = msgspec.field(name="continue", default="")

    class Item(msgspec.Struct):
        """One object."""

        metadata: Metadata

    items: list[Item] = []
    metadata: Meta = msgspec.field(default_factory=Meta)


_PAGE_OF = msgspec.json.Decoder(Found)


class Api:
    """Objects by POST."""

    mode = "api"
    labelled = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def make(self, request: Request, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server does."""
        began = now_ns()
        try:
            answer = await self._connection.request(
                "POST", request.path, body=request.body, query=_QUERY, timeout_s=timeout_s
            )
        except AwayError as error:
            return Reply(began, now_ns(), None, message=shown(str(error.facts.get("found") or error)))
        if answer.status < 300:
            return Reply(answer.sent_ns, answer.done_ns, answer.status, metadata(answer.body))
        return _refused(answer)


def _refused(answer: Answer) -> Reply:
    told = answer.json()
    told = told if isinstance(told, dict) else {}
    return Reply(
        answer.sent_ns,
        answer.done_ns,
        answer.status,
        reason=str(told.get("reason", ""))[:80],
        message=shown(redaction.clean(str(told.get("message", "")))),
        retry_after_s=retry_after(answer.headers.get("Retry-After")),
    )


async def look(api: Connection, request: Request, *, timeout_s: float) -> Metadata | None:
    """The object of this name as the server has it; null where it has none.

    Raises
    ------
    AwayError
        It cannot be told: no answer, or one of 429 or 5xx.
    """
    answer = await api.request("GET", f"{request.path}/{request.name}", timeout_s=timeout_s)
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise AwayError("the server does not show the object", where=request.name, found=answer.status)
    return metadata(answer.body)


async def listed(api: Connection, path: str, run: str) -> dict[str, Metadata]:
    """All objects of the run in a collection, by name; in pages, so that 100,000 of them fit.

    Raises
    ------
    ApiError, AwayError
        The server refuses, or is away.
    """
    found: dict[str, Metadata] = {}
    query = {"labelSelector": names.of_run(run), "limit": _PAGE}
    tries = 0
    while True:
        answer = await api.request("GET", path, query=query)
        if answer.status == 410 and "continue" in query:
            # The list's own version is gone: from the start again.
            del query["continue"]
            continue
        if answer.status != 200:
            tries += 1
            if tries >= _LIST_TRIES or answer.status not in (429, 500, 503, 504):
                raise ApiError(
                    "the objects of the run cannot be listed",
                    status=answer.status,
                    where=path,
                    found=f"{answer.status} {_refused(answer).message}",
                )
            await asyncio.sleep(max(retry_after(answer.headers.get("Retry-After")) or 0.0, 1.0))
            continue
        page = _PAGE_OF.decode(answer.body)
        found |= {one.metadata.name: one.metadata for one in page.items}
        if not page.metadata.continue_:
            return found
        query["continue"] = page.metadata.continue_


def wanted(request: Request) -> Metadata:
    """What the object says of itself when we make it."""
    return metadata(request.body)


def metadata(body: bytes) -> Metadata:
    """What an object in JSON says of itself; nothing, where it is none."""
    try:
        return OBJECT.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Metadata()
