"""Did the answer hold? The quantiles of a run at the predicted load against the limits. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from workbench import quantiles
from workbench.errors import InputError
from workbench.sizing import samples
from workbench.sizing.config import Goal
from workbench.sizing.points import Limits, kept, points
from workbench.sizing.tables import VERIFICATION

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.driving.outcome import Sweep

Scope = Literal["per-GPU load", "whole load"]
SCOPES: dict[Scope, str] = {
    "per-GPU load": "the test GPUs at their share of the load: says nothing of routing or shared resources",
    "whole load": "the predicted GPUs at the whole load",
}


def loads_per_test(load: float, gpus: int, test_gpus: int, *, whole: bool) -> list[float]:
    """What the test GPUs are driven with when so many GPUs share a load evenly: their share.

    Where users are whole and the share is not, the two whole loads around it; none of them is 0.

    Examples
    --------
    >>> loads_per_test(150, 18, 1, whole=True), loads_per_test(144, 18, 2, whole=True)
    ([8.0, 9.0], [16.0])
    >>> loads_per_test(30.0, 12, 2, whole=False)
    [5.0]
    """
    share = load * test_gpus / gpus
    if not whole or abs(share - round(share)) < 1e-9:
        return [share if not whole else float(max(1, round(share)))]
    return [float(around) for around in (math.floor(share), math.ceil(share)) if around]


def verification(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    goals: Sequence[Goal],
    *,
    predicted_gpus: int,
    load: float,
    limits: Limits | None = None,
    cut: str | None = None,
) -> pl.DataFrame:
    """Was each goal met at the predicted load?

    Parameters
    ----------
    requests, steps
        The raw tables of the verifying run: one step, or two with the whole loads around the share of the test GPUs;
        quantiles and ends are then those between them, on the straight line.
    goals
        What must hold.
    predicted_gpus, load
        The answer that is verified, and the whole load it is for.
    limits
        From when on a point is not valid.
    cut
        What ended the run before its load was driven to the end; null for nothing.

    Returns
    -------
    DataFrame
        The table `verification`. `held` when the 90 % interval lies at or below the limit, `failed` when it lies
        above (or the point was interrupted), `undecided` when it reaches across, `invalid` when the point is, or when
        the run was cut short.

    Raises
    ------
    InputError
        There are neither one step nor two.
    """
    if steps.height not in (1, 2):
        raise InputError("a verification has one step, or two around its load", found=f"{steps.height} steps")
    table, _ = points(requests, steps, limits=limits)
    found = table.sort("load").to_dicts()
    driven = found[0]["load"] if steps.height == 1 else load * found[0]["gpus"] / predicted_gpus
    users = dict(steps.select("step", "users").iter_rows())
    columns = [
        kept(requests.filter(requests["step"] == point["step"]), users[point["step"]]).to_dict(as_series=False)
        for point in found
    ]
    unit, simulated = found[0]["load_unit"], bool(steps["simulated"].any())
    shared = _about(predicted_gpus, load, found[0]["gpus"], driven, unit, simulated=simulated)
    # The point that is worst speaks for both.
    point = min(found, key=lambda one: WORST.index(one["verdict"]) if one["verdict"] in WORST else len(WORST))
    rows = []
    for goal in goals:
        each = [quantiles.quantile(samples.values(one, goal.metric), goal.q) for one in columns]
        row = _row(goal, _between(each, [one["load"] for one in found], driven), point)
        rows.append(shared | row | ({} if cut is None else {"verdict": "invalid", "reason": cut}))
    return VERIFICATION.frame(rows)


def of_sweep(found: Sweep, goals: Sequence[Goal], *, predicted_gpus: int, load: float, limits: Limits) -> pl.DataFrame:
    """As `verification`, of a sweep over the loads of `loads_per_test` that may have ended early."""
    cut = None if found.ended == "finished" else f"it ended early: {found.limit or found.ended}"
    if not found.steps.height:
        return VERIFICATION.frame([_undriven(goal, found, predicted_gpus, load, cut) for goal in goals])
    return verification(
        found.requests, found.steps, goals, predicted_gpus=predicted_gpus, load=load, limits=limits, cut=cut
    )


def _undriven(goal: Goal, found: Sweep, predicted_gpus: int, load: float, cut: str | None) -> dict[str, Any]:
    """Of a run whose limits were used up before it began."""
    unit = "1/s" if found.config.is_open else "users"
    return _about(predicted_gpus, load, found.config.gpus, 0.0, unit, simulated=found.simulated) | {
        "target": goal.name,
        "limit_s": goal.limit_s,
        "n": 0,
        **dict.fromkeys(("value_s", "low_s", "high_s")),
        "verdict": "invalid",
        "reason": cut,
    }


def _about(predicted_gpus: int, load: float, gpus: int, driven: float, unit: str, *, simulated: bool) -> dict[str, Any]:
    """What is verified, and what was driven for it: the same for all goals."""
    return {
        "predicted_gpus": predicted_gpus,
        "load": float(load),
        "gpus": gpus,
        "driven_load": float(driven),
        "load_unit": unit,
        "scope": "whole load" if gpus == predicted_gpus else "per-GPU load",
        "simulated": simulated,
    }


WORST = ("interrupted", "server-limited", "client-limited")


def _between(each: list[quantiles.Quantile], loads: list[float], driven: float) -> quantiles.Quantile:
    """The quantile at a load between two that were driven, on the straight line; ends likewise."""
    if len(each) == 1:
        return each[0]
    share = (driven - loads[0]) / (loads[1] - loads[0])
    first, last = each
    names = ("value", "low", "high", "ok_only")
    mixed = {name: (1 - share) * getattr(first, name) + share * getattr(last, name) for name in names}
    return quantiles.Quantile(**mixed, n=first.n + last.n)


def _row(goal: Goal, found: quantiles.Quantile, point: dict[str, Any]) -> dict[str, Any]:
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
