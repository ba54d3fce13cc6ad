"""What users rely on, a file each below `frozen/`: commands with their parameters, exit codes, notebooks, tables."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contracts import introspection

FROZEN = Path(__file__).parent / "frozen"
WIDTH = 118
# A command line for each exit code that needs no measurement.
ENDED = {
    "the version is told": ["--version"],
    "help is told": ["--help"],
    "an unknown command": ["fly"],
    "an unknown flag": ["doctor", "--fly"],
    "an unknown area": ["doctor", "fly"],
    "a run that is not there": ["runs", "show", "fly", "--out", "fly"],
    "a log that is not there": ["eventlog", "facts", "fly.log", "--out", "fly"],
}


def freeze_commands() -> Any:
    """Every command and group by its whole name."""
    return dict(sorted(introspection.walk_commands()))


def freeze_exit_codes() -> Any:
    """The code of each error by name, raised in a command, and of some command lines."""
    raised: dict[str, BaseException] = {name: kind("it") for name, kind in introspection.find_errors().items()}
    raised |= {
        "KeyboardInterrupt": KeyboardInterrupt(),
        "OSError": OSError("it"),
        "ZeroDivisionError": ZeroDivisionError(),
    }
    return {
        "raised": {name: introspection.call_command_with(error).code for name, error in sorted(raised.items())},
        "ended": {what: introspection.call_command(words).code for what, words in ENDED.items()},
    }


def freeze_parameters() -> Any:
    """The parameters of each notebook with type and default, which files of users name."""
    said = introspection.call_command(["run", "all", "--parameters", "--json"])
    return {
        notebook: {one["name"]: {"type": one["type"], "default": one["default"]} for one in parameters}
        for notebook, parameters in json.loads(said.out).items()
    }


def freeze_tables() -> Any:
    """Key and columns of each declared table by area and name, of two under one name both."""
    found = {}
    for area, tables in sorted(introspection.find_tables().items()):
        described = {
            name: sorted(map(introspection.describe_table, same), key=str) for name, same in sorted(tables.items())
        }
        found[area] = {name: same if len(same) > 1 else same[0] for name, same in described.items()}
    return found


CONTRACTS: dict[str, Callable[[], Any]] = {
    "commands": freeze_commands,
    "exit_codes": freeze_exit_codes,
    "parameters": freeze_parameters,
    "tables": freeze_tables,
}


def write_json(value: Any, depth: int = 0) -> str:
    """JSON with one line for whatever fits on a line, so that a difference shows what changed."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) + depth < WIDTH or not isinstance(value, (dict, list)) or not value:
        return short
    pad = " " * (depth + 1)
    if isinstance(value, list):
        if all(isinstance(one, str) for one in value):
            words = ", ".join(json.dumps(one, ensure_ascii=False).replace(" ", "\0") for one in value)
            inner = textwrap.fill(words, WIDTH, initial_indent=pad, subsequent_indent=pad, break_long_words=False)
            return f"[\n{inner}\n{' ' * depth}]".replace("\0", " ")
        inner = ",\n".join(pad + write_json(one, depth + 1) for one in value)
        return f"[\n{inner}\n{' ' * depth}]"
    inner = ",\n".join(f"{pad}{json.dumps(key)}: {write_json(one, depth + 1)}" for key, one in value.items())
    return f"{{\n{inner}\n{' ' * depth}}}"
