"""Writes runs of other tools as sessions of the archive, one session per machine."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, refuse_os_errors
from workbench.core.formats import cut_with_digest
from workbench.indicators.contract.documents import Status
from workbench.indicators.contract.indicator import USAGE, Indicator, Value
from workbench.indicators.store import archive
from workbench.indicators.store.archive import (
    Arm,
    Hardware,
    PlannedCase,
    Result,
    RunDetails,
    Session,
    parse_time,
)

UNKNOWN = "unknown"
NOT_INTERLEAVED = "imported: the order of these runs is unknown, so no verdict follows from them"
NOT_TOLD = "imported: threads, time limit and memory limit are unknown"
MAX_FLAGS = 1000


@dataclass(frozen=True)
class ImportedCase:
    """Case of a run: an indicator with its parameters, or the name of an unknown one."""

    name: str
    version: str
    indicator: type[Indicator] | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    label: str = ""

    @property
    def key(self) -> str:
        """Key that is equal for equal cases."""
        return json.dumps([self.name, self.version, dict(self.parameters), self.label], sort_keys=True)


@dataclass(frozen=True)
class ImportedRun:
    """One imported run; `document` has Amun's keys of a result."""

    arm: Arm
    thing: ImportedCase
    hardware: Hardware
    status: Status
    document: Mapping[str, Any]
    reason: str | None = None
    failed_checks: tuple[str, ...] = ()
    duration_s: float | None = None
    specification: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportedSession:
    """Written session: folder, content, number of runs with values, and why others have none, with their number."""

    folder: Path
    session: Session
    runs: int
    ok: int
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportReport:
    """Result of an import: sessions, files that could not be read with the reason, and counted notices."""

    sessions: list[ImportedSession]
    problems: list[tuple[Path, str]]
    notices: dict[str, int]


def write_sessions(
    runs: Sequence[ImportedRun],
    out: Path,
    *,
    baseline: str | None = None,
    notes: Iterable[str] = (),
    revision: str | None = None,
    created_at: str | None = None,
) -> list[ImportedSession]:
    """Write runs as sessions below `out`, one per machine, since values of different machines are never compared.

    The same runs give the same session, so repeated imports change nothing.

    `revision`: Commit of the measured code. The same runs of two commits are two sessions.
    """
    if baseline is not None and not any(baseline in (run.arm.name, run.arm.stack) for run in runs):
        names = sorted({run.arm.name for run in runs})
        raise ConfigError("no such stack", where="--baseline", found=baseline[:80], allowed=names)
    machines: dict[str, list[ImportedRun]] = {}
    for run in runs:
        machines.setdefault(run.hardware.key, []).append(run)
    fields: dict[str, Any] = {"notes": (NOT_INTERLEAVED, NOT_TOLD, *dict.fromkeys(notes)), "revision": revision}
    if created_at is not None:
        fields["created_at"] = created_at
    return [_write_session(machine_runs, Path(out), baseline, fields) for machine_runs in machines.values()]


