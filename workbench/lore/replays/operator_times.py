"""Times of an operator without its inputs: medians, intervals, and when enough runs were measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench import stats
from workbench.lore.replays.run_costs import RunCost

CONFIDENCE_LEVEL = 0.9
# Fewer runs than this are measured exactly as often as asked for.
MIN_ADAPTIVE_RUNS = 10
# Runs between two looks at the interval; each look costs coverage, which is simulated in the tests.
RUNS_PER_LOOK = 5


def build_timing_row(side: str, repeat: int, scan: RunCost, total: RunCost) -> dict[str, Any]:
    """A row of `tables.TIMINGS`: both measurements, and their differences as they are, also below 0."""
    return {
        "side": side,
        "repeat": repeat,
        "scan_s": scan.wall_s,
        "total_s": total.wall_s,
        "operator_s": total.wall_s - scan.wall_s,
        "scan_cpu_s": scan.cpu_s,
        "total_cpu_s": total.cpu_s,
        "operator_cpu_s": _subtract(total.cpu_s, scan.cpu_s),
        "scan_run_s": scan.run_s,
        "total_run_s": total.run_s,
        "operator_run_s": _subtract(total.run_s, scan.run_s),
        "peak_memory_bytes": total.peak_memory_bytes,
        "spill_bytes": total.spill_bytes,
    }


def _subtract(total: float | None, scan: float | None) -> float | None:
    return None if total is None or scan is None else total - scan


def summarize_differences(differences: Sequence[float], *, level: float = CONFIDENCE_LEVEL) -> dict[str, Any]:
    """Median of differences with its interval, where they resolve a time above 0.

    Returns: value, low, high: null without a resolved time (low and high also for fewer values than an interval
    needs); below: the upper end of the interval where the time is not resolved, never below 0.

    >>> summarize_differences([0.010, 0.011, 0.012, 0.013, 0.014, 0.015])["value"]
    0.0125
    >>> summarize_differences([-0.010, 0.011, -0.012, 0.013, 0.014, 0.015])
    {'value': None, 'low': None, 'high': None, 'below': 0.015}
    """
    interval = stats.quantile_interval(differences, 0.5, level=level)
    if interval.low is None or interval.high is None:
        above = interval.estimate is not None and interval.estimate > 0
        return {"value": interval.estimate if above else None, "low": None, "high": None, "below": None}
    if interval.low <= 0:
        return {"value": None, "low": None, "high": None, "below": max(interval.high, 0.0)}
    return {"value": interval.estimate, "low": interval.low, "high": interval.high, "below": None}


def is_tight(differences: Sequence[float], tight: float, *, level: float = CONFIDENCE_LEVEL) -> bool:
    """Is the interval of the median within this fraction of it, to both sides?

    >>> is_tight([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0, 1.01, 0.99, 1.0], 0.1)
    True
    """
    interval = stats.quantile_interval(differences, 0.5, level=level)
    if interval.low is None or interval.high is None or interval.estimate is None or interval.estimate <= 0:
        return False
    return max(interval.high - interval.estimate, interval.estimate - interval.low) <= tight * interval.estimate


def is_enough(
    turns: Sequence[Sequence[float]], *, repeat: int, tight: float, elapsed_s: float, budget_s: float
) -> bool:
    """Are these turns enough: the asked number, then until every side is tight or the budget ends?"""
    n_turns = len(turns[0])
    if n_turns < repeat:
        return False
    if repeat < MIN_ADAPTIVE_RUNS or elapsed_s >= budget_s:
        return True
    return (n_turns - repeat) % RUNS_PER_LOOK == 0 and all(is_tight(differences, tight) for differences in turns)
