"""A session: every run of the plan, in its order, each result on disk before the next run begins.

What is on disk is what is done. So it can be killed at any time and taken up again; a run that was torn is not there.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from workbench.errors import ConfigError, RunFailedError
from workbench.indicators import archive
from workbench.indicators.archive import Result, Session, inspection_id
from workbench.indicators.contract import Case
from workbench.indicators.running import machine
from workbench.indicators.running.planning import specification
from workbench.indicators.running.process import Launcher, clean_environment
from workbench.indicators.running.progress import Silent, Watcher
from workbench.indicators.running.recording import Prepared, document
from workbench.indicators.running.schedule import Slot, most_rounds, order
from workbench.indicators.running.sides import Side
from workbench.indicators.running.state import GIVE_UP_AFTER, State, found_in, groups, path_of, was_made
from workbench.indicators.running.wire import Command, Limits

MOST_NOT_MADE = 3
"""Runs in a row that were not made before it is taken for the machine's fault, and the session ends."""

Verdicts = Mapping[str, int]


@dataclass(frozen=True)
class Judge:
    """How a session learns where it stands; both are given its folder.

    `decided` says whether more rounds could decide anything, asked after the rounds of `looks`. `verdicts` counts
    verdicts for the progress display.
    """

    decided: Callable[[Path], bool] = lambda _: False
    verdicts: Callable[[Path], Verdicts] | None = None
    every: int = 5


def measure(
    folder: Path,
    session: Session,
    sides: Sequence[Side],
    cases: Sequence[Case],
    *,
    limits: Limits | None = None,
    judge: Judge | None = None,
    watcher: Watcher | None = None,
    environment: Mapping[str, str] | None = None,
) -> Session:
    """Make all runs of a session that are not there yet; the session as it stands at the end.

    It ends when a look decides everything, after the last round, or with Ctrl-C, which lets the current run end (a
    second Ctrl-C does not). No run that fails ends it. session.json is written at the end of each round.

    Parameters
    ----------
    folder
        Its folder; taken up where it was left.
    session
        What is planned, or read back.
    sides, cases
        The interpreters of its arms, and its cases with the classes and scripts that the plan names.
    limits
        Of each run; memory as the session says.
    judge
        Asked at the looks.
    watcher
        Told how far it is.
    environment
        Variables for all runs beside the cases' own.

    Raises
    ------
    ConfigError
        It was begun on another machine, or an indicator's declaration or script has changed since.
    RunFailedError
        Runs cannot be started, at all or several in a row. Those are made again when the session is taken up.
    """
    judge, watcher = judge or Judge(), watcher or Silent()
    prepared = _prepared(session, cases, environment or {})
    by_name = {side.arm.name: side for side in sides}
    _check_same(session, by_name)
    _write_specifications(folder, session, by_name, prepared)
    session = session.model_copy(update={"ended_at": None, "stop_reason": None})
    archive.write_session(folder, session)
    slots, state = order(session), found_in(folder, session)
    watcher.started(sum(len(group) for group in groups(session, slots) if all(map(state.is_done, group))), len(slots))
    limits = replace(limits or Limits(), memory_bytes=session.memory_bytes)
    _, own = machine.cores_for(session.run_threads)
    with _interruptible() as interrupted, Launcher(limits, [side.python for side in sides], cpus=own) as launcher:
        session = _noted(session, _isolation_notes(launcher.isolation), watcher)
        at_work = _AtWork(folder, by_name, prepared, launcher, state, watcher, judge, interrupted)
        session, reason = at_work.all_rounds(session, slots)
    ended = {"ended_at": datetime.now(UTC).isoformat(timespec="milliseconds"), "stop_reason": reason}
    session = session.model_copy(update=ended)
    archive.write_session(folder, session)
    return session


