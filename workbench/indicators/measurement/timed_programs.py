"""Programs as indicators: shell commands that are compared with each other, or one command on several stacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import ClassVar

from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Indicator, result
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.shipped.indicator_classes import SCRIPTS
from workbench.indicators.stacks.package_index import this_platform, this_python_version
from workbench.indicators.stacks.stack_sets import StackSet, Variation

COMMAND = "PROGRAM_COMMAND"
FOLDER = "PROGRAM_FOLDER"
MAX_NAME = 40


class Program(Indicator):
    """How long does a command take, and how much memory?

    Memory is the peak of its largest process, and at least that of the shell (1 to 2 MiB). What it prints goes into a
    file. The shell's exit code counts: of a pipeline that of its last command.
    """

    script: ClassVar[Path | str] = SCRIPTS / "program.py"
    elapsed_ms: float = result(unit="ms", better="lower", ge=0, about="From the start of the shell to its end.")
    peak_mib: float = result(unit="MiB", better="lower", ge=0, about="Resident memory of the largest process.")
    output_bytes: int = result(unit="bytes", ge=0, about="Size of what it printed.")


def name_command(text: str) -> str:
    """A command's name in tables: its text, cut where it is long.

    >>> name_command("sort  words.txt | uniq -c")
    'sort words.txt | uniq -c'
    """
    line = " ".join(text.split())
    return line if len(line) <= MAX_NAME else f"{line[: MAX_NAME - 1]}…"


def is_of_programs(config: SessionConfig) -> bool:
    """Whether a session measures shell commands."""
    return bool(config.command or config.commands)


def build_program_stacks(config: SessionConfig) -> StackSet:
    """An arm for each configured command; the workbench's Python, without its packages, starts it."""
    commands: dict[str, str] = {}
    for text in config.commands:
        name, equals, command = (part.strip() for part in text.partition("="))
        if not equals or not name or not command:
            raise ConfigError("not a command", where="--command", found=text[:80], allowed="NAME=COMMAND")
        if name in commands:
            raise ConfigError("two commands of one name", where="--command", found=name[:80])
        commands[name] = command
    variations = [
        Variation(name=name, environment=str(Path(sys.executable).resolve()), variables={COMMAND: command})
        for name, command in commands.items()
    ]
    return StackSet(
        requirements=(), free=(), decision="grid", python=this_python_version(), platform=this_platform(),
        uv_version=None, stacks=(), variations=tuple(variations),
    )  # fmt: skip


def build_program_variables(config: SessionConfig) -> dict[str, str]:
    """Variables of all runs: folder and search path of whoever measures, and the command of sessions over stacks."""
    variables = {FOLDER: str(Path.cwd()), "PROGRAM_PATH": os.environ.get("PATH", os.defpath)}
    return {**variables, COMMAND: config.command, "PROGRAM_OF_STACK": "1"} if config.command else variables
