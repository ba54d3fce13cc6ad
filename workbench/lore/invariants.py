"""Do a dump, its replay and their tables agree? Each invariant with what was found; a broken one stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.checks import held

if TYPE_CHECKING:
    from workbench.lore.outcome import Outcome

ROUNDING_S = 1e-9


def check_outcome(found: Outcome, repeat: int, plan: pl.DataFrame | None = None) -> pl.DataFrame:
    """Is everything that was dumped there, was every run timed, does every figure follow from its table?

    That a replay gives other rows than the original is a result and no broken invariant: it makes the verdict.

    Parameters
    ----------
    found
        The dump and its replay.
    repeat
        Timed runs of each side that were asked for.
    plan
        Table `picking.TREE`; null leaves its invariants out.

    Returns
    -------
    DataFrame
        One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.

    Raises
    ------
    InputError
        An invariant does not hold; the message names it with both figures.
    """
    return held([*_of_plan(plan, found), *_of_dump(found), *_of_replay(found, repeat)])


def _of_plan(plan: pl.DataFrame | None, found: Outcome) -> list[tuple[str, float]]:
    if plan is None:
        return []
    ids = plan["lore_id"].drop_nulls().to_list()
    known = plan.filter(lore_id=found.lore_id)
    named = found.inspection.dumps[0].operator
    return [
        ("ids from 0 on that are missing or stand twice", int(sorted(ids) != list(range(len(ids))))),
        ("operators with an id that is not larger than those of all below", _not_post_order(plan)),
        ("dumped operators that the plan names otherwise", int(known["operator"].to_list() != [named])),
    ]


def _not_post_order(plan: pl.DataFrame) -> int:
    above = plan.select(parent="position", above="lore_id")
    both = plan.drop_nulls("lore_id").join(above, on="parent", how="inner")
    return both.filter(pl.col("lore_id") >= pl.col("above")).height


def _of_dump(found: Outcome) -> list[tuple[str, float]]:
    """Of a dump of ours; one of the plugin's promises nothing to hold it against."""
    if found.sidecar is None or found.replayed is None:
        return []
    by_input = {f"input-{entry.index}": entry for entry in found.sidecar.inputs}
    counted = found.partitions.group_by("input").agg(pl.col("n_rows").sum())
    rows = {name: count for name, count in counted.iter_rows() if name in by_input}
    off = sum(abs(rows.get(name, 0) - entry.n_rows) for name, entry in by_input.items())
    return [
        ("files of the dump that are missing or whose checksum differs", 0 if found.inspection.dumps[0].whole else 1),
        ("rows of inputs that plan.json and the files count differently", off),
        ("batches that plan.json promises and that are not there, or the other way round", found.batches_off()),
    ]


def _of_replay(found: Outcome, repeat: int) -> list[tuple[str, float]]:
    if found.replayed is None:
        return []
    timings, sides = found.timings, found.sides
    seen = found.replayed.verification
    rows: list[tuple[str, float]] = [
        ("runs that were asked for and not timed, or too many", abs(timings.height - repeat * sides.height)),
        ("runs whose operator time is not total minus scan", _off_difference(timings)),
        ("sides whose figure lies outside of its own interval", _outside(sides, "operator_s", "low_s", "high_s")),
        ("ratios outside of their own interval", _outside(found.ratios, "speed_ratio", "low_ratio", "high_ratio")),
        ("PASS with another number of rows", int(seen["passed"] and seen["n_expected"] != seen["n_found"])),
    ]
    if found.sidecar is not None and seen["n_expected"] is not None:
        expected = sum(one.n_rows for one in found.sidecar.output.fingerprint.values())
        whole = seen["n_expected"] <= expected
        rows.append(
            ("rows compared beyond those that the dump promises", 0 if whole else seen["n_expected"] - expected)
        )
    if (compared := found.replayed.comparison) is not None:
        broken = bool(compared["equal"]) and compared["n_a"] != compared["n_b"]
        rows.append(("A and B called equal with different numbers of rows", int(broken)))
    return rows


def _off_difference(timings: pl.DataFrame) -> int:
    off = (pl.col("total_s") - pl.col("scan_s") - pl.col("operator_s")).abs() > ROUNDING_S
    return timings.filter(off).height


def _outside(frame: pl.DataFrame, value: str, low: str, high: str) -> int:
    """Rows with an interval whose figure is outside of it."""
    slack = 1e-9
    inside = pl.col(value).is_between(pl.col(low) - slack, pl.col(high) + slack)
    return frame.drop_nulls([low, high]).filter(~inside).height
