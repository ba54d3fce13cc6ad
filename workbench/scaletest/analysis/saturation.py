"""Saturation: GPU use over time, gangs that got their GPUs, and when pods waited because the cluster was full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.analysis.throughput import Floats, count_passages, count_pods_together
from workbench.scaletest.tables import GANGS, GPUS

# Freed GPUs are not reused immediately: a scheduler with a cycle of one second leaves some free between cycles.
NEARLY_FULL = 0.05
_NONE = 1e-9


MAX_MOMENTS = 600


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
        """The same between each two of these times."""
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
    """When was the cluster full?

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
