"""The commands of `workbench` with their parameters, and what each exit code means."""

from __future__ import annotations

from tests.contracts import introspection
from tests.contracts.writing import write_json

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


def freeze_commands() -> dict[str, str]:
    """`commands.json`: every command and group by its whole name."""
    return {"commands.json": write_json(dict(sorted(introspection.walk_commands()))) + "\n"}


def freeze_exit_codes() -> dict[str, str]:
    """`exit_codes.json`: the code of each error by name, raised in a command, and of some command lines."""
    raised: dict[str, BaseException] = {name: kind("it") for name, kind in introspection.find_errors().items()}
    raised |= {
        "KeyboardInterrupt": KeyboardInterrupt(),
        "OSError": OSError("it"),
        "ZeroDivisionError": ZeroDivisionError(),
    }
    found = {
        "raised": {name: introspection.call_command_with(error).code for name, error in sorted(raised.items())},
        "ended": {what: introspection.call_command(words).code for what, words in ENDED.items()},
    }
    return {"exit_codes.json": write_json(found) + "\n"}
