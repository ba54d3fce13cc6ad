"""Messages between the launcher of runs and its client, a JSON document a line.

Also read in pods: Python 3.9 and its standard library alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["exited", "timeout", "out of memory", "killed", "exit code", "too long", "stopped", "not started"]
"""How a run ended.

- `exited`: by itself with exit code 0; `exit code`: with another one.
- `timeout`, `too long`: killed at its time limit, or for printing more than it may; `stopped`: killed because the
  workbench went away.
- `out of memory`: killed by the kernel, or ended by a failed allocation.
- `killed`: by a signal from elsewhere, or together with its launcher; `not started`: no process could be made.
"""

STDOUT_BYTES = 1 << 20
STDERR_BYTES = 64 << 10


@dataclass(frozen=True)
class RunLimits:
    """Upper limits for every run of a launcher.

    `memory_bytes` (null: no limit), `processes` (threads count, too), `file_bytes` of one file, `open_files`, and
    whether a network may be reached.
    """

    memory_bytes: int | None = None
    processes: int = 512
    file_bytes: int = 1 << 30
    open_files: int = 1024
    network: bool = False


@dataclass(frozen=True)
class LauncherSetup:
    """Start settings of a launcher: limits, interpreters and folders that runs need, where private folders go."""

    limits: RunLimits
    pythons: tuple[str, ...]
    scratch: str
    cpus: tuple[int, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunCommand:
    """One run.

    `python`, `sources`: Path of the interpreter; file name to text, of which `script.py` is run.
    `environment`: All environment variables beside HOME and TMPDIR, which are private and empty.
    `timeout_s`: Limit of the whole run by the clock.
    `cpus`: Numbers of the cores that it may use; empty for all.
    `max_stdout_bytes`, `kept_stderr_bytes`: More than this on stdout ends the run; of stderr the end is kept.
    """

    python: str
    sources: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0
    cpus: tuple[int, ...] = ()
    max_stdout_bytes: int = STDOUT_BYTES
    kept_stderr_bytes: int = STDERR_BYTES


@dataclass(frozen=True)
class RunEnd:
    """How a run ended, and what it used.

    `outcome`, `exit_code`, `signal`: Exactly one of the two numbers is set, and the other is null: the exit code of a
    process that ended by itself (`exited`, `exit code`, and `out of memory` by a failed allocation), else the number of
    the signal that ended it. Both are null for `not started`, and for `killed` where the launcher died as well. A
    process that ends just as its limit is reached may have an exit code with `timeout`, `too long` or `stopped`.
    `stdout`, `stderr`: The beginning and the end of the outputs, at most as much as the command keeps.
    `stdout_bytes`: Number of bytes that it printed on stdout, more than are kept where that was too long.
    `usage`: The 16 fields of `wait4` about the first process: times in seconds (`ru_utime`, `ru_stime`), `ru_maxrss` in
    KiB, all others are counts. Empty if not started.
    `duration_s`: Seconds from before the fork until it was waited for.
    `cpu_s`: Seconds of user and system time of all processes of the run, also of those that outlived it.
    `waited_s`: Seconds that its first thread was ready and waited for a core; null where the kernel does not tell.
    `left_behind`: Number of processes that it had started and that had to be killed after it.
    `isolation`: What was in force, in words.
    """

    outcome: Outcome
    detail: str = ""
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    usage: Mapping[str, float] = field(default_factory=dict)
    started_at: str = ""
    ended_at: str = ""
    duration_s: float = 0.0
    cpu_s: float | None = None
    waited_s: float | None = None
    left_behind: int = 0
    isolation: Mapping[str, str] = field(default_factory=dict)


def encode_message(message: Any) -> bytes:
    """A message as one line."""
    return json.dumps(asdict(message), default=_encode_default).encode() + b"\n"


def parse_setup(text: bytes) -> LauncherSetup:
    """The setup that a line holds."""
    fields = json.loads(text)
    fields["limits"] = RunLimits(**fields["limits"])
    return LauncherSetup(**_convert_tuples(fields, "pythons", "cpus", "folders"))


def parse_command(text: bytes) -> RunCommand:
    """The command that a line holds."""
    return RunCommand(**_convert_tuples(json.loads(text), "cpus"))


def parse_run_end(text: bytes) -> RunEnd:
    """The ending that a line holds."""
    fields = json.loads(text)
    for name in ("stdout", "stderr"):
        fields[name] = base64.b64decode(fields[name])
    return RunEnd(**fields)


def _convert_tuples(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: tuple(value) if name in names else value for name, value in fields.items()}


def _encode_default(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)
