"""How far long work is, on stderr: plain lines for logs and pipes, one line that changes on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from workbench.terminal import CONTROLS

LINE_EVERY_S = 10.0
DRAWN_EVERY_S = 0.25


def harmless(text: str) -> str:
    """A text that may come from outside, without what would steer a terminal."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class Lines:
    """A line for each thing worth one, and for what changes a line now and then. An area adds what its work tells."""

    every_s = LINE_EVERY_S

    def __init__(self) -> None:
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    def say(self, line: str) -> None:
        """A line that stays."""
        # One write: the work often tells from another thread.
        sys.stderr.write(harmless(line) + "\n")
        sys.stderr.flush()

    def show(self, line: str) -> None:
        """Something new begins; a line here, where a terminal would change its own."""
        self._next = time.monotonic() + self.every_s
        self.say(line)

    def now_and_then(self, line: str) -> None:
        """How it stands; said when the last time is long enough ago."""
        if time.monotonic() >= self._next:
            self.show(line)


class ChangingLine(Lines):
    """One line that changes; what a person should read stays above it."""

    every_s = DRAWN_EVERY_S

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        # Drawn when there is news: a thread that redraws ten times a second would make requests late.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back."""
        self._live.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        from rich.text import Text

        self._draw("")
        self._console.print(Text(harmless(line)), soft_wrap=True)

    def show(self, line: str) -> None:
        """Something new begins."""
        self._next = time.monotonic() + self.every_s
        self._draw(line)

    def _draw(self, line: str) -> None:
        from rich.text import Text

        self._live.update(Text(harmless(line), no_wrap=True, overflow="ellipsis"), refresh=True)
