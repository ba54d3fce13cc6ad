"""Changes of the machine during a session, as the baseline's values show them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.indicators.analysis.observations import Observations
from workbench.indicators.tables import DRIFT
from workbench.stats import adjust_holm

if TYPE_CHECKING:
    import polars as pl

DRAWS = 10_000
ALPHA = 0.05
SHORTEST = 2
MIN_DRIFT_ROUNDS = 6
Floats = npt.NDArray[np.float64]


def detect_drift(observations: Observations) -> pl.DataFrame:
    """Find the round at which the baseline's values changed, and by which factor.

    The change is the cut with the largest difference of mean logs before and after, over its standard error. Its p
    value comes from simulated steady noise, adjusted by Holm over the metrics.

    A slow drift is found too, as a change somewhere in its middle. Ratios within rounds are not biased by it; absolute
    values of the session mean little then. Noise is assumed to be normal on logarithms, since a permutation of ten
    rounds cannot be significant among several metrics. With heavier tails (t with 3 degrees of freedom) a steady
    machine is flagged somewhat more often; the tests have both rates. Source: the likelihood-ratio statistic of a
    single change in the mean.
    """
    session, series = observations.session, _collect_baseline_values(observations)
    names = [metric.name for case in session.cases for metric in case.metrics]
    cuts = [_find_best_cut(series.get(name, {})) for name in names]
    adjusted = adjust_holm([cut["p_value"] for cut in cuts])
    rows = []
    for name, cut, value in zip(names, cuts, adjusted, strict=True):
        changed = value is not None and value <= ALPHA
        identity = {"session_id": session.session_id, "metric": name}
        rows.append({**identity, **cut, "adjusted_p_value": value, "changed": changed})
    return DRIFT.frame(rows)


def _collect_baseline_values(observations: Observations) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    for arm, metric, number, value in observations.values.select("arm", "metric", "round", "value").iter_rows():
        if arm == observations.session.baseline and value > 0:
            series.setdefault(metric, {})[number] = value
    return series


def _find_best_cut(values: dict[int, float]) -> dict[str, Any]:
    rounds = sorted(values)
    logs = np.log([values[number] for number in rounds])
    if len(logs) < MIN_DRIFT_ROUNDS:
        return {"n": len(logs), "change_at": None, "factor": None, "p_value": None}
    statistics = _compute_cut_statistics(logs[None, :])[0]
    place = int(np.argmax(statistics))
    at = place + SHORTEST
    as_large = int((_simulate_null_statistics(len(logs)) >= statistics[place]).sum())
    return {
        "n": len(logs),
        "change_at": rounds[at],
        "factor": float(np.exp(logs[at:].mean() - logs[:at].mean())),
        "p_value": (1 + as_large) / (1 + DRAWS),
    }


@lru_cache(maxsize=64)
def _simulate_null_statistics(n: int) -> Floats:
    """Simulate the statistic for steady normal noise of n rounds, `DRAWS` times."""
    return np.asarray(_compute_cut_statistics(np.random.default_rng(n).standard_normal((DRAWS, n))).max(axis=1))


def _compute_cut_statistics(rows: Floats) -> Floats:
    """For each row and cut, the difference of the means in standard errors (with a common variance)."""
    n = rows.shape[1]
    before = np.arange(SHORTEST, n - SHORTEST + 1)
    sums = np.cumsum(rows, axis=1)
    totals = sums[:, -1:]
    low = sums[:, before - 1] / before
    high = (totals - sums[:, before - 1]) / (n - before)
    squares = (rows**2).sum(axis=1, keepdims=True)
    within = squares - before * low**2 - (n - before) * high**2
    errors = np.sqrt(np.maximum(within, 1e-18) / (n - 2) * (1 / before + 1 / (n - before)))
    return np.asarray(np.abs(high - low) / errors)
