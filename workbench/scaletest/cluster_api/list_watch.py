"""Lists of the Kubernetes API in pages, and list-and-watch of one resource.

A collection is read page by page (`limit` and `continue`); all pages show the same version of it, unless the server has
discarded that version (410). A watch then starts at the version of the list, and gets every later change.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from workbench.scaletest.cluster_api.connection import ApiError, Connection, UnreachableError, now_ns

PAGE_SIZE = 500
GONE = 410
_WATCH_S = (240, 420)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0

Json = dict[str, Any]
Handle = Callable[[str, Json], None]


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a collection; `token` leads to the next one, and is empty for the last."""

    items: list[Any]
    version: str
    token: str
    arrival_ns: int


Fetch = Callable[[dict[str, str]], Awaitable[ListPage]]


async def iterate_pages(fetch: Fetch, query: Mapping[str, str]) -> AsyncIterator[ListPage]:
    """The pages of a collection; `fetch` requests and decodes the page of a query."""
    page_query = {"limit": str(PAGE_SIZE), **query}
    while True:
        page = await fetch(page_query)
        yield page
        if not page.token:
            return
        page_query = {**page_query, "continue": page.token}


async def list_items(fetch: Fetch, query: Mapping[str, str]) -> list[Any]:
    """Return all items of a collection, listed again from the start if its version expires between two pages."""
    items: list[Any] = []
    while True:
        try:
            async for page in iterate_pages(fetch, query):
                items += page.items
        except ApiError as error:
            if error.status != GONE or not items:
                raise
            items = []
        else:
            return items


def fetch_objects(api: Connection, path: str) -> Fetch:
    """Pages of objects as parsed JSON."""

    async def fetch(query: dict[str, str]) -> ListPage:
        document = await api.json("GET", path, query=query)
        metadata = document.get("metadata") or {}
        version, token = str(metadata.get("resourceVersion", "")), str(metadata.get("continue") or "")
        items = list(document.get("items") or [])
        for item in items:
            # Lists do not repeat the kind and version of their items.
            item.setdefault("kind", str(document.get("kind", "")).removesuffix("List"))
            item.setdefault("apiVersion", document.get("apiVersion"))
        return ListPage(items, version, token, now_ns())

    return fetch


async def iterate_items(api: Connection, path: str, **query: str) -> AsyncIterator[Json]:
    """The objects of a collection, page by page."""
    async for page in iterate_pages(fetch_objects(api, path), query):
        for item in page.items:
            yield item


def build_watch_query(selectors: Mapping[str, str], version: str) -> dict[str, str]:
    """Query of a watch that starts after `version`; its random duration spreads the reconnects of many watches."""
    return {
        **selectors,
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(random.randint(*_WATCH_S)),  # noqa: S311
    }


async def pause_after_failures(failures: int) -> None:
    """Back off: 0.1 s after the first failure, doubling to 2 s, with jitter; no pause without failures."""
    if failures:
        longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures, 10))
        await asyncio.sleep(longest_s * random.uniform(0.5, 1))  # noqa: S311


class _ExpiredError(Exception):
    """The version to watch from is too old; a new list is needed."""


class ResourceFollower:
    """Calls `handle` with ADDED, MODIFIED or DELETED and the object.

    After a break all existing objects are ADDED again. Deletions during a break are not reported.
    """

    def __init__(self, api: Connection, path: str, handle: Handle, *, selector: str = "") -> None:
        self.api, self.path, self._handle = api, path, handle
        self._query = {"labelSelector": selector} if selector else {}
        self.ready = asyncio.Event()
        self.lists = 0

    async def run(self) -> None:
        """Follow the resource until cancelled.

        Raises
        ------
        ApiError
            The server refuses for a reason that does not pass.
        """
        version, failures = "", 0
        while True:
            try:
                version = version or await self._list_objects()
                self.ready.set()
                failures = 0
                async for seen in self._watch_changes(version):
                    version = seen
            except _ExpiredError:
                version = ""
            except ApiError as error:
                if error.status not in (GONE, 429) and error.status < 500:
                    raise
                version = "" if error.status == GONE else version
                failures += 1
            except UnreachableError:
                failures += 1
            await pause_after_failures(failures)

    async def _list_objects(self) -> str:
        """Report all objects; the version to watch from."""
        version = ""
        async for page in iterate_pages(fetch_objects(self.api, self.path), self._query):
            for item in page.items:
                self._handle("ADDED", item)
            version = page.version
        self.lists += 1
        return version

    async def _watch_changes(self, version: str) -> AsyncIterator[str]:
        query = build_watch_query(self._query, version)
        async for _, line in self.api.stream(self.path, query, idle_s=_WATCH_S[1] + 30):
            event = orjson.loads(line)
            thing = event.get("object") or {}
            if event.get("type") == "ERROR":
                raise _ExpiredError if thing.get("code") == GONE else UnreachableError("the watch ended with an error")
            if event["type"] != "BOOKMARK":
                self._handle(event["type"], thing)
            yield str(thing["metadata"]["resourceVersion"])
