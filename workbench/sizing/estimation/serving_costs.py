"""Cost of 1,000 requests and of a million output tokens served within the targets, with intervals, and energy."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from workbench.sizing.estimation.metrics import count_user_tokens
from workbench.stats.intervals import LEVEL, Floats, t_interval

N_PARTS = 10
"""Parts of a step's window, whose rates give the interval."""
COST_COLUMNS = tuple(
    f"{name}{end}" for name in ("cost_per_1000", "cost_per_million_tokens") for end in ("", "_low", "_high")
)


def compute_costs(
    sent: pl.DataFrame, counted: pl.DataFrame, within: Floats | None, point: dict[str, Any], price: float | None
) -> dict[str, float | None]:
    """Costs of what one step served within all targets, with 90 % intervals, as `COST_COLUMNS`.

    Parameters
    ----------
    sent
        All requests of the step: `sent_s, ended_s, outcome`, and its tokens.
    counted
        Those of them that are kept.
    within
        By row of `sent`, 1 for a request within all targets and 0 for another; null where that is not known.
    point
        The step's row of table POINTS: `gpus, rate_per_s, tokens_per_s`.
    price
        Price of a GPU for an hour; null without one.

    Returns
    -------
    dict
        All null without a price, or where it is not known what was within; a cost is null where nothing was within,
        those of tokens, which are the ones that users get, where more than a few successes have no count of them. The
        few count as the others' mean. The upper end of a cost is null where the rate's interval reaches 0.

    The rate's interval is a t interval over the rates of ten equal parts of the kept window, around the rate itself.
    It does not cover other days, nor the price. Source: batch means (Law, Simulation Modeling and Analysis, 9.5.3).
    """
    costs: dict[str, float | None] = dict.fromkeys(COST_COLUMNS)
    if price is None or within is None or counted.height < 2:
        return costs
    kept = sent["request"].is_in(counted["request"].implode()).to_numpy()
    edges = np.linspace(float(counted["sent_s"].min()), float(counted["sent_s"].max()), N_PARTS + 1)  # type: ignore[arg-type]
    ended = sent["ended_s"].to_numpy()
    price_per_s = price * point["gpus"] / 3600
    rate = float(within[kept].mean()) * point["rate_per_s"]
    costs |= _invert_rate("cost_per_1000", 1_000 * price_per_s, rate, _half_width(ended, within, edges))
    tokens = count_user_tokens(sent)
    ok = (sent["outcome"] == "ok").to_numpy()
    if point["tokens_per_s"] is None:
        return costs  # more than a few have no count
    tokens = np.where(ok & np.isnan(tokens), np.nanmean(tokens[ok]), np.nan_to_num(tokens))
    total = float(tokens[kept].sum())
    token_rate = float((tokens * within)[kept].sum()) / total * point["tokens_per_s"] if total else 0.0
    half = _half_width(ended, tokens * within, edges)
    return costs | _invert_rate("cost_per_million_tokens", 1e6 * price_per_s, token_rate, half)


def _half_width(ended: Floats, amounts: Floats, edges: Floats) -> float | None:
    """Half the 90 % interval of a rate a second: `amounts` at the times `ended`, over the parts between the edges."""
    if not edges[-1] > edges[0]:
        return None
    # What ends at the very end belongs to the tail.
    inside = ended < edges[-1]
    parts = np.histogram(ended[inside], edges, weights=amounts[inside])[0] / np.diff(edges)
    return t_interval(parts, LEVEL)[1]


def _invert_rate(name: str, factor: float, rate: float, half: float | None) -> dict[str, float | None]:
    """Cost and its interval from a rate a second and half the width of the rate's."""
    if not rate > 0:
        return {}
    if half is None:
        return {name: factor / rate}
    high = factor / (rate - half) if rate > half else None
    return {name: factor / rate, f"{name}_low": factor / (rate + half), f"{name}_high": high}


def select_costs(goodput: pl.DataFrame) -> pl.DataFrame | None:
    """Select load, costs and energy of each step from table GOODPUT, without unknown columns; null where all are."""
    known = [name for name in (*COST_COLUMNS, "joules_per_token") if name in goodput.columns and goodput[name].count()]
    return goodput.select("step", "load", *known) if known else None


def joules_per_token(point: dict[str, Any]) -> float | None:
    """Energy of the GPUs by output token of one step: mean power over tokens a second.

    `point`: Row of table POINTS: `gpu_power_w, tokens_per_s`. All tokens count, those of late answers too.

    Returns: Null where no power was read, no token counted, or none came.

    >>> joules_per_token({"gpu_power_w": 350.0, "tokens_per_s": 700.0})
    0.5
    >>> joules_per_token({"gpu_power_w": None, "tokens_per_s": 700.0}) is None
    True
    """
    power, tokens = point["gpu_power_w"], point["tokens_per_s"]
    return None if power is None or not tokens else power / tokens
