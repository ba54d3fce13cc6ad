"""Bounds of a capacity that are no latency: loads that were not served, and loads that never reached the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.capacity_fit import Capacity, Level, estimate_capacity
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.tables import FAILING_VERDICTS, USABLE_VERDICTS
from workbench.stats import quantiles

if TYPE_CHECKING:
    import polars as pl

MAX_BRACKET_FACTOR = 1.5
"""Largest factor between a load that was served and one that was not, between which an answer may lie."""


MIN_GROUP_FACTOR = 2.0
MAX_BETWEEN_FRACTION = 0.02


@dataclass(frozen=True)
class Ceiling:
    """The lowest load that the service did not serve.

    `max_rate_per_s`: Open loops: upper end of what ended there at most; null where that is not known.
    `contradicted_by`: A higher load that was served: the failures do not follow from the load. Null without one.
    """

    load: float
    max_rate_per_s: float | None
    text: str
    contradicted_by: float | None = None

    @property
    def upper(self) -> float:
        """What the capacity is below."""
        return self.load if self.max_rate_per_s is None else min(self.load, self.max_rate_per_s)


def find_ceiling(points: pl.DataFrame) -> Ceiling | None:
    """The lowest load of one GPU count that was not served; null when all were."""
    import polars as pl

    failing = points.filter(pl.col("verdict").is_in(FAILING_VERDICTS)).sort("load")
    if not failing.height:
        return None
    first = failing.row(0, named=True)
    unit = "users" if first["load_unit"] == "users" else "requests/s"
    served = points.filter(pl.col("verdict").is_in(USABLE_VERDICTS) & (pl.col("load") > first["load"]))["load"]
    overloaded = failing.filter(pl.col("verdict") == "not sustained")
    rate = overloaded["ended_high_per_s"].max() if overloaded.height else None
    return Ceiling(
        first["load"],
        None if rate is None else float(str(rate)),
        f"{first['verdict']} at {first['load']:g} {unit}: {first['reason']}",
        # Noise may call a load sustained that lies just above one that is not: only failures contradict.
        float(str(served.max())) if len(served) and first["verdict"] != "not sustained" else None,
    )


def estimate_bounded_capacity(
    levels: Sequence[Level],
    ceiling: Ceiling | None,
    q: float,
    limit_s: float,
    *,
    is_open: bool = False,
    draws: int = 500,
    seed: int = 0,
) -> Capacity:
    """`estimate_capacity`, held against loads that were not served and against loads beyond what was measured.

    `ceiling`: The lowest load that was not served; null when all were.
    `is_open`: Loads are arrival rates: beyond the highest measured one there is no estimate, since a queue bends
    upwards.

    Returns: Where the limit is passed below the ceiling: the estimate, nowhere above the ceiling. Where it is not:
    the highest load that was served within the limit, with the ceiling as upper end. Without a ceiling, and with the
    limit passed nowhere: `at_least`, `low` is the highest load within the limit, and there is no value.
    """
    if ceiling is None:
        capacity = _fit_levels(levels, q, limit_s, draws, seed)
        return _check_samples(_bound_from_below(capacity, levels, q, limit_s, is_open=is_open), levels, q)
    if ceiling.contradicted_by is not None:
        capacity = estimate_capacity([], q, limit_s)
        reason = f"{ceiling.text}; but {ceiling.contradicted_by:g} was served: the failures do not follow from the load"
        advice = "find their cause, or allow them with --max-error-ratio"
        return replace(capacity, n_levels=len(levels), reason=reason, advice=advice)
    served = [level for level in levels if level.load < ceiling.load]
    capacity = _fit_levels(served, q, limit_s, draws, seed)
    return _check_samples(_bound_from_above(capacity, served, ceiling, q, limit_s), served, q)


def _fit_levels(levels: Sequence[Level], q: float, limit_s: float, draws: int, seed: int) -> Capacity:
    """`estimate_capacity`, which says nothing of one level alone, and mistakes two groups of latencies for the load."""
    capacity = estimate_capacity(levels, q, limit_s, draws=draws, seed=seed)
    if len(levels) == 1 and (value := quantiles.compute_quantile(levels[0].values, q)) > limit_s:
        reason = f"{value:.4g} s at the lowest load of {levels[0].load:g} exceeds the limit of {limit_s:g} s"
        return replace(capacity, reason=reason, advice="measure lower loads, or raise the limit")
    if capacity.value is not None and capacity.low is not None and capacity.high is not None:
        return capacity
    groups = next((text for level in levels if (text := describe_groups(level.values, q, limit_s))), None)
    if groups is None:
        return capacity
    advice = (
        "measure more requests (--samples, --most-samples), or set a goal on another quantile; lower loads do not help"
    )
    return replace(capacity, value=None, low=None, high=None, reason=groups, advice=advice)


def describe_groups(values: Floats, q: float, limit_s: float) -> str | None:
    """Two groups of latencies, where the quantile may fall into either and the limit lies between; null without.

    The groups are apart by a factor of two and more, and hardly a request lies between the ends of the interval.
    """
    quantile = quantiles.estimate_quantile(values, q)
    if not (quantile.low <= limit_s < quantile.high < float("inf") and quantile.high > MIN_GROUP_FACTOR * quantile.low):
        return None
    finite = values[np.isfinite(values)]
    between = float(np.mean((finite > 1.1 * quantile.low) & (finite < quantile.high / 1.1)))
    if between > MAX_BETWEEN_FRACTION:
        return None
    slow = float(np.mean(finite >= quantile.high / 1.1))
    return (
        f"latencies fall into two groups, up to {quantile.low:.3g} s and from {quantile.high:.3g} s ({slow:.1%} of"
        f" them); p{100 * q:g} may lie in either"
    )


def _max_load_within(levels: Sequence[Level], q: float, limit_s: float) -> float | None:
    """The highest load whose whole interval is within the limit; null without one."""
    within = [level.load for level in levels if quantiles.estimate_quantile(level.values, q).high <= limit_s]
    return max(within, default=None)


def _bound_from_below(
    capacity: Capacity, levels: Sequence[Level], q: float, limit_s: float, *, is_open: bool
) -> Capacity:
    top = max((level.load for level in levels), default=None)
    beyond = capacity.value is None or (is_open and top is not None and capacity.value > top)
    if not beyond or top is None:
        return capacity
    floor = _max_load_within(levels, q, limit_s)
    if floor is None or (capacity.value is None and capacity.advice is not None and "lower" in capacity.advice):
        return capacity
    value = quantiles.compute_quantile(max(levels, key=lambda level: level.load).values, q)
    reason = capacity.reason or f"{value:.4g} s at the largest load of {top:g} is below the limit of {limit_s:g} s"
    advice = capacity.advice or f"add levels, such as {', '.join(f'{top * factor:g}' for factor in (1.5, 2, 3))}"
    if advice == "measure more levels":
        advice = f"add levels, such as {', '.join(f'{top * factor:g}' for factor in (2, 4, 8))}"
    return replace(capacity, value=None, low=floor, high=None, at_least=True, reason=reason, advice=advice)


def _bound_from_above(
    capacity: Capacity, served: Sequence[Level], ceiling: Ceiling, q: float, limit_s: float
) -> Capacity:
    top = max((level.load for level in served), default=None)
    if top is None:
        advice = "measure lower loads" if ceiling.load > 1 else "find the cause of its failures"
        return replace(capacity, value=None, low=None, high=None, reason=ceiling.text, advice=advice)
    bends = capacity.value is not None and capacity.value <= top and capacity.high is not None and capacity.high <= top
    if bends:
        return capacity
    floor = _max_load_within(served, q, limit_s)
    crossed = capacity.value is not None and capacity.value <= top
    if floor is None or (capacity.value is None and capacity.advice is not None and "lower" in capacity.advice):
        return replace(capacity, reason="; ".join(filter(None, (capacity.reason, ceiling.text))))
    upper = max(ceiling.upper, floor)
    # A resample may pass the limit below the highest load served: its end stays.
    low = floor if capacity.low is None or capacity.low > top else min(capacity.low, top)
    value = min(capacity.value, upper) if crossed and capacity.value is not None else max(floor, min(top, upper))
    if upper > MAX_BRACKET_FACTOR * low and upper - low > 1:
        middle = ", ".join(f"{low + (upper - low) * part:.3g}" for part in (0.25, 0.5, 0.75))
        reason = f"the capacity lies between {low:.4g} and {upper:.4g}; {ceiling.text}"
        return replace(
            capacity, value=None, low=None, high=None, reason=reason, advice=f"measure between, such as {middle}"
        )
    return replace(
        capacity,
        value=value,
        low=min(low, value),
        high=upper if not crossed or capacity.high is None else min(capacity.high, upper),
        method=capacity.method or "bracket",
        n_levels=len(served),
        n_samples=sum(len(level.values) for level in served),
        reason=None,
        advice=None,
        bound=ceiling.text,
    )


def _check_samples(capacity: Capacity, levels: Sequence[Level], q: float) -> Capacity:
    """No lower end where the levels around it have too few requests for an interval of the quantile."""
    if capacity.value is None or capacity.low is None:
        return capacity
    needed, value = metrics.min_samples_for(q), capacity.value
    ordered = sorted(levels, key=lambda level: level.load)
    below = [level for level in ordered if level.load <= value][-1:]
    around = below + [level for level in ordered if level.load > value][:1]
    n = sum(len(level.values) for level in around)
    if n >= needed:
        return capacity
    loads = " and ".join(f"{level.load:g}" for level in around)
    reason = f"{n} requests at {loads}, and an interval of this quantile needs {needed}"
    return replace(capacity, low=None, reason=reason, advice=f"measure more requests: --samples {needed}")
