"""Do the tables of a pair, or of a fleet, agree? Each invariant with what was found; a broken one stops."""

from __future__ import annotations

import math

import polars as pl

from workbench.checks import held
from workbench.speedup.calibrated import Calibrated
from workbench.speedup.measured import Measured
from workbench.speedup.qualify import Qualified

# Of the wall time of an execution, what its parts may miss.
MOST_MISSING_SHARE = 0.01
ROUNDING = 1e-6


def check_pair(
    measured: Measured, calibrated: Calibrated, steps: pl.DataFrame, validation: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Do the parts add up, are factors finite, does every figure lie in its own interval?

    Parameters
    ----------
    measured, calibrated
        Both sides, and what was found from them.
    steps
        Table `steps` of the same factors.
    validation
        Table `validation`; null leaves its invariant out.

    Returns
    -------
    DataFrame
        One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.

    Raises
    ------
    InputError
        An invariant does not hold; the message names it with both figures.
    """
    factors, pairs = calibrated.factors, calibrated.pairs
    rows = [
        ("share of an execution's wall time that its parts miss, at most", _missing(measured), MOST_MISSING_SHARE),
        ("factors that are not finite and above 0", _not_finite(factors["factor"]), 0.0),
        ("shares of the baseline's time, distance of their sum from 1", _off_one(factors["baseline_share"]), ROUNDING),
        ("shares of the candidate's time, distance from 1", _off_one(factors["candidate_share"]), ROUNDING),
        ("factors outside their own interval", _outside(factors, "factor", "factor_low", "factor_high"), 0.0),
        ("ratios outside their own interval", _outside(pairs, "ratio", "ratio_low", "ratio_high"), 0.0),
        ("ratios that are not baseline over candidate, relative distance", _off_ratio(pairs), ROUNDING),
        ("steps of a query that do not lead to its prediction, in s", _off_way(steps), ROUNDING),
        ("predictions of a query outside their own interval", _outside(steps, "end_s", "low_s", "high_s"), 0.0),
    ]
    if validation is not None:
        outside = _outside(validation, "predicted_s", "predicted_low_s", "predicted_high_s")
        rows.append(("predictions of left-out queries outside their own interval", outside, 0.0))
    return held(rows)


def check_fleet(qualified: Qualified) -> pl.DataFrame:
    """Do the estimates of applications agree with each other?

    Returns
    -------
    DataFrame
        One row per invariant, as of `check_pair`.

    Raises
    ------
    InputError
        An invariant does not hold; the message names it with both figures.
    """
    rows, queries = qualified.applications, qualified.predictions
    return held(
        [
            ("predictions outside their own interval", _outside(rows, *_ends("predicted_{}s")), 0.0),
            ("ratios outside their own interval", _outside(rows, "ratio", "ratio_low", "ratio_high"), 0.0),
            ("predictions of queries outside their own interval", _outside(queries, *_ends("predicted_{}s")), 0.0),
            ("time saved that is not baseline minus predicted, in s", _off_saved(rows), ROUNDING),
            ("predicted times that are not finite and above 0", _not_finite(rows["predicted_s"].drop_nulls()), 0.0),
        ]
    )


def _ends(name: str) -> tuple[str, str, str]:
    return name.format(""), name.format("low_"), name.format("high_")


def _off_saved(rows: pl.DataFrame) -> float:
    off = (pl.col("baseline_s") - pl.col("predicted_s") - pl.col("saved_s")).abs().max()
    return float(rows.select(off).item() or 0.0)


def _missing(measured: Measured) -> float:
    """The largest share of its wall time that an execution's pieces miss or have too much."""
    key = ["label", "session", "sql_id"]
    parts = measured.pieces.group_by(key).agg(parts_s=pl.col("wall_s").sum())
    both = measured.executions.filter(pl.col("wall_s") > 0).join(parts, on=key, how="left")
    share = (pl.col("parts_s").fill_null(0.0) - pl.col("wall_s")).abs() / pl.col("wall_s")
    return float(both.select(share.max()).item() or 0.0)


def _not_finite(values: pl.Series) -> float:
    return float(sum(not (value is not None and math.isfinite(value) and value > 0) for value in values))


def _off_one(shares: pl.Series) -> float:
    return abs(float(shares.sum()) - 1)


def _outside(frame: pl.DataFrame, value: str, low: str, high: str) -> float:
    """How many rows with an interval have their figure outside of it."""
    inside = pl.col(value).is_between(pl.col(low) * (1 - ROUNDING), pl.col(high) * (1 + ROUNDING))
    return float(frame.filter(pl.col(low).is_not_null() & pl.col(high).is_not_null()).select((~inside).sum()).item())


def _off_ratio(pairs: pl.DataFrame) -> float:
    off = (pl.col("baseline_s") / pl.col("candidate_s") / pl.col("ratio") - 1).abs().max()
    return float(pairs.select(off).item() or 0.0)


def _off_way(steps: pl.DataFrame) -> float:
    """The largest distance between a prediction and the baseline's time with all steps."""
    walked = pl.col("time_s").filter(pl.col("kind").is_in(["baseline", "faster", "slower"])).sum()
    goal = pl.col("time_s").filter(pl.col("kind") == "predicted").sum()
    found = steps.group_by("query").agg(off=(walked - goal).abs())
    return float(found["off"].max() or 0.0)  # type: ignore[arg-type]
