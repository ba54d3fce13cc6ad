"""Delay the import of `rfc3987_syntax`, which costs a second, until it is used.

Altair, nbformat and papermill import jsonschema, which imports `rfc3987_syntax`, where installed, for two formats
("iri", "iri-reference") that no schema here uses. Importing it compiles a grammar: nine tenths of the import time of
jsonschema, in each command and each kernel.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

GRAMMAR = "rfc3987_syntax"


class _LazyModule(ModuleType):
    """Placeholder for a package, which it loads when an attribute is used."""

    def __getattr__(self, name: str) -> Any:
        # The import system reads these; that must not load the package.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_load_real_module(), name)

    def is_valid_syntax(self, term: str, value: str) -> bool:
        """Imported by name by jsonschema, so it exists without loading the package."""
        return bool(_load_real_module().is_valid_syntax(term, value))


def _load_real_module() -> ModuleType:
    if isinstance(sys.modules.get(GRAMMAR), _LazyModule):
        del sys.modules[GRAMMAR]
    return importlib.import_module(GRAMMAR)


def delay_grammar_import() -> None:
    """Delay loading `rfc3987_syntax` until it is used; does nothing when it is loaded already or not installed.

    >>> delay_grammar_import()
    >>> import jsonschema
    >>> checker = jsonschema.FormatChecker()
    >>> jsonschema.Draft202012Validator({"format": "iri"}, format_checker=checker).is_valid("no address")
    False
    """
    if GRAMMAR in sys.modules:
        return
    spec = find_spec(GRAMMAR)
    if spec is None:
        return
    module = _LazyModule(GRAMMAR, "Loaded on first use, by workbench.core.lazy_imports.")
    module.__spec__ = spec
    module.__path__ = list(spec.submodule_search_locations or [])
    sys.modules[GRAMMAR] = module
