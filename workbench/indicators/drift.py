"""Did the machine change while it was measured? Looked for where nothing else changes: on the baseline."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.indicators.observations import Observed
from workbench.indicators.tables import DRIFT
from workbench.stats import holm

if TYPE_CHECKING:
    import polars as pl

DRAWS = 10_000
ALPHA = 0.05
SHORTEST = 2
FEWEST = 6
Floats = npt.NDArray[np.float64]


def drift(found: Observed) -> pl.DataFrame:
    """At which round did the baseline's values change, and by which factor?

    The one cut that sets the rounds before it most clearly apart from those after it (largest difference of mean
    logs over its standard error), with a p value by simulated steady noise, by Holm over the metrics.

    Returns
    -------
    DataFrame
        DRIFT: one row per metric; nulls for fewer than six rounds.

    Notes
    -----
    A slow drift is found too, as a change somewhere in its middle. Ratios within rounds stay right either way: the
    flag says that the machine was not left alone, and that absolute values of this session mean little.
    Noise is taken to be normal on logarithms: permuting ten rounds could never tell a change apart among several
    metrics. A steady machine with heavier tails (t with 3 degrees of freedom) is flagged somewhat more often: the
    tests have both rates. Source: the likelihood-ratio statistic of a single change in the mean.
    """
    session, series = found.session, _baseline(found)
    names = [metric.name for case in session.cases for metric in case.metrics]
    cuts = [_cut(series.get(name, {})) for name in names]
    adjusted = holm([cut["p_value"] for cut in cuts])
    rows = []
    for name, cut, value in zip(names, cuts, adjusted, strict=True):
        judged = {"adjusted_p_value": value, "changed": value is not None and value <= ALPHA}
        rows.append({"session_id": session.session_id, "metric": name, **cut, **judged})
    return DRIFT.frame(rows)


def _baseline(found: Observed) -> dict[str, dict[int, float]]:
    series: dict[str, dict[int, float]] = {}
    for arm, metric, number, value in found.values.select("arm", "metric", "round", "value").iter_rows():
        if arm == found.session.baseline and value > 0:
            series.setdefault(metric, {})[number] = value
    return series


def _cut(values: dict[int, float]) -> dict[str, Any]:
    rounds = sorted(values)
    logs = np.log([values[number] for number in rounds])
    if len(logs) < FEWEST:
        return {"n": len(logs), "change_at": None, "factor": None, "p_value": None}
    own = _statistics(logs[None, :])[0]
    place = int(np.argmax(own))
    at = place + SHORTEST
    as_large = int((_null(len(logs)) >= own[place]).sum())
    return {
        "n": len(logs),
        "change_at": rounds[at],
        "factor": float(np.exp(logs[at:].mean() - logs[:at].mean())),
        "p_value": (1 + as_large) / (1 + DRAWS),
    }


@lru_cache(maxsize=64)
def _null(n: int) -> Floats:
    """The statistic of steady normal noise of n rounds, many times."""
    return np.asarray(_statistics(np.random.default_rng(n).standard_normal((DRAWS, n))).max(axis=1))


def _statistics(rows: Floats) -> Floats:
    """Of each row: for every cut, the difference of the means in standard errors (all of one spread)."""
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
