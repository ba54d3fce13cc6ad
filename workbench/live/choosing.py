"""What a file picker offers: the entries of a folder that fit what is wanted, never more than can be shown."""

from __future__ import annotations

import fnmatch
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_SCANNED = 5_000
MOST_SHOWN = 300
# Members of a folder that are looked at to tell whether it is one of the wanted kind.
MOST_MEMBERS = 200


@dataclass(frozen=True)
class Pick:
    """Marks a field as a path, and says which paths fit: ``Annotated[str, Pick("event log", files=("*.zstd",))]``.

    Attributes
    ----------
    what
        The thing that is wanted, in words.
    files
        Patterns of names of files that fit; none: no file does.
    folders
        A folder fits that holds a member of such a name; ``*`` any folder, none: no folder does.
    """

    what: str
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One line of the list: a folder may be opened, what fits may be chosen."""

    path: Path
    is_folder: bool
    fits: bool

    @property
    def name(self) -> str:
        """As it is listed; a folder ends in a slash."""
        return self.path.name + ("/" if self.is_folder else "")


@dataclass(frozen=True)
class Listing:
    """What a folder offers.

    Attributes
    ----------
    folder
        The folder, absolute.
    entries
        At most `MOST_SHOWN`: what fits first, then other folders, each by name.
    notice
        What was left out or could not be read; empty when that is all.
    """

    folder: Path
    entries: tuple[Entry, ...]
    notice: str = ""


def listing(folder: str | Path, pick: Pick, *, everything: bool = False) -> Listing:
    """The entries of a folder: those that fit, and folders to go into; with `everything` other files and hidden names.

    A folder that cannot be read has none, and says so. Of a huge one the first `MOST_SCANNED` that the system names are
    looked at.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow links that a person named on purpose
    try:
        with os.scandir(folder) as found:
            scanned = list(itertools.islice(found, MOST_SCANNED + 1))
    except OSError as error:
        return Listing(folder, (), f"cannot be read: {error.strerror or error}")
    entries = [_entry(one, pick) for one in scanned[:MOST_SCANNED] if everything or not one.name.startswith(".")]
    wanted = [one for one in entries if everything or one.is_folder or one.fits]
    # A choice that fits stands above a folder that only leads on.
    wanted.sort(key=lambda one: (not one.fits, not one.is_folder, one.path.name.casefold()))
    return Listing(folder, tuple(wanted[:MOST_SHOWN]), _notice(scanned, wanted, len(entries)))


def _notice(scanned: list[os.DirEntry[str]], wanted: list[Entry], entries: int) -> str:
    said = []
    if len(scanned) > MOST_SCANNED:
        said.append(f"only the first {MOST_SCANNED:,} entries were looked at")
    if len(wanted) > MOST_SHOWN:
        said.append(f"{len(wanted) - MOST_SHOWN:,} more are not listed; type the path")
    if hidden := entries - len(wanted):
        said.append(f"{hidden:,} other file{'s' if hidden > 1 else ''}")
    return "; ".join(said)


def _entry(found: os.DirEntry[str], pick: Pick) -> Entry:
    path = Path(found.path)
    try:
        is_folder = found.is_dir()
    except OSError:
        is_folder = False
    fits = folder_fits(path, pick) if is_folder else _matches([found.name], pick.files)
    return Entry(path, is_folder, fits)


def folder_fits(folder: Path, pick: Pick) -> bool:
    """Does the folder hold a member by which it is one of the wanted kind?"""
    if not pick.folders:
        return False
    if "*" in pick.folders:
        return True
    try:
        with os.scandir(folder) as found:
            return _matches((one.name for one in itertools.islice(found, MOST_MEMBERS)), pick.folders)
    except OSError:
        return False


def _matches(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def start_of(value: str, base: Path) -> Path:
    """The folder to show first for a field's value: where it lies, or the nearest folder above that is there."""
    if not value or "://" in value or "\0" in value:
        return base
    path = base / Path(value).expanduser()
    for folder in list(path.parents):
        if folder.is_dir():
            return Path(os.path.normpath(folder))
    return base


def written(path: Path, base: Path) -> str:
    """A chosen path as the field holds it: relative to the notebook's folder inside of its checkout, else absolute.

    Examples
    --------
    >>> written(Path("/a/data/x.zstd"), Path("/a/notebooks")), written(Path("/b/x.zstd"), Path("/a/notebooks"))
    ('../data/x.zstd', '/b/x.zstd')
    """
    inside = path.is_relative_to(base.parent) and base.parent != base.parent.parent
    return Path(os.path.relpath(path, base)).as_posix() if inside else str(path)
