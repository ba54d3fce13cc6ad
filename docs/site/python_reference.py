"""The page of the Python that the guides use, from its docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD = """# Python

Functions and classes that the guides' examples use; an example of each stands in its guide. Other modules are named in
the [architecture](../../docs/architecture.md), with what they are for.
"""


def build_page(guides: Iterable[Path]) -> str:
    """Directives that show the docstring of each public object used in a code block of a guide."""
    names = {
        name
        for path in guides
        for code in BLOCK.findall(path.read_text(encoding="utf-8"))
        for name in find_objects(code)
    }
    return "\n".join([HEAD, *(f"::: {name}\n" for name in sorted(names))])


def find_objects(code: str) -> Iterator[str]:
    """Dotted names of the workbench's functions and classes that a code block uses, at the places that define them."""
    tree = ast.parse(code)
    imported: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "workbench":
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                imported[alias.asname or alias.name] = find_member(module, alias.name)
    attributes = {
        getattr(imported[node.value.id], node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and isinstance(imported.get(node.value.id), ModuleType)
    }
    for found in {*attributes, *(one for one in imported.values() if not isinstance(one, ModuleType))}:
        if inspect.isfunction(found) or inspect.isclass(found):
            yield f"{found.__module__}.{found.__qualname__}"


def find_member(module: ModuleType, name: str) -> Any:
    """A member of a module, or the module of that name below it."""
    return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{module.__name__}.{name}")
