"""The few figures that stand below the answer of each of the notebook's modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.display import KeyNumber

if TYPE_CHECKING:
    from workbench.speedup.calibrated import Calibrated
    from workbench.speedup.profile import Profile
    from workbench.speedup.qualify import Qualified
    from workbench.speedup.validation import Validation


def of_pair(calibrated: Calibrated, validation: Validation | None) -> list[KeyNumber]:
    """How much faster, of how many queries and operators, and how well left-out queries were predicted."""
    overall = calibrated.overall
    ends = (
        f"{overall.level:.0%} interval {overall.low:.2f} to {overall.high:.2f}"
        if overall.low is not None and overall.high is not None
        else "one session on a side: no interval"
    )
    numbers: list[KeyNumber] = [
        ("faster", overall.estimate, "×", ends),
        ("queries", calibrated.pairs.height, "", _verdicts(calibrated.pairs)),
        ("operators", calibrated.factors.height, "", _verdicts(calibrated.factors)),
    ]
    if validation is None:
        return numbers
    score = validation.scores.row(by_predicate=pl.col("predictor") == "calibrated", named=True)
    n = score["n_queries"]
    return [
        *numbers,
        ("error of left-out queries", score["mean_over_constant"], "×", "of the constant predictor's, mean log error"),
        ("intervals that held", f"{score['n_covered']} of {n}", "", f"{overall.level:.0%} prediction intervals"),
    ]


def _verdicts(frame: pl.DataFrame) -> str:
    counts = dict(frame.group_by("verdict").len().iter_rows())
    told = [f"{counts[name]} {name.lower()}" for name in ("FASTER", "SLOWER", "SAME", "UNDECIDED") if name in counts]
    return ", ".join(told)


def of_fleet(qualified: Qualified) -> list[KeyNumber]:
    """How much time is saved in all, by how many applications, and what that is worth."""
    applications = qualified.applications
    judged = applications.filter(pl.col("saved_s").is_not_null())
    cost = judged["saved_cost"].drop_nulls()
    numbers: list[KeyNumber] = [
        ("applications", applications.height, "", f"{applications.height - judged.height} not judged"),
        ("recommended", int((applications["recommendation"] == "recommended").sum()), "", "even at the low end"),
        ("time saved", float(judged["saved_s"].sum()), "s", f"of {float(judged['baseline_s'].sum()):,.1f} s"),
        ("operators at stake", qualified.operators_at_stake.height, "", "left on the CPU or without a factor"),
    ]
    return [*numbers, ("cost saved", float(cost.sum()), "", "in the currency of the prices")] if cost.len() else numbers


def of_profile(profile: Profile) -> list[KeyNumber]:
    """Wall time, task time, stages at once, queries, failures."""
    row = profile.overview.row(0, named=True)
    return [
        ("wall time", row["wall_time_s"], "s", f"{row['engine']}, Spark {row['spark_version']}"),
        ("task time", row["task_time_s"], "s", f"{row['n_tasks']:,} tasks"),
        ("stages at once", row["overlap_ratio"], "×", "stage time over busy time"),
        ("queries", row["n_queries"], "", f"{row['n_failed_queries']} failed"),
        ("failed tasks", row["n_failed_tasks"], "", f"of {row['n_tasks']:,}"),
    ]
