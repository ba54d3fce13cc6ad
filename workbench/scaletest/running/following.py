"""How far the pods of a run are, as the sampler writes it down while submission goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec

from workbench.scaletest import records
from workbench.scaletest.running.tailing import Tail
from workbench.scaletest.times import now_ns

_PLACED = frozenset({"scheduled", "bound", "running", "ready"})
_ENDED = frozenset({"succeeded", "failed", "deleted", "evicted"})


class _Line(msgspec.Struct):
    type: str
    resource: str = ""
    transition: str = ""
    uid: str = ""
    reason: str | None = None
    arrival_ns: int = 0


class Follower:
    """Counts of the run's pods; `look` brings them up to date.

    Attributes
    ----------
    changed_ns
        When something was last seen to change, by our clock; the begin without one.
    since_ns
        What was first seen before then is none of the run's own; for one that is gone on with.
    """

    def __init__(self, folder: Path) -> None:
        self._tail = Tail(folder / records.OBSERVED, _Line)
        self._seen: set[str] = set()
        self._placed: set[str] = set()
        self._running: set[str] = set()
        self._ended: set[str] = set()
        self._older: set[str] = set()
        self.changed_ns = now_ns()
        self.since_ns = 0

    def pass_over(self) -> None:
        """What is written by now was there before the run: it is none of its own, whatever becomes of it."""
        while lines := list(self._tail.new()):
            self._older.update(one.uid for one in lines if one.uid)

    def look(self) -> None:
        """Read what is new."""
        changed = False
        for one in self._tail.new():
            if one.type != "seen" or self._is_older(one):
                continue
            # An object that says again why it waits is no change.
            changed = changed or one.transition not in ("unschedulable", "event")
            if one.resource == "pod":
                self._take(one)
        if changed:
            self.changed_ns = now_ns()

    @property
    def seen(self) -> int:
        """Pods that there ever were."""
        return len(self._seen)

    @property
    def pending(self) -> int:
        """Pods without a node that still want one."""
        return len(self._seen - self._placed - self._ended)

    @property
    def running(self) -> int:
        """Pods that run now."""
        return len(self._running - self._ended)

    @property
    def started(self) -> int:
        """Pods that ever ran, or ended without."""
        return len(self._running | self._ended)

    @property
    def ended(self) -> int:
        """Pods that are over: done, failed, deleted."""
        return len(self._ended)

    @property
    def text(self) -> str:
        """The counts in a line."""
        return f"{self.pending:,} pods wait, {self.running:,} run, {self.ended:,} of {self.seen:,} ended"

    def _is_older(self, one: _Line) -> bool:
        if one.arrival_ns < self.since_ns:
            self._older.add(one.uid)
        return one.uid in self._older

    def _take(self, one: _Line) -> None:
        self._seen.add(one.uid)
        if one.transition in _PLACED:
            self._placed.add(one.uid)
        if one.transition in ("running", "ready"):
            self._running.add(one.uid)
        if one.transition in _ENDED:
            self._ended.add(one.uid)
