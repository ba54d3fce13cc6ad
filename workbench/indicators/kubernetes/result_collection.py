"""Collect pods' records into the archive: every complete run becomes a result, the others are counted.

The same logs may be collected again, and more of them later: what is in the archive stays as it is.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.core import redaction
from workbench.core.errors import InputError
from workbench.indicators.contract.indicator import USAGE, Case
from workbench.indicators.kubernetes.log_records import DONE, POD, Records, read_records
from workbench.indicators.measurement import machine_facts
from workbench.indicators.measurement.run_messages import Outcome, RunEnd
from workbench.indicators.measurement.session_plan import (
    Slot,
    build_run_document,
    count_max_rounds,
    match_cases_to_session,
    order_runs,
)
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Hardware, Pressure, Result, Session, inspection_id, result_path

NOTE = "cluster: "
"""How notes of the session begin that are written anew at each collection."""


class _FromPod(BaseModel):
    """A record of a pod; unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PodFacts(_FromPod):
    """Facts that a pod reported about the machine under it."""

    cpu_model: str
    cpu_family: int | None
    cpu_model_number: int | None
    cpu_flags: tuple[str, ...]
    cores: int
    memory_bytes: int
    accelerators: tuple[str, ...]
    machine: str
    kernel: str
    python: str
    os_release: dict[str, str]
    cpus: tuple[int, ...]
    isolation: dict[str, str]

    def build_hardware(self) -> Hardware:
        """The machine, with the key that it would have as this one."""
        return Hardware(
            key=machine_facts.compute_hardware_key(
                self.cpu_model, self.cpu_flags, self.cores, self.memory_bytes, self.accelerators
            ),
            cpu_model=self.cpu_model,
            cpu_family=self.cpu_family,
            cpu_model_number=self.cpu_model_number,
            cpu_flags=self.cpu_flags,
            cores=self.cores,
            memory_bytes=self.memory_bytes,
            accelerators=tuple(sorted(self.accelerators)),
        )


class PodRun(_FromPod):
    """Report of a pod about a run."""

    case: str
    arm: str
    outcome: Outcome
    detail: str = ""
    exit_code: int | None = None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    usage: dict[Literal[USAGE], float] = {}  # type: ignore[valid-type]
    started_at: str
    ended_at: str
    duration_s: float = 0.0
    left_behind: int = 0
    cpu_s: float | None = None
    waited_s: float | None = None
    isolation: dict[str, str]
    before: Pressure
    after: Pressure

    def to_run_end(self) -> RunEnd:
        """Convert to the same RunEnd as for a process of this machine."""
        fields = self.model_dump(exclude={"case", "arm", "before", "after", "stdout", "stderr"})
        stdout, stderr = (base64.b64decode(text, validate=True) for text in (self.stdout, self.stderr))
        return RunEnd(**fields, stdout=stdout, stderr=stderr)


@dataclass
class Collection:
    """Result of a collection.

    `new`, `present`: Runs that were written, and runs that had been in the archive before.
    `missing`: Rounds of which some runs are missing, with why, as far as it is known.
    `absent`: Rounds without any run: not made yet, their log is not given, or they failed (see `missing`).
    `damaged`, `torn`, `repeated`: Lines that are cut or not signed; runs of which a part is missing; runs of further
    pods at a round that one pod has made: they do not count.
    """

    session: Session
    new: list[tuple[Slot, str]] = field(default_factory=list)
    present: int = 0
    missing: dict[int, str] = field(default_factory=dict)
    absent: list[int] = field(default_factory=list)
    damaged: int = 0
    torn: int = 0
    repeated: int = 0

    @property
    def statuses(self) -> dict[str, int]:
        """Number of new runs by status."""
        return {
            status: sum(outcome == status for _, outcome in self.new)
            for status in sorted({outcome for _, outcome in self.new})
        }


