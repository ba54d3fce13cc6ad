"""Which load comes next: those that were asked for, or closer and closer to where a goal is missed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from workbench.sizing import quantiles, samples, steady
from workbench.sizing.config import Goal, SweepConfig
from workbench.sizing.ladder import Rung, next_load

if TYPE_CHECKING:
    import polars as pl

UNFINISHED = ("interrupted", "limit")


def following(config: SweepConfig, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
    """The next load; null when all levels are measured, or every goal's limit lies between near levels.

    Steps that were interrupted or ended by a limit count as not measured.
    """
    column = "rate_per_s" if config.is_open else "users"
    done = [
        (int(step), float(load))
        for step, load, stopped in steps.select("step", column, "stopped").iter_rows()
        if stopped not in UNFINISHED
    ]
    given = config.rates if config.is_open else config.users
    if given is not None:
        left = [float(load) for load in given]
        for _, load in done:
            if load in left:
                left.remove(load)
        return left[0] if left else None
    import polars as pl

    rungs = [Rung(load, _within(config, requests.filter(pl.col("step") == step), load)) for step, load in done]
    rule = config.ladder.model_copy(update={"whole": not config.is_open})
    return next_load(rungs, rule)


def _within(config: SweepConfig, requests: pl.DataFrame, load: float) -> tuple[bool | None, ...]:
    import polars as pl

    columns = requests.filter(~pl.col("tail")).sort("sent_s").to_dict(as_series=False)
    users = 0 if config.is_open else int(load)
    start = steady.start(samples.values(columns, "runtime")[:, 0], users)
    return tuple(_meets(goal, samples.values(columns, goal.metric)[start:]) for goal in config.goals)


def _meets(goal: Goal, values: np.ndarray) -> bool | None:
    found = quantiles.quantile(values, goal.q).value
    return None if math.isnan(found) else found <= goal.limit_s
