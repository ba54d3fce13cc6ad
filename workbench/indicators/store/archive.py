"""Archive on disk: session.json and one JSON document per run, in Amun's layout."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import FiniteModel
from workbench.indicators.contract.documents import Status
from workbench.indicators.contract.indicator import Better, Indicator, Value

FORMAT_VERSION = 1
SESSION_FILE = "session.json"
INSPECTIONS = "inspections"
MAX_RESULT_BYTES = 8 << 20
MAX_SESSION_BYTES = 64 << 20
Model = TypeVar("Model", bound=BaseModel)
Number = TypeVar("Number", int, float)
CONTROL = "control"
"""Arm that runs the baseline's lock from a separate environment; any difference is measurement error."""
STANDS_FOR = "stands for"
"""Note of a control: the followed stack that has the reference's lock in this session."""
COMMIT_TIME = "commit time"
"""Note of an arm: when the measured commit was made, in ISO format and UTC."""
OUTSIDE = "link to a target outside the given folder"


class Arm(FiniteModel):
    """One arm of a session: a stack; the control is the baseline's stack once more.

    `conditions` are what else may make a run fast or slow (byte code, locale, hash seed, threads), as a run with this
    interpreter found them; empty in older sessions. `packages` maps names to versions; `lock_sha256` identifies the
    lock that was installed with hashes checked. Of a stack matrix, `factors` maps each dimension to the arm's level and
    `threads` is its number; null: the session's.
    """

    name: str
    stack: str
    stack_key: str
    copy_number: int = 0
    python: str = ""
    packages: dict[str, str] = Field(default={})
    lock_sha256: str = ""
    notes: dict[str, str] = Field(default={})
    conditions: dict[str, str] = Field(default={})
    factors: dict[str, str] = Field(default={})
    threads: int | None = None

    @property
    def is_control(self) -> bool:
        """Whether this is the baseline once more."""
        return self.copy_number > 0

    @property
    def python_minor(self) -> str:
        """The Python version without its patch release, such as 3.12."""
        return ".".join(self.python.split(".")[:2])


class PlannedMetric(FiniteModel):
    """Result field used to compare stacks: name in tables and mixes, unit, direction and tolerance."""

    name: str
    field: str
    unit: str
    better: Better
    tolerance: float


class PlannedCase(FiniteModel):
    """Planned indicator with its parameters; `skipped` maps arms to the reason why it does not apply to them.

    `declaration` is the JSON Schema of the indicator's class (`model_json_schema()`), used to build typed tables
    without the class. Empty in older sessions.
    """

    label: str
    indicator: str
    indicator_version: str
    about: str = ""
    parameters: dict[str, Value] = Field(default={})
    metrics: tuple[PlannedMetric, ...] = ()
    compared_checks: tuple[str, ...] = ()
    compared_results: tuple[str, ...] = ()
    skipped: dict[str, str] = Field(default={})
    declaration: dict[str, Any] = Field(default={})

    @classmethod
    def from_indicator(
        cls,
        indicator: type[Indicator],
        *,
        label: str,
        version: str,
        parameters: Mapping[str, Value],
        skipped: dict[str, str],
    ) -> PlannedCase:
        """Plan a case of an indicator's class; `version` is that of its declaration with the sources that are run."""
        return cls(
            label=label,
            indicator=indicator.__name__,
            indicator_version=version,
            about=(indicator.__doc__ or "").strip().split("\n")[0][:300],
            parameters=dict(parameters),
            metrics=tuple(
                PlannedMetric(name=name, **dataclasses.asdict(metric))
                for name, metric in indicator.named_metrics(label)
            ),
            compared_checks=indicator.compared_checks(),
            compared_results=indicator.compared_results(),
            skipped=skipped,
            declaration=_build_declaration(indicator),
        )


@functools.lru_cache(maxsize=64)
def _build_declaration(indicator: type[Indicator]) -> dict[str, Any]:
    """JSON Schema of an indicator, built once for what may be thousands of imported cases."""
    return indicator.model_json_schema()


