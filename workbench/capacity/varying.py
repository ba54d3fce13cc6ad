"""One thing at a time: each input at its own ends, and the day with more or fewer jobs and users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from workbench.capacity.model import Model, Outcome, evaluate
from workbench.capacity.tables import TORNADO, WHAT_IF

PERCENT = tuple(range(50, 201, 25))


def tornado(model: Model) -> pl.DataFrame:
    """How far does each input alone move the plan?

    Returns
    -------
    DataFrame
        Table TORNADO, without inputs that are points. Swings of inputs do not add up: nodes and replicas are whole.
    """
    middle = evaluate(model, model.medians)
    rows = []
    for one in model.quantities:
        if one.is_point:
            continue
        ends = [one.quantile(share) for share in (0.05, 0.95)]
        low, high = (evaluate(model, model.medians | {one.name: np.array([end])}) for end in ends)
        rows.append(
            {
                "input": one.name,
                "input_p5": ends[0],
                "input_p95": ends[1],
                "unit": one.unit,
                "gpus_median": _peak(middle),
                "swing_gpus": abs(_peak(high) - _peak(low)),
                **_figures(low, "p5"),
                **_figures(high, "p95"),
            }
        )
    return TORNADO.frame(rows).sort("swing_gpus", "input", descending=[True, False])


def _peak(outcome: Outcome) -> float:
    return float(outcome.gpus.max())


def _figures(outcome: Outcome, end: str) -> dict[str, Any]:
    cost = outcome.cost_scaled
    return {
        f"gpus_at_{end}": _peak(outcome),
        f"nodes_at_{end}": int(outcome.nodes.max()),
        f"cost_at_{end}": None if cost is None else float(cost[0]),
    }


def what_if(model: Model) -> pl.DataFrame:
    """GPUs and nodes by hour with half to twice the jobs and the users, every input at its median.

    Returns
    -------
    DataFrame
        Table WHAT_IF; of jobs or users that are not planned only 100 %.
    """
    rows: list[dict[str, Any]] = []
    for jobs in PERCENT if model.works else (100,):
        for users in PERCENT if model.serving else (100,):
            found = evaluate(_with(model, jobs / 100, users / 100), model.medians)
            rows += [
                {
                    "jobs_percent": jobs,
                    "users_percent": users,
                    "hour": hour,
                    "gpus": float(found.gpus[0, hour]),
                    "nodes": int(found.nodes[0, hour]),
                    "capacity_gpus": float(found.nodes[0, hour] * model.node_gpus),
                }
                for hour in range(24)
            ]
    return WHAT_IF.frame(rows)


def _with(model: Model, jobs: float, users: float) -> Model:
    works = tuple(replace(work, per_hour=work.per_hour * jobs) for work in model.works)
    serving = None if model.serving is None else replace(model.serving, load=model.serving.load * users)
    return replace(model, works=works, serving=serving)
