"""Creation of one API object by POST: the request, its reply, what the reply means, and backoff."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from workbench.core import redaction
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.cluster_api.connection import Answer, ApiError, Connection, UnreachableError
from workbench.scaletest.cluster_api.list_watch import ListPage, list_items
from workbench.scaletest.scenario.workload_objects import ObjectRequest

Meaning = Literal["made", "exists", "throttled", "again", "refused"]
MAX_REASON_CHARS = 300
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0


_QUERY = {"fieldManager": object_names.MANAGER}
_LIST_TRIES = 10


class Metadata(msgspec.Struct):
    """What is read of an object."""

    name: str = ""
    uid: str | None = None
    creationTimestamp: str | None = None  # noqa: N815 - Kubernetes' word
    deletionTimestamp: str | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    @property
    def run(self) -> str | None:
        """The run that it says to belong to."""
        return (self.labels or {}).get(object_names.RUN)

    @property
    def spec_hash(self) -> str | None:
        """The hash that it was made with."""
        return (self.annotations or {}).get(object_names.SPEC_HASH)


class Object(msgspec.Struct):
    """The fields of an object that are read."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


OBJECT = msgspec.json.Decoder(Object)


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of one attempt to create an object.

    `status`: HTTP status; 0 if a program succeeded without one; None without a response.
    """

    sent_ns: int
    done_ns: int
    status: int | None
    found: Metadata = field(default_factory=Metadata)
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    verdict: Meaning | None = None

    @property
    def duration_s(self) -> float:
        """Duration of the attempt."""
        return (self.done_ns - self.sent_ns) / NS_PER_S

    @property
    def meaning(self) -> Meaning:
        """Verdict on the attempt: what the sender does next."""
        return self.verdict or classify_answer(self.status, self.reason)


class Submitter(Protocol):
    """A way to create objects.

    `labelled`: Whether the objects are created as planned, with the run's labels; a user's command creates its own.
    """

    mode: str
    labelled: bool

    async def create_object(self, request: ObjectRequest, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server or the program does."""


def classify_answer(status: int | None, reason: str) -> Meaning:
    """Classify the response to a POST.

    A 409 means that the name exists, or a conflict on a quota, which is retried. A 401 is retried, because tokens are
    renewed before each request.

    >>> classify_answer(201, ""), classify_answer(422, "Invalid")
    ('made', 'refused')
    >>> classify_answer(409, "AlreadyExists"), classify_answer(409, "Conflict")
    ('exists', 'again')
    >>> [classify_answer(429, "TooManyRequests"), classify_answer(503, ""), classify_answer(None, "")]
    ['throttled', 'again', 'again']
    """
    if status is None or status >= 500 or status in (401, 408):
        return "again"
    if status == 0 or 200 <= status < 300:
        return "made"
    if status == 429:
        return "throttled"
    if status == 409:
        return "exists" if reason == "AlreadyExists" else "again"
    return "refused"


def draw_backoff_s(attempt: int, draw: random.Random) -> float:
    """Backoff after the n-th failure (from 1): doubles up to 5 s, with a random half.

    >>> 0.05 <= draw_backoff_s(1, random.Random(1)) <= 0.1, 2.5 <= draw_backoff_s(30, random.Random(1)) <= 5
    (True, True)
    """
    longest = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 30))
    return longest * (0.5 + draw.random() / 2)


def shorten_text(text: str) -> str:
    """A foreign text on one line, cut."""
    return " ".join(text.split())[:MAX_REASON_CHARS]


class _Page(msgspec.Struct):
    """A page of a list."""

    class Meta(msgspec.Struct):
        """Where it goes on."""

        continue_: str = msgspec.field(name="continue", default="")

    class Item(msgspec.Struct):
        """One object."""

        metadata: Metadata

    items: list[Item] = []
    metadata: Meta = msgspec.field(default_factory=Meta)


_PAGE_DECODER = msgspec.json.Decoder(_Page)


class ApiSubmitter:
    """Creates objects with POST."""

    mode = "api"
    labelled = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create_object(self, request: ObjectRequest, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server does."""
        began = now_ns()
        try:
            answer = await self._connection.request(
                "POST", request.path, body=request.body, query=_QUERY, timeout_s=timeout_s
            )
        except UnreachableError as error:
            return Reply(began, now_ns(), None, message=shorten_text(str(error.facts.get("found") or error)))
        if answer.status < 300:
            return Reply(answer.sent_ns, answer.done_ns, answer.status, parse_metadata(answer.body))
        return _build_refusal(answer)


def _build_refusal(answer: Answer) -> Reply:
    document = answer.json()
    document = document if isinstance(document, dict) else {}
    return Reply(
        answer.sent_ns,
        answer.done_ns,
        answer.status,
        reason=str(document.get("reason", ""))[:80],
        message=shorten_text(redaction.redact_value(str(document.get("message", "")))),
        retry_after_s=answer.retry_after_s,
    )


async def find_object(api: Connection, request: ObjectRequest, *, timeout_s: float) -> Metadata | None:
    """Read an object by name; None if it does not exist."""
    answer = await api.request("GET", f"{request.path}/{request.name}", timeout_s=timeout_s)
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise UnreachableError("the server does not show the object", where=request.name, found=answer.status)
    return parse_metadata(answer.body)


async def list_run_objects(api: Connection, path: str, run: str) -> dict[str, Metadata]:
    """All objects of the run in a collection, by name; in pages, so that 100,000 of them fit."""
    tries = 0

    async def fetch(query: dict[str, str]) -> ListPage:
        nonlocal tries
        while True:
            answer = await api.request("GET", path, query=query)
            if answer.status == 200:
                page = _PAGE_DECODER.decode(answer.body)
                return ListPage([item.metadata for item in page.items], "", page.metadata.continue_, answer.done_ns)
            tries += 1
            if tries >= _LIST_TRIES or answer.status not in (429, 500, 503, 504):
                raise ApiError(
                    "the objects of the run cannot be listed",
                    status=answer.status,
                    where=path,
                    found=f"{answer.status} {_build_refusal(answer).message}",
                )
            await asyncio.sleep(max(answer.retry_after_s or 0.0, 1.0))

    items = await list_items(fetch, {"labelSelector": object_names.build_run_selector(run)})
    return {metadata.name: metadata for metadata in items}


def read_request_metadata(request: ObjectRequest) -> Metadata:
    """What the object says of itself when we make it."""
    return parse_metadata(request.body)


def parse_metadata(body: bytes) -> Metadata:
    """What an object in JSON says of itself; nothing, where it is none."""
    try:
        return OBJECT.decode(body).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Metadata()
