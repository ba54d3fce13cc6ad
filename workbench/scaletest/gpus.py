"""How the GPUs were used while the test ran: allocated, waited for, stranded; and which gangs got theirs."""

from __future__ import annotations

import numpy as np
import polars as pl

from workbench.scaletest.flow import Floats, together
from workbench.scaletest.result_tables import GANGS, GPUS

MOST_POINTS = 600


def gpu_timeline(schedule: pl.DataFrame, pods: pl.DataFrame, nodes: pl.DataFrame, end_s: float) -> pl.DataFrame:
    """GPUs by state on an even grid of at most 600 moments.

    Parameters
    ----------
    schedule, pods, nodes
        Tables SCHEDULE, PODS and NODES.
    end_s
        End of the run, seconds after its start.

    Returns
    -------
    DataFrame
        Table GPUS; empty for a run without GPUs. A free GPU is stranded on a node with fewer free than the largest
        pod of the plan asks for: it is there, and that pod cannot have it.

    Notes
    -----
    Knows of the run's own pods only: what others hold is counted as free. Times are arrivals at our watch.
    """
    own = nodes.filter((pl.col("gpus") > 0) & pl.col("ready"))
    largest = _largest(schedule)
    if not own.height or largest <= 0:
        return GPUS.frame([])
    held = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    at = np.linspace(0.0, max(end_s, 1e-3), min(MOST_POINTS, max(2, int(end_s * 10) + 1)))
    allocated, stranded = _by_node(held, own, at, largest)
    capacity = float(own["gpus"].sum())
    free = capacity - allocated
    columns = {
        "at_s": at,
        "capacity": np.full(len(at), capacity),
        "allocated": allocated,
        "waiting": _level(held, at, "created_s", "scheduled_s", "ended_s"),
        "in_partial_gangs": _level(_partial(schedule, held), at, "scheduled_s", "complete_s", "ended_s"),
        "stranded": stranded,
    }
    shares = [float(one) / float(all_) if all_ > 0 else None for one, all_ in zip(stranded, free, strict=True)]
    return GPUS.frame({name: values.tolist() for name, values in columns.items()} | {"fragmentation": shares})


def _largest(schedule: pl.DataFrame) -> float:
    most = schedule["gpus_per_pod"].max()
    return float(most) if isinstance(most, int | float) else 0.0


def _by_node(held: pl.DataFrame, nodes: pl.DataFrame, at: Floats, largest: float) -> tuple[Floats, Floats]:
    """GPUs allocated, and GPUs free where the largest pod finds too few, at each moment."""
    places = {name: place for place, name in enumerate(nodes["name"])}
    bound = held.filter(pl.col("scheduled_s").is_not_null() & pl.col("node").is_in(list(places)))
    node = np.array([places[name] for name in bound["node"]], dtype=np.intp)
    gpus = bound["gpus"].to_numpy().astype(float)
    begins = bound["scheduled_s"].to_numpy().astype(float)
    ends = bound["ended_s"].fill_null(np.inf).to_numpy().astype(float)
    times = np.concatenate([begins, ends])
    order = np.argsort(times, kind="stable")
    changes, where = np.concatenate([gpus, -gpus])[order], np.concatenate([node, node])[order]
    upto = np.searchsorted(times[order], at, side="right")
    free = nodes["gpus"].to_numpy().astype(float).copy()
    allocated, stranded, done = np.zeros(len(at)), np.zeros(len(at)), 0
    for place, end in enumerate(upto):
        np.subtract.at(free, where[done:end], changes[done:end])
        done = end
        allocated[place] = changes[:end].sum()
        stranded[place] = free[(free > 1e-9) & (free < largest - 1e-9)].sum()
    return allocated, stranded


def _level(rows: pl.DataFrame, at: Floats, begin: str, end: str, or_end: str) -> Floats:
    """GPUs of the rows that are between begin and end (the earlier of two) at each moment."""
    own = rows.filter(pl.col(begin).is_not_null())
    gpus = own["gpus"].to_numpy().astype(float)
    begins = own[begin].to_numpy().astype(float)
    ends = own.select(pl.min_horizontal(end, or_end).fill_null(np.inf)).to_series().to_numpy().astype(float)
    ends = np.maximum(ends, begins)

    def upto(times: Floats) -> Floats:
        order = np.argsort(times)
        sums = np.concatenate([[0.0], np.cumsum(gpus[order])])
        return np.asarray(sums[np.searchsorted(times[order], at, side="right")])

    return upto(begins) - upto(ends)


def _partial(schedule: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Pods of gangs, when their gang was complete for the first time since they were bound (null: never), and `most`.

    Complete is a gang while as many of its pods are bound as it has, at a time; `most` is the most that ever were.
    """
    plan = schedule.filter(pl.col("gang") & (pl.col("pods") > 1)).select("index", pl.col("pods").alias("needed"))
    own = held.join(plan, on="index", how="inner")
    bound = together(own, "scheduled_s", "ended_s").join(plan, on="index", how="left", maintain_order="left")
    whole = pl.when(pl.col("level") >= pl.col("needed")).then("at_s")
    since = bound.with_columns(complete_s=whole.backward_fill().over("index"), most=pl.col("level").max().over("index"))
    came = since.filter(pl.col("change") == 1).select("uid", "complete_s", "most")
    return own.join(came, on="uid", how="left")


def gangs(schedule: pl.DataFrame, pods: pl.DataFrame, end_s: float) -> pl.DataFrame:
    """Which gangs were ever complete, all pods at a time, and what they held while they were not.

    Returns
    -------
    DataFrame
        Table GANGS. A gang of which some pods are bound and others never are holds GPUs and does no work: two of them
        that hold what the other needs are a deadlock, which a scheduler that places pod by pod does not see.
    """
    plan = schedule.filter(pl.col("gang") & (pl.col("pods") > 1)).select("index", "name", "pods")
    own = _partial(schedule, pods)
    stop = pl.min_horizontal(pl.col("complete_s").fill_null(end_s), pl.col("ended_s").fill_null(end_s))
    held = ((stop - pl.col("scheduled_s")).clip(0.0) * pl.col("gpus")).fill_null(0.0)
    by_gang = own.group_by("index").agg(
        pl.col("most").max().alias("scheduled"),
        (pl.col("scheduled_s").is_not_null() & pl.col("ended_s").is_null()).sum().cast(pl.Int64).alias("running_end"),
        pl.col("scheduled_s").min().alias("first_s"),
        pl.col("complete_s").min(),
        held.sum().alias("held_gpu_s"),
    )
    found = plan.join(by_gang, on="index", how="left").with_columns(
        pl.min_horizontal(pl.col("scheduled").fill_null(0), pl.col("pods")).alias("scheduled"),
        pl.col("running_end").fill_null(0),
        pl.col("complete_s").is_not_null().alias("complete"),
        pl.col("held_gpu_s").fill_null(0.0),
    )
    return GANGS.check(found.sort("index"))
