"""When workloads go out: each when it is due, or in bursts that wait for one another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from workbench.scaletest.driving.ending import Ending
from workbench.scaletest.driving.journal import Journal
from workbench.scaletest.planned import Planned
from workbench.scaletest.records import Intent
from workbench.scaletest.times import NS, now_ns

# Intents are written so long before their time that the disk does not make a workload late.
AHEAD_NS = NS // 5
BATCH = 64


class Crew(Protocol):
    """Workloads on their way."""

    async def begin(self, item: Planned) -> None:
        """Send one, as soon as there is room."""

    async def idle(self) -> None:
        """Until none is on its way."""


async def open_loop(items: Iterable[Planned], due_ns: Callable[[Planned], int], crew: Crew, journal: Journal) -> None:
    """Each workload when it is due, or as soon after it as the crew has room."""
    queue: asyncio.Queue[Planned | None] = asyncio.Queue(2 * BATCH)
    feeding = asyncio.create_task(_feed(items, due_ns, journal, queue))
    try:
        while (item := await queue.get()) is not None:
            await asyncio.sleep(max(0.0, (due_ns(item) - now_ns()) / NS))
            await crew.begin(item)
        await feeding
    finally:
        feeding.cancel()


async def _feed(
    items: Iterable[Planned], due_ns: Callable[[Planned], int], journal: Journal, queue: asyncio.Queue[Planned | None]
) -> None:
    """Announce workloads in the journal, some time before they are due."""
    try:
        batch: list[Planned] = []
        for item in items:
            while (early_ns := due_ns(item) - AHEAD_NS - now_ns()) > 0:
                if batch:
                    batch = await _announce(batch, journal, queue)
                else:
                    await asyncio.sleep(early_ns / NS)
            batch.append(item)
            if len(batch) >= BATCH:
                batch = await _announce(batch, journal, queue)
        if batch:
            await _announce(batch, journal, queue)
    except Exception:
        # The reader learns of it when it waits for this task.
        await queue.put(None)
        raise
    await queue.put(None)


async def _announce(batch: list[Planned], journal: Journal, queue: asyncio.Queue[Planned | None]) -> list[Planned]:
    at_ns = now_ns()
    await journal.durable(Intent(item.index, at_ns) for item in batch)
    for item in batch:
        await queue.put(item)
    return []


async def bursts(
    items: Iterable[Planned], size: int, delay_s: float, crew: Crew, journal: Journal, ending: Ending
) -> None:
    """A closed loop: so many at a time, all awaited, then a delay. The last burst is what is left."""
    left = list(items)
    while left:
        batch, left = left[:size], left[size:]
        at_ns = now_ns()
        await journal.durable(Intent(item.index, at_ns) for item in batch)
        for item in batch:
            await crew.begin(item)
        await crew.idle()
        if left:
            await ending.rest(delay_s)
