"""Old import paths and names: they import as before, with one `DeprecationWarning` that gives the new name.

`aliases.json` is the table. `modules` maps old module paths to new ones; `names` maps the public names of an old module
to their new names, as `NAME` in the module's new place or as `MODULE:NAME` elsewhere. A finder behind all others serves
modules that are gone; a module that kept its path gets a module-level `__getattr__` for the names that it lost.
`methods` maps, below module and class of today, old names of methods to new ones, for the classes whose objects
notebooks and guides hand out.

Not covered: private names (a leading underscore), parameters, and methods of other classes.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")


def resolve_old_name(table: dict[str, Any], module: str, name: str) -> tuple[str, str]:
    """The module that holds a public name of an old module today, and its name there.

    Examples
    --------
    >>> table = {"modules": {"workbench.holding": "workbench.core.locks"},
    ...          "names": {"workbench.holding": {"hold": "acquire_lock", "NO": "workbench.core.formats:NULL"}}}
    >>> resolve_old_name(table, "workbench.holding", "hold"), resolve_old_name(table, "workbench.holding", "LOCK")
    (('workbench.core.locks', 'acquire_lock'), ('workbench.core.locks', 'LOCK'))
    >>> resolve_old_name(table, "workbench.holding", "NO")
    ('workbench.core.formats', 'NULL')
    """
    home, _, new = table["names"].get(module, {}).get(name, name).rpartition(":")
    return home or table["modules"].get(module, module), new


def install_aliases() -> None:
    """Make the old names importable; a second call changes nothing."""
    if not any(isinstance(finder, OldModules) for finder in sys.meta_path):
        table = json.loads(TABLE.read_text(encoding="utf-8"))
        sys.meta_path.insert(0, LostNames(table))
        sys.meta_path.append(OldModules(table))


def load_old_name(table: dict[str, Any], module: types.ModuleType, name: str) -> Any:
    """The object that an old module had under a name; stored in the module, so that it warns once.

    Raises
    ------
    AttributeError
        The module never had the name, or the name is private.
    """
    home, new = resolve_old_name(table, module.__name__, name)
    is_new_name = (home, new) == (module.__name__, name)
    # A submodule that is not imported yet is no old name.
    if is_new_name or name.startswith("_") or _has_submodule(module, name):
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(home), new)
    except AttributeError:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}") from None
    warnings.warn(f"{module.__name__}.{name} is now {home}.{new}", DeprecationWarning, stacklevel=3)
    setattr(module, name, value)
    return value


class OldMethod:
    """A method under its old name; every use warns."""

    def __init__(self, owner: str, old: str, new: str) -> None:
        self._owner, self._old, self._new = owner, old, new

    def __get__(self, instance: object | None, owner: type) -> Any:
        warnings.warn(f"{self._owner}.{self._old} is now {self._new}", DeprecationWarning, stacklevel=2)
        return getattr(owner if instance is None else instance, self._new)


def _has_submodule(package: types.ModuleType, name: str) -> bool:
    path = getattr(package, "__path__", None)
    return bool(path) and importlib.machinery.PathFinder.find_spec(f"{package.__name__}.{name}", path) is not None


class OldModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules by their old paths; their names are looked up in the new modules."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for an old path, else none."""
        del path, target
        if fullname not in self._table["modules"]:
            return None
        # A package, since old packages had modules below them.
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that looks up each name in the new place."""
        module = types.ModuleType(spec.name)
        module.__dict__["__getattr__"] = lambda name: load_old_name(self._table, module, name)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: each name is loaded when it is used."""


class LostNames(importlib.abc.MetaPathFinder):
    """Gives a module that kept its path a `__getattr__` for the names that it lost."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table
        self._affected = {*table["modules"], *table["names"], *table["methods"]}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The usual spec with a loader that adds the old names; none for a module without old names."""
        if fullname not in self._affected:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _LoaderWithOldNames(spec.loader.name, spec.loader.path, self._table)
        return spec


class _LoaderWithOldNames(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, table: dict[str, Any]) -> None:
        super().__init__(fullname, path)
        self._table = table

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        for name, methods in self._table["methods"].get(module.__name__, {}).items():
            for old, new in methods.items():
                setattr(module.__dict__[name], old, OldMethod(f"{module.__name__}.{name}", old, new))
        own = module.__dict__.get("__getattr__")

        def find_name(name: str) -> Any:
            if own is not None:
                try:
                    return own(name)
                except AttributeError:
                    pass
            return load_old_name(self._table, module, name)

        module.__dict__["__getattr__"] = find_name
