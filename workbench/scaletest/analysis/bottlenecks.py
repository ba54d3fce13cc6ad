"""Bottlenecks: stages that held work back, and the client limits behind them; delays and stops told from them.

A component that limits its own requests looks like a slow cluster (every Kubernetes client does; the default of the
controller-manager is 20 per second). Its sign is a client whose requests stay at the configured rate, second for
second, while work waits; the audit log shows which client. Without an audit log only the rate and its variation are
known. Pods that wait for GPUs say nothing about any component's speed, and pods that each wait equally long nothing
about a rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from workbench.core.formats import format_seconds
from workbench.scaletest.analysis.room import Room
from workbench.scaletest.analysis.room_limits import RoomLimit, find_room_limit
from workbench.scaletest.analysis.server_pressure import SlowCalls, find_limiter_wait, find_slow_calls
from workbench.scaletest.analysis.stage_waits import (
    MIN_DELAY_S,
    MIN_PLATEAU_S,
    NO_QUOTA,
    TOLD_FRACTION,
    BlindTimes,
    Pause,
    Stretch,
    WaitFinding,
    classify_reason,
    find_pauses,
    find_stretch,
    judge_waits,
    read_quota,
)
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
from workbench.scaletest.observation.run_records import Component
from workbench.scaletest.tables import LIMITS

CLIENT_LIMIT, SLOW_CALLS, NO_ROOM, BOTTLENECK = "client limit", "slow calls", "no room", "bottleneck"
QUOTA = "quota"
DELAY, QUEUE, STOPPED, UNCLEAR = "delay", "queue", "stopped", "unclear"
# Kinds that say of a stage that it could not keep up.
HELD_BACK = (CLIENT_LIMIT, SLOW_CALLS, NO_ROOM, QUOTA, BOTTLENECK)
# Requests within this share of the configured rate are at the limit ...
NEAR = 0.07
# ... if at least so many of the seconds are not above it by more than this factor (a burst at the start is allowed).
EVEN, ABOVE = 0.9, 1.15
# A plateau that was full for at least this share of its time is caused by missing room; so is one in which the
# scheduler said of at least this share of the waiting pods that no node fits.
FULL = 0.5
# Room was missing for at least so long in all.
MIN_FULL_S = 4.0
# Gaps of a watch that blur nothing.
_SHORT_GAP_S = 0.1
# Requests that do the work of a stage: verb, resource, subresource.
_WORK = {
    RELEASED: (),
    MADE: (("create", "pods", ""),),
    SCHEDULED: (("create", "pods", "binding"), ("create", "bindrequests", "")),
    STARTED: (("patch", "pods", "status"), ("update", "pods", "status")),
}
_WHO = {
    RELEASED: "the queue that holds workloads until there is quota",
    MADE: "the controller that creates the pods (the Job controller or an operator)",
    SCHEDULED: "the scheduler",
    STARTED: "the kubelets (simulated on simulated nodes)",
}
ANSWERED = "requests answered"
# From what a wait at the stage counts.
_SINCE = {
    RELEASED: "they were accepted",
    MADE: "their workload was accepted",
    SCHEDULED: "they were created",
    STARTED: "they were bound",
}
# Components whose own metrics say how long their requests waited for their client limit.
_WORKERS = {MADE: ("kube-controller-manager",), SCHEDULED: ("kube-scheduler", "kai-scheduler", "kai-binder")}
# Components that write events with a second client (with its own limit) under the same name.
_TWO_CLIENTS = frozenset({"kube-scheduler"})


@dataclass(frozen=True)
class ServerEvidence:
    """Evidence from the servers themselves, and the configured limits of their clients.

    `requests`: Table REQUESTS, empty without an audit log.
    `pressure`: Table PRESSURE; empty, no webhook is named, and a client limit only with an audit log.
    """

    requests: pl.DataFrame
    pressure: pl.DataFrame
    components: Sequence[Component]

    def within(self, stretch: Stretch) -> ServerEvidence:
        """Return the evidence of whole seconds of a stretch, and of the looks that overlap it."""
        at, begin, end = pl.col("at_s"), stretch.begin_s, stretch.end_s
        looks = self.pressure.filter((at > begin) & (at - pl.col("over_s") < end))
        return ServerEvidence(self.requests.filter((at >= begin) & (at + 1 <= end)), looks, self.components)


def find_stops(
    passages: StagePassages,
    submissions: pl.DataFrame,
    room: Room,
    *,
    refusals: pl.DataFrame | None = None,
    gaps: pl.DataFrame | None = None,
    beats: pl.DataFrame | None = None,
    in_turn: bool = False,
) -> list[Pause]:
    """Find the times in which a stage, or the API server, let nothing through though work waited, and then went on.

    `submissions`: `sent_s, acked_s`. Others as for `find_bottlenecks`. Pods that waited for room, or that a quota
    refused, tell nothing of a stage.
    """
    blind = _list_blind_times(gaps)
    if beats is not None and beats.height:
        late = beats.filter(pl.col("lag_s") >= MIN_DELAY_S)
        seen_s = pl.col("sent_s") + pl.col("ack_s") + pl.col("lag_s")
        blind = BlindTimes((*blind.spans, *late.select("sent_s", seen_s=seen_s).iter_rows()))
    stages = {
        step: waits
        for step, waits in passages.list_waits().items()
        if step != RELEASED and not (step == MADE and (in_turn or (refusals is not None and refusals.height)))
    }
    calls = submissions.filter(pl.col("acked_s").is_not_null() & pl.col("sent_s").is_not_null())
    stages[ANSWERED] = StageWaits(calls["sent_s"].to_numpy().astype(float), calls["acked_s"].to_numpy().astype(float))
    pauses = [pause for step, waits in stages.items() for pause in find_pauses(step, waits, blind)]
    return [
        pause
        for pause in pauses
        if pause.step != SCHEDULED or room.full_fraction(pause.begin_s, pause.end_s) < 1 - FULL
    ]


def find_bottlenecks(
    passages: StagePassages,
    evidence: ServerEvidence,
    room: Room | None = None,
    pods: pl.DataFrame | None = None,
    *,
    refusals: pl.DataFrame | None = None,
    gaps: pl.DataFrame | None = None,
    beats: pl.DataFrame | None = None,
    stops: Sequence[Pause] = (),
    in_turn: bool = False,
) -> pl.DataFrame:
    """Find each stage that work waited for: whether it held work back, its rate, and the client that was at its limit.

    `room`: The room on the nodes. `pods`: Table PODS, with what each asks for.
    `refusals`: `workload, reason` of the pods that a controller was refused, of table TRANSITIONS.
    `gaps`: Table GAPS; seconds in which the pods' watch was away are no evidence.
    `beats`: Table BEATS: by how much our watch was late, which is no wait at the stages that begin with our own
    requests.
    `stops`: Times in which a stage stood still; what came until it had caught up is told as a stop and not judged.
    `in_turn`: Some pods are created only when others of their workload have ended; the stage `pods made` is left out
    then.

    Returns: Table LIMITS; what held back first, longest first. Rates are means over seconds with 95 % t intervals.

    A stage is looked at if at least ten objects, and one second's worth of its own rate, waited for it for at least
    8 s, or if each pod waited for a second and more. It held back if the waits grew and less passed than came
    (`judge_waits`); else it is a `delay` with its value. `stopped`: nothing passed any more, or all that waited passed
    at once. `unclear`: one burst that passed unevenly. `client limit` requires that the audit log shows the client that
    does the stage's work at a rate within 7 % of its configured limit, and in 9 of 10 seconds at most 15 % above it:
    all its requests, or all but events, which some components write with a second client; or that its own metrics say
    that its requests waited for that limit. `slow calls`: the API server took 0.1 s and more for each of the stage's
    calls, and one and more were in flight. `no room` is a plateau that
    was full at least half of its time, or most of whose pods the scheduler called unschedulable; `cause` and `resource`
    say by what. `queue`: what came got
    through, after waits that came and went. Does not show the
    limit that comes next. `quota`: workloads were suspended or gated, and released more slowly than they came, or a
    quota refused the pods of most of them.
    """
    where, blind = room or Room(np.zeros(0)), _list_blind_times(gaps)
    where = where.leave_out([(stop.begin_s, stop.through_s) for stop in stops])
    rows = []
    for step, waits in passages.list_waits().items():
        if (step == MADE and in_turn) or not len(waits.came_s):
            continue
        waits = _subtract_lag(waits, beats) if step in (RELEASED, MADE) else waits
        waits = _leave_out(waits, stops)
        if not len(waits.came_s):
            continue
        full = where.full_fractions(np.arange(0.0, np.ceil(passages.end_s) + 1.0)) if step == SCHEDULED else None
        stretch = find_stretch(waits, passages.end_s, blind, full)
        finding = judge_waits(waits, stretch, passages.end_s)
        if step == SCHEDULED and (stretch is None or finding is None):
            full_stretch = _find_full_stretch(waits, where)
            if full_stretch is not None:
                stretch, finding = full_stretch, WaitFinding("holds back")
        if finding is None and _find_quota(step, waits, refusals) is not None:
            stretch, finding = _span_waiting(waits, passages.end_s), WaitFinding("holds back")
        if finding is not None:
            stretch = stretch or _span_stretch(waits)
            stage = _Stage(step, waits, stretch, finding, where, pods, refusals, evidence.within(stretch))
            # What holds it back: the first of the verdicts that applies.
            kind, describe = next((kind, text) for kind, applies, text in _VERDICTS if applies(stage))
            rows.append(_build_row(stage, kind, describe(stage)))
    for stop in sorted(stops, key=lambda each: each.begin_s - each.end_s):
        if stop.step not in {row["step"] for row in rows}:
            figures = dict.fromkeys(("rate_per_s", "low_per_s", "high_per_s", "variation", "delay_s"), 0.0)
            times = {"begin_s": stop.begin_s, "end_s": stop.end_s, "backlog": float(stop.waiting)}
            told = {"step": stop.step, "kind": STOPPED, "counted": "pods", "sentence": f"{describe_pause(stop)}."}
            rows.append(told | figures | times)
    frame = LIMITS.frame(rows)
    first = pl.col("kind").is_in([*HELD_BACK, STOPPED])
    return frame.sort([first, pl.col("end_s") - pl.col("begin_s")], descending=True)


def _subtract_lag(waits: StageWaits, beats: pl.DataFrame | None) -> StageWaits:
    """Reduce the waits from our requests to our watch's events by the watch's own lag at that time.

    `beats`: Heartbeats, with columns `sent_s, ack_s, lag_s`.
    """
    timed_beats = None if beats is None else beats.filter(pl.col("lag_s").is_not_null()).sort("sent_s")
    if timed_beats is None or not timed_beats.height:
        return waits
    lag_s = timed_beats["lag_s"].to_numpy().clip(0.0)
    seen_s = timed_beats.select(pl.col("sent_s") + pl.col("ack_s")).to_series().to_numpy() + lag_s
    order = np.argsort(seen_s, kind="stable")
    left_s = waits.left_s - np.interp(waits.left_s, seen_s[order], lag_s[order])
    return StageWaits(waits.came_s, np.maximum(left_s, waits.came_s))


def _leave_out(waits: StageWaits, stops: Sequence[Pause]) -> StageWaits:
    """Leave out what came while a stage stood still, or until it had caught up."""
    kept = np.ones(len(waits.came_s), dtype=bool)
    for stop in stops:
        kept &= (waits.left_s <= stop.begin_s) | (waits.came_s >= stop.through_s)
    return StageWaits(waits.came_s[kept], waits.left_s[kept])


def describe_pause(stop: Pause) -> str:
    """Sentence on a time in which a stage stood still, without the full stop."""
    who = "the API server or the way to it" if stop.step == ANSWERED else _WHO[stop.step]
    return (
        f"No {stop.step} between {stop.begin_s:.3g} and {stop.end_s:.3g} s, while {stop.waiting:,} waited for one "
        f"moment and not for their turn: {who} stood still, or nothing reached it"
    )


def _list_blind_times(gaps: pl.DataFrame | None) -> BlindTimes:
    """Times without a watch of pods. `gaps`: `resource, from_s, to_s, relisted`."""
    if gaps is None or not gaps.height:
        return BlindTimes()
    lasted = pl.col("to_s") - pl.col("from_s")
    pod_gaps = gaps.filter((pl.col("resource") == "pod") & ((lasted > _SHORT_GAP_S) | pl.col("relisted")))
    return BlindTimes(tuple(pod_gaps.select("from_s", "to_s").iter_rows()))


def _find_full_stretch(waits: StageWaits, where: Room) -> Stretch | None:
    """Find the time from the first to the last moment at which pods waited for room, however few they were.

    Null where that was short, or where hardly any pod waited for a second and it was not long.
    """
    full_s = where.at_s[where.full] if len(where.at_s) else where.at_s
    late = (waits.left_s - waits.came_s >= MIN_DELAY_S).mean()
    total_s = where.full.mean() * where.at_s[-1] if len(full_s) else 0.0
    if total_s < MIN_FULL_S or (late < TOLD_FRACTION and total_s < MIN_PLATEAU_S):
        return None
    begin_s, end_s = np.floor(full_s[0]), np.ceil(full_s[-1])
    left_s = np.sort(waits.left_s[np.isfinite(waits.left_s)])
    rates = np.diff(np.searchsorted(left_s, np.arange(begin_s, end_s + 1.0))).astype(float)
    if len(rates) < MIN_FULL_S:
        return None
    backlog = float(np.median(where.waiting[where.full]))
    return Stretch(float(begin_s), float(end_s), rates, backlog)


def _span_stretch(waits: StageWaits) -> Stretch:
    """Return the whole time in which pods came and left a stage where too few waited at a time to count seconds."""
    left_s = waits.left_s[np.isfinite(waits.left_s)]
    begin, end = float(waits.came_s.min()), float(left_s.max())
    return Stretch(begin, end, np.full(2, len(left_s) / max(end - begin, 1e-9)), 0.0)


def _span_waiting(waits: StageWaits, end_s: float) -> Stretch:
    """Return the seconds from the first that waited for a second and more to the last that did."""
    late = waits.left_s - waits.came_s >= MIN_DELAY_S
    begin = float(np.floor(waits.came_s[late].min()))
    edges = np.arange(begin, max(begin + 2.0, np.ceil(np.minimum(waits.left_s[late], end_s).max())) + 1.0)
    came, left = (count_passages(np.sort(times), edges) for times in (waits.came_s, waits.left_s))
    return Stretch(begin, float(edges[-1]), np.diff(left).astype(float), float(np.median(came - left)))


@dataclass(frozen=True)
class _Stage:
    """A stage with what was found of it; `evidence` is that of the seconds of its stretch."""

    step: str
    waits: StageWaits
    stretch: Stretch
    finding: WaitFinding
    where: Room
    pods: pl.DataFrame | None
    refusals: pl.DataFrame | None
    evidence: ServerEvidence

    @property
    def full(self) -> float:
        """Share of the stretch in which pods waited for room."""
        if self.step != SCHEDULED:
            return 0.0
        return self.where.full_fraction(self.stretch.begin_s, self.stretch.end_s)

    @cached_property
    def room_limit(self) -> RoomLimit | None:
        """The room that held pods back in most of the stretch, or, by the scheduler, most of the pods."""
        pods, stretch = self.pods, self.stretch
        if self.step != SCHEDULED or pods is None or self.finding.nature == "delay":
            return None
        if self.full < FULL:
            if "unschedulable" not in pods.columns:
                return None
            left_s = pl.col("scheduled_s").fill_null(np.inf)
            inside = (pl.col("created_s") < stretch.end_s) & (left_s > stretch.begin_s)
            waiting = pods.filter(inside & (left_s - pl.col("created_s") >= 0.5))
            if (waiting["unschedulable"].mean() or 0.0) < FULL:  # type: ignore[operator]
                return None
        return find_room_limit(self.where, pods, stretch.begin_s, stretch.end_s)

    @cached_property
    def pod_quota(self) -> str | None:
        """The quota that refused the pods of most workloads that waited for theirs."""
        return _find_quota(self.step, self.waits, self.refusals)

    @property
    def waits_for_quota(self) -> bool:
        """Whether workloads were suspended or gated, and released more slowly than they came or no more."""
        released = self.step == RELEASED and bool(np.isfinite(self.waits.left_s).any())
        return released and self.finding.nature in ("holds back", "stopped")

    @cached_property
    def slow_calls(self) -> SlowCalls | None:
        """The calls of the stage's work, where the API server took long for each."""
        calls = self.evidence.requests.filter(_does_work(self.step))
        return find_slow_calls(calls, self.evidence.pressure, over_s=self.stretch.end_s - self.stretch.begin_s)

    @cached_property
    def client_limit(self) -> dict[str, Any]:
        """Columns of table LIMITS of the client at its limit; empty if there is none.

        By its requests, and where these were not slow, by its own metrics.
        """
        if self.finding.nature != "holds back" or self.step == RELEASED:
            return {}
        limit = _find_client_limit(self.step, self.stretch, self.evidence)
        return limit if limit or self.slow_calls else _find_limiter(self.step, self.evidence)


