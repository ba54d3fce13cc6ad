"""What a calculation drives, and what comes of each run of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from workbench.redaction import clean, names_a_secret, values
from workbench.sizing.calculator.dataset import Item

Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Run:
    """One run of the workflow; times of a failed one are null.

    Attributes
    ----------
    outcome
        ok, or the kind of failure (OUTCOMES of `workbench/sizing/tables.py`).
    runtime_s
        What counts as its runtime.
    llm_s
        Duration of each LLM call in it; empty for none.
    first, last
        Moments of the same clock between which it ran.
    server_s
        Runtime by the service's own events, where `runtime_s` is another.
    """

    item: str
    outcome: str
    runtime_s: float | None = None
    llm_s: list[float] = field(default_factory=list)
    first: float | None = None
    last: float | None = None
    server_s: float | None = None
    detail: str | None = None


class Workflow(Protocol):
    """What a calculation drives, one level after the other; opened with `async with`."""

    name: str

    async def __aenter__(self) -> Self:
        """Make ready."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""

    async def level(self, concurrency: int, items: list[Item], told: Told) -> list[Run]:
        """Run the items with so many in flight; after the first failure none is begun.

        `told` is called with how many have ended, of how many.
        """


def cleaned(text: str, *names: str) -> str:
    """Without this process's secrets: those named to the workbench, and variables whose names give them away."""
    telling = [name for name in os.environ if names_a_secret(name)]
    return clean(text, [*values(), *values([*telling, *names])])
