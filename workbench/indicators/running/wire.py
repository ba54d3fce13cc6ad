"""What the workbench and its launcher tell each other: one JSON text a line.

Only the standard library is imported here and by all that the launcher uses: it must stay small, for a run's
`ru_maxrss` begins at the size of the process that it was forked from.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal[
    "exited", "timeout", "cpu limit", "out of memory", "killed", "exit code", "too long", "stopped", "not started"
]
"""How the process ended; `exited` is exit code 0, `stopped` that the workbench went away in the middle."""

STDOUT_BYTES = 1 << 20
STDERR_BYTES = 64 << 10


@dataclass(frozen=True)
class Limits:
    """What every run of a launcher may use at most.

    `memory_bytes` (null: no limit), `processes` (threads count, too), `file_bytes` of one file, `open_files`, and
    whether a network may be reached.
    """

    memory_bytes: int | None = None
    processes: int = 512
    file_bytes: int = 1 << 30
    open_files: int = 1024
    network: bool = False


@dataclass(frozen=True)
class Setup:
    """What a launcher is started with: limits, the interpreters that runs will need, where private folders go."""

    limits: Limits
    pythons: tuple[str, ...]
    scratch: str
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Command:
    """One run.

    Attributes
    ----------
    python
        The interpreter; `script.py` of `sources` is run with it.
    sources
        Files of the run's own folder, by name: their texts.
    environment
        All environment variables beside HOME and TMPDIR, which are private and empty.
    timeout_s
        Time after which it and all it started are killed.
    cpu_s
        Processor time after which a process is killed; null for none.
    cpus
        The cores it is pinned to; none for any.
    stdout_bytes, stderr_bytes
        More on stdout ends the run; of stderr the last so many are kept.
    """

    python: str
    sources: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0
    cpu_s: int | None = None
    cpus: tuple[int, ...] = ()
    stdout_bytes: int = STDOUT_BYTES
    stderr_bytes: int = STDERR_BYTES


@dataclass(frozen=True)
class Ended:
    """How a run ended, and what it used.

    `usage` has the 16 fields of this one process as `wait4` tells them. `duration_s` is from before the fork until it
    was waited for. `left_behind` counts the processes that it had started and that had to be killed after it.
    `isolation` says in words what was in force.
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
    left_behind: int = 0
    isolation: Mapping[str, str] = field(default_factory=dict)


def line(message: Any) -> bytes:
    """A message as one line."""
    return json.dumps(asdict(message), default=_text).encode() + b"\n"


def setup_of(text: bytes) -> Setup:
    """The setup that a line holds."""
    found = json.loads(text)
    found["limits"] = Limits(**found["limits"])
    return Setup(**_tuples(found, "pythons", "cpus"))


def command_of(text: bytes) -> Command:
    """The command that a line holds."""
    return Command(**_tuples(json.loads(text), "cpus"))


def ended_of(text: bytes) -> Ended:
    """The ending that a line holds."""
    found = json.loads(text)
    for name in ("stdout", "stderr"):
        found[name] = base64.b64decode(found[name])
    return Ended(**found)


def _tuples(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: tuple(value) if name in names else value for name, value in found.items()}


def _text(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)
