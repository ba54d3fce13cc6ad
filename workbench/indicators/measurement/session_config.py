"""Settings of a session, validated before anything is installed or run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from workbench.core.errors import ConfigError
from workbench.core.field_options import parse_numbers, setting
from workbench.core.schema import FiniteModel, validate_model

MAX_ROUNDS = 1000
MAX_MEMORY_BYTES = 8 << 30


def parse_size_option(value: Any, flag: str) -> int:
    """Parse a size such as 2GB; the parser is imported when a command needs it."""
    from workbench.indicators.stacks.stack_request import parse_size

    return parse_size(value, flag)


def _keep_path(path: Path, flag: str) -> str:
    del flag
    return str(path)


class SessionConfig(FiniteModel):
    """Settings of a session, as the options of `workbench indicators run` name them.

    Times are in seconds, sizes in bytes. Settings that are null are chosen: a random seed, and as memory 8 GiB or
    three quarters of the machine's, whichever is less.
    """

    indicators: tuple[str, ...] = setting(
        (),
        "What to measure: a shipped indicator, module:Class, or file.py:Class (its code runs). Repeatable.",
        "What runs",
        flag="indicator",
        metavar="NAME[:P=V,…]",
    )
    script: tuple[str, ...] = setting(
        (),
        "An unchanged script that prints a document; name=value sets PI_NAME. Repeatable.",
        "What runs",
        metavar="PATH[:P=V,…]",
    )
    pytest: tuple[str, ...] = setting(
        (), "A suite of pytest-benchmark: file or folder. Repeatable.", "What runs", metavar="PATH"
    )
    pyperf: tuple[str, ...] = setting((), "A script that runs pyperf.Runner. Repeatable.", "What runs", metavar="PATH")
    better: tuple[str, ...] = setting(
        (), "Direction of a script's result, such as total=lower. Repeatable.", "What runs", metavar="NAME=WAY"
    )
    output: Literal["same", "lines", "any"] = setting(
        "same",
        "What must be equal: output and answers, output lines in any order, or nothing.",
        "What runs",
        metavar="same|lines|any",
    )
    commands: tuple[str, ...] = setting(
        (),
        "A shell command to compare, in place of a stack. Repeatable.",
        "Commands",
        flag="command",
        metavar="NAME=COMMAND",
    )
    scan: tuple[str, ...] = setting(
        (),
        "Run each command with each value in place of {NAME}, such as jobs=1,2,4. Repeatable.",
        "Commands",
        metavar="NAME=V,V,…",
    )
    prepare: str | None = setting(None, "Shell command before each run, not timed.", "Commands", metavar="COMMAND")
    cleanup: str | None = setting(None, "Shell command after each run, not timed.", "Commands", metavar="COMMAND")
    shell: str = setting(
        "/bin/sh",
        "The shell of commands, by name or path; none: start programs directly.",
        "Commands",
        metavar="PATH|none",
    )
    input: str | None = setting(
        None, "File for the standard input of each command; empty by default.", "Commands", metavar="FILE"
    )
    exit_codes: tuple[int, ...] = setting(
        (0,),
        "Exit codes that count as success.",
        "Commands",
        min_length=1,
        parse=parse_numbers,
        metavar="N,N,…",
        show_default="0",
    )
    stacks: tuple[str, ...] = setting(
        (),
        "Stacks file (`workbench indicators stacks`) or matrix (.yaml). Repeatable: they are merged.",
        "Stacks",
        metavar="FILE",
    )
    stack: tuple[str, ...] = setting(
        (), "A stack to solve now, such as numpy==2.2.6. Repeatable.", "Stacks", metavar="REQUIREMENTS"
    )
    python: tuple[str, ...] = setting(
        (), "An existing environment: its Python or folder. Repeatable.", "Stacks", metavar="NAME=PATH"
    )
    specification: str | None = setting(
        None,
        "An Amun specification: script, lock, environment, files.",
        "Stacks",
        kind=Path,
        parse=_keep_path,
        metavar="FILE|DIR",
    )
    ignore: tuple[str, ...] = setting(
        (), "Ignore a field of the specification, such as base. Repeatable.", "Stacks", metavar="FIELD"
    )
    baseline: str | None = setting(
        None, "The stack that the others are compared with.", "Stacks", metavar="STACK", show_default="the first"
    )
    max_download_bytes: int = setting(
        2_000_000_000,
        "Refuse stacks with a larger download.",
        "Stacks",
        ge=0,
        flag="max_download",
        parse=parse_size_option,
        metavar="SIZE",
        show_default="2GB",
    )
    rounds: tuple[int, ...] = setting(
        (10, 20, 30),
        "First round that may end it, …, last round; one number: as many rounds.",
        "Measurement",
        parse=parse_numbers,
        metavar="N,N,…",
        show_default="10,20,30",
    )
    warmup: int = setting(1, "Runs of each before the first round, not recorded.", "Measurement", ge=0, le=100)
    margin: float | None = setting(
        None,
        "Practical margin of all metrics, as a share: smaller differences do not matter.",
        "Measurement",
        gt=0,
        lt=1,
    )
    clock: Literal["wall", "cpu"] = setting(
        "wall", "Time that decides: wall, or cpu (user and system; for a busy machine).", "Measurement"
    )
    alpha: float = setting(
        0.05, "Accepted rate of false claims, over all rounds together.", "Measurement", gt=0, lt=0.5
    )
    threads: int = setting(1, "Threads that libraries may use.", "Measurement", ge=1, le=1024)
    timeout_s: float = setting(60.0, "Time limit of a run, in seconds.", "Measurement", gt=0, le=86_400)
    memory_bytes: int | None = setting(
        None,
        "Memory limit of a run.",
        "Measurement",
        ge=64 << 20,
        flag="memory",
        parse=parse_size_option,
        metavar="SIZE",
        show_default="8GiB, or 3/4 of the machine's",
    )
    processes: int = setting(512, "Limit of processes and threads of a run.", "Measurement", ge=1, le=100_000)
    network: bool = setting(False, "Let runs reach the network.", "Measurement")
    seed: int | None = setting(
        None, "Seed of the random order.", "Measurement", ge=0, lt=2**63, show_default="random, and printed"
    )
    reference: str | None = setting(
        None,
        "Stacks file with one stack: the pinned baseline of a history (`indicators history`).",
        "History",
        metavar="FILE",
    )
    revision: str | None = setting(
        None,
        "Commit of the measured code; `indicators history` shows where it changed.",
        "History",
        max_length=200,
        metavar="COMMIT",
    )
    command: str | None = setting(None, "Shell command that every stack runs.")
    design: Literal["rounds", "blocks"] = setting("rounds", "Blocks exist to demonstrate their bias.")

    @field_validator("stacks", mode="before")
    @classmethod
    def _read_one_file(cls, value: Any) -> Any:
        """One path, as older sessions have it, or several."""
        return (value,) if isinstance(value, str) else value or ()

    @model_validator(mode="after")
    def _check_looks(self) -> Self:
        if not self.rounds or list(self.rounds) != sorted(set(self.rounds)) or self.rounds[0] < 1:
            raise ValueError("rounds: increasing numbers from 1 on, like 10,20,30")
        if self.rounds[-1] > MAX_ROUNDS:
            raise ValueError(f"rounds: at most {MAX_ROUNDS}")
        return self

    @model_validator(mode="after")
    def _check_command_settings(self) -> Self:
        names = ("scan", "prepare", "cleanup", "shell", "input", "exit_codes")
        given = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
        if given and not (self.command or self.commands):
            raise ValueError(f"{', '.join(given)}: for shell commands only")
        if any(not 0 <= code <= 255 for code in self.exit_codes):
            raise ValueError("exit_codes: numbers from 0 to 255")
        return self

    def memory_limit_bytes(self, machine_bytes: int | None) -> int:
        """The memory limit of a run, in bytes, on a machine with this much memory (null: unknown)."""
        limit = MAX_MEMORY_BYTES if machine_bytes is None else min(MAX_MEMORY_BYTES, machine_bytes * 3 // 4)
        return self.memory_bytes or limit


def session_config(**settings: Any) -> SessionConfig:
    """Build a session's configuration; settings that are null keep their defaults.

    >>> session_config(threads=2, seed=None).rounds
    (10, 20, 30)
    """
    values = {name: value for name, value in settings.items() if value is not None}
    return validate_model(SessionConfig, values, noun="valid session", error_type=ConfigError)
