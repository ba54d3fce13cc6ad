"""Steps of the arrival process, cut into windows: which of them are evidence of what the cluster sustains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.flow import Floats, Passages, count
from workbench.scaletest.room import Room

WINDOWS = 10
# Fewer windows than that are no evidence.
FEWEST_WINDOWS = 4
# What differs by less than this share does not matter.
MARGIN = 0.02
# The last step's plateau ends when so much of its backlog is through: one late pod would thin it out.
THROUGH = 0.95
# A step whose workloads all came at once, and nothing before or after them: so long at least.
LEAST_STEP_S = 1.0


@dataclass(frozen=True)
class Step:
    """A step of the arrival process; it always has a length.

    Attributes
    ----------
    through_s
        When nearly all that came in was through, too: after the last step only, where nothing else follows.
    due_s
        When each of its pods was due.
    delays_s
        From due to scheduled, of its accepted workloads in the order in which they were due; infinite for never.
    quickest_s
        The smallest delay of this step and all before.
    lag_s
        From due to accepted, mean over its pods.
    """

    number: int
    begin_s: float
    end_s: float
    through_s: float
    due_s: Floats
    delays_s: Floats
    quickest_s: float
    lag_s: float

    @property
    def length_s(self) -> float:
        """How long it lasts."""
        return self.end_s - self.begin_s

    @property
    def offered_per_s(self) -> float:
        """Pods that were due, a second."""
        return len(self.due_s) / self.length_s

    @property
    def delay_s(self) -> float:
        """What the quickest workload took, before which nothing can come out; what queues up is none of it."""
        return self.quickest_s if self.lags_more or not len(self.delays_s) else float(self.delays_s.min())

    @property
    def p95_s(self) -> float | None:
        """p95 of the delays; null where that many never ended."""
        found = float(np.quantile(self.delays_s, 0.95, method="higher")) if len(self.delays_s) else math.inf
        return found if math.isfinite(found) else None

    @property
    def lags_more(self) -> bool:
        """Its last workloads waited longer than its first, by more than the margin of its length; or for ever."""
        if not len(self.delays_s):
            return True
        part = max(1, len(self.delays_s) // 4)
        late = float(np.median(self.delays_s[-part:]))
        return late == math.inf or late - float(np.median(self.delays_s[:part])) > MARGIN * self.length_s


@dataclass(frozen=True)
class Windows:
    """Ten windows, and which of them are evidence.

    Attributes
    ----------
    kept
        There was room: evidence of how the backlog grew.
    steady
        And what comes out can have come in during this step: evidence of its rate.
    full
        Windows in which pods waited for room.
    past_delay
        The time in which nothing could come out yet is left out, all of it.
    """

    edges_s: Floats
    kept: npt.NDArray[np.bool_]
    steady: npt.NDArray[np.bool_]
    full: int
    past_delay: bool

    @property
    def enough(self) -> bool:
        """There are at least four."""
        return int(self.steady.sum()) >= FEWEST_WINDOWS

    @property
    def ends_s(self) -> Floats:
        """Begin of the first window, and end of the last one with room."""
        return np.array([self.edges_s[0], self.edges_s[1:][self.kept][-1]])

    def rates(self, times: Floats) -> Floats:
        """Passages a second in each window; what came at an edge belongs to the later one."""
        return np.asarray(np.diff(before(times, self.edges_s)) / np.diff(self.edges_s))


def cut(step: Step, end_s: float, where: Room) -> Windows:
    """Windows from the step's begin to an end.

    Notes
    -----
    No evidence are windows in which pods waited for room, and of the rate the first ones, until the quickest workload
    can have been through. Four are kept, so that what never comes out is seen to be missing.
    """
    edges = np.linspace(step.begin_s, end_s, WINDOWS + 1)
    width = (end_s - step.begin_s) / WINDOWS
    # A delay that is short against a window costs less than the margin.
    empty = math.ceil(step.delay_s / width - MARGIN) if math.isfinite(step.delay_s) else WINDOWS
    skip = max(0, min(empty, WINDOWS - FEWEST_WINDOWS))
    full = where.shares(edges) > 0
    steady = ~full
    steady[:skip] = False
    return Windows(edges, ~full, steady, int(full.sum()), empty <= skip)


def steps_of(schedule: pl.DataFrame, found: Passages, steps: pl.DataFrame) -> list[Step]:
    """The steps of a plan, from tables SCHEDULE and STEPS."""
    planned = schedule.select("index", "step", "due_s", "pods").sort("step", "due_s", "index")
    own = steps.filter(pl.col("clock") == "client")
    waited = own.filter(pl.col("step") == "due to scheduled").select("index", "duration_s")
    # Nobody waits for what was never accepted: it has no row.
    waits = planned.join(waited, on="index", how="inner").sort("due_s", "index")
    lags = own.filter(pl.col("step").is_in(["lateness", "admission"])).group_by("index").agg(pl.col("duration_s").sum())
    lagged = planned.join(lags, on="index", how="inner")
    parts = planned.partition_by("step", maintain_order=True)
    made: list[Step] = []
    # Without a plan (imported runs may have none) there are no parts, and no end.
    for part, after in zip(parts, [*parts[1:], None], strict=False):
        number, due = int(part["step"][0]), part["due_s"].to_numpy().astype(float)
        end = _end(due, None if after is None else float(after["due_s"][0]), made[-1] if made else None, found)
        delays = waits.filter(pl.col("step") == number)["duration_s"].fill_null(math.inf).to_numpy().astype(float)
        made.append(
            Step(
                number=number,
                begin_s=float(due[0]),
                end_s=end,
                through_s=_through(end, found) if after is None else end,
                due_s=np.repeat(due, part["pods"].to_numpy()),
                delays_s=delays,
                quickest_s=min(delays.min(initial=math.inf), made[-1].quickest_s if made else math.inf),
                lag_s=_mean_lag(lagged.filter(pl.col("step") == number)),
            )
        )
    return made


def _mean_lag(rows: pl.DataFrame) -> float:
    found = rows.select((pl.col("duration_s") * pl.col("pods")).sum() / pl.col("pods").sum()).item()
    return float(found) if found is not None and math.isfinite(found) else 0.0


def _end(due: Floats, following_s: float | None, before: Step | None, found: Passages) -> float:
    """The next step's begin; the last step ends as long after its last workload as those lie apart."""
    begin, last = float(due[0]), float(due[-1])
    end = last + (last - begin) / max(1, len(due) - 1) if following_s is None else following_s
    if end > begin:
        return end
    # All came at once: as long as the step before, else until they were through.
    return begin + (before.length_s if before is not None else max(LEAST_STEP_S, _through(begin, found) - begin))


def _through(end_s: float, found: Passages) -> float:
    """When 95 % of what was not scheduled by the end, and ever was, had been."""
    done = int(count(found.scheduled, np.array([end_s]))[0])
    left = len(found.scheduled) - done
    return max(end_s, float(found.scheduled[done + math.ceil(THROUGH * left) - 1])) if left else end_s


def before(times: Floats, at: Floats) -> npt.NDArray[np.int64]:
    """How many had passed before these moments: a burst's pods are due at the very begin of its step."""
    return np.searchsorted(times, at, side="left").astype(np.int64)