def _write_session(
    runs: list[ImportedRun], out: Path, baseline: str | None, fields: Mapping[str, Any]
) -> ImportedSession:
    """Write the runs of a machine; `fields` are those of the session that the runs do not tell."""
    arms = list({run.arm.name: run.arm for run in runs}.values())
    arms.sort(key=lambda arm: baseline not in (arm.name, arm.stack))  # stable: the others keep their order
    # Label per case: name of the indicator, with the parameters in which its cases differ.
    things = [run.thing for run in runs]
    unique = list({thing.key: thing for thing in things}.values())
    labels: dict[str, str] = {}
    for thing in unique:
        if thing.label:
            labels[thing.key] = thing.label
            continue
        alike = [other for other in unique if other.indicator is not None and other.name == thing.name]
        odd = [
            f"{name}={value}"
            for name, value in thing.parameters.items()
            if value is not None and any(other.parameters.get(name) != value for other in alike)
        ]
        labels[thing.key] = thing.name + (f"[{','.join(odd)}]" if odd else "")
    shared = {label for label, count in Counter(labels.values()).items() if count > 1}
    for thing in unique:
        if labels[thing.key] in shared:
            labels[thing.key] += f"@{thing.version[:6]}"
    counts: dict[tuple[str, str], int] = {}
    numbered = []
    for run in runs:
        key = (run.arm.name, labels[run.thing.key])
        numbered.append((run, counts.get(key, 0)))
        counts[key] = counts.get(key, 0) + 1
    identity = [[run.arm.name, labels[run.thing.key], number, run.document] for run, number in numbered]
    # Includes the machine, so that equal values of two machines are two sessions.
    content = [identity, [arm.model_dump(exclude={"conditions"}) for arm in arms], runs[0].hardware.key]
    content += [] if fields["revision"] is None else [fields["revision"]]
    text = json.dumps(content, sort_keys=True, default=str)
    session_id = "imported-" + hashlib.sha256(text.encode()).hexdigest()[:12]
    rounds = 1 + max(number for _, number in numbered)
    session = _build_session(session_id, runs, arms, labels, rounds).model_copy(update=fields)
    folder = out / session_id
    with refuse_os_errors("cannot be written", folder, do="choose another --out", error_type=ConfigError):
        for position, (run, number) in enumerate(numbered):
            label = labels[run.thing.key]
            inspection = archive.inspection_id(session.session_id, run.arm.name, label)
            if number == 0:
                archive.write_specification(folder, inspection, dict(run.specification))
            archive.write_result(folder, inspection, number, _build_result(session, run, label, number, position))
        # Written last, so that an incomplete folder is not a session.
        archive.write_session(folder, session)
    failures = Counter(f"{labels[run.thing.key]}: {run.reason or run.status}" for run in runs if run.status != "ok")
    return ImportedSession(folder, session, len(runs), sum(run.status == "ok" for run in runs), failures)


def _build_session(
    session_id: str, runs: list[ImportedRun], arms: list[Arm], labels: Mapping[str, str], rounds: int
) -> Session:
    """The session of imported runs; `labels` maps keys of cases to their labels."""
    things = list({run.thing.key: run.thing for run in runs}.values())
    pairs = {(run.arm.name, run.thing.key) for run in runs}
    starts = sorted(filter(None, (text_or_empty(run.document.get("start_datetime")) for run in runs)))
    ends = sorted(filter(None, (text_or_empty(run.document.get("end_datetime")) for run in runs)))
    cases = []
    for thing in things:
        skipped = {arm.name: "no run was imported" for arm in arms if (arm.name, thing.key) not in pairs}
        about: dict[str, Any] = {"label": labels[thing.key], "parameters": thing.parameters, "skipped": skipped}
        if thing.indicator is not None:
            cases.append(PlannedCase.from_indicator(thing.indicator, version=thing.version, **about))
        else:
            # Without a known indicator it has no metrics.
            about["parameters"] = dict(thing.parameters)
            cases.append(PlannedCase(indicator=thing.name, indicator_version=thing.version, **about))
    return Session(
        session_id=session_id,
        created_at=starts[0] if starts else "",
        seed=0,
        arms=tuple(arms),
        baseline=arms[0].name,
        cases=tuple(cases),
        looks=(rounds,),
        alpha=0.05,
        hardware=runs[0].hardware,
        backend="imported",
        design="blocks",
        rounds_done=rounds,
        ended_at=ends[-1] if ends else None,
        stop_reason="imported",
    )


