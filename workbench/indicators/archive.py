"""The truth on disk: one JSON document a run, in Amun's layout, and the session that planned it.

    FOLDER/session.json                            what was planned, on which machine
    FOLDER/inspections/ID/build/specification      one stack and one case: Amun's specification
    FOLDER/inspections/ID/results/N/result         run N (its round): Amun's result, and `workbench` beside

Everything else (SQL, tables, pictures) can be made anew from here. Files are written whole or not at all, so a run
that was killed is a run that is not there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench import files
from workbench.errors import InputError
from workbench.indicators.contract import Better, Value
from workbench.indicators.documents import Status

FORMAT_VERSION = 1
SESSION = "session.json"
INSPECTIONS = "inspections"
MOST_RESULT_BYTES = 8 << 20
MOST_SESSION_BYTES = 64 << 20
Model = TypeVar("Model", bound=BaseModel)
Number = TypeVar("Number", int, float)
CONTROL = "control"
"""The arm that runs the baseline's lock from an environment of its own: any difference between the two is made up."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Arm(_Strict):
    """One side of a session: a stack; the control is the baseline's stack once more.

    `packages` has name to version; `lock_sha256` identifies the lock that was installed with hashes checked.
    """

    name: str
    stack: str
    stack_key: str
    copy_number: int = 0
    python: str = ""
    packages: dict[str, str] = {}
    lock_sha256: str = ""
    notes: dict[str, str] = {}


class PlannedMetric(_Strict):
    """A result by which stacks are compared: its name in tables and mixes, and how to judge it."""

    name: str
    field: str
    unit: str
    better: Better
    tolerance: float


class PlannedCase(_Strict):
    """An indicator with its parameters, as it was planned; `skipped` has the arms it does not apply to, with why.

    `declaration` is the JSON Schema of the indicator's class (its `model_json_schema()`): typed tables can be made
    from it where the class itself is not at hand. Empty in sessions that were planned without.
    """

    label: str
    indicator: str
    indicator_version: str
    about: str = ""
    parameters: dict[str, Value] = {}
    metrics: tuple[PlannedMetric, ...] = ()
    compared_checks: tuple[str, ...] = ()
    skipped: dict[str, str] = {}
    declaration: dict[str, Any] = {}


class Hardware(_Strict):
    """The machine, as far as it decides what is fast; `key` stands for all of it. Unknown is null."""

    key: str
    cpu_model: str
    cpu_family: int | None = None
    cpu_model_number: int | None = None
    cpu_flags: tuple[str, ...] = ()
    cores: int | None = None
    memory_bytes: int | None = None
    accelerators: tuple[str, ...] = ()


class Session(_Strict):
    """What is measured against what, in which order, on which machine; figures of two sessions are never compared.

    The order of each round follows from `seed`. `looks` are the numbers of rounds after which may be stopped.
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
    host: dict[str, Any] = {}
    backend: Literal["process", "kubernetes", "imported", "simulated"] = "process"
    design: Literal["rounds", "blocks"] = "rounds"
    notes: tuple[str, ...] = ()
    rounds_done: int = 0
    ended_at: str | None = None
    stop_reason: str | None = None

    @property
    def run_threads(self) -> int:
        """Threads of each run; only imported sessions do not tell them.

        Raises
        ------
        InputError
            It was imported: nothing can be run for it.
        """
        return _told(self.threads, "threads")

    @property
    def run_timeout_s(self) -> float:
        """Time limit of each run, in seconds; raises as `run_threads` does."""
        return _told(self.timeout_s, "timeout_s")

    @property
    def level(self) -> float:
        """Confidence of every interval: each look has an even share of alpha."""
        return 1 - self.alpha / max(1, len(self.looks))

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)


class Pressure(_Strict):
    """How busy the machine was at a moment; null where the system does not tell.

    `steal_s` is the time that the hypervisor took away since the machine started, `cpu_some_avg10` the share of the
    last 10 s in which something waited for a core, in percent.
    """

    load_1m: float | None = None
    steal_s: float | None = None
    cpu_some_avg10: float | None = None
    memory_some_avg10: float | None = None


class Measured(_Strict):
    """What this project adds to Amun's result: which run it is, how it ended, under which limits.

    `status` is `ok` or why there are no values; `failed_checks` has sentences. `isolation` says what was in force:
    network, memory, processes, user, each in words. `duration_s` is from before the process was made until after it
    was waited for.
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
    isolation: dict[str, str] = {}


