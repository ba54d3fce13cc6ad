"""Fits latency curves and inverts them: largest load of the test GPUs within a latency limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.tables import FAILING_VERDICTS, USABLE_VERDICTS
from workbench.stats import quantiles

CONFIDENCE_LEVEL = 0.90
MAX_EXTRAPOLATION = 1.25
"""Extrapolation limit of a curve beyond the largest and below the smallest measured load."""
MIN_LEVELS_TO_CHOOSE = 5
NEAR_LIMIT_SCALE = 0.25
MAX_BRACKET_FACTOR = 1.5
"""Largest factor between a load that was served and one that was not, between which an answer may lie."""
MIN_GROUP_FACTOR = 2.0
MAX_BETWEEN_FRACTION = 0.02


class Curve(Protocol):
    """Fitted latency curves, one per resample."""

    def latency_at(self, load: float) -> Floats:
        """Latency at a load, in s."""
        ...

    def max_load_within(self, limit_s: float) -> Floats:
        """Largest load within the limit; NaN if no load is, infinite if every load is."""
        ...


@dataclass(frozen=True)
class StraightCurve:
    """latency = base + slope x load."""

    base: Floats
    slope: Floats

    def latency_at(self, load: float) -> Floats:
        """Latency at a load, in s."""
        return self.base + self.slope * load

    def max_load_within(self, limit_s: float) -> Floats:
        """Largest load within the limit."""
        return _solve_line_crossing(self.base, self.slope, limit_s)


@dataclass(frozen=True)
class HingeCurve:
    """A straight line up to the knee and a steeper one beyond it."""

    base: Floats
    slope: Floats
    knee: Floats
    steeper: Floats

    def latency_at(self, load: float) -> Floats:
        """Latency at a load, in s."""
        return self.base + self.slope * load + self.steeper * np.maximum(0.0, load - self.knee)

    def max_load_within(self, limit_s: float) -> Floats:
        """Largest load within the limit."""
        at_knee = self.base + self.slope * self.knee
        slope = self.slope + self.steeper
        beyond = self.knee + _solve_line_crossing(at_knee, slope, limit_s)
        return np.where(limit_s >= at_knee, beyond, _solve_line_crossing(self.base, self.slope, limit_s))


@dataclass(frozen=True)
class MonotoneCurve:
    """Non-decreasing, piecewise linear between the measured loads; extrapolated with the slope of the last segment."""

    loads: Floats
    fitted: Floats

    def latency_at(self, load: float) -> Floats:
        """Latency at a load, in s."""
        right = int(np.clip(np.searchsorted(self.loads, load), 1, len(self.loads) - 1))
        low, high = self.loads[right - 1], self.loads[right]
        share = (load - low) / (high - low)
        between: Floats = self.fitted[:, right - 1] * (1 - share) + self.fitted[:, right] * share
        return between

    def max_load_within(self, limit_s: float) -> Floats:
        """Largest load within the limit; NaN if the lowest load is beyond it, infinite on a flat last segment.

        The segment begins at the last level within the limit; beyond the largest load the last one goes on. No load
        below the lowest one is estimated.
        """
        loads, fitted = self.loads, self.fitted
        last = (fitted <= limit_s).sum(axis=1) - 1
        segment = np.clip(last, 0, len(loads) - 2)
        rows = np.arange(len(fitted))
        low, rise = fitted[rows, segment], fitted[rows, segment + 1] - fitted[rows, segment]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(rise > 0, (limit_s - low) / rise, np.inf)
            inside = loads[segment] + share * (loads[segment + 1] - loads[segment])
        return np.where(last < 0, np.nan, inside)


def fit_least_squares(loads: Floats, latencies: Floats) -> StraightCurve:
    """Ordinary least squares as in the slope-based calculator, without its outlier removal.

    `loads`: Ascending. `latencies`: Seconds, [row, load]; each row gets a curve of its own.
    """
    centred = loads - loads.mean()
    slope = latencies @ centred / (centred @ centred)
    return StraightCurve(latencies.mean(axis=1) - slope * loads.mean(), slope)


def fit_theil_sen(loads: Floats, latencies: Floats) -> StraightCurve:
    """Theil-Sen estimator: median of all pairwise slopes, median residual as base. Sen (1968).

    `loads`: Ascending. `latencies`: Seconds, [row, load]; each row gets a curve of its own.
    """
    left, right = np.triu_indices(len(loads), 1)
    slope = np.median((latencies[:, right] - latencies[:, left]) / (loads[right] - loads[left]), axis=1)
    return StraightCurve(np.median(latencies - slope[:, None] * loads, axis=1), slope)


def fit_hinge(loads: Floats, latencies: Floats) -> HingeCurve:
    """Two lines that meet at the best-fitting knee between the second and the last but one load.

    Minimises squared relative errors. Lines do not fall, and the second one is steeper than the first.

    `loads`: Ascending. `latencies`: Seconds, [row, load]; each row gets a curve of its own.
    """
    weights = 1 / np.median(latencies, axis=0)
    scaled = latencies * weights
    plain = fit_least_squares(loads, latencies)
    best = HingeCurve(plain.base, plain.slope, np.full(len(latencies), loads[0]), np.zeros(len(latencies)))
    least = np.square((plain.base[:, None] + plain.slope[:, None] * loads) * weights - scaled).sum(axis=1)
    for knee in _list_knee_candidates(loads):
        design = np.stack([np.ones_like(loads), loads, np.maximum(0.0, loads - knee)], axis=1) * weights[:, None]
        base, slope, steeper = np.linalg.pinv(design) @ scaled.T
        error = np.square(np.stack([base, slope, steeper], axis=1) @ design.T - scaled).sum(axis=1)
        better = (error < least) & (steeper >= 0) & (slope >= 0)
        least = np.where(better, error, least)
        best = HingeCurve(
            np.where(better, base, best.base),
            np.where(better, slope, best.slope),
            np.where(better, knee, best.knee),
            np.where(better, steeper, best.steeper),
        )
    return best


def fit_monotone(loads: Floats, latencies: Floats) -> MonotoneCurve:
    """Isotonic regression by the min-max formula. Robertson, Wright and Dykstra (1988), section 1.4.

    `loads`: Ascending. `latencies`: Seconds, [row, load]; each row gets a curve of its own.
    """
    levels = len(loads)
    sums = np.concatenate([np.zeros((len(latencies), 1)), np.cumsum(latencies, axis=1)], axis=1)
    fitted = np.empty_like(latencies)
    for place in range(levels):
        ends = np.arange(place + 1, levels + 1)
        starts = np.arange(place + 1)
        means = (sums[:, ends][:, None, :] - sums[:, starts][:, :, None]) / (ends[None, :] - starts[:, None])
        fitted[:, place] = means.min(axis=2).max(axis=1)
    return MonotoneCurve(loads, fitted)


CURVES: dict[str, Callable[[Floats, Floats], Curve]] = {
    "monotone": fit_monotone,
    "hinge": fit_hinge,
    "Theil-Sen": fit_theil_sen,
    "line": fit_least_squares,
}


def _list_knee_candidates(loads: Floats) -> Floats:
    """Loads at which a curve may bend: the inner ones and their geometric means; none for fewer than four loads.

    >>> _list_knee_candidates(np.array([1.0, 2.0, 8.0, 16.0])).tolist()
    [2.0, 8.0, 4.0]
    """
    inner = loads[1:-1]
    between = np.sqrt(inner[:-1] * inner[1:])
    return np.concatenate([inner, between]) if len(loads) >= 4 else loads[:0]


def _solve_line_crossing(base: Floats, slope: Floats, limit_s: float) -> Floats:
    """Load at which lines that start at `base` seconds reach the limit: infinite if never, NaN if they start above."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            slope > 0,
            np.where(base <= limit_s, (limit_s - base) / slope, np.nan),
            np.where(base <= limit_s, np.inf, np.nan),
        )


