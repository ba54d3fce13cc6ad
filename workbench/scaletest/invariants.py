"""Invariants of a scale-test study: checks that the tables of its runs agree with each other.

Each compares two independent computations of the same quantity, so that each can fail.
"""

from __future__ import annotations

import math

import polars as pl

from workbench.report.study import check_invariants
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.stage_waits import list_runs
from workbench.scaletest.analysis.time_breakdown import SEGMENTS, WORKLOAD_STEPS, build_segments
from workbench.scaletest.analysis.variants import Variants
from workbench.scaletest.tables import GAPS
from workbench.stats.verdicts import DIFFERENT, FASTER, SLOWER

ROUNDING_S = 1e-6
TOTAL = "due to scheduled"
# Bindings and ends arrive on several streams, which are slightly out of order.
SHORT_EXCESS_S = 1.0
SHORT_EXCESS_MOMENTS = 2
# After an absence of a watch, the changes during it arrive within this time.
GRACE_S = 0.1
# Steps whose two ends come from one watch; the ends of others may arrive in any order.
_ORDERED = [step.name for step in WORKLOAD_STEPS if step.expected]


def check_variants(variants: Variants, comparison: pl.DataFrame) -> pl.DataFrame:
    """Check that workloads count once, times are ordered, shares add up, and verdicts have intervals.

    Returns: One row per invariant over all runs: `check`, `found`, `allowed` (both at most), `holds`.
    """
    totals: dict[str, int] = {}
    for _, run in variants.everything:
        for name, count in _check_run(run):
            totals[name] = totals.get(name, 0) + count
    totals |= dict(_check_comparison(comparison))
    return check_invariants(totals.items())


def _check_run(run: Analysis) -> list[tuple[str, int]]:
    """Count the violations of each rule that a run's tables must keep: pairs of rule and count."""
    client = run.steps.filter((pl.col("clock") == "client") & pl.col("step").is_in(_ORDERED))
    backwards = run.pods.filter(
        (pl.col("running_s") < pl.col("scheduled_s")) | (pl.col("scheduled_s") < pl.col("created_s"))
    )
    n_bound = run.pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("ended_s").is_null()).height
    return [
        ("workloads that are counted twice or not at all", _count_miscounts(run)),
        ("steps that end before they begin, by one clock", client.filter(pl.col("duration_s") < -ROUNDING_S).height),
        ("pods that run before they are scheduled", backwards.height),
        ("more pods bound at the end than the plan has", max(0, n_bound - int(run.schedule["pods"].sum()))),
        ("moments with more GPUs in use than exist", _count_excess_moments(run.gpus, run.read_raw_table(GAPS))),
        ("gangs that count as complete and never were", _count_wrong_gangs(run)),
        ("segments that do not add up to the time from due to the end", _count_share_mismatches(run)),
        ("shares that do not add up to one", sum(_is_not_one(run.shares[name]) for name in ("share", "tail_share"))),
    ]


def _count_miscounts(run: Analysis) -> int:
    """Accepted workloads that the total's quantiles count twice or not at all."""
    if run.imported:
        return 0
    accepted = run.submissions.filter(pl.col("status").is_in(["created", "known"])).height
    counted = {row["clock"]: int(row["n"]) for row in run.quantiles.filter(pl.col("step") == TOTAL).to_dicts()}
    best = next((counted[clock] for clock in ("client", "mixed") if clock in counted), 0)
    return abs(best - accepted)


def _count_excess_moments(gpus: pl.DataFrame, gaps: pl.DataFrame) -> int:
    """Count moments with more GPUs held than exist, which neither late events nor an interrupted watch explain.

    `gpus`, `gaps`: Tables GPUS and GAPS.
    """
    at = gpus["at_s"].to_numpy()
    held = gpus["allocated"] + gpus["held_by_others"].fill_null(0.0)
    over = (held > gpus["capacity"] + 1e-6).to_numpy().copy()
    for begin, end in gaps.filter(pl.col("resource") == "pod").select("from_s", "to_s").iter_rows():
        over &= ~((at >= begin) & (at <= end + GRACE_S))
    return sum(
        after - first
        for first, after in list_runs(over)
        if at[after - 1] - at[first] >= SHORT_EXCESS_S and after - first > SHORT_EXCESS_MOMENTS
    )


def _count_wrong_gangs(run: Analysis) -> int:
    """Gangs marked complete whose pods are not all bound at the given moment."""
    claimed = run.gangs.filter(pl.col("complete")).select("index", pl.col("pods").alias("needed"), "complete_s")
    bound = run.pods.join(claimed, on="index", how="inner").filter(
        (pl.col("scheduled_s") <= pl.col("complete_s"))
        & (
            pl.col("ended_s").is_null()
            | (pl.col("ended_s") > pl.col("complete_s"))
            | ((pl.col("scheduled_s") == pl.col("complete_s")) & (pl.col("ended_s") <= pl.col("scheduled_s")))
        )
    )
    level = bound.group_by("index").agg(pl.col("uid").n_unique().alias("level"))
    short = claimed.join(level, on="index", how="left").filter(pl.col("level").fill_null(0) < pl.col("needed"))
    more = run.gangs.filter(
        (pl.col("scheduled") > pl.col("pods")) | (pl.col("complete_s").is_null() & pl.col("complete"))
    )
    return short.height + more.height


def _count_share_mismatches(run: Analysis) -> int:
    """Whether the means of the segments differ from the latest of their ends, for the same workloads."""
    if not run.shares.height:
        return 0
    cut = build_segments(run.milestones)
    ends = [milestone for milestone, segment in SEGMENTS.items() if segment in cut.columns]
    milestones = run.milestones.join(cut, on="index", how="semi")
    due = milestones.filter(pl.col("milestone") == "due").select("index", pl.col("client_s").alias("due_s"))
    last = (
        milestones.filter(pl.col("milestone").is_in([*ends, "all running"]))
        .group_by("index")
        .agg(pl.col("client_s").max().alias("last_s"))
    )
    took = due.join(last, on="index").select((pl.col("last_s") - pl.col("due_s")).clip(0.0).mean()).item()
    parts = math.fsum(run.shares["mean_s"].to_list())
    return int(took is None or abs(parts - took) > ROUNDING_S * max(1.0, took))


def _is_not_one(shares: pl.Series) -> bool:
    values = shares.drop_nulls()
    return len(values) > 0 and abs(float(values.sum()) - 1) > 1e-6


def _check_comparison(comparison: pl.DataFrame) -> list[tuple[str, int]]:
    """Count unproven verdicts FASTER or SLOWER: the interval includes 1 or is missing, or there is only one run.

    `comparison`: Table COMPARISON.
    """
    claims = comparison.filter(pl.col("verdict").is_in(DIFFERENT))
    faster = claims.filter((pl.col("verdict") == FASTER) & (pl.col("low").fill_null(0.0) <= 1))
    slower = claims.filter((pl.col("verdict") == SLOWER) & (pl.col("high").fill_null(math.inf) >= 1))
    return [
        ("claims whose interval holds one", faster.height + slower.height),
        ("claims from one run a side", claims.filter(pl.col("n") < 2).height),
    ]
