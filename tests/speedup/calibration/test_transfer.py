"""Factors of one recording on another: the truth is the other's own times, and nothing of it is known before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair, cross_validate
from workbench.speedup.calibration.transfer import Transfer, try_on_other_recording
from workbench.speedup.comparison.pair import Pair, load_recorded_pair


def load(name: str) -> tuple[Pair, CalibrationResult]:
    pair = load_recorded_pair(SAMPLES / "speedup" / name)
    return pair, calibrate_pair(pair.measured, pair.baseline, pair.candidate)


@pytest.fixture(scope="module")
def tpch() -> tuple[Pair, CalibrationResult]:
    return load("tpch-sf1")


@pytest.fixture(scope="module")
def carried(tpch: tuple[Pair, CalibrationResult]) -> Transfer:
    return try_on_other_recording(tpch[1], *load("tpcds-sf0.05"))


def test_every_predictor_predicts_every_query_of_the_other_recording(carried: Transfer) -> None:
    assert carried.validation.group_by("predictor", maintain_order=True).len().rows() == [
        ("calibrated", 24),
        ("log alone", 24),
        ("constant", 24),
    ]
    assert carried.validation.null_count().sum_horizontal().item() == 0
    constant = carried.validation.filter(pl.col("predictor") == "constant")
    assert (constant["baseline_s"] / constant["predicted_s"]).n_unique() <= 24
    ratios = (constant["baseline_s"] / constant["predicted_s"]).to_numpy()
    assert ratios == pytest.approx(ratios[0])


def test_the_total_is_told_with_its_interval_and_whether_it_held(carried: Transfer) -> None:
    predicted, low, high, actual = carried.total_s
    assert low < predicted < high
    assert actual == pytest.approx(
        carried.validation.filter(pl.col("predictor") == "constant")["actual_s"].sum(), rel=1e-9
    )
    assert carried.is_total_held is (low <= actual <= high)
    assert ("within the interval" in carried.answer) is carried.is_total_held
    missed = replace(carried, total_s=(predicted, low, high, 2 * high))
    assert "outside the interval" in missed.answer


def test_on_its_own_recording_it_is_better_than_left_out(tpch: tuple[Pair, CalibrationResult]) -> None:
    pair, calibrated = tpch
    own = try_on_other_recording(calibrated, pair, calibrated)
    left_out = cross_validate(calibrated)
    errors = [scores["mean_absolute_log_error"][0] for scores in (own.scores, left_out.scores)]
    assert errors[0] < errors[1]
    assert own.is_total_held


def test_a_candidate_that_became_slower_since_is_seen(tpch: tuple[Pair, CalibrationResult]) -> None:
    pair, calibrated = tpch
    slow = pl.when(pl.col("label") == pair.candidate).then(2.0).otherwise(1.0)
    pieces = pair.measured.pieces.with_columns(pl.col("wall_s") * slow)
    executions = pair.measured.executions.with_columns(pl.col("wall_s") * slow)
    later = replace(pair, measured=replace(pair.measured, executions=executions, pieces=pieces))
    measured = calibrate_pair(later.measured, later.baseline, later.candidate)
    transfer = try_on_other_recording(calibrated, later, measured)
    bias = transfer.validation.filter(pl.col("predictor") == "calibrated")["log_error"].mean()
    assert bias == pytest.approx(-np.log(2), abs=0.05)
    assert not transfer.is_total_held
