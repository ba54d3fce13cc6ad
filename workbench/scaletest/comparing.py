"""Two sides, one plan: which is faster at what? The run is the unit, never the workload.

Workloads of one run share its queue, its minute and its machine; 500 of them are one observation of the scheduler, not
500. So each side is run several times, in turn, and each run's quantile is one value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench import stats
from workbench.errors import InputError
from workbench.scaletest.result_tables import COMPARISON
from workbench.scaletest.steps import NAMES

MARGIN = 0.05
LEVEL = 0.95
SHARES = (0.5, 0.95)
ONE_RUN = "one run each: nobody knows how much two runs of the same side differ"


def compare(
    a: Sequence[pl.DataFrame],
    b: Sequence[pl.DataFrame],
    *,
    names: tuple[str, str] = ("A", "B"),
    clock: str = "client",
    margin: float = MARGIN,
) -> pl.DataFrame:
    """How do the runs of B differ from those of A, step by step?

    Parameters
    ----------
    a, b
        Table QUANTILES of each run: the k-th of A and the k-th of B are a pair, made one after the other.
    names
        What the sides are called in reasons.
    clock
        Clock of the steps that are compared.
    margin
        Differences below this share do not matter.

    Returns
    -------
    DataFrame
        Table COMPARISON: per step and quantile (p50, p95) the ratio A over B of the runs' quantiles, with the paired t
        interval (95 %) on logarithms, and a verdict over all rows (Holm). One run a side gives the difference, and
        UNDECIDED.

    Raises
    ------
    InputError
        A side has no run, or the sides have different numbers of them.

    Notes
    -----
    A row in which a run has no figure claims nothing: what is left are the runs that went well. Where only one side
    lost runs to workloads that never got there, no ratio is given, and the reason names the side; else the ratio of the
    pairs that are left is given without an interval. Does not show anything about other plans, rates or clusters.
    Source: paired t on logarithms; Holm (1979).
    """
    if not a or len(a) != len(b):
        raise InputError("both sides need the same number of runs", found=f"{len(a)} and {len(b)}", allowed="pairs")
    first, second = _Side(names[0], a, clock), _Side(names[1], b, clock)
    asked = [(step, share) for step in _steps(first, second) for share in SHARES]
    rows = [_row(step, share, first, second) for step, share in asked if _is_timed(step, share, first, second)]
    intervals = [row.pop("interval") for row in rows]
    decided = stats.decide_beyond(intervals, [margin] * len(intervals))
    tested = sum(one.low is not None for one in intervals)
    for row, interval, found in zip(rows, intervals, decided, strict=True):
        row |= {"verdict": found.verdict, "adjusted_p_value": found.adjusted_p_value}
        if found.verdict == "UNDECIDED" and row["reason"] is None:
            row["reason"] = ONE_RUN if len(a) == 1 else _open(interval, margin, tested)
    return COMPARISON.frame(rows)


@dataclass(frozen=True)
class _Side:
    """The runs of a side, by what they say of a step's quantile."""

    name: str
    runs: Sequence[pl.DataFrame]
    clock: str

    def steps(self, *, timed: bool) -> set[str]:
        """Steps that some run has; `timed`: without those that take no time in any."""
        own = [run.filter(pl.col("clock") == self.clock) for run in self.runs]
        if timed:
            own = [run.filter(pl.col("longest_s").is_null() | (pl.col("longest_s") != 0)) for run in own]
        return {step for run in own for step in run["step"]}

    def values(self, step: str, share: float) -> list[_Value]:
        """The quantile in each run."""
        own = (pl.col("step") == step) & (pl.col("clock") == self.clock) & ((pl.col("quantile") - share).abs() < 1e-9)
        return [_value(run.filter(own)["value_s"].to_list()) for run in self.runs]


@dataclass(frozen=True)
class _Value:
    """A run's quantile, or why it has none that a ratio can be made of: "never", "no time" or "absent"."""

    seconds: float | None
    lack: str = ""


def _value(found: list[float | None]) -> _Value:
    if not found:
        return _Value(None, "absent")
    if found[0] is None:
        return _Value(None, "never")
    # Below zero: by a clock of whole seconds, or between two clocks.
    return _Value(float(found[0])) if found[0] > 0 else _Value(None, "no time")


def _steps(a: _Side, b: _Side) -> list[str]:
    """Steps that both sides have, in their order; without those that take no time in any run."""
    both = a.steps(timed=False) & b.steps(timed=False)
    return sorted(both & (a.steps(timed=True) | b.steps(timed=True)), key=NAMES.index)


def _is_timed(step: str, share: float, a: _Side, b: _Side) -> bool:
    """Some run took time for it, or never got there."""
    return any(one.lack != "no time" for side in (a, b) for one in side.values(step, share))


def _row(step: str, share: float, a: _Side, b: _Side) -> dict[str, Any]:
    first, second = a.values(step, share), b.values(step, share)
    reason = _lost(share, a.name, first, b.name, second)
    pairs = [(x.seconds, y.seconds) for x, y in zip(first, second, strict=True) if x.seconds and y.seconds]
    found = stats.paired_log_ratio([x for x, _ in pairs], [y for _, y in pairs], level=LEVEL)
    never = [sum(one.lack == "never" for one in side) for side in (first, second)]
    one_sided = min(never) == 0 < max(never)
    if reason is not None:
        kept = None if one_sided else found.estimate
        found = stats.Interval(kept, None, None, LEVEL, len(pairs), found.method, reason=reason)
    left = ([one.seconds for one in side if one.seconds] for side in (first, second))
    means = [_middle(side if one_sided else list(own)) for side, own in zip(left, _turned(pairs), strict=True)]
    return {
        "step": step,
        "clock": a.clock,
        "quantile": share,
        "a_s": None if one_sided and never[0] else means[0],
        "b_s": None if one_sided and never[1] else means[1],
        "ratio": found.estimate,
        "low": found.low,
        "high": found.high,
        "level": LEVEL,
        "n": len(pairs),
        "a_never": never[0],
        "b_never": never[1],
        "reason": reason,
        "interval": found,
    }


def _turned(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _lost(share: float, a: str, first: list[_Value], b: str, second: list[_Value]) -> str | None:
    """Why pairs are lost, in words; null when none is."""
    whats = {
        "never": f"more than {100 * (1 - share):g} % of the workloads never got there",
        "no time": "it took no time that can be measured",
        "absent": "there is no such step",
    }
    told = []
    for lack, what in whats.items():
        counts = [(name, sum(one.lack == lack for one in own), len(own)) for name, own in ((a, first), (b, second))]
        if all(count == runs for _, count, runs in counts):
            told.append(f"{what} in all runs")
        elif any(count for _, count, _ in counts):
            where = [f"in {count} of {runs} runs of {name}" for name, count, runs in counts if count]
            told.append(f"{what} {' and '.join(where)}")
    return "; ".join(told) or None


def _open(interval: stats.Interval, margin: float, tested: int) -> str:
    """Why a row with an interval is undecided: how many runs would tell, roughly."""
    needed = stats.pairs_needed(interval, margin, tested)
    told = f"about {needed} runs a side would tell" if needed else "too close to tell, or the runs differ too much"
    alone = stats.p_beyond(interval, margin)
    if alone is not None and alone <= 1 - LEVEL:
        return f"clear alone, but not among {tested} rows judged together: {told}"
    return told


def _middle(values: list[float]) -> float | None:
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
