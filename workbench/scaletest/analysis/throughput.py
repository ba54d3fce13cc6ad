"""Throughput: when pods and workloads passed each stage, and counts by stage over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.tables import FLOW, GANGS, GPUS

Floats = npt.NDArray[np.float64]
MAX_POINTS = 800
MADE, SCHEDULED, STARTED = "pods made", "pods scheduled", "pods started"
# Suspended jobs, gated pods: what a queue such as Kueue's holds until there is quota.
RELEASED = "workloads released"
# Objects of this kind are their own pods: nobody makes them but the client.
_BARE = "Pod"
HOLDING, RESERVED = ["suspended", "gated"], ["quotareserved", "quota-reserved"]
_ADMITTED = [*RESERVED, "admitted"]
_RELEASING = ["resumed", *_ADMITTED]

# Freed GPUs are not reused immediately: a scheduler with a cycle of one second leaves some free between cycles.
NEARLY_FULL = 0.05
_NONE = 1e-9
MAX_MOMENTS = 600


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
    left_s = np.full(len(before), np.inf)
    left_s[: len(after)] = np.sort(after)[: len(before)]
    return StageWaits(np.sort(before), left_s)


def build_passages(
    schedule: pl.DataFrame, submissions: pl.DataFrame, pods: pl.DataFrame, transitions: pl.DataFrame
) -> StagePassages:
    """The times of all passages, from the run's tables."""
    accepted = submissions.filter(pl.col("status").is_in(["created", "known"])).select(
        # Of one that a resumed run found, the sending is the best that is known.
        "index",
        pl.coalesce("acked_s", "sent_s").alias("at_s"),
    )
    counted = accepted.join(schedule.select("index", "pods"), on="index")
    # A pod that replaces a lost one is made and bound once more, and nothing of the plan is nearer to its end by that.
    first = pods.filter(pl.col("attempt") == 1)
    last = [
        frame[name].max() for frame, name in ((transitions, "arrival_s"), (submissions, "acked_s"), (schedule, "due_s"))
    ]
    return StagePassages(
        due=_sort_times(schedule["due_s"]),
        acked=_sort_times(accepted["at_s"]),
        pods_accepted=np.sort(np.repeat(counted["at_s"].to_numpy().astype(float), counted["pods"].to_numpy())),
        created=_sort_times(first["created_s"]),
        scheduled=_sort_times(first["scheduled_s"]),
        running=_sort_times(first["running_s"]),
        ended=_sort_times(first["ended_s"]),
        end_s=max((float(time_s) for time_s in last if isinstance(time_s, int | float)), default=0.0),
        waits=_build_stage_waits(counted, schedule, first, find_releases(schedule, transitions, pods)),
    )


def _build_stage_waits(
    counted: pl.DataFrame, schedule: pl.DataFrame, pods: pl.DataFrame, releases: pl.DataFrame
) -> dict[str, StageWaits]:
    """Waits by stage; what was held is at the next stage only from its release on."""
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
    """Build waits from the acceptance of each workload with a controller to its pods; pods that we made do not wait."""
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
    """Build waits from one time of a pod to another."""
    came_s, left_s = pl.col(f"{begin}_s"), pl.col(f"{end}_s")
    blurred = pl.col(f"{begin}_gap").fill_null(value=False) | pl.col(f"{end}_gap").fill_null(value=False)
    gone = left_s.is_null() & pl.col("ended_s").is_not_null()
    rows = pods.filter(came_s.is_not_null() & ~blurred & ~gone)
    return StageWaits(_fill_times(rows[f"{begin}_s"]), _fill_times(rows[f"{end}_s"]))


def _fill_times(values: pl.Series) -> Floats:
    return values.fill_null(np.inf).to_numpy().astype(float)


def _sort_times(values: pl.Series) -> Floats:
    return np.sort(values.drop_nulls().to_numpy().astype(float))


def count_pods_together(pods: pl.DataFrame, begin: str, end: str) -> pl.DataFrame:
    """How many pods of each workload were somewhere at a time, after each that came or went.

    `pods`: Rows with `index`, `uid`, `scheduled_s` and two columns of times, in seconds.
    `begin`, `end`: These columns: a pod comes at `begin` (null: never) and goes at `end` (null: never).

    Returns: `index, uid, at_s, change, level`, by workload in the order of time.

    At one moment, ends count before begins: the order of simultaneous observations is unknown, and a
    gang is together only when it surely was. A pod that was bound and gone at once (both were found after a watch had
    been away) was there at that moment. So whatever runs is bound, at every moment.
    """
    begun_rows = pods.filter(pl.col(begin).is_not_null())
    arrivals = begun_rows.select("index", "uid", pl.col(begin).alias("at_s"), order=pl.lit(1), change=pl.lit(1))
    at_once = pl.when(pl.col(end) <= pl.col("scheduled_s")).then(2).otherwise(0)
    departures = begun_rows.filter(pl.col(end).is_not_null()).select(
        "index", "uid", pl.max_horizontal(begin, end).alias("at_s"), order=at_once, change=pl.lit(-1)
    )
    changes = pl.concat([arrivals, departures]).sort("index", "at_s", "order")
    return changes.with_columns(level=pl.col("change").cast(pl.Int64).cum_sum().over("index")).drop("order")


