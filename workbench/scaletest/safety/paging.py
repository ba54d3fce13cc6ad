"""Lists of any length, in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from workbench.scaletest.connection import Connection

PAGE = 500


async def items(api: Connection, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
    """The objects of a collection.

    Raises
    ------
    ApiError, AwayError
        The cluster refused, or cannot be reached.
    """
    token = ""
    while True:
        asked = {"limit": str(PAGE), **query} | ({"continue": token} if token else {})
        found = await api.json("GET", path, query=asked)
        for one in found.get("items") or []:
            yield one
        token = str((found.get("metadata") or {}).get("continue") or "")
        if not token:
            return
