"""End of a command: its text or `--json` document, closing lines, exit code."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from workbench.core.errors import ExitCode

if TYPE_CHECKING:
    from pydantic import BaseModel

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]
"""The option `--json` of a command: `as_json: JsonFlag = False`."""


def choose_exit_code(*, is_valid: bool, is_cancelled: bool = False) -> ExitCode:
    """Exit code of a result.

    >>> choose_exit_code(is_valid=True), choose_exit_code(is_valid=False, is_cancelled=True)
    (<ExitCode.GOOD: 0>, <ExitCode.CANCELLED: 130>)
    """
    if is_cancelled:
        return ExitCode.CANCELLED
    return ExitCode.GOOD if is_valid else ExitCode.INVALID


def format_command_line() -> str:
    """The command line of this process, for the record of a run."""
    return "workbench " + shlex.join(sys.argv[1:])


def finish_command(
    text: str | Callable[[], object],
    document: object,
    *,
    as_json: bool,
    is_valid: bool = True,
    is_cancelled: bool = False,
    written: Iterable[object] = (),
    next_commands: Iterable[str | Sequence[object]] = (),
) -> NoReturn:
    """Print the result of a command, as text or as one JSON document, and exit with its exit code.

    `text`: Text of the result; or a function that returns it, or prints it and returns None.
    `document`: Document of `--json`; or a function that returns it. Only one of the two functions is called.
    """
    if as_json:
        print_json(document() if callable(document) else document)
    else:
        lines = text() if callable(text) else text
        if lines is not None:
            _print_text(str(lines))
        print_closing_lines(written, next_commands)
    raise typer.Exit(choose_exit_code(is_valid=is_valid, is_cancelled=is_cancelled))


def print_json(document: object) -> None:
    """Print one JSON document on stdout, from a dictionary, pydantic model, dataclass or JSON text.

    NaN and infinite numbers become null; control characters are escaped.
    """
    text = document if isinstance(document, str) else json.dumps(to_json_value(document), indent=1, allow_nan=False)
    sys.stdout.write(text.rstrip("\n") + "\n")


def print_closing_lines(
    written: Iterable[object] = (), next_commands: Iterable[str | Sequence[object]] = (), *, err: bool = False
) -> None:
    """Print a line for each written path and each next command.

    >>> print_closing_lines(["out/tables"], [["workbench", "sizing", "estimate", "my run"]])
    written: out/tables
    next: workbench sizing estimate 'my run'
    """
    for path in written:
        _print_text(f"written: {path}", err=err)
    for command in next_commands:
        words = command if isinstance(command, str) else shlex.join(map(str, command))
        _print_text(f"next: {words}", err=err)


def to_json_value(value: Any) -> Any:
    """A value as JSON data: paths and times as text, NaN and infinite numbers as null.

    >>> to_json_value({"at": date(2026, 1, 2), "ratio": float("nan"), "path": PurePath("a/b"), 1: (2,)})
    {'at': '2026-01-02', 'ratio': None, 'path': 'a/b', '1': [2]}
    """
    if isinstance(value, Enum):
        return to_json_value(value.value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(to_json_value(key)): to_json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        entries = [to_json_value(entry) for entry in value]
        return entries if isinstance(value, list | tuple) else sorted(entries)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    # Whether a value is a pydantic model; does not import pydantic.
    pydantic = sys.modules.get("pydantic")
    base: type[BaseModel] | None = getattr(pydantic, "BaseModel", None)
    if base is not None and isinstance(value, base):
        return to_json_value(value.model_dump(mode="json"))
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return to_json_value(value.tolist())
    raise TypeError(f"no JSON form of {type(value).__name__}")


def _print_text(text: str, *, err: bool = False) -> None:
    from workbench.console.terminal import print_text

    print_text(text, err=err)
