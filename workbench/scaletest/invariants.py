"""Do the tables of a run agree with each other? Each invariant with what was found; a broken one stops.

Each compares what two different ways through the tables say of the same thing, so that each can fail.
"""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from workbench.checks import held
from workbench.scaletest.analysing import Analysis
from workbench.scaletest.shares import SEGMENTS, segments
from workbench.scaletest.sides import Sides
from workbench.scaletest.steps import STEPS_OF_A_WORKLOAD
from workbench.scaletest.tables import GAPS

ROUNDING_S = 1e-6
TOTAL = "due to scheduled"
# Bindings and ends come by several streams, which are out of order by moments.
SHORT_EXCESS_S = 1.0
SHORT_EXCESS_MOMENTS = 2
# After a watch was away, what happened meanwhile comes within so much.
GRACE_S = 0.1
# Both ends of these come from one watch. Those of the others may arrive in any order.
_ORDERED = [step.name for step in STEPS_OF_A_WORKLOAD if step.expected]


def check(found: Sides, comparison: pl.DataFrame) -> pl.DataFrame:
    """Is every workload counted once, does nothing end before it began, do the shares add up, is nothing over-claimed?

    Returns
    -------
    DataFrame
        One row per invariant over all runs: `check`, `found`, `allowed` (both at most), `holds`.

    Raises
    ------
    InputError
        An invariant does not hold; the message names it with both figures.
    """
    totals: dict[str, int] = {}
    for _, one in found.everything:
        for name, count in _of_run(one):
            totals[name] = totals.get(name, 0) + count
    totals |= dict(_of_comparison(comparison))
    return held(totals.items())


def _of_run(one: Analysis) -> list[tuple[str, int]]:
    client = one.steps.filter((pl.col("clock") == "client") & pl.col("step").is_in(_ORDERED))
    backwards = one.pods.filter(
        (pl.col("running_s") < pl.col("scheduled_s")) | (pl.col("scheduled_s") < pl.col("created_s"))
    )
    left = one.pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("ended_s").is_null()).height
    return [
        ("workloads that are counted twice or not at all", _miscounted(one)),
        ("steps that end before they begin, by one clock", client.filter(pl.col("duration_s") < -ROUNDING_S).height),
        ("pods that run before they are scheduled", backwards.height),
        ("more pods bound at the end than the plan has", max(0, left - int(one.schedule["pods"].sum()))),
        ("moments with more GPUs allocated than there are", _excess(one.gpus, one.raw(GAPS))),
        ("gangs that count as complete and never were", _claimed_gangs(one)),
        ("segments that do not add up to the time from due to the end", _gone(one)),
        ("shares that do not add up to one", sum(_not_one(one.shares[name]) for name in ("share", "tail_share"))),
    ]


def _miscounted(one: Analysis) -> int:
    """The total's quantiles must count each accepted workload once, scheduled or not."""
    if one.imported:
        return 0
    accepted = one.submissions.filter(pl.col("status").is_in(["created", "known"])).height
    counted = {row["clock"]: int(row["n"]) for row in one.quantiles.filter(pl.col("step") == TOTAL).to_dicts()}
    best = next((counted[clock] for clock in ("client", "mixed") if clock in counted), 0)
    return abs(best - accepted)


def _excess(gpus: pl.DataFrame, gaps: pl.DataFrame) -> int:
    """Moments of every excess that is no matter of streams that are out of order, or of a watch that was away."""
    at = gpus["at_s"].to_numpy()
    over = (gpus["allocated"] > gpus["capacity"] + 1e-6).to_numpy().copy()
    for begin, end in gaps.filter(pl.col("resource") == "pod").select("from_s", "to_s").iter_rows():
        over &= ~((at >= begin) & (at <= end + GRACE_S))
    edges = np.diff(np.concatenate([[0], over.astype(int), [0]]))
    found = 0
    for first, after in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        if at[after - 1] - at[first] >= SHORT_EXCESS_S and after - first > SHORT_EXCESS_MOMENTS:
            found += int(after - first)
    return found


def _claimed_gangs(one: Analysis) -> int:
    """Complete is a gang only if all its pods are bound at the moment that is given for it."""
    claimed = one.gangs.filter(pl.col("complete")).select("index", pl.col("pods").alias("needed"), "complete_s")
    bound = one.pods.join(claimed, on="index", how="inner").filter(
        (pl.col("scheduled_s") <= pl.col("complete_s"))
        & (pl.col("ended_s").is_null() | (pl.col("ended_s") > pl.col("complete_s")) | _at_once())
    )
    level = bound.group_by("index").agg(pl.col("uid").n_unique().alias("level"))
    short = claimed.join(level, on="index", how="left").filter(pl.col("level").fill_null(0) < pl.col("needed"))
    more = one.gangs.filter(
        (pl.col("scheduled") > pl.col("pods")) | (pl.col("complete_s").is_null() & pl.col("complete"))
    )
    return short.height + more.height


def _at_once() -> pl.Expr:
    """Found bound and ended in one list, at the moment that is asked for."""
    return (pl.col("scheduled_s") == pl.col("complete_s")) & (pl.col("ended_s") <= pl.col("scheduled_s"))


def _gone(one: Analysis) -> int:
    """The means of the segments against the latest of their ends, taken from the milestones of the same workloads."""
    if not one.shares.height:
        return 0
    cut = segments(one.milestones)
    ends = [milestone for milestone, segment in SEGMENTS.items() if segment in cut.columns]
    own = one.milestones.join(cut, on="index", how="semi")
    due = own.filter(pl.col("milestone") == "due").select("index", pl.col("client_s").alias("due_s"))
    last = (
        own.filter(pl.col("milestone").is_in([*ends, "all running"]))
        .group_by("index")
        .agg(pl.col("client_s").max().alias("last_s"))
    )
    took = due.join(last, on="index").select((pl.col("last_s") - pl.col("due_s")).clip(0.0).mean()).item()
    parts = math.fsum(one.shares["mean_s"].to_list())
    return int(took is None or abs(parts - took) > ROUNDING_S * max(1.0, took))


def _not_one(shares: pl.Series) -> bool:
    known = shares.drop_nulls()
    return len(known) > 0 and abs(float(known.sum()) - 1) > 1e-6


def _of_comparison(comparison: pl.DataFrame) -> list[tuple[str, int]]:
    """A claim without an interval is one too many, too."""
    claims = comparison.filter(pl.col("verdict").is_in(["FASTER", "SLOWER"]))
    faster = claims.filter((pl.col("verdict") == "FASTER") & (pl.col("low").fill_null(0.0) <= 1))
    slower = claims.filter((pl.col("verdict") == "SLOWER") & (pl.col("high").fill_null(math.inf) >= 1))
    return [
        ("claims whose interval holds one", faster.height + slower.height),
        ("claims from one run a side", claims.filter(pl.col("n") < 2).height),
    ]
