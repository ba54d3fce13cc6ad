"""Live health of a run: pod counts from the observations, and the sampler's reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import msgspec

from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import LineTail
from workbench.scaletest.submission import AbortLimits, ClusterHealth

_PLACED = frozenset({"scheduled", "bound", "running", "ready"})
_ENDED = frozenset({"succeeded", "failed", "deleted", "evicted"})
_JOB_ENDED = frozenset({"complete", "failed", "deleted"})


HEALTH_EVERY_S = 0.5


class _Line(msgspec.Struct):
    type: str
    resource: str = ""
    transition: str = ""
    uid: str = ""
    workload: str | None = None
    reason: str | None = None
    arrival_ns: int = 0


class PodFollower:
    """Counts of the run's pods; `update` reads new observations.

    `changed_ns`: When something was last seen to change, by our clock; the begin without one.
    `since_ns`: Objects first seen before this time are not the run's own; for resumed runs.
    """

    def __init__(self, folder: Path) -> None:
        self._tail = LineTail(folder / run_records.OBSERVED, _Line)
        self._seen: set[str] = set()
        self._placed: set[str] = set()
        self._running: set[str] = set()
        self._ended: set[str] = set()
        self._older: set[str] = set()
        self._jobs: dict[str, bool] = {}  # by their workload's name: has it ended?
        self.changed_ns = now_ns()
        self.since_ns = 0

    def skip_existing(self) -> None:
        """Ignore the objects observed so far, which existed before the run."""
        while lines := list(self._tail.read_new()):
            self._older.update(line.uid for line in lines if line.uid)

    def update(self) -> None:
        """Read what is new."""
        changed = False
        for line in self._tail.read_new():
            if line.type != "seen" or self._is_older(line):
                continue
            # A repeated reason for waiting is no change.
            changed = changed or line.transition not in ("unschedulable", "event")
            if line.resource == "pod":
                self._apply_line(line)
            elif line.resource == "job" and line.workload is not None:
                self._jobs[line.workload] = self._jobs.get(line.workload, False) or line.transition in _JOB_ENDED
        if changed:
            self.changed_ns = now_ns()

    @property
    def seen(self) -> int:
        """Number of pods observed so far."""
        return len(self._seen)

    @property
    def pending(self) -> int:
        """Number of pending pods."""
        return len(self._seen - self._placed - self._ended)

    @property
    def running(self) -> int:
        """Pods that run now."""
        return len(self._running - self._ended)

    @property
    def started(self) -> int:
        """Number of pods that ran, or ended without running."""
        return len(self._running | self._ended)

    @property
    def ended(self) -> int:
        """Number of ended pods: succeeded, failed or deleted."""
        return len(self._ended)

    def count_open_jobs(self, names: frozenset[str]) -> int:
        """Jobs of these names that were seen, and have not ended: a lost pod of theirs is made again."""
        return sum(not ended for name, ended in self._jobs.items() if name in names)

    @property
    def text(self) -> str:
        """The counts in a line."""
        return f"{self.pending:,} pods wait, {self.running:,} run, {self.ended:,} of {self.seen:,} ended"

    def _is_older(self, line: _Line) -> bool:
        if line.arrival_ns < self.since_ns:
            self._older.add(line.uid)
        return line.uid in self._older

    def _apply_line(self, line: _Line) -> None:
        self._seen.add(line.uid)
        if line.transition in _PLACED:
            self._placed.add(line.uid)
        if line.transition in ("running", "ready"):
            self._running.add(line.uid)
        if line.transition in _ENDED:
            self._ended.add(line.uid)


class SamplerStatus(Protocol):
    """The part of the sampler that the health check uses."""

    @property
    def is_running(self) -> bool:
        """It has not ended."""

    def lag_s(self) -> float:
        """How late it is."""

    def state(self) -> dict[str, Any]:
        """What it last said of itself."""


class HealthCheck:
    """Health of the run; polled several times per second, updated twice per second."""

    def __init__(
        self, sampler: SamplerStatus, follower: PodFollower, aborts: AbortLimits, *, others_evicted: bool = True
    ) -> None:
        self._sampler, self._follower, self._aborts = sampler, follower, aborts
        self._others_evicted = others_evicted
        self._looked_ns = 0
        self._health = ClusterHealth()

    def __call__(self) -> ClusterHealth:
        """Current health."""
        if now_ns() - self._looked_ns >= HEALTH_EVERY_S * NS_PER_S:
            self._looked_ns = now_ns()
            self._follower.update()
            state = self._sampler.state()
            # While the API server is away, the lag is undefined; this is reported as a gap.
            lag_s = None if state.get("away_s") else self._sampler.lag_s()
            self._health = ClusterHealth(self._follower.pending, self._follower.ended, lag_s, self._find_trouble(state))
        return self._health

    def _find_trouble(self, state: dict[str, Any]) -> str | None:
        if not self._sampler.is_running:
            return "the sampler ended: the cluster is not watched any more"
        # Against what the sampler found when it became ready: the first second of submission counts, too.
        lost = _read_count(state, "nodes_not_ready") - _read_count(state, "nodes_not_ready_at_start")
        if self._aborts.node_not_ready and lost > 0:
            return f"{lost} node(s) stopped being ready"
        evicted = _read_count(state, "foreign_evicted")
        if self._others_evicted and evicted > 0:
            return f"{evicted} pod(s) of others were evicted"
        waiting = _read_count(state, "foreign_pending") - _read_count(state, "foreign_pending_at_start")
        if self._aborts.foreign_pods is not None and waiting >= self._aborts.foreign_pods:
            return f"{waiting} more pods of others wait for a node than at the start"
        return None


def _read_count(state: dict[str, Any], key: str) -> int:
    return int(state.get(key) or 0)
