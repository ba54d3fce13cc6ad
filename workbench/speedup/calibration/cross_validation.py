"""Validation by left-out queries: errors of the calibrated, constant and seed predictors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench import stats
from workbench.core.errors import InputError
from workbench.speedup import tables
from workbench.speedup.calibration.factors import FIRST_RUN_NOISE, predict_left_out_queries
from workbench.speedup.calibration.pair_calibration import CalibrationResult
from workbench.speedup.calibration.time_split import Floats

CALIBRATED, CONSTANT, SEED = "calibrated", "constant", "seed"
MIN_QUERIES = 4
N_BOOTSTRAP_DRAWS = 5000


@dataclass(frozen=True)
class CrossValidation:
    """Tables `validation` (by predictor and query) and `scores` (by predictor)."""

    validation: pl.DataFrame
    scores: pl.DataFrame

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        ours = self.scores.row(by_predicate=pl.col("predictor") == CALIBRATED, named=True)
        name = "" if ours["skill"] is None else f" and skill {ours['skill']:.2f}"
        beside = f"{ours['mean_over_constant_low']:.2f} to {ours['mean_over_constant_high']:.2f}"
        return (
            f"Predictions of {ours['n_queries']} left-out queries have a mean absolute log error of"
            f" {ours['mean_absolute_log_error']:.3f}, {ours['mean_over_constant']:.2f}x that of the constant predictor"
            f" (interval {beside}){name}. The worst is {ours['worst_absolute_log_error']:.2f} ({ours['worst_query']}),"
            f" {ours['worst_over_constant']:.2f}x its worst; intervals held {ours['n_covered']} of {ours['n_queries']}"
            " actual times."
        )


def cross_validate(
    calibrated: CalibrationResult,
    *,
    seed_ratios: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
    seed: int = 0,
) -> CrossValidation:
    """Errors of each predictor for queries that it was not fitted to.

    `seed_ratios`: Speedups by query that the seed method estimates without that query; null leaves the seed method
    out.

    Returns: For the calibrated method, the constant predictor (geometric mean of the other queries' ratios, with the
    t prediction interval of their logs) and, where given, the seed method.

    Every choice is made inside the fold: prices, factors, the weight of time, and the width of the interval (t on the
    root mean square log error of the other queries, each left out in turn). The intervals of the scores come from a
    bootstrap over queries, with the same draws for all predictors. `skill` is 1 - (m - v) / (c - v), with m and c the
    mean square log errors of the predictor and of the constant one, and v the variance of a query's mean log ratio
    from session to session, which nothing can predict; null where v is unknown, or as large as c.
    """
    queries = list(calibrated.queries)
    if len(queries) < MIN_QUERIES:
        raise InputError("too few queries to leave one out", found=len(queries), allowed=f"{MIN_QUERIES} or more")
    base, cand = calibrated.pairs["baseline_s"].to_numpy(), calibrated.pairs["candidate_s"].to_numpy()
    predictions = predict_left_out_queries(
        calibrated.pieces, calibrated.baseline, calibrated.candidate, queries, calibrated.model.groups
    )
    half = _t_quantile(level, len(queries) - 2) * predictions["log_sd"].to_numpy()
    frames = [
        _build_validation_rows(
            CALIBRATED,
            queries,
            base,
            cand,
            predictions["predicted_s"].to_numpy(),
            half,
            predictions["time_weight"].to_list(),
        )
    ]
    frames.append(_build_validation_rows(CONSTANT, queries, base, cand, *_predict_constant(base, cand, level)))
    if seed_ratios:
        has_seed = [query in seed_ratios for query in queries]
        names = [query for query, there in zip(queries, has_seed, strict=True) if there]
        ratios = np.array([seed_ratios[query] for query in names])
        frames.append(_build_validation_rows(SEED, names, base[has_seed], cand[has_seed], base[has_seed] / ratios))
    validation = tables.VALIDATION.check(pl.concat(frames))
    return CrossValidation(validation, _score_predictors(validation, level, seed, measure_noise_variance(calibrated)))


def measure_noise_variance(calibrated: CalibrationResult) -> float | None:
    """Variance of a query's mean log ratio from session to session, averaged over queries.

    Where a side has one session it comes from `FIRST_RUN_NOISE`, or is unknown (null) for warm runs.
    """
    logs = calibrated.pieces.keys.filter(pl.col("query").is_in(calibrated.queries)).with_columns(pl.col("wall_s").log())
    total = 0.0
    for label in (calibrated.baseline, calibrated.candidate):
        side = logs.filter(pl.col("label") == label).group_by("query").agg(v=pl.col("wall_s").var(), n=pl.len())
        if (side["n"] >= 2).any():
            variance = side.filter(pl.col("n") >= 2).select((pl.col("v") / pl.col("n")).mean()).item()
        elif calibrated.first_runs:
            variance = FIRST_RUN_NOISE.query_log_sd**2 + FIRST_RUN_NOISE.session_log_sd**2
        else:
            return None
        total += float(variance)
    return total


def _t_quantile(level: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(degrees, 1), (1 + level) / 2))


def _predict_constant(base: Floats, cand: Floats, level: float) -> tuple[Floats, Floats]:
    """The constant predictor: the mean of the other log ratios, with the half widths of its prediction interval."""
    logs = np.log(base) - np.log(cand)
    n = len(logs) - 1
    others = [np.delete(logs, i) for i in range(len(logs))]
    predicted = np.array([base[i] / np.exp(other_logs.mean()) for i, other_logs in enumerate(others)])
    half = np.array([_t_quantile(level, n - 1) * other_logs.std(ddof=1) * np.sqrt(1 + 1 / n) for other_logs in others])
    return predicted, half


def _build_validation_rows(
    predictor: str,
    queries: list[str],
    base: Floats,
    cand: Floats,
    predicted: Floats,
    half: Floats | None = None,
    time_weight: list[float] | None = None,
) -> pl.DataFrame:
    log_error = np.log(predicted) - np.log(cand)
    none = [None] * len(queries)
    return tables.VALIDATION.frame(
        {
            "predictor": [predictor] * len(queries),
            "query": queries,
            "baseline_s": base.tolist(),
            "actual_s": cand.tolist(),
            "predicted_s": predicted.tolist(),
            "predicted_low_s": none if half is None else (predicted * np.exp(-half)).tolist(),
            "predicted_high_s": none if half is None else (predicted * np.exp(half)).tolist(),
            "log_error": log_error.tolist(),
            "absolute_error_share": (np.abs(predicted - cand) / cand).tolist(),
            "covered": none if half is None else (np.abs(log_error) <= half).tolist(),
            "direction_right": ((predicted < base) == (cand < base)).tolist(),
            "time_weight": none if time_weight is None else time_weight,
        }
    )


def _score_predictors(validation: pl.DataFrame, level: float, seed: int, noise_variance: float | None) -> pl.DataFrame:
    constant = validation.filter(pl.col("predictor") == CONSTANT)
    reference = constant["log_error"].abs()
    rows = []
    for (predictor,), frame in validation.group_by("predictor", maintain_order=True):
        errors = frame["log_error"].abs()
        beside = frame.select("query").join(constant, on="query", how="left")["log_error"].abs()
        low, high, ratio_low, ratio_high = _bootstrap_error_intervals(errors.to_numpy(), beside.to_numpy(), level, seed)
        mean_square, reference_square = (
            float((log_errors**2).mean()) for log_errors in (errors.to_numpy(), beside.to_numpy())
        )
        widths = (frame["predicted_high_s"] / frame["predicted_low_s"]).log()
        rows.append(
            {
                "predictor": predictor,
                "n_queries": frame.height,
                "mean_absolute_log_error": errors.mean(),
                "mean_low": low,
                "mean_high": high,
                "mean_over_constant": float(errors.mean()) / float(beside.mean()),  # type: ignore[arg-type]
                "mean_over_constant_low": ratio_low,
                "mean_over_constant_high": ratio_high,
                "worst_absolute_log_error": errors.max(),
                "worst_over_constant": float(errors.max()) / float(reference.max()),  # type: ignore[arg-type]
                "worst_query": frame["query"][int(errors.arg_max() or 0)],
                "mean_squared_log_error": mean_square,
                "noise_variance": noise_variance,
                "skill": compute_skill(mean_square, reference_square, noise_variance),
                "median_absolute_error_share": frame["absolute_error_share"].median(),
                "n_covered": None if frame["covered"].null_count() else int(frame["covered"].sum()),
                "mean_log_width": widths.mean(),
                "n_direction_right": int(frame["direction_right"].sum()),
            }
        )
    return tables.SCORES.frame(rows)


def compute_skill(mean_square: float, constant_mean_square: float, noise_variance: float | None) -> float | None:
    """Share of what can be explained that is explained; null where that is unknown, or nothing can be explained.

    >>> compute_skill(0.05, 0.1, 0.0), compute_skill(0.02, 0.1, 0.02), compute_skill(0.1, 0.1, 0.2)
    (0.5, 1.0, None)
    """
    if noise_variance is None or noise_variance >= constant_mean_square:
        return None
    return 1 - (mean_square - noise_variance) / (constant_mean_square - noise_variance)


def _bootstrap_error_intervals(
    errors: Floats, constant: Floats, level: float, seed: int
) -> tuple[float, float, float, float]:
    """Bootstrap intervals of the mean error and of its ratio to the constant predictor's."""
    picks = np.random.default_rng(seed).integers(0, len(errors), size=(N_BOOTSTRAP_DRAWS, len(errors)))
    means = errors[picks].mean(axis=1)
    ratios = means / constant[picks].mean(axis=1)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(means, tails)
    ratio_low, ratio_high = np.quantile(ratios, tails)
    return float(low), float(high), float(ratio_low), float(ratio_high)
