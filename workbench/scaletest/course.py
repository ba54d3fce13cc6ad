"""The course of a test while it runs, from its run folder's files: whoever can read them can follow, from anywhere."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl

from workbench import runs
from workbench.errors import InputError
from workbench.scaletest import records
from workbench.scaletest.running.tailing import Tail
from workbench.scaletest.tables import SCHEDULE
from workbench.scaletest.times import NS, now_ns
from workbench.tables import Column, Table

MOST_POINTS = 600
RECENT_S = 10.0

COURSE = Table(
    "course",
    "One row per look at a running test.",
    ("at_s",),
    (
        Column("at_s", "float", "Seconds since the start.", unit="s"),
        Column("accepted", "int", "Workloads that the server has.", unit="workloads"),
        Column("refused", "int", "Workloads that it does not want.", unit="workloads"),
        Column("made", "int", "Pods that are there.", unit="pods"),
        Column("scheduled", "int", "Pods that were bound.", unit="pods"),
        Column("running", "int", "Pods that ran.", unit="pods"),
        Column("scheduled_per_s", "float", "Over the last ten seconds.", unit="pods/s", nullable=True),
        Column("p50_s", "float", "From made to bound, of those bound in the last ten seconds.", "s", nullable=True),
        Column("p95_s", "float", "The same.", unit="s", nullable=True),
    ),
)


class _Journal(msgspec.Struct):
    type: str
    origin_ns: int = 0
    reason: str = ""


class _Seen(msgspec.Struct):
    type: str
    resource: str = ""
    transition: str = ""
    uid: str = ""
    arrival_ns: int = 0


class Course:
    """What the files of a run say so far; `look` reads what is new.

    Attributes
    ----------
    planned
        Workloads of the plan.
    stopped
        How submission ended; null while it goes on.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._journal = Tail(self.folder / records.JOURNAL, _Journal)
        self._observed = Tail(self.folder / records.OBSERVED, _Seen)
        self._origin_ns: int | None = None
        self._counts = dict.fromkeys(("acked", "failed"), 0)
        self._made: dict[str, int] = {}
        self._bound: dict[str, int] = {}
        self._running: set[str] = set()
        self._rows: list[dict[str, float | int | None]] = []
        self.stopped: str | None = None
        self.planned = self._schedule_height()

    def _schedule_height(self) -> int:
        try:
            return SCHEDULE.read(self.folder / "tables").height
        except InputError:
            return 0

    @property
    def ended(self) -> bool:
        """The run is over, or its folder gone."""
        try:
            return runs.load(self.folder).status != "running"
        except InputError:
            return not self.folder.is_dir()

    @property
    def table(self) -> pl.DataFrame:
        """Table COURSE, at most 600 rows: of a long run every second, third, … look."""
        step = -(-len(self._rows) // MOST_POINTS) or 1
        return COURSE.frame(self._rows[::-1][::step][::-1])

    def look(self) -> pl.DataFrame:
        """Read what is new, add a row, and give the table."""
        for one in self._journal.new():
            self._take_journal(one)
        for seen in self._observed.new():
            self._take_seen(seen)
        if self._origin_ns is not None:
            self._rows.append(self._row(now_ns()))
        return self.table

    def _take_journal(self, one: _Journal) -> None:
        if one.type == "begun" and self._origin_ns is None:
            self._origin_ns = one.origin_ns
        elif one.type == "begun":
            self.stopped = None  # gone on with
        elif one.type == "stopped":
            self.stopped = one.reason
        elif one.type in self._counts:
            self._counts[one.type] += 1

    def _take_seen(self, one: _Seen) -> None:
        if one.resource != "pod":
            return
        if one.transition == "created":
            self._made.setdefault(one.uid, one.arrival_ns)
        elif one.transition == "scheduled":
            self._bound.setdefault(one.uid, one.arrival_ns)
        elif one.transition == "running":
            self._running.add(one.uid)

    def _row(self, at_ns: int) -> dict[str, float | int | None]:
        assert self._origin_ns is not None
        at_s = (at_ns - self._origin_ns) / NS
        begin = at_ns - int(RECENT_S * NS)
        recent = [uid for uid, when in self._bound.items() if when >= begin]
        waits = sorted((self._bound[uid] - self._made[uid]) / NS for uid in recent if uid in self._made)
        return {
            "at_s": at_s,
            "accepted": self._counts["acked"],
            "refused": self._counts["failed"],
            "made": len(self._made),
            "scheduled": len(self._bound),
            "running": len(self._running),
            "scheduled_per_s": len(recent) / min(RECENT_S, at_s) if at_s > 1 else None,
            "p50_s": waits[len(waits) // 2] if waits else None,
            "p95_s": waits[min(len(waits) - 1, int(0.95 * len(waits)))] if waits else None,
        }