def count_passages(times: Floats, at: Floats) -> npt.NDArray[np.int64]:
    """How many had passed by these moments."""
    return np.searchsorted(times, at, side="right").astype(np.int64)


def build_throughput_table(passages: StagePassages) -> pl.DataFrame:
    """Counts by stage on an even grid of at most 800 moments, from the start to the last thing seen."""
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


@dataclass(frozen=True)
class Saturation:
    """The cluster's GPUs at moments of a run; each holds until the next."""

    at_s: Floats
    full: npt.NDArray[np.bool_]
    allocated: Floats
    capacity: Floats

    def full_fraction(self, begin_s: float, end_s: float) -> float:
        """Share of the moments between two times at which the cluster was full."""
        moments = self.full[self._slice_between(begin_s, end_s)]
        return float(moments.mean()) if len(moments) else 0.0

    def full_fractions(self, edges_s: Floats) -> Floats:
        """Return the share of moments at which the cluster was full between each two of these times."""
        pairs = zip(edges_s[:-1].tolist(), edges_s[1:].tolist(), strict=True)
        return np.array([self.full_fraction(begin, end) for begin, end in pairs])

    def median_gpus(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """GPUs that were allocated meanwhile (median), and GPUs that there are."""
        moments = self._slice_between(begin_s, end_s)
        return float(np.median(self.allocated[moments])), float(self.capacity[moments].max())

    def _slice_between(self, begin_s: float, end_s: float) -> slice:
        """The moment that holds at the begin, and all until the end."""
        first = int(np.searchsorted(self.at_s, begin_s, side="right")) - 1
        return slice(max(0, first), int(np.searchsorted(self.at_s, end_s, side="left")))


def find_saturation(gpus: pl.DataFrame | None, pods: pl.DataFrame | None = None) -> Saturation:
    """Find when the cluster was full.

    `gpus`: Table GPUS; null or empty for a run without.

    Full: more is waited for than is free, and less is free than the smallest waiting pod asks for, or less than 5 % of
    all. Where only pods of the largest size wait, GPUs on nodes that have too few free for one are not free for them.
    Where more was taken than there is, nodes came or were not seen: then nothing is said of room.
    Knows GPUs only, and of this run's pods only; does not show that a gang waits until all of it fits.
    """
    if gpus is None or not gpus.height:
        nothing = np.zeros(0)
        return Saturation(nothing, nothing.astype(bool), nothing, nothing)
    at, capacity, allocated, waiting, stranded = (
        gpus[name].to_numpy().astype(float) for name in ("at_s", "capacity", "allocated", "waiting", "stranded")
    )
    smallest, alike = _find_waiting_gpus(pods, at)
    free = capacity - allocated - np.where(alike, stranded, 0.0)
    full = (waiting > free + _NONE) & (free < np.maximum(smallest, NEARLY_FULL * capacity) - _NONE)
    if (allocated > (1 + NEARLY_FULL) * capacity).any():
        full[:] = False
    return Saturation(at, full, allocated, capacity)


def _find_waiting_gpus(pods: pl.DataFrame | None, at: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """GPUs of the smallest pod that waits at each moment, 0 for none; and whether it is one of the largest of all."""
    smallest = np.zeros(len(at))
    if pods is None:
        return smallest, smallest > 0
    asking = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    rows = asking.select("gpus", "created_s", gone_s=pl.min_horizontal("scheduled_s", "ended_s").fill_null(np.inf))
    sizes = sorted(rows["gpus"].unique().to_list(), reverse=True)
    for size in sizes:
        sized_rows = rows.filter(pl.col("gpus") == size)
        arrivals, gone = (np.sort(sized_rows[name].to_numpy().astype(float)) for name in ("created_s", "gone_s"))
        smallest[count_passages(arrivals, at) > count_passages(gone, at)] = size
    return smallest, (smallest >= sizes[0]) if sizes else smallest > 0


@dataclass(frozen=True)
class GpuCeiling:
    """The most pods a second that GPUs allow: their number over the GPU-seconds that a pod holds."""

    gpus: float
    gpu_s_per_pod: float

    @property
    def pods_per_s(self) -> float:
        """The ceiling."""
        return self.gpus / self.gpu_s_per_pod


def find_gpu_ceiling(schedule: pl.DataFrame, gpus: pl.DataFrame) -> GpuCeiling | None:
    """How many pods a second do the GPUs themselves allow, whatever the scheduler does?

    Null where there are no GPUs, or where a pod with GPUs never ends: then they only hold a number of pods, at no rate.
    Of all the plan's pods on the largest capacity that was seen; does not show what fragmentation costs.
    """
    if not gpus.height:
        return None
    gpu_workloads = schedule.filter(pl.col("gpus_per_pod") > 0)
    lives = gpu_workloads.select(
        pl.min_horizontal("lifetime_s", "delete_after_s").alias("lives_s"), "pods", "gpus_per_pod"
    )
    if not gpu_workloads.height or lives["lives_s"].null_count():
        return None
    gpu_seconds = float(lives.select((pl.col("lives_s") * pl.col("gpus_per_pod") * pl.col("pods")).sum()).item())
    pods = float(schedule["pods"].sum())
    capacity = float(gpus["capacity"].max())  # type: ignore[arg-type]
    return GpuCeiling(capacity, gpu_seconds / pods) if gpu_seconds > 0 and capacity > 0 else None


def build_gpu_timeline(
    schedule: pl.DataFrame,
    pods: pl.DataFrame,
    nodes: pl.DataFrame,
    end_s: float,
    changes: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """GPUs by state on an even grid of at most 600 moments.

    `changes`: Table NODE_CHANGES; without it every node that was ever ready was so all the time.

    Returns: Table GPUS; empty for a run without GPUs. A free GPU is stranded on a node with fewer free than the
    largest pod of the plan asks for: it is there, and that pod cannot have it.

    Knows of the run's own pods only: what others hold is counted as free. Times are arrivals at our watch.
    """
    gpu_nodes = nodes.filter((pl.col("gpus") > 0) & pl.col("ready"))
    largest = _max_gpus_per_pod(schedule)
    if not gpu_nodes.height or largest <= 0:
        return GPUS.frame([])
    gpu_pods = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    at = np.linspace(0.0, max(end_s, 1e-3), min(MAX_MOMENTS, max(2, int(end_s * 10) + 1)))
    capacity, allocated, stranded = _gpus_by_node(gpu_pods, gpu_nodes, at, largest, changes)
    free = capacity - allocated
    columns = {
        "at_s": at,
        "capacity": capacity,
        "allocated": allocated,
        "waiting": count_gpus_between(gpu_pods, at, "created_s", "scheduled_s", "ended_s"),
        "in_partial_gangs": count_gpus_between(
            _mark_partial_gangs(schedule, gpu_pods), at, "scheduled_s", "complete_s", "ended_s"
        ),
        "stranded": stranded,
    }
    shares = [float(part) / float(all_) if all_ > 0 else None for part, all_ in zip(stranded, free, strict=True)]
    return GPUS.frame({name: values.tolist() for name, values in columns.items()} | {"fragmentation": shares})


def _max_gpus_per_pod(schedule: pl.DataFrame) -> float:
    largest = schedule["gpus_per_pod"].max()
    return float(largest) if isinstance(largest, int | float) else 0.0


def _gpus_by_node(
    gpu_pods: pl.DataFrame, nodes: pl.DataFrame, at: Floats, largest: float, changes: pl.DataFrame | None
) -> tuple[Floats, Floats, Floats]:
    """GPUs there are, GPUs allocated, and GPUs free where the largest pod finds too few, at each moment.

    What is bound to a node that is not ready holds no GPU that there is.
    """
    places = {name: place for place, name in enumerate(nodes["name"])}
    bound = gpu_pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("node").is_in(list(places)))
    node = np.array([places[name] for name in bound["node"]], dtype=np.intp)
    gpus = bound["gpus"].to_numpy().astype(float)
    begins = bound["scheduled_s"].to_numpy().astype(float)
    ends = bound["ended_s"].fill_null(np.inf).to_numpy().astype(float)
    times = np.concatenate([begins, ends])
    order = np.argsort(times, kind="stable")
    taken, where = np.concatenate([gpus, -gpus])[order], np.concatenate([node, node])[order]
    upto = np.searchsorted(times[order], at, side="right")
    size = nodes["gpus"].to_numpy().astype(float)
    used, n_applied = np.zeros(len(size)), 0
    totals = np.zeros((3, len(at)))
    for place, (end, ready) in enumerate(zip(upto, _ready_masks(places, at, changes), strict=True)):
        np.add.at(used, where[n_applied:end], taken[n_applied:end])
        n_applied = end
        free = (size - used)[ready]
        totals[:, place] = size[ready].sum(), used[ready].sum(), free[(free > _NONE) & (free < largest - _NONE)].sum()
    return totals[0], totals[1], totals[2]


def _ready_masks(places: dict[str, int], at: Floats, changes: pl.DataFrame | None) -> Iterator[npt.NDArray[np.bool_]]:
    """Which nodes are ready at each moment; one whose first change comes later was not there before it, if a list of
    all nodes was seen before.
    """
    ready = np.ones(len(places), dtype=bool)
    rows: list[tuple[float, str, bool]] = []
    if changes is not None and changes.height:
        rows = changes.filter(pl.col("name").is_in(list(places))).sort("at_s").select("at_s", "name", "ready").rows()
        began = min(row[0] for row in rows) if rows else 0.0
        for name, first in changes.group_by("name").agg(pl.col("at_s").min()).iter_rows():
            if name in places and first > began + 1.0:
                ready[places[name]] = False
    n_applied = 0
    for moment in at:
        while n_applied < len(rows) and rows[n_applied][0] <= moment:
            ready[places[rows[n_applied][1]]] = rows[n_applied][2]
            n_applied += 1
        yield ready


def count_gpus_between(rows: pl.DataFrame, at: Floats, begin: str, end: str, or_end: str) -> Floats:
    """GPUs of the rows that are between begin and end (the earlier of two) at each moment."""
    begun_rows = rows.filter(pl.col(begin).is_not_null())
    gpus = begun_rows["gpus"].to_numpy().astype(float)
    begins = begun_rows[begin].to_numpy().astype(float)
    ends = begun_rows.select(pl.min_horizontal(end, or_end).fill_null(np.inf)).to_series().to_numpy().astype(float)
    ends = np.maximum(ends, begins)

    def gpus_until(times: Floats) -> Floats:
        order = np.argsort(times)
        sums = np.concatenate([[0.0], np.cumsum(gpus[order])])
        return np.asarray(sums[np.searchsorted(times[order], at, side="right")])

    return gpus_until(begins) - gpus_until(ends)


def _mark_partial_gangs(schedule: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Pods of gangs, when their gang was complete for the first time since they were bound (null: never), and `most`.

    Complete is a gang while as many of its pods are bound as it has, at a time; `most` is the most that ever were.
    """
    plan = schedule.filter(pl.col("gang") & (pl.col("pods") > 1)).select("index", pl.col("pods").alias("needed"))
    gang_pods = pods.join(plan, on="index", how="inner")
    bound = count_pods_together(gang_pods, "scheduled_s", "ended_s").join(
        plan, on="index", how="left", maintain_order="left"
    )
    complete_at = pl.when(pl.col("level") >= pl.col("needed")).then("at_s")
    since = bound.with_columns(
        complete_s=complete_at.backward_fill().over("index"), most=pl.col("level").max().over("index")
    )
    arrivals = since.filter(pl.col("change") == 1).select("uid", "complete_s", "most")
    return gang_pods.join(arrivals, on="uid", how="left")


def build_gang_table(schedule: pl.DataFrame, pods: pl.DataFrame, end_s: float) -> pl.DataFrame:
    """Which gangs were ever complete, all pods at a time, and what they held while they were not.

    Returns: Table GANGS. A gang of which some pods are bound and others never are holds GPUs and does no work: two of
    them that hold what the other needs are a deadlock, which a scheduler that places pod by pod does not see.
    """
    plan = schedule.filter(pl.col("gang") & (pl.col("pods") > 1)).select("index", "name", "pods")
    gang_pods = _mark_partial_gangs(schedule, pods)
    stop = pl.min_horizontal(pl.col("complete_s").fill_null(end_s), pl.col("ended_s").fill_null(end_s))
    gpu_seconds = ((stop - pl.col("scheduled_s")).clip(0.0) * pl.col("gpus")).fill_null(0.0)
    by_gang = gang_pods.group_by("index").agg(
        pl.col("most").max().alias("scheduled"),
        (pl.col("scheduled_s").is_not_null() & pl.col("ended_s").is_null()).sum().cast(pl.Int64).alias("running_end"),
        pl.col("scheduled_s").min().alias("first_s"),
        pl.col("complete_s").min(),
        gpu_seconds.sum().alias("held_gpu_s"),
    )
    gangs = plan.join(by_gang, on="index", how="left").with_columns(
        pl.min_horizontal(pl.col("scheduled").fill_null(0), pl.col("pods")).alias("scheduled"),
        pl.col("running_end").fill_null(0),
        pl.col("complete_s").is_not_null().alias("complete"),
        pl.col("held_gpu_s").fill_null(0.0),
    )
    return GANGS.check(gangs.sort("index"))
