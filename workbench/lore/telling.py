"""A line that says, live, what a cell is waiting for; texts of plans shown as they are, harmless."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from workbench import renderer
from workbench.display import Shown
from workbench.formats import escape

Say = Callable[[str], None]
MAX_CHARS = 20_000


@contextlib.contextmanager
def live_line() -> Iterator[Say]:
    """A line below the cell, written anew each time and empty in the end; nothing in a batch run."""
    if renderer.is_headless():
        yield lambda _: None
        return
    from IPython.display import display

    handle = display(Shown("", ""), display_id=True)  # type: ignore[no-untyped-call]

    def say(text: str) -> None:
        if handle is not None:
            handle.update(Shown(f"<p>{escape(text)}</p>", text))

    try:
        yield say
    finally:
        if handle is not None:
            handle.update(Shown("", ""))


def texts(parts: Mapping[str, str]) -> Shown:
    """Texts below each other, each with a heading, in their own lines; cut where they are very long."""
    cut = {name: text.rstrip()[:MAX_CHARS] for name, text in parts.items()}
    html = "".join(
        f'<p><strong>{escape(name)}</strong></p><pre class="out">{escape(text)}</pre>' for name, text in cut.items()
    )
    return Shown(html, "\n\n".join(f"{name}\n{text}" for name, text in cut.items()))
