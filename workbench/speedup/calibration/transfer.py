"""Factors of one recording tried on another: another day, scale, suite or engine version, with totals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench import stats
from workbench.core.errors import InputError
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.pair_calibration import (
    BY_LOG,
    CALIBRATED,
    CONSTANT,
    CalibrationResult,
    build_validation_rows,
    measure_noise_variance,
    predict_by_constant,
    score_predictors,
)
from workbench.speedup.calibration.prediction import (
    predict_queries,
    read_candidate_plans,
    select_counted_runs,
    sum_query_errors,
)
from workbench.speedup.comparison.pair import Pair
from workbench.speedup.tables import LEAST_RATIO, VALIDATION


@dataclass(frozen=True)
class Transfer:
    """Tables `validation` and `scores` of one recording's factors on another's queries, and the total of its log.

    `total_s`: Predicted seconds of all queries, lower and upper end, and the measured ones.
    """

    validation: pl.DataFrame
    scores: pl.DataFrame
    total_s: tuple[float, float, float, float]

    @property
    def is_total_held(self) -> bool:
        """Whether the interval of the total holds the measured time."""
        _, low, high, actual = self.total_s
        return low <= actual <= high

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        ours = self.scores.row(by_predicate=pl.col("predictor") == CALIBRATED, named=True)
        predicted, low, high, actual = self.total_s
        held = "within" if self.is_total_held else "outside"
        return (
            f"Predictions of {ours['n_queries']} queries of the other recording have a mean absolute log error of"
            f" {ours['mean_absolute_log_error']:.3f}, {ours['mean_over_constant']:.2f}x that of the engine-wide factor"
            f" (interval {ours['mean_over_constant_low']:.2f} to {ours['mean_over_constant_high']:.2f}); intervals held"
            f" {ours['n_covered']} actual times. In all {predicted:.1f} s were predicted ({low:.1f} to {high:.1f}) and"
            f" {actual:.1f} s measured, {held} the interval."
        )


def try_on_other_recording(
    calibrated: CalibrationResult,
    other: Pair,
    measured: CalibrationResult,
    *,
    level: float = stats.LEVEL,
    threshold: float = LEAST_RATIO,
    seed: int = 0,
) -> Transfer:
    """How far off are factors on a recording that they know nothing of?

    `calibrated`: Gives the factors. `other`, `measured`: The other recording, and its own calibration, whose times of
    the candidate are the truth.

    Returns: Predictors as in `cross_validate`; the constant is the engine-wide factor of `calibrated`. Predictions are
    averaged over the other recording's sessions of the baseline.
    """
    side = select_counted_runs(other.measured, other.baseline)
    pairs = measured.pairs.sort("query")
    if not pairs.height:
        raise InputError("no query of the other recording can be compared", where=other.baseline)
    queries = pairs["query"].to_list()
    base, cand = pairs["baseline_s"].to_numpy(), pairs["candidate_s"].to_numpy()
    plans = read_candidate_plans(other.measured, other.candidate)
    frames = []
    with_plans, by_log = (predict_queries(calibrated.model, side, level=level, plans=known) for known in (plans, None))
    for predictor, predicted in ((CALIBRATED, with_plans), (BY_LOG, by_log)):
        # Ratio of each query and half width of its log, averaged over sessions.
        logs = predicted.group_by("query").agg(
            ratio=pl.col("ratio").log().mean(), half=((pl.col("ratio_high") / pl.col("ratio_low")).log() / 2).mean()
        )
        rows = pl.DataFrame({"query": queries}).join(logs, on="query", how="left", maintain_order="left")
        ratio, half = np.exp(rows["ratio"].to_numpy()), rows["half"].to_numpy()
        frames.append(build_validation_rows(predictor, queries, base, cand, base / ratio, half))
    own = calibrated.pairs
    log_ratio, half_width = predict_by_constant(np.log(own["ratio"].to_numpy()), level)
    constant = base / np.exp(log_ratio)
    frames.append(build_validation_rows(CONSTANT, queries, base, cand, constant, np.full(len(queries), half_width)))
    validation = VALIDATION.check(pl.concat(frames))
    scores = score_predictors(validation, level, seed, measure_noise_variance(measured), threshold)
    return Transfer(validation, scores, _sum_queries(calibrated.model, with_plans, pairs, level))


def _sum_queries(
    model: FactorModel, predicted: pl.DataFrame, pairs: pl.DataFrame, level: float
) -> tuple[float, float, float, float]:
    """Predicted seconds of a run of all queries with their interval, and the measured seconds; a mean over sessions."""
    of_pairs = predicted.filter(pl.col("query").is_in(pairs["query"].implode()))
    columns = ["predicted_s", "predicted_low_s", "predicted_high_s"]
    runs = of_pairs.with_columns(pl.col(columns) / pl.col("n_executions"))
    totals = []
    for _, session in runs.group_by("session"):
        below, above = sum_query_errors(session, model, level)
        total = float(session["predicted_s"].sum())
        totals.append((total, total - below, total + above))
    predicted_s, low, high = np.mean(totals, axis=0)
    return float(predicted_s), float(low), float(high), float(pairs["candidate_s"].sum())
