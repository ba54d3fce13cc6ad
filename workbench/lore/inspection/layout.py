"""Where things lie in a dump: loreId-N/input-K/partition-P/batch-B.parquet, whoever wrote it. Only names are read."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import InputError

MOST_FILES = 500_000
_NUMBERED = re.compile(r"(loreId|input|partition|batch)-(\d{1,9})(\.parquet)?")
OUTPUT = "output"
_NAMED = "name a folder loreId-N, or one that holds such folders"


@dataclass
class PartitionFolder:
    """A partition's batches by number; `strange` are names that no dump has."""

    number: int
    folder: Path
    batches: dict[int, Path] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)

    @property
    def meta(self) -> Path | None:
        """partition.meta, where it is there."""
        path = self.folder / "partition.meta"
        return path if os.path.lexists(path) else None


@dataclass
class InputFolder:
    """An input's partitions by number."""

    name: str
    folder: Path
    partitions: dict[int, PartitionFolder] = field(default_factory=dict)

    @property
    def meta(self) -> Path | None:
        """rdd.meta, where it is there."""
        path = self.folder / "rdd.meta"
        return path if os.path.lexists(path) else None


@dataclass
class DumpFolder:
    """loreId-N with its inputs, the kept output last."""

    lore_id: int
    folder: Path
    inputs: list[InputFolder] = field(default_factory=list)


def dumps(path: Path) -> list[Path]:
    """The folders loreId-N at a path, by number: itself, or those in it. Unfinished ones are hidden and left out.

    Raises
    ------
    InputError
        Nothing there, no folder, or none of a dump.
    """
    if "://" in str(path) or re.match(r"[a-z0-9]+:/", str(path)):
        raise InputError("inspection reads folders of this machine", found=path, do="copy the dump here first")
    if not path.is_dir():
        raise InputError("no such folder" if not path.exists() else "not a folder", where=path, do=_NAMED)
    if is_numbered(path) or _is_dump(path):
        return [path]
    found = {number: each for each in _entries(path) if (number := _number(each.name, "loreId")) is not None}
    folders = [found[number] for number in sorted(found) if found[number].is_dir()]
    if not folders:
        names = sorted(each.name for each in _entries(path))
        raise InputError(
            "no dump here",
            where=path,
            found=[ascii(name)[1:-1][:80] for name in names[:8]] or "an empty folder",
            allowed="a folder loreId-N, or one with such folders in it",
        )
    return folders


def is_numbered(folder: Path) -> bool:
    """Is the folder called loreId-N?"""
    return _number(folder.absolute().name, "loreId") is not None


def _is_dump(path: Path) -> bool:
    """Is it a folder of a dump under another name, as one that was copied?"""
    return (path / "plan.meta").is_file() or (path / "input-0").is_dir()


def layout(folder: Path) -> DumpFolder:
    """What lies in loreId-N?

    Raises
    ------
    InputError
        A folder cannot be listed, or has more files than any dump.
    """
    found = DumpFolder(_number(folder.absolute().name, "loreId") or 0, folder)
    numbered = {number: each for each in _entries(folder) if (number := _number(each.name, "input")) is not None}
    left = MOST_FILES
    for path in [*(numbered[number] for number in sorted(numbered)), folder / OUTPUT]:
        if path.is_symlink() or not path.is_dir():
            continue
        one = InputFolder(path.name, path)
        for each in _entries(path):
            number = _number(each.name, "partition")
            if number is None or each.is_symlink() or not each.is_dir():
                continue
            one.partitions[number] = _partition(number, each)
            left -= 1 + len(one.partitions[number].batches)
            if left < 0:
                raise InputError("more files than can be inspected", where=folder, allowed=f"at most {MOST_FILES:,}")
        found.inputs.append(one)
    return found


def _partition(number: int, folder: Path) -> PartitionFolder:
    found = PartitionFolder(number, folder)
    for each in _entries(folder):
        batch = _number(each.name, "batch", ".parquet")
        # A pipe would be waited for, and a link leads elsewhere.
        if batch is not None and stat.S_ISREG(each.lstat().st_mode):
            found.batches[batch] = each
        elif each.name != "partition.meta":
            found.strange.append(each.name)
    return found


def _number(name: str, kind: str, suffix: str | None = None) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return int(match[2]) if match and match[1] == kind and match[3] == suffix else None


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [Path(entry.path) for _, entry in zip(range(MOST_FILES + 1), entries, strict=False)]
    except OSError as error:
        raise InputError("cannot list a folder", where=folder, found=error.strerror) from error
    if len(found) > MOST_FILES:
        raise InputError("more files than can be inspected", where=folder, allowed=f"at most {MOST_FILES:,}")
    return sorted(found)
