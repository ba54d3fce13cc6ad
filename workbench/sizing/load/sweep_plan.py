"""Chooses the next load level and decides when a step has enough requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from workbench.sizing.config import SweepConfig
from workbench.sizing.estimation import metrics, point_verdicts, step_points
from workbench.sizing.estimation.backlog import measure_backlog
from workbench.sizing.estimation.capacity_fit import Capacity, estimate_bounded_capacity, find_ceiling
from workbench.sizing.estimation.gpu_estimates import select_usable_levels
from workbench.sizing.load.client_messages import RequestRow
from workbench.sizing.load.level_ladder import Ladder, Rung, next_load, next_repeat_load
from workbench.sizing.load.request_trace import read_request_trace
from workbench.sizing.tables import FAILING_VERDICTS, MIN_SAMPLES
from workbench.stats import quantiles

CLEAR_OVERLOAD_FRACTION = 0.8
"""Where less than this fraction of what is offered ends, more requests only do harm."""
MIN_ROUNDS_OF_THINKERS = 8
"""Requests of each user with think time that a tight step has: a queue changes over several rounds. Chosen."""
UNFINISHED_REASONS = ("interrupted", "limit", "lost worker")
LEVEL_DRAWS = 200
FAULTY_VERDICTS = ("client-limited", "cached")
"""Verdicts of levels that more load does not mend."""


class StopRule(BaseModel):
    """Conditions under which a step may end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_samples: int = Field(default=MIN_SAMPLES, ge=20, description="Minimum number of kept requests per step.")
    max_samples: int = Field(default=1000, ge=20, description="Kept requests after which a step ends in any case.")
    tight: float = Field(default=0.05, gt=0, le=1, description="Relative half-width of the 90 % interval.")
    q: float = Field(default=metrics.DEFAULT_QUANTILE, gt=0, lt=1, description="Quantile that ends a step.")
    metric: str = Field(default=metrics.DEFAULT_METRIC, description="Metric that ends a step.")
    arrivals: str = Field(default="users", description="Arrivals of the load; users for a closed loop.")
    min_rounds: float = Field(default=0.0, ge=0, description="Least requests for each of those of a user left out.")
    by_speed: bool = Field(default=False, description="Levels of a trace are speeds of all of it, not rates of a part.")

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
        # A queue that still fills, or empties, is no steady state, however narrow the interval.
        is_short = len(samples) < stop.min_rounds * users
        moves = is_tight and point_verdicts.compare_ends(runtimes[warmup:, None], 1.0) is not None
        return "tight" if is_tight and not is_short and not moves else None
    # Measure the backlog of the requests that have finished so far; the first `warmup` are left out.
    import polars as pl

    n = len(finished["ended_s"])
    names = ("intended_s", "sent_s", "ended_s", "outcome")
    frame = pl.DataFrame({name: finished.get(name, ["ok"] * n) for name in names})
    backlog = measure_backlog(frame, frame[warmup:], stop.arrivals)
    if backlog is None or backlog.overload is None:
        return "tight" if is_tight else None
    hopeless = (backlog.ended_high_per_s or np.inf) < CLEAR_OVERLOAD_FRACTION * backlog.offered_per_s
    return "overload" if hopeless else None


def build_stop_rule(config: SweepConfig) -> StopRule:
    """Stop rule of a sweep, based on its first goal."""
    watched: dict[str, Any] = {"metric": config.goals[0].metric, "q": config.goals[0].q} if config.goals else {}
    return StopRule(
        min_samples=config.least_samples,
        max_samples=config.max_samples,
        tight=config.tight,
        arrivals=config.arrivals,
        min_rounds=MIN_ROUNDS_OF_THINKERS / config.turns if config.think_time_s else 0.0,
        by_speed=config.speed is not None,
        **watched,
    )


