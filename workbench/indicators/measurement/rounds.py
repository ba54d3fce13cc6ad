"""Run the rounds of a planned session; each result is on disk before the next run starts."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from workbench.core.errors import ConfigError, InputError, RunFailedError, refuse_os_errors
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement import machine_facts
from workbench.indicators.measurement.launcher_client import DIED, Launcher, build_clean_environment
from workbench.indicators.measurement.machine_facts import PREFIX
from workbench.indicators.measurement.run_messages import RunCommand, RunLimits
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_plan import (
    Slot,
    build_run_document,
    build_specification,
    count_max_rounds,
    match_cases_to_session,
    order_runs,
)
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.measurement.timed_programs import COMMAND, FOLDER, INPUT
from workbench.indicators.store import archive
from workbench.indicators.store.archive import Result, RunDetails, Session, inspection_id, result_path

GIVE_UP_AFTER = 2
"""An arm that fails a case in each of its first rounds, this many, does not run it again: it would only time out."""
MAX_WARM_UP_S = 10.0
"""Time limit of a run that only warms up."""
MAX_NOT_MADE = 3
"""After this many runs in a row that could not be made the session ends: the cause is the machine."""
Verdicts = Mapping[str, int]


@dataclass
class SessionState:
    """Progress of a session: the status of each (case, arm) by round, and the pairs that were given up."""

    baseline: str
    statuses: dict[tuple[str, str], dict[int, str]] = field(default_factory=dict)
    given_up: dict[tuple[str, str], str] = field(default_factory=dict)

    def add_run(self, case: str, arm: str, number: int, status: str) -> None:
        """Add a run. Only the first rounds decide on giving up, so that a resumed session decides the same."""
        statuses = self.statuses.setdefault((case, arm), {})
        statuses[number] = status
        first = [statuses.get(index) for index in range(GIVE_UP_AFTER)]
        if all(outcome is not None and outcome != "ok" for outcome in first):
            self.given_up[case, arm] = str(first[-1])

    def is_done(self, slot: Slot) -> bool:
        """Whether the run is done or given up, also because the baseline's was given up."""
        lost = self.given_up.keys() & {(slot.case, slot.arm), (slot.case, self.baseline)}
        return bool(lost and slot.round >= GIVE_UP_AFTER) or slot.round in self.statuses.get((slot.case, slot.arm), {})

    def has_pairs(self, session: Session) -> bool:
        """Whether an arm beside the control, and the baseline, still run a case."""
        others = [arm.name for arm in session.arms if arm.name != self.baseline and not arm.is_control]
        return not others or any(
            not self.given_up.keys() & {(case.label, arm), (case.label, self.baseline)}
            for case in session.cases
            for arm in others
        )

    def forget_run(self, slot: Slot) -> None:
        """Forget a run, so that it is made again."""
        self.statuses.get((slot.case, slot.arm), {}).pop(slot.round, None)
        if slot.round < GIVE_UP_AFTER:
            self.given_up.pop((slot.case, slot.arm), None)

    def list_notes(self) -> list[str]:
        """A note on each pair that was given up; of the runs alone, so that neither Ctrl-C nor a kill loses one."""
        return [
            f"{arm}, {case}: given up after {GIVE_UP_AFTER} runs without values (the last: {status})"
            for (case, arm), status in self.given_up.items()
        ]

    def list_rounds(self) -> set[int]:
        """The rounds with any run."""
        return {number for numbers in self.statuses.values() for number in numbers}


def is_made(measured: RunDetails) -> bool:
    """Whether the run started, and its launcher survived it."""
    return measured.status != "not started" and not (measured.reason or "").startswith(DIED)


def build_slot_path(folder: Path, session: Session, slot: Slot) -> Path:
    """Path of a run's document."""
    return result_path(folder, inspection_id(session.session_id, slot.arm, slot.case), slot.round)


def group_slots(session: Session, slots: Sequence[Slot]) -> list[list[Slot]]:
    """Group the runs that are compared: all arms of a case and round. In blocks, each run is a group."""
    if session.design == "blocks":
        return [[slot] for slot in slots]
    return [list(group) for _, group in itertools.groupby(slots, key=lambda slot: (slot.round, slot.case))]


