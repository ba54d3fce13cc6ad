"""Did the answer hold? The quantiles of a run at the predicted load against the limits. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench.errors import InputError
from workbench.sizing import quantiles, samples
from workbench.sizing.config import Goal
from workbench.sizing.points import Limits, kept, points
from workbench.sizing.tables import VERIFICATION

if TYPE_CHECKING:
    import polars as pl

Scope = Literal["per-GPU load", "whole load"]
SCOPES: dict[Scope, str] = {
    "per-GPU load": "the test GPUs at their share of the load: says nothing of routing or shared resources",
    "whole load": "the predicted GPUs at the whole load",
}


def load_per_test(load: float, gpus: int, test_gpus: int, *, whole: bool) -> float:
    """The load that the test GPUs get when so many GPUs share a load evenly.

    Whole users are rounded up, so that the check is not easier than what it checks.

    Examples
    --------
    >>> load_per_test(150, 18, 1, whole=True), load_per_test(30.0, 12, 2, whole=False)
    (9, 5.0)
    """
    share = load * test_gpus / gpus
    return math.ceil(share - 1e-9) if whole else share


def verification(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    goals: Sequence[Goal],
    *,
    predicted_gpus: int,
    load: float,
    limits: Limits | None = None,
) -> pl.DataFrame:
    """Was each goal met at the predicted load?

    Parameters
    ----------
    requests, steps
        The raw tables of the verifying run: one step.
    goals
        What must hold.
    predicted_gpus, load
        The answer that is verified, and the whole load it is for.
    limits
        From when on a point is not valid.

    Returns
    -------
    DataFrame
        The table `verification`. `held` when the 90 % interval lies at or below the limit, `failed` when it lies
        above (or the point was interrupted), `undecided` when it reaches across, `invalid` when the point is.

    Raises
    ------
    InputError
        There is not exactly one step.
    """
    if steps.height != 1:
        raise InputError("a verification has one step", found=f"{steps.height} steps")
    step = steps.row(0, named=True)
    point = points(requests, steps, limits=limits)[0].row(0, named=True)
    counted = kept(requests, step["users"]).to_dict(as_series=False)
    scope: Scope = "whole load" if step["gpus"] == predicted_gpus else "per-GPU load"
    shared = {
        "predicted_gpus": predicted_gpus,
        "load": float(load),
        "gpus": step["gpus"],
        "driven_load": point["load"],
        "load_unit": point["load_unit"],
        "scope": scope,
        "simulated": step["simulated"],
    }
    return VERIFICATION.frame([shared | _row(goal, samples.values(counted, goal.metric), point) for goal in goals])


def _row(goal: Goal, values: Any, point: dict[str, Any]) -> dict[str, Any]:
    found = quantiles.quantile(values, goal.q)
    verdict, reason = _verdict(goal, found, point)
    ends = {"value_s": found.value, "low_s": found.low, "high_s": found.high}
    return {
        "target": goal.name,
        "limit_s": goal.limit_s,
        "n": found.n,
        **{name: float(value) if np.isfinite(value) else None for name, value in ends.items()},
        "verdict": verdict,
        "reason": reason,
    }


def _verdict(goal: Goal, found: quantiles.Quantile, point: dict[str, Any]) -> tuple[str, str | None]:
    if point["verdict"] == "interrupted":
        return "failed", point["reason"]
    if point["verdict"] in ("client-limited", "server-limited"):
        return "invalid", point["reason"]
    if not found.n or np.isnan(found.value):
        return "invalid", f"no request has {goal.metric}"
    if found.high <= goal.limit_s:
        return "held", None
    if found.low > goal.limit_s:
        return "failed", f"{found.value:.4g} s [{found.low:.4g}, {found.high:.4g}] is above {goal.limit_s:g} s"
    return "undecided", f"{found.value:.4g} s [{found.low:.4g}, {found.high:.4g}] reaches across {goal.limit_s:g} s"
