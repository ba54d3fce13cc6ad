"""Gangs: when all pods of one were bound together, and what they held until then."""

from __future__ import annotations

import polars as pl

from workbench.scaletest.tables import GANGS


def count_pods_together(pods: pl.DataFrame, begin: str, end: str) -> pl.DataFrame:
    """How many pods of each workload were somewhere at a time, after each that came or went.

    `pods`: `index, uid, scheduled_s`, and two columns of times, in seconds.
    `begin`, `end`: These two columns: a pod comes at `begin` (null: never) and goes at `end` (null: never).

    Returns: `index, uid, at_s, change, level`, by workload in the order of time.

    At one moment, ends count before begins: the order of simultaneous observations is unknown, and a
    gang is together only when it surely was. A pod that was bound and gone at once (both were found after a watch had
    been away) was there at that moment. So whatever runs is bound, at every moment.

    >>> pods = pl.DataFrame({"index": [0, 0], "uid": ["a", "b"], "scheduled_s": [1.0, 2.0], "ended_s": [5.0, None]})
    >>> count_pods_together(pods, "scheduled_s", "ended_s").select("uid", "at_s", "change", "level").rows()
    [('a', 1.0, 1, 1), ('b', 2.0, 1, 2), ('a', 5.0, -1, 1)]
    """
    begun_rows = pods.filter(pl.col(begin).is_not_null())
    arrivals = begun_rows.select("index", "uid", pl.col(begin).alias("at_s"), order=pl.lit(1), change=pl.lit(1))
    at_once = pl.when(pl.col(end) <= pl.col("scheduled_s")).then(2).otherwise(0)
    departures = begun_rows.filter(pl.col(end).is_not_null()).select(
        "index", "uid", pl.max_horizontal(begin, end).alias("at_s"), order=at_once, change=pl.lit(-1)
    )
    changes = pl.concat([arrivals, departures]).sort("index", "at_s", "order")
    return changes.with_columns(level=pl.col("change").cast(pl.Int64).cum_sum().over("index")).drop("order")


def mark_partial_gangs(schedule: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Pods of gangs, with the time from which their gang was complete, and how many of it were ever bound together.

    `schedule`: `index, gang, pods`. `pods`: `index, uid, scheduled_s, ended_s`.

    Returns: The rows of `pods` that belong to gangs, with the columns `needed` (pods of the gang), `complete_s` (first
    time since the pod was bound at which as many pods of the gang were bound as it has; null: never), and `most` (the
    largest number of its pods that were bound at one time).
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
    """Find the gangs that were ever complete (all pods at one time), and the GPU time held while they were not.

    `schedule`: `index, name, gang, pods`. `pods`: `index, uid, scheduled_s, ended_s, gpus`.

    Returns: Table GANGS. A gang of which some pods are bound and others never are holds GPUs and does no work: two of
    them that hold what the other needs are a deadlock, which a scheduler that places pod by pod does not see.
    """
    plan = schedule.filter(pl.col("gang") & (pl.col("pods") > 1)).select("index", "name", "pods")
    gang_pods = mark_partial_gangs(schedule, pods)
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
