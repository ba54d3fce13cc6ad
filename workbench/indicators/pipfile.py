"""A Pipfile.lock: packages with versions and hashes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from workbench.errors import ConfigError, InputError
from workbench.indicators.stacks.model import Package

_PINNED = re.compile(r"==\s*([^\s,;*]+)")
_NOT_AN_INDEX = ("git", "hg", "svn", "bzr", "path", "file", "editable")


def packages(locked: Any, path: str, ignored: Collection[str] = ()) -> tuple[tuple[Package, ...], str | None]:
    """The packages of a lock that apply here, and the minor version of Python that it is for (null: not told).

    Development packages take no part.

    Raises
    ------
    InputError
        It is no lock, empty, or has a package without version and hashes (from a repository or a folder).
    ConfigError
        It is for another Python, and `python_version` is not ignored.
    """
    where = f"{path}, python.requirements_locked"
    if not isinstance(locked, Mapping) or not isinstance(locked.get("default"), Mapping):
        raise InputError(
            "no lock",
            where=where,
            allowed="a Pipfile.lock with hashes",
            do="solve the requirements first: workbench indicators stacks --requirements FILE",
        )
    python: Any = locked
    for key in ("_meta", "requires", "python_version"):
        python = python.get(key) if isinstance(python, Mapping) else None
    _check_python(python, where, ignored)
    found = [_package(str(name), entry, where) for name, entry in locked["default"].items() if _applies(entry, where)]
    if not found:
        raise InputError("an empty lock", where=where)
    names = [package.name for package in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("a package twice in a lock", where=where, found=twice)
    return tuple(found), None if python is None else str(python)


def _check_python(python: Any, where: str, ignored: Collection[str]) -> None:
    from workbench.indicators.stacks.target import this_python

    here = ".".join(this_python().split(".")[:2])
    if python is not None and str(python) != here and "python_version" not in ignored:
        raise ConfigError(
            "the lock is for another Python",
            where=where,
            found=str(python)[:20],
            allowed=here,
            do="run the workbench with that Python; or --ignore python_version, if its files fit this one",
        )


def _applies(entry: Any, where: str) -> bool:
    markers = entry.get("markers") if isinstance(entry, Mapping) else None
    if markers is None:
        return True
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

    try:
        return Marker(str(markers)).evaluate()
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName) as error:
        raise InputError("a marker that cannot be read", where=where, found=str(error)[:200]) from None


def _package(name: str, entry: Any, where: str) -> Package:
    from packaging.utils import canonicalize_name
    from pydantic import ValidationError

    version = entry.get("version") if isinstance(entry, Mapping) else None
    pinned = _PINNED.fullmatch(version) if isinstance(version, str) else None
    hashes = entry.get("hashes") if isinstance(entry, Mapping) else None
    if any(isinstance(entry, Mapping) and key in entry for key in _NOT_AN_INDEX) or pinned is None or not hashes:
        raise InputError(
            "a package without version or hashes", where=f"{where}, {name[:80]}", allowed="version ==… and hashes"
        )
    try:
        return Package(name=canonicalize_name(name), version=pinned[1], hashes=tuple(sorted(set(map(str, hashes)))))
    except (ValidationError, TypeError) as error:
        told = str(error).splitlines()[-1]
        raise InputError("not a package of a lock", where=f"{where}, {name[:80]}", found=told[:200]) from None
