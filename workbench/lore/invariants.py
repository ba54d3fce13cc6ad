"""Invariants of a dump, its replay and their tables; a broken one stops the notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.lore.replays.replay_variants import FIRST_LOOK_RUNS
from workbench.report.study import check_invariants

if TYPE_CHECKING:
    from workbench.lore.replays.replay_outcome import ReplayOutcome

ROUNDING_S = 1e-9


def check_outcome(outcome: ReplayOutcome, repeat: int, plan: pl.DataFrame | None = None) -> pl.DataFrame:
    """Check that the dump is complete, every run was timed, and every figure follows from its table.

    Different rows of a replay are a result, which makes the verdict, and not a broken invariant.

    `plan`: Table `tables.PLAN_TREE`; without it, its invariants are skipped.

    Returns: One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.
    """
    return check_invariants([*_check_plan(plan, outcome), *_check_dump(outcome), *_check_replay(outcome, repeat)])


def _check_plan(plan: pl.DataFrame | None, outcome: ReplayOutcome) -> list[tuple[str, float]]:
    """Count the violations of each rule for the plan's operators: pairs of rule and count; empty without a plan.

    `plan`: Table TREE of the plan, null if it is not known.
    """
    if plan is None:
        return []
    ids = plan["lore_id"].drop_nulls().to_list()
    plan_rows = plan.filter(lore_id=outcome.lore_id)
    named = outcome.inspection.dumps[0].operator
    return [
        ("ids from 0 on that are missing or duplicate", int(sorted(ids) != list(range(len(ids))))),
        ("operators with an id that is not larger than those of all below", _count_not_post_order(plan)),
        ("dumped operators with another name in the plan", int(plan_rows["operator"].to_list() != [named])),
    ]


def _count_not_post_order(plan: pl.DataFrame) -> int:
    """Count the operators whose id is not below that of their parent; `plan`: `position, parent, lore_id`.

    >>> plan = pl.DataFrame({"position": [0, 1], "parent": [None, 0], "lore_id": [1, 0]})
    >>> _count_not_post_order(plan)
    0
    """
    above = plan.select(parent="position", above="lore_id")
    both = plan.drop_nulls("lore_id").join(above, on="parent", how="inner")
    return both.filter(pl.col("lore_id") >= pl.col("above")).height


def _check_dump(outcome: ReplayOutcome) -> list[tuple[str, float]]:
    """Count the violations of each rule for a dump with plan.json: pairs of rule and count.

    Empty for the plugin's dumps.
    """
    if outcome.sidecar is None or outcome.replayed is None:
        return []
    by_input = {f"input-{entry.index}": entry for entry in outcome.sidecar.inputs}
    counted = outcome.partitions.group_by("input").agg(pl.col("n_rows").sum())
    rows = {name: count for name, count in counted.iter_rows() if name in by_input}
    off = sum(abs(rows.get(name, 0) - entry.n_rows) for name, entry in by_input.items())
    return [
        ("files of the dump that are missing or whose checksum differs", 0 if outcome.inspection.dumps[0].whole else 1),
        ("rows of inputs, difference of plan.json and the files", off),
        (
            "batches that only plan.json or only the folder has",
            outcome.count_missing_batches(),
        ),
    ]


def _check_replay(outcome: ReplayOutcome, repeat: int) -> list[tuple[str, float]]:
    """Count the violations of each rule for a replay's timings and rows: pairs of rule and count."""
    if outcome.replayed is None:
        return []
    timings, sides = outcome.timings, outcome.sides
    seen = outcome.replayed.verification
    rows: list[tuple[str, float]] = [
        ("timed runs that a side lacks", _count_missing_runs(timings, sides.height, repeat)),
        ("runs whose operator time is not total minus scan", _count_wrong_differences(timings)),
        (
            "sides whose figure is outside its own interval",
            _count_outside_interval(sides, "operator_s", "low_s", "high_s"),
        ),
        (
            "ratios outside of their own interval",
            _count_outside_interval(outcome.ratios, "speed_ratio", "low_ratio", "high_ratio"),
        ),
        ("PASS with another number of rows", int(seen["passed"] and seen["n_expected"] != seen["n_found"])),
    ]
    if outcome.sidecar is not None and seen["n_expected"] is not None:
        expected = sum(fingerprint.n_rows for fingerprint in outcome.sidecar.output.fingerprint.values())
        is_within = seen["n_expected"] <= expected
        rows.append(("rows compared beyond those of the dump", 0 if is_within else seen["n_expected"] - expected))
    if (compared := outcome.replayed.comparison) is not None:
        broken = bool(compared["equal"]) and compared["n_a"] != compared["n_b"]
        rows.append(("A and B called equal with different numbers of rows", int(broken)))
    return rows


def _count_missing_runs(timings: pl.DataFrame, n_sides: int, repeat: int) -> int:
    """Count the timed runs that one side has and another lacks; of few asked runs, also those that are missing.

    `timings`: Table TIMINGS. Of more asked runs, timing ends earlier where the time is tight or the budget spent.
    """
    runs = [*timings.group_by("side").len()["len"], *[0] * n_sides][:n_sides]
    wanted = max([*runs, repeat if repeat <= FIRST_LOOK_RUNS else 1])
    return sum(wanted - n_runs for n_runs in runs)


def _count_wrong_differences(timings: pl.DataFrame) -> int:
    off = (pl.col("total_s") - pl.col("scan_s") - pl.col("operator_s")).abs() > ROUNDING_S
    return timings.filter(off).height


def _count_outside_interval(frame: pl.DataFrame, value: str, low: str, high: str) -> int:
    """Count the rows whose figure is outside its interval."""
    slack = 1e-9
    inside = pl.col(value).is_between(pl.col(low) - slack, pl.col(high) + slack)
    return frame.drop_nulls([low, high]).filter(~inside).height
