"""Chooses the next load level and decides when a step has enough requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workbench.sizing.config import SweepConfig
from workbench.sizing.estimation import metrics, step_points
from workbench.sizing.estimation.backlog import Backlog, measure_backlog
from workbench.sizing.estimation.capacity_bounds import estimate_bounded_capacity, find_ceiling
from workbench.sizing.estimation.capacity_fit import Capacity
from workbench.sizing.estimation.gpu_estimates import select_usable_levels
from workbench.sizing.load.level_ladder import Ladder, Rung, next_load, next_repeat_load
from workbench.sizing.tables import FAILING_VERDICTS
from workbench.stats import quantiles

if TYPE_CHECKING:
    import polars as pl


CLEAR_OVERLOAD_FRACTION = 0.8
"""Where less than this fraction of what is offered ends, more requests only do harm."""
UNFINISHED_REASONS = ("interrupted", "limit", "lost worker")
LEVEL_DRAWS = 200
FAULTY_VERDICTS = ("client-limited", "cached")
"""Verdicts of levels that more load does not mend."""


class StopRule(BaseModel):
    """Conditions under which a step may end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_samples: int = Field(default=200, ge=20, description="Minimum number of kept requests per step.")
    max_samples: int = Field(default=1000, ge=20, description="Kept requests after which a step ends in any case.")
    tight: float = Field(default=0.05, gt=0, le=1, description="Relative half-width of the 90 % interval.")
    q: float = Field(default=metrics.DEFAULT_QUANTILE, gt=0, lt=1, description="Quantile that ends a step.")
    metric: str = Field(default=metrics.DEFAULT_METRIC, description="Metric that ends a step.")
    arrivals: str = Field(default="users", description="Arrivals of the load; users for a closed loop.")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table `requests` that are read, besides `outcome`."""
        times = () if self.arrivals == "users" else ("intended_s", "sent_s", "ended_s")
        return (*metrics.list_columns([metrics.DEFAULT_METRIC, self.metric]), *times)


def find_stop_reason(finished: Mapping[str, Sequence[Any]], users: int, stop: StopRule) -> str | None:
    """Reason why the step may end: 'tight', 'samples' or 'overload'; null if it needs more requests.

    An open loop ends as tight only where it is sustained: near its capacity more requests tell.

    `finished`: Finished requests in the order they were sent, as columns of the table `requests`. Only `outcome`
    (absent: all ok) and `StopRule.columns` are read.
    """
    values = metrics.metric_values(finished, stop.metric)
    runtimes = metrics.metric_values(finished, metrics.DEFAULT_METRIC)[:, 0]
    warmup = step_points.count_warmup_requests(runtimes, users)
    samples = values[warmup:]
    # Requests that are still running can extend the warm-up, up to its maximum fraction.
    if (1 - step_points.MAX_WARMUP_FRACTION) * (len(values) - users) < stop.min_samples:
        return None
    if len(samples) >= stop.max_samples:
        return "samples"
    quantile = quantiles.estimate_quantile(samples, stop.q)
    half = (quantile.high - quantile.low) / 2
    is_tight = bool(np.isfinite(half) and half <= stop.tight * quantile.value)
    if stop.arrivals == "users":
        return "tight" if is_tight else None
    backlog = _measure_finished(finished, warmup, stop.arrivals)
    if backlog is None or backlog.overload is None:
        return "tight" if is_tight else None
    hopeless = (backlog.ended_high_per_s or np.inf) < CLEAR_OVERLOAD_FRACTION * backlog.offered_per_s
    return "overload" if hopeless else None


def _measure_finished(finished: Mapping[str, Sequence[Any]], warmup: int, arrivals: str) -> Backlog | None:
    """Backlog of the requests that have finished so far."""
    import polars as pl

    n = len(finished["ended_s"])
    names = ("intended_s", "sent_s", "ended_s", "outcome")
    frame = pl.DataFrame({name: finished.get(name, ["ok"] * n) for name in names})
    return measure_backlog(frame, frame[warmup:], arrivals)


def build_stop_rule(config: SweepConfig) -> StopRule:
    """Stop rule of a sweep, based on its first goal."""
    watched: dict[str, Any] = {"metric": config.goals[0].metric, "q": config.goals[0].q} if config.goals else {}
    return StopRule(
        min_samples=config.least_samples,
        max_samples=config.max_samples,
        tight=config.tight,
        arrivals=config.arrivals,
        **watched,
    )


class LevelSchedule:
    """Load levels of one sweep; assessments of finished steps are cached."""

    def __init__(self, config: SweepConfig) -> None:
        self.config = config
        self._judged: dict[int, step_points.StepAssessment] = {}

    def next_level(self, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
        """Next load; null if all levels are measured or close levels enclose the limit of every goal.

        Steps that were interrupted or ended by a limit of the sweep count as not measured. Client-limited points are
        used to locate the goal, because their latencies are at most too high, which keeps the levels below the limit.
        They are not repeated to narrow the interval.
        """
        config = self.config
        full_steps = steps.filter(~steps["stopped"].is_in(UNFINISHED_REASONS))
        loads = config.rates if config.is_open else config.users
        if loads is None:
            return self._choose_level(requests, full_steps)
        open_loads = [float(load) for load in loads]
        for load in full_steps["rate_per_s" if config.is_open else "users"].to_list():
            if load in open_loads:
                open_loads.remove(load)
        return open_loads[0] if open_loads else None

    def _choose_level(self, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
        config = self.config
        rule = config.ladder.model_copy(update={"whole": not config.is_open})
        points, quantiles = self._assess_steps(requests, steps)
        values = {(row["step"], row["metric"], row["q"]): row for row in quantiles.iter_rows(named=True)}
        rungs = [_build_rung(config, row, values) for row in points.iter_rows(named=True)]
        load = next_load(rungs, rule)
        if load is not None or not rungs:
            return load
        requests = requests.filter(requests["step"].is_in(steps["step"].implode()))
        levels = [select_usable_levels(requests, steps, points, goal) for goal in config.goals]
        ceiling = find_ceiling(points)
        capacities = [
            estimate_bounded_capacity(
                goal_levels, ceiling, goal.q, goal.limit_s, is_open=config.is_open, draws=LEVEL_DRAWS
            )
            for goal_levels, goal in zip(levels, config.goals, strict=True)
        ]
        if config.is_open and (between := choose_lower_load(capacities, rungs, rule)) is not None:
            return between
        # Between a load that is served and one that is not, repeating either one sharpens nothing.
        top = max((level.load for goal_levels in levels for level in goal_levels), default=0.0)
        capacities = [
            capacity
            for capacity in capacities
            if capacity.bound is None or (capacity.value is not None and capacity.value < top)
        ]
        beyond = points.filter(points["verdict"] == "client-limited")["load"].min()
        load = next_repeat_load(capacities, [rung.load for rung in rungs], rule)
        return None if load is None or (beyond is not None and load >= float(str(beyond))) else load

    def _assess_steps(self, requests: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        limits = step_points.PointLimits.from_config(self.config)
        wanted = sorted({goal.q for goal in self.config.goals})
        rows = steps.sort("step").rows(named=True)
        for row in rows:
            if row["step"] not in self._judged:
                sent = requests.filter(requests["step"] == row["step"])
                self._judged[row["step"]] = step_points.assess_step(sent, row, limits, wanted)
        return step_points.combine_assessments([self._judged[row["step"]] for row in rows], limits)


def choose_lower_load(capacities: Sequence[Capacity], rungs: Sequence[Rung], rule: Ladder) -> float | None:
    """A load between the lower end of a capacity that an overload bounds, and its value; null when they are near.

    The lower end is a load that was served with its whole interval within the limit, and the answer rests on it: where
    the next one above just missed that, the end is far below the capacity, and many GPUs too many are recommended. It
    stays below the value: levels nearer to the overload would more often be mistaken for sustained ones.
    """
    if len(rungs) >= rule.most_levels:
        return None
    loads = [rung.load for rung in rungs]
    for capacity in capacities:
        if (
            capacity.bound is None
            or capacity.value is None
            or not capacity.low
            or capacity.value <= rule.sharpness * capacity.low
        ):
            continue
        middle = float(np.sqrt(capacity.low * capacity.value))
        if all(abs(middle / load - 1) > 1e-9 for load in loads):
            return middle
    return None


def _build_rung(config: SweepConfig, point: dict[str, Any], values: dict[Any, dict[str, Any]]) -> Rung:
    within: list[bool | None] = []
    for goal in config.goals:
        quantile = values.get((point["step"], goal.metric, goal.q))
        if point["verdict"] in FAILING_VERDICTS:
            within.append(False)
        elif quantile is None:
            within.append(None)
        else:
            # No value means that the quantile falls among failures and exceeds every limit. A level must exceed the
            # limit clearly: with flat latencies, noise would otherwise end the climb at the first level.
            within.append(quantile["value_s"] is not None and quantile["low_s"] <= goal.limit_s)
    return Rung(point["load"], tuple(within), point["verdict"] in FAULTY_VERDICTS)