def collect_results(
    folder: Path,
    cases: Sequence[Case],
    logs: Iterable[Iterable[bytes]],
    *,
    key: str,
    whys: Mapping[int, str] | None = None,
    products: Sequence[str] = (),
) -> Collection:
    """Bring what pods reported into a session's archive.

    `cases`: Its cases, with their classes: documents are checked against them, as those of this machine's runs are.
    `whys`: Why a round's pod failed, by round.
    `products`: Accelerators as the nodes' labels have them, for pods that see none by themselves.
    """
    session = archive.read_session(folder)
    if session.backend != "kubernetes":
        raise InputError("not a session of a cluster", where=folder, found=f"backend {session.backend}")
    planned_cases = match_cases_to_session(session, cases, error_type=InputError)
    records = read_records(logs, key)
    collection = Collection(session, damaged=records.damaged, torn=len(records.torn))
    # Read what the pods reported about themselves, by attempt.
    pods = {}
    for record_key, text in records.documents.items():
        if record_key.what == POD:
            try:
                facts = PodFacts.model_validate(text)
            except ValidationError:
                collection.damaged += 1
                continue
            labels = tuple(products) if not facts.accelerators else facts.accelerators
            pods[record_key.attempt] = facts.model_copy(update={"accelerators": labels})
    runs_by_round = _read_pod_runs(records, session, pods, collection)
    archived = _list_archive_attempts(folder, session)
    there = {position for positions in archived.values() for position in positions}
    collection.present = len(there)
    chosen = {
        number: _select_attempt(attempts, archived.get(number), collection)
        for number, attempts in runs_by_round.items()
    }
    # A pod whose runs do not count says nothing of the session's machine.
    pods = {attempt: pods[attempt] for attempt in chosen.values() if attempt is not None}
    session = _set_machine(session, pods)
    for slot in order_runs(session):
        attempt = chosen.get(slot.round)
        run = runs_by_round[slot.round][attempt].get(slot.position) if attempt is not None else None
        if attempt is not None and run is not None and slot.position not in there:
            result = _build_result(session, slot, planned_cases[slot.case], run, attempt, pods[attempt])
            archive.write_result(folder, inspection_id(session.session_id, slot.arm, slot.case), slot.round, result)
            collection.new.append((slot, result.workbench.status))
            there.add(slot.position)
    session = session.model_copy(
        update={"rounds_done": _count_missing_rounds(session, there, records, whys or {}, collection)}
    )
    collection.session = session.model_copy(update={"notes": _build_notes(session, pods, records, collection)})
    archive.write_session(folder, collection.session)
    return collection


def _read_pod_runs(
    records: Records, session: Session, pods: Mapping[str, PodFacts], collection: Collection
) -> dict[int, dict[str, dict[int, PodRun]]]:
    """Read what was reported of each round: runs by position, for each attempt at it."""
    slots = {slot.position: slot for slot in order_runs(session)}
    runs: dict[int, dict[str, dict[int, PodRun]]] = {}
    for record_key, text in sorted(records.documents.items()):
        if record_key.what in (POD, DONE):
            continue
        slot = slots.get(int(record_key.what))
        try:
            run = PodRun.model_validate(text)
            run.to_run_end()
        except (ValidationError, binascii.Error):
            collection.damaged += 1
            continue
        planned = None if slot is None else (slot.round, slot.case, slot.arm)
        if record_key.attempt not in pods or planned != (record_key.round, run.case, run.arm):
            # Signed, but of a pod that did not say what it is, or of another plan.
            collection.damaged += 1
            continue
        runs.setdefault(record_key.round, {}).setdefault(record_key.attempt, {})[int(record_key.what)] = run
    return runs


def _select_attempt(
    attempts: Mapping[str, Mapping[int, PodRun]], archive_attempts: Mapping[int, str] | None, collection: Collection
) -> str | None:
    """The attempt at a round whose runs count; null for none. Runs of two pods must never become a pair.

    The attempt that is in the archive counts; else the most complete one, and of equals the one that began first. Runs
    of the others are counted as repeated.
    """
    if archive_attempts:
        wanted = next((attempt for attempt in attempts if attempt in archive_attempts.values()), None)
    else:
        wanted = min(
            attempts,
            key=lambda candidate: (
                -len(attempts[candidate]),
                min(run.started_at for run in attempts[candidate].values()),
            ),
        )
    collection.repeated += sum(len(runs) for attempt, runs in attempts.items() if attempt != wanted)
    return wanted


def _list_archive_attempts(folder: Path, session: Session) -> dict[int, dict[int, str]]:
    """List what is in the archive: for each round, positions and the attempt that made them (empty: not reported)."""
    there: dict[int, dict[int, str]] = {}
    for slot in order_runs(session):
        path = result_path(folder, inspection_id(session.session_id, slot.arm, slot.case), slot.round)
        with contextlib.suppress(InputError):
            measured = archive.read_result(path).workbench
            if (measured.session_id, measured.position) == (session.session_id, slot.position):
                there.setdefault(slot.round, {})[slot.position] = measured.isolation.get(POD, "")
    return there