def _find_quota(step: str, waits: StageWaits, refusals: pl.DataFrame | None) -> str | None:
    """The quota that refused the pods of most of the workloads that waited for theirs; null for none."""
    if step != MADE or refusals is None or not refusals.height:
        return None
    by_quota = refusals.filter(pl.col("reason").map_elements(classify_reason, return_dtype=pl.String) == NO_QUOTA)
    n_waited = int((waits.left_s - waits.came_s >= MIN_DELAY_S).sum())
    n_refused = by_quota["workload"].n_unique()
    if n_waited < TOLD_FRACTION * len(waits.came_s) or n_refused < FULL * n_waited:
        return None
    return read_quota(by_quota["reason"].drop_nulls().to_list())


def _build_row(stage: _Stage, kind: str, sentence: str) -> dict[str, Any]:
    """Row of table LIMITS of a stage: rates in pods/s, times in seconds."""
    rate, low, high = stage.stretch.rate
    base_s = stage.finding.base_s
    if kind in (CLIENT_LIMIT, SLOW_CALLS, BOTTLENECK) and base_s >= 1.0:
        # A delay that was there before anything queued, and is none of it.
        sentence += f" A delay of {format_seconds(base_s)} is in each wait, at any rate."
    row: dict[str, Any] = {
        "step": stage.step,
        "kind": kind,
        "rate_per_s": rate,
        "low_per_s": low,
        "high_per_s": high,
        "counted": "pods",
        "begin_s": stage.stretch.begin_s,
        "end_s": stage.stretch.end_s,
        "backlog": stage.stretch.backlog,
        "variation": stage.stretch.variation,
        "delay_s": stage.finding.median_s if kind == DELAY else base_s,
        "sentence": sentence,
    }
    if kind == NO_ROOM and stage.room_limit is not None:
        return row | {"cause": stage.room_limit.name, "resource": stage.room_limit.resource}
    if kind == SLOW_CALLS and stage.slow_calls is not None:
        return row | {"cause": stage.slow_calls.cause, "call_s": stage.slow_calls.call_s}
    return row | (stage.client_limit if kind == CLIENT_LIMIT else {"cause": stage.pod_quota})


