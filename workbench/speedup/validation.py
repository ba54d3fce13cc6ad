"""Do the factors hold for queries that they have not seen? Each query is predicted from all the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench import stats
from workbench.errors import InputError
from workbench.speedup import calibrated_tables as tables
from workbench.speedup.calibrated import Calibrated
from workbench.speedup.calibration import leave_one_out
from workbench.speedup.parts import Floats

CALIBRATED, CONSTANT, SEED = "calibrated", "constant", "seed"
FEWEST_QUERIES = 4
DRAWS = 5000


@dataclass(frozen=True)
class Validation:
    """Tables `validation` (by predictor and query) and `scores` (by predictor)."""

    validation: pl.DataFrame
    scores: pl.DataFrame

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        ours = self.scores.row(by_predicate=pl.col("predictor") == CALIBRATED, named=True)
        return (
            f"Over {ours['n_queries']} left-out queries the mean absolute log error is"
            f" {ours['mean_absolute_log_error']:.3f}, {ours['mean_over_constant']:.2f} times that of the constant"
            f" predictor [{ours['mean_over_constant_low']:.2f}, {ours['mean_over_constant_high']:.2f}]; the worst"
            f" ({ours['worst_query']}) {ours['worst_absolute_log_error']:.2f}, {ours['worst_over_constant']:.2f} times"
            f" its worst; intervals held {ours['n_covered']} of {ours['n_queries']} actual times."
        )


def validate(
    calibrated: Calibrated,
    *,
    seed_ratios: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
    seed: int = 0,
) -> Validation:
    """How far off is each predictor, query by query, when that query was left out?

    Parameters
    ----------
    calibrated
        From `workbench.speedup.calibrated.calibrate`.
    seed_ratios
        Speedups that the seed method estimates by query, likewise without it (`seed.left_out`); null leaves it out.
    level
        Of the prediction intervals and of the intervals of the scores.
    seed
        Of the random numbers that draw queries.

    Returns
    -------
    Validation
        For the calibrated method, the constant predictor (geometric mean of the other queries' ratios, with the t
        prediction interval of their logs) and the seed method, where given.

    Raises
    ------
    InputError
        Fewer than four queries: leaving one out leaves too little.

    Notes
    -----
    Every choice is made inside the fold: prices, factors, the weight of time against work, and the width of the
    interval (t on the root mean square log error that the other queries had in turn). The intervals of the scores
    come from drawing queries with replacement, the same ones for all predictors.
    """
    queries = list(calibrated.queries)
    if len(queries) < FEWEST_QUERIES:
        raise InputError("too few queries to leave one out", found=len(queries), allowed=f"{FEWEST_QUERIES} or more")
    base, cand = calibrated.pairs["baseline_s"].to_numpy(), calibrated.pairs["candidate_s"].to_numpy()
    left = leave_one_out(calibrated.pieces, calibrated.baseline, calibrated.candidate, queries, calibrated.model.groups)
    half = _t(level, len(queries) - 2) * left["log_sd"].to_numpy()
    found = [
        _rows(CALIBRATED, queries, base, cand, left["predicted_s"].to_numpy(), half, left["time_weight"].to_list())
    ]
    found.append(_rows(CONSTANT, queries, base, cand, *_constant(base, cand, level)))
    if seed_ratios:
        known = [query in seed_ratios for query in queries]
        names = [query for query, there in zip(queries, known, strict=True) if there]
        ratios = np.array([seed_ratios[query] for query in names])
        found.append(_rows(SEED, names, base[known], cand[known], base[known] / ratios))
    validation = tables.VALIDATION.check(pl.concat(found))
    return Validation(validation, _scores(validation, level, seed))


def _t(level: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(max(degrees, 1), (1 + level) / 2))


def _constant(base: Floats, cand: Floats, level: float) -> tuple[Floats, Floats]:
    """Predictions and half widths of the constant predictor: mean of the other log ratios, its prediction interval."""
    logs = np.log(base) - np.log(cand)
    n = len(logs) - 1
    others = [np.delete(logs, i) for i in range(len(logs))]
    predicted = np.array([base[i] / np.exp(rest.mean()) for i, rest in enumerate(others)])
    half = np.array([_t(level, n - 1) * rest.std(ddof=1) * np.sqrt(1 + 1 / n) for rest in others])
    return predicted, half


def _rows(
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


def _scores(validation: pl.DataFrame, level: float, seed: int) -> pl.DataFrame:
    constant = validation.filter(pl.col("predictor") == CONSTANT)
    reference = constant["log_error"].abs()
    rows = []
    for (predictor,), frame in validation.group_by("predictor", maintain_order=True):
        errors = frame["log_error"].abs()
        beside = frame.select("query").join(constant, on="query", how="left")["log_error"].abs()
        low, high, ratio_low, ratio_high = _drawn(errors.to_numpy(), beside.to_numpy(), level, seed)
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
                "median_absolute_error_share": frame["absolute_error_share"].median(),
                "n_covered": None if frame["covered"].null_count() else int(frame["covered"].sum()),
                "mean_log_width": widths.mean(),
                "n_direction_right": int(frame["direction_right"].sum()),
            }
        )
    return tables.SCORES.frame(rows)


def _drawn(errors: Floats, constant: Floats, level: float, seed: int) -> tuple[float, float, float, float]:
    """Ends of the mean error and of its ratio to the constant predictor's, by drawing queries with replacement."""
    picks = np.random.default_rng(seed).integers(0, len(errors), size=(DRAWS, len(errors)))
    means = errors[picks].mean(axis=1)
    ratios = means / constant[picks].mean(axis=1)
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(means, tails)
    ratio_low, ratio_high = np.quantile(ratios, tails)
    return float(low), float(high), float(ratio_low), float(ratio_high)