@dataclass(frozen=True)
class Level:
    """Measurements at one load: one row of values per request (see `stats.quantiles`)."""

    load: float
    values: Floats


@dataclass(frozen=True)
class Capacity:
    """Largest load within the limit, with its interval; null if the measured loads do not determine it.

    With `at_least`, `low` is a load within the limit and the capacity may be anything above. `bound` says what bounds
    it from above, where that is not the latency. `between`: Loads that it lies between, too far apart for a value.
    """

    value: float | None
    low: float | None
    high: float | None
    method: str | None
    n_levels: int
    n_samples: int
    reason: str | None = None
    advice: str | None = None
    at_least: bool = False
    bound: str | None = None
    between: tuple[float, float] | None = None


def estimate_capacity(
    levels: Sequence[Level], q: float, limit_s: float, *, draws: int = 500, seed: int = 0
) -> Capacity:
    """Estimate the largest load at which a latency quantile stays within its limit.

    Returns: `value` comes from the curve with the smallest cross-validation error near the limit. `low` and `high`
    are the ends of the two-sided 90 % interval over resampled requests; the curve is selected again in each resample.
    There is no value, but a reason and advice, if the limit is below the curve at the lowest load or reached beyond
    1.25 times the largest load. An end outside that range is null.

    The interval does not cover other GPU counts, routers or models, or variation between days.
    Source: expanded percentile bootstrap (Hesterberg, What Teachers Should Know About the Bootstrap, 2015) with levels
    as units, over a circular block bootstrap. Plain percentiles reached only 86 % coverage of the upper end where
    latency hardly depends on the load.
    """
    ordered = sorted(levels, key=lambda level: level.load)
    loads = np.array([level.load for level in ordered])
    points = np.array([quantiles.compute_quantile(level.values, q) for level in ordered])
    # No latency is 0: such a quantile was not measured, and curves are fitted to logarithms.
    usable = np.isfinite(points) & (points > 0)
    n = sum(len(level.values) for level in ordered)
    if usable.sum() < 2:
        reason = f"{int(usable.sum())} level(s) with a finite quantile above 0, 2 needed"
        return Capacity(None, None, None, None, int(usable.sum()), n, reason, "measure more levels")
    usable_levels = [level for level, is_usable in zip(ordered, usable, strict=True) if is_usable]
    loads, points = loads[usable], points[usable]
    random = np.random.default_rng(seed)
    drawn = np.stack([quantiles.resample_quantile(level.values, q, draws, random) for level in usable_levels], axis=1)
    # A resample may hold too many failures, or too many that took no time.
    drawn = np.clip(drawn, points.min() / 10, 10 * points.max())
    values, chosen = _invert_best_curve(loads, np.vstack([points, drawn]), limit_s)
    method = list(CURVES)[int(chosen[0])]
    capacity = Capacity(
        float(values[0]), None, None, method, len(usable_levels), sum(len(level.values) for level in usable_levels)
    )
    return _add_interval(capacity, values[1:], loads, points, limit_s)