class LevelSchedule:
    """Load levels of one sweep; assessments of finished steps are cached."""

    def __init__(self, config: SweepConfig) -> None:
        self.config = config
        self._loads = _list_loads(config)
        self._judged: dict[int, step_points.StepAssessment] = {}

    def next_level(self, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
        """Next load; null if all levels are measured or close levels enclose the limit of every goal.

        Steps that were interrupted or ended by a limit of the sweep count as not measured. Client-limited points are
        used to locate the goal, because their latencies are at most too high, which keeps the levels below the limit.
        They are not repeated to narrow the interval.

        `requests`, `steps`: Tables of these names, of the steps so far.
        """
        config, loads = self.config, self._loads
        full_steps = steps.filter(~steps["stopped"].is_in(UNFINISHED_REASONS))
        if loads is None:
            return self._choose_level(requests, full_steps)
        if config.arrivals == "trace":
            # A step has the rate that the replayed part had; the levels are measured in their order.
            return next(iter(loads[full_steps.height :]), None)
        open_loads = [float(load) for load in loads]
        for load in full_steps["rate_per_s" if config.is_open else "users"].to_list():
            if load in open_loads:
                open_loads.remove(load)
        return open_loads[0] if open_loads else None

    def _choose_level(self, requests: pl.DataFrame, steps: pl.DataFrame) -> float | None:
        """Choose the next load to measure, null if the measured ones suffice.

        First the ladder climbs until a goal is missed; then loads are added where they sharpen the capacity most.

        `requests`, `steps`: Tables of these names, of the steps so far.
        """
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
        if (between := choose_lower_load(capacities, rungs, rule)) is not None:
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
        """Points and quantiles of the steps; each step is assessed once only.

        `requests`, `steps`: Tables of these names. Returns: Tables POINTS and QUANTILES.
        """
        limits = step_points.PointLimits.from_config(self.config)
        wanted = sorted({goal.q for goal in self.config.goals})
        rows = steps.sort("step").rows(named=True)
        for row in rows:
            if row["step"] not in self._judged:
                sent = requests.filter(requests["step"] == row["step"])
                self._judged[row["step"]] = step_points.assess_step(sent, row, limits, wanted)
        return step_points.combine_assessments([self._judged[row["step"]] for row in rows], limits)


def _list_loads(config: SweepConfig) -> Sequence[float] | None:
    """Loads that are asked for, of a trace at a speed by its rate; null where they are chosen."""
    if config.speed is not None and config.trace is not None:
        rate_per_s = read_request_trace(config.trace, config.trace_replay).rate_per_s
        return [speed * rate_per_s for speed in config.speed]
    return config.rates if config.is_open else config.users


def choose_lower_load(capacities: Sequence[Capacity], rungs: Sequence[Rung], rule: Ladder) -> float | None:
    """Choose a load between those that a capacity lies between; null when they are near.

    Of rates that an overload bounds these are the lower end and the value: the lower end is a load that was served with
    its whole interval within the limit, and the answer rests on it. Where the next one above just missed that, the end
    is far below the capacity, and many GPUs too many are recommended. It stays below the value: levels nearer to the
    overload would more often be mistaken for sustained ones.
    """
    if len(rungs) >= rule.most_levels:
        return None
    loads = [rung.load for rung in rungs]
    for capacity in capacities:
        low, high = capacity.between or (capacity.low, capacity.value)
        is_bounded = capacity.between is not None or (capacity.bound is not None and not rule.whole)
        if not is_bounded or not low or high is None or high <= rule.sharpness * low:
            continue
        middle = float(np.sqrt(low * high))
        middle = round(middle) if rule.whole else middle
        if low < middle < high and all(abs(middle / load - 1) > 1e-9 for load in loads):
            return middle
    return None


def _build_rung(config: SweepConfig, point: dict[str, Any], values: dict[Any, dict[str, Any]]) -> Rung:
    """Build a rung of the ladder from a row of table POINTS, with whether each goal was met, null if unknown.

    `values`: Rows of table QUANTILES by step, metric and q.
    """
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


@dataclass(frozen=True)
class Prices:
    """Prices that the service charges, in one currency; 0 for what is free."""

    request: float = 0.0
    million_input_tokens: float = 0.0
    million_output_tokens: float = 0.0


@dataclass
class SweepUsage:
    """Amounts that a sweep has used so far, and how many of its successes reported their tokens."""

    requests: int = 0
    duration_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    answered: int = 0
    input_told: int = 0
    output_told: int = 0

    def add_requests(self, rows: list[RequestRow]) -> None:
        """Count requests that ended, each of their retries too."""
        for row in rows:
            self.requests += 1 + row.retries
            self.input_tokens += row.input_tokens or 0
            self.output_tokens += row.output_tokens or 0
            if row.outcome == "ok":
                self.answered += 1
                self.input_told += row.input_tokens is not None
                self.output_told += row.output_tokens is not None

    def combine_with(self, other: SweepUsage) -> SweepUsage:
        """Both together."""
        return SweepUsage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(SweepUsage)))

    def total_cost(self, prices: Prices) -> float:
        """Calculate the total cost, in the currency of the prices.

        >>> SweepUsage(requests=10, output_tokens=500_000).total_cost(Prices(request=0.1, million_output_tokens=4.0))
        3.0
        """
        tokens = self.input_tokens * prices.million_input_tokens + self.output_tokens * prices.million_output_tokens
        return self.requests * prices.request + tokens / 1e6


