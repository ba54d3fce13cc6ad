"""One resource, followed for ever: listed in pages, watched from there, gone on with after every break."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

from workbench.scaletest.connection import ApiError, AwayError, Connection

Json = dict[str, Any]
Handle = Callable[[str, Json], None]
PAGE = 500
_LONGEST_PAUSE_S = 5.0
_GONE = 410


class _ExpiredError(Exception):
    """What was seen last is too old for the server: everything must be listed anew."""


class Following:
    """Calls `handle` with (ADDED, MODIFIED or DELETED, object); after a break everything that is there is ADDED again.

    What was deleted meanwhile is not told: nothing here depends on it.
    """

    def __init__(self, api: Connection, path: str, handle: Handle, *, selector: str = "") -> None:
        self.api, self.path, self._handle = api, path, handle
        self._query = {"labelSelector": selector} if selector else {}
        self.ready = asyncio.Event()
        self.lists = 0

    async def run(self) -> None:
        """Until it is cancelled.

        Raises
        ------
        ApiError
            The server refuses for a reason that will not pass.
        """
        version, failures = "", 0
        while True:
            try:
                version = version or await self._listed()
                self.ready.set()
                failures = 0
                async for seen in self._watched(version):
                    version = seen
            except _ExpiredError:
                version = ""
            except ApiError as error:
                if error.status not in (_GONE, 429) and error.status < 500:
                    raise
                version = "" if error.status == _GONE else version
                failures += 1
            except AwayError:
                failures += 1
            if failures:
                await asyncio.sleep(min(_LONGEST_PAUSE_S, 0.05 * 2**failures) * random.uniform(0.5, 1))  # noqa: S311

    async def _listed(self) -> str:
        """Everything there is, page by page; the version to watch from."""
        query = {**self._query, "limit": str(PAGE)}
        while True:
            found = await self.api.json("GET", self.path, query=query)
            for item in found.get("items") or ():
                # Lists do not repeat what their items are.
                item.setdefault("kind", str(found.get("kind", "")).removesuffix("List"))
                item.setdefault("apiVersion", found.get("apiVersion"))
                self._handle("ADDED", item)
            metadata = found.get("metadata") or {}
            if not metadata.get("continue"):
                self.lists += 1
                return str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    async def _watched(self, version: str) -> AsyncIterator[str]:
        timeout_s = random.randint(240, 420)  # noqa: S311 -- so that not all end at once
        query = {
            **self._query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }
        async for _, line in self.api.stream(self.path, query, idle_s=timeout_s + 30):
            event = orjson.loads(line)
            thing = event.get("object") or {}
            if event.get("type") == "ERROR":
                raise _ExpiredError if thing.get("code") == _GONE else AwayError("the watch ended with an error")
            if event["type"] != "BOOKMARK":
                self._handle(event["type"], thing)
            yield str(thing["metadata"]["resourceVersion"])
