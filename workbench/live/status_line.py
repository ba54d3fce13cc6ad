"""Status line below a cell that takes long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from workbench.charts import renderer
from workbench.core.formats import escape_html
from workbench.report.display import CellDisplay

SetStatus = Callable[[str], None]


@contextlib.contextmanager
def live_status_line() -> Iterator[SetStatus]:
    """A status line below the cell, cleared at the end; nothing in a headless run."""
    if renderer.is_headless():
        yield lambda _: None
        return
    from IPython.display import display

    handle = display(CellDisplay("", ""), display_id=True)  # type: ignore[no-untyped-call]

    def set_status(text: str) -> None:
        if handle is not None:
            handle.update(CellDisplay(f"<p>{escape_html(text)}</p>", text))

    try:
        yield set_status
    finally:
        if handle is not None:
            handle.update(CellDisplay("", ""))
