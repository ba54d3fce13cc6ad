"""Settings of a session, validated before anything is installed or run."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from workbench.core.errors import ConfigError
from workbench.core.schema import FiniteModel, validate_model

MAX_ROUNDS = 1000
MAX_MEMORY_BYTES = 8 << 30


class SessionConfig(FiniteModel):
    """Settings of a session, as the options of `workbench indicators run` name them.

    Times are in seconds, sizes in bytes. Settings that are null are chosen: a random seed, and as memory 8 GiB or
    three quarters of the machine's, whichever is less.
    """

    indicators: tuple[str, ...] = Field(
        (),
        description="What to measure: a shipped indicator, module:Class, or file.py:Class (its code runs). Repeatable.",
    )
    stacks: tuple[str, ...] = Field(
        (), description="Stacks file (`workbench indicators stacks`) or matrix (.yaml). Repeatable: they are merged."
    )
    stack: tuple[str, ...] = Field((), description="A stack to solve now, such as numpy==2.2.6. Repeatable.")
    python: tuple[str, ...] = Field((), description="An existing environment: its Python or folder. Repeatable.")
    script: tuple[str, ...] = Field(
        (), description="An unchanged script that prints a document; name=value sets PI_NAME. Repeatable."
    )
    pytest: tuple[str, ...] = Field((), description="A suite of pytest-benchmark: file or folder. Repeatable.")
    pyperf: tuple[str, ...] = Field((), description="A script that runs pyperf.Runner. Repeatable.")
    command: str | None = Field(None, description="Shell command that every stack runs.")
    commands: tuple[str, ...] = Field((), description="A shell command to compare, in place of a stack. Repeatable.")
    scan: tuple[str, ...] = Field(
        (), description="Run each command with each value in place of {NAME}, such as jobs=1,2,4. Repeatable."
    )
    prepare: str | None = Field(None, description="Shell command before each run, not timed.")
    cleanup: str | None = Field(None, description="Shell command after each run, not timed.")
    warmup: int = Field(1, ge=0, le=100, description="Runs of each before the first round, not recorded.")
    shell: str = Field("/bin/sh", description="The shell of commands, by name or path; none: start programs directly.")
    input: str | None = Field(None, description="File for the standard input of each command; empty by default.")
    exit_codes: tuple[int, ...] = Field((0,), min_length=1, description="Exit codes that count as success.")
    output: Literal["same", "lines", "any"] = Field(
        "same",
        description="What must be equal: output and answers, output lines in any order, or nothing.",
    )
    margin: float | None = Field(
        None, gt=0, lt=1, description="Practical margin of all metrics, as a share: smaller differences do not matter."
    )
    better: tuple[str, ...] = Field((), description="Direction of a script's result, such as total=lower. Repeatable.")
    specification: str | None = Field(None, description="An Amun specification: script, lock, environment, files.")
    ignore: tuple[str, ...] = Field((), description="Ignore a field of the specification, such as base. Repeatable.")
    baseline: str | None = Field(None, description="The stack that the others are compared with.")
    rounds: tuple[int, ...] = Field(
        (10, 20, 30), description="First round that may end it, …, last round; one number: as many rounds."
    )
    alpha: float = Field(0.05, gt=0, lt=0.5, description="Accepted rate of false claims, over all rounds together.")
    clock: Literal["wall", "cpu"] = Field(
        "wall", description="Time that decides: wall, or cpu (user and system; for a busy machine)."
    )
    threads: int = Field(1, ge=1, le=1024, description="Threads that libraries may use.")
    timeout_s: float = Field(60.0, gt=0, le=86_400, description="Time limit of a run, in seconds.")
    memory_bytes: int | None = Field(None, ge=64 << 20, description="Memory limit of a run.")
    processes: int = Field(512, ge=1, le=100_000, description="Limit of processes and threads of a run.")
    network: bool = Field(False, description="Let runs reach the network.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Seed of the random order.")
    design: Literal["rounds", "blocks"] = Field("rounds", description="Blocks exist to demonstrate their bias.")
    max_download_bytes: int = Field(2_000_000_000, ge=0, description="Refuse stacks with a larger download.")
    reference: str | None = Field(
        None, description="Stacks file with one stack: the pinned baseline of a history (`indicators history`)."
    )
    revision: str | None = Field(
        None, max_length=200, description="Commit of the measured code; `indicators history` shows where it changed."
    )

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
