"""Where a session stands: what is on disk, what is done, what belongs together."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import InputError
from workbench.indicators import archive
from workbench.indicators.archive import Measured, Session, inspection_id, result_path
from workbench.indicators.running.process import DIED
from workbench.indicators.running.schedule import Slot, order

GIVE_UP_AFTER = 2
"""An arm that fails a case in each of its first so many rounds is not asked again: it would only cost time-outs."""


@dataclass
class State:
    """Where a session stands: status by round of each (case, arm), and what was noted."""

    baseline: str
    statuses: dict[tuple[str, str], dict[int, str]] = field(default_factory=dict)
    given_up: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, case: str, arm: str, number: int, status: str) -> None:
        """A run is there. Judged by the first rounds alone, so that a session taken up again judges the same."""
        mine = self.statuses.setdefault((case, arm), {})
        mine[number] = status
        first = [mine.get(one) for one in range(GIVE_UP_AFTER)]
        if all(one is not None and one != "ok" for one in first):
            self.given_up[case, arm] = str(first[-1])

    def is_done(self, slot: Slot) -> bool:
        """It is there, or not asked for any more: without a baseline there is nothing to compare."""
        lost = self.given_up.keys() & {(slot.case, slot.arm), (slot.case, self.baseline)}
        return bool(lost and slot.round >= GIVE_UP_AFTER) or slot.round in self.statuses.get((slot.case, slot.arm), {})

    def forget(self, slot: Slot) -> None:
        """A run is to be made again."""
        self.statuses.get((slot.case, slot.arm), {}).pop(slot.round, None)
        if slot.round < GIVE_UP_AFTER:
            self.given_up.pop((slot.case, slot.arm), None)

    def rounds(self) -> set[int]:
        """The rounds of which anything is there."""
        return {number for numbers in self.statuses.values() for number in numbers}


def was_made(measured: Measured) -> bool:
    """Did the run begin at all, and did what watches over it live on?"""
    return measured.status != "not started" and not (measured.reason or "").startswith(DIED)


def path_of(folder: Path, session: Session, slot: Slot) -> Path:
    """Where a run's document lies."""
    return result_path(folder, inspection_id(session.session_id, slot.arm, slot.case), slot.round)


def groups(session: Session, slots: Sequence[Slot]) -> list[list[Slot]]:
    """Runs that belong together, for they are compared: all arms of a case and round. In blocks, each is on its own."""
    if session.design == "blocks":
        return [[slot] for slot in slots]
    return [list(group) for _, group in itertools.groupby(slots, key=lambda one: (one.round, one.case))]


def found_in(folder: Path, session: Session) -> State:
    """What is on disk. A document that cannot be read, or of a run that was not made, is one that is not there."""
    state = State(session.baseline)
    for slot in order(session):
        path = path_of(folder, session, slot)
        if path.exists():
            with contextlib.suppress(InputError):
                measured = archive.read_result(path).workbench
                own = (measured.session_id, measured.position) == (session.session_id, slot.position)
                if own and was_made(measured):
                    state.add(slot.case, slot.arm, slot.round, measured.status)
    return state
