"""The rate that a cluster sustains: steps of the arrival process cut into windows, judged by what was scheduled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.analysis.throughput import Floats, Saturation, StagePassages, count_passages, find_saturation
from workbench.scaletest.tables import RAMP

N_WINDOWS = 10
# Fewer windows than that are no evidence.
MIN_WINDOWS = 4
# What differs by less than this share does not matter.
MARGIN = 0.02
# The last step's plateau ends when so much of its backlog is through: one late pod would thin it out.
THROUGH = 0.95
# Minimum length of a step whose workloads all arrive together, without steps before or after it.
MIN_STEP_S = 1.0


CONFIDENCE_LEVEL = 0.95
MIN_PODS = 20
_Interval = tuple[float, float, float]
_MORE = "its windows are too few or vary too much; use steps of at least 20 s"
_OTHERS = "the other windows are too few or vary too much"
_IN_TURN = "Jobs with completions above parallelism create pods when others end, so their due times are unknown"


SUSTAINED, NOT_SUSTAINED, UNDECIDED = "SUSTAINED", "NOT SUSTAINED", "UNDECIDED"


@dataclass(frozen=True)
class ArrivalStep:
    """A step of the arrival process; it always has a length.

    `through_s`: When nearly all that came in was through, too: after the last step only, where nothing else follows.
    `delays_s`: From due to scheduled, of its accepted workloads in the order in which they were due; infinite for
    never.
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
        quantile_s = float(np.quantile(self.delays_s, 0.95, method="higher")) if len(self.delays_s) else math.inf
        return quantile_s if math.isfinite(quantile_s) else None

    @property
    def lags_more(self) -> bool:
        """Its last workloads waited longer than its first by more than the margin of its length, or never ended."""
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
        return int(self.steady.sum()) >= MIN_WINDOWS

    @property
    def ends_s(self) -> Floats:
        """Begin of the first window, and end of the last one with room."""
        return np.array([self.edges_s[0], self.edges_s[1:][self.kept][-1]])

    def rates(self, times: Floats) -> Floats:
        """Passages a second in each window; what came at an edge belongs to the later one."""
        return np.asarray(np.diff(count_before(times, self.edges_s)) / np.diff(self.edges_s))


def cut_windows(step: ArrivalStep, end_s: float, where: Saturation) -> Windows:
    """Windows from the step's begin to an end.

    No evidence are windows in which pods waited for room, and of the rate the first ones, until the quickest workload
    can have been through. Four are kept, so that what never comes out is seen to be missing.
    """
    edges = np.linspace(step.begin_s, end_s, N_WINDOWS + 1)
    width = (end_s - step.begin_s) / N_WINDOWS
    # A delay that is short against a window costs less than the margin.
    empty = math.ceil(step.delay_s / width - MARGIN) if math.isfinite(step.delay_s) else N_WINDOWS
    skip = max(0, min(empty, N_WINDOWS - MIN_WINDOWS))
    full = where.full_fractions(edges) > 0
    steady = ~full
    steady[:skip] = False
    return Windows(edges, ~full, steady, int(full.sum()), empty <= skip)


def list_arrival_steps(schedule: pl.DataFrame, passages: StagePassages, steps: pl.DataFrame) -> list[ArrivalStep]:
    """The steps of a plan, from tables SCHEDULE and STEPS."""
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
    # Without a plan (imported runs may have none) there are no parts, and no end.
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
    through_part = part.join(waits.filter(pl.col("duration_s").is_not_null()), on="index", how="semi")
    return int(through_part["pods"].sum()) / max(1, int(part["pods"].sum()))


def _mean_lag(rows: pl.DataFrame) -> float:
    mean_s = rows.select((pl.col("duration_s") * pl.col("pods")).sum() / pl.col("pods").sum()).item()
    return float(mean_s) if mean_s is not None and math.isfinite(mean_s) else 0.0


