"""GPUs of a run over time: when the cluster was full, the rate that the GPUs allow, and free ones that no pod fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.analysis.gangs import mark_partial_gangs
from workbench.scaletest.analysis.throughput import Floats, count_passages
from workbench.scaletest.tables import GPUS

# Share of all GPUs. Freed ones are not reused immediately: a scheduler with a cycle of one second leaves some free
# between cycles.
NEARLY_FULL = 0.05
# GPUs that are none: sums of fractions of a GPU are not exact.
_NONE = 1e-9
MAX_MOMENTS = 600


@dataclass(frozen=True)
class Saturation:
    """The cluster's GPUs at moments of a run, seconds in order; each moment's values hold until the next."""

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

    `gpus`: `at_s, capacity, allocated, waiting, stranded` of table GPUS; null or empty for a run without.
    `pods`: `gpus, created_s, scheduled_s, ended_s` of table PODS; without it the size of waiting pods is not known.

    Full at a moment, in GPUs, where both hold:

        waiting > free
        free < max(smallest, 0.05 * capacity)

    `free` is `capacity - allocated`, and `smallest` is the size of the smallest pod that waits (0 for none). Where only
    pods of the largest size wait, `stranded` is subtracted from `free`, too: nodes with too few free GPUs for one of
    them have none for them.

    Where `allocated` is above 1.05 * `capacity` at any moment, nodes came or were not seen: then no moment is full.
    Knows GPUs only, and of this run's pods only; does not show that a gang waits until all of it fits.

    >>> columns = {"at_s": [0.0, 1.0], "capacity": [8.0, 8.0], "allocated": [4.0, 8.0]}
    >>> find_saturation(pl.DataFrame(columns | {"waiting": [0.0, 2.0], "stranded": [0.0, 0.0]})).full.tolist()
    [False, True]
    """
    if gpus is None or not gpus.height:
        nothing = np.zeros(0)
        return Saturation(nothing, nothing.astype(bool), nothing, nothing)
    at, capacity, allocated, waiting, stranded = (
        gpus[name].to_numpy().astype(float) for name in ("at_s", "capacity", "allocated", "waiting", "stranded")
    )
    smallest, all_largest = _find_waiting_gpus(pods, at)
    free = capacity - allocated - np.where(all_largest, stranded, 0.0)
    full = (waiting > free + _NONE) & (free < np.maximum(smallest, NEARLY_FULL * capacity) - _NONE)
    if (allocated > (1 + NEARLY_FULL) * capacity).any():
        full[:] = False
    return Saturation(at, full, allocated, capacity)


def _find_waiting_gpus(pods: pl.DataFrame | None, at: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """GPUs of the smallest pod that waits at each moment, 0 for none; and whether it is one of the largest of all.

    `at`: Moments in seconds; both results have one value for each.

    `pods`: `gpus, created_s, scheduled_s, ended_s`.
    """
    smallest = np.zeros(len(at))
    if pods is None:
        return smallest, smallest > 0
    asking = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    rows = asking.select("gpus", "created_s", gone_s=pl.min_horizontal("scheduled_s", "ended_s").fill_null(np.inf))
    # Largest first: where several sizes wait, a smaller one overwrites a larger, and the smallest stays.
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
        """Highest rate at which the GPUs can take pods, in pods/s."""
        return self.gpus / self.gpu_s_per_pod


def find_gpu_ceiling(schedule: pl.DataFrame, gpus: pl.DataFrame) -> GpuCeiling | None:
    """How many pods a second do the GPUs themselves allow, however fast the scheduler is?

    `schedule`: `pods, gpus_per_pod, lifetime_s, delete_after_s`. `gpus`: `capacity`.

    Null where there are no GPUs, or where a pod with GPUs never ends, so that there is no rate. Assumes the largest
    capacity that was seen; does not show what fragmentation costs.

    >>> plan = {"pods": [2, 1], "gpus_per_pod": [1, 4], "lifetime_s": [10.0, 5.0]}
    >>> schedule = pl.DataFrame(plan).with_columns(delete_after_s=pl.lit(None, dtype=pl.Float64))
    >>> find_gpu_ceiling(schedule, pl.DataFrame({"capacity": [8, 8]}))
    GpuCeiling(gpus=8.0, gpu_s_per_pod=13.333333333333334)
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

    `schedule`: `index, gang, pods, gpus_per_pod`.
    `pods`: `index, uid, node, gpus, created_s, scheduled_s, ended_s`.
    `nodes`: `name, ready, gpus` of table NODES.
    `changes`: Table NODE_CHANGES; without it every node that was ever ready was so all the time.

    Returns: Table GPUS; empty for a run without GPUs. A free GPU is stranded on a node with fewer free than the
    largest pod of the plan asks for: it is there, and that pod cannot have it.

    Knows of the run's own pods only: what others hold is counted as free. Times are arrivals at our watch.
    """
    gpu_nodes = nodes.filter((pl.col("gpus") > 0) & pl.col("ready"))
    largest = float(schedule["gpus_per_pod"].max() or 0.0)  # type: ignore[arg-type]
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
            mark_partial_gangs(schedule, gpu_pods), at, "scheduled_s", "complete_s", "ended_s"
        ),
        "stranded": stranded,
    }
    shares = [float(part) / float(all_) if all_ > 0 else None for part, all_ in zip(stranded, free, strict=True)]
    return GPUS.frame({name: values.tolist() for name, values in columns.items()} | {"fragmentation": shares})


