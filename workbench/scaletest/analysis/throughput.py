"""Throughput: when pods and workloads passed each stage, and counts by stage over time.

The frames `schedule`, `submissions`, `pods` and `transitions` are the tables of these names; a docstring states the
columns that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.tables import FLOW

Floats = npt.NDArray[np.float64]
MAX_POINTS = 800
MADE, SCHEDULED, STARTED = "pods made", "pods scheduled", "pods started"
# Suspended jobs, gated pods: what a queue such as Kueue's holds until there is quota.
RELEASED = "workloads released"
# Owners of owners, such as a PyTorchJob, its job and that one's pods.
_MAX_OWNERS = 4
# Objects of this kind are their own pods: nobody makes them but the client.
_BARE = "Pod"
HOLDING, RESERVED = ["suspended", "gated"], ["quotareserved", "quota-reserved"]
_ADMITTED = [*RESERVED, "admitted"]
_RELEASING = ["resumed", *_ADMITTED]


@dataclass(frozen=True)
class StageWaits:
    """Times at which each pod came to a stage and left it, in pairs, client's clock, seconds; infinite for never.

    Pods of which one of the times is only an upper bound (the watch was away) are not among them, nor those that ended
    before they got there.
    """

    came_s: Floats
    left_s: Floats


@dataclass(frozen=True)
class StagePassages:
    """Times at which each pod (or workload, for `due`) passed a stage, sorted, client's clock, seconds."""

    due: Floats
    acked: Floats
    pods_accepted: Floats  # when their workload was
    created: Floats
    scheduled: Floats
    running: Floats
    ended: Floats
    end_s: float
    waits: Mapping[str, StageWaits] = field(default_factory=dict)

    def list_waits(self) -> dict[str, StageWaits]:
        """Waits by stage; where pods are not known one by one, the n-th that came is the n-th that left."""
        stages = {
            MADE: (self.pods_accepted, self.created),
            SCHEDULED: (self.created, self.scheduled),
            STARTED: (self.scheduled, self.running),
        }
        return dict(self.waits) or {name: _pair_in_order(*ends) for name, ends in stages.items()}


def _pair_in_order(before: Floats, after: Floats) -> StageWaits:
    """Pair the n-th object that came with the n-th that left, both in seconds; the last ones may not have left."""
    left_s = np.full(len(before), np.inf)
    left_s[: len(after)] = np.sort(after)[: len(before)]
    return StageWaits(np.sort(before), left_s)


def build_passages(
    schedule: pl.DataFrame, submissions: pl.DataFrame, pods: pl.DataFrame, transitions: pl.DataFrame
) -> StagePassages:
    """Collect the times at which pods and workloads passed each stage, from the run's tables.

    `schedule`: `index, name, kind, due_s, pods`.
    `submissions`: `index, status, sent_s, acked_s`.
    `pods`: `index, uid, attempt`, the times `created_s, scheduled_s, running_s, ended_s`, and for the first three
    whether the time is an upper bound (`created_gap`, ...).
    `transitions`: As `select_queue_transitions` reads them.
    """
    accepted = submissions.filter(pl.col("status").is_in(["created", "known"])).select(
        # Of one that a resumed run found, the sending is the best that is known.
        "index",
        pl.coalesce("acked_s", "sent_s").alias("at_s"),
    )
    counted = accepted.join(schedule.select("index", "pods"), on="index")
    # A pod that replaces a lost one is made and bound once more, and nothing of the plan is nearer to its end by that.
    first = pods.filter(pl.col("attempt") == 1)
    return StagePassages(
        due=_sort_times(schedule["due_s"]),
        acked=_sort_times(accepted["at_s"]),
        pods_accepted=np.sort(np.repeat(counted["at_s"].to_numpy().astype(float), counted["pods"].to_numpy())),
        created=_sort_times(first["created_s"]),
        scheduled=_sort_times(first["scheduled_s"]),
        running=_sort_times(first["running_s"]),
        ended=_sort_times(first["ended_s"]),
        end_s=find_end(schedule, submissions, transitions),
        waits=_build_stage_waits(counted, schedule, first, find_releases(schedule, transitions, pods)),
    )


