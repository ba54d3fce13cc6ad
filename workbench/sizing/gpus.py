"""From a sweep to GPUs: one estimate per goal, the one that asks for most, and what the slope would have said.

Pure: the raw tables and the points in, the table `estimates` out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench import quantiles
from workbench.sizing import samples, slope
from workbench.sizing.config import Goal
from workbench.sizing.estimate import Capacity, Level, capacity
from workbench.sizing.points import kept
from workbench.sizing.scaling import Measured, scaling
from workbench.sizing.tables import ESTIMATES, SCALING

if TYPE_CHECKING:
    import polars as pl

USABLE = ("valid", "few samples", "saturated")
ROUNDING = 1e-9
LINEAR = "linear scaling assumed: measured on one GPU count"


def estimates(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    points: pl.DataFrame,
    goals: Sequence[Goal],
    load: float,
    *,
    draws: int = 500,
    seed: int = 0,
) -> pl.DataFrame:
    """How many GPUs does the load need, so that each goal is met?

    Parameters
    ----------
    requests, steps
        The raw tables of a sweep, or of several on different GPU counts.
    points
        What `points.points` made of them; only valid, saturated and short points count.
    goals
        What must hold.
    load
        The load to be served, in the unit of the points: users, or arrivals a second.
    draws, seed
        Resamples of the interval, start of the random numbers.

    Returns
    -------
    DataFrame
        The table `estimates`. `gpus` = load / capacity x test GPUs; its ends come from those of the capacity, and
        `recommended` is the high end rounded up.

    Notes
    -----
    From one GPU count it assumes that twice the GPUs carry twice the load, and says so in the verdict: routers that do
    not balance and resources that all share break that, and only a run at that size shows it. From several counts
    `gpus` follows Amdahl's law (two or three) or the universal scalability law (four or more): see `estimated`.
    """
    return estimated(requests, steps, points, goals, load, draws=draws, seed=seed)[0]


def estimated(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    points: pl.DataFrame,
    goals: Sequence[Goal],
    load: float,
    *,
    draws: int = 500,
    seed: int = 0,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table `estimates`, and with it the table `scaling`: what several GPU counts say about more of them.

    Arguments as of `estimates`; `scaling` is empty for one count.
    """
    import polars as pl

    counts = sorted(points["gpus"].unique().to_list()) or [1]
    rows, laws = [], [SCALING.frame([])]
    for goal in goals:
        parts = {gpus: points.filter(pl.col("gpus") == gpus) for gpus in counts}
        levels = {gpus: levels_of(requests, steps, part, goal) for gpus, part in parts.items()}
        found = {gpus: capacity(part, goal.q, goal.limit_s, draws=draws, seed=seed) for gpus, part in levels.items()}
        last = counts[-1]
        row = _row(goal, levels[last], found[last], load)
        row |= {"reason": _with_left_out(row, parts[last])}
        row = _gpus(row | {"test_gpus": last, "load_unit": points["load_unit"][0] if points.height else "users"})
        measured = _measured(found)
        if len(measured) > 1:
            laws.append(scaling(goal.name, measured, load, draws=draws, seed=seed))
        rows.append(row if len(counts) == 1 else row | _by_law(found, laws[-1] if len(measured) > 1 else None))
    most = max((row["gpus"] for row in rows if row["gpus"] is not None), default=None)
    table = ESTIMATES.frame([row | {"binding": most is not None and row["gpus"] == most} for row in rows])
    return table, pl.concat(laws)


def _with_left_out(row: dict[str, Any], points: pl.DataFrame) -> str | None:
    """The reason of a refusal, with the levels that were measured and do not count."""
    left = points.filter(~points["verdict"].is_in(USABLE)).sort("load")
    reason: str | None = row["reason"]
    if row["capacity"] is not None or not left.height:
        return reason
    listed = ", ".join(f"{load:g}" for load in left["load"].unique(maintain_order=True).to_list()[:8])
    kinds = ", ".join(left["verdict"].unique(maintain_order=True).to_list())
    return f"{reason}; left out: level(s) {listed} ({kinds}: {left['reason'][0]})"


