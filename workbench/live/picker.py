"""The file picker of a form's line: a button that opens a list of what fits, and closes it with the choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from workbench.formats import escape
from workbench.live.choosing import Entry, Listing, Pick, listing, start_of, written

ROWS = 8


class Picker:
    """A button, and below it while it is open: the folder, its entries, and what to do with the selected one.

    Parameters
    ----------
    pick
        What is wanted.
    base
        The notebook's folder: relative values start there, and choices are written relative to it.
    value
        Gives the field's present value, from which the list starts.
    chosen
        Called with the choice, as the field holds it.
    """

    def __init__(self, pick: Pick, base: Path, value: Callable[[], str], chosen: Callable[[str], None]) -> None:
        import ipywidgets

        self.pick, self.base = pick, base
        self._value, self._chosen = value, chosen
        self.listing = Listing(base, ())
        auto = ipywidgets.Layout(width="auto")
        self.button = ipywidgets.Button(description="Browse…", tooltip=f"Choose {pick.what}", layout=auto)
        self.where = ipywidgets.HTML()
        self.entries = ipywidgets.Select(options=[], rows=ROWS, layout=ipywidgets.Layout(width="auto"))
        self.up = ipywidgets.Button(description="Up", tooltip="The folder above", layout=auto)
        self.open = ipywidgets.Button(description="Open", tooltip="Go into the selected folder", layout=auto)
        self.choose = ipywidgets.Button(description="Choose", button_style="primary", layout=auto)
        self.close = ipywidgets.Button(description="Close", layout=auto)
        self.everything = ipywidgets.Checkbox(description="all files", indent=False, layout=auto)
        self.notice = ipywidgets.HTML()
        self.place = ipywidgets.VBox([])
        self.place.add_class("wb-picker")
        self._wire()

    def _wire(self) -> None:
        self.button.on_click(lambda _: self.hide() if self.place.children else self.show())
        self.up.on_click(lambda _: self.go(self.listing.folder.parent))
        self.open.on_click(lambda _: self._enter())
        self.choose.on_click(lambda _: self._take())
        self.close.on_click(lambda _: self.hide())
        self.everything.observe(lambda _: self.go(self.listing.folder), "value")
        self.entries.observe(lambda _: self._selected(), "value")

    def show(self) -> None:
        """Open the list where the field's value lies."""
        import ipywidgets

        value = self._value()
        self.go(start_of(value, self.base), select=Path(value).name)
        bar = ipywidgets.HBox(
            [self.up, self.open, self.choose, self.close, self.everything],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.place.children = (self.where, self.entries, bar, self.notice)

    def hide(self) -> None:
        """Close the list; the field stays as it is."""
        self.place.children = ()

    def go(self, folder: Path, select: str = "") -> None:
        """List another folder."""
        self.listing = listing(folder, self.pick, everything=self.everything.value)
        self.where.value = f"<code>{escape(self.listing.folder)}</code>"
        found = self.listing.entries
        self.entries.options = [(("● " if one.fits else "") + one.name, index) for index, one in enumerate(found)]
        same = next((index for index, one in enumerate(found) if one.path.name == select), 0)
        self.entries.value = same if found else None
        legend = f"● {self.pick.what}" if any(one.fits for one in found) else f"no {self.pick.what} here"
        self.notice.value = (
            f'<div class="wb-help">{escape("; ".join(filter(None, [legend, self.listing.notice])))}</div>'
        )
        self._selected()

    @property
    def selected(self) -> Entry | None:
        """The entry that is marked; null in an empty folder."""
        index = self.entries.value
        return None if index is None else self.listing.entries[index]

    def _selected(self) -> None:
        entry = self.selected
        self.open.disabled = entry is None or not entry.is_folder
        # With all files shown somebody knows better than our patterns.
        self.choose.disabled = entry is None or not (entry.fits or self.everything.value)

    def _enter(self) -> None:
        if (entry := self.selected) is not None and entry.is_folder:
            self.go(entry.path)

    def _take(self) -> None:
        if (entry := self.selected) is not None:
            self._chosen(written(entry.path, self.base))
            self.hide()
