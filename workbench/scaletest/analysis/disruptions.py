"""Pods that were lost before their work was done: failed, deleted, evicted; and workloads that did not end well."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from workbench.core.formats import format_items
from workbench.scaletest.analysis.room import GPU
from workbench.scaletest.analysis.room_limits import name_resource
from workbench.scaletest.observation.run_records import parse_amounts

# The scheduler's own choice, which is what a test of priorities and reclaim is about.
_PREEMPTED = r"(?i)preempt|reclaim|^Evict\b"
_ENDED_WELL = ("complete", "completed", "succeeded")
# An operator deletes what is left of a workload about when it reports its end.
CLEANUP_S = 1.0
_CAUSES = ("failed", "deleted", "evicted", "preempted")
MAX_NAMED = 3
_CLOSED = "cordoned, tainted, not ready, deleted or without their"
# A list of all nodes arrives within so long; what changes later is a change.
FIRST_LIST_S = 1.0


@dataclass(frozen=True)
class Disruptions:
    """Pods and workloads that did not survive.

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
        """Sentence with the lost pods by cause, and the workloads that did not end well; null if nothing was lost."""
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

    `schedule`: `index, name, kind, pods, lifetime_s, delete_after_s`.
    `submissions`: `index, status`.
    `transitions`: `resource, transition, uid, workload, owner, arrival_s, reason`.
    `pods`: `index, uid, attempt, ended_s, lost_s`.
    `planned`: Whether the scenario itself changes nodes.
    """
    plan = schedule.select("index", "name", "kind", "pods", "lifetime_s", "delete_after_s")
    ends = _find_ends(plan, transitions, pods)
    plan_pods = (
        pods.join(plan, on="index").filter(pl.col("delete_after_s").is_null()).join(ends, on="index", how="left")
    )
    went_with_workload = (pl.col("lost_s") >= pl.col("finished_s") - CLEANUP_S).fill_null(value=False)
    lost = plan_pods.filter(pl.col("lost_s").is_not_null() & ~went_with_workload)
    # Count the lost pods by cause.
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
    causes = dict(signs.group_by(cause.alias("cause")).len().iter_rows())
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
    """Find the workloads that ended, by their own object, or by the pod itself where it has no controller.

    Returns: `index, well` (it succeeded), `finished_s`.

    `plan`: `index, name, kind, pods`. `transitions`: `resource, transition, workload, arrival_s`.
    `pods`: `index, ended_s, lost_s`.
    """
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


@dataclass(frozen=True)
class NodeLosses:
    """Nodes that took no pods.

    `first_s`: When the first of them was lost, seconds after the start; 0 for one that never took pods.
    `from_the_start`: All of them took no pods from the beginning to the end: less room, which is the same all the
    time.
    `gpus`: Least and most GPUs, or pieces of `resource`, to place pods on; null without any.
    """

    names: tuple[str, ...]
    n_nodes: int
    first_s: float
    from_the_start: bool
    lost_fraction: float
    gpus: tuple[int, int] | None
    resource: str = GPU

    @property
    def sentence(self) -> str:
        """Sentence on what was lost, when, and what was left."""
        when = "all the time" if self.from_the_start else f"from {self.first_s:.3g} s on, for a time at least"
        least, greatest = self.gpus or (0, 0)
        room = f"{least}" if least == greatest else f"{least} to {greatest}"
        named = name_resource(self.resource)
        remainder = f": there were {room} {named} to place pods on" if self.gpus else ""
        lost = f"{len(self.names)} of {self.n_nodes} nodes took no pods {when}"
        return f"{lost} ({_CLOSED} {named}: {format_items(self.names, MAX_NAMED)}){remainder}"


def find_node_losses(nodes: pl.DataFrame, changes: pl.DataFrame, end_s: float) -> NodeLosses | None:
    """Find the nodes that took no pods, or fewer, for a part of a run; null if there are none.

    A node that offers fewer GPUs than at another time lost a part of itself. A node that appeared during the run and
    offered all it has from then on is not lost.

    `nodes`: `name, gpus` of table NODES. `changes`: `at_s, name, ready, gpus` of table NODE_CHANGES.
    `end_s`: End of the run.

    >>> nodes = pl.DataFrame({"name": ["a", "b"], "gpus": [8, 8]})
    >>> changes = pl.DataFrame({"at_s": [0.0, 0.0, 60.0], "name": ["a", "b", "b"], "ready": [True, True, False]})
    >>> found = find_node_losses(nodes, changes.with_columns(gpus=8), end_s=100.0)
    >>> found.names, found.first_s, found.lost_fraction, found.gpus
    (('b',), 60.0, 0.2, (8, 16))
    """
    if not changes.height or end_s <= 0:
        return None
    weights = dict(nodes.select("name", pl.col("gpus").cast(pl.Float64)).iter_rows())
    has_gpus = any(weights.values())
    node_changes = changes.filter(pl.col("name").is_in(list(weights))).sort("at_s")
    lost: dict[str, tuple[float, float]] = {}  # since when, and for how long as a whole
    for (name,), node_rows in node_changes.group_by("name", maintain_order=True):
        rows = [
            (at_s, _lost_part(weights[str(name)], ready, gpus))
            for at_s, ready, gpus in node_rows.select("at_s", "ready", "gpus").iter_rows()
        ]
        spans = zip(rows, [*(at_s for at_s, _ in rows[1:]), max(end_s, rows[-1][0])], strict=True)
        away = [(max(0.0, at_s), max(0.0, until_s), part) for (at_s, part), until_s in spans if part > 0]
        came_late = rows[0][0] > FIRST_LIST_S and not rows[-1][1] and not any(begin > rows[0][0] for begin, *_ in away)
        total_s = sum((until_s - begin) * part for begin, until_s, part in away)
        if total_s > 0 and not came_late:
            lost[str(name)] = (away[0][0], total_s)
    if not lost:
        return None
    names = sorted(lost, key=lambda name: (lost[name][0], name))
    measure = {name: (weights[name] if has_gpus else 1.0) for name in weights}
    capacity_s = sum(measure.values()) * end_s
    return NodeLosses(
        tuple(names),
        len(weights),
        lost[names[0]][0],
        all(begin <= FIRST_LIST_S and total_s >= end_s - FIRST_LIST_S for begin, total_s in lost.values()),
        sum(measure[name] * min(total_s, end_s) for name, (_, total_s) in lost.items()) / capacity_s
        if capacity_s
        else 0.0,
        _count_usable_gpus(node_changes, end_s) if has_gpus else None,
    )


def find_losses_of_any(
    nodes: pl.DataFrame, changes: pl.DataFrame, end_s: float, resources: Iterable[str]
) -> NodeLosses | None:
    """Find the nodes that took no pods, or offered less of what the run's pods ask for; the resource that lost most.

    `nodes`, `changes`: Tables NODES and NODE_CHANGES. `resources`: Extended resources that the pods ask for.
    """
    losses = [find_node_losses(nodes, changes, end_s)]
    for name in resources:
        if name.endswith("/gpu") or not changes["offers"].is_not_null().any():
            continue
        amounts = [int(parse_amounts(offers or "").get(name, 0.0)) for offers in changes["offers"]]
        counted = changes.with_columns(pl.Series("gpus", amounts, dtype=pl.Int64))
        most = dict(counted.group_by("name").agg(pl.col("gpus").max()).iter_rows())
        offering = nodes.with_columns(pl.Series("gpus", [most.get(node, 0) for node in nodes["name"]], dtype=pl.Int64))
        found = find_node_losses(offering, counted, end_s)
        losses.append(None if found is None or found.gpus is None else dataclasses.replace(found, resource=name))
    return max((found for found in losses if found), key=lambda found: found.lost_fraction, default=None)


def correct_closed_nodes(changes: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Call nodes open that took pods of the run while they were said to take none: the pods tolerate what closed them.

    `changes`: Table NODE_CHANGES. `pods`: `node, scheduled_s`. A pod may be bound a moment after a node was closed.
    Nodes that were closed at about the same time were closed by the same.
    """
    bound = dict(
        pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("node").is_not_null())
        .group_by("node")
        .agg(pl.col("scheduled_s"))
        .iter_rows()
    )
    rows = changes.sort("at_s").with_columns(until_s=pl.col("at_s").shift(-1).over("name").fill_null(math.inf))
    took = [
        at_s
        for name, ready, at_s, until_s in rows.select("name", "ready", "at_s", "until_s").iter_rows()
        if not ready and any(at_s + FIRST_LIST_S < bound_s < until_s for bound_s in bound.get(name, ()))
    ]
    opened = [
        ready or any(abs(at_s - other_s) <= FIRST_LIST_S for other_s in took)
        for ready, at_s in rows.select("ready", "at_s").iter_rows()
    ]
    return rows.with_columns(pl.Series("ready", opened, dtype=pl.Boolean)).drop("until_s")


def _lost_part(gpus_at_most: float, ready: bool, gpus: int) -> float:
    """Part of a node that takes no pods."""
    if not ready:
        return 1.0
    return 1.0 - gpus / gpus_at_most if gpus_at_most else 0.0


def _count_usable_gpus(changes: pl.DataFrame, end_s: float) -> tuple[int, int]:
    """Smallest and largest number of GPUs on nodes that accepted pods, after the first list of all nodes.

    `changes`: `at_s, name, ready, gpus`, by time.

    >>> changes = pl.DataFrame({"at_s": [0.0, 0.0, 60.0], "name": ["a", "b", "b"], "ready": [True, True, False]})
    >>> _count_usable_gpus(changes.with_columns(gpus=8), end_s=100.0)
    (8, 16)
    """
    usable: dict[str, int] = {}
    seen: list[int] = []
    for at_s, name, ready, gpus in changes.select("at_s", "name", "ready", "gpus").iter_rows():
        usable[name] = gpus if ready else 0
        if at_s <= end_s:
            seen = [] if at_s <= FIRST_LIST_S else seen
            seen.append(sum(usable.values()))
    return min(seen, default=0), max(seen, default=0)
