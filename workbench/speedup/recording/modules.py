"""Queries from a Python module of the user's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from workbench.errors import InputError


def queries_of(module: str) -> dict[str, str]:
    """`QUERIES` of a module, named by its file (ending in .py) or by its dotted name.

    The module's code is run: it is the user's own.

    Raises
    ------
    InputError
        It is not found, fails, or `QUERIES` is not a mapping of names to SQL texts.
    """
    try:
        loaded = _from_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"[:300]
        raise InputError("cannot load the module of queries", where=module, found=found) from error
    queries = getattr(loaded, "QUERIES", None)
    if not isinstance(queries, dict) or not all(isinstance(text, str) for pair in queries.items() for text in pair):
        allowed = "QUERIES: dict[str, str], name to SQL"
        raise InputError("the module has no queries", where=module, found=type(queries).__name__, allowed=allowed)
    return {name: text.strip().rstrip(";") for name, text in queries.items()}


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(f"workbench_queries_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not Python")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles in the module look it up by name while it runs.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