def _gpus_by_node(
    gpu_pods: pl.DataFrame, nodes: pl.DataFrame, at: Floats, largest: float, changes: pl.DataFrame | None
) -> tuple[Floats, Floats, Floats]:
    """Count GPUs at each moment: all, those allocated, and those free on nodes too full for the largest pod.

    Pods on a node that is not ready hold no existing GPU.

    `gpu_pods`: `node, gpus, scheduled_s, ended_s`. `nodes`: `name, gpus`. `changes`: `at_s, name, ready`.
    """
    node_numbers = {name: number for number, name in enumerate(nodes["name"])}
    bound = gpu_pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("node").is_in(list(node_numbers)))
    node = np.array([node_numbers[name] for name in bound["node"]], dtype=np.intp)
    gpus = bound["gpus"].to_numpy().astype(float)
    begins = bound["scheduled_s"].to_numpy().astype(float)
    ends = bound["ended_s"].fill_null(np.inf).to_numpy().astype(float)
    # Each binding and each end is a change of one node's allocated GPUs; they are applied in the order of time.
    times = np.concatenate([begins, ends])
    order = np.argsort(times, kind="stable")
    taken, on_node = np.concatenate([gpus, -gpus])[order], np.concatenate([node, node])[order]
    n_due = count_passages(times[order], at)
    node_gpus = nodes["gpus"].to_numpy().astype(float)
    allocated, n_applied = np.zeros(len(node_gpus)), 0
    totals = np.zeros((3, len(at)))
    for moment, (n_changes, ready) in enumerate(zip(n_due, _ready_masks(node_numbers, at, changes), strict=True)):
        np.add.at(allocated, on_node[n_applied:n_changes], taken[n_applied:n_changes])
        n_applied = n_changes
        free = (node_gpus - allocated)[ready]
        stranded = free[(free > _NONE) & (free < largest - _NONE)]
        totals[:, moment] = node_gpus[ready].sum(), allocated[ready].sum(), stranded.sum()
    return totals[0], totals[1], totals[2]


def _ready_masks(
    node_numbers: dict[str, int], at: Floats, changes: pl.DataFrame | None
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield for each moment an array that tells which nodes, by number, are ready.

    A node whose first change comes later was not there before it, if a list of all nodes was seen before.

    `changes`: `at_s, name, ready`. Each moment yields the same array, changed in place.
    """
    ready = np.ones(len(node_numbers), dtype=bool)
    rows: list[tuple[float, str, bool]] = []
    if changes is not None and changes.height:
        of_nodes = changes.filter(pl.col("name").is_in(list(node_numbers))).sort("at_s")
        rows = of_nodes.select("at_s", "name", "ready").rows()
        began = min(row[0] for row in rows) if rows else 0.0
        for name, first in changes.group_by("name").agg(pl.col("at_s").min()).iter_rows():
            if name in node_numbers and first > began + 1.0:
                ready[node_numbers[name]] = False
    n_applied = 0
    for moment in at:
        while n_applied < len(rows) and rows[n_applied][0] <= moment:
            ready[node_numbers[rows[n_applied][1]]] = rows[n_applied][2]
            n_applied += 1
        yield ready


def count_gpus_between(rows: pl.DataFrame, at: Floats, begin: str, end: str, or_end: str) -> Floats:
    """Sum the GPUs of the rows that have begun and not ended at each moment.

    A row ends at the earlier of `end` and `or_end`.

    `rows`: `gpus`, and the three named columns of times, in seconds; null for never. `at`: Moments in seconds.

    >>> pods = pl.DataFrame({"gpus": [1, 4], "begin_s": [0.0, 2.0], "end_s": [3.0, None], "lost_s": [None, 9.0]})
    >>> count_gpus_between(pods, np.array([1.0, 2.5, 5.0, 9.5]), "begin_s", "end_s", "lost_s").tolist()
    [1.0, 5.0, 4.0, 0.0]
    """
    begun_rows = rows.filter(pl.col(begin).is_not_null())
    gpus = begun_rows["gpus"].to_numpy().astype(float)
    begins = begun_rows[begin].to_numpy().astype(float)
    ends = begun_rows.select(pl.min_horizontal(end, or_end).fill_null(np.inf)).to_series().to_numpy().astype(float)
    ends = np.maximum(ends, begins)

    def gpus_until(times: Floats) -> Floats:
        """Sum the GPUs of the rows whose time is at or before each moment of `at`."""
        order = np.argsort(times)
        sums = np.concatenate([[0.0], np.cumsum(gpus[order])])
        return np.asarray(sums[np.searchsorted(times[order], at, side="right")])

    return gpus_until(begins) - gpus_until(ends)