def _find_step_end(
    due: Floats, following_s: float | None, before: ArrivalStep | None, passages: StagePassages
) -> float:
    """The next step's begin; the last step ends as long after its last arrivals as those lie apart."""
    begin, last = float(due[0]), float(due[-1])
    end = last + (last - begin) / max(1, len(np.unique(due)) - 1) if following_s is None else following_s
    if end > begin:
        return end
    # All arrived together: as long as the step before, else until they were scheduled.
    return begin + (
        before.length_s if before is not None else max(MIN_STEP_S, _find_drain_end(begin, passages) - begin)
    )


def _find_drain_end(end_s: float, passages: StagePassages) -> float:
    """When 95 % of what was not scheduled by the end, and ever was, had been."""
    n_done = int(count_passages(passages.scheduled, np.array([end_s]))[0])
    n_left = len(passages.scheduled) - n_done
    return max(end_s, float(passages.scheduled[n_done + math.ceil(THROUGH * n_left) - 1])) if n_left else end_s


def count_before(times: Floats, at: Floats) -> npt.NDArray[np.int64]:
    """How many had passed before these moments: a burst's pods are due at the very begin of its step."""
    return np.searchsorted(times, at, side="left").astype(np.int64)


@dataclass(frozen=True)
class SustainableRate:
    """The rate of pods that the cluster sustains, with its 95 % interval; `high_per_s` is None if never reached."""

    low_per_s: float | None
    high_per_s: float | None
    reason: str

    @property
    def words(self) -> str | None:
        """The rate with its ends; None if it is not decided."""
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
    gpus: pl.DataFrame | None = None,
    pods: pl.DataFrame | None = None,
    *,
    in_turn: bool = False,
) -> pl.DataFrame:
    """For each step of the arrival process: offered, accepted, scheduled, and whether the backlog grew.

    `in_turn`: Some pods were made only when others of their workload had ended: no step is decided then.

    Returns: Table RAMP. A step is cut into ten windows; rates and slopes are means over them with t intervals, null
    where fewer than four are evidence. The last step's rate, where it was too fast, is taken until 95 % of its
    backlog was gone.

    NOT SUSTAINED: the backlog surely grew by more than 2 % of what was offered. SUSTAINED: it surely did not, or less
    than 2 % of what came in was left at the end; and at least 96 % of what was due was accepted. No evidence: windows
    in which pods waited for room, and of the rate the first ones, until the quickest workload can have been through. A
    steady delay is no growth: scheduled pods are compared with those accepted one delay earlier. The windows of a
    step are not independent; differences of a steady backlog are negatively correlated, which makes the interval too
    wide rather than too short. Does not show a decline that sets in later than the step lasts.
    """
    where = find_saturation(gpus, pods)
    return RAMP.frame(
        [
            _build_ramp_row(step, passages, where, in_turn=in_turn)
            for step in list_arrival_steps(schedule, passages, steps)
        ]
    )


def _build_ramp_row(step: ArrivalStep, passages: StagePassages, where: Saturation, *, in_turn: bool) -> dict[str, Any]:
    ends = np.array([step.begin_s, step.end_s])
    accepted, scheduled = count_before(passages.pods_due, ends), count_before(passages.scheduled, ends)
    return {
        "step": step.number,
        "begin_s": step.begin_s,
        "end_s": step.end_s,
        "offered_per_s": step.offered_per_s,
        "accepted_per_s": float(accepted[1] - accepted[0]) / step.length_s,
        "backlog_end": int(accepted[1] - scheduled[1]),
        "p95_s": step.p95_s,
        "through_per_s": step.through * step.offered_per_s,
        **(_build_open_row(_IN_TURN) if in_turn else _judge_step(step, passages, where)),
    }


def _build_open_row(reason: str) -> dict[str, Any]:
    """Of a step that is not decided, and why."""
    names = [name for name in RAMP.schema() if name.startswith(("completed", "low", "high", "backlog_"))]
    nothing = dict.fromkeys(name for name in names if name != "backlog_end")
    return nothing | {"verdict": UNDECIDED, "reason": reason}


