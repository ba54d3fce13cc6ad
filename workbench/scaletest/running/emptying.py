"""A run's objects go, and what a command of somebody's made without our labels is at least not overlooked."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

from workbench.scaletest import cleanup
from workbench.scaletest.connection import AwayError, Connection
from workbench.scaletest.driving.journal import state
from workbench.scaletest.planned import Request
from workbench.scaletest.planning import Plan
from workbench.scaletest.planning.rights import kinds
from workbench.scaletest.running.place import Place

# On a cluster of our own nobody else is in the way.
OWN_CLEANUP_PER_S = 1000.0
MOST_AT_ONCE = 16
_BATCH = 256
_EXAMPLES = 5


async def empty(
    api: Connection, plan: Plan, folder: Path, place: Place, tell: Callable[[cleanup.Progress], None] = lambda _: None
) -> cleanup.Cleaned:
    """Delete what a run made, and tell what is left; again on one that is gone does nothing.

    What a command made carries no labels of ours, so nothing here deletes it. It is looked for by the names that it was
    asked to make, and told as left.

    Raises
    ------
    ConfigError, ApiError, AwayError
        As `cleanup.clean`.
    """
    rate = cleanup.RATE_PER_S if place.own is None else OWN_CLEANUP_PER_S
    cleaned = await cleanup.clean(api, plan.run, plan.namespaces, kinds(plan.scenario), tell, rate_per_s=rate)
    found = state(folder)
    if found.mode != "command":
        return cleaned
    left = await _still_there(api, plan, sorted(found.acked | found.open))
    if not left:
        return cleaned
    return dataclasses.replace(
        cleaned,
        left=cleaned.left | {place: len(some) for place, some in left.items()},
        examples=cleaned.examples | {place: some[:_EXAMPLES] for place, some in left.items()},
    )


async def _still_there(api: Connection, plan: Plan, indices: list[int]) -> dict[str, list[str]]:
    """Names of objects that the server has, or does not say that it has not, by where they are."""
    room, found = asyncio.Semaphore(MOST_AT_ONCE), dict[str, list[str]]()

    async def look(request: Request) -> None:
        async with room:
            try:
                status = (await api.request("GET", f"{request.path}/{request.name}")).status
            except AwayError:
                status = 0
        if status != 404:
            found.setdefault(_place(request.path), []).append(request.name)

    for begin in range(0, len(indices), _BATCH):
        some = indices[begin : begin + _BATCH]
        await asyncio.gather(*(look(one) for index in some for one in plan.one(index).requests()))
    return {place: sorted(some) for place, some in sorted(found.items())}


def _place(path: str) -> str:
    """Where, as cleanup names it.

    Examples
    --------
    >>> _place("/apis/batch/v1/namespaces/tests/jobs")
    'tests/jobs (made by the command, without our labels)'
    """
    *_, space, plural = path.split("/")
    return f"{space}/{plural} (made by the command, without our labels)"
