"""The rate that a cluster sustains, from the steps of a test's arrival process.

During a step, pods are due at one rate. The step is cut into ten windows; in each window the rate of accepted pods is
compared with the rate of scheduled pods. Where scheduling keeps up, the two lines below stay as far apart as one pod
takes; where it does not, the gap (the backlog) grows from window to window:

    pods │                            ┌──── accepted
         │                      ┌─────┘  ▲
         │                ┌─────┘        │ backlog at the end
         │          ┌─────┘              ▼
         │    ┌─────┘    ┌──────┬───────┬──── scheduled
         │────┘    ┌─────┘      │       │
         ├─────┬───┴─┬─────┬────┴┬─────┬┴────► time
        begin  1     2     3     4    ...  end of the step
         └─────┘
         left out of the rate: nothing can be scheduled before the quickest workload was

A window in which pods waited for room says nothing of the scheduler and is left out. The mean growth of the backlog
over the windows, with its t interval, decides: SUSTAINED, NOT SUSTAINED, or UNDECIDED with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.analysis.room import Room
from workbench.scaletest.analysis.throughput import Floats, StagePassages, count_passages
from workbench.scaletest.tables import RAMP
from workbench.stats.intervals import t_interval

N_WINDOWS = 10
# Fewer windows than that are no evidence.
MIN_WINDOWS = 4
# Differences below this share do not matter.
MARGIN = 0.02
# The plateau of the last step ends when this share of its backlog is scheduled: one late pod would thin it out.
THROUGH = 0.95
# Minimum length of a step whose workloads all arrive together, without steps before or after it.
MIN_STEP_S = 1.0
CONFIDENCE_LEVEL = 0.95
MIN_PODS = 20
_MORE = "its windows are too few or vary too much; use steps of at least 20 s"
_OTHERS = "the other windows are too few or vary too much"
_IN_TURN = "Jobs with completions above parallelism create pods when others end, so their due times are unknown"
SUSTAINED, NOT_SUSTAINED, UNDECIDED = "SUSTAINED", "NOT SUSTAINED", "UNDECIDED"


Spans = Sequence[tuple[float, float]]


class MeanInterval(NamedTuple):
    """A mean over windows with its interval; the ends are infinite for one window."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ArrivalStep:
    """One step of the arrival process; `end_s` is always after `begin_s`.

    `through_s`: Time at which 95 % of the backlog was scheduled; for the last step only, the others end at `end_s`.
    `due_s`: Due time of each pod.
    `delays_s`: Time from due to scheduled of each accepted workload, by due time; infinite if never scheduled.
    `quickest_s`: Shortest delay of this step and the ones before it.
    `lag_s`: Mean time from due to accepted.
    `through`: Share of its pods that were scheduled at all.
    """

    number: int
    begin_s: float
    end_s: float
    through_s: float
    due_s: Floats
    delays_s: Floats
    quickest_s: float
    lag_s: float
    through: float

    @property
    def length_s(self) -> float:
        """Length of the step."""
        return self.end_s - self.begin_s

    @property
    def offered_per_s(self) -> float:
        """Pods due per second."""
        return len(self.due_s) / self.length_s

    @property
    def delay_s(self) -> float:
        """Delay of the quickest workload: no pod can be scheduled earlier. Time in the queue is not part of it."""
        return self.quickest_s if self.lags_more or not len(self.delays_s) else float(self.delays_s.min())

    @property
    def p95_s(self) -> float | None:
        """p95 of the delays; None if more than 5 % were never scheduled."""
        quantile_s = float(np.quantile(self.delays_s, 0.95, method="higher")) if len(self.delays_s) else math.inf
        return quantile_s if math.isfinite(quantile_s) else None

    @property
    def lags_more(self) -> bool:
        """Did the last quarter of the workloads wait longer than the first, by more than 2 % of the step's length?"""
        if not len(self.delays_s):
            return True
        part = max(1, len(self.delays_s) // 4)
        late = float(np.median(self.delays_s[-part:]))
        return late == math.inf or late - float(np.median(self.delays_s[:part])) > MARGIN * self.length_s


@dataclass(frozen=True)
class Windows:
    """Ten windows of a step, and which of them count.

    `kept`: Windows without pods that waited for room; they show how the backlog grew.
    `steady`: Of these, the windows after the delay of the quickest workload; they show the rate.
    `full`: Number of windows in which pods waited for room.
    `past_delay`: Whether that delay is shorter than the windows that were left out for it.
    `stopped`: Number of windows in which a stage stood still, or had not caught up.
    """

    edges_s: Floats
    kept: npt.NDArray[np.bool_]
    steady: npt.NDArray[np.bool_]
    full: int
    past_delay: bool
    stopped: int = 0

    @property
    def enough(self) -> bool:
        """Are at least four windows steady?"""
        return int(self.steady.sum()) >= MIN_WINDOWS

    @property
    def ends_s(self) -> Floats:
        """Start of the first window, and end of the last window that is kept."""
        return np.array([self.edges_s[0], self.edges_s[1:][self.kept][-1]])

    def rates(self, times: Floats) -> Floats:
        """Events per second in each window; an event on an edge belongs to the later window.

        `times`: Times of the events in seconds, ascending.
        """
        return np.asarray(np.diff(count_before(times, self.edges_s)) / np.diff(self.edges_s))


def cut_windows(step: ArrivalStep, end_s: float, where: Room, stops: Spans = ()) -> Windows:
    """Cut a step into windows, from its begin to `end_s`.

    The rate leaves out the first windows, until the quickest workload can have been scheduled; at least four stay, so
    that a step in which nothing is ever scheduled shows a rate of zero.
    """
    edges = np.linspace(step.begin_s, end_s, N_WINDOWS + 1)
    width = (end_s - step.begin_s) / N_WINDOWS
    # A delay that is short against a window costs less than the margin.
    empty = math.ceil(step.delay_s / width - MARGIN) if math.isfinite(step.delay_s) else N_WINDOWS
    skip = max(0, min(empty, N_WINDOWS - MIN_WINDOWS))
    full = where.full_fractions(edges) > 0
    stopped = np.zeros(N_WINDOWS, dtype=bool)
    for begin, end in stops:
        stopped |= (edges[1:] > begin) & (edges[:-1] < end)
    kept = ~(full | stopped)
    steady = kept.copy()
    steady[:skip] = False
    return Windows(edges, kept, steady, int((full & ~stopped).sum()), empty <= skip, int(stopped.sum()))


def list_arrival_steps(schedule: pl.DataFrame, passages: StagePassages, steps: pl.DataFrame) -> list[ArrivalStep]:
    """Steps of the arrival process, from the tables SCHEDULE and STEPS."""
    planned = schedule.select("index", "step", "due_s", "pods").sort("step", "due_s", "index")
    client_steps = steps.filter(pl.col("clock") == "client")
    waited = client_steps.filter(pl.col("step") == "due to scheduled").select("index", "duration_s")
    # Workloads that were never accepted have no row.
    waits = planned.join(waited, on="index", how="inner").sort("due_s", "index")
    lags = (
        client_steps.filter(pl.col("step").is_in(["lateness", "admission"]))
        .group_by("index")
        .agg(pl.col("duration_s").sum())
    )
    lagged = planned.join(lags, on="index", how="inner")
    parts = planned.partition_by("step", maintain_order=True)
    arrival_steps: list[ArrivalStep] = []
    # Imported runs may have no plan, and then no steps.
    for part, after in zip(parts, [*parts[1:], None], strict=False):
        number, due = int(part["step"][0]), part["due_s"].to_numpy().astype(float)
        end = _find_step_end(
            due,
            None if after is None else float(after["due_s"][0]),
            arrival_steps[-1] if arrival_steps else None,
            passages,
        )
        delays = waits.filter(pl.col("step") == number)["duration_s"].fill_null(math.inf).to_numpy().astype(float)
        arrival_steps.append(
            ArrivalStep(
                number=number,
                begin_s=float(due[0]),
                end_s=end,
                through_s=_find_drain_end(end, passages) if after is None else end,
                due_s=np.repeat(due, part["pods"].to_numpy()),
                delays_s=delays,
                quickest_s=min(
                    delays.min(initial=math.inf), arrival_steps[-1].quickest_s if arrival_steps else math.inf
                ),
                lag_s=_mean_lag(lagged.filter(pl.col("step") == number)),
                through=_through_fraction(part, waits),
            )
        )
    return arrival_steps


def _through_fraction(part: pl.DataFrame, waits: pl.DataFrame) -> float:
    """Share of a step's pods whose workload was scheduled.

    `part`: `index, pods` of the step. `waits`: `index, duration_s` from due to scheduled, null for never.
    """
    through_part = part.join(waits.filter(pl.col("duration_s").is_not_null()), on="index", how="semi")
    return int(through_part["pods"].sum()) / max(1, int(part["pods"].sum()))


def _mean_lag(rows: pl.DataFrame) -> float:
    """Mean seconds from due to accepted, over pods. `rows`: `pods, duration_s`, one row for a workload."""
    mean_s = rows.select((pl.col("duration_s") * pl.col("pods")).sum() / pl.col("pods").sum()).item()
    return float(mean_s) if mean_s is not None and math.isfinite(mean_s) else 0.0


def _find_step_end(
    due: Floats, following_s: float | None, before: ArrivalStep | None, passages: StagePassages
) -> float:
    """Find the end of a step: the begin of the next one, or one mean gap after the last arrival of the last step.

    `due`: Due times of the step's workloads in seconds. `following_s`: Begin of the next step, null for the last.
    """
    begin, last = float(due[0]), float(due[-1])
    end = last + (last - begin) / max(1, len(np.unique(due)) - 1) if following_s is None else following_s
    if end > begin:
        return end
    # All pods were due at once: as long as the step before, or else until they were scheduled.
    return begin + (
        before.length_s if before is not None else max(MIN_STEP_S, _find_drain_end(begin, passages) - begin)
    )


def _find_drain_end(end_s: float, passages: StagePassages) -> float:
    """Time at which 95 % of the pods left at the end of the step, and scheduled later, were scheduled."""
    n_done = int(count_passages(passages.scheduled, np.array([end_s]))[0])
    n_left = len(passages.scheduled) - n_done
    return max(end_s, float(passages.scheduled[n_done + math.ceil(THROUGH * n_left) - 1])) if n_left else end_s


def count_before(times: Floats, at: Floats) -> npt.NDArray[np.int64]:
    """Count events before each time, not at it: the pods of a burst are due exactly at the begin of their step.

    `times`: Times of the events in seconds, ascending. `at`: Moments in seconds; the result has one count for each.

    >>> count_before(np.array([0.0, 1.0, 1.0, 2.0]), np.array([1.0, 2.5])).tolist()
    [1, 4]
    """
    return np.searchsorted(times, at, side="left").astype(np.int64)


@dataclass(frozen=True)
class SustainableRate:
    """Sustained pods per second with a 95 % interval; `high_per_s` is None if no step exceeded it."""

    low_per_s: float | None
    high_per_s: float | None
    reason: str

    @property
    def words(self) -> str | None:
        """Interval of the rate in words; null if undecided."""
        if self.low_per_s is None:
            return None
        if self.high_per_s is None:
            return f"at least {self.low_per_s:.3g} pods/s"
        return f"{self.low_per_s:.3g} to {self.high_per_s:.3g} pods/s"

    @property
    def text(self) -> str:
        """The rate as a sentence, without the full stop."""
        if self.words is None:
            return f"The sustainable rate is not decided: {self.reason}"
        return (
            f"The cluster sustains {self.words} (95 % interval; {self.reason})"
            if self.high_per_s is not None
            else (f"The cluster sustains {self.words} ({self.reason})")
        )


def build_ramp_table(
    schedule: pl.DataFrame,
    passages: StagePassages,
    steps: pl.DataFrame,
    room: Room | None = None,
    *,
    stops: Spans = (),
    in_turn: bool = False,
) -> pl.DataFrame:
    """Judge each step: pods offered, accepted and scheduled, and whether the backlog grew.

    `stops`: Begin and end of times in which a stage stood still or had not caught up; their windows are left out.
    `in_turn`: Whether some pods were created only when others of their workload had ended; then no step is decided.

    Returns the table RAMP. Rates and slopes are means over windows with t intervals, null with fewer than four windows.
    Of a step that was too fast, the rate of the last step is taken until 95 % of its backlog was scheduled.

    NOT SUSTAINED: the lower end of the backlog's growth is above 2 % of the offered rate. SUSTAINED: its upper end is
    below that, or less than 2 % of the accepted pods were left at the end; and at least 96 % of the due pods were
    accepted in time. A constant delay is no growth: scheduled pods are compared with pods accepted one delay earlier.

    The windows of a step are not independent: differences of a steady backlog are negatively correlated, which makes
    the interval too wide rather than too narrow. A decline that sets in later than the step lasts is not seen.
    """
    where = room or Room(np.zeros(0))
    return RAMP.frame(
        [
            _build_ramp_row(step, passages, where, stops, in_turn=in_turn)
            for step in list_arrival_steps(schedule, passages, steps)
        ]
    )


def _build_ramp_row(
    step: ArrivalStep, passages: StagePassages, where: Room, stops: Spans, *, in_turn: bool
) -> dict[str, Any]:
    """Row of table RAMP for one arrival step: rates in pods/s, the backlog in pods, and the verdict.

    `in_turn`: Some Jobs create pods only when others end, so that due times are unknown and the step is not judged.
    """
    ends = np.array([step.begin_s, step.end_s])
    accepted, scheduled = count_before(passages.pods_accepted, ends), count_before(passages.scheduled, ends)
    return {
        "step": step.number,
        "begin_s": step.begin_s,
        "end_s": step.end_s,
        "offered_per_s": step.offered_per_s,
        "accepted_per_s": float(accepted[1] - accepted[0]) / step.length_s,
        "backlog_end": int(accepted[1] - scheduled[1]),
        "p95_s": step.p95_s,
        "through_per_s": step.through * step.offered_per_s,
        **(_build_open_row(_IN_TURN) if in_turn else _judge_step(step, passages, where, stops)),
    }


def _build_open_row(reason: str) -> dict[str, Any]:
    """Row of an undecided step, with the reason."""
    names = [name for name in RAMP.schema() if name.startswith(("completed", "low", "high", "backlog_"))]
    nothing = dict.fromkeys(name for name in names if name != "backlog_end")
    return nothing | {"verdict": UNDECIDED, "reason": reason}


def _judge_step(step: ArrivalStep, passages: StagePassages, where: Room, stops: Spans) -> dict[str, Any]:
    """Compute rate, growth of the backlog, verdict and reason of a step."""
    windows = cut_windows(step, step.end_s, where, stops)
    if not windows.enough:
        return _build_open_row(_explain_saturation(windows))
    # A constant delay is no growing backlog: scheduled pods are compared with pods accepted one delay earlier.
    delay = step.delay_s if math.isfinite(step.delay_s) else 0.0
    growing = windows.rates(passages.pods_accepted + delay) - windows.rates(passages.scheduled)
    growth = mean_interval(growing[windows.kept])
    verdict, reason = _decide_verdict(step, windows, growth, passages)
    longer = cut_windows(step, step.through_s, where, stops)
    plateau = longer if verdict == NOT_SUSTAINED and longer.enough else windows
    rate = mean_interval(plateau.rates(passages.scheduled)[plateau.steady])
    if verdict != UNDECIDED and rate.high <= 0 and passages.scheduled.max(initial=0.0) > plateau.ends_s[1]:
        return _build_open_row("nothing was scheduled in the windows in which pods had room, and later it went on")
    return {
        "completed_per_s": rate.mean,
        "low_per_s": rate.low,
        "high_per_s": rate.high,
        "backlog_slope_per_s": growth.mean,
        "backlog_low_per_s": growth.low,
        "backlog_high_per_s": growth.high,
        "verdict": verdict,
        "reason": reason,
    }


def _decide_verdict(
    step: ArrivalStep, windows: Windows, growth: MeanInterval, passages: StagePassages
) -> tuple[str, str | None]:
    """Decide the verdict of a step; undecided ones come with the reason."""
    margin = MARGIN * step.offered_per_s
    # Pods are accepted a little after they are due; that lag, up to one window, is not a pod that was never sent.
    lag = min(step.lag_s, step.length_s / N_WINDOWS)
    due, accepted, arrivals, departures = (
        count_before(times, windows.ends_s)
        for times in (step.due_s, passages.pods_accepted - lag, passages.pods_accepted, passages.scheduled)
    )
    # The lag is granted at the end alone: at the begin it would take away pods of this step that were accepted sooner.
    accepted[0] = arrivals[0]
    sent = accepted[1] - accepted[0] >= (1 - 2 * MARGIN) * (due[1] - due[0])
    if arrivals[1] - arrivals[0] < MIN_PODS:
        too_few = sent or due[1] - due[0] < MIN_PODS
        return UNDECIDED, f"fewer than {MIN_PODS} pods" if too_few else _explain_missing_pods(due, accepted)
    if not windows.past_delay and not step.lags_more:
        return UNDECIDED, "scheduling takes about as long as the step; use a longer step"
    if growth.low > margin:
        return NOT_SUSTAINED, None
    if not sent:
        return UNDECIDED, _explain_missing_pods(due, accepted)
    # If nearly all accepted pods are scheduled at the end, the spread of the windows does not matter.
    if growth.high <= margin or arrivals[1] - departures[1] <= MARGIN * (arrivals[1] - arrivals[0]):
        return SUSTAINED, None
    left_out = windows.full or windows.stopped
    return UNDECIDED, f"{_explain_saturation(windows)}; {_OTHERS}" if left_out else _MORE


def _explain_missing_pods(due: Any, accepted: Any) -> str:
    return f"only {accepted[1] - accepted[0]:,} of {due[1] - due[0]:,} pods were submitted in time"


def _explain_saturation(windows: Windows) -> str:
    stopped = f"a stage stood still in {windows.stopped} of its {N_WINDOWS} windows"
    full = f"pods waited for room in {windows.full} of its {N_WINDOWS} windows"
    return " and ".join([*([stopped] if windows.stopped else []), *([full] if windows.full else [])]) or _MORE


def mean_interval(values: Floats) -> MeanInterval:
    """Mean with its t interval.

    >>> [round(end, 2) for end in mean_interval(np.array([19.0, 20.0, 21.0, 20.0]))]
    [20.0, 18.7, 21.3]
    """
    mean, half, _ = t_interval(values, CONFIDENCE_LEVEL)
    mean, half = math.nan if mean is None else mean, math.inf if half is None else half
    return MeanInterval(mean, mean - half, mean + half)


def find_sustainable_rate(ramp: pl.DataFrame) -> SustainableRate:
    """Derive the sustained rate from the table RAMP.

    A sustained step counts with its offered rate times the share that was scheduled, not with the mean of its windows,
    which varies with the bursts of the plan. During a step that is not sustained, pods are scheduled as fast as the
    cluster can: its plateau is the rate. If an earlier step sustained more (a cluster that slows down under its
    backlog), the earlier step counts.
    """
    failed = ramp.filter(pl.col("verdict") == NOT_SUSTAINED).sort("offered_per_s")
    bound = math.inf if not failed.height else failed["offered_per_s"][0]
    sustained_steps = ramp.filter((pl.col("verdict") == SUSTAINED) & (pl.col("offered_per_s") < bound)).sort(
        "offered_per_s"
    )
    best = sustained_steps.tail(1)
    if not failed.height and (not sustained_steps.height or best["through_per_s"][0] <= 0):
        return SustainableRate(None, None, _explain_open_steps(ramp) or _MORE)
    if not failed.height:
        beyond = _explain_open_steps(ramp.filter(pl.col("offered_per_s") > best["offered_per_s"][0]))
        reasons = ["no step that was fully submitted exceeded it", *([f"not decided {beyond}"] if beyond else [])]
        return SustainableRate(float(best["through_per_s"][0]), None, "; ".join(reasons))
    plateau = failed.head(1)
    low, high = max(0.0, float(plateau["low_per_s"][0])), float(plateau["high_per_s"][0])
    if sustained_steps.height:
        sustained = float(best["through_per_s"][0])
        low, high = max(low, sustained), max(high, sustained)
    return SustainableRate(low, high, f"{plateau['offered_per_s'][0]:.3g} pods/s were offered")


def _explain_open_steps(ramp: pl.DataFrame) -> str:
    """Reason why the slowest undecided step is undecided.

    `ramp`: Table RAMP.
    """
    rows = ramp.filter(pl.col("reason").is_not_null()).sort("offered_per_s")
    if not rows.height:
        return ""
    return f"at {rows['offered_per_s'][0]:.3g} pods/s, {rows['reason'][0]}"
