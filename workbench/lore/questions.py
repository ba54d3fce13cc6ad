"""What a search for the smallest input looks for, asked of an operator over a part of its inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.lore import fingerprint, stubs
from workbench.lore.bridge import Bridge
from workbench.lore.failure import Failure, failure_of
from workbench.lore.rebuild import Rebuilt, assemble
from workbench.lore.sidecar import PartitionPrint, Sidecar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Rows of the operator's inputs, by number of the input.
Frames = Mapping[int, "DataFrame"]
# What messages say of values: quoted texts and numbers.
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.,:eE+-]*")


@dataclass(frozen=True)
class Outcome:
    """What the operator did with a part of its inputs: rows, or an error."""

    rows: PartitionPrint | None
    failure: Failure | None = None

    @property
    def kind(self) -> str:
        """The error's class; empty for rows."""
        return "" if self.failure is None else self.failure.error_class

    def differs(self, other: Outcome) -> bool:
        """Other rows, or another error?"""
        one, two = ((it.failure.error_class, it.failure.message) if it.failure else it.rows for it in (self, other))
        return one != two

    def __str__(self) -> str:
        if self.failure is not None:
            return f"{self.failure.error_class}: {self.failure.message}"
        return f"{self.rows.n_rows} rows" if self.rows is not None else "nothing"


class Side:
    """The operator under one set of settings, loaded once and put over other rows for every step."""

    def __init__(self, found: Bridge, sidecar: Sidecar, plan: bytes, engine: str) -> None:
        self.bridge, self.engine = found, engine
        self._counts = [entry.n_partitions for entry in sidecar.inputs]
        found.activate()
        self._operator = found.deserialize(plan)
        stubs.at_home(self._operator, found)

    def over(self, frames: Frames) -> Rebuilt:
        """The operator over these rows, new enough that no broadcast or shuffle of an earlier step is used again."""

        def source(index: int) -> tuple[Any, int]:
            return self.bridge.rows(frames[index]), self._counts[index]

        return assemble(self._operator, source, self.bridge, engine=self.engine != "spark")

    def output(self, frames: Frames) -> DataFrame:
        """What it gives, columns c0, c1 …"""
        over = self.over(frames)
        return fingerprint.numbered(self.bridge.quiet(), over.rdd(), over.attributes)

    def outcome(self, frames: Frames) -> Outcome:
        """Run it."""
        try:
            return Outcome(fingerprint.total(fingerprint.of(self.output(frames))))
        except Exception as error:  # noqa: BLE001 - what it dies of is what is looked for
            return Outcome(None, failure_of(error))


@dataclass(frozen=True)
class Question:
    """Is what is looked for still there?

    Attributes
    ----------
    looked_for
        In words.
    holds
        Asked of frames by input.
    notes
        What to know of how it is asked.
    """

    looked_for: str
    holds: Callable[[Frames], bool]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotReproduced:
    """Why there is nothing to search for."""

    looked_for: str
    reason: str


def same_error(side: Side, sidecar: Sidecar, frames: Frames) -> Question | NotReproduced:
    """The error that the dump expects; of a dump that expects none the one that comes up here.

    Class and message must be those of the original. Where the whole gives the class but a message that differs in
    values only (of several bad rows another came first), messages are compared without numbers and quoted texts.
    """
    wanted, found = sidecar.output.error, side.outcome(frames).failure
    if wanted is None:
        if found is None:
            reason = "the operator does not fail, here as in the original; to compare two sides: --a, --b or --engine"
            return NotReproduced("an error", reason)
        note = "the original did not fail: what is looked for is the error that comes up here"
        return _error_question(side, found.error_class, found.message, notes=(note,))
    looked_for = f"{wanted.error_class}: {wanted.message}"
    if found is None:
        return NotReproduced(looked_for, "the operator does not fail here")
    if found.error_class == wanted.error_class:
        if found.message == wanted.message:
            return _error_question(side, wanted.error_class, wanted.message)
        if without_values(found.message) == without_values(wanted.message):
            note = "of several bad rows another came first: messages are compared without numbers and quoted texts"
            return _error_question(side, wanted.error_class, wanted.message, spelled=without_values, notes=(note,))
    return NotReproduced(looked_for, f"the operator fails in another way here: {found}")


def without_values(message: str) -> str:
    """A message without numbers and quoted texts, which name the values of the row that failed.

    Examples
    --------
    >>> without_values("The value '12a' of the type \\"STRING\\" cannot be cast, line 7")
    'The value ? of the type ? cannot be cast, line ?'
    """
    return _VALUES.sub("?", message)


def _error_question(
    side: Side, error_class: str, message: str, *, spelled: Callable[[str], str] = str, notes: tuple[str, ...] = ()
) -> Question:
    wanted = (error_class, spelled(message))

    def holds(frames: Frames) -> bool:
        failure = side.outcome(frames).failure
        return failure is not None and (failure.error_class, spelled(failure.message)) == wanted

    return Question(f"{error_class}: {message}", holds, notes)


def different_outputs(a: Side, b: Side, frames: Frames) -> Question | NotReproduced:
    """Another output on side B than on side A; the way in which they differ (rows, or an error of this class) stays."""
    first, second = a.outcome(frames), b.outcome(frames)
    looked_for = "different outputs of A and B"
    if not first.differs(second):
        return NotReproduced(looked_for, f"both sides give the same: {first}")
    kinds = (first.kind, second.kind)

    def holds(part: Frames) -> bool:
        one = a.outcome(part)
        if one.kind != kinds[0]:
            return False
        other = b.outcome(part)
        return other.kind == kinds[1] and one.differs(other)

    return Question(looked_for, holds)
