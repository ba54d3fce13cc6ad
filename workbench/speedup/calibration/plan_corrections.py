"""Corrections of predicted times, learned from plans: which queries the factors of operators predict too slow or fast.

Short queries and deep plans spend time that no operator's factor holds: planning, code generation, launching tasks,
moving rows between engines. A ridge regression of the log errors of left-out training queries on counts of operators,
stages and time learns it, where it helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.speedup.attribution.measured_times import COUNTS, Measured

TASK_FLOOR_S = 0.01
TIMES = ("log wall time", "log stages", "log task time")
RIDGES = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
MIN_QUERIES = 20
# The mean gain over left-out queries that a correction must have, in standard errors of that mean.
MIN_GAIN_ERRORS = 3.0
# A feature further from its mean counts as this many standard deviations: nothing is learned that far out.
MAX_DEVIATION = 3.0


@dataclass(frozen=True)
class PlanFeatures:
    """By query (row) and feature: log of one plus the number of an operator's nodes, and logs of `TIMES`."""

    names: tuple[str, ...]
    values: Floats

    def align(self, names: Sequence[str]) -> Floats:
        """Columns of these names; an operator that no plan has counts 0."""
        place = {name: i for i, name in enumerate(self.names)}
        zeros = np.zeros(len(self.values))
        return np.column_stack([self.values[:, place[name]] if name in place else zeros for name in names])

    def select(self, rows: Sequence[int]) -> PlanFeatures:
        """The same for some rows."""
        return PlanFeatures(self.names, self.values[list(rows)])


def build_plan_features(measured: Measured, keys: pl.DataFrame) -> PlanFeatures:
    """Features of the rows of `keys` (label, session, query): medians over their executions that count."""
    group = ["label", "session", "query"]
    of = ["label", "session", "sql_id"]
    executions = measured.executions.filter(COUNTS)
    nodes = (
        measured.pieces.join(executions.select(*of, "query"), on=of)
        .select(*of, "query", "operators", "node_ids")
        .explode("operators", "node_ids")
        .drop_nulls("operators")
        .unique([*of, "node_ids"])
        .group_by(*of, "query", "operators")
        .len()
    )
    counts = nodes.group_by(*group, "operators").agg(pl.col("len").median())
    operators = sorted(counts["operators"].unique())
    place = {key: row for row, key in enumerate(keys.select(group).iter_rows())}
    values = np.zeros((keys.height, len(operators) + len(TIMES)))
    for label, session, query, operator, count in counts.iter_rows():
        values[place[label, session, query], operators.index(operator)] = np.log1p(count)
    times = executions.group_by(group).agg(pl.col("wall_s", "n_stages", "task_s").median())
    joined = keys.select(group).join(times, on=group, how="left", maintain_order="left")
    values[:, len(operators) :] = joined.select(
        pl.col("wall_s").log(), pl.col("n_stages").log(), (pl.col("task_s") + TASK_FLOOR_S).log()
    ).to_numpy()
    return PlanFeatures((*operators, *TIMES), values)


@dataclass(frozen=True)
class PlanCorrection:
    """Ridge regression of log errors on features: `coefficients` of features in standard deviations from their mean."""

    names: tuple[str, ...]
    mean: Floats
    deviation: Floats
    coefficients: Floats

    def predict_errors(self, features: PlanFeatures) -> Floats:
        """Log of predicted over actual time, by row."""
        scaled = (features.align(self.names) - self.mean) / self.deviation
        return np.asarray(np.clip(scaled, -MAX_DEVIATION, MAX_DEVIATION) @ self.coefficients)


def fit_plan_correction(features: PlanFeatures | None, errors: Floats) -> tuple[PlanCorrection | None, Floats]:
    """Learn the errors of left-out queries from their plans, where that helps.

    `features`: Of the training queries; null where they are unknown.
    `errors`: Log of predicted over actual time of each training query, predicted from the others.

    Returns: The correction, null if its own left-out errors do not gain `MIN_GAIN_ERRORS` standard errors over none;
    and the errors that are left when each query is left out of the correction, too.

    The penalty is the one with the smallest left-out errors, in closed form from the diagonal of the hat matrix.
    """
    n = len(errors)
    if features is None or n < MIN_QUERIES:
        return None, errors
    mean, deviation = features.values.mean(axis=0), features.values.std(axis=0)
    varies = deviation > 1e-9
    names = tuple(name for name, is_used in zip(features.names, varies, strict=True) if is_used)
    scaled = (features.values[:, varies] - mean[varies]) / deviation[varies]
    left_vectors, values, right = np.linalg.svd(scaled, full_matrices=False)
    centred = errors - errors.mean()
    best: tuple[float, float, Floats] | None = None
    for ridge in RIDGES:
        shrunk = values**2 / (values**2 + ridge)
        fitted = (left_vectors * shrunk) @ (left_vectors.T @ centred)
        leverage = ((left_vectors * shrunk) * left_vectors).sum(axis=1) + 1 / n
        residuals = (centred - fitted) / (1 - leverage)
        if best is None or (residuals**2).mean() < best[0]:
            best = float((residuals**2).mean()), ridge, residuals
    assert best is not None
    gain = (centred * n / (n - 1)) ** 2 - best[2] ** 2
    if gain.mean() < MIN_GAIN_ERRORS * gain.std(ddof=1) / np.sqrt(n):
        return None, errors
    coefficients = right.T @ (values / (values**2 + best[1]) * (left_vectors.T @ centred))
    return PlanCorrection(names, mean[varies], deviation[varies], coefficients), best[2]
