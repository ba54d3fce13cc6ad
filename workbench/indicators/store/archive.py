"""The archive on disk: session.json and one JSON document per run, in Amun's layout."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import FiniteModel
from workbench.indicators.contract.documents import Status
from workbench.indicators.contract.indicator import Better, Value

FORMAT_VERSION = 1
SESSION = "session.json"
INSPECTIONS = "inspections"
MAX_RESULT_BYTES = 8 << 20
MAX_SESSION_BYTES = 64 << 20
Model = TypeVar("Model", bound=BaseModel)
Number = TypeVar("Number", int, float)
CONTROL = "control"
"""The arm that runs the baseline's lock from its own environment; a difference between the two is measurement error."""


class Arm(FiniteModel):
    """One arm of a session: a stack; the control is the baseline's stack once more.

    `packages` maps names to versions; `lock_sha256` identifies the lock that was installed with hashes checked.
    """

    name: str
    stack: str
    stack_key: str
    copy_number: int = 0
    python: str = ""
    packages: dict[str, str] = Field(default={})
    lock_sha256: str = ""
    notes: dict[str, str] = Field(default={})


class PlannedMetric(FiniteModel):
    """A result by which stacks are compared: its name in tables and mixes, its unit, direction and tolerance."""

    name: str
    field: str
    unit: str
    better: Better
    tolerance: float


class PlannedCase(FiniteModel):
    """An indicator with its parameters, as planned; `skipped` maps arms that it does not apply to to the reason.

    `declaration` is the JSON Schema of the indicator's class (`model_json_schema()`), from which typed tables can be
    made without the class. Empty in older sessions.
    """

    label: str
    indicator: str
    indicator_version: str
    about: str = ""
    parameters: dict[str, Value] = Field(default={})
    metrics: tuple[PlannedMetric, ...] = ()
    compared_checks: tuple[str, ...] = ()
    skipped: dict[str, str] = Field(default={})
    declaration: dict[str, Any] = Field(default={})


class Hardware(FiniteModel):
    """The facts of a machine that decide what is fast; `key` is a hash of them. Unknown facts are null."""

    key: str
    cpu_model: str
    cpu_family: int | None = None
    cpu_model_number: int | None = None
    cpu_flags: tuple[str, ...] = ()
    cores: int | None = None
    memory_bytes: int | None = None
    accelerators: tuple[str, ...] = ()


class Session(FiniteModel):
    """The plan of a session: arms, cases, order and machine. Figures of different sessions are never compared.

    The order of each round follows from `seed`. `looks` are the numbers of rounds after which it may stop.
    """

    format_version: int = FORMAT_VERSION
    session_id: str
    created_at: str
    seed: int
    arms: tuple[Arm, ...]
    baseline: str
    cases: tuple[PlannedCase, ...]
    looks: tuple[int, ...]
    alpha: float
    threads: int | None = None
    cpus: tuple[int, ...] = ()
    timeout_s: float | None = None
    memory_bytes: int | None = None
    hardware: Hardware
    host: dict[str, Any] = Field(default={})
    backend: Literal["process", "kubernetes", "imported", "simulated"] = "process"
    design: Literal["rounds", "blocks"] = "rounds"
    notes: tuple[str, ...] = ()
    rounds_done: int = 0
    ended_at: str | None = None
    stop_reason: str | None = None

    @property
    def run_threads(self) -> int:
        """Threads of each run.

        Raises
        ------
        InputError
            The session was imported, so it cannot be run.
        """
        return _require_value(self.threads, "threads")

    @property
    def run_timeout_s(self) -> float:
        """Time limit of each run, in seconds; raises as `run_threads` does."""
        return _require_value(self.timeout_s, "timeout_s")

    @property
    def level(self) -> float:
        """Confidence level of every interval: each look has an equal share of alpha."""
        return 1 - self.alpha / max(1, len(self.looks))

    def get_arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)


class Pressure(FiniteModel):
    """How busy the machine was; unknown values are null.

    `steal_s` is the time stolen by the hypervisor since boot, `cpu_some_avg10` the percentage of the last 10 s in
    which a task waited for a core.
    """

    load_1m: float | None = None
    steal_s: float | None = None
    cpu_some_avg10: float | None = None
    memory_some_avg10: float | None = None


class RunDetails(FiniteModel):
    """What this project adds to Amun's result: identity, status and limits of the run.

    `status` is `ok` or why there are no values; `failed_checks` holds sentences. `isolation` describes the isolation of
    network, memory, processes and user. `duration_s` includes starting the process and waiting for it.
    """

    format_version: int = FORMAT_VERSION
    session_id: str
    arm: str
    case: str
    round: int
    position: int
    indicator: str
    indicator_version: str
    status: Status
    reason: str | None = None
    failed_checks: tuple[str, ...] = ()
    signal: int | None = None
    duration_s: float | None = None
    threads: int | None = None
    cpus: tuple[int, ...] = ()
    hardware_key: str = ""
    stdout_bytes: int = 0
    stdout_sha256: str = ""
    before: Pressure = Pressure()
    after: Pressure = Pressure()
    isolation: dict[str, str] = Field(default={})


