"""Modules that pickled Python functions need from outside of the dump; nothing is unpickled."""

from __future__ import annotations

import importlib.util
import pickletools
import sys
from collections.abc import Iterable
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")
_BY_VALUE = "__main__"
_WHOLE_MODULE = "\0import"


def list_modules(pickled: bytes) -> list[str]:
    """Names of the top-level modules that a pickle imports, in order.

    >>> import pickle, textwrap
    >>> list_modules(pickle.dumps(textwrap.dedent))
    ['textwrap']
    """
    names: dict[str, None] = {}
    memo: list[str | None] = []
    # What was pushed last: a module's and an object's name come before the opcode that imports it, and the name of a
    # module that a function uses as a whole after cloudpickle's function for that.
    last: list[str | None] = [None, None]

    def push(value: str | None) -> None:
        if last[-1] == _WHOLE_MODULE and value:
            names[value] = None
        last[:] = [last[-1], value]

    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name == "GLOBAL":
                names[str(argument).partition(" ")[0]] = None
                push(None)
            elif opcode.name == "STACK_GLOBAL":
                names[last[0] or ""] = None
                push(_WHOLE_MODULE if last[1] == "subimport" else None)
            elif opcode.name in ("BINGET", "LONG_BINGET") and isinstance(argument, int):
                push(memo[argument] if argument < len(memo) else None)
            elif opcode.name == "MEMOIZE":
                memo.append(last[-1])
            else:
                push(argument if isinstance(argument, str) else None)
    except ValueError:
        # Not a whole pickle: what was seen until then.
        pass
    return list(dict.fromkeys(name.partition(".")[0] for name in names if name))


def select_missing_modules(names: Iterable[str]) -> list[str]:
    """Those of these modules that are no installed package: a file beside a script, or nowhere."""
    return [name for name in dict.fromkeys(names) if name != _BY_VALUE and not _is_installed(name)]


def _is_installed(name: str) -> bool:
    """Whether a module belongs to Python or to an installed package, by where its file lies."""
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec is not None else []
    return any(part in Path(place).parts for place in places for part in _INSTALLED)
