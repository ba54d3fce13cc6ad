"""Corrections of operators' predicted times, and fixed costs of plans, learned from left-out queries.

Operators' factors know nothing of what every operator of a plan costs before it has a row: planning, code generation,
scheduling. With the seconds D_t that factors predict for operator t, and the counts N_k of `COSTS`, a member predicts

    exp(calibration) * (sum over t of x_t D_t + sum over k of z_k N_k)

x and z minimise the squared relative errors of the training queries, pulled to 1 and to 0 (ridge regression, none
below 0). How hard they are pulled is chosen by leaving out a part of the training queries in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.speedup.calibration.time_split import Floats, PieceArrays, PlannedOperators
from workbench.speedup.engines import ACCELERATED

COSTS = ("each query", "each operator that the engine runs", "each operator left to Spark")
# Pulls of multipliers to 1 and of costs to 0, as shares of the largest column's weight and of their own; the last ones
# leave the operators' times as they are.
MULTIPLIER_PULLS = (1e-2, 1e-1, 1e3)
COST_PULLS = (1e-3, 1e-1, 1e3)
N_FOLDS = 10
# Kinds of time outside operators.
FIXED_TERMS = frozenset({"idle", "task overhead"})
# Weight of a member: one over its mean square left-out error to this power.
ERROR_POWER = 4
_MIN_SECONDS = 1e-9


@dataclass(frozen=True)
class Member:
    """One way to predict; several are averaged by `weight`.

    `time_weight`: Weight of an operator's time in D (`Factors`); null: D is its time over the engine-wide factor.
    `multipliers`: x by term. `costs`: z by `COSTS`, in seconds. `calibration`: Log.
    """

    time_weight: float | None
    multipliers: Floats
    costs: Floats
    calibration: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True)
class Predictor:
    """Members that predict together, and the log errors of the training queries, left out in turn (null: unknown)."""

    members: tuple[Member, ...] = ()
    left_out_errors: Floats | None = None

    @property
    def log_sd(self) -> float | None:
        """Root mean square log error of the left-out queries; null for one query."""
        return None if self.left_out_errors is None else float(np.sqrt((self.left_out_errors**2).mean()))


@dataclass(frozen=True)
class Design:
    """Predicted seconds by operator and counts of the plan, [query, term] and [query, cost], and measured seconds."""

    times: Floats
    counts: Floats
    actual: Floats

    def predict(self, multipliers: Floats, costs: Floats) -> Floats:
        """Seconds by query, without calibration."""
        return np.asarray(np.maximum(self.times @ multipliers + self.counts @ costs, _MIN_SECONDS))


def count_plan(planned: PlannedOperators, left: frozenset[str] | None = None) -> Floats:
    """Counts of `COSTS` by row of planned operators.

    `left`: Operators that the engine leaves to Spark, for plans that are not the engine's own; a candidate's own plan
    says it by itself.
    """
    names = planned.names
    is_fast = np.array(
        [name.endswith(ACCELERATED) if left is None else name.removesuffix(ACCELERATED) not in left for name in names],
        dtype=np.bool_,
    )
    counts = planned.counts
    return np.column_stack([np.ones(len(counts)), counts[:, is_fast].sum(axis=1), counts[:, ~is_fast].sum(axis=1)])


def measure_fixed_rates(pieces: PieceArrays) -> Floats:
    """Log of the seconds of each row of `pieces.keys` outside operators (idle, task overhead) per planned operator.

    What an operator costs before it has a row differs between machines, and between sessions that are warm and those
    that are not; the baseline's own rate tells it. NaN without such time.
    """
    column = [place for place, name in enumerate(pieces.columns) if name in FIXED_TERMS]
    seconds = np.zeros(pieces.keys.height)
    is_fixed = ~pieces.shared & (pieces.work[:, column].sum(axis=1) > 0)
    np.add.at(seconds, pieces.owner[is_fixed], pieces.wall_s[is_fixed])
    operators = np.maximum(pieces.planned.counts.sum(axis=1), 1.0)
    with np.errstate(divide="ignore"):
        return np.where(seconds > 0, np.log(seconds / operators), np.nan)


class _NormalEquations:
    """Normal equations of the relative errors of a design."""

    def __init__(self, design: Design) -> None:
        weighted = np.hstack([design.times, design.counts]) / design.actual[:, None]
        self.n, self.n_times = len(weighted), design.times.shape[1]
        self.gram, self.target = weighted.T @ weighted, weighted.sum(axis=0)
        self.scales = np.sqrt(np.diag(self.gram) / self.n)

    def solve(self, pulls: tuple[float, float]) -> tuple[Floats, Floats]:
        """Multipliers and costs under these pulls."""
        from scipy.linalg import solve_triangular
        from scipy.optimize import nnls

        of_times, of_costs = self.scales[: self.n_times], self.scales[self.n_times :]
        penalty = self.n * np.concatenate(
            [
                np.full(self.n_times, pulls[0] * max(float(of_times.max()), _MIN_SECONDS) ** 2),
                pulls[1] * np.maximum(of_costs, _MIN_SECONDS) ** 2,
            ]
        )
        prior = np.concatenate([np.ones(self.n_times), np.zeros(len(of_costs))])
        lower = np.linalg.cholesky(self.gram + np.diag(penalty))
        goal = solve_triangular(lower, self.target + penalty * prior, lower=True)
        solution = nnls(lower.T, goal)[0]
        return solution[: self.n_times], solution[self.n_times :]


def fit_member(design: Design, time_weight: float | None, pulls: tuple[float, float]) -> Member:
    """Fit a member to all queries of a design, with a mean log error of zero."""
    multipliers, costs = _NormalEquations(design).solve(pulls)
    errors = np.log(design.predict(multipliers, costs) / design.actual)
    return Member(time_weight, multipliers, costs, -float(errors.mean()))


def choose_pulls(folds: Sequence[tuple[Design, Design]]) -> tuple[tuple[float, float], list[Floats]]:
    """Choose the pulls with the smallest errors of left-out queries.

    `folds`: Pairs of training queries and left-out ones.

    Returns: The pulls, and the predicted seconds of the left-out queries of each fold.
    """
    equations = [_NormalEquations(training) for training, _ in folds]
    best: tuple[float, tuple[float, float], list[Floats]] | None = None
    for pulls in [(first, second) for first in MULTIPLIER_PULLS for second in COST_PULLS]:
        predictions, squares = [], 0.0
        for equation, (training, held_out) in zip(equations, folds, strict=True):
            solution = equation.solve(pulls)
            shift = np.log(training.predict(*solution) / training.actual).mean()
            predictions.append(held_out.predict(*solution) * np.exp(-shift))
            squares += float((np.log(predictions[-1] / held_out.actual) ** 2).sum())
        if best is None or squares < best[0]:
            best = squares, pulls, predictions
    assert best is not None
    return best[1], best[2]


def split_folds(groups: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """Rows of training and left-out queries of each fold; rows of one group stay together, neighbours do not.

    >>> split_folds(["q1", "q2", "q1"])
    [([1], [0, 2]), ([0, 2], [1])]
    """
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    fold_of = [places[group] % N_FOLDS for group in groups]
    rows = range(len(groups))
    return [
        ([row for row in rows if fold_of[row] != fold], [row for row in rows if fold_of[row] == fold])
        for fold in range(min(N_FOLDS, len(places)))
    ]
