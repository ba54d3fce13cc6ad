"""Milestones of workloads and pods: what each reached, and when, by the client's and the cluster's clock.

Of everything the first time counts, by incarnation (uid). A gang of n pods has all of them created (or scheduled, or
running) when n of them were so at a time, for the first time. Of any other workload those count, too, that are done: a
Job may run its pods one after the other. Pods that were lost (evicted, failed) count no more once they are, and those
that replace them later do not move what came before.
"""

from __future__ import annotations

import polars as pl

from workbench.scaletest.analysis.throughput import HOLDING, RESERVED, count_pods_together, select_queue_transitions
from workbench.scaletest.tables import MILESTONES, PODS

# In the order in which a workload reaches them.
MILESTONE_ORDER = (
    "due",
    "sent",
    "acked",
    "created",
    "job",
    "held",
    "quota reserved",
    "released",
    "first pod",
    "last pod",
    "podgroup",
    "decided",
    "first scheduled",
    "all scheduled",
    "first running",
    "all running",
    "evicted",
    "pvc requested",
    "pvc bound",
    "backend",
    "finished",
)
_POD_TIMES = {"created": "created", "scheduled": "scheduled", "running": "running"}
_ENDS = ("succeeded", "failed", "evicted", "deleted")
_FINER = ("event", "audit")


_SHAPE = {
    "index": pl.Int64,
    "milestone": pl.String,
    "client_s": pl.Float64,
    "server_s": pl.Float64,
    "resolution_s": pl.Float64,
    "gap": pl.Boolean,
}


