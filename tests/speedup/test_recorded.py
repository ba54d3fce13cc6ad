"""The shipped pair, 22 queries on Spark and on Comet: measured, nothing planted."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from workbench.speedup.calibration import pair_calibration
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair
from workbench.speedup.comparison import pair

RECORDING = Path(__file__).parents[2] / "data/samples/speedup/tpch-sf1"


@lru_cache(maxsize=2)
def both(baseline: str, candidate: str) -> tuple[pair.Pair, CalibrationResult]:
    found = pair.load_recorded_pair(RECORDING, baseline, candidate)
    return found, calibrate_pair(found.measured, baseline, candidate)


def test_the_pair_is_whole_and_comparable() -> None:
    found, result = both("spark", "comet")
    assert not found.reasons
    assert len(result.queries) == 22
    assert (result.model.n_baseline_sessions, result.model.n_candidate_sessions) >= (5, 5)
    assert result.model.n_passes >= 2


def test_the_pieces_of_every_execution_add_up_to_its_wall_time_and_that_of_its_tasks() -> None:
    found, _ = both("spark", "comet")
    key = ["label", "session", "sql_id"]
    added = found.measured.pieces.group_by(key).agg(pl.col("wall_s", "task_s").sum().name.prefix("added_"))
    joined = found.measured.executions.join(added, on=key)
    assert joined.height == found.measured.executions.height >= 22 * 3 * 10
    assert np.allclose(joined["added_wall_s"], joined["wall_s"], rtol=0.01, atol=0)
    assert np.allclose(joined["added_task_s"], joined["task_s"], rtol=0.01)


def test_left_out_queries_are_predicted_better_than_by_the_constant() -> None:
    _, result = both("spark", "comet")
    scores = pair_calibration.cross_validate(result).scores
    ours = scores.row(by_predicate=pl.col("predictor") == "calibrated", named=True)
    constant = scores.row(by_predicate=pl.col("predictor") == "constant", named=True)
    assert ours["mean_over_constant"] <= 0.80
    assert ours["worst_over_constant"] <= 0.60
    assert 17 <= ours["n_covered"] <= 22
    assert ours["mean_log_width"] < constant["mean_log_width"]
    assert ours["n_direction_right"] >= constant["n_direction_right"]


def test_the_slower_direction_predicts_slower_wherever_that_was_told_apart() -> None:
    _, result = both("comet", "spark")
    found = pair_calibration.cross_validate(result).validation.filter(pl.col("predictor") == "calibrated")
    joined = found.join(result.pairs.select("query", "verdict"), on="query")
    slower = joined.filter(pl.col("verdict") == "SLOWER")
    assert slower.height >= 15
    assert (slower["predicted_s"] > slower["baseline_s"]).all()


@pytest.mark.parametrize(("baseline", "candidate"), [("spark", "comet"), ("comet", "spark")])
def test_factors_are_finite_and_shares_add_up(baseline: str, candidate: str) -> None:
    _, result = both(baseline, candidate)
    table = result.factors
    assert table["factor"].is_between(0.01, 100).all()
    assert table["baseline_share"].sum() == pytest.approx(1)
    assert table["candidate_share"].sum() == pytest.approx(1)
    assert (table["factor_low"] <= table["factor"]).all()
    assert (table["factor"] <= table["factor_high"]).all()
