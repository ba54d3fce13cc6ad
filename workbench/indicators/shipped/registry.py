"""An indicator by its name: a shipped one, one of the old contract, or a user's own."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.errors import ConfigError
from workbench.indicators import legacy
from workbench.indicators.contract import Case, Indicator
from workbench.indicators.shipped.arrays import Argsort, Conv1d, Conv2d, Matmul, Sort, Ufunc
from workbench.indicators.shipped.frames import GroupBy, Join, ReadCsv, ReadParquet
from workbench.indicators.shipped.interpreter import Hello, ImportTime, ScalarLoop

_SHIPPED: tuple[type[Indicator], ...] = (
    Matmul,
    Conv1d,
    Conv2d,
    Sort,
    Argsort,
    Ufunc,
    GroupBy,
    Join,
    ReadCsv,
    ReadParquet,
    ScalarLoop,
    ImportTime,
    Hello,
)


def shipped() -> tuple[type[Indicator], ...]:
    """The indicators that come with the workbench."""
    return _SHIPPED


def indicator_named(name: str) -> type[Indicator]:
    """The indicator that a user means.

    Parameters
    ----------
    name
        `matmul`, `group-by`, `GroupBy`: a shipped one, in any spelling; `PiMatmul`: one of the old contract;
        `module:Class`: of an importable module; `file.py:Class` (or `file.py`, when it declares one only): of a file.
        Naming a module or a file runs it.

    Raises
    ------
    ConfigError
        There is none of this name, the module or file cannot be imported, or holds no such indicator.

    Examples
    --------
    >>> indicator_named("group-by").__name__, indicator_named("PiMatmul").__name__
    ('GroupBy', 'PiMatmul')
    """
    source, _, wanted = (
        name.rpartition(":") if ":" in name else (name, "", "") if name.endswith(".py") else ("", "", "")
    )
    if source:
        return _declared_in(_imported(source, name), wanted, name)
    known = {_plain(one.__name__): one for one in (*_SHIPPED, *legacy.MODELS)}
    with contextlib.suppress(KeyError):
        return known[_plain(name)]
    raise ConfigError(
        "no indicator of this name",
        where="indicator",
        found=name[:80],
        allowed=f"{', '.join(one.__name__ for one in (*_SHIPPED, *legacy.MODELS))}; module:Class; file.py:Class",
    )


def case_of(text: str) -> Case:
    """The case that a user wrote: `NAME` or `NAME:parameter=value,parameter=value`.

    Raises
    ------
    ConfigError
        As of `indicator_named`; an unknown parameter, a value out of bounds, a parameter twice.

    Examples
    --------
    >>> case_of("matmul:framework=torch,n=256").label
    'Matmul[framework=torch,n=256]'
    >>> case_of("sort").label
    'Sort'
    """
    name, _, rest = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    if not name:
        raise ConfigError("no indicator is named", where=text[:80], allowed="NAME or NAME:parameter=value,…")
    return Case.of(indicator_named(name), dict(_pairs(rest, text)))


def _pairs(text: str, where: str) -> Iterator[tuple[str, Any]]:
    seen = set()
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError("not a parameter and its value", where=where[:80], found=part[:60], allowed="name=value")
        if key in seen:
            raise ConfigError("a parameter twice", where=where[:80], found=key[:60])
        seen.add(key)
        yield key, value.strip()


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _imported(source: str, name: str) -> ModuleType:
    try:
        return _from_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ConfigError("cannot be imported", where=name[:120], found=told) from error


def _from_file(path: Path) -> ModuleType:
    """Run a file as a module of its own name, with its folder importable meanwhile."""
    if not path.is_file():
        raise FileNotFoundError("no such file")
    spec = importlib.util.spec_from_file_location(f"indicator_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Known by its name before it runs: pydantic looks there for what annotations mean.
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _declared_in(module: ModuleType, wanted: str, name: str) -> type[Indicator]:
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Indicator) and value.__module__ == module.__name__
    }
    if not wanted and len(found) == 1:
        return next(iter(found.values()))
    if wanted in found:
        return found[wanted]
    value = getattr(module, wanted, None) if wanted else None
    if isinstance(value, type) and issubclass(value, Indicator) and value is not Indicator:
        return value
    raise ConfigError(
        "no such indicator there" if wanted else "not one indicator there: name the one that is meant",
        where=name[:120],
        found=wanted[:80] or None,
        allowed=", ".join(found) or "the module declares none",
    )