def _build_result(session: Session, run: ImportedRun, label: str, number: int, position: int) -> Result:
    """The document of an imported run."""
    usage = get_part(run.document, "usage")
    stdout, exit_code = json.dumps(run.document.get("stdout")), run.document.get("exit_code")
    measured = RunDetails(
        session_id=session.session_id,
        arm=run.arm.name,
        case=label,
        round=number,
        position=position,
        indicator=run.thing.name,
        indicator_version=run.thing.version,
        status=run.status,
        reason=run.reason,
        failed_checks=run.failed_checks,
        duration_s=run.duration_s,
        hardware_key=run.hardware.key,
        stdout_bytes=len(stdout),
        stdout_sha256=hashlib.sha256(stdout.encode()).hexdigest(),
        isolation={"network": "not isolated"},
    )
    return Result(
        stdout=run.document.get("stdout"),
        stderr=text_or_empty(run.document.get("stderr")),
        exit_code=exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None,
        script_sha256=text_or_empty(run.document.get("script_sha256")),
        usage={
            name: float(usage[name])
            for name in USAGE
            if isinstance(usage.get(name), int | float)
            and not isinstance(usage[name], bool)
            and abs(usage[name]) < 2**63
        },
        start_datetime=text_or_empty(run.document.get("start_datetime")),
        end_datetime=text_or_empty(run.document.get("end_datetime")),
        os_release=dict(get_part(run.document, "os_release")),
        runtime_environment=dict(get_part(run.document, "runtime_environment")),
        hwinfo=dict(get_part(run.document, "hwinfo")),
        workbench=measured,
    )


def compute_elapsed_s(start: Any, end: Any) -> float | None:
    """Seconds between two times; null if one is missing or they are in the wrong order."""
    began, ended = parse_time(start), parse_time(end)
    seconds = (ended - began).total_seconds() if began and ended else -1.0
    return seconds if seconds >= 0 else None


def text_or_empty(value: Any) -> str:
    """A text; empty for anything else."""
    return value if isinstance(value, str) else ""


def parse_hardware(document: Mapping[str, Any]) -> Hardware:
    """Hardware of a result, from py-cpuinfo and the runtime environment.

    >>> found = parse_hardware({"hwinfo": {"cpu_info": {"brand_raw": "Model X", "family": 6, "count": 64}}})
    >>> found.cpu_model, found.cpu_family, found.cores, found.memory_bytes
    ('Model X', 6, 64, None)
    """
    info, features = get_part(document, "hwinfo", "cpu_info"), get_part(document, "hwinfo", "cpu_features")
    machine = get_part(document, "runtime_environment", "hardware")
    flags = features.get("flags") or info.get("flags")
    return build_hardware(
        model=text_or_empty(info.get("brand_raw")).strip() or text_or_empty(info.get("brand")).strip() or UNKNOWN,
        family=_find_first_count(info.get("family"), machine.get("cpu_family")),
        number=_find_first_count(info.get("model"), machine.get("cpu_model")),
        flags=tuple(sorted({flag for flag in flags if isinstance(flag, str)}))[:MAX_FLAGS]
        if isinstance(flags, list)
        else (),
        cores=_find_first_count(info.get("count")),
    )


def build_hardware(
    *,
    model: str,
    family: int | None = None,
    number: int | None = None,
    flags: tuple[str, ...] = (),
    cores: int | None = None,
    machine: str = "",
    joined: str = "",
) -> Hardware:
    """Hardware with a key over all known facts, without memory, which is never reported.

    `machine` is the name that a tool gives to one of several machines: part of the key, and kept nowhere else.
    `joined` is the user's name for all of them, which are one then, whatever else is known.
    """
    if joined:
        model, family, number, flags, cores, machine = joined, None, None, (), None, joined
    text = json.dumps([model, family, number, flags, cores, *([machine] if machine else [])])
    return Hardware(
        key="imported-" + hashlib.sha256(text.encode()).hexdigest()[:12],
        cpu_model=model[:200],
        cpu_family=family,
        cpu_model_number=number,
        cpu_flags=flags,
        cores=cores or None,
    )


def shorten_text(text: str, most: int = 200) -> str:
    """A text on one line; a long one is cut and ends in its digest, so that different ones stay different.

    Half a pair of code units, which JSON allows and no file holds, is replaced.

    >>> len({shorten_text("x" * 300 + end) for end in "ab"})
    2
    """
    return cut_with_digest(" ".join(text.encode(errors="replace").decode().split()), most)


def get_part(document: Any, *keys: str) -> Mapping[str, Any]:
    """The object at these keys, one within the other; an empty one where there is none.

    >>> get_part({"a": {"b": {"c": 1}}}, "a", "b"), get_part({"a": 7}, "a", "b")
    ({'c': 1}, {})
    """
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def _find_first_count(*values: Any) -> int | None:
    """First of the values that is a plausible whole number."""
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
    return None
