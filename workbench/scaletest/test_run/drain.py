"""Drain: wait after the last submission until pods are done or nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.scaletest.cluster_api.clock import NS_PER_S, now_ns
from workbench.scaletest.scenario.arrival_processes import Trace
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.submission import ClusterHealth, StopRequest
from workbench.scaletest.submission.abort_criteria import find_health_problem
from workbench.scaletest.test_run.health_check import PodFollower

if TYPE_CHECKING:
    import polars as pl

CHECK_EVERY_S = 0.2
# Events and last transitions that come behind the pods.
AFTER_S = 2.0
# A pod that has not ended this long after its lifetime does not end by itself.
OVERTIME_S = 5.0
ABORTED = "aborted: "
WALL_CLOCK = "wall clock"
NOTHING_CHANGED = "nothing changed for "


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
    """What was not there yet when draining ended, null for nothing; that pods wait for a node is a finding."""
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
    tell: Callable[[], None],
    watch_lag_s: float | None = None,
) -> str:
    """Wait, and say why it was enough.

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
        tell()
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
        quiet_s = _settle_time_s(follower, expected, settle_s)
        if now_ns() - follower.changed_ns > quiet_s * NS_PER_S:
            return f"{NOTHING_CHANGED}{quiet_s:g} s"
        await asyncio.sleep(CHECK_EVERY_S)


def _settle_time_s(follower: PodFollower, expected: DrainTarget, settle_s: float) -> float:
    # Also a Job's later pods, which are made when its earlier ones end.
    open_jobs = follower.count_open_jobs(expected.jobs)
    to_come = follower.pending or (follower.running and follower.started < expected.pods)
    if to_come and (follower.ended < expected.ending or open_jobs):
        return settle_s + expected.longest_s
    if not follower.pending and follower.started >= expected.pods:
        whole_s = expected.longest_s + OVERTIME_S
        # All of them ended or run, and a Job is still to end: those that run were made again.
        again = open_jobs > 0 and follower.ended >= expected.ending
        return max(settle_s, whole_s) if expected.awaits_ends or again else min(settle_s, whole_s)
    return settle_s
