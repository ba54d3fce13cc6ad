"""Waits at a stage: does it hold work back, is it only late by a constant time, or did it stop?

By Little's law a delay looks like a queue: pods that start 3 s after they were bound, 50 a second, are 150 that wait.
What tells them apart is how the wait changes: a delay is the same for the first and for the last, a stage that holds
back lets each wait longer than the one before.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.scaletest.analysis.sustainable_rate import mean_interval
from workbench.scaletest.analysis.throughput import (
    MADE,
    RELEASED,
    SCHEDULED,
    STARTED,
    Floats,
    StagePassages,
    StageWaits,
    count_passages,
)
from workbench.scaletest.tables import OBSTACLES, UNFINISHED
from workbench.stats import rank_difference_z

Nature = Literal["holds back", "delay", "queue", "stopped", "unclear"]
# Work waits for a stage if at least so many objects, and so many seconds of its own work, are queued ...
MIN_BACKLOG = 10
MIN_BACKLOG_S = 1.0
# ... for so long.
MIN_PLATEAU_S = 8
# Waits are compared between so many groups that came one after the other, of at least so many each.
GROUPS, MIN_GROUP = 12, 8
# Longest waits are at least so many times the shortest, or nothing grew.
GROWTH = 2.0
# A delay is the same at any load: no third waits so many times as long as another.
MIN_GROWTH = 1.5
# Two groups differ beyond chance: the pair is chosen among all, hence not 1.96.
MIN_Z = 4.0
# Shorter delays are no finding.
MIN_DELAY_S = 1.0
MIN_DELAYED = 20
# Waits that follow one another are alike in a queue, and some of them are next to nothing.
MIN_LIKENESS, SHORT_FRACTION = 0.5, 0.25
# All that came in one burst and left evenly, the first at once: served one after the other.
UNEVEN = 0.15
FIRST_FRACTION = 0.15
# A delay that changes at once: so much of the growth lies between neighbours, and both sides stay within the other.
STEP_FRACTION, FLAT_FRACTION = 0.7, 0.15
# What left within this share of the time in which it came was let go at once.
RELEASED_SHARE = 0.5
# A stage stood still if nothing left for so long, and so many times as long as it usually takes to the next.
MIN_PAUSE_S, PAUSE_GROWTH = 4.0, 4.0
# A pause is over when this share of what came in it has left.
THROUGH_FRACTION = 0.95

# A share of pods that stands in the answer.
TOLD_FRACTION = 0.05
# Nothing passed for so long, while work waited, and the run was still watched.
SILENT_S = 8.0
MIN_TIME_S = 2.0
MAX_TOLD = 4
NO_NODE, NO_QUOTA, DENIED, NO_IMAGE = "no node fits", "quota", "admission denied", "image pull back-off"
SUSPENDED = "suspended"
NODE_LOST, VOLUME, GATED, REFUSED, CONTAINER = "node not ready", "volume", "gated", "refused", "container not started"
_DONE = {RELEASED: "released from their queue", MADE: "made", SCHEDULED: "scheduled", STARTED: "started"}
# In a message of the cluster, first match counts.
_PATTERNS = (
    (NO_QUOTA, r"exceeded quota|failed quota|quota"),
    (
        DENIED,
        r"admission webhook|denied the request|violates PodSecurity|AdmissionPolicy|is (?:invalid|forbidden):",
    ),
    (NO_IMAGE, r"ImagePullBackOff|ErrImagePull|pulling image|InvalidImageName|ImageInspectError|pull image"),
    (VOLUME, r"persistentvolumeclaim|FailedMount|FailedAttach|unbound immediate|volume"),
    (NO_NODE, r"nodes are available|Insufficient |no nodes available|Unschedulable|didn't match"),
    (NODE_LOST, r"node is not ready|NodeNotReady|NodeLost|node lost|TaintManager|not ready"),
    (GATED, r"SchedulingGated|gated"),
    (CONTAINER, r"Container|CrashLoop|sandbox|BackOff|Failed"),
)
_CAUSES = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _PATTERNS)
_CREATING = re.compile(r"^Error creating: (?:pods? \"[^\"]*\" )?", re.IGNORECASE)
_SHORT = re.compile(r"Insufficient [\w./-]+|exceeded quota: [\w.-]+|admission webhook \"[^\"]{1,80}\"")
_EXCEEDED, _LIMITED = re.compile(r"exceeded quota: ([\w.-]+)"), re.compile(r"limited: ([\w./=,-]+)")
# Transitions that say why something did not happen: those of pods, of events, and of the audit log.
_TELLING = ("unschedulable", "failed-scheduling", "failed-create", "blocked", "failed-start", "gated", "node-lost")


@dataclass(frozen=True)
class Stretch:
    """Stretch of whole seconds in which work waited."""

    begin_s: float
    end_s: float
    rates: Floats
    backlog: float

    @property
    def rate(self) -> tuple[float, float, float]:
        """Mean and its 95 % t interval."""
        return mean_interval(self.rates)

    @property
    def variation(self) -> float:
        """Variation from second to second."""
        mean = float(self.rates.mean())
        return float(self.rates.std(ddof=1) / mean) if mean and len(self.rates) > 1 else 0.0


@dataclass(frozen=True)
class WaitFinding:
    """Finding on the nature of the waits at a stage.

    `base_s`: The wait that does not depend on the load: what all but the shortest 1 % waited at least.
    `last_s`: When the last one left; null for never.
    `change`: Of a delay that changed at once: when, and the median waits before and after; null for none.
    `growth`: Of waits that grew without a queue being shown: medians of the first and of the last third.
    """

    nature: Nature
    base_s: float = 0.0
    median_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    n: int = 0
    last_s: float | None = None
    change: tuple[float, float, float] | None = None
    growth: tuple[float, float] | None = None


@dataclass(frozen=True)
class BlindTimes:
    """Times when no watch looked: what passed then arrived afterwards, all at once."""

    spans: tuple[tuple[float, float], ...] = field(default=())

    def find_longest_sight(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return the longest part of a time in which a watch looked."""
        parts, at_s = [], begin_s
        for from_s, to_s in sorted(self.spans):
            if from_s < end_s and to_s > at_s:
                parts.append((at_s, max(at_s, from_s)))
                at_s = to_s
        return max([*parts, (at_s, max(at_s, end_s))], key=lambda part: part[1] - part[0])

    def find_blind_seconds(self, edges_s: Floats) -> npt.NDArray[np.bool_]:
        """Mask of the seconds between these edges in which a watch was interrupted."""
        is_blind = np.zeros(len(edges_s) - 1, dtype=bool)
        for begin, end in self.spans:
            is_blind |= (edges_s[1:] > begin) & (edges_s[:-1] <= end)
        return is_blind


