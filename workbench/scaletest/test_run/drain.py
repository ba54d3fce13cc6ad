"""Drain: wait after the last submission until pods are done or nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from workbench.scaletest.cluster_api.connection import NS_PER_S, now_ns
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import Seen
from workbench.scaletest.scenario.arrival_processes import Trace
from workbench.scaletest.scenario.scenario_file import AbortCriteria, Scenario
from workbench.scaletest.submission.abort_criteria import ClusterHealth, StopRequest, find_health_problem

if TYPE_CHECKING:
    import polars as pl

_PLACED = frozenset({"scheduled", "bound", "running", "ready"})
_ENDED = frozenset({"succeeded", "failed", "deleted", "evicted"})
_JOB_ENDED = frozenset({"complete", "failed", "deleted"})
HEALTH_EVERY_S = 0.5
CHECK_EVERY_S = 0.2
# Events and last transitions that come behind the pods.
AFTER_S = 2.0
# A pod that has not ended this long after its lifetime does not end by itself.
OVERTIME_S = 5.0
ABORTED = "aborted: "
WALL_CLOCK = "wall clock"
NOTHING_CHANGED = "nothing changed for "


class PodFollower:
    """Counts of the run's pods; `update` reads new observations.

    `changed_ns`: When something was last seen to change, by our clock; the begin without one.
    `since_ns`: Objects first seen before this time are not the run's own; for resumed runs.
    """

    def __init__(self, folder: Path) -> None:
        self._tail = run_records.follow_lines(folder / run_records.OBSERVED, run_records.ObservedLine)
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
            self._older.update(line.uid for line in lines if isinstance(line, Seen))

    def update(self) -> None:
        """Read new observations."""
        changed = False
        for line in self._tail.read_new():
            if not isinstance(line, Seen) or self._is_older(line):
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
        """Number of running pods."""
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
        """The counts as one line."""
        return f"{self.pending:,} pods wait, {self.running:,} run, {self.ended:,} of {self.seen:,} ended"

    def _is_older(self, line: Seen) -> bool:
        if line.arrival_ns < self.since_ns:
            self._older.add(line.uid)
        return line.uid in self._older

    def _apply_line(self, line: Seen) -> None:
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
        """Whether the process runs."""

    def lag_s(self) -> float:
        """Watch lag in seconds."""

    def state(self) -> dict[str, Any]:
        """Last reported state."""


class HealthCheck:
    """Health of the run; polled several times per second, updated twice per second."""

    def __init__(self, sampler: SamplerStatus, follower: PodFollower, aborts: AbortCriteria) -> None:
        self._sampler, self._follower, self._aborts = sampler, follower, aborts
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
        """Reason to abort the run, by the sampler's latest state; null if all is well."""
        if not self._sampler.is_running:
            return "the sampler ended: the cluster is no longer watched"
        # Against what the sampler found when it became ready: the first second of submission counts, too.
        lost = _read_count(state, "nodes_not_ready") - _read_count(state, "nodes_not_ready_at_start")
        if self._aborts.node_not_ready and lost > 0:
            return f"{lost} node(s) stopped being ready"
        evicted = _read_count(state, "foreign_evicted")
        if self._aborts.others_evicted and evicted > 0:
            return f"{evicted} pod(s) of others were evicted"
        waiting = _read_count(state, "foreign_pending") - _read_count(state, "foreign_pending_at_start")
        if self._aborts.others_pending_growth is not None and waiting >= self._aborts.others_pending_growth:
            return f"{waiting} more pods of others wait for a node than at the start"
        return None


def _read_count(state: dict[str, Any], key: str) -> int:
    return int(state.get(key) or 0)


@dataclass(frozen=True, slots=True)
class DrainTarget:
    """Pods that the accepted workloads will have.

    `kept`: Pods that must appear: not those of workloads with a planned deletion, and not those of templates, of
    which the scenario only says how many they make.
    `awaits_ends`: The test is of what the pods hold until they end, as in a replayed trace, and not of their start
    alone.
    """

    pods: int
    ending: int
    longest_s: float
    kept: int = 0
    awaits_ends: bool = False
    jobs: frozenset[str] = frozenset()