def _invert_best_curve(loads: Floats, latencies: Floats, limit_s: float) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Load at which each row's best curve reaches the limit, and the index of that curve.

    A curve that misses a sharp knee may reach the limit where the row's own levels say that it cannot: it is not taken.

    `loads`: Ascending. `latencies`: Seconds, [row, load].
    """
    limits = np.stack([fit(loads, latencies).max_load_within(limit_s) for fit in CURVES.values()])
    if len(loads) < MIN_LEVELS_TO_CHOOSE:
        chosen = np.zeros(len(latencies), dtype=np.intp)
    else:
        # Leave-one-out errors of the inner loads, in logarithms, [curve, row].
        logs = np.log(latencies)
        weights = np.exp(-np.abs(logs - np.log(limit_s)) / NEAR_LIMIT_SCALE)
        total = np.zeros((len(CURVES), len(latencies)))
        for place in range(1, len(loads) - 1):
            others = np.delete(np.arange(len(loads)), place)
            for row, fit in enumerate(CURVES.values()):
                guess = fit(loads[others], latencies[:, others]).latency_at(float(loads[place]))
                off = np.abs(np.log(np.maximum(guess, 1e-3 * latencies[:, place])) - logs[:, place])
                total[row] += weights[:, place] * off
        errors: Floats = total / weights[:, 1:-1].sum(axis=1)
        lowest, highest = _bracket_limit(loads, latencies, limit_s)
        is_possible = (limits >= lowest) & (limits <= highest)
        # The first curve, which follows the levels, where none is possible.
        chosen = np.where(is_possible.any(axis=0), np.argmin(np.where(is_possible, errors, np.inf), axis=0), 0)
    return limits[chosen, np.arange(len(latencies))], chosen


def _bracket_limit(loads: Floats, latencies: Floats, limit_s: float) -> tuple[Floats, Floats]:
    """Loads between which each row reaches the limit: the one before the first that misses it, the one after the last
    that meets it; open where all meet it, or the first misses it.

    >>> ends = _bracket_limit(np.array([1.0, 2.0, 4.0]), np.array([[0.1, 0.2, 9.0], [0.1, 0.2, 0.3]]), 1.0)
    >>> [end.tolist() for end in ends]
    [[2.0, 4.0], [4.0, inf]]
    """
    misses = latencies > limit_s
    n = len(loads)
    first_miss = np.where(misses.any(axis=1), misses.argmax(axis=1), n)
    after_last_hit = n - (~misses)[:, ::-1].argmax(axis=1)
    after_last_hit = np.where(misses.all(axis=1), 0, after_last_hit)
    padded = np.concatenate([[-np.inf], loads, [np.inf]])
    return padded[first_miss], padded[after_last_hit + 1]


def _tail_fraction(levels: int) -> float:
    """Fraction of resamples beyond each end; below 5 % to account for a curve through few levels."""
    from scipy.special import ndtr, stdtrit

    return float(ndtr(np.sqrt(levels / (levels - 1)) * stdtrit(levels - 1, (1 - CONFIDENCE_LEVEL) / 2)))


def _add_interval(capacity: Capacity, drawn: Floats, loads: Floats, points: Floats, limit_s: float) -> Capacity:
    """Add to a capacity its interval from the draws; ends and values outside the measured loads become null.

    `drawn`: Capacities of the draws. `points`: Latency in seconds by load.
    """
    reach = MAX_EXTRAPOLATION * float(loads[-1])
    # NaN: the lowest load already exceeds the limit, so the resample ranks below all others.
    order = np.sort(np.where(np.isnan(drawn), 0.0, np.minimum(drawn, 1e12)))
    tail = int(_tail_fraction(len(loads)) * len(order))
    low, high = float(order[tail]), float(order[-1 - tail])
    ends = replace(
        capacity, low=low if low >= loads[0] / MAX_EXTRAPOLATION else None, high=high if high <= reach else None
    )
    value = capacity.value
    if value is None or np.isnan(value) or value < loads[0] / MAX_EXTRAPOLATION:
        reason = f"{points[0]:.4g} s at the lowest load of {loads[0]:g} exceeds the limit of {limit_s:g} s"
        return replace(ends, value=None, reason=reason, advice=_advise_below(loads[0]))
    if value > reach or (ends.low is not None and ends.low > reach):
        place = "is far below" if points[-1] <= limit_s else "does not differ clearly from lower loads, nor from"
        reason = f"{points[-1]:.4g} s at the largest load of {loads[-1]:g} {place} the limit of {limit_s:g} s"
        more = ", ".join(f"{loads[-1] * factor:g}" for factor in (2, 4, 8))
        return replace(ends, value=None, low=None, high=None, reason=reason, advice=f"add levels, such as {more}")
    return ends


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
        """Load below which the capacity lies."""
        return self.load if self.max_rate_per_s is None else min(self.load, self.max_rate_per_s)


def find_ceiling(points: pl.DataFrame) -> Ceiling | None:
    """The lowest load of one GPU count that was not served; null when all were.

    `points`: Table `points`; of it load, load_unit, verdict, reason and ended_high_per_s.

    >>> import polars as pl
    >>> points = {"load": [4.0, 8.0, 16.0], "load_unit": "users", "verdict": ["valid", "interrupted", "interrupted"]}
    >>> points |= {"reason": "4.0 % of 900 failed: 36 timeout", "ended_high_per_s": None}
    >>> find_ceiling(pl.DataFrame(points)).load
    8.0
    """
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
    """Estimate the capacity with `estimate_capacity`, then bound it by loads not served and by the measured range.

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


