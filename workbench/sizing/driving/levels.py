"""Which load comes next: those that were asked for, or closer and closer to where a goal is missed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.sizing import points as judging
from workbench.sizing.config import SweepConfig
from workbench.sizing.estimate import capacity
from workbench.sizing.gpus import levels_of
from workbench.sizing.ladder import Rung, next_load, sharpened

if TYPE_CHECKING:
    import polars as pl

UNFINISHED = ("interrupted", "limit")
DRAWS = 200


class Levels:
    """The levels of one sweep; what was found of a step that ended is kept, for it does not change any more."""

    def __init__(self, config: SweepConfig) -> None:
        self.config = config
        self._judged: dict[int, judging.Judged] = {}

    def following(self, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
        """The next load; null when all levels are measured, or every goal's limit lies between near levels.

        Steps that were interrupted or ended by a limit of the sweep count as not measured. A point that the client
        limited is taken as it is to find the goal: its latencies are too high, if anything, and so the levels stay on
        the near side. To sharpen the answer no such load is asked for again.
        """
        config = self.config
        done = steps.filter(~steps["stopped"].is_in(UNFINISHED))
        given = config.rates if config.is_open else config.users
        if given is None:
            return self._chosen(requests, done)
        left = [float(load) for load in given]
        for load in done["rate_per_s" if config.is_open else "users"].to_list():
            if load in left:
                left.remove(load)
        return left[0] if left else None

    def _chosen(self, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
        config = self.config
        rule = config.ladder.model_copy(update={"whole": not config.is_open})
        points, quantiles = self._points(requests, steps)
        values = {(row["step"], row["metric"], row["q"]): row for row in quantiles.iter_rows(named=True)}
        rungs = [_rung(config, row, values) for row in points.iter_rows(named=True)]
        load = next_load(rungs, rule)
        if load is not None or not rungs:
            return load
        requests = requests.filter(requests["step"].is_in(steps["step"].implode()))
        levels = [levels_of(requests, steps, points, goal) for goal in config.goals]
        known = [
            capacity(found, goal.q, goal.limit_s, draws=DRAWS) for found, goal in zip(levels, config.goals, strict=True)
        ]
        beyond = points.filter(points["verdict"] == "client-limited")["load"].min()
        load = sharpened(known, [rung.load for rung in rungs], rule)
        return None if load is None or (beyond is not None and load >= float(str(beyond))) else load

    def _points(self, requests: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        limits = judging.Limits(self.config.max_error_ratio, self.config.least_samples)
        wanted = sorted({goal.q for goal in self.config.goals})
        rows = steps.sort("step").rows(named=True)
        for row in rows:
            if row["step"] not in self._judged:
                sent = requests.filter(requests["step"] == row["step"])
                self._judged[row["step"]] = judging.judged(sent, row, limits, wanted)
        return judging.together([self._judged[row["step"]] for row in rows])


def _rung(config: SweepConfig, point: dict[str, Any], values: dict[Any, dict[str, Any]]) -> Rung:
    within: list[bool | None] = []
    for goal in config.goals:
        found = values.get((point["step"], goal.metric, goal.q))
        if point["verdict"] == "interrupted":
            within.append(False)
        elif found is None:
            within.append(None)
        else:
            # No value: the quantile lies among the failures, which is beyond any limit. Only what is clearly beyond
            # counts as such: where latency is flat, chance would else end the climb at the first level.
            within.append(found["value_s"] is not None and found["low_s"] <= goal.limit_s)
    return Rung(point["load"], tuple(within))
