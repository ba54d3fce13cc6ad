"""GPUs of a run over time: who holds them, and free ones that no pod fits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from workbench.scaletest.analysis.gangs import mark_partial_gangs
from workbench.scaletest.analysis.room import list_foreign_spans, list_moments
from workbench.scaletest.analysis.throughput import Floats, count_passages
from workbench.scaletest.observation.run_records import parse_amounts
from workbench.scaletest.tables import GPUS, HOLDINGS

# GPUs that are none: sums of fractions of a GPU are not exact.
_NONE = 1e-9


def build_gpu_timeline(
    schedule: pl.DataFrame,
    pods: pl.DataFrame,
    nodes: pl.DataFrame,
    end_s: float,
    changes: pl.DataFrame | None = None,
    holdings: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """GPUs by state on an even grid of at most 600 moments.

    `schedule`: `index, gang, pods, gpus_per_pod`.
    `pods`: `index, uid, node, gpus, created_s, scheduled_s, ended_s`.
    `nodes`: `name, ready, gpus` of table NODES.
    `changes`: Table NODE_CHANGES; without it every node that was ever ready was so all the time.
    `holdings`: Table HOLDINGS; without it what others hold counts as free.

    Returns: Table GPUS; empty for a run without GPUs. A free GPU is stranded on a node with fewer free than the
    largest pod asks for: it is there, and that pod cannot have it. Times are arrivals at our watch.
    """
    gpu_nodes = nodes.filter((pl.col("gpus") > 0) & pl.col("ready"))
    gpu_pods = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    asked = gpu_pods["gpus"] if pods.height else schedule["gpus_per_pod"]
    largest = float(asked.max() or 0.0)  # type: ignore[arg-type]
    if not gpu_nodes.height or largest <= 0:
        return GPUS.frame([])
    at = list_moments(end_s)
    foreign = HOLDINGS.frame([]) if holdings is None else holdings.filter(~pl.col("uid").is_in(pods["uid"].implode()))
    capacity, allocated, others, stranded = _gpus_by_node(gpu_pods, gpu_nodes, at, largest, changes, foreign)
    free = capacity - allocated - others
    columns = {
        "at_s": at,
        "capacity": capacity,
        "allocated": allocated,
        "waiting": count_gpus_between(gpu_pods, at, "created_s", "scheduled_s", "ended_s"),
        "in_partial_gangs": count_gpus_between(
            mark_partial_gangs(schedule, gpu_pods), at, "scheduled_s", "complete_s", "ended_s"
        ),
        "stranded": stranded,
        "held_by_others": others,
    }
    shares = [float(part) / float(all_) if all_ > 0 else None for part, all_ in zip(stranded, free, strict=True)]
    return GPUS.frame({name: values.tolist() for name, values in columns.items()} | {"fragmentation": shares})


def _gpus_by_node(
    gpu_pods: pl.DataFrame,
    nodes: pl.DataFrame,
    at: Floats,
    largest: float,
    changes: pl.DataFrame | None,
    holdings: pl.DataFrame,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Count GPUs at each moment: all, the run's, those of others, and those free on nodes too full for the largest pod.

    Pods on a node that is not ready hold no existing GPU.

    `gpu_pods`: `node, gpus, scheduled_s, ended_s`. `nodes`: `name, gpus`. `changes`: `at_s, name, ready, gpus`.
    """
    node_numbers = {name: number for number, name in enumerate(nodes["name"])}
    bound = gpu_pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("node").is_in(list(node_numbers)))
    own = bound.select("scheduled_s", pl.col("ended_s").fill_null(np.inf), "node", "gpus").rows()
    others = [
        (begin_s, end_s, node, sum(amount for name, amount in parse_amounts(asks).items() if name.endswith("/gpu")))
        for begin_s, end_s, node, asks in list_foreign_spans(holdings)
        if node in node_numbers
    ]
    # Each binding and each end is a change of one node's allocated GPUs; they are applied in the order of time.
    rows = [
        (time_s, whose, node_numbers[node], sign * gpus)
        for whose, spans in enumerate((own, others))
        for begin_s, end_s, node, gpus in spans
        for time_s, sign in ((begin_s, 1.0), (end_s, -1.0))
    ]
    rows.sort(key=lambda row: row[0])
    times, taken = np.array([row[0] for row in rows]), np.array([row[3] for row in rows])
    whose, on_node = (np.array([row[column] for row in rows], dtype=np.intp) for column in (1, 2))
    n_due = count_passages(times, at)
    held, n_applied, most = np.zeros((2, len(node_numbers))), 0, nodes["gpus"].to_numpy().astype(float)
    totals = np.zeros((4, len(at)))
    for moment, (n_changes, there) in enumerate(zip(n_due, _iterate_node_gpus(nodes, at, changes), strict=True)):
        span = slice(n_applied, n_changes)
        np.add.at(held, (whose[span], on_node[span]), taken[span])
        n_applied = n_changes
        ready = ~np.isnan(there)
        # What a node no longer offers is held by its pods until they end.
        there = np.maximum(there, np.minimum(held.sum(axis=0), most))
        free = (there - held.sum(axis=0))[ready]
        stranded = free[(free > _NONE) & (free < largest - _NONE)]
        totals[:, moment] = there[ready].sum(), held[0][ready].sum(), held[1][ready].sum(), stranded.sum()
    return totals[0], totals[1], totals[2], totals[3]


def _iterate_node_gpus(nodes: pl.DataFrame, at: Floats, changes: pl.DataFrame | None) -> Iterator[Floats]:
    """Yield for each moment the GPUs of each node, not a number while it takes no pods; changed in place.

    A node whose first change comes later was not there before it, if a list of all nodes was seen before.

    `nodes`: `name, gpus`. `changes`: `at_s, name, ready, gpus`.
    """
    numbers = {name: number for number, name in enumerate(nodes["name"])}
    gpus = nodes["gpus"].to_numpy().astype(float).copy()
    rows: list[tuple[float, str, bool, int]] = []
    if changes is not None and changes.height:
        rows = (
            changes.filter(pl.col("name").is_in(list(numbers)))
            .sort("at_s")
            .select("at_s", "name", "ready", "gpus")
            .rows()
        )
        began = min(row[0] for row in rows) if rows else 0.0
        for name, first in changes.group_by("name").agg(pl.col("at_s").min()).iter_rows():
            if name in numbers and first > began + 1.0:
                gpus[numbers[name]] = np.nan
    n_applied = 0
    for moment in at:
        while n_applied < len(rows) and rows[n_applied][0] <= moment:
            _, name, ready, count = rows[n_applied]
            gpus[numbers[name]] = count if ready else np.nan
            n_applied += 1
        yield gpus


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