def build_drain_target(accepted: pl.DataFrame, scenario: Scenario) -> DrainTarget:
    """Expected pods of rows of table SCHEDULE. Later pods of a Job only appear if its first ones end."""
    import polars as pl

    at_once = {entry.display_name(at): entry.pods_at_once for at, entry in enumerate(scenario.workloads)}
    first = pl.col("entry").replace_strict(at_once, return_dtype=pl.Int64)
    rows = accepted.with_columns(pods=pl.when(pl.col("lifetime_s").is_null()).then(first).otherwise("pods"))
    ends = rows.filter(pl.col("lifetime_s").is_not_null() | pl.col("delete_after_s").is_not_null())
    longest = ends.select(pl.min_horizontal("lifetime_s", "delete_after_s").max()).item()
    stated = [entry.display_name(at) for at, entry in enumerate(scenario.workloads) if entry.kind == "Template"]
    lasting_rows = rows.filter(pl.col("delete_after_s").is_null() & ~pl.col("entry").is_in(stated))
    replayed = isinstance(scenario.arrival, Trace) and scenario.arrival.lifetimes_s is not None
    pods, ending, n_lasting = (int(frame["pods"].sum()) for frame in (rows, ends, lasting_rows))
    is_ending_job = (pl.col("kind") == "Job") & pl.col("lifetime_s").is_not_null() & pl.col("delete_after_s").is_null()
    jobs = frozenset(accepted.filter(is_ending_job)["name"])
    return DrainTarget(pods, ending, float(longest or 0.0), n_lasting, awaits_ends=replayed, jobs=jobs)


def describe_outstanding(follower: PodFollower, expected: DrainTarget, drained: str) -> str | None:
    """Describe pods that did not exist when draining ended; None without any. Waiting for a node is a finding."""
    n_missing = expected.kept - follower.seen
    if n_missing <= 0 or not drained.startswith((WALL_CLOCK, NOTHING_CHANGED)):
        return None
    return f"{n_missing:,} of {expected.kept:,} pods were not made yet"


async def wait_for_drain(
    follower: PodFollower,
    expected: DrainTarget,
    *,
    settle_s: float,
    until_ns: int | None,
    asked: StopRequest,
    health: Callable[[], ClusterHealth],
    watch_lag_s: float | None = None,
) -> str:
    """Wait until draining is done, and return the reason.

    Done is: every pod that ends has ended, with every Job of such pods, and every other one runs. Otherwise it ends
    when nothing has changed for `settle_s`: longer by the longest lifetime while pods wait for others to make room;
    shorter where all run, and those that should have ended by themselves have not (kwok ends pods of Jobs only), unless
    their ends are awaited.

    `watch_lag_s`: How late our own watch may be, in seconds; null for any time.

    Returns: `all are done`, `nothing changed for …`, `wall clock`, `interrupted`, or `aborted: …` with what the
    trouble is.
    """
    before = asked.times
    while True:
        cluster_health = health()
        if asked.times > before:
            return "interrupted"
        if (trouble := find_health_problem(cluster_health, watch_lag_s)) is not None:
            return f"{ABORTED}{trouble}"
        ended = follower.ended >= expected.ending and follower.started >= expected.pods
        if ended and not follower.count_open_jobs(expected.jobs):
            await asyncio.sleep(min(AFTER_S, settle_s))
            return "all are done"
        if until_ns is not None and now_ns() >= until_ns:
            return WALL_CLOCK
        # Also a Job's later pods, which are made when its earlier ones end.
        open_jobs = follower.count_open_jobs(expected.jobs)
        to_come = follower.pending or (follower.running and follower.started < expected.pods)
        if to_come and (follower.ended < expected.ending or open_jobs):
            quiet_s = settle_s + expected.longest_s
        elif not follower.pending and follower.started >= expected.pods:
            whole_s = expected.longest_s + OVERTIME_S
            # All of them ended or run, and a Job is still to end: those that run were made again.
            again = open_jobs > 0 and follower.ended >= expected.ending
            quiet_s = max(settle_s, whole_s) if expected.awaits_ends or again else min(settle_s, whole_s)
        else:
            quiet_s = settle_s
        if now_ns() - follower.changed_ns > quiet_s * NS_PER_S:
            return f"{NOTHING_CHANGED}{quiet_s:g} s"
        await asyncio.sleep(CHECK_EVERY_S)
