"""An import that costs a second and is never needed, put off until it is.

Altair, nbformat and papermill import jsonschema, and this takes `rfc3987_syntax`, where it is installed, for two
formats ("iri", "iri-reference") that no schema here has. That package compiles the grammar of such addresses as it is
imported: nine tenths of what importing jsonschema takes, in each command and in each kernel.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

GRAMMAR = "rfc3987_syntax"


class _PutOff(ModuleType):
    """Stands for the package until somebody asks it for something, and then gives way to it."""

    def __getattr__(self, name: str) -> Any:
        # The import system looks for these, and must not load what it only passes by.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(), name)

    def is_valid_syntax(self, term: str, value: str) -> bool:
        """What jsonschema imports by name, and so has to be there without loading anything."""
        return bool(_real().is_valid_syntax(term, value))


def _real() -> ModuleType:
    if isinstance(sys.modules.get(GRAMMAR), _PutOff):
        del sys.modules[GRAMMAR]
    return importlib.import_module(GRAMMAR)


def put_off() -> None:
    """Let the next import of `rfc3987_syntax` load nothing until it is used; does nothing where it is loaded or absent.

    Examples
    --------
    >>> put_off()
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
    module = _PutOff(GRAMMAR, "Put off by workbench.deferred.")
    module.__spec__ = spec
    module.__path__ = list(spec.submodule_search_locations or [])
    sys.modules[GRAMMAR] = module