def build_pod_table(schedule: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Every incarnation of the run's pods.

    Returns: Table PODS. The server's time of a binding is the finest there is: an Event's or the audit log's
    microseconds before the whole seconds of the pod's condition.
    """
    pod_rows = transitions.filter(pl.col("resource") == "pod")
    ended = pl.col("arrival_s").filter(pl.col("transition").is_in(_ENDS)).min()
    succeeded = (pl.col("transition") == "succeeded").any()
    wide = pod_rows.group_by("uid", maintain_order=True).agg(
        pl.col("name").first(),
        pl.col("workload").drop_nulls().first(),
        pl.col("owner").drop_nulls().first(),
        pl.col("node").drop_nulls().first(),
        pl.col("gap").any(),
        *(_first_value(name, "arrival_s").alias(f"{name}_s") for name in _POD_TIMES),
        *(_first_value(name, "server_s").alias(f"server_{name}_s") for name in _POD_TIMES),
        *(_first_value(name, "resolution_s").alias(f"{name}_resolution_s") for name in _POD_TIMES),
        *(_first_value(name, "gap").alias(f"{name}_gap") for name in _POD_TIMES),
        ended.alias("ended_s"),
        pl.when(~succeeded).then(ended).alias("lost_s"),
        (pl.col("transition") == "unschedulable").any().alias("unschedulable"),
        (pl.col("transition") == "evicted").any().alias("evicted"),
    )
    placed = _refine_binding_times(wide, transitions)
    named = placed.join(_workloads_by_uid(transitions), on="owner", how="left").with_columns(
        pl.coalesce("workload", "workload_of_owner").alias("workload")
    )
    plan = schedule.select("index", pl.col("name").alias("workload"), "pods", pl.col("gpus_per_pod").alias("gpus"))
    pods = named.join(plan, on="workload", how="inner").sort("index", "created_s", "name")
    rank = pl.col("uid").cum_count().over("index") - 1
    return PODS.check(pods.with_columns((rank // pl.col("pods") + 1).cast(pl.Int64).alias("attempt")))


def _first_value(transition: str, column: str) -> pl.Expr:
    return pl.col(column).filter(pl.col("transition") == transition).first()


def _refine_binding_times(wide: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Bindings with the microseconds of an Event, by uid, or of the audit log, by name, where there are any."""
    is_binding = pl.col("resource").is_in(_FINER) & pl.col("transition").is_in(["scheduled", "bound"])
    bound = transitions.filter(is_binding & pl.col("server_s").is_not_null())
    by_uid = (
        bound.filter(pl.col("owner").is_not_null())
        .group_by(pl.col("owner").alias("uid"))
        .agg(
            pl.col("server_s").sort_by("resolution_s").first().alias("event_s"),
            pl.col("resolution_s").min().alias("event_r"),
        )
    )
    # A name may come back after an eviction: only where it stands for one incarnation.
    once = wide.group_by("name").len().filter(pl.col("len") == 1).select("name")
    by_name = (
        bound.filter(pl.col("resource") == "audit", pl.col("owner_name").is_not_null())
        .group_by(pl.col("owner_name").alias("name"))
        .agg(pl.col("server_s").first().alias("audit_s"), pl.col("resolution_s").first().alias("audit_r"))
        .join(once, on="name", how="semi")
    )
    frame = wide.join(by_uid, on="uid", how="left").join(by_name, on="name", how="left")
    return frame.with_columns(
        pl.coalesce("event_s", "audit_s", "server_scheduled_s").alias("server_scheduled_s"),
        pl.coalesce("event_r", "audit_r", "scheduled_resolution_s").alias("scheduled_resolution_s"),
    )


def _workloads_by_uid(transitions: pl.DataFrame) -> pl.DataFrame:
    """uid of a job or workload -> the workload's name."""
    owners = transitions.filter(pl.col("resource").is_in(["job", "workload"]) & pl.col("workload").is_not_null())
    return owners.group_by(pl.col("uid").alias("owner")).agg(pl.col("workload").first().alias("workload_of_owner"))


def build_milestones(
    schedule: pl.DataFrame, submissions: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame
) -> pl.DataFrame:
    """Every milestone of every workload that it reached."""
    plan = schedule.select("index", "name", "pods", "kind", "gang")
    parts = [
        *_submission_milestones(submissions),
        *_object_milestones(plan, transitions, pods),
        *_queue_milestones(schedule, transitions, pods),
        *_pod_milestones(plan, pods),
        _podgroup_milestones(plan, transitions, pods),
        *_event_milestones(plan, transitions, pods),
    ]
    order = pl.Enum(MILESTONE_ORDER)
    milestones = pl.concat([part.select(*_SHAPE) for part in parts]).with_columns(pl.col("milestone").cast(order))
    timed_rows = milestones.filter(pl.col("client_s").is_not_null() | pl.col("server_s").is_not_null())
    return MILESTONES.check(timed_rows.sort("index", "milestone").with_columns(pl.col("milestone").cast(pl.String)))


def _milestone_rows(
    frame: pl.DataFrame, milestone: str, *, client: str | None, server: str | None = None
) -> pl.DataFrame:
    none = pl.lit(None, dtype=pl.Float64)
    resolution = pl.col("resolution_s") if "resolution_s" in frame.columns else none
    return frame.select(
        "index",
        pl.lit(milestone).alias("milestone"),
        (pl.col(client) if client else none).alias("client_s"),
        (pl.col(server) if server else none).alias("server_s"),
        (resolution if server else none).alias("resolution_s"),
        (pl.col("gap") if "gap" in frame.columns else pl.lit(False)).alias("gap"),
    )


def _submission_milestones(submissions: pl.DataFrame) -> list[pl.DataFrame]:
    sent = submissions.filter(pl.col("status") != "unsent")
    return [
        _milestone_rows(submissions, "due", client="due_s"),
        _milestone_rows(sent, "sent", client="sent_s"),
        _milestone_rows(sent, "acked", client="acked_s"),
    ]


def _object_milestones(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """The workload itself, its job where that is another object, and its end."""
    named = transitions.filter(pl.col("workload").is_not_null()).join(
        plan.select("index", pl.col("name").alias("workload"), "kind"), on="workload", how="inner"
    )
    creations = named.filter(pl.col("transition") == "created")
    jobs = creations.filter((pl.col("resource") == "job") & (pl.col("kind") != "Job"))
    endings = named.filter(
        pl.col("resource").is_in(["job", "workload"]) & pl.col("transition").is_in(["complete", "succeeded", "failed"])
    )
    parts = [
        ("created", _creation_milestone(creations, pods)),
        ("job", _earliest_rows(jobs)),
        ("finished", _earliest_rows(endings)),
    ]
    return [_milestone_rows(rows, name, client="arrival_s", server="server_s") for name, rows in parts]


def _creation_milestone(creations: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """When the workload itself was seen; what belongs to it stands for it only where it has no object of its own.

    Each resource has a watch of its own, and what it made may arrive a moment earlier: it was there then. That says
    nothing of one found after an absence of its watch, because its time is unknown.
    """
    rank = pl.col("resource").replace_strict({"workload": 0, "job": 1}, default=2, return_dtype=pl.Int64)
    itself = _earliest_rows(creations.filter(rank == rank.min().over("index")))
    seen = pl.concat(
        [creations.select("index", "arrival_s"), pods.select("index", pl.col("created_s").alias("arrival_s"))]
    )
    earliest = seen.group_by("index").agg(pl.col("arrival_s").min().alias("seen_s"))
    earlier = pl.when(~pl.col("gap")).then(pl.min_horizontal("arrival_s", "seen_s")).otherwise("arrival_s")
    return itself.join(earliest, on="index", how="left").with_columns(earlier.alias("arrival_s"))


def _earliest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """The earliest of each workload, by each clock."""
    return rows.group_by("index").agg(
        pl.col("arrival_s").min(),
        pl.col("gap").sort_by("arrival_s").first(),
        pl.col("resolution_s").sort_by("server_s", nulls_last=True).first(),
        pl.col("server_s").min(),
    )


def _queue_milestones(schedule: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """What a queue did: held the workload, reserved quota for it, let it go (by its own object, else by the job)."""
    queue_rows = select_queue_transitions(schedule, transitions, pods)
    is_podgroup = pl.col("resource") == "podgroup"
    reserved = queue_rows.filter(is_podgroup & pl.col("transition").is_in(RESERVED))
    admitted = queue_rows.filter(is_podgroup & (pl.col("transition") == "admitted"))
    resumed = queue_rows.filter(pl.col("transition") == "resumed").join(
        admitted.select("index"), on="index", how="anti"
    )
    holds = queue_rows.filter(pl.col("transition").is_in(HOLDING) | is_podgroup)
    parts = {"held": holds, "quota reserved": reserved, "released": pl.concat([admitted, resumed])}
    return [
        _milestone_rows(_earliest_rows(rows), name, client="arrival_s", server="server_s")
        for name, rows in parts.items()
    ]


def _pod_milestones(plan: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    parts = []
    names = {
        "created": ("first pod", "last pod"),
        "scheduled": ("first scheduled", "all scheduled"),
        "running": ("first running", "all running"),
    }
    for event, (first, last) in names.items():
        parts.append(_nth_pod_milestone(plan.with_columns(pods=pl.lit(1, dtype=pl.Int64)), pods, first, event))
        parts.append(_nth_pod_milestone(plan, _first_complete_pods(plan, pods, f"{event}_s"), last, event))
    return parts


def _first_complete_pods(plan: pl.DataFrame, pods: pl.DataFrame, begin: str) -> pl.DataFrame:
    """The pods that were there when as many were, for the first time, as their workload has.

    Of a workload whose pods nobody watched (only the cluster's times are known) all of them, as far as one can tell.
    """
    size = plan.select("index", pl.col("pods").alias("needed"), "gang")
    until = pl.when(pl.col("gang") & (pl.col("needed") > 1)).then("ended_s").otherwise("lost_s")
    sized_pods = pods.join(size, on="index", how="inner").with_columns(until.alias("until_s"))
    levels = count_pods_together(sized_pods, begin, "until_s").join(size, on="index", how="left")
    reached = levels.filter(pl.col("level") >= pl.col("needed"))
    dated_pods = sized_pods.join(
        reached.group_by("index").agg(pl.col("at_s").min().alias("whole_s")), on="index", how="left"
    )
    gone, at_once = pl.max_horizontal("until_s", begin), pl.col("until_s") <= pl.col("scheduled_s")
    later = (gone > pl.col("whole_s")) | ((gone == pl.col("whole_s")) & at_once)
    there = (pl.col(begin) <= pl.col("whole_s")) & (pl.col("until_s").is_null() | later)
    watched = pl.col(begin).is_not_null().any().over("index")
    return dated_pods.filter(~watched | there)


def _nth_pod_milestone(plan: pl.DataFrame, pods: pl.DataFrame, milestone: str, event: str) -> pl.DataFrame:
    """When the n-th pod of each workload got there, n its number of pods; by each clock in its own order."""
    client, server, resolution, gap = f"{event}_s", f"server_{event}_s", f"{event}_resolution_s", f"{event}_gap"

    def rank_pods(column: str, *more: str) -> pl.DataFrame:
        rows = pods.filter(pl.col(column).is_not_null()).select("index", column, *more).sort("index", column)
        place = rows.with_columns(pl.col(column).cum_count().over("index").cast(pl.Int64).alias("place"))
        return place.join(plan.select("index", pl.col("pods").alias("place")), on=["index", "place"]).drop("place")

    both = rank_pods(client, gap).join(rank_pods(server, resolution), on="index", how="full", coalesce=True)
    nth_rows = both.rename({resolution: "resolution_s"}).with_columns(pl.col(gap).fill_null(value=False).alias("gap"))
    return _milestone_rows(nth_rows, milestone, client=client, server=server)


def _podgroup_milestones(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """PodGroups carry their maker's labels or none: joined by label, by owner, or by the workload's name."""
    groups = transitions.filter((pl.col("resource") == "podgroup") & (pl.col("transition") == "created"))
    names = plan.select("index", "name")
    by_label = groups.join(names, left_on="workload", right_on="name", how="inner")
    unlabelled = groups.filter(pl.col("workload").is_null())
    owners = pl.concat(
        [
            transitions.filter(pl.col("resource").is_in(["job", "workload"]) & pl.col("workload").is_not_null())
            .join(names, left_on="workload", right_on="name", how="inner")
            .select("index", pl.col("uid").alias("owner")),
            pods.select("index", pl.col("uid").alias("owner")),
        ]
    ).unique("owner")
    by_owner = unlabelled.join(owners, on="owner", how="inner")
    by_name = unlabelled.filter(pl.col("owner").is_null()).join(names, on="name", how="inner")
    columns = ["index", "arrival_s", "server_s", "resolution_s", "gap"]
    group_rows = pl.concat([part.select(columns) for part in (by_label, by_owner, by_name)])
    return _milestone_rows(_earliest_rows(group_rows), "podgroup", client="arrival_s", server="server_s")


def _event_milestones(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """First decision of the scheduler about a pod (bound or unschedulable), eviction, volumes, backend."""
    pod_uids = pods.select("index", pl.col("uid"))
    of_pods = transitions.filter(pl.col("resource") == "pod").join(pod_uids, on="uid", how="inner")
    pod_events = transitions.filter(pl.col("resource") == "event").join(
        pod_uids, left_on="owner", right_on="uid", how="inner"
    )
    decided = of_pods.filter(pl.col("transition").is_in(["scheduled", "unschedulable"]))
    columns = ["index", "arrival_s", "server_s", "resolution_s", "gap"]
    evicted = pl.concat(
        [rows.filter(pl.col("transition") == "evicted").select(columns) for rows in (of_pods, pod_events)]
    )
    named = transitions.filter(pl.col("workload").is_not_null()).join(
        plan.select("index", pl.col("name").alias("workload")), on="workload", how="inner"
    )
    parts = {"decided": decided, "evicted": evicted}
    for milestone in ("pvc requested", "pvc bound", "backend"):
        parts[milestone] = named.filter(pl.col("transition") == milestone.replace(" ", "-"))
    return [
        _milestone_rows(_earliest_rows(rows), name, client="arrival_s", server="server_s")
        for name, rows in parts.items()
    ]