def _find_client_limit(step: str, stretch: Stretch, evidence: ServerEvidence) -> dict[str, Any]:
    """Find the client that does the stage's work and sends requests at its limit.

    Returns: Columns of table LIMITS; empty if there is none.
    """
    inside, components = evidence.requests, evidence.components
    workers = inside.filter(_does_work(step)).group_by("client").agg(pl.col("requests").sum())
    for client in workers.sort("requests", "client", descending=[True, False])["client"].head(3):
        component = find_component(client, components)
        if component is None or not component.client_qps:
            continue
        for rates in _request_rates(inside.filter(pl.col("client") == client), component, stretch):
            mean, low, high = mean_interval(rates)
            # Tell whether the rate stays at the limit in every second; one request may fall into the next second.
            even = rates <= max(ABOVE * component.client_qps, component.client_qps + 1)
            at_limit = bool(abs(rates.mean() / component.client_qps - 1) <= NEAR and even.mean() >= EVEN)
            if at_limit:
                return {
                    "client": client,
                    "requests_per_s": mean,
                    "requests_low_per_s": low,
                    "requests_high_per_s": high,
                    "configured_per_s": component.client_qps,
                }
    return {}


def _does_work(step: str) -> pl.Expr:
    """Requests that do a stage's work."""
    return pl.any_horizontal(
        pl.lit(value=False),
        *(
            (pl.col("verb") == verb) & (pl.col("resource") == resource) & (pl.col("subresource") == sub)
            for verb, resource, sub in _WORK[step]
        ),
    )