@dataclass(frozen=True)
class Pause:
    """A time in which a stage let nothing through, and then all that had come.

    `through_s`: When what came in it had left. `waiting`: How many that were.
    """

    step: str
    begin_s: float
    end_s: float
    through_s: float
    waiting: int


def find_pauses(step: str, waits: StageWaits, blind: BlindTimes) -> list[Pause]:
    """Find the times in which a stage stood still, in order.

    Nothing left, though more and more came, and the first waited clearly longer than the last: all of them for the
    same moment. After a delay all wait equally long, in a queue the last ones longest.
    """
    left_s = np.sort(waits.left_s[np.isfinite(waits.left_s)])
    lengths = np.diff(left_s)
    pauses = []
    for place in np.flatnonzero(lengths >= MIN_PAUSE_S):
        begin, end = blind.find_longest_sight(float(left_s[place]), float(left_s[place + 1]))
        # Length of the gap in which half of the time lies.
        ordered = np.sort(np.delete(lengths, place))
        total = np.cumsum(ordered)
        usual = float(ordered[np.searchsorted(total, total[-1] / 2)]) if len(total) else 0.0
        inside = (waits.came_s > begin) & (waits.came_s < end) & np.isfinite(waits.left_s)
        held = _wait_for_one_moment(waits.came_s[inside], waits.left_s[inside], end - begin)
        if held and end - begin >= max(MIN_PAUSE_S, PAUSE_GROWTH * usual):
            through_s = float(np.quantile(waits.left_s[inside], THROUGH_FRACTION))
            pauses.append(Pause(step, begin, end, through_s, int(inside.sum())))
    return pauses


