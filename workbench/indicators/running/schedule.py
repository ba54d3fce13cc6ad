"""In which order a session's runs are made. Pure: the same session gives the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.indicators.archive import Session


@dataclass(frozen=True)
class Slot:
    """One run to make: `position` counts through the whole session."""

    position: int
    round: int
    case: str
    arm: str


def order(session: Session) -> list[Slot]:
    """All runs of a session in their order.

    In each round every arm runs every case once. The cases come in random order, and the arms of a case next to each
    other, in random order: what is compared lies seconds apart. Each round has random numbers of its own, from the
    session's seed. The design `blocks` runs one arm after the other, all its rounds: to show what that does, never to
    compare by.

    Arms that a case does not apply to have no runs of it.
    """
    pairs = _blocks(session) if session.design == "blocks" else _rounds(session)
    skipped = {case.label: case.skipped for case in session.cases}
    wanted = [one for one in pairs if one[2] not in skipped[one[1]]]
    return [Slot(position, *one) for position, one in enumerate(wanted)]


def most_rounds(session: Session) -> int:
    """Rounds after which a session ends, decided or not."""
    return max(session.looks)


def _rounds(session: Session) -> Iterator[tuple[int, str, str]]:
    for number in range(most_rounds(session)):
        # A text, not a sum: seeds 1 and 2 must not share rounds.
        draw = random.Random(f"{session.seed}:{number}")  # noqa: S311 - an order, no secret
        for case in draw.sample([case.label for case in session.cases], len(session.cases)):
            for arm in draw.sample([arm.name for arm in session.arms], len(session.arms)):
                yield number, case, arm


def _blocks(session: Session) -> Iterator[tuple[int, str, str]]:
    for arm in session.arms:
        for case in session.cases:
            for number in range(most_rounds(session)):
                yield number, case.label, arm.name
