"""Slope-based estimation exactly as in the toolkit: a line through p95 values, then division.

A line p95 = slope * concurrency + intercept is fitted by least squares, solved for the concurrency at which it meets
the target, and the users are divided by that. The order of operations is part of the contract: on points that lie on
a line exactly, which of them is called an outlier depends on the last bit.

What it does not show: how sure the answer is, whether the line holds beyond the measured levels, whether GPUs scale
linearly. `estimate.py` is for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[Any]

MIN_POINTS = 2
"""Points that a line needs."""


@dataclass(frozen=True)
class FitRules:
    """When a point is an outlier and when a line is none; the defaults are the toolkit's, which has no flags for them.

    Parameters
    ----------
    remove_outliers
        Leave outliers out before the fit; only done with five levels or more.
    small_range
        Up to so many levels, raw p95 values are looked at first.
    extreme_iqr
        A raw p95 value farther than so many interquartile ranges outside the quartiles is left out.
    residual_iqr
        The same for the distance from a first line.
    min_r_squared
        A line that explains less is no line.
    """

    remove_outliers: bool = True
    small_range: int = 8
    extreme_iqr: float = 2.0
    residual_iqr: float = 1.5
    min_r_squared: float = 0.7


RULES = FitRules()


@dataclass(frozen=True)
class Line:
    """A fitted line: seconds of p95 for each further user, p95 without load, what it explains, levels left out."""

    slope: float
    intercept: float
    r_squared: float
    outliers_removed: tuple[int, ...] = ()

    def at(self, concurrency: float) -> float:
        """The p95 that the line gives for a concurrency, in s."""
        return self.slope * concurrency + self.intercept


@dataclass(frozen=True)
class Fit:
    """A line, or the reason why there is none."""

    line: Line | None
    reason: str | None = None


@dataclass(frozen=True)
class Estimate:
    """GPUs (not rounded), or the reason why there is no number.

    `refused` tells the cases in which the toolkit ends with a traceback: the line is fine, the question has no answer.
    """

    gpus: float | None
    reason: str | None = None
    refused: bool = False


def fit_line(concurrencies: Sequence[float], p95_s: Sequence[float], rules: FitRules = RULES) -> Fit:
    """Which line do the p95 values follow as the load grows?

    Parameters
    ----------
    concurrencies
        Loads, each once; whole numbers as ints, for then sums are exact.
    p95_s
        p95 at each load, in s.
    rules
        Outliers and the least R²; those of the toolkit by default.

    Returns
    -------
    Fit
        The line with the concurrencies that were left out as outliers (in the order given, raw ones first), or why
        there is none: fewer than two points, nothing left after outliers, R² too small. Flat data have R² 0.

    Raises
    ------
    InputError
        Both differ in length, or a value is not finite.

    Notes
    -----
    With 5 to 8 levels, values outside [Q1 - 2 IQR, Q3 + 2 IQR] are left out; with 5 or more, then residuals of a first
    line outside 1.5 IQR, once. Quartiles are numpy's (linear). The rule for few levels takes the highest load of a
    geometric ladder for an outlier, and R² accepts a clear bend (0.94 for a hockey stick).
    Source: NeMo Agent Toolkit 1.9.0, measured and read; the toolkit documents other thresholds than it uses.

    Examples
    --------
    >>> fit = fit_line([1, 2, 4, 8], [1.5, 2.0, 3.0, 5.0])
    >>> fit.line
    Line(slope=0.5, intercept=1.0, r_squared=1.0, outliers_removed=())
    >>> fit_line([1, 2, 4], [3.0, 3.0, 3.0]).reason
    'p95 does not follow a line over the load: R² = 0.000, at least 0.7 needed'
    """
    import numpy as np

    _check_points(concurrencies, p95_s)
    x, y = np.array(concurrencies), np.array(p95_s, dtype=np.float64)
    if len(x) < MIN_POINTS:
        return Fit(None, f"a line needs at least {MIN_POINTS} usable levels, there {_verb_for_count(len(x))}")
    x = _avoid_overflow(x)
    removed: list[int] = []
    # A vertical or empty remainder divides by zero, which comes out as "no line" below.
    with np.errstate(all="ignore"):
        if rules.remove_outliers and len(x) > 4:
            x, y, removed = _drop_outliers(x, y, rules)
        if len(x) < MIN_POINTS:
            return Fit(None, f"outliers leave {len(x)} of {len(concurrencies)} levels: no line")
        slope, intercept = _least_squares(x, y)
        r_squared = _compute_r2(x, y, slope, intercept)
    if not all(map(math.isfinite, (slope, intercept, r_squared))):
        return Fit(None, "p95 values too large to fit a line")
    if r_squared < rules.min_r_squared:
        reason = "p95 does not follow a line over the load"
        return Fit(None, f"{reason}: R² = {r_squared:.3f}, at least {rules.min_r_squared:g} needed")
    return Fit(Line(slope, intercept, r_squared, tuple(removed)))


def gpus_by_slope(line: Line, *, target_s: float, users: float, test_gpus: float) -> Estimate:
    """How many GPUs do the users need by the line, so that p95 stays at the target?

    Parameters
    ----------
    line
        What `fit_line` found on `test_gpus` GPUs.
    target_s
        Largest p95 allowed, in s.
    users
        Concurrent users to be served.
    test_gpus
        GPUs that the measurements ran on.

    Returns
    -------
    Estimate
        users / c * test_gpus, c being the concurrency at which the line meets the target; not rounded. Null when the
        target is at or below the intercept, or the line does not rise.

    Notes
    -----
    Assumes that GPUs scale linearly and that the line holds at any load.

    Examples
    --------
    >>> gpus_by_slope(Line(0.6, 3.5, 0.99), target_s=10, users=100, test_gpus=8).gpus
    73.84615384615384
    >>> gpus_by_slope(Line(0.6, 3.5, 0.99), target_s=3, users=100, test_gpus=8).reason
    'the target of 3 s is not above the 3.5 s that the line has without load: no number of GPUs meets it by this line'
    """
    if target_s <= line.intercept:
        reason = f"the target of {target_s:g} s is not above the {line.intercept:g} s that the line has without load"
        return Estimate(None, f"{reason}: no number of GPUs meets it by this line", refused=True)
    if line.slope <= 0:
        reason = f"the line does not rise with the load (slope {line.slope:.4g} s per user)"
        return Estimate(None, f"{reason}: it says nothing about how much load is too much", refused=True)
    concurrency = (target_s - line.intercept) / line.slope
    return Estimate((users / concurrency) * test_gpus)


@dataclass(frozen=True)
class Rough:
    """GPUs by one level alone: users / c * observed / target * test GPUs; null where they cannot be given."""

    by_llm_latency: float | None = None
    by_wf_runtime: float | None = None


def rough_gpus(
    concurrency: int,
    *,
    llm_latency_s: float,
    wf_runtime_s: float,
    target_llm_s: float,
    target_runtime_s: float,
    users: float,
    test_gpus: float,
) -> Rough:
    """How many GPUs by one level alone, as if time grew in proportion to load?

    A target of 0 is none. Both are null when either metric is above its target: the toolkit's rule.

    >>> rough_gpus(4, llm_latency_s=0.5, wf_runtime_s=5, target_llm_s=0, target_runtime_s=10, users=100, test_gpus=8)
    Rough(by_llm_latency=None, by_wf_runtime=100.0)
    """
    use_llm, use_runtime = target_llm_s > 0, target_runtime_s > 0
    if (use_llm and llm_latency_s > target_llm_s) or (use_runtime and wf_runtime_s > target_runtime_s):
        return Rough()
    by_llm = (users / concurrency) * (llm_latency_s / target_llm_s) * test_gpus if use_llm else None
    by_runtime = (users / concurrency) * (wf_runtime_s / target_runtime_s) * test_gpus if use_runtime else None
    return Rough(by_llm, by_runtime)


def _drop_outliers(x: Numbers, y: Floats, rules: FitRules) -> tuple[Numbers, Floats, list[int]]:
    removed: list[int] = []
    if len(x) <= rules.small_range:
        mask = _mask_outliers(y, rules.extreme_iqr)
        removed += x[~mask].tolist()
        x, y = x[mask], y[mask]
    if len(x) < MIN_POINTS:
        return x, y, removed
    slope, intercept = _least_squares(x, y)
    # y - slope * x - intercept rounds differently, and then names other outliers on an exact line.
    mask = _mask_outliers(y - (slope * x + intercept), rules.residual_iqr)
    return x[mask], y[mask], [*removed, *x[~mask].tolist()]


def _mask_outliers(values: Floats, reach: float) -> npt.NDArray[np.bool_]:
    import numpy as np

    first, third = np.percentile(values, 25), np.percentile(values, 75)
    span = third - first
    return np.asarray((values >= first - reach * span) & (values <= third + reach * span))


def _least_squares(x: Numbers, y: Floats) -> tuple[float, float]:
    n, sum_x, sum_y = len(x), x.sum(), y.sum()
    slope = (n * (x * y).sum() - sum_x * sum_y) / (n * (x**2).sum() - sum_x**2)
    return float(slope), float((sum_y - slope * sum_x) / n)


def _compute_r2(x: Numbers, y: Floats, slope: float, intercept: float) -> float:
    residual = ((y - (slope * x + intercept)) ** 2).sum()
    total = ((y - y.mean()) ** 2).sum()
    return float(1 - residual / total) if total != 0 else 0.0


def _avoid_overflow(x: Numbers) -> Numbers:
    """Whole numbers stay whole, unless their sum of squares would wrap around."""
    import numpy as np

    if x.dtype.kind != "i":
        return x.astype(np.float64)
    largest = max(abs(int(value)) for value in x)
    return x if (len(x) * largest) ** 2 < 2**63 else x.astype(np.float64)


def _check_points(concurrencies: Sequence[float], p95_s: Sequence[float]) -> None:
    if len(concurrencies) != len(p95_s):
        counts = f"{len(concurrencies)} and {len(p95_s)} values"
        raise InputError("loads and p95 values are not pairs", where="slope", found=counts)
    if odd := [value for value in (*concurrencies, *p95_s) if not math.isfinite(value)]:
        raise InputError("values that no line can be fitted to", where="slope", found=odd[:5], allowed="finite numbers")


def _verb_for_count(count: int) -> str:
    return f"is {count}" if count == 1 else f"are {count or 'none'}"