def _find_limiter(step: str, evidence: ServerEvidence) -> dict[str, Any]:
    """Find the component that does the stage's work and, by its own metrics, waited for its request limit.

    Returns: Columns of table LIMITS; empty if there is none.
    """
    for name in _WORKERS.get(step, ()):
        wait_s = find_limiter_wait(evidence.pressure, name)
        component = next((candidate for candidate in evidence.components if candidate.name == name), None)
        if wait_s is not None:
            configured = None if component is None else component.client_qps
            return {"client": name, "configured_per_s": configured, "cause": f"{format_seconds(wait_s)} per request"}
    return {}


def _request_rates(requests: pl.DataFrame, component: Component, stretch: Stretch) -> Iterator[Floats]:
    """Yield a client's requests per second as its limit may count them: all, and all but those for events.

    A component that sends its events through a second client yields the latter only.

    `requests`: `at_s, resource, requests`, in the stretch's seconds. Each array has one rate for each second, also 0.
    """
    seconds = max(1, int(stretch.end_s - stretch.begin_s) - 1)
    without = requests.filter(pl.col("resource") != "events")
    for rows in (without,) if component.name in _TWO_CLIENTS else (requests, without):
        by_second = rows.group_by("at_s").agg(pl.col("requests").sum())["requests"].to_numpy().astype(float)
        yield np.concatenate([by_second, np.zeros(max(0, seconds - len(by_second)))])


