"""Intervals of predictions know the noise of runs: by hand, on busy logs, and on sessions of the recording held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.fakes.planted import BASELINE, CANDIDATE, Design, planted
from tests.speedup.test_recorded import both
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.factors import FIRST_RUN_NOISE, WARM_RUN_NOISE
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair
from workbench.speedup.calibration.prediction import measure_run_noise, predict_queries
from workbench.speedup.summary import list_pair_key_numbers

FIRST, WARM = FIRST_RUN_NOISE.query_log_sd**2, WARM_RUN_NOISE.query_log_sd**2


def log_of(**runs: list[float]) -> Measured:
    """A log in which each query ran so often, so many seconds each; the first run of a query is cold."""
    rows = [
        {"label": "a", "session": "s", "query": query, "wall_s": wall_s, "cold": number == 0, "why_not": None}
        for query, times in runs.items()
        for number, wall_s in enumerate(times)
    ]
    schema = {"why_not": pl.String()}
    return Measured(pl.DataFrame(rows, schema_overrides=schema), pl.DataFrame())


def noise_of(log: Measured) -> dict[str, float]:
    return dict(measure_run_noise(log).select("query", "variance").iter_rows())


def test_noise_of_a_first_run_of_later_runs_and_of_their_sum() -> None:
    found = noise_of(log_of(once=[5.0], twice=[3.0, 1.0]))
    assert found["once"] == pytest.approx(FIRST)
    assert found["twice"] == pytest.approx(FIRST * 0.75**2 + WARM * 0.25**2)


def test_a_log_whose_repeated_runs_vary_more_has_their_noise() -> None:
    quiet = noise_of(log_of(a=[2.0] + [1.0] * 6, b=[1.0]))
    busy = noise_of(log_of(a=[2.0] + [1.0, 3.0] * 3, b=[1.0]))
    assert quiet["b"] == pytest.approx(FIRST)
    assert busy["b"] == pytest.approx(np.log([1.0, 3.0] * 3).var(ddof=1))
    few = noise_of(log_of(a=[2.0, 1.0, 3.0], b=[1.0]))
    assert few["b"] == pytest.approx(FIRST), "two runs do not show a log's noise"


def times_changed(measured: Measured, log_sd: float, seed: int = 0) -> Measured:
    """The same executions, each slowed down or sped up by chance, with their pieces."""
    key = ["label", "session", "sql_id"]
    draws = np.exp(np.random.default_rng(seed).normal(0, log_sd, measured.executions.height))
    by = measured.executions.select(*key, pl.Series("by", draws))
    pieces = measured.pieces.join(by, on=key, how="left", maintain_order="left")
    return replace(
        measured,
        executions=measured.executions.with_columns(wall_s=pl.col("wall_s") * by["by"]),
        pieces=pieces.with_columns(wall_s=pl.col("wall_s") * pl.col("by")).drop("by"),
    )


@pytest.fixture(scope="module")
def pair() -> tuple[Measured, CalibrationResult]:
    measured = planted(Design(n_queries=8, n_sessions=3), seed=4)
    return measured, calibrate_pair(measured, BASELINE, CANDIDATE)


def width(predictions: pl.DataFrame) -> float:
    return float((predictions["predicted_high_s"] / predictions["predicted_low_s"]).log().mean())  # type: ignore[arg-type]


def test_a_busy_log_and_a_busy_recording_give_wider_intervals(pair: tuple[Measured, CalibrationResult]) -> None:
    measured, calibrated = pair
    baseline = measured.select(pl.col("label") == BASELINE)
    plain = width(predict_queries(calibrated.model, baseline))
    assert width(predict_queries(calibrated.model, times_changed(baseline, 0.8))) > 1.3 * plain
    busy = calibrate_pair(times_changed(measured, 0.5), BASELINE, CANDIDATE)
    assert width(predict_queries(busy.model, baseline)) > 1.3 * plain


def test_the_noise_stands_among_the_key_numbers_without_a_validation(pair: tuple[Measured, CalibrationResult]) -> None:
    assert "noise of a query's ratio" in [number[0] for number in list_pair_key_numbers(pair[1], None)]


def held_out_errors(kind: str, seed: int) -> list[tuple[bool, float, float]]:
    """Sessions and queries of the shipped recording that factors did not see: held, log error and half width."""
    found, _ = both("spark", "comet")
    measured, draw = found.measured, np.random.default_rng(seed)
    queries = sorted(set(measured.executions["query"]))
    sessions = {
        label: draw.permutation(sorted(set(measured.select(pl.col("label") == label).executions["session"]))).tolist()
        for label in ("spark", "comet")
    }
    fitted = draw.choice(queries, 11, replace=False).tolist()
    own = measured.select(pl.col("session").is_in([name for names in sessions.values() for name in names[:3]]))
    model = calibrate_pair(own, "spark", "comet", queries=fitted).model
    base, cand = (
        measured.select(pl.col("session") == sessions[label][3], ~pl.col("query").is_in(fitted))
        for label in ("spark", "comet")
    )
    if kind == "first":
        base, cand = (side.select(pl.col("cold")) for side in (base, cand))
    actual = cand.executions.group_by("query").agg(actual_s=pl.col("wall_s").sum())
    joined = predict_queries(model, base).join(actual, on="query")
    error = np.log(joined["predicted_s"].to_numpy() / joined["actual_s"].to_numpy())
    half = np.log(joined["predicted_high_s"].to_numpy() / joined["predicted_s"].to_numpy())
    return list(zip((abs(error) <= half).tolist(), error.tolist(), half.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["first", "all"])
def test_intervals_hold_on_sessions_and_queries_that_were_held_out(kind: str) -> None:
    rows = [row for seed in range(4) for row in held_out_errors(kind, seed)]
    assert len(rows) == 44
    assert np.mean([held for held, _, _ in rows]) >= 0.85
    assert np.mean([half for _, _, half in rows]) < 1.0, "the constant's interval is not wider by much"
