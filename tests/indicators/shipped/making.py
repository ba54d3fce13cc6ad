"""Scripts run once with an interpreter, also beside a library that computes wrongly."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.indicators.contract.documents import Document
from workbench.indicators.contract.indicator import Indicator
from workbench.indicators.contract.new_indicator import try_indicator

HANG_S = 300
# Small inputs and few calls: these tests ask whether answers are right.
QUICK = {"reps": 3, "warmup": 1}

FAULTY = """
# Lies beside the script under the library's name, so it is found first: the real library, and one thing changed.
import importlib, sys
folder = sys.path.pop(0)
del sys.modules["{module}"]
{module} = importlib.import_module("{module}")
sys.path.insert(0, folder)
{fault}
"""


@functools.cache
def _document(indicator: type[Indicator], given: tuple[tuple[str, Any], ...], python: str) -> Document:
    return try_indicator(indicator, dict(given), python=python, timeout_s=HANG_S)


def document(
    indicator: type[Indicator], given: Mapping[str, Any] | None = None, python: Path | str = sys.executable
) -> Document:
    """A checked document; the same run is made once."""
    quick = {name: value for name, value in QUICK.items() if name in indicator.fields_of("parameter")}
    # All of them, so that a run by default and the same run by name are one.
    asked = indicator.parameters({**quick, **(given or {})})
    return _document(indicator, tuple(sorted(asked.items())), str(python))


def spoiled(indicator: type[Indicator], module: str, fault: str, given: Mapping[str, Any] | None = None) -> Document:
    """The document of a run beside a library in which something was changed."""
    files = {**indicator.files, f"{module}.py": FAULTY.format(module=module, fault=fault)}
    return document(type(indicator.__name__, (indicator,), {"files": files, "__doc__": "Spoiled."}), given)


def imported_names(tree: ast.AST) -> set[str]:
    """Modules that the source of a script names."""
    nodes = list(ast.walk(tree))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return found | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def ended(indicator: type[Indicator], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A run with these variables alone, however it ends."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in indicator.sources().items():
            (Path(folder) / name).write_text(text)
        return subprocess.run(
            [sys.executable, "-s", "-B", "script.py"],
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