def _build_result(session: Session, slot: Slot, case: Case, run: PodRun, attempt: str, facts: PodFacts) -> Result:
    """The document of a pod's run, with the pod's system in place of this one's, and the attempt that made it."""
    here = session.model_copy(update={"hardware": facts.build_hardware(), "cpus": facts.cpus})
    result = build_run_document(here, slot, session.get_arm(slot.arm), case, run.to_run_end(), run.before, run.after)
    hardware = {"cpu_family": facts.cpu_family, "cpu_model": facts.cpu_model_number}
    system = {"name": facts.os_release.get("id"), "version": facts.os_release.get("version_id")}
    environment = {
        "cuda_version": None,
        "hardware": hardware,
        "operating_system": system,
        "python_version": facts.python,
    }
    hwinfo: dict[str, Any] = machine_facts.build_hwinfo(facts.build_hardware())
    hwinfo = {
        **hwinfo,
        "cpu_info": {**hwinfo["cpu_info"], "arch": facts.machine},
        "platform": {"machine": facts.machine},
    }
    # The reason may quote what was printed.
    changes = {
        "reason": redaction.redact_value(result.workbench.reason),
        "isolation": {**result.workbench.isolation, POD: attempt},
    }
    measured = result.workbench.model_copy(update=changes)
    update = {
        "os_release": dict(facts.os_release),
        "runtime_environment": environment,
        "hwinfo": hwinfo,
        "workbench": measured,
    }
    return result.model_copy(update=update)


def _count_missing_rounds(
    session: Session, there: set[int], records: Records, whys: Mapping[int, str], collection: Collection
) -> int:
    """Note in the collection which rounds lack runs, and why; return the number of rounds up to the last one with runs.

    `there` are the positions of the runs in the archive.
    """
    slots = order_runs(session)
    runs = sum(slot.round == 0 for slot in slots)
    heard = {record_key.round for record_key in (*records.documents, *records.begun, *records.torn)} | whys.keys()
    heard |= {slot.round for slot in slots if slot.position in there}
    begun = {(record_key.round, record_key.what) for record_key in records.begun}
    for number in range(count_max_rounds(session)):
        lacking = [slot for slot in slots if slot.round == number and slot.position not in there]
        if len(lacking) == runs:
            collection.absent.append(number)
        if lacking and number in heard:
            reasons = [f"{len(lacking)} of {runs} runs are not there", *([whys[number]] if number in whys else [])]
            at = next((slot for slot in lacking if (number, str(slot.position)) in begun), None)
            if at is not None:
                reasons.append(f"{at.arm}, {at.case} was begun")
            collection.missing[number] = "; ".join(reasons)
    return max((slot.round + 1 for slot in slots if slot.position in there), default=0)


def _set_machine(session: Session, pods: Mapping[str, PodFacts]) -> Session:
    """The session with the machine of the first pod that reported one."""
    if not pods or session.hardware.key:
        return session
    facts = next(iter(pods.values()))
    arms = [arm.model_copy(update={"python": facts.python}) for arm in session.arms]
    host = {
        **session.host,
        "cpu_model": facts.cpu_model,
        "cores": facts.cores,
        "memory_bytes": facts.memory_bytes,
        "kernel": facts.kernel,
        "machine": facts.machine,
        "os_release": dict(facts.os_release),
        "accelerators": list(facts.accelerators),
    }
    changed = {"hardware": facts.build_hardware(), "cpus": facts.cpus, "arms": tuple(arms), "host": host}
    return session.model_copy(update=changed)


def _build_notes(
    session: Session, pods: Mapping[str, PodFacts], records: Records, collection: Collection
) -> tuple[str, ...]:
    """Build the notes for a reader of the session: those of former collections that still hold, and new ones."""
    notes = [note for note in session.notes if not note.startswith(f"{NOTE}round ")]
    former = {note.partition(":")[2].partition(":")[0]: note for note in session.notes if note not in notes}
    heard = {record_key.round for record_key in (*records.documents, *records.begun)}
    if any(facts.build_hardware().key != session.hardware.key for facts in pods.values()):
        notes.append(f"{NOTE}more than one kind of machine: compare within a round only")
    reasons = sorted({facts.isolation.get("network reason", "") for facts in pods.values()} - {""})
    notes += [f"{NOTE}network: not isolated ({reason})" for reason in reasons]
    for number, cause in sorted(collection.missing.items()):
        # A collection that heard nothing of this round knows less than the one that did.
        new = f"{NOTE}round {number}: {cause}"
        notes.append(new if number in heard else former.get(f" round {number}", new))
    return tuple(dict.fromkeys(notes))