def usage_from_tables(requests: pl.DataFrame, steps: pl.DataFrame) -> SweepUsage:
    """Sum up what a sweep used of its limits, from its tables REQUESTS and STEPS.

    >>> import polars as pl
    >>> steps = pl.DataFrame({"duration_s": [60.0]})
    >>> tokens = {"input_tokens": [10, 10], "output_tokens": [5, None]}
    >>> usage_from_tables(pl.DataFrame({"outcome": ["ok", "timeout"], "retries": [1, 0]} | tokens), steps)
    SweepUsage(requests=3, duration_s=60.0, input_tokens=20, output_tokens=5, answered=1, input_told=1, output_told=1)
    """
    successes = requests.filter(requests["outcome"] == "ok")
    return SweepUsage(
        requests=requests.height + int(requests["retries"].sum()),
        duration_s=float(steps["duration_s"].sum()),
        input_tokens=int(requests["input_tokens"].sum()),
        output_tokens=int(requests["output_tokens"].sum()),
        answered=successes.height,
        input_told=successes["input_tokens"].count(),
        output_told=successes["output_tokens"].count(),
    )


@dataclass(frozen=True)
class SweepLimits:
    """Null for no limit; tokens are those of prompts and answers that the service reports."""

    max_requests: int | None = None
    max_duration_s: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    prices: Prices = Prices()

    def find_reached_limit(self, spent: SweepUsage) -> str | None:
        """Which limit is reached, or cannot be kept since no success had its tokens told; null when none is.

        Does not show what is in flight: tokens and cost of those requests come on top.

        >>> SweepLimits(max_requests=10).find_reached_limit(SweepUsage(requests=10))
        '--max-requests 10'
        >>> SweepLimits(max_tokens=900).find_reached_limit(SweepUsage(requests=1, answered=1))
        '--max-tokens 900 cannot be kept: the service reports no tokens'
        """
        tokens = spent.input_tokens + spent.output_tokens
        pairs = (
            ("--max-requests", self.max_requests, spent.requests),
            ("--max-duration", self.max_duration_s, spent.duration_s),
            ("--max-tokens", self.max_tokens, tokens),
            ("--max-cost", self.max_cost, spent.total_cost(self.prices)),
        )
        reached = (f"{name} {limit:g}" for name, limit, used in pairs if limit is not None and used >= limit)
        return next(reached, self._find_unreported_tokens(spent))

    def _find_unreported_tokens(self, spent: SweepUsage) -> str | None:
        """The limit on tokens of which the service does not say how many they are."""
        if not spent.answered:
            return None
        if self.max_tokens is not None and not spent.input_told and not spent.output_told:
            return f"--max-tokens {self.max_tokens:g} cannot be kept: the service reports no tokens"
        priced = (
            (self.prices.million_input_tokens, spent.input_told, "of prompts"),
            (self.prices.million_output_tokens, spent.output_told, "of answers"),
        )
        unknown = [which for price, n_reported, which in priced if price and not n_reported]
        if self.max_cost is not None and unknown:
            return f"--max-cost {self.max_cost:g} cannot be kept: the service reports no tokens {' and '.join(unknown)}"
        return None

    def remaining_requests(self, spent: SweepUsage) -> int | None:
        """Number of requests that may still be sent; null for any number."""
        return None if self.max_requests is None else max(0, self.max_requests - spent.requests)
