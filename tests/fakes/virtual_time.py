"""An event loop whose clock jumps to the next thing to do: seconds of waiting take none, and are exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

NS_PER_S = 1_000_000_000
GRACE_S = 0.2
# As of 2033: a clock that begins at 0 hides what only works near it.
EPOCH_NS = 2_000_000_000 * NS_PER_S


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            # A thread or a socket of this process may be about to be ready.
            ready = super().select(GRACE_S)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen: a wait without end in virtual time")
        if not ready and timeout:
            # Up, so that a timer that is asked for is due when the loop looks.
            self._loop.elapsed_ns += int(timeout * NS_PER_S) + 1
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Of one test; nothing real may be waited for in it."""

    def __init__(self) -> None:
        self.elapsed_ns = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.elapsed_ns / NS_PER_S

    def now_ns(self) -> int:
        """The wall clock of this loop."""
        return EPOCH_NS + self.elapsed_ns


def run(test: Coroutine[Any, Any, Any]) -> Any:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test)


def now_ns() -> int:
    """The wall clock of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.now_ns()
