"""Corrections learned from plans: found where they are planted, absent in noise, and neutral for a log's total."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.factor_model import FactorModel, PlanFeature
from workbench.speedup.calibration.pair_calibration import calibrate_pair
from workbench.speedup.calibration.prediction import predict_by_term, predict_queries, select_counted_runs
from workbench.speedup.calibration.time_split import (
    MIN_QUERIES,
    RIDGES,
    PlanCorrection,
    PlanFeatures,
    fit_plan_correction,
)
from workbench.speedup.comparison.pair import Pair, load_recorded_pair

NAMES = ("Exchange", "Filter", "log stages")


def made(seed: int, n: int = 60, effect: float = 0.0) -> tuple[PlanFeatures, np.ndarray]:
    draw = np.random.default_rng(seed)
    values = draw.normal(size=(n, len(NAMES)))
    return PlanFeatures(NAMES, values), effect * values[:, 0] + draw.normal(scale=0.2, size=n)


def test_a_planted_effect_is_found_with_its_size() -> None:
    features, errors = made(1, effect=0.3)
    correction, left = fit_plan_correction(features, errors)
    assert correction is not None
    per_unit = correction.coefficients / correction.deviation
    assert per_unit[0] == pytest.approx(0.3, abs=0.06)
    assert np.abs(per_unit[1:]).max() < 0.06
    assert np.sqrt((left**2).mean()) == pytest.approx(0.2, abs=0.04)
    assert np.corrcoef(correction.predict_errors(features), errors)[0, 1] > 0.7


def test_noise_teaches_nothing() -> None:
    found = [fit_plan_correction(*made(seed)) for seed in range(200)]
    assert sum(correction is not None for correction, _ in found) <= 10
    assert all(np.array_equal(left, made(seed)[1]) for seed, (one, left) in enumerate(found) if one is None)


def test_errors_that_are_left_are_those_of_refits_without_the_query() -> None:
    features, errors = made(3, n=MIN_QUERIES + 20, effect=1.0)
    correction, left = fit_plan_correction(features, errors)
    assert correction is not None
    # The same penalty as of all queries: the closed form holds for one that is fixed.
    best = min(RIDGES, key=lambda ridge: (_refit(features, errors, ridge) ** 2).mean())
    assert left == pytest.approx(_refit(features, errors, best), abs=1e-9)


def _refit(features: PlanFeatures, errors: np.ndarray, ridge: float) -> np.ndarray:
    """Left-out errors of ridge regressions with an intercept, refitted without each query at the same scale."""
    scaled = (features.values - features.values.mean(axis=0)) / features.values.std(axis=0)
    design = np.column_stack([np.ones(len(errors)), scaled])
    penalty = np.diag([0.0, *[ridge] * scaled.shape[1]])
    found = []
    for i in range(len(errors)):
        rest = np.arange(len(errors)) != i
        left = np.linalg.solve(design[rest].T @ design[rest] + penalty, design[rest].T @ errors[rest])
        found.append(errors[i] - design[i] @ left)
    return np.array(found)


def test_few_queries_teach_nothing() -> None:
    features, errors = made(4, n=MIN_QUERIES - 1, effect=2.0)
    assert fit_plan_correction(features, errors)[0] is None
    assert fit_plan_correction(None, made(4, effect=2.0)[1])[0] is None


def test_operators_of_other_plans_are_passed_over_and_missing_ones_count_none() -> None:
    features = PlanFeatures(("Window", "Filter"), np.array([[1.0, 2.0]]))
    assert features.align(["Filter", "Exchange"]).tolist() == [[2.0, 0.0]]


def test_far_features_are_bounded() -> None:
    correction = PlanCorrection(("Filter",), np.array([0.0]), np.array([1.0]), np.array([0.1]))
    far = PlanFeatures(("Filter",), np.array([[100.0], [-100.0]]))
    assert correction.predict_errors(far) == pytest.approx([0.3, -0.3])


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_recorded_pair(SAMPLES / "speedup" / "tpch-sf1")


@pytest.fixture(scope="module")
def side(pair: Pair) -> Measured:
    return select_counted_runs(pair.measured, pair.baseline)


@pytest.fixture(scope="module")
def model(pair: Pair) -> FactorModel:
    found = calibrate_pair(pair.measured, pair.baseline, pair.candidate).model
    assert found.correction == []
    learned = PlanFeature(name="Exchange", mean=1.5, deviation=0.5, coefficient=0.2)
    return found.model_copy(update={"correction": [learned]})


def test_a_correction_moves_time_between_the_queries_of_a_log_and_parts_still_add_up(
    model: FactorModel, side: Measured, tmp_path: Path
) -> None:
    plain = predict_queries(model.model_copy(update={"correction": []}), side)
    moved = predict_queries(FactorModel.model_validate_json(model.write(tmp_path / "f.json").read_text()), side)
    change = moved.select("session", change=(moved["predicted_s"] / plain["predicted_s"]).log())
    assert change["change"].std() > 0.05
    assert change.group_by("session").agg(pl.col("change").mean())["change"].abs().max() < 1e-9
    parts = predict_by_term(model, side).group_by("session", "query").agg(pl.col("baseline_s", "predicted_s").sum())
    both = moved.join(parts, on=["session", "query"], suffix="_parts")
    assert (both["baseline_s_parts"] / both["predicted_s_parts"]).to_list() == pytest.approx(both["ratio"].to_list())


def test_queries_of_another_suite_have_wider_intervals(model: FactorModel, side: Measured) -> None:
    own = predict_queries(model, side)
    other = predict_queries(model.model_copy(update={"queries": ["a", "b"]}), side)
    widths = [(one["predicted_high_s"] / one["predicted_low_s"]).log() for one in (own, other)]
    assert (widths[1] > widths[0] * 1.2).all()
    assert other["predicted_s"].to_list() == pytest.approx(own["predicted_s"].to_list())
