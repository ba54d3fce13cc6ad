"""What was served within the targets, a GPU and a price. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.sizing import samples
from workbench.sizing.config import Goal
from workbench.sizing.points import kept
from workbench.sizing.tables import GOODPUT

if TYPE_CHECKING:
    import polars as pl


def goodput(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    points: pl.DataFrame,
    goals: Sequence[Goal],
    *,
    gpu_price_per_hour: float | None = None,
) -> pl.DataFrame:
    """How much of each load was served as the targets ask?

    Parameters
    ----------
    requests, steps, points
        Tables of a sweep.
    goals
        A request is within when every metric of its own is at or below the limits; each LLM call counts. An answer of
        one token has no time between tokens.
    gpu_price_per_hour
        Price of one GPU for an hour, in any currency.

    Returns
    -------
    DataFrame
        The table `goodput`. What was within, and its cost, are null where that is not known: a success lacks a metric
        that a goal is on. Costs are null without a price, too, or where nothing was within.
    """
    users = dict(steps.select("step", "users").iter_rows())
    rows = []
    for point in points.iter_rows(named=True):
        step = point["step"]
        counted = kept(requests.filter(requests["step"] == step), users[step]).to_dict(as_series=False)
        share = _share(counted, goals)
        served = None if share is None else share * point["rate_per_s"]
        rows.append(
            {
                "step": step,
                "load": point["load"],
                "within_share": share,
                "goodput_per_s": served,
                "goodput_per_gpu": None if served is None else served / point["gpus"],
                "tokens_per_s_per_gpu": None
                if point["tokens_per_s"] is None
                else point["tokens_per_s"] / point["gpus"],
                "cost_per_1000": _cost(gpu_price_per_hour, point["gpus"], served),
            }
        )
    return GOODPUT.frame(rows)


def _share(columns: dict[str, list[Any]], goals: Sequence[Goal]) -> float | None:
    within = np.array([outcome == "ok" for outcome in columns["outcome"]], dtype=bool)
    if not len(within):
        return 0.0
    unknown = np.zeros(len(within), dtype=bool)
    short = np.array([count is not None and count <= 1 for count in columns["output_tokens"]], dtype=bool)
    for goal in goals:
        values = samples.values(columns, goal.metric)
        with np.errstate(invalid="ignore"):
            within &= ~(values > goal.limit_s).any(axis=1)
        unknown |= np.isnan(values).all(axis=1) & ~(short & (goal.metric == "itl"))
    # What misses another goal is late, whatever the unknown metric was.
    return None if (within & unknown).any() else float(within.mean())


def _cost(price: float | None, gpus: int, served_per_s: float | None) -> float | None:
    return None if price is None or not served_per_s else 1000 * price * gpus / (3600 * served_per_s)