class Result(_Strict):
    """A run's document: Amun's keys, `usage` of this child alone, and `workbench`."""

    stdout: Any
    stderr: str
    exit_code: int | None
    script_sha256: str
    usage: dict[str, int | float]
    start_datetime: str
    end_datetime: str
    os_release: dict[str, Any] = {}
    runtime_environment: dict[str, Any] = {}
    hostname: str = ""
    hwinfo: dict[str, Any] = {}
    workbench: Measured = Field()

    def value(self, field: str) -> float | None:
        """A result of the document; null unless the run is `ok` and the value a number."""
        found = self._in("@result", field)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

    def check(self, field: str) -> Value:
        """A check's value; null unless the run is `ok`."""
        found = self._in("@checks", field)
        return found if isinstance(found, int | float | str | bool) else None

    def _in(self, part: str, field: str) -> Any:
        if self.workbench.status != "ok" or not isinstance(self.stdout, dict):
            return None
        inner = self.stdout.get(part)
        return inner.get(field) if isinstance(inner, dict) else None


def _told(value: Number | None, name: str) -> Number:
    if value is None:
        raise InputError("an imported session cannot be run", where=name, found="not told")
    return value


def inspection_id(session_id: str, arm: str, case: str) -> str:
    """The name of the inspection of one arm and one case: the same for the same three."""
    slug = re.sub(r"[^a-z0-9]+", "-", case.lower()).strip("-")[:30].strip("-")
    digest = hashlib.sha256("\0".join((session_id, arm, case)).encode()).hexdigest()[:8]
    return f"inspection-{slug or 'case'}-{digest}"


def write_session(folder: Path, session: Session) -> Path:
    """Write session.json, whole."""
    return files.write_text(folder / SESSION, session.model_dump_json(indent=1) + "\n")


def read_session(folder: Path) -> Session:
    """The session of a folder.

    Raises
    ------
    InputError
        There is none, it is damaged, or of a newer format.
    """
    return _read(folder / SESSION, MOST_SESSION_BYTES, Session)


def write_specification(folder: Path, inspection: str, specification: dict[str, Any]) -> Path:
    """Write what one inspection is of, in Amun's words."""
    path = folder / INSPECTIONS / inspection / "build" / "specification"
    return files.write_text(path, json.dumps(specification, indent=1, sort_keys=True) + "\n")


def result_path(folder: Path, inspection: str, run: int) -> Path:
    """Where run N of an inspection lies."""
    return folder / INSPECTIONS / inspection / "results" / str(run) / "result"


def write_result(folder: Path, inspection: str, run: int, result: Result) -> Path:
    """Write a run's document, whole or not at all."""
    return files.write_text(result_path(folder, inspection, run), result.model_dump_json() + "\n")


def read_result(path: Path) -> Result:
    """A run's document that this project wrote.

    Raises
    ------
    InputError
        It is missing, damaged, too large, or of a newer format.
    """
    return _read(path, MOST_RESULT_BYTES, Result)


def results(folder: Path, session: Session) -> Iterator[tuple[str, int, Result]]:
    """All runs of a session that are there: inspection, run, document; by case, arm and run.

    Raises
    ------
    InputError
        A document is damaged, says it belongs elsewhere, or lies in a folder that is not the number of a run.
    """
    for case in session.cases:
        for arm in session.arms:
            inspection = inspection_id(session.session_id, arm.name, case.label)
            numbered, odd = numbered_results(folder, inspection)
            if odd:
                raise InputError("not the number of a run", where=odd[0], do="take that folder away")
            for number, path in numbered:
                result = read_result(path)
                own = (result.workbench.session_id, result.workbench.arm, result.workbench.case)
                if own != (session.session_id, arm.name, case.label):
                    raise InputError("a run of something else", where=path, found=", ".join(own))
                yield inspection, number, result


def numbered_results(folder: Path, inspection: str) -> tuple[list[tuple[int, Path]], list[Path]]:
    """The results of an inspection in order of their numbers, and those whose folder is no number ("0 (copy)")."""
    numbered, odd = [], []
    for path in sorted((folder / INSPECTIONS / inspection / "results").glob("*/result")):
        name = path.parent.name
        if name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < 2**31:
            numbered.append((int(name), path))
        else:
            odd.append(path)
    return sorted(numbered), odd


def _read(path: Path, most_bytes: int, model: type[Model]) -> Model:
    try:
        found = json.loads(files.read_bounded(path, most_bytes))
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
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(f"not a {path.name} of this project", where=path, found=told) from None
