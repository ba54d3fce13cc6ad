"""Formats of other tools' files: each is a module whose constant FORMAT says how they are detected and read.

An area lists its formats in a `FormatRegistry`; a module is loaded when its format is asked for. What a file lacks is
an `InputError`; what is read in another way than the tool means it is a note or notice of the area's own report.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

from workbench.core.errors import InputError

Marks = tuple[str, ...]
"""Regular expressions that are all in a file of one kind; ^ is the begin of a line, \\A that of the file."""


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """How files of a tool are detected: by the marks in their text, any tuple of them, or by their place.

    `owns`: Whether a path, which may be a folder, is of this format whatever the text of its files.
    """

    name: str
    marks: tuple[Marks, ...] = ()
    owns: Callable[[Path], bool] | None = None


@dataclass(frozen=True)
class ForeignKind:
    """Files of a known kind that cannot be imported: what they are, and what to do instead."""

    what: str
    do: str | None
    marks: Marks
    allowed: str | None = None


Format = TypeVar("Format", bound=ToolFormat)


class FormatRegistry(Mapping[str, Format], Generic[Format]):
    """Formats by name, in the order in which they are tried: the first one that fits counts.

    `modules`: Name of the module of each format, in `package`.
    """

    def __init__(self, package: str, modules: Mapping[str, str], foreign: Iterable[ForeignKind]) -> None:
        self._package, self._modules, self._foreign = package, modules, tuple(foreign)

    def __getitem__(self, name: str) -> Format:
        return cast("Format", importlib.import_module(f"{self._package}.{self._modules[name]}").FORMAT)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def find_owner(self, path: Path) -> str | None:
        """Name of the format that a path is of by its place; null without one."""
        return next((name for name, one in self.items() if one.owns is not None and one.owns(path)), None)

    def find_format(self, text: str) -> str | None:
        """Name of the format of a text; null for none that is known."""
        text = text.lstrip()
        return next((name for name, one in self.items() if any(_are_in(marks, text) for marks in one.marks)), None)

    def refuse_foreign(self, text: str, where: object, allowed: Iterable[str] | None = None) -> None:
        """Refuse a text of a kind that is known and cannot be imported, by its name."""
        text = text.lstrip()
        for kind in self._foreign:
            if _are_in(kind.marks, text):
                raise InputError(kind.what, where=where, allowed=kind.allowed or list(allowed or self), do=kind.do)


def _are_in(marks: Marks, text: str) -> bool:
    return all(re.search(mark, text, re.MULTILINE) for mark in marks)
