"""Invariants of the tables of a pair and of a fleet."""

from __future__ import annotations

import math

import polars as pl

from workbench.report.study import check_invariants
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.pair_calibration import CalibrationResult
from workbench.speedup.fleet.qualification import Qualification

# Largest share of an execution's wall time that its pieces may miss.
MAX_MISSING_SHARE = 0.01
ROUNDING = 1e-6


def check_pair(
    measured: Measured, calibrated: CalibrationResult, steps: pl.DataFrame, validation: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Check that parts add up, factors are finite and every figure lies in its own interval.

    `validation`: Table `validation`; null skips its invariant.

    Returns: One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.
    """
    factors, pairs = calibrated.factors, calibrated.pairs
    rows = [
        (
            "largest share of an execution's wall time that its pieces miss",
            _max_missing_share(measured),
            MAX_MISSING_SHARE,
        ),
        ("factors that are not finite and above 0", _count_not_finite(factors["factor"]), 0.0),
        (
            "shares of the baseline's time, distance of their sum from 1",
            _distance_from_one(factors["baseline_share"]),
            ROUNDING,
        ),
        (
            "shares of the candidate's time, distance of their sum from 1",
            _distance_from_one(factors["candidate_share"]),
            ROUNDING,
        ),
        (
            "factors outside their own interval",
            _count_outside_interval(factors, "factor", "factor_low", "factor_high"),
            0.0,
        ),
        ("ratios outside their own interval", _count_outside_interval(pairs, "ratio", "ratio_low", "ratio_high"), 0.0),
        ("ratios that are not baseline over candidate, relative distance", _max_ratio_deviation(pairs), ROUNDING),
        ("steps of a query, distance of their sum from its prediction, in s", _max_step_sum_deviation(steps), ROUNDING),
        (
            "predictions of a query outside their own interval",
            _count_outside_interval(steps, "end_s", "low_s", "high_s"),
            0.0,
        ),
    ]
    if validation is not None:
        outside = _count_outside_interval(validation, "predicted_s", "predicted_low_s", "predicted_high_s")
        rows.append(("predictions of left-out queries outside their own interval", outside, 0.0))
    return check_invariants(rows)


def check_fleet(qualified: Qualification) -> pl.DataFrame:
    """Check that the predictions of applications are consistent."""
    rows, queries = qualified.applications, qualified.predictions
    return check_invariants(
        [
            (
                "predictions outside their own interval",
                _count_outside_interval(rows, *_interval_columns("predicted_{}s")),
                0.0,
            ),
            (
                "ratios outside their own interval",
                _count_outside_interval(rows, "ratio", "ratio_low", "ratio_high"),
                0.0,
            ),
            (
                "predictions of queries outside their own interval",
                _count_outside_interval(queries, *_interval_columns("predicted_{}s")),
                0.0,
            ),
            ("time saved that is not baseline minus predicted, in s", _max_saved_deviation(rows), ROUNDING),
            (
                "predicted times that are not finite and above 0",
                _count_not_finite(rows["predicted_s"].drop_nulls()),
                0.0,
            ),
        ]
    )


def _interval_columns(name: str) -> tuple[str, str, str]:
    return name.format(""), name.format("low_"), name.format("high_")


def _max_saved_deviation(rows: pl.DataFrame) -> float:
    """Largest distance in seconds. `rows`: `baseline_s, predicted_s, saved_s`."""
    off = (pl.col("baseline_s") - pl.col("predicted_s") - pl.col("saved_s")).abs().max()
    return float(rows.select(off).item() or 0.0)


def _max_missing_share(measured: Measured) -> float:
    """Largest share of its wall time by which an execution's pieces are too short or too long."""
    key = ["label", "session", "sql_id"]
    parts = measured.pieces.group_by(key).agg(parts_s=pl.col("wall_s").sum())
    both = measured.executions.filter(pl.col("wall_s") > 0).join(parts, on=key, how="left")
    share = (pl.col("parts_s").fill_null(0.0) - pl.col("wall_s")).abs() / pl.col("wall_s")
    return float(both.select(share.max()).item() or 0.0)


def _count_not_finite(values: pl.Series) -> float:
    return float(sum(not (value is not None and math.isfinite(value) and value > 0) for value in values))


def _distance_from_one(shares: pl.Series) -> float:
    return abs(float(shares.sum()) - 1)


def _count_outside_interval(frame: pl.DataFrame, value: str, low: str, high: str) -> float:
    """Number of rows whose figure lies outside its interval.

    `frame`: Three columns of one unit, whose names are given.
    """
    inside = pl.col(value).is_between(pl.col(low) * (1 - ROUNDING), pl.col(high) * (1 + ROUNDING))
    return float(frame.filter(pl.col(low).is_not_null() & pl.col(high).is_not_null()).select((~inside).sum()).item())


def _max_ratio_deviation(pairs: pl.DataFrame) -> float:
    """Largest relative distance. `pairs`: `baseline_s, candidate_s, ratio`."""
    off = (pl.col("baseline_s") / pl.col("candidate_s") / pl.col("ratio") - 1).abs().max()
    return float(pairs.select(off).item() or 0.0)


def _max_step_sum_deviation(steps: pl.DataFrame) -> float:
    """Largest distance between a prediction and the baseline's time plus all steps.

    `steps`: Table STEPS.
    """
    walked = pl.col("time_s").filter(pl.col("kind").is_in(["baseline", "faster", "slower"])).sum()
    goal = pl.col("time_s").filter(pl.col("kind") == "predicted").sum()
    deviations = steps.group_by("query").agg(off=(walked - goal).abs())
    return float(deviations["off"].max() or 0.0)  # type: ignore[arg-type]
