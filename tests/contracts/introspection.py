"""What the package declares, as plain values: commands, tables, errors; and what a command line says."""

from __future__ import annotations

import contextlib
import enum
import importlib
import inspect
import io
import pkgutil
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Union, get_args, get_origin

import typer

import workbench
from workbench.cli import app
from workbench.console.options import LazyGroup
from workbench.core import errors
from workbench.core.tables import Table

# Scripts that run on their own with the Python of somebody else's stack: they are no modules of the package.
STAND_ALONE = (".shipped.scripts.", ".__main__.")


@dataclass(frozen=True)
class Said:
    """How a command line ended, and what it printed."""

    code: int
    out: str
    err: str


def call_command(words: list[str]) -> Said:
    """Run `workbench` with these words in this process, which has the libraries loaded."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app.main(words)
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def call_command_with(raised: BaseException) -> Said:
    """What becomes of a command line in which this is raised."""
    before = app.app

    def raising(*_: Any, **__: Any) -> None:
        raise raised

    app.app = raising  # type: ignore[assignment]
    try:
        return call_command([])
    finally:
        app.app = before


def find_errors() -> dict[str, type[Exception]]:
    """The errors of the package by name; each has an `exit_code`."""
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    return {name: kind for name, kind in sorted(kinds.items()) if issubclass(kind, errors.WorkbenchError)}


def walk_commands() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every command and group with its whole name, hidden ones too: its parameters, and whether it is hidden."""
    waiting: list[tuple[str, Any]] = [("workbench", typer.main.get_command(app.app))]
    while waiting:
        name, command = waiting.pop()
        hidden = bool(command.hidden)
        if isinstance(command, LazyGroup):
            command = typer.main.get_group(importlib.import_module(command.area.module).app)
        members = command.list_commands(None) if hasattr(command, "list_commands") else []
        waiting += [(f"{name} {word}", command.get_command(None, word)) for word in members]
        about: dict[str, Any] = {"hidden": True} if hidden else {}
        if members:
            about["commands"] = sorted(members)
        if command.ignore_unknown_options or (command.allow_extra_args and not members):
            about["passes_on_what_it_does_not_know"] = True
        yield name, about | {"parameters": [describe_parameter(one) for one in command.params]}


def describe_parameter(parameter: Any) -> dict[str, Any]:
    """Flags or name, type, and whatever else of it is not as usual."""
    if parameter.param_type_name == "argument":
        found: dict[str, Any] = {"argument": parameter.metavar or parameter.name}
    else:
        found = {"flags": [*parameter.opts, *(f"not: {flag}" for flag in parameter.secondary_opts)]}
    found["type"] = describe_type(parameter.type_descriptor.annotation)
    for name in ("min", "max", "envvar"):
        if (value := getattr(parameter, name, None)) is not None:
            found[name] = value
    for name in ("required", "multiple", "hidden", "is_flag", "count"):
        if getattr(parameter, name, False):
            found[name] = True
    if parameter.nargs != 1:
        found["nargs"] = parameter.nargs
    default = parameter.default
    found["default"] = "(made when asked)" if isinstance(default, Callable) else _as_plain(default)
    return found


def describe_type(annotation: Any) -> str:
    """A type's name; choices are listed."""
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(describe_type(part) for part in get_args(annotation))
    if inner := get_args(annotation):
        return f"{get_origin(annotation).__name__}[{', '.join(map(describe_type, inner))}]"
    return str(getattr(annotation, "__name__", annotation))


def _as_plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _as_plain(value.value)
    if isinstance(value, (list, tuple)):
        return [_as_plain(one) for one in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def import_all() -> list[ModuleType]:
    """Every module below `workbench`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [found.name for found in pkgutil.walk_packages(workbench.__path__, "workbench.")]
        return [importlib.import_module(name) for name in names if not any(part in f"{name}." for part in STAND_ALONE)]


def find_tables() -> dict[str, dict[str, list[Table]]]:
    """Every declared table by area and name; two that one area has under one name both count.

    A table that several areas hold belongs to the one whose module makes it.
    """
    homes: dict[int, tuple[Table, set[str]]] = {}
    for module in import_all():
        for table in {id(one): one for value in vars(module).values() for one in _tables_in(value)}.values():
            homes.setdefault(id(table), (table, set()))[1].add(module.__name__)
    found: dict[str, dict[str, list[Table]]] = {}
    for table, modules in homes.values():
        areas = {name.split(".")[1] for name in modules}
        if len(areas) > 1:
            made = re.compile(rf'Table\(\s*"{table.name}"')
            areas = {
                name.split(".")[1] for name in modules if made.search(inspect.getsource(importlib.import_module(name)))
            }
        assert len(areas) == 1, f"which area does the table {table.name} belong to: {sorted(areas)}?"
        kept = found.setdefault(areas.pop(), {}).setdefault(table.name, [])
        if table not in kept:
            kept.append(table)
    return found


def _tables_in(value: Any) -> list[Table]:
    if isinstance(value, Mapping):
        value = list(value.values())
    values = value if isinstance(value, (tuple, list, set, frozenset)) else [value]
    return [one for one in values if isinstance(one, Table)]


def describe_table(table: Table) -> dict[str, Any]:
    """Key and columns with dtype, unit and null rule, without what they mean."""
    columns = [
        f"{column.name}: {column.dtype}"
        + (f" [{column.unit}]" if column.unit else "")
        + (" or null" if column.nullable else "")
        for column in table.columns
    ]
    return {"key": list(table.key), "columns": columns}