def _wait_for_one_moment(came_s: Floats, left_s: Floats, length_s: float) -> bool:
    """Tell whether the first of what came in a pause of this length waited clearly longer than the last."""
    if len(came_s) < MIN_GROUP or float(np.ptp(came_s)) < length_s / 2:
        return False
    wait = (left_s - came_s)[np.argsort(came_s, kind="stable")]
    third = len(wait) // 3
    first, last = float(np.median(wait[:third])), float(np.median(wait[-third:]))
    return first >= max(MIN_GROWTH * last, MIN_DELAY_S)


def find_stretch(
    waits: StageWaits, end_s: float, blind: BlindTimes, full: npt.NDArray[np.float64] | None = None
) -> Stretch | None:
    """Find the longest run of whole seconds in which work waited at the stage, preferably with room for pods.

    `full`: Share of each second in which pods waited for room; none for a stage that needs none.
    """
    if end_s < MIN_PLATEAU_S or not len(waits.left_s):
        return None
    edges = np.arange(0.0, math.ceil(end_s) + 1.0)
    left_s = np.sort(waits.left_s[np.isfinite(waits.left_s)])
    passed = np.diff(count_passages(left_s, edges)).astype(float)
    waiting = (count_passages(np.sort(waits.came_s), edges) - count_passages(left_s, edges)).astype(float)
    busy = np.minimum(waiting[:-1], waiting[1:])
    typical = float(np.median(passed[passed > 0])) if (passed > 0).any() else 0.0
    is_blind = blind.find_blind_seconds(edges)
    is_waiting = (busy >= max(MIN_BACKLOG, MIN_BACKLOG_S * typical)) & ~is_blind
    begin, end = find_longest_run(is_waiting & (full == 0)) if full is not None else find_longest_run(is_waiting)
    if end - begin < MIN_PLATEAU_S:
        begin, end = find_longest_run(is_waiting)
    if end - begin < MIN_PLATEAU_S:
        return None
    return Stretch(float(edges[begin]), float(edges[end]), passed[begin:end], float(np.median(busy[begin:end])))