def find_component(client: str, components: Sequence[Component]) -> Component | None:
    """The component that a client of the audit log is part of.

    >>> own = [Component(name="kube-controller-manager", client_qps=20)]
    >>> find_component("system:serviceaccount:kube-system:job-controller", own).name
    'kube-controller-manager'
    >>> find_component("kube-scheduler", own) is None
    True
    """
    by_name = {candidate.name: candidate for candidate in components}
    for name, component in by_name.items():
        if name in client:
            return component
    # Each controller has its own service account, client and limit.
    if client.startswith("system:serviceaccount:kube-system:"):
        return by_name.get("kube-controller-manager")
    return None


def _describe_plateau(stage: _Stage) -> str:
    rate, low, high = stage.stretch.rate
    for_s = stage.stretch.end_s - stage.stretch.begin_s
    return (
        f"{stage.step} at {rate:.3g}/s [{max(0.0, low):.3g}, {high:.3g}] for {for_s:.0f} s, "
        f"while {stage.stretch.backlog:,.0f} waited (median)"
    )


def _describe_room(stage: _Stage) -> str:
    limit = stage.room_limit
    assert limit is not None
    taken = f" ({limit.figures})" if limit.figures else ""
    return (
        f"{_describe_plateau(stage)}: pods waited for room, bound by {limit.name}{taken}; "
        "this says nothing about the scheduler's speed."
    )


