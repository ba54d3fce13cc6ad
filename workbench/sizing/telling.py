"""What a live cell says while a sweep runs, and notes below an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench import renderer
from workbench.display import Shown
from workbench.formats import escape
from workbench.sizing.driving.outcome import Silence, Watcher

if TYPE_CHECKING:
    from workbench.sizing.driving import wire
    from workbench.sizing.driving.step import Held

STOPPING = "stopping: nothing more is sent; interrupt the kernel again to break off what is in flight"


class Cell:
    """Told by a sweep how far it is; writes it below the cell: a line for each step that ended, one for the running.

    Parameters
    ----------
    handle
        What `display(…, display_id=True)` gives.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._lines: list[str] = []
        self._name = ""

    def begun(self, load: wire.Load) -> None:
        """A step begins."""
        from workbench.sizing.driving.progress import load_text

        self._name = f"step {load.step}, {load_text(load)}"
        self._draw(f"{self._name} …")

    def going(self, held: Held) -> None:
        """What there is so far."""
        from workbench.sizing.driving.progress import figures

        self._draw(f"{self._name}: {figures(held)}, {held.in_flight} in flight, {held.duration_s:.0f} s")

    def ended(self, held: Held) -> None:
        """A step is over."""
        from workbench.sizing.driving.progress import figures

        self._lines.append(f"{self._name}: {figures(held)}, {held.duration_s:.1f} s ({held.stopped})")
        self._draw("")

    def stopping(self, times: int) -> None:
        """The user wants it to end."""
        self._draw(STOPPING if times == 1 else "breaking off the requests in flight")

    def _draw(self, running: str) -> None:
        lines = [*self._lines, running] if running else self._lines
        html = "<br>".join(escape(line) for line in lines)
        self._handle.update(Shown(f"<p>{html}</p>", "\n".join(lines)))


@contextlib.contextmanager
def watching() -> Iterator[Watcher]:
    """Who is told how far a sweep is: the cell, live, emptied in the end; nobody in a batch run."""
    if renderer.is_headless():
        yield Silence()
        return
    from IPython.display import display

    handle = display(Shown("", ""), display_id=True)  # type: ignore[no-untyped-call]
    if handle is None:
        yield Silence()
        return
    try:
        yield Cell(handle)
    finally:
        handle.update(Shown("", ""))