def _judge_step(step: ArrivalStep, passages: StagePassages, where: Saturation) -> dict[str, Any]:
    """Rate, growth of the backlog, verdict and reason."""
    windows = cut_windows(step, step.end_s, where)
    if not windows.enough:
        return _build_open_row(_explain_saturation(windows))
    # A steady delay is no growing backlog: scheduled pods are compared with those created one delay earlier.
    delay = step.delay_s if math.isfinite(step.delay_s) else 0.0
    growing = windows.rates(passages.pods_due + delay) - windows.rates(passages.scheduled)
    growth = mean_interval(growing[windows.kept])
    verdict, reason = _decide_verdict(step, windows, growth, passages)
    longer = cut_windows(step, step.through_s, where)
    plateau = longer if verdict == NOT_SUSTAINED and longer.enough else windows
    rate = mean_interval(plateau.rates(passages.scheduled)[plateau.steady])
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


def _decide_verdict(
    step: ArrivalStep, windows: Windows, growth: _Interval, passages: StagePassages
) -> tuple[str, str | None]:
    """The verdict; of a step that is not decided also why."""
    margin = MARGIN * step.offered_per_s
    # Accepted is later than due, and that alone is none that was not sent: at most a window's width of it.
    lag = min(step.lag_s, step.length_s / N_WINDOWS)
    due, accepted, arrivals, departures = (
        count_before(times, windows.ends_s)
        for times in (step.due_s, passages.pods_due - lag, passages.pods_due, passages.scheduled)
    )
    accepted[0] = arrivals[0]
    sent = accepted[1] - accepted[0] >= (1 - 2 * MARGIN) * (due[1] - due[0])
    if arrivals[1] - arrivals[0] < MIN_PODS:
        return UNDECIDED, f"fewer than {MIN_PODS} pods" if sent or due[1] - due[
            0
        ] < MIN_PODS else _explain_missing_pods(due, accepted)
    if not windows.past_delay and not step.lags_more:
        return UNDECIDED, "scheduling takes about as long as the step; use a longer step"
    if growth[1] > margin:
        return NOT_SUSTAINED, None
    if not sent:
        return UNDECIDED, _explain_missing_pods(due, accepted)
    # Where nearly all that came in is through at the end, it does not matter what the windows were like.
    if growth[2] <= margin or arrivals[1] - departures[1] <= MARGIN * (arrivals[1] - arrivals[0]):
        return SUSTAINED, None
    return UNDECIDED, _MORE if not windows.full else f"{_explain_saturation(windows)}; {_OTHERS}"


def _explain_missing_pods(due: Any, accepted: Any) -> str:
    return f"only {accepted[1] - accepted[0]:,} of {due[1] - due[0]:,} pods were submitted in time"


def _explain_saturation(windows: Windows) -> str:
    return f"pods waited for room in {windows.full} of its {N_WINDOWS} windows"


def mean_interval(values: Floats, level: float = CONFIDENCE_LEVEL) -> _Interval:
    """Mean with its t interval.

    >>> [round(one, 2) for one in mean_interval(np.array([19.0, 20.0, 21.0, 20.0]))]
    [20.0, 18.7, 21.3]
    """
    from scipy.special import stdtrit

    n = len(values)
    mean = float(values.mean())
    half = float(stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return mean, mean - half, mean + half


def find_sustainable_rate(ramp: pl.DataFrame) -> SustainableRate:
    """The rate that lies between what was sustained and what was not.

    What was sustained is what the step offered, as far as it was scheduled: not the mean of windows, which vary with
    the bursts of the plan. While a step is not sustained, pods are scheduled as fast as the cluster can: that plateau
    is the rate. Where it is lower than what an earlier step sustained (a cluster that slows down under its backlog),
    the earlier one counts.
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
    """Why the slowest undecided step is not decided."""
    rows = ramp.filter(pl.col("reason").is_not_null()).sort("offered_per_s")
    if not rows.height:
        return ""
    return f"at {rows['offered_per_s'][0]:.3g} pods/s, {rows['reason'][0]}"