@dataclass
class _AtWork:
    """What a session's rounds are run with."""

    folder: Path
    sides: Mapping[str, Side]
    prepared: Mapping[str, Prepared]
    launcher: Launcher
    state: State
    watcher: Watcher
    judge: Judge
    interrupted: threading.Event
    not_made: int = 0

    def all_rounds(self, session: Session, slots: Sequence[Slot]) -> tuple[Session, str]:
        """Run what is missing; the session after it, and why it ended."""
        for number, of_round in _by_round(session, slots):
            is_new = not all(map(self.state.is_done, of_round))
            session, stopped = self._round(session, number, of_round)
            if stopped:
                return session, "interrupted"
            # With later rounds there, this look was taken before: another one would be one more than planned.
            look = number + 1 in session.looks and not any(later > number for later in self.state.rounds())
            if is_new:
                asked = self.judge.verdicts if look or (number + 1) % self.judge.every == 0 else None
                verdicts = asked(self.folder) if asked else None
                self.watcher.round_ended(number + 1, most_rounds(session), verdicts)
            if look and self.judge.decided(self.folder):
                return session, "decided"
        return session, "all rounds"

    def _round(self, session: Session, number: int, slots: Sequence[Slot]) -> tuple[Session, bool]:
        """Run what is missing of a round; the session after it, and whether it was interrupted."""
        before = dict(self.state.given_up)
        for group in groups(session, slots):
            if self.interrupted.is_set() and not all(map(self.state.is_done, group)):
                return session, True
            session = self._whole(session, group)
            for slot in group:
                if self.state.is_done(slot):
                    continue
                if self.interrupted.is_set():
                    return session, True
                self._made(session, slot)
        lost = [
            f"{arm}, {case}: not run any more after {GIVE_UP_AFTER} runs without values (the last: {status})"
            for (case, arm), status in self.state.given_up.items()
            if (case, arm) not in before
        ]
        session = _noted(session, lost, self.watcher)
        session = session.model_copy(update={"rounds_done": max(session.rounds_done, number + 1)})
        archive.write_session(self.folder, session)
        return session, False

    def _whole(self, session: Session, group: Sequence[Slot]) -> Session:
        """Forget runs whose counterparts are missing: made now, these would lie hours apart from them."""
        missing = [slot for slot in group if not self.state.is_done(slot)]
        there = [slot for slot in group if slot.round in self.state.statuses.get((slot.case, slot.arm), {})]
        if not missing or not there:
            return session
        for slot in there:
            self.state.forget(slot)
            # Gone before the first is made again: after a kill, old and new ones must not look like a whole.
            path_of(self.folder, session, slot).unlink(missing_ok=True)
        note = f"round {group[0].round}, {group[0].case}: some sides' runs were missing; all of them are made again"
        return _noted(session, [note], self.watcher)

    def _made(self, session: Session, slot: Slot) -> None:
        """Make a run and write it; an error when several in a row could not be made."""
        result = self._run(session, slot)
        measured = result.workbench
        _write(self.folder, inspection_id(session.session_id, slot.arm, slot.case), slot.round, result)
        self.state.add(slot.case, slot.arm, slot.round, measured.status)
        self.watcher.ran(slot.arm, slot.case, measured.status)
        self.not_made = 0 if was_made(measured) else self.not_made + 1
        if self.not_made >= MOST_NOT_MADE:
            raise RunFailedError(
                f"{MOST_NOT_MADE} runs in a row could not be made",
                where=f"{slot.arm}, {slot.case}, round {slot.round}",
                found=measured.reason,
                do="mend that; then go on: workbench indicators run --resume, with this folder",
            )

    def _run(self, session: Session, slot: Slot) -> Result:
        side, prepared = self.sides[slot.arm], self.prepared[slot.case]
        command = Command(
            python=side.python,
            sources=prepared.sources,
            environment=clean_environment(session.run_threads, prepared.environment),
            timeout_s=session.run_timeout_s,
            # Of one process: more than its threads can use up in the time means that something does not end.
            cpu_s=int(session.run_timeout_s * session.run_threads) + 1,
            cpus=session.cpus,
        )
        before = machine.pressure()
        ended = self.launcher.run(command)
        return document(session, slot, side.arm, prepared, ended, before, machine.pressure())


def _write(folder: Path, inspection: str, number: int, result: Result) -> None:
    try:
        archive.write_result(folder, inspection, number, result)
    except OSError as error:
        raise RunFailedError(
            "cannot write a result",
            where=folder,
            found=error.strerror,
            do="make room; then go on: workbench indicators run --resume, with this folder",
        ) from error


def _prepared(session: Session, cases: Sequence[Case], environment: Mapping[str, str]) -> dict[str, Prepared]:
    found = {case.label: Prepared.of(case, environment) for case in cases}
    for case in session.cases:
        own = found.get(case.label)
        if own is None:
            raise ConfigError("a case of the session is not given", where=case.label, allowed=list(found))
        if own.version != case.indicator_version:
            raise ConfigError(
                "the indicator has changed since the session began",
                where=case.label,
                found=f"version {own.version}",
                allowed=case.indicator_version,
                do="begin a new session: values of two versions are not compared",
            )
    return found


def _check_same(session: Session, sides: Mapping[str, Side]) -> None:
    if missing := [arm.name for arm in session.arms if arm.name not in sides]:
        raise ConfigError("a side of the session is not given", found=missing, allowed=list(sides))
    if (now := machine.hardware().key) != session.hardware.key:
        raise ConfigError(
            "the session was begun on another machine",
            found=now,
            allowed=session.hardware.key,
            do="begin a new session here: figures of two machines are not compared",
        )


def _write_specifications(
    folder: Path, session: Session, sides: Mapping[str, Side], prepared: Mapping[str, Prepared]
) -> None:
    for case in session.cases:
        for arm in session.arms:
            if arm.name not in case.skipped:
                inspection = inspection_id(session.session_id, arm.name, case.label)
                told = specification(session, sides[arm.name], prepared[case.label], inspection)
                archive.write_specification(folder, inspection, told)


def _by_round(session: Session, slots: Sequence[Slot]) -> Iterator[tuple[int, list[Slot]]]:
    if session.design == "blocks":
        # No round is whole before the end, so there is nothing to look at.
        yield most_rounds(session) - 1, list(slots)
        return
    for number in range(most_rounds(session)):
        yield number, [slot for slot in slots if slot.round == number]


def _isolation_notes(isolation: Mapping[str, str]) -> list[str]:
    notes = []
    if isolation.get("network") != "isolated":
        notes.append(f"network: not isolated ({isolation.get('network reason', 'unknown')})")
    if isolation.get("processes") == "no limit":
        notes.append("processes: no limit could be set")
    if "user reason" in isolation:
        notes.append(f"runs are made as root ({isolation['user reason']})")
    return notes


def _noted(session: Session, notes: Sequence[str], watcher: Watcher) -> Session:
    new = [note for note in notes if note not in session.notes]
    for note in new:
        watcher.noted(note)
    return session.model_copy(update={"notes": (*session.notes, *new)}) if new else session


@contextlib.contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one is an exception as usual."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    usual = signal.getsignal(signal.SIGINT) or signal.default_int_handler

    def told(number: int, frame: FrameType | None) -> None:
        del number, frame
        event.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, told)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, usual)