def list_runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Begin and end of each run of true values.

    >>> list_runs(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    edges = np.diff(np.concatenate([[0], mask.astype(int), [0]]))
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def find_longest_run(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Begin and end (exclusive) of the longest run of true values; both 0 without one.

    >>> find_longest_run(np.array([True, False, True, True]))
    (2, 4)
    """
    return max(list_runs(mask), key=lambda run: run[1] - run[0], default=(0, 0))


def judge_waits(waits: StageWaits, stretch: Stretch | None, end_s: float) -> WaitFinding | None:
    """Judge the nature of the waits at a stage; null where there is nothing to say.

    `stretch`: The seconds in which work waited; null for none: then only a delay can be found.
    `holds back`: the groups' median waits grow at least twofold, beyond chance (Mann and Whitney's test between the
    shortest before and the longest), by more than a second, and meanwhile less passed than came, by the 95 % t interval
    of the seconds. What came together says nothing by its order: it is held back if it left evenly, the first at once.
    `stopped`: nothing left any more, or all that waited left together. `delay`: the waits are the same throughout.
    A delay may change once, from one constant to another. `queue`: they came and went like a queue's, and what came got
    through all the same: the stage is near its limit. `unclear`: one burst that left unevenly. Does not show why a
    delay is as long as it is.
    """
    # Arrivals in order; those that came at once in a random order, because theirs says nothing.
    ties = np.random.default_rng(0).random(len(waits.came_s))
    order = np.lexsort((ties, waits.came_s))
    came_s = waits.came_s[order]
    wait = np.maximum(waits.left_s[order] - came_s, 0.0)
    finite_waits = wait[np.isfinite(wait)]
    left_s = came_s + wait
    finite = left_s[np.isfinite(left_s)]
    last_s = float(finite.max()) if len(finite) else None
    # Quantiles of the waits, in seconds, as a finding whose nature is still to be judged.
    if not len(finite_waits):
        figures = WaitFinding("delay", last_s=last_s)
    else:
        low, median, high = (float(quantile) for quantile in np.quantile(finite_waits, [0.05, 0.5, 0.95]))
        figures = WaitFinding(
            "delay", float(np.quantile(finite_waits, 0.01)), median, low, high, len(finite_waits), last_s
        )
    change = _find_change(came_s, wait)
    figures = replace(figures, change=change)
    typical_s = figures.median_s if change is None else max(change[1:])
    if stretch is None:
        is_late = len(finite_waits) >= MIN_DELAYED and typical_s >= MIN_DELAY_S
        return _tell_queue(figures, wait) if is_late and not _grows(came_s, wait, None) else None
    inside = (came_s < stretch.end_s) & (left_s > stretch.begin_s)
    # Tell whether nothing left for most of the stretch, up to the end of the run, while work waited.
    waiting = int((~np.isfinite(left_s[inside])).sum())
    since = stretch.begin_s if last_s is None else max(last_s, stretch.begin_s)
    silent = min(end_s, stretch.end_s) - since
    has_stopped = (
        waiting >= MIN_BACKLOG
        and stretch.end_s >= end_s - 1
        and silent >= max(MIN_PLATEAU_S, 0.5 * (stretch.end_s - stretch.begin_s))
    )
    if has_stopped:
        return replace(figures, nature="stopped")
    if _grows(came_s, wait, stretch):
        return replace(figures, nature="holds back")
    if _was_released(came_s[inside], left_s[inside]):
        return replace(figures, nature="stopped")
    together = _judge_burst(came_s[inside], wait[inside])
    if together is not None:
        return replace(figures, nature=together)
    return _tell_queue(figures, wait) if len(finite_waits) >= MIN_GROUP and typical_s >= MIN_DELAY_S else None


def _tell_queue(finding: WaitFinding, wait: Floats) -> WaitFinding:
    """Call a delay a passing queue if each wait resembles the one before and some are short, and unclear if it grew.

    `wait`: Seconds, in order of arrival. Any other finding is returned as it is.
    """
    finite_waits = wait[np.isfinite(wait)]
    if finding.change is not None or finite_waits.std() == 0:
        return finding
    has_short = finding.low_s <= SHORT_FRACTION * finding.median_s
    if has_short and float(np.corrcoef(finite_waits[:-1], finite_waits[1:])[0, 1]) >= MIN_LIKENESS:
        return replace(finding, nature="queue")
    # Median waits of the first and the last third of the arrivals where the last waited longer; else null.
    third = len(wait) // 3
    if third < MIN_GROUP:
        growth = None
    else:
        first, last = wait[:third], wait[-third:]
        low, high = float(np.median(first)), float(np.median(last))
        grew = high >= max(MIN_GROWTH * low, low + MIN_BACKLOG_S) and _is_later(first, last)
        growth = (low, high) if grew and math.isfinite(high) else None
    return finding if growth is None else replace(finding, nature="unclear", growth=growth)


def _split_groups(wait: Floats) -> tuple[list[npt.NDArray[np.int64]], Floats]:
    """Split objects into groups of consecutive arrivals: their positions, and the median wait of each; empty for few.

    `wait`: Wait of each object in seconds, in order of arrival.
    """
    groups = min(GROUPS, len(wait) // MIN_GROUP)
    if groups < 2:
        return [], np.zeros(0)
    parts = np.array_split(np.arange(len(wait)), groups)
    return parts, np.array([float(np.median(wait[part])) for part in parts])


def _find_change(came_s: Floats, wait: Floats) -> tuple[float, float, float] | None:
    """Find when a delay changed at once, and the waits before and after; null where it did not, or waits grew on.

    Where a stage holds back each group waits longer than the one before. Where a delay changes, one step is most of the
    difference, and both sides of it are flat.

    `came_s`, `wait`: Arrival time, ascending, and wait of each object, in seconds.
    """
    parts, medians = _split_groups(wait)
    if len(medians) < 6 or not np.isfinite(medians).all():
        return None
    # A group may lie across the change: neighbours but one.
    steps = medians[2:] - medians[:-2]
    at = int(np.argmax(np.abs(steps)))
    before, after = medians[: at + 1], medians[at + 2 :]
    change = float(np.median(after) - np.median(before))
    allowed = FLAT_FRACTION * abs(change)
    flat = all(float(np.ptp(side)) <= allowed for side in (before, after)) and min(len(before), len(after)) >= 2
    large = abs(change) >= max(MIN_BACKLOG_S, STEP_FRACTION * float(np.ptp(medians)))
    if not (flat and large):
        return None
    return float(came_s[parts[at + 1][0]]), float(np.median(before)), float(np.median(after))


def _grows(came_s: Floats, wait: Floats, stretch: Stretch | None) -> bool:
    """Tell whether waits grew from the group with the shortest median wait to a later one with the longest.

    `came_s`, `wait`: Arrival time, ascending, and wait of each object, in seconds.
    """
    parts, medians = _split_groups(wait)
    if not parts or _find_change(came_s, wait) is not None:
        return False
    reach = [
        stretch is None or (came_s[part[0]] < stretch.end_s and came_s[part[-1]] + wait[part].max() > stretch.begin_s)
        for part in parts
    ]
    candidates = np.where(reach, medians, -1.0)
    peak = int(np.argmax(candidates))
    base = int(np.argmin(medians[: peak + 1]))
    low, high = float(medians[base]), float(medians[peak])
    if base == peak or high < max(GROWTH * low, low + MIN_BACKLOG_S):
        return False
    if not _is_later(wait[parts[base]], wait[parts[peak]]):
        return False
    # Tell whether fewer objects left than came between two times, by more than the 95 % interval.
    begin_s = float(came_s[parts[base][0]])
    end_s = float(came_s[parts[peak][-1]])
    left_s = np.sort(came_s + wait)
    seconds = int(end_s - begin_s)
    if seconds < MIN_PLATEAU_S:
        ends = np.array([begin_s, max(end_s, begin_s + 1e-9)])
        arrived = int(np.searchsorted(came_s, end_s, side="right") - np.searchsorted(came_s, begin_s, side="left"))
        gone = int(np.diff(count_passages(left_s, ends))[0])
        return arrived - gone > 1.96 * math.sqrt(arrived + gone)
    edges = begin_s + np.arange(seconds + 1.0)
    more = np.diff(count_passages(came_s, edges)) - np.diff(count_passages(left_s, edges))
    return mean_interval(more.astype(float)).low > 0


def _is_later(low: Floats, high: Floats) -> bool:
    """Tell whether the second group's waits are longer beyond chance (Mann and Whitney); of few, all have to be.

    `low`, `high`: Waits of both groups in seconds.
    """
    n, m = len(low), len(high)
    largest = n * m / 2 / math.sqrt(n * m * (n + m + 1) / 12)
    return rank_difference_z(low, high) >= min(MIN_Z, 0.98 * largest)


def _was_released(came_s: Floats, left_s: Floats) -> bool:
    """Tell whether all objects left in less than half of the time over which they came, as if held and then let go.

    `came_s`, `left_s`: Seconds, one element for each object.
    """
    is_finite = np.isfinite(left_s)
    if is_finite.sum() < MIN_DELAYED:
        return False
    arrivals, departures = (np.quantile(values[is_finite], [0.05, 0.95]) for values in (came_s, left_s))
    spread_s = float(arrivals[1] - arrivals[0])
    return spread_s >= MIN_PLATEAU_S / 2 and float(departures[1] - departures[0]) < RELEASED_SHARE * spread_s


def _judge_burst(came_s: Floats, wait: Floats) -> Nature | None:
    """Judge a burst: served one after the other, or unclear; null where work did not come together.

    `came_s`, `wait`: Arrival time, ascending, and wait of each object, in seconds.
    """
    is_finite = np.isfinite(wait)
    places, counts = np.unique(came_s[is_finite], return_counts=True)
    large = places[counts >= MIN_DELAYED]
    share = float(np.isin(came_s[is_finite], large).mean()) if is_finite.any() else 0.0
    if share < 0.5:
        return None
    bursts = [wait[(came_s == arrival_s) & is_finite] for arrival_s in large]
    pooled = np.concatenate([np.sort(burst) / max(float(burst.max()), 1e-9) for burst in bursts])
    ordered = np.sort(pooled)
    distance = float(np.abs(ordered - (np.arange(len(ordered)) + 0.5) / len(ordered)).max())
    if distance <= UNEVEN and float(np.quantile(ordered, 0.05)) <= FIRST_FRACTION:
        return "holds back"
    steady = float(np.quantile(wait[is_finite], 0.05)) >= 0.5 * float(np.quantile(wait[is_finite], 0.95))
    return None if steady else "unclear"


class _Obstacle(NamedTuple):
    """One object that did not get on, and why.

    `about`: pods, workloads or nodes. `uid`: Its uid, or the name of a workload that was refused.
    `waiting`: It was never scheduled, started or made. `text`: The message, shortened.
    """

    about: str
    reason: str
    uid: str
    at_s: float | None
    waiting: bool
    text: str


def classify_reason(text: str | None) -> str:
    """Classify what a message of the cluster is about.

    >>> classify_reason("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    'no node fits'
    >>> classify_reason('pods "a" is forbidden: exceeded quota: q, requested: pods=1')
    'quota'
    >>> classify_reason('admission webhook "x" denied the request: no'), classify_reason("ErrImagePull")
    ('admission denied', 'image pull back-off')
    """
    return next((name for name, pattern in _CAUSES if text and pattern.search(text)), REFUSED)


def read_quota(texts: list[str]) -> str:
    """Name the quota of the cluster's messages, with its limit.

    >>> read_quota(['pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4'])
    'the quota team (pods=4)'
    """
    for text in texts:
        if (match := _EXCEEDED.search(text)) is not None:
            limited = _LIMITED.search(text)
            return f"the quota {match.group(1)}" + (f" ({limited.group(1)})" if limited else "")
    return "a quota of the namespace"


def find_obstacles(transitions: pl.DataFrame, submissions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Why did workloads and pods not get on, by the cluster's own words, counted?

    Returns: Table OBSTACLES, most first: conditions of pods, events about pods and jobs, and refusals of our own
    requests. An object counts once for each reason. `waiting` are those that were never scheduled, started or made.

    A reason is what a component wrote when it last gave up, and not always the cause: a pod that was reported
    unschedulable may have been bound a second later. Events may be dropped by the cluster.
    """
    # Our own requests that were refused.
    rows = [
        _Obstacle("workloads", classify_reason(reason), name, sent_s, waiting=True, text=shorten_reason(reason))
        for name, sent_s, reason in submissions.filter(status="failed").select("name", "sent_s", "reason").iter_rows()
    ]
    rows += _list_told(transitions, pods)
    # Objects that were suspended at the end.
    turns = transitions.filter(pl.col("transition").is_in(["suspended", "resumed"])).sort("arrival_s")
    last = turns.group_by("uid", maintain_order=True).agg(pl.col("transition", "arrival_s").last())
    text = "suspend is true, and neither a queue nor a controller set it to false"
    rows += [
        _Obstacle("workloads", SUSPENDED, uid, at_s, waiting=True, text=text)
        for uid, at_s in last.filter(transition="suspended").select("uid", "arrival_s").iter_rows()
    ]
    if not rows:
        return OBSTACLES.frame([])
    frame = pl.DataFrame(rows, schema=list(_Obstacle._fields), orient="row")
    counted = frame.unique(["about", "reason", "uid"], keep="first", maintain_order=True)
    grouped = counted.group_by("about", "reason", maintain_order=True).agg(
        pl.len().alias("objects"),
        pl.col("waiting").sum(),
        pl.col("at_s").min().alias("first_s"),
        pl.col("at_s").max().alias("last_s"),
        pl.col("text").first().alias("example"),
    )
    return OBSTACLES.frame(grouped.sort("waiting", "objects", descending=True).to_dicts())


def _list_told(transitions: pl.DataFrame, pods: pl.DataFrame) -> list[_Obstacle]:
    """List the waiting objects for which a condition or an event gives a reason.

    `transitions`: `resource, transition, uid, owner, arrival_s, reason`.
    `pods`: `uid, scheduled_s, running_s, ended_s`.
    """
    reports = transitions.filter(
        pl.col("transition").is_in(_TELLING) & pl.col("resource").is_in(["pod", "job", "event"])
    )
    open_pods = set(pods.filter(pl.col("running_s").is_null() & pl.col("ended_s").is_null())["uid"])
    never = set(pods.filter(pl.col("scheduled_s").is_null() & pl.col("ended_s").is_null())["uid"])
    pod_uids = set(pods["uid"])
    rows = []
    for row in reports.iter_rows(named=True):
        uid = row["owner"] if row["resource"] == "event" else row["uid"]
        about = "pods" if uid in pod_uids else "nodes" if row["transition"] == "node-lost" else "workloads"
        text = row["reason"] or row["transition"]
        reason = NODE_LOST if row["transition"] == "node-lost" else classify_reason(text)
        open_uids = never if reason in (NO_NODE, GATED) else open_pods
        is_waiting = uid in open_uids or about == "workloads"
        rows.append(_Obstacle(about, reason, uid, row["arrival_s"], is_waiting, shorten_reason(text)))
    return rows


def shorten_reason(text: str | None) -> str:
    """Shorten a message to what matters, without the names of the single objects where that is known."""
    phrases = sorted(set(_SHORT.findall(text or "")))
    return ", ".join(phrases)[:160] or _CREATING.sub("", text or "no reason given")[:160]


def describe_obstacles(obstacles: pl.DataFrame) -> list[str]:
    """Describe in a sentence each the reasons for which objects still waited at the end.

    `obstacles`: `about, reason, waiting, example` of table OBSTACLES.

    >>> row = {"about": "pods", "reason": "no node", "waiting": 12, "example": "insufficient cpu"}
    >>> describe_obstacles(pl.DataFrame([row]))
    ['The cluster says of 12 pods: no node (insufficient cpu).']
    """
    return [
        f"The cluster says of {row['waiting']:,} {row['about']}: {row['reason']} ({row['example']})."
        for row in obstacles.filter(pl.col("waiting") > 0).head(MAX_TOLD).to_dicts()
    ]


def list_unfinished_stages(
    passages: StagePassages, obstacles: pl.DataFrame, *, explained: frozenset[str], in_turn: bool = False
) -> pl.DataFrame:
    """Which stages did pods never pass, and did anything pass at the end?

    `explained`: Stages whose waiting the room of the cluster explains: pods that wait for GPUs or nodes are a
    finding.
    `in_turn`: Some pods are made only when others of their workload have ended; the stage `pods made` is left out
    then.

    Returns: Table UNFINISHED: one row per stage at which pods still waited at the end. `silent`: nothing passed at
    all, or nothing for the last 8 s and more while at least 5 % waited, without room that explains it.
    """
    rows = []
    for step, waits in passages.list_waits().items():
        n_came, has_left = len(waits.came_s), np.isfinite(waits.left_s)
        # Work that came only a moment before the end had no time.
        waiting = int((~has_left & (waits.came_s <= passages.end_s - MIN_TIME_S)).sum())
        if (step == MADE and in_turn) or not waiting:
            continue
        passed = int(has_left.sum())
        last_s = float(waits.left_s[has_left].max()) if passed else None
        # Time for which nothing had passed at the end, while work waited.
        since_s = float(waits.came_s[~has_left].min())
        silent_s = max(0.0, passages.end_s - (since_s if last_s is None else max(last_s, since_s)))
        stopped = waiting >= TOLD_FRACTION * n_came and silent_s >= SILENT_S and step not in explained
        row = {
            "step": step,
            "came": n_came,
            "passed": passed,
            "waiting": waiting,
            "last_s": last_s,
            "silent_s": silent_s,
            "silent": not passed or stopped,
        }
        # Sentence on how many pods passed a stage, when the last one did, and the reasons that the cluster gives.
        last = "never" if last_s is None else f"at {last_s:.3g} s"
        text = f"{passed:,} of {n_came:,} pods {_DONE[step]}; the last one that did: {last}"
        about = "workloads" if step in (RELEASED, MADE) else "pods"
        reason_rows = obstacles.filter((pl.col("about") == about) & (pl.col("waiting") > 0))
        if step == SCHEDULED:
            reason_rows = reason_rows.filter(pl.col("reason").is_in((NO_NODE, GATED)))
        reasons = [f"{row['reason']} {row['waiting']:,} ({row['example']})" for row in reason_rows.head(2).to_dicts()]
        lost = obstacles.filter(pl.col("reason") == NODE_LOST)
        if lost.height and not reasons:
            reasons = [f"{int(lost['objects'].sum()):,} nodes were lost"]
        end = text + (f"; the cluster says: {', '.join(reasons)}" if reasons else "")
        rows.append(row | {"sentence": end})
    return UNFINISHED.frame(rows)