def _describe_pod_quota(stage: _Stage) -> str:
    return (
        f"{_describe_plateau(stage)}: {stage.pod_quota} refused the pods until others had ended; this says nothing "
        "about the speed of controllers or scheduler."
    )


def _describe_quota(stage: _Stage) -> str:
    if stage.finding.nature == "stopped":
        return f"{_describe_stop(stage)} Their queue's quota is used up, or the queue no longer works."
    return (
        f"{_describe_plateau(stage)}: they were suspended or gated, as a queue does until there is quota; this says "
        "nothing about the speed of controllers or scheduler."
    )


def _describe_delay(stage: _Stage) -> str:
    finding, step = stage.finding, stage.step
    if finding.change is not None:
        at_s, before_s, after_s = finding.change
        return (
            f"{step} {format_seconds(before_s)} after {_SINCE[step]}, and {format_seconds(after_s)} for those from "
            f"{at_s:.0f} s on: a delay that changed, which limits no rate."
        )
    spread = f"{format_seconds(finding.median_s)} after {_SINCE[step]}"
    if finding.high_s - finding.low_s > 0.1 * finding.median_s:
        spread += f" at the median (9 of 10: {format_seconds(finding.low_s)} to {format_seconds(finding.high_s)})"
    return f"{step} {spread}, the last as the first: a delay, which limits no rate."


