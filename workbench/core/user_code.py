"""User code given by name: a module, or a .py file that is run as one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.core.errors import ConfigError


def import_user_module(source: str, *, prepare: Callable[[ModuleType], object] | None = None) -> ModuleType:
    """Import a dotted name, or run a .py file as a module of its own; this executes the user's code.

    Modules in the working directory are found after installed ones, so that no file shadows a library; a file finds
    modules beside it while it runs. Whatever the code raises is raised, SystemExit too: callers say what was loaded.

    `prepare`: Called with the module of a file before it runs.
    """
    before = list(sys.path)
    try:
        if not source.endswith(".py"):
            sys.path.append(str(Path.cwd()))
            return importlib.import_module(source)
        path = Path(source).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"no such file: {source}")
        spec = importlib.util.spec_from_file_location(f"workbench_user_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"not a Python file: {source}")
        module = importlib.util.module_from_spec(spec)
        # Dataclasses, pydantic and pickle look the module up by its name while it runs.
        sys.modules[spec.name] = module
        sys.path.insert(0, str(path.parent))
        if prepare is not None:
            prepare(module)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise
        return module
    finally:
        sys.path[:] = before


def load_user_function(place: str, *, where: str, message: str = "cannot load the function") -> Callable[..., Any]:
    """The function of `module:function` or `FILE.py:function`; `message` says what could not be loaded.

    Raises
    ------
    ConfigError
        The name has another form, the code raised something, or there is no such function: it says which there are.
    """
    source, colon, name = place.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError("not a function", where=where, found=place[:200], allowed="module:function, FILE.py:function")
    try:
        module = import_user_module(source)
    except Exception as error:
        raise ConfigError(
            message,
            where=where,
            found=f"{type(error).__name__}: {error}"[:300],
            do="correct it: python -c 'import MODULE' shows the error",
        ) from error
    function: Any = getattr(module, name, None)
    if not callable(function):
        names = [member for member in vars(module) if not member.startswith("_") and callable(getattr(module, member))]
        raise ConfigError("no such function", where=where, found=name, allowed=names[:20] or "none")
    return function  # type: ignore[no-any-return]
