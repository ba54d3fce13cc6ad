"""A table live: sorted by its headers, filtered by words, its rows bounded; all of it works without the kernel."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.formats import aligned, label_of, number

if TYPE_CHECKING:
    import polars as pl

STATIC = Path(__file__).parent / "static"
MOST_ROWS = 5_000
MOST_CELLS = 60_000
SHORT_CHARS = 28


def content(frame: pl.DataFrame, *, caption: str = "", n_rows: int | None = None) -> dict[str, Any]:
    """What the page gets of a table: headers with units, texts to show, keys to sort by.

    Parameters
    ----------
    frame
        The rows; as many are taken as the page can hold.
    n_rows
        How many there are in all, where `frame` has not all of them.
    """
    most = max(1, min(MOST_ROWS, MOST_CELLS // max(1, frame.width)))
    whole, kept = frame.height if n_rows is None else n_rows, frame.head(most)
    values = [kept.get_column(name).to_list() for name in kept.columns]
    texts = [aligned(column) for column in values]
    columns = [
        {"label": label_of(name), "meaning": name, "kind": _kind(kept.schema[name].is_numeric(), column)}
        for name, column in zip(kept.columns, texts, strict=True)
    ]
    notice = f"the first {kept.height:,} of {whole:,}" if kept.height < whole else ""
    keys = [[_key(value) for value in column] for column in values]
    return {
        "caption": caption,
        "notice": notice,
        "columns": columns,
        "texts": [list(row) for row in zip(*texts, strict=True)],
        "keys": [list(row) for row in zip(*keys, strict=True)],
    }


def _kind(is_number: bool, texts: list[str]) -> str:
    return "num" if is_number else "short" if all(len(text) <= SHORT_CHARS for text in texts) else ""


def _key(value: Any) -> str | float | None:
    """What a value is sorted by; null for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | int | float):
        # JSON knows no infinity; this is beyond every other number.
        return float(value) if math.isfinite(value) else math.copysign(1.7e308, value)
    return number(value)


@functools.cache
def _kinds() -> tuple[Any, Any]:
    """The two widgets, made when they are first wanted: headless nothing of this is imported."""
    import anywidget
    import traitlets

    class Grid(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = (STATIC / "grid.js").read_text(encoding="utf-8")
        table = traitlets.Dict().tag(sync=True)
        selectable = traitlets.Bool(False).tag(sync=True)
        selected = traitlets.Int(None, allow_none=True).tag(sync=True)

    class Copied(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = (STATIC / "copy.js").read_text(encoding="utf-8")
        text = traitlets.Unicode("").tag(sync=True)

    return Grid, Copied


def grid(frame: pl.DataFrame, *, caption: str = "", selectable: bool = False) -> Any:
    """The widget of a table; with `selectable` a row can be chosen, and `selected` is its index in `frame`."""
    return _kinds()[0](table=content(frame, caption=caption), selectable=selectable)


def copied(text: str) -> Any:
    """The widget of a command line with a button that copies it."""
    return _kinds()[1](text=text)


@functools.cache
def style() -> str:
    """The look of all of it, as a style element."""
    return f"<style>{(STATIC / 'live.css').read_text(encoding='utf-8')}</style>"
