"""Load an indicator by name: a shipped one, one of Thoth's, or a user's own class."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from workbench.core.errors import ConfigError
from workbench.core.user_code import import_user_module
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.indicator import Case, Indicator
from workbench.indicators.shipped.indicator_classes import (
    Argsort,
    Conv1d,
    Conv2d,
    GroupBy,
    Hello,
    ImportTime,
    Join,
    Matmul,
    ReadCsv,
    ReadParquet,
    ScalarLoop,
    Sort,
    Ufunc,
)

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


def list_shipped_indicators() -> tuple[type[Indicator], ...]:
    """The indicators that come with the workbench."""
    return _SHIPPED


def load_indicator(name: str) -> type[Indicator]:
    """The indicator that a user means.

    `name`: `matmul`, `group-by`, `GroupBy`: a shipped one, in any spelling; `PiMatmul`: one of the old contract;
    `module:Class`: of an importable module; `file.py:Class` (or `file.py`, when it declares one only): of a file.
    Naming a module or a file runs it.

    >>> load_indicator("group-by").__name__, load_indicator("PiMatmul").__name__
    ('GroupBy', 'PiMatmul')
    """
    source, _, wanted = (
        name.rpartition(":") if ":" in name else (name, "", "") if name.endswith(".py") else ("", "", "")
    )
    if source:
        try:
            module = import_user_module(source)
        except Exception as error:
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise ConfigError("cannot be imported", where=name[:120], found=message) from error
        return _find_declared_class(module, wanted, name)
    by_name = {_fold_name(indicator.__name__): indicator for indicator in (*_SHIPPED, *thoth_indicators.MODELS)}
    with contextlib.suppress(KeyError):
        return by_name[_fold_name(name)]
    raise ConfigError(
        "no indicator of this name",
        where="indicator",
        found=name[:80],
        allowed=[
            *(indicator.__name__ for indicator in (*_SHIPPED, *thoth_indicators.MODELS)),
            "module:Class",
            "file.py:Class",
        ],
    )


def parse_case(text: str) -> Case:
    """The case that a user wrote: `NAME` or `NAME:parameter=value,parameter=value`.

    >>> parse_case("matmul:framework=torch,n=256").label
    'Matmul[framework=torch,n=256]'
    >>> parse_case("sort").label
    'Sort'
    """
    name, _, assignments = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    if not name:
        raise ConfigError("no indicator is named", where=text[:80], allowed="NAME or NAME:parameter=value,…")
    return Case.from_parameters(load_indicator(name), dict(_parse_pairs(assignments, text)))


def _parse_pairs(text: str, where: str) -> Iterator[tuple[str, Any]]:
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


def _fold_name(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _find_declared_class(module: ModuleType, wanted: str, name: str) -> type[Indicator]:
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Indicator) and value.__module__ == module.__name__
    }
    if not wanted and len(classes) == 1:
        return next(iter(classes.values()))
    if wanted in classes:
        return classes[wanted]
    value = getattr(module, wanted, None) if wanted else None
    if isinstance(value, type) and issubclass(value, Indicator) and value is not Indicator:
        return value
    raise ConfigError(
        "no such indicator there" if wanted else "not one indicator there: name the one that is meant",
        where=name[:120],
        found=wanted[:80] or None,
        allowed=", ".join(classes) or "the module declares none",
    )
