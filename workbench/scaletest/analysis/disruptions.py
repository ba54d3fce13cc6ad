"""Pods that were lost before their work was done: failed, deleted, evicted; and workloads that did not end well."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

# The scheduler's own choice, which is what a test of priorities and reclaim is about.
_PREEMPTED = r"(?i)preempt|reclaim|^Evict\b"
_ENDED_WELL = ("complete", "completed", "succeeded")
# An operator deletes what is left of a workload about when it reports its end.
CLEANUP_S = 1.0
_CAUSES = ("failed", "deleted", "evicted", "preempted")


@dataclass(frozen=True)
class Disruptions:
    """What pods and workloads did not survive.

    `failed`, `deleted`, `evicted`, `preempted`: Lost pods by the first cause that holds: preempted by the scheduler,
    evicted otherwise, failed, deleted while their workload was to go on.
    `n_workloads`, `complete_workloads`, `failed_workloads`: Workloads that end by themselves: accepted, ended well,
    failed or deleted.
    `planned`: The scenario makes nodes fail or drains them: then it is the test.
    """

    failed: int
    deleted: int
    evicted: int
    preempted: int
    n_pods: int
    remade: int
    n_workloads: int
    complete_workloads: int
    failed_workloads: int
    planned: bool = False

    @property
    def lost_fraction(self) -> float:
        """Share of the pods that were lost, without what the scheduler preempted."""
        return (self.failed + self.deleted + self.evicted) / max(1, self.n_pods)

    @property
    def sentence(self) -> str | None:
        """The losses with their numbers, then the workloads; null where nothing was lost."""
        counts = {name: getattr(self, name) for name in _CAUSES}
        causes = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        if not causes and not self.failed_workloads:
            return None
        lost = f"{sum(counts.values()):,} of {self.n_pods:,} pods were lost" + (f" ({causes})" if causes else "")
        pods = f"{lost}; {self.remade:,} replaced others"
        if not self.n_workloads:
            return pods
        failed = f", {self.failed_workloads:,} failed or were deleted" if self.failed_workloads else ""
        complete = f"{self.complete_workloads:,} of {self.n_workloads:,} workloads were complete"
        return f"{pods}; {complete}{failed}"


def find_disruptions(
    schedule: pl.DataFrame,
    submissions: pl.DataFrame,
    transitions: pl.DataFrame,
    pods: pl.DataFrame,
    *,
    planned: bool = False,
) -> Disruptions:
    """Which pods were lost before their work was done, and which workloads did not end well?

    Workloads that the scenario itself deletes are left out, and so are pods that go when their workload has ended.
    Knows only what the watches saw.
    """
    plan = schedule.select("index", "name", "kind", "pods", "lifetime_s", "delete_after_s")
    ends = _find_ends(plan, transitions, pods)
    plan_pods = (
        pods.join(plan, on="index").filter(pl.col("delete_after_s").is_null()).join(ends, on="index", how="left")
    )
    lost = plan_pods.filter(pl.col("lost_s").is_not_null() & ~_went_with_workload())
    causes = _classify_losses(lost, transitions)
    accepted = submissions.filter(pl.col("status").is_in(["created", "known"])).select("index")
    ending = plan.filter(pl.col("lifetime_s").is_not_null() & pl.col("delete_after_s").is_null())
    expected = ending.join(accepted, on="index", how="semi").join(ends, on="index", how="left")
    return Disruptions(
        **{name: causes.get(name, 0) for name in _CAUSES},
        n_pods=plan_pods.height,
        remade=plan_pods.filter(pl.col("attempt") > 1).height,
        n_workloads=expected.height,
        complete_workloads=int(expected["well"].sum()),
        failed_workloads=int((~expected["well"]).sum()),
        planned=planned,
    )


def _find_ends(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """`index, well, finished_s` of workloads that ended: by their own object, a bare pod by itself."""
    names = plan.select("index", pl.col("name").alias("workload"))
    endings = transitions.filter(
        pl.col("resource").is_in(["job", "workload"]) & pl.col("transition").is_in([*_ENDED_WELL, "failed", "deleted"])
    ).join(names, on="workload", how="inner")
    well = pl.col("transition").is_in(_ENDED_WELL)
    objects = endings.group_by("index").agg(
        well.any().alias("well"), pl.col("arrival_s").filter(well).min().alias("finished_s")
    )
    # What no object of its own tells the end of has ended with its pods; a bare pod is its own workload.
    ended = pods.filter(pl.col("ended_s").is_not_null()).join(plan.select("index", "kind", n="pods"), on="index")
    single = (
        ended.group_by("index")
        .agg(
            (pl.col("lost_s").is_null().sum() >= pl.col("n").first()).alias("well"),
            pl.lit(None, dtype=pl.Float64).alias("finished_s"),
            (pl.col("kind") == "Pod").first().alias("bare"),
        )
        .filter(pl.col("well") | pl.col("bare"))
        .drop("bare")
    )
    return pl.concat([objects, single.join(objects, on="index", how="anti")])


def _went_with_workload() -> pl.Expr:
    return (pl.col("lost_s") >= pl.col("finished_s") - CLEANUP_S).fill_null(value=False)


def _classify_losses(lost: pl.DataFrame, transitions: pl.DataFrame) -> dict[str, int]:
    """Lost pods by cause."""
    about = transitions.filter(pl.col("resource").is_in(["pod", "event"])).with_columns(
        pl.when(pl.col("resource") == "event").then("owner").otherwise("uid").alias("uid")
    )
    evicted = pl.col("transition") == "evicted"
    reasons = about.join(lost.select("uid"), on="uid", how="semi").group_by("uid")
    signs = reasons.agg(
        (evicted & pl.col("reason").str.contains(_PREEMPTED).fill_null(value=False)).any().alias("preempted"),
        evicted.any().alias("evicted"),
        ((pl.col("transition") == "failed") & (pl.col("resource") == "pod")).any().alias("failed"),
    )
    cause = (
        pl.when("preempted")
        .then(pl.lit("preempted"))
        .when("evicted")
        .then(pl.lit("evicted"))
        .when("failed")
        .then(pl.lit("failed"))
        .otherwise(pl.lit("deleted"))
    )
    return dict(signs.group_by(cause.alias("cause")).len().iter_rows())