def _describe_queue(stage: _Stage) -> str:
    low, high = format_seconds(stage.finding.low_s), format_seconds(stage.finding.high_s)
    return (
        f"{stage.step} as fast as they came, {low} to {high} after {_SINCE[stage.step]} (9 of 10): a "
        "temporary queue; a higher rate may be too much for this stage."
    )


def _describe_stop(stage: _Stage) -> str:
    waiting = int((~np.isfinite(stage.waits.left_s)).sum())
    if stage.finding.last_s is None:
        return f"no {stage.step}: {waiting:,} waited to the end."
    if waiting:
        return f"{stage.step} until {stage.finding.last_s:.3g} s and no more: {waiting:,} waited to the end."
    begin, end = stage.stretch.begin_s, stage.stretch.end_s
    return (
        f"{stage.step} all together: arrivals from {begin:.3g} to {end:.3g} s waited for one event, not for their "
        "turn; find out what happened then (new nodes, a component that was down)."
    )


def _describe_unclear(stage: _Stage) -> str:
    if stage.finding.growth is not None:
        first_s, last_s = map(format_seconds, stage.finding.growth)
        return (
            f"{stage.step} {first_s} after {_SINCE[stage.step]} for the first third, {last_s} for the last: waits that "
            "grew; whether this limits the rate is not known; use longer steps at constant rates."
        )
    low, high = format_seconds(stage.finding.low_s), format_seconds(stage.finding.high_s)
    return (
        f"{stage.step} {low} to {high} after {_SINCE[stage.step]}, in no order: "
        "one burst cannot show whether it is a delay or a limit; use a constant rate."
    )


def _describe_client_limit(stage: _Stage) -> str:
    """Name the client that its own request limit held back, and the remedy."""
    row = stage.client_limit
    if row.get("requests_per_s") is None:
        limit = "" if row["configured_per_s"] is None else f" of {row['configured_per_s']:g}/s"
        text = f"{row['client']} waited for its own client limit{limit} ({row['cause']}, by its metrics)"
    else:
        text = (
            f"{row['client']} made {row['requests_per_s']:.3g} requests/s "
            f"[{row['requests_low_per_s']:.3g}, {row['requests_high_per_s']:.3g}], which is its client limit of "
            f"{row['configured_per_s']:g}/s"
        )
    return f"{_describe_plateau(stage)}: {text}. Raise kube-api-qps of this component before you judge the cluster."


def _describe_slow_calls(stage: _Stage) -> str:
    slow = stage.slow_calls
    assert slow is not None
    return f"{_describe_plateau(stage)}: {slow.text}; {_WHO[stage.step]} waited for them."


def _describe_stage(stage: _Stage) -> str:
    """Sentence for a stage that did no more though no client limit explains it."""
    clients = (
        "No client that does this work was at its known limit."
        if stage.evidence.requests.height
        else "Without an audit log the cause may be a client limit."
    )
    some = f" Pods waited for room in {100 * stage.full:.0f} % of this time." if stage.full else ""
    return f"{_describe_plateau(stage)}: {_WHO[stage.step]} did no more. {clients}{some}"


# What a stage is found to be: the first that applies, and the sentence on it.
_VERDICTS: tuple[tuple[str, Callable[[_Stage], object], Callable[[_Stage], str]], ...] = (
    (NO_ROOM, lambda stage: stage.room_limit, _describe_room),
    (QUOTA, lambda stage: stage.pod_quota, _describe_pod_quota),
    (QUOTA, lambda stage: stage.waits_for_quota, _describe_quota),
    (DELAY, lambda stage: stage.finding.nature == "delay", _describe_delay),
    (QUEUE, lambda stage: stage.finding.nature == "queue", _describe_queue),
    (STOPPED, lambda stage: stage.finding.nature == "stopped", _describe_stop),
    (UNCLEAR, lambda stage: stage.finding.nature == "unclear", _describe_unclear),
    # What is left holds back.
    (CLIENT_LIMIT, lambda stage: stage.client_limit, _describe_client_limit),
    (SLOW_CALLS, lambda stage: stage.step != RELEASED and stage.slow_calls, _describe_slow_calls),
    (BOTTLENECK, lambda _: True, _describe_stage),
)
