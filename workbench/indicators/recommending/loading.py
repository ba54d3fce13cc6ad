"""A user's own units: classes of a module or a file. Loading one runs the user's code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from workbench.errors import ConfigError
from workbench.indicators.recommending.units import KINDS, Unit


def load(text: str) -> Unit:
    """The unit that `module:Class` or `file.py:Class` names, made without arguments.

    Raises
    ------
    ConfigError
        It cannot be imported, there is no such class, it is none of the five kinds, or making it failed.
    """
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise ConfigError("not a unit", where="--unit", found=text[:200], allowed="module:Class or file.py:Class")
    try:
        module = _from_file(Path(where)) if where.endswith(".py") else _module(where)
    except ConfigError:
        raise
    # Code of a user: whatever it raises, even the end of the process, is told as the unit's.
    except (Exception, SystemExit) as error:
        raise ConfigError("a unit that cannot be imported", where=text[:200], found=told(error)) from error
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, KINDS) and found not in KINDS):
        names = [key for key, one in vars(module).items() if isinstance(one, type) and issubclass(one, KINDS)]
        own = [key for key in names if vars(module)[key] not in KINDS]
        what = "no such class" if found is None else "not a unit"
        raise ConfigError(
            what, where=text[:200], found=f"units there: {', '.join(own) or 'none'}",
            allowed="a class derived from " + ", ".join(kind.__name__ for kind in KINDS),
        )  # fmt: skip
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise ConfigError("a unit that cannot be made", where=text[:200], found=told(error)) from error


def told(error: BaseException) -> str:
    """An exception of somebody else's code in one short line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _module(name: str) -> ModuleType:
    """A module that is installed, or lies in the folder that the command is called in."""
    before = list(sys.path)
    # Behind all others: a file here must not stand in for a library.
    sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError("no such file", where="--unit", found=str(path))
    name = f"workbench_unit_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", where="--unit", found=str(path))
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles of the file look their module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