def select_own_transitions(schedule: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Leave out what belongs to other tests, to earlier runs and to strangers in the same namespaces.

    A row stays if its object, or the one that it is about, belongs to a workload of the plan: by the workload's name or
    by its owners. Rows of the audit log stay, and those about nodes.

    `schedule`: `name`. `transitions`: Table TRANSITIONS.
    """
    objects = transitions.filter(~pl.col("resource").is_in(["event", "audit"]))
    own = objects.filter(pl.col("workload").is_in(schedule["name"].implode()))
    uids, names = own.select("uid").unique(), own.select(owner_name="name").unique()
    for _ in range(_MAX_OWNERS):
        owned = objects.join(uids.rename({"uid": "owner"}), on="owner", how="semi").select("uid")
        more = pl.concat([uids, owned]).unique()
        if more.height == uids.height:
            break
        uids = more
    known = uids["uid"].implode()
    binds_own = (pl.col("resource") == "bindrequest") & pl.col("owner_name").is_in(names["owner_name"].implode())
    of_nodes = (pl.col("resource").is_in(["audit", "node"])) | (pl.col("transition") == "node-lost")
    return transitions.filter(pl.col("uid").is_in(known) | pl.col("owner").is_in(known) | binds_own | of_nodes)


def find_end(schedule: pl.DataFrame, submissions: pl.DataFrame, transitions: pl.DataFrame) -> float:
    """The last time that the run's tables know, in seconds."""
    last = [
        frame[name].max() for frame, name in ((transitions, "arrival_s"), (submissions, "acked_s"), (schedule, "due_s"))
    ]
    return max((float(time_s) for time_s in last if isinstance(time_s, int | float)), default=0.0)


def _build_stage_waits(
    counted: pl.DataFrame, schedule: pl.DataFrame, pods: pl.DataFrame, releases: pl.DataFrame
) -> dict[str, StageWaits]:
    """Build the waits at each stage; held workloads are at the next stage only after their release.

    `counted`: `index, pods`, and `at_s`, the time at which the workload was accepted.
    `schedule`: `index, kind`. `pods`: first incarnations only. `releases`: As `find_releases` returns them.
    """
    free = counted.join(releases, on="index", how="left").with_columns(pl.col("held").fill_null(value=False))
    held_workloads = free.filter("held")
    ready = free.filter(~pl.col("held") | pl.col("released_s").is_finite()).with_columns(
        pl.max_horizontal("at_s", pl.col("released_s").fill_null(0.0)).alias("at_s")
    )
    pod_rows = pods.join(releases, on="index", how="left")
    # A pod of which nobody knows when it was let go tells nothing of the scheduler.
    ready_pods = pod_rows.filter(
        ~pl.col("held").fill_null(value=False) | pl.col("released_s").is_finite()
    ).with_columns(
        pl.max_horizontal("created_s", pl.col("released_s").fill_null(0.0)).alias("ready_s"),
        pl.col("created_gap").alias("ready_gap"),
    )
    waits = {
        MADE: _build_making_waits(ready, schedule, pods),
        SCHEDULED: _build_pod_waits(ready_pods, "ready", "scheduled"),
        STARTED: _build_pod_waits(pods, "scheduled", "running"),
    }
    if not held_workloads.height:
        return waits
    times = held_workloads.select(pl.col("at_s", "released_s").repeat_by("pods").explode())
    return {RELEASED: StageWaits(_fill_times(times["at_s"]), _fill_times(times["released_s"]))} | waits


def select_queue_transitions(schedule: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Transitions by which something held a workload or let it go: of its job, its pods, or its object in a queue.

    `schedule`: `index, name`.
    `transitions`: `resource, transition, uid, workload, owner`, and the columns that are returned.
    `pods`: `index, uid`.

    Returns: `index, resource, transition, arrival_s, server_s, resolution_s, gap`.
    """
    names = schedule.select("index", pl.col("name").alias("workload"))
    uids = transitions.filter(pl.col("resource").is_in(["job", "workload"]) & pl.col("workload").is_not_null()).join(
        names, on="workload", how="inner"
    )
    owners = pl.concat([uids.select("index", "uid"), pods.select("index", "uid")]).unique("uid")
    about = transitions.filter(pl.col("transition").is_in(HOLDING + _RELEASING))
    by_label = about.join(names, on="workload", how="inner")
    unlabelled = about.filter(pl.col("workload").is_null())
    by_owner = unlabelled.join(owners.rename({"uid": "owner"}), on="owner", how="inner")
    by_uid = unlabelled.join(owners, on="uid", how="inner")
    columns = ["index", "resource", "transition", "arrival_s", "server_s", "resolution_s", "gap"]
    return pl.concat([part.select(columns) for part in (by_label, by_owner, by_uid)])


def find_releases(schedule: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Which workloads did something hold, and until when?

    `schedule`, `transitions`: As for `select_queue_transitions`. `pods`: `index, uid, scheduled_s`.

    Returns: `index, held, released_s`, one row per workload that was held: its job was suspended, one of its pods
    gated, or its queue object (Kueue's Workload) admitted. `released_s` is when that object was admitted, else when
    the job was resumed; infinite for never. Of gated pods without such an object only their binding shows that they
    were let go: then it is that.
    """
    queue_rows = select_queue_transitions(schedule, transitions, pods)
    queued = (pl.col("resource") == "podgroup") & pl.col("transition").is_in(_ADMITTED)
    gated = (pl.col("transition") == "gated").any().alias("gated")
    workloads = queue_rows.group_by("index", maintain_order=True).agg(
        pl.col("arrival_s").filter(queued & (pl.col("transition") == "admitted")).min().alias("admitted_s"),
        pl.col("arrival_s").filter(queued).min().alias("reserved_s"),
        pl.col("arrival_s").filter(pl.col("transition") == "resumed").min().alias("resumed_s"),
        (pl.col("transition").is_in(HOLDING).any() | queued.any()).alias("held"),
        gated,
    )
    bound = pods.group_by("index").agg(pl.col("scheduled_s").max().alias("bound_s"))
    until = pl.coalesce("admitted_s", "reserved_s", "resumed_s", pl.when("gated").then("bound_s")).fill_null(np.inf)
    return (
        workloads.filter("held").join(bound, on="index", how="left").select("index", "held", until.alias("released_s"))
    )


def _build_making_waits(counted: pl.DataFrame, schedule: pl.DataFrame, pods: pl.DataFrame) -> StageWaits:
    """Build the waits from the acceptance of a workload to each pod that its controller makes; bare pods do not wait.

    `counted`: `index, at_s, pods`. `schedule`: `index, kind`. `pods`: `index, created_s, created_gap`.
    """
    kinds = schedule.filter(pl.col("kind") != _BARE).select("index")
    places = counted.join(kinds, on="index", how="semi").select(
        "index", "at_s", pl.int_ranges(1, pl.col("pods") + 1).alias("place")
    )
    pod_rows = (
        pods.filter(pl.col("created_s").is_not_null())
        .sort("index", "created_s")
        .select("index", "created_s", "created_gap", place=pl.int_range(1, pl.len() + 1).over("index"))
    )
    rows = places.explode("place").join(pod_rows, on=["index", "place"], how="left")
    dated_rows = rows.filter(~pl.col("created_gap").fill_null(value=False))
    return StageWaits(_fill_times(dated_rows["at_s"]), _fill_times(dated_rows["created_s"]))


def _build_pod_waits(pods: pl.DataFrame, begin: str, end: str) -> StageWaits:
    """Build waits from one time of a pod to another.

    `pods`: `ended_s`, and for each of `begin` and `end` the columns `{name}_s` and `{name}_gap`.
    """
    came_s, left_s = pl.col(f"{begin}_s"), pl.col(f"{end}_s")
    blurred = pl.col(f"{begin}_gap").fill_null(value=False) | pl.col(f"{end}_gap").fill_null(value=False)
    gone = left_s.is_null() & pl.col("ended_s").is_not_null()
    rows = pods.filter(came_s.is_not_null() & ~blurred & ~gone)
    return StageWaits(_fill_times(rows[f"{begin}_s"]), _fill_times(rows[f"{end}_s"]))


def _fill_times(values: pl.Series) -> Floats:
    """Seconds, infinite for null."""
    return values.fill_null(np.inf).to_numpy().astype(float)


def _sort_times(values: pl.Series) -> Floats:
    """Seconds in order, without nulls."""
    return np.sort(values.drop_nulls().to_numpy().astype(float))


def count_passages(times: Floats, at: Floats) -> npt.NDArray[np.int64]:
    """Count how many of `times`, which ascend, are at or before each of the moments `at`; all in seconds.

    >>> count_passages(np.array([0.0, 1.0, 1.0, 2.0]), np.array([1.0, 2.5])).tolist()
    [3, 4]
    """
    return np.searchsorted(times, at, side="right").astype(np.int64)


def build_throughput_table(passages: StagePassages) -> pl.DataFrame:
    """Build table FLOW: counts by stage on an even grid of at most 800 moments, from the start to the last event."""
    at = np.linspace(0.0, max(passages.end_s, 1e-3), min(MAX_POINTS, max(2, int(passages.end_s * 10) + 1)))
    stages = {
        "due": passages.due,
        "acked": passages.acked,
        "pods_due": passages.pods_accepted,
        "pods_created": passages.created,
        "pods_scheduled": passages.scheduled,
        "pods_running": passages.running,
        "pods_ended": passages.ended,
    }
    columns = {"at_s": at.tolist()} | {name: count_passages(times, at).tolist() for name, times in stages.items()}
    return FLOW.frame(columns)
