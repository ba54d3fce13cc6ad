"""File picker of a form field: what a folder offers, and the widget that lists it."""

from __future__ import annotations

import fnmatch
import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError
from workbench.core.formats import escape_html
from workbench.core.samples import PREFIX, find_sample

MAX_SCANNED = 5_000
MAX_LISTED = 300
# Members of a folder that are matched against the patterns.
MAX_MEMBERS = 200
MAX_VISIBLE_ROWS = 8


@dataclass(frozen=True)
class Pick:
    """Marks a field as a path, with the paths that fit: ``Annotated[str, Pick("event log", files=("*.zstd",))]``.

    Attributes
    ----------
    what
        What to choose, as text.
    files
        Name patterns of files that fit; empty for none.
    folders
        Name patterns: a folder with a matching member fits; ``*`` for any folder, empty for none.
    """

    what: str
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Values of the field, each with the path of the sample that it names."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_find_samples, handler(source))


def _find_samples(value: Any) -> Any:
    if isinstance(value, list):
        return [_find_samples(item) for item in value]
    try:
        return find_sample(value) if isinstance(value, str) and value.startswith(PREFIX) else value
    except ConfigError as error:
        # An error of the field.
        facts = [str(error.facts[name]) for name in ("allowed", "do") if error.facts[name]]
        raise ValueError(f"{error.what}: {'; '.join([value, *facts])}") from None


@dataclass(frozen=True)
class FileEntry:
    """One entry of the list: folders can be opened, fitting entries chosen."""

    path: Path
    is_folder: bool
    fits: bool

    @property
    def name(self) -> str:
        """Displayed name; folders end in a slash."""
        return self.path.name + ("/" if self.is_folder else "")


@dataclass(frozen=True)
class FolderListing:
    """Entries of a folder.

    `entries`: At most `MAX_LISTED`: fitting ones first, then other folders, by name.
    """

    folder: Path
    entries: tuple[FileEntry, ...]
    notice: str = ""