def read_state(folder: Path, session: Session) -> SessionState:
    """Read the state from disk; unreadable documents, and runs that were not made, count as missing."""
    state = SessionState(session.baseline)
    for slot in order_runs(session):
        path = build_slot_path(folder, session, slot)
        if path.exists():
            with contextlib.suppress(InputError):
                measured = archive.read_result(path).workbench
                is_same_run = (measured.session_id, measured.position) == (session.session_id, slot.position)
                if is_same_run and is_made(measured):
                    state.add_run(slot.case, slot.arm, slot.round, measured.status)
    return state


def is_look(session: Session, rounds: int) -> bool:
    """Whether the session may end after so many rounds if it is decided.

    A sequence may end after any round from the first look on; above 40 rounds only some are looks, since each reads all
    documents.
    """
    if session.method == "looks" or len(session.looks) == 1:
        return rounds in session.looks
    is_due = rounds <= 40 or rounds % (rounds // 40 + 1) == 0 or rounds in session.looks
    return is_due and rounds >= min(session.looks)


@dataclass(frozen=True)
class Judge:
    """Callbacks that judge a session by its folder.

    `decided` says whether to stop; it is called after the rounds of `looks`. `verdicts` counts verdicts for the
    progress display, at looks and `every` so many rounds.
    """

    decided: Callable[[Path], bool] = lambda _: False
    verdicts: Callable[[Path], Verdicts] | None = None
    every: int = 5


def measure_session(
    folder: Path,
    session: Session,
    variants: Sequence[Variant],
    cases: Sequence[Case],
    *,
    config: SessionConfig | None = None,
    judge: Judge | None = None,
    watcher: SessionWatcher | None = None,
) -> Session:
    """Make all missing runs of a session, and return the session with how it ended.

    It ends when a look decides everything, after the last round, or with Ctrl-C, which lets the current run end (a
    second Ctrl-C does not). A failed run does not end it. session.json is written after each round.

    `folder`, `session`: The session's folder, whose existing runs are kept, and its plan.
    `variants`, `cases`: The interpreters of its arms, and its cases with their classes and scripts.
    `config`: Limits of a run, and the runs before the first round, which are not recorded.
    """
    config = config or SessionConfig()
    judge, watcher = judge or Judge(), watcher or SessionWatcher()
    planned_cases = match_cases_to_session(session, cases)
    by_name = {variant.arm.name: variant for variant in variants}
    _check_same_environments(session, by_name)
    # Write the specification of every arm and case that applies to it.
    for case in session.cases:
        for arm in session.arms:
            if arm.name not in case.skipped:
                inspection = inspection_id(session.session_id, arm.name, case.label)
                specification = build_specification(session, by_name[arm.name], planned_cases[case.label], inspection)
                archive.write_specification(folder, inspection, specification)
    session = session.model_copy(update={"ended_at": None, "stop_reason": None})
    archive.write_session(folder, session)
    slots, state = order_runs(session), read_state(folder, session)
    finished_groups = [group for group in group_slots(session, slots) if all(map(state.is_done, group))]
    watcher.report_start(sum(map(len, finished_groups)), len(slots))
    limits = RunLimits(processes=config.processes, network=config.network, memory_bytes=session.memory_bytes)
    _, cpus = machine_facts.assign_cores(max(map(session.count_threads, session.arms)))
    with (
        _catch_interrupt() as interrupted,
        Launcher(
            limits, [variant.interpreter for variant in variants], cpus=cpus, folders=_list_folders(variants, cases)
        ) as launcher,
    ):
        session = _add_notes(session, _build_isolation_notes(launcher.isolation), watcher)
        runner = _SessionRunner(config, folder, by_name, planned_cases, launcher, state, watcher, judge, interrupted)
        session, reason = runner.run_all_rounds(session, slots)
        session = _add_notes(session, state.list_notes(), watcher)
    ended_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    session = session.model_copy(update={"ended_at": ended_at, "stop_reason": reason})
    archive.write_session(folder, session)
    return session


@dataclass
class _SessionRunner:
    """Runs the rounds of a session."""

    config: SessionConfig
    folder: Path
    variants: Mapping[str, Variant]
    cases: Mapping[str, Case]
    launcher: Launcher
    state: SessionState
    watcher: SessionWatcher
    judge: Judge
    interrupted: threading.Event
    not_made: int = 0

    def run_all_rounds(self, session: Session, slots: Sequence[Slot]) -> tuple[Session, str]:
        """Make the missing runs; return the session, and why it ended."""
        if session.method == "sequence":
            self._warm_up(session, slots)
        for number, of_round in _group_by_round(session, slots):
            is_new = not all(map(self.state.is_done, of_round))
            session, stopped = self._run_round(session, number, of_round)
            if stopped:
                return session, "interrupted"
            # If later rounds exist, this look was taken before; repeating it would add an unplanned look.
            look = is_look(session, number + 1) and not any(later > number for later in self.state.list_rounds())
            if is_new:
                count = self.judge.verdicts if look or (number + 1) % self.judge.every == 0 else None
                verdicts = count(self.folder) if count else None
                self.watcher.report_round(number + 1, count_max_rounds(session), verdicts)
            if look and self.judge.decided(self.folder):
                return session, "decided" if self.state.has_pairs(session) else "given up"
        return session, "all rounds"

    def _run_round(self, session: Session, number: int, slots: Sequence[Slot]) -> tuple[Session, bool]:
        """Make the missing runs of a round; return the session, and whether it was interrupted."""
        for group in group_slots(session, slots):
            if self.interrupted.is_set() and not all(map(self.state.is_done, group)):
                return session, True
            session = self._drop_incomplete_runs(session, group)
            for slot in group:
                if self.state.is_done(slot):
                    continue
                if self.interrupted.is_set():
                    return session, True
                self._make_run(session, slot)
        session = _add_notes(session, self.state.list_notes(), self.watcher)
        session = session.model_copy(update={"rounds_done": max(session.rounds_done, number + 1)})
        archive.write_session(self.folder, session)
        return session, False

    def _drop_incomplete_runs(self, session: Session, group: Sequence[Slot]) -> Session:
        """Forget runs whose counterparts are missing: counterparts made now would be hours apart from them."""
        missing = [slot for slot in group if not self.state.is_done(slot)]
        there = [slot for slot in group if slot.round in self.state.statuses.get((slot.case, slot.arm), {})]
        if not missing or not there:
            return session
        for slot in there:
            self.state.forget_run(slot)
            # Delete before the first is made again: after a kill, old and new runs must not form a complete group.
            build_slot_path(self.folder, session, slot).unlink(missing_ok=True)
        note = f"round {group[0].round}, {group[0].case}: runs of some variants were missing, all are made again"
        return _add_notes(session, [note], self.watcher)

    def _make_run(self, session: Session, slot: Slot) -> None:
        """Make a run and write it; raises when several in a row could not be made."""
        result = self._execute_slot(session, slot)
        measured = result.workbench
        with refuse_os_errors(
            "cannot write a result",
            self.folder,
            do="free disk space, then continue: workbench indicators run --resume, with this folder",
            error_type=RunFailedError,
        ):
            archive.write_result(
                self.folder, inspection_id(session.session_id, slot.arm, slot.case), slot.round, result
            )
        self.state.add_run(slot.case, slot.arm, slot.round, measured.status)
        self.watcher.report_run(slot.arm, slot.case, measured.status)
        self.not_made = 0 if is_made(measured) else self.not_made + 1
        if self.not_made >= MAX_NOT_MADE:
            raise RunFailedError(
                f"{MAX_NOT_MADE} runs in a row could not be made",
                where=f"{slot.arm}, {slot.case}, round {slot.round}",
                found=measured.reason,
                do="fix the cause, then continue: workbench indicators run --resume, with this folder",
            )

    def _execute_slot(self, session: Session, slot: Slot) -> Result:
        variant, case = self.variants[slot.arm], self.cases[slot.case]
        command = self._build_command(session, variant, case)
        before = machine_facts.read_pressure(cpus=session.cpus)
        ended = self.launcher.run_command(command)
        after = machine_facts.read_pressure(cpus=session.cpus)
        return build_run_document(session, slot, variant.arm, case, ended, before, after)

    def _warm_up(self, session: Session, slots: Sequence[Slot]) -> None:
        """Run each case with each interpreter that has runs to come: files are then in memory for all of them.

        Nothing is recorded. Without it, the first run of an arm reads its libraries from disk, and others do not.
        """
        pairs = dict.fromkeys((slot.case, slot.arm) for slot in slots if not self.state.is_done(slot))
        # The control of existing environments is the baseline's own interpreter.
        commands = {
            (case, self.variants[arm].interpreter, self.variants[arm].environment.get(COMMAND)): (case, arm)
            for case, arm in pairs
        }
        for case, arm in [pair for pair in commands.values() for _ in range(self.config.warmup)]:
            if self.interrupted.is_set():
                return
            command = self._build_command(session, self.variants[arm], self.cases[case])
            self.launcher.run_command(replace(command, timeout_s=min(command.timeout_s, MAX_WARM_UP_S)))

    def _build_command(self, session: Session, variant: Variant, case: Case) -> RunCommand:
        """The run of a case by a variant, with the session's limits."""
        threads = session.count_threads(variant.arm)
        return RunCommand(
            python=variant.interpreter,
            sources=case.sources,
            environment=build_clean_environment(threads, {**case.environment, **variant.environment}),
            timeout_s=session.run_timeout_s,
            cpus=session.cpus[:threads],
        )


def _check_same_environments(session: Session, variants: Mapping[str, Variant]) -> None:
    """Refuse a session with a missing variant, or of another machine."""
    if missing := [arm.name for arm in session.arms if arm.name not in variants]:
        raise ConfigError("a variant of the session is missing", found=missing, allowed=list(variants))
    if (now := machine_facts.detect_hardware().key) != session.hardware.key:
        raise ConfigError(
            "the session was started on another machine",
            found=now,
            allowed=session.hardware.key,
            do="start a new session here: machines are not compared with each other",
        )


def _list_folders(variants: Sequence[Variant], cases: Sequence[Case]) -> list[str]:
    """Folders of byte code that runs read, and the one that commands run in."""
    folders = [variant.environment[PREFIX] for variant in variants if PREFIX in variant.environment]
    folders += [case.variables[FOLDER] for case in cases if FOLDER in case.variables]
    folders += [str(Path(case.variables[INPUT]).parent) for case in cases if INPUT in case.variables]
    return list(dict.fromkeys(folders))


def _group_by_round(session: Session, slots: Sequence[Slot]) -> Iterator[tuple[int, list[Slot]]]:
    """Each round with its runs; in blocks, all runs as the last round."""
    if session.design == "blocks":
        # No round is complete before the end, so there is nothing to look at.
        yield count_max_rounds(session) - 1, list(slots)
        return
    for number in range(count_max_rounds(session)):
        yield number, [slot for slot in slots if slot.round == number]


def _build_isolation_notes(isolation: Mapping[str, str]) -> list[str]:
    """Notes on what isolation could not be had."""
    notes = []
    if isolation.get("network") != "isolated":
        notes.append(f"network: not isolated ({isolation.get('network reason', 'unknown')})")
    if isolation.get("processes") == "no limit":
        notes.append("processes: no limit could be set")
    if "user reason" in isolation:
        notes.append(f"runs are made as root ({isolation['user reason']})")
    return notes


def _add_notes(session: Session, notes: Sequence[str], watcher: SessionWatcher) -> Session:
    """The session with these notes; those that are new are reported."""
    new = [note for note in notes if note not in session.notes]
    for note in new:
        watcher.report_note(note)
    return session.model_copy(update={"notes": (*session.notes, *new)}) if new else session


@contextlib.contextmanager
def _catch_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one raises KeyboardInterrupt."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    usual = signal.getsignal(signal.SIGINT) or signal.default_int_handler

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        event.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, usual)