class Result(FiniteModel):
    """A run's document: Amun's keys, `usage` of this process alone, and `workbench`."""

    stdout: Any
    stderr: str
    exit_code: int | None
    script_sha256: str
    usage: dict[str, int | float]
    start_datetime: str
    end_datetime: str
    os_release: dict[str, Any] = Field(default={})
    runtime_environment: dict[str, Any] = Field(default={})
    hostname: str = ""
    hwinfo: dict[str, Any] = Field(default={})
    workbench: RunDetails = Field()

    def metric_value(self, field: str) -> float | None:
        """A result of the document; null unless the run is `ok` and the value a number."""
        found = self._find_field("@result", field)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def check_value(self, field: str) -> Value:
        """A check's value; null unless the run is `ok`."""
        found = self._find_field("@checks", field)
        return found if isinstance(found, int | float | str | bool) else None

    def _find_field(self, part: str, field: str) -> Any:
        if self.workbench.status != "ok" or not isinstance(self.stdout, dict):
            return None
        inner = self.stdout.get(part)
        return inner.get(field) if isinstance(inner, dict) else None


def _require_value(value: Number | None, name: str) -> Number:
    if value is None:
        raise InputError("an imported session cannot be run", where=name, found="unknown")
    return value


def inspection_id(session_id: str, arm: str, case: str) -> str:
    """The name of an arm's and case's inspection, a function of these three."""
    slug = re.sub(r"[^a-z0-9]+", "-", case.lower()).strip("-")[:30].strip("-")
    digest = hashlib.sha256("\0".join((session_id, arm, case)).encode()).hexdigest()[:8]
    return f"inspection-{slug or 'case'}-{digest}"


def write_session(folder: Path, session: Session) -> Path:
    """Write session.json atomically."""
    return files.write_text(folder / SESSION, session.model_dump_json(indent=1) + "\n")


def read_session(folder: Path) -> Session:
    """Read the session of a folder.

    Raises
    ------
    InputError
        There is none, it is damaged, or has a newer format.
    """
    return _load_model(folder / SESSION, MAX_SESSION_BYTES, Session)


def write_specification(folder: Path, inspection: str, specification: dict[str, Any]) -> Path:
    """Write the specification of an inspection, in Amun's format."""
    path = folder / INSPECTIONS / inspection / "build" / "specification"
    return files.write_text(path, json.dumps(specification, indent=1, sort_keys=True) + "\n")


def result_path(folder: Path, inspection: str, run: int) -> Path:
    """Path of a run of an inspection."""
    return folder / INSPECTIONS / inspection / "results" / str(run) / "result"


def write_result(folder: Path, inspection: str, run: int, result: Result) -> Path:
    """Write a run's document atomically."""
    return files.write_text(result_path(folder, inspection, run), result.model_dump_json() + "\n")


def read_result(path: Path) -> Result:
    """Read a run's document.

    Raises
    ------
    InputError
        It is missing, damaged, too large, or has a newer format.
    """
    return _load_model(path, MAX_RESULT_BYTES, Result)


def read_results(folder: Path, session: Session) -> Iterator[tuple[str, int, Result]]:
    """Read all runs of a session as (inspection, run, document), ordered by case, arm and run.

    Raises
    ------
    InputError
        A document is damaged, belongs to another session, or its folder is not a run's number.
    """
    for case in session.cases:
        for arm in session.arms:
            inspection = inspection_id(session.session_id, arm.name, case.label)
            numbered, odd = list_numbered_results(folder, inspection)
            if odd:
                raise InputError("not the number of a run", where=odd[0], do="remove that folder")
            for number, path in numbered:
                result = read_result(path)
                own = (result.workbench.session_id, result.workbench.arm, result.workbench.case)
                if own != (session.session_id, arm.name, case.label):
                    raise InputError("a run of another session", where=path, found=", ".join(own))
                yield inspection, number, result


def list_numbered_results(folder: Path, inspection: str) -> tuple[list[tuple[int, Path]], list[Path]]:
    """The results of an inspection by number, and those whose folder is not a number, like "0 (copy)"."""
    numbered, odd = [], []
    for path in sorted((folder / INSPECTIONS / inspection / "results").glob("*/result")):
        name = path.parent.name
        if name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < 2**31:
            numbered.append((int(name), path))
        else:
            odd.append(path)
    return sorted(numbered), odd


def _load_model(path: Path, max_bytes: int, model: type[Model]) -> Model:
    try:
        found = json.loads(files.read_up_to(path, max_bytes))
    except OSError as error:
        raise InputError(f"no {path.name} there", where=path, found=error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise InputError("not readable JSON", where=path, found=str(error)[:200]) from None
    version = found.get("format_version", 1) if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError("written by a newer workbench", where=path, found=version, do="update this installation")
    try:
        return model.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(f"not a {path.name} of this project", where=path, found=problem) from None


def parse_time(text: Any) -> datetime | None:
    """Parse a time in ISO format, UTC if it has no zone; null for other values.

    Examples
    --------
    >>> parse_time("2026-01-31").isoformat(), parse_time("yesterday")
    ('2026-01-31T00:00:00+00:00', None)
    """
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