def _advise_below(lowest: float) -> str:
    """What to do where the lowest load is too slow already: below one user there is none."""
    return "measure lower loads, or raise the limit" if lowest > 1 else "raise the limit, or speed the service up"


def _fit_levels(levels: Sequence[Level], q: float, limit_s: float, draws: int, seed: int) -> Capacity:
    """`estimate_capacity`, which says nothing of one level alone, and mistakes two groups of latencies for the load."""
    capacity = estimate_capacity(levels, q, limit_s, draws=draws, seed=seed)
    if len(levels) == 1 and (value := quantiles.compute_quantile(levels[0].values, q)) > limit_s:
        reason = f"{value:.4g} s at the lowest load of {levels[0].load:g} exceeds the limit of {limit_s:g} s"
        return replace(capacity, reason=reason, advice=_advise_below(levels[0].load))
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
    """Describe two groups of latencies, between which the quantile may fall and the limit lies; null without them.

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
        f"latencies fall into two groups, up to {quantile.low:.3g} s and from {quantile.high:.3g} s"
        f" ({100 * slow:.1f} % of them); p{100 * q:g} may be in either"
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
    place = "is below" if value <= limit_s else "does not differ clearly from"
    reason = capacity.reason or f"{value:.4g} s at the largest load of {top:g} {place} the limit of {limit_s:g} s"
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
    # What ended may by chance be less than what was served: then the load that was not served is the end.
    upper = ceiling.upper if ceiling.upper > top else ceiling.load
    # A resample may pass the limit below the highest load served: its end stays.
    low = floor if capacity.low is None or capacity.low > top else min(capacity.low, top)
    value = min(capacity.value, upper) if crossed and capacity.value is not None else max(floor, min(top, upper))
    if upper > MAX_BRACKET_FACTOR * low and upper - low > 1:
        middle = ", ".join(f"{low + (upper - low) * part:.3g}" for part in (0.25, 0.5, 0.75))
        reason = f"the capacity is between {low:.4g} and {upper:.4g}; {ceiling.text}"
        advice = f"measure between, such as {middle}"
        found = replace(capacity, value=None, low=low, high=None, at_least=True)
        return replace(found, reason=reason, advice=advice, between=(low, upper))
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