def _measured(found: dict[int, Capacity]) -> list[Measured]:
    """The counts whose capacity is bounded on both sides."""
    return [
        Measured(gpus, one.value, one.low, one.high)
        for gpus, one in found.items()
        if one.value is not None and one.low is not None and one.high is not None
    ]


def _by_law(found: dict[int, Capacity], laws: pl.DataFrame | None) -> dict[str, Any]:
    if laws is None:
        reasons = [f"{gpus} GPUs: {one.reason}" for gpus, one in found.items() if one.reason]
        reason = "fewer than two GPU counts have a capacity with an interval; " + "; ".join(reasons)
        nothing = dict.fromkeys(("gpus", "gpus_low", "gpus_high", "recommended"))
        return nothing | {"verdict": "no estimate", "reason": reason}
    law = laws.row(-1, named=True)
    counts = ", ".join(map(str, law["counts"]))
    verdict = f"{law['model']} over {counts} GPUs" if law["gpus"] is not None else "no estimate"
    ends = {name: None if law[name] is None else float(law[name]) for name in ("gpus", "gpus_low", "gpus_high")}
    return ends | {"recommended": law["gpus_high"], "verdict": verdict, "reason": law["reason"]}


def levels_of(requests: pl.DataFrame, steps: pl.DataFrame, points: pl.DataFrame, goal: Goal) -> list[Level]:
    """The usable levels that have the goal's metric; steps of one load are put together."""
    import numpy as np
    import polars as pl

    users = dict(steps.select("step", "users").iter_rows())
    found: dict[float, list[Any]] = {}
    for step, load in points.filter(pl.col("verdict").is_in(USABLE)).select("step", "load").iter_rows():
        counted = kept(requests.filter(pl.col("step") == step), users[step])
        found.setdefault(load, []).append(counted)
    levels = []
    for load, frames in found.items():
        values = samples.values(pl.concat(frames).to_dict(as_series=False), goal.metric)
        if not np.isnan(values).all():
            levels.append(Level(load, values))
    return levels


def _row(goal: Goal, levels: list[Level], found: Capacity, load: float) -> dict[str, Any]:
    return {
        "target": goal.name,
        "metric": goal.metric,
        "q": goal.q,
        "limit_s": goal.limit_s,
        "load": float(load),
        "method": found.method,
        "capacity": found.value,
        "capacity_low": found.low,
        "capacity_high": found.high,
        "slope_capacity": _slope(levels, goal),
        "n_levels": found.n_levels,
        "n_samples": found.n_samples,
        "verdict": "no estimate" if found.value is None else LINEAR,
        "reason": "; ".join(filter(None, (found.reason, found.advice))) or None,
    }


def _slope(levels: list[Level], goal: Goal) -> float | None:
    """The capacity by the slope-based calculator on the same quantiles; null where it has none."""
    known = [(level.load, quantiles.quantile_of(level.values, goal.q)) for level in levels]
    finite = sorted((load, value) for load, value in known if value < float("inf"))
    if len(finite) < slope.MIN_POINTS:
        return None
    line = slope.fit_line([load for load, _ in finite], [value for _, value in finite]).line
    # One user and one GPU: what is left is 1 / capacity.
    gpus = None if line is None else slope.gpus_by_slope(line, target_s=goal.limit_s, users=1, test_gpus=1).gpus
    return 1 / gpus if gpus else None


def _gpus(row: dict[str, Any]) -> dict[str, Any]:
    """Capacities turned into GPUs: ends change places."""
    capacities = {
        "gpus": row["capacity"],
        "gpus_low": row["capacity_high"],
        "gpus_high": row["capacity_low"],
        "slope_gpus": row.pop("slope_capacity"),
    }
    whole = row["load"] * row["test_gpus"]
    counts = {name: whole / value if value else None for name, value in capacities.items()}
    high = counts["gpus_high"] if counts["gpus"] is not None else None
    return row | counts | {"recommended": None if high is None else math.ceil(high - ROUNDING)}