class Hardware(FiniteModel):
    """Facts of a machine that affect performance; `key` is their hash. Unknown facts are null."""

    key: str
    cpu_model: str
    cpu_family: int | None = None
    cpu_model_number: int | None = None
    cpu_flags: tuple[str, ...] = ()
    cores: int | None = None
    memory_bytes: int | None = None
    accelerators: tuple[str, ...] = ()


class Session(FiniteModel):
    """Plan of a session: arms, cases, order and machine. Values of different sessions are never compared.

    `seed` determines the order of each round. `method` says what intervals hold for: `looks`, the numbers of rounds
    that were planned (older and imported sessions), or `sequence`, any number of rounds; then the session may stop
    after any round from the first of the looks on, and be extended. `clock` is the time that decides: wall or CPU time.
    `revision` is that of the measured code (a commit), where it was told. `output` says what must agree between arms:
    outputs and answers, the lines of an output in any order, or nothing.
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
    method: Literal["looks", "sequence"] = "looks"
    clock: Literal["wall", "cpu"] = "wall"
    threads: int | None = None
    cpus: tuple[int, ...] = ()
    timeout_s: float | None = None
    memory_bytes: int | None = None
    hardware: Hardware
    host: dict[str, Any] = Field(default={})
    backend: Literal["process", "kubernetes", "imported", "simulated"] = "process"
    design: Literal["rounds", "blocks"] = "rounds"
    revision: str | None = None
    output: Literal["same", "lines", "any"] = "same"
    notes: tuple[str, ...] = ()
    rounds_done: int = 0
    ended_at: str | None = None
    stop_reason: str | None = None

    @property
    def run_threads(self) -> int:
        """Threads of each run."""
        return _require_value(self.threads, "threads")

    @property
    def run_timeout_s(self) -> float:
        """Time limit of each run, in seconds; raises as `run_threads` does."""
        return _require_value(self.timeout_s, "timeout_s")

    @property
    def level(self) -> float:
        """Confidence level of every interval: of all looks together, or each planned look has its share of alpha."""
        if self.method == "sequence":
            return 1 - self.alpha
        return 1 - self.alpha / max(1, len(self.looks))

    @property
    def control(self) -> Arm | None:
        """The arm that is the baseline once more; null in sessions without one."""
        return next((arm for arm in self.arms if arm.is_control), None)

    def count_threads(self, arm: Arm) -> int:
        """Threads of the runs of an arm; raises as `run_threads` does."""
        return arm.threads or self.run_threads

    def get_arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)


class Pressure(FiniteModel):
    """Load of the machine; unknown values are null.

    `steal_s` is the time stolen by the hypervisor since boot, `cpu_some_avg10` the percentage of the last 10 s in
    which a task waited for a core. `busy_s` is the time since boot that the run's cores were busy, all together, and
    `all_busy_s` that all cores were; `mhz` the mean clock of the run's cores; `throttles` how often they were slowed
    down for heat, `quota_s` how long a CPU quota stopped the workbench's control group. `disk_busy_s` is the time since
    boot that disks were in use, `disk_sectors` what they read and wrote, in 512 bytes.
    """

    load_1m: float | None = None
    steal_s: float | None = None
    cpu_some_avg10: float | None = None
    memory_some_avg10: float | None = None
    busy_s: float | None = None
    all_busy_s: float | None = None
    disk_busy_s: float | None = None
    disk_sectors: int | None = None
    mhz: float | None = None
    throttles: int | None = None
    quota_s: float | None = None


class RunDetails(FiniteModel):
    """Additions to Amun's result: identity, status and limits of the run.

    `status` is `ok` or the reason for missing values; `failed_checks` holds sentences, and so
    does `faults`: why values of an `ok` run are not those of the work. `isolation` describes the
    isolation of network, memory, processes and user. `duration_s` includes process start and wait; `cpu_s` is user and
    system time of all its processes, `waited_s` how long it waited for a core (both null in older documents).
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
    faults: tuple[str, ...] = ()
    signal: int | None = None
    duration_s: float | None = None
    cpu_s: float | None = None
    waited_s: float | None = None
    threads: int | None = None
    cpus: tuple[int, ...] = ()
    hardware_key: str = ""
    stdout_bytes: int = 0
    stdout_sha256: str = ""
    before: Pressure = Pressure()
    after: Pressure = Pressure()
    isolation: dict[str, str] = Field(default={})


