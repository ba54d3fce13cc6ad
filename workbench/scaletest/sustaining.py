"""Which rate does the cluster sustain? By what got through, never by what was accepted.

An API server takes pods far faster than a cluster schedules them: 400/s accepted and 121/s scheduled is no throughput
of 400/s, but a backlog that grows by 279 a second. Nor is a rate sustained that was only planned, or too fast that
found no room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.flow import Floats, Passages
from workbench.scaletest.result_tables import RAMP
from workbench.scaletest.room import Room, room
from workbench.scaletest.windows import MARGIN, WINDOWS, Step, Windows, before, cut, steps_of

LEVEL = 0.95
FEWEST_PODS = 20
SUSTAINED, NOT_SUSTAINED, UNDECIDED = "SUSTAINED", "NOT SUSTAINED", "UNDECIDED"
_Interval = tuple[float, float, float]
_MORE = "its windows are too few or too unlike: 20 s and more a step would tell"
_OTHERS = "the others are too few or too unlike"
_IN_TURN = "Jobs with completions above parallelism make pods when others end, and nobody knows when those were due"


@dataclass(frozen=True)
class Sustainable:
    """The rate of pods that the cluster sustains, with its 95 % interval; `high_per_s` null: it was never reached."""

    low_per_s: float | None
    high_per_s: float | None
    reason: str

    @property
    def words(self) -> str | None:
        """The rate with its ends; null where it is not decided."""
        if self.low_per_s is None:
            return None
        if self.high_per_s is None:
            return f"at least {self.low_per_s:.3g} pods/s"
        return f"{self.low_per_s:.3g} to {self.high_per_s:.3g} pods/s"

    @property
    def text(self) -> str:
        """In words, as a sentence without its end."""
        if self.words is None:
            return f"Which rate it sustains is not decided ({self.reason})"
        return f"It sustains {self.words} ({self.reason})"


def ramp(
    schedule: pl.DataFrame,
    found: Passages,
    steps: pl.DataFrame,
    gpus: pl.DataFrame | None = None,
    pods: pl.DataFrame | None = None,
    *,
    in_turn: bool = False,
) -> pl.DataFrame:
    """For each step of the arrival process: offered, accepted, scheduled, and whether the backlog grew.

    Parameters
    ----------
    schedule, steps
        Tables SCHEDULE and STEPS.
    found
        The passages of the run.
    gpus, pods
        Tables GPUS and PODS; without them there was always room.
    in_turn
        Some pods were made only when others of their workload had ended: no step is decided then.

    Returns
    -------
    DataFrame
        Table RAMP. A step is cut into ten windows; rates and slopes are means over them with t intervals, null where
        fewer than four are evidence. The last step's rate, where it was too fast, is taken until 95 % of its backlog
        was gone.

    Notes
    -----
    NOT SUSTAINED: the backlog surely grew by more than 2 % of what was offered. SUSTAINED: it surely did not, or less
    than 2 % of what came in was left at the end; and at least 96 % of what was due was accepted. No evidence: windows
    in which pods waited for room, and of the rate the first ones, until the quickest workload can have been through. A
    steady delay is no growth: what was scheduled is held against what was accepted so long before. The windows of a
    step are not independent; differences of a steady backlog are negatively correlated, which makes the interval too
    wide rather than too short. Does not show a decline that sets in later than the step lasts.
    """
    where = room(gpus, pods)
    return RAMP.frame([_row(step, found, where, in_turn=in_turn) for step in steps_of(schedule, found, steps)])


def _row(step: Step, found: Passages, where: Room, *, in_turn: bool) -> dict[str, Any]:
    ends = np.array([step.begin_s, step.end_s])
    accepted, scheduled = before(found.pods_due, ends), before(found.scheduled, ends)
    return {
        "step": step.number,
        "begin_s": step.begin_s,
        "end_s": step.end_s,
        "offered_per_s": step.offered_per_s,
        "accepted_per_s": float(accepted[1] - accepted[0]) / step.length_s,
        "backlog_end": int(accepted[1] - scheduled[1]),
        "p95_s": step.p95_s,
        **(_nothing(_IN_TURN) if in_turn else _judged(step, found, where)),
    }


def _nothing(reason: str) -> dict[str, Any]:
    """Of a step that is not decided, and why."""
    names = [name for name in RAMP.schema() if name.startswith(("completed", "low", "high", "backlog_"))]
    nothing = dict.fromkeys(name for name in names if name != "backlog_end")
    return nothing | {"verdict": UNDECIDED, "reason": reason}


def _judged(step: Step, found: Passages, where: Room) -> dict[str, Any]:
    """Rate, growth of the backlog, verdict and reason."""
    windows = cut(step, step.end_s, where)
    if not windows.enough:
        return _nothing(_no_room(windows))
    # A steady delay is no backlog that grows: what comes out is held against what came in so long before.
    delay = step.delay_s if math.isfinite(step.delay_s) else 0.0
    growing = windows.rates(found.pods_due + delay) - windows.rates(found.scheduled)
    growth = interval(growing[windows.kept])
    verdict, reason = _verdict(step, windows, growth, found)
    longer = cut(step, step.through_s, where)
    plateau = longer if verdict == NOT_SUSTAINED and longer.enough else windows
    rate = interval(plateau.rates(found.scheduled)[plateau.steady])
    return {
        "completed_per_s": rate[0],
        "low_per_s": rate[1],
        "high_per_s": rate[2],
        "backlog_slope_per_s": growth[0],
        "backlog_low_per_s": growth[1],
        "backlog_high_per_s": growth[2],
        "verdict": verdict,
        "reason": reason,
    }


def _verdict(step: Step, windows: Windows, growth: _Interval, found: Passages) -> tuple[str, str | None]:
    """The verdict; of a step that is not decided also why."""
    margin = MARGIN * step.offered_per_s
    # Accepted is later than due, and that alone is none that was not sent: at most a window's width of it.
    lag = min(step.lag_s, step.length_s / WINDOWS)
    due, accepted, came, went = (
        before(times, windows.ends_s) for times in (step.due_s, found.pods_due - lag, found.pods_due, found.scheduled)
    )
    sent = accepted[1] - accepted[0] >= (1 - 2 * MARGIN) * (due[1] - due[0])
    if came[1] - came[0] < FEWEST_PODS:
        return UNDECIDED, f"fewer than {FEWEST_PODS} pods" if sent or due[1] - due[0] < FEWEST_PODS else _unsent(
            due, accepted
        )
    if not windows.past_delay and not step.lags_more:
        return UNDECIDED, "its pods take about as long as it lasts: a longer step would tell"
    if growth[1] > margin:
        return NOT_SUSTAINED, None
    if not sent:
        return UNDECIDED, _unsent(due, accepted)
    # Where nearly all that came in is through at the end, it does not matter what the windows were like.
    if growth[2] <= margin or came[1] - went[1] <= MARGIN * (came[1] - came[0]):
        return SUSTAINED, None
    return UNDECIDED, _MORE if not windows.full else f"{_no_room(windows)}; {_OTHERS}"


def _unsent(due: Any, accepted: Any) -> str:
    return f"of {due[1] - due[0]:,} pods only {accepted[1] - accepted[0]:,} were sent and accepted in time"


def _no_room(windows: Windows) -> str:
    return f"pods waited for room in {windows.full} of its {WINDOWS} windows"


def interval(values: Floats, level: float = LEVEL) -> _Interval:
    """Mean with its t interval.

    Examples
    --------
    >>> [round(one, 2) for one in interval(np.array([19.0, 20.0, 21.0, 20.0]))]
    [20.0, 18.7, 21.3]
    """
    from scipy.special import stdtrit

    n = len(values)
    mean = float(values.mean())
    half = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return mean, mean - half, mean + half


def sustainable(ramp: pl.DataFrame) -> Sustainable:
    """The rate that lies between what was sustained and what was not.

    Notes
    -----
    While a step is not sustained, pods are scheduled as fast as the cluster can: that plateau is the rate. Where it is
    lower than what an earlier step sustained (a cluster that slows down under its backlog), the earlier one counts.
    """
    failed = ramp.filter(pl.col("verdict") == NOT_SUSTAINED).sort("offered_per_s")
    bound = math.inf if not failed.height else failed["offered_per_s"][0]
    held = ramp.filter((pl.col("verdict") == SUSTAINED) & (pl.col("offered_per_s") < bound)).sort("offered_per_s")
    best = held.tail(1)
    if not failed.height and (not held.height or best["low_per_s"][0] <= 0):
        return Sustainable(None, None, _undecided(ramp) or _MORE)
    if not failed.height:
        beyond = _undecided(ramp.filter(pl.col("offered_per_s") > best["offered_per_s"][0]))
        reasons = ["no step that was really sent was too fast for it", *([beyond] if beyond else [])]
        return Sustainable(float(best["low_per_s"][0]), None, "; ".join(reasons))
    plateau = failed.head(1)
    low, high = _positive(plateau["low_per_s"][0]), float(plateau["high_per_s"][0])
    if held.height:
        low, high = max(low, _positive(best["low_per_s"][0])), max(high, float(best["high_per_s"][0]))
    return Sustainable(low, high, f"of {plateau['offered_per_s'][0]:.3g} pods/s that were offered")


def _undecided(ramp: pl.DataFrame) -> str:
    """Why steps are not decided: the slowest of them speaks for all."""
    rows = ramp.filter(pl.col("reason").is_not_null()).sort("offered_per_s")
    if not rows.height:
        return ""
    return f"{rows['offered_per_s'][0]:.3g} pods/s is not decided: {rows['reason'][0]}"


def _positive(value: float) -> float:
    return max(0.0, float(value))