def list_folder(folder: str | Path, pick: Pick, *, everything: bool = False) -> FolderListing:
    """List fitting entries and folders; with `everything` also other files and hidden names.

    An unreadable folder has no entries and a notice. Only the first `MAX_SCANNED` entries are read.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow links that a person named on purpose
    try:
        with os.scandir(folder) as members:
            scanned = list(itertools.islice(members, MAX_SCANNED + 1))
    except OSError as error:
        return FolderListing(folder, (), f"cannot be read: {error.strerror or error}")
    entries = []
    for member in scanned[:MAX_SCANNED]:
        if everything or not member.name.startswith("."):
            path = Path(member.path)
            try:
                is_folder = member.is_dir()
            except OSError:
                is_folder = False
            fits = is_wanted_folder(path, pick) if is_folder else _matches_patterns([member.name], pick.files)
            entries.append(FileEntry(path, is_folder, fits))
    wanted = [entry for entry in entries if everything or entry.is_folder or entry.fits]
    # Fitting entries first.
    wanted.sort(key=lambda entry: (not entry.fits, not entry.is_folder, entry.path.name.casefold()))
    return FolderListing(folder, tuple(wanted[:MAX_LISTED]), _format_notice(scanned, wanted, len(entries)))


def _format_notice(scanned: list[os.DirEntry[str]], wanted: list[FileEntry], entries: int) -> str:
    notes = []
    if len(scanned) > MAX_SCANNED:
        notes.append(f"only the first {MAX_SCANNED:,} entries were looked at")
    if len(wanted) > MAX_LISTED:
        notes.append(f"{len(wanted) - MAX_LISTED:,} more are not listed; type the path")
    if hidden := entries - len(wanted):
        notes.append(f"{hidden:,} other file{'s' if hidden > 1 else ''}")
    return "; ".join(notes)


def is_wanted_folder(folder: Path, pick: Pick) -> bool:
    """Whether a folder has a member that matches the patterns."""
    if not pick.folders:
        return False
    if "*" in pick.folders:
        return True
    try:
        with os.scandir(folder) as members:
            return _matches_patterns((member.name for member in itertools.islice(members, MAX_MEMBERS)), pick.folders)
    except OSError:
        return False


def _matches_patterns(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def find_start_folder(value: str, base: Path) -> Path:
    """First folder to show for a value: its folder, or the nearest existing one above."""
    if not value or "://" in value or "\0" in value:
        return base
    path = base / Path(value).expanduser()
    for folder in list(path.parents):
        if folder.is_dir():
            return Path(os.path.normpath(folder))
    return base


def format_chosen_path(path: Path, base: Path) -> str:
    """A chosen path as a value: relative to the notebook's folder inside of its checkout, else absolute.

    >>> [format_chosen_path(Path(path), Path("/a/notebooks")) for path in ("/a/data/x.zstd", "/b/x.zstd")]
    ['../data/x.zstd', '/b/x.zstd']
    """
    inside = path.is_relative_to(base.parent) and base.parent != base.parent.parent
    return Path(os.path.relpath(path, base)).as_posix() if inside else str(path)


class FilePicker:
    """A button that opens a list of the folder's entries with actions."""

    def __init__(self, pick: Pick, base: Path, value: Callable[[], str], on_choice: Callable[[str], None]) -> None:
        import ipywidgets

        self.pick, self.base = pick, base
        self._value, self._chosen = value, on_choice
        self.listing = FolderListing(base, ())
        auto = ipywidgets.Layout(width="auto")
        self.button = ipywidgets.Button(description="Browse…", tooltip=f"Choose {pick.what}", layout=auto)
        self.where = ipywidgets.HTML()
        self.entries = ipywidgets.Select(options=[], rows=MAX_VISIBLE_ROWS, layout=ipywidgets.Layout(width="auto"))
        self.up = ipywidgets.Button(description="Up", tooltip="The folder above", layout=auto)
        self.open = ipywidgets.Button(description="Open", tooltip="Go into the selected folder", layout=auto)
        self.choose = ipywidgets.Button(description="Choose", button_style="primary", layout=auto)
        self.close = ipywidgets.Button(description="Close", layout=auto)
        self.everything = ipywidgets.Checkbox(description="all files", indent=False, layout=auto)
        self.notice = ipywidgets.HTML()
        self.place = ipywidgets.VBox([])
        self.place.add_class("wb-picker")
        self._connect_widgets()

    def _connect_widgets(self) -> None:
        self.button.on_click(lambda _: self.hide() if self.place.children else self.show())
        self.up.on_click(lambda _: self.open_folder(self.listing.folder.parent))
        self.open.on_click(lambda _: self._open_selection())
        self.choose.on_click(lambda _: self._choose_selection())
        self.close.on_click(lambda _: self.hide())
        self.everything.observe(lambda _: self.open_folder(self.listing.folder), "value")
        self.entries.observe(lambda _: self._on_select(), "value")

    def show(self) -> None:
        """Open the list at the folder of the current value."""
        import ipywidgets

        value = self._value()
        self.open_folder(find_start_folder(value, self.base), select=Path(value).name)
        bar = ipywidgets.HBox(
            [self.up, self.open, self.choose, self.close, self.everything],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.place.children = (self.where, self.entries, bar, self.notice)

    def hide(self) -> None:
        """Close the list."""
        self.place.children = ()

    def open_folder(self, folder: Path, select: str = "") -> None:
        """List another folder."""
        self.listing = list_folder(folder, self.pick, everything=self.everything.value)
        self.where.value = f"<code>{escape_html(self.listing.folder)}</code>"
        entries = self.listing.entries
        self.entries.options = [
            (("● " if entry.fits else "") + entry.name, index) for index, entry in enumerate(entries)
        ]
        same = next((index for index, entry in enumerate(entries) if entry.path.name == select), 0)
        self.entries.value = same if entries else None
        legend = f"● {self.pick.what}" if any(entry.fits for entry in entries) else f"no {self.pick.what} here"
        self.notice.value = (
            f'<div class="wb-help">{escape_html("; ".join(filter(None, [legend, self.listing.notice])))}</div>'
        )
        self._on_select()

    @property
    def selected(self) -> FileEntry | None:
        """The selected entry; null in an empty folder."""
        index = self.entries.value
        return None if index is None else self.listing.entries[index]

    def _on_select(self) -> None:
        entry = self.selected
        self.open.disabled = entry is None or not entry.is_folder
        # With all files shown any entry may be chosen.
        self.choose.disabled = entry is None or not (entry.fits or self.everything.value)

    def _open_selection(self) -> None:
        if (entry := self.selected) is not None and entry.is_folder:
            self.open_folder(entry.path)

    def _choose_selection(self) -> None:
        if (entry := self.selected) is not None:
            self._chosen(format_chosen_path(entry.path, self.base))
            self.hide()