class Result(FiniteModel):
    """Document of a run: Amun's keys, `usage` of this process only, and `workbench`."""

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
        """Value of a result; null unless the run is `ok` and the value is a number."""
        value = self._find_field("@result", field)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def cpu_value(self, field: str) -> float | None:
        """CPU time of a result, in its unit, as the script measured it; null where it did not."""
        value = self._find_field("@cpu", field)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None

    @property
    def run_cpu_s(self) -> float | None:
        """User and system time of the whole run, in seconds; of its first process alone in older documents."""
        if self.workbench.cpu_s is not None:
            return self.workbench.cpu_s
        times = [self.usage.get(name) for name in ("ru_utime", "ru_stime")]
        return None if None in times else float(sum(time for time in times if time is not None))

    def check_value(self, field: str) -> Value:
        """Value of a check; null unless the run is `ok`."""
        value = self._find_field("@checks", field)
        return value if isinstance(value, int | float | str | bool) else None

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
    """Name of the inspection of an arm and case, a function of the three arguments."""
    slug = re.sub(r"[^a-z0-9]+", "-", case.lower()).strip("-")[:30].strip("-")
    digest = hashlib.sha256("\0".join((session_id, arm, case)).encode()).hexdigest()[:8]
    return f"inspection-{slug or 'case'}-{digest}"


def write_session(folder: Path, session: Session) -> Path:
    """Write session.json atomically."""
    return files.write_text(folder / SESSION_FILE, session.model_dump_json(indent=1) + "\n")


def read_session(folder: Path) -> Session:
    """Read the session of a folder."""
    return _load_model(folder / SESSION_FILE, MAX_SESSION_BYTES, Session)


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
    """Read a run's document."""
    return _load_model(path, MAX_RESULT_BYTES, Result)


def read_results(folder: Path, session: Session) -> Iterator[tuple[str, int, Result]]:
    """Read all runs of a session as (inspection, run, document), ordered by case, arm and run."""
    for case in session.cases:
        for arm in session.arms:
            inspection = inspection_id(session.session_id, arm.name, case.label)
            numbered, odd = list_numbered_results(folder, inspection)
            if odd:
                raise InputError("not a run number", where=odd[0], do="remove that folder")
            for number, path in numbered:
                result = read_result(path)
                origin = (result.workbench.session_id, result.workbench.arm, result.workbench.case)
                if origin != (session.session_id, arm.name, case.label):
                    raise InputError("run of another session", where=path, found=", ".join(origin))
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
        document = json.loads(files.read_up_to(path, max_bytes))
    except OSError as error:
        raise InputError(f"no {path.name} in this folder", where=path, found=error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise InputError("not valid JSON", where=path, found=str(error)[:200]) from None
    version = document.get("format_version", 1) if isinstance(document, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise InputError(
            "written by a newer version of the workbench", where=path, found=version, do="update this installation"
        )
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputError(f"not a {path.name} of this project", where=path, found=problem) from None


def parse_time(text: Any) -> datetime | None:
    """Parse a time in ISO format, UTC if it has no zone; null for other values.

    >>> parse_time("2026-01-31").isoformat(), parse_time("yesterday")
    ('2026-01-31T00:00:00+00:00', None)
    """
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path lies in a (resolved) folder after following links; files outside are not read."""
    try:
        return path.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # links in a circle
        return False
