"""When a job will start: from P10 to P90, what holds it up, and what would start it now.

Many futures of the cluster are simulated. In each, what runs and what comes lasts as long as the record makes likely.
A record is first replayed as it was: where the simulated starts are not those that were recorded, the cluster has rules
that the simulation lacks, and no start is known.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from workbench.core.formats import fit_answer, format_duration, format_items
from workbench.scaletest.scenario.template_pods import GPU
from workbench.scaletest.start_times.arrivals import Arrivals
from workbench.scaletest.start_times.cluster_state import (
    DEFAULT_SCHEDULER,
    ClusterState,
    NodeRules,
    PodState,
    WorkloadState,
    sum_requests,
)
from workbench.scaletest.start_times.day_replay import DayReplay, replay_day
from workbench.scaletest.start_times.kueue_quotas import QuotaClaim, QuotaLedger
from workbench.scaletest.start_times.node_room import NodeRoom, NodeTable
from workbench.scaletest.start_times.run_times import GivenRunTime, RunTimes
from workbench.scaletest.start_times.virtual_cluster import QUOTA, Outcome, VirtualCluster

# Futures of the job, at most and at least, and the seconds in which there are fewer; then those of all changes.
N_FUTURES, MIN_FUTURES, BUDGET_S = 200, 20, 20.0
N_CHANGED_FUTURES, MIN_CHANGED_FUTURES, CHANGES_BUDGET_S = 40, 5, 20.0
# Futures in which what holds the job up is looked for.
N_EXPLAINED = 40
HORIZON_S = 14 * 86_400.0
MAX_UNKNOWN_SHARE = 0.05
NODE_RULES = "node rules"
# Enough of a resource is free, but not on one node.
IN_PIECES = " in pieces"
_LEVELS = (0.1, 0.5, 0.9)
_UNREAD_SHARE, _CHANGED_NODES_SHARE = 0.1, 0.05


@dataclass(frozen=True)
class StartChange:
    """A change of the job or of the cluster. `median_s`: Null where it would not start within two weeks."""

    change: str
    starts_now: bool
    median_s: float | None


@dataclass(frozen=True)
class StartEstimate:
    """Answer to when a job will start.

    `p10_s`, `p50_s`, `p90_s`: Seconds from now until all of its pods have a node; null is later than two weeks.
    `reason`: What holds it up for most of the time: `quota`, `node rules`, or a resource; null where it starts now.
    `reasons`: All that does, by share of the time; `in pieces` where enough is free, but not on one node.
    `never`: Why it never starts, or null.
    `starts_s`: Of each simulated future, in order of time; infinite where it did not start.
    """

    job: WorkloadState
    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    first_pod_s: float | None
    starts_s: tuple[float, ...]
    reason: str | None
    reasons: Mapping[str, float]
    never: str | None
    overtakers: float
    changes: tuple[StartChange, ...]
    replay: DayReplay | None
    doubts: tuple[str, ...]

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid where something that is not known could have made the figure."""
        return "invalid" if self.doubts else "valid"

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        fields = ("p10_s", "p50_s", "p90_s", "first_pod_s", "reason", "reasons", "never", "overtakers")
        replay = self.replay
        return {
            "answer": self.answer,
            "verdict": self.verdict,
            "doubts": list(self.doubts),
            **{name: getattr(self, name) for name in fields},
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "n_futures": len(self.starts_s),
            "replay": None
            if replay is None
            else {
                "n_compared": replay.n_compared,
                "log_error": replay.log_error,
                "order": replay.order,
            },
        }

    @property
    def answer(self) -> str:
        """The answer in a sentence."""
        name = self.job.name
        if self.never is not None:
            return f"{name} never starts here: {self.never}."
        if self.doubts:
            return f"When {name} starts is not known: {self.doubts[0]}."
        if self.p90_s == 0:
            return f"{name} starts now."
        held_up = f"; {describe_reason(self.reason, self.reasons, self.job)}" if self.reason else ""
        if self.p50_s is None:
            return f"{name} does not start within {format_duration(HORIZON_S)}{held_up}."
        low, high = format_duration(self.p10_s), _format_late(self.p90_s)
        opening = f"{name} starts in {format_duration(self.p50_s)} ({low} to {high})"
        return fit_answer(f"{opening}{held_up}.", f"{opening}.")


def _format_late(seconds: float | None) -> str:
    return f"more than {format_duration(HORIZON_S)}" if seconds is None else format_duration(seconds)


def describe_reason(reason: str, reasons: Mapping[str, float], job: WorkloadState) -> str:
    """What holds a job up, in words."""
    name = {GPU: "GPUs", "cpu": "CPUs", "pods": "places for pods"}.get(reason, reason)
    if reason == QUOTA:
        return f"queue {job.queue} has used its quota"
    if reason == NODE_RULES:
        return "nodes that its rules allow are full"
    if reasons.get(reason + IN_PIECES, 0.0) > reasons.get(reason, 0.0):
        largest = max(pod.requests.get(reason, 0.0) for pod in job.pods)
        return f"no node has {largest:g} {name} free" if reason != "memory" else "no node has enough memory free"
    return f"{name} are short" if name != reason else f"{name} is short"


class StartStudy:
    """A job in a cluster: its futures, with and without changes."""

    def __init__(
        self,
        state: ClusterState,
        job: WorkloadState,
        *,
        run_times: Mapping[str, GivenRunTime],
        has_arrivals: bool = True,
        packs_gpus: bool = False,
        seed: int = 0,
    ) -> None:
        self.state, self.job, self.seed = state, job, seed
        self._present = state.list_present()
        self._run_times = RunTimes(state, run_times)
        self._arrivals = Arrivals(state) if has_arrivals else None
        self._table = NodeTable(
            state, [pod for one in (*state.workloads, job) for pod in one.pods], packs_gpus=packs_gpus
        )

    def play_future(self, job: WorkloadState, number: int, *, only_now: bool = False) -> Outcome:
        """One future, the same of each number for every change of the job."""
        random = np.random.default_rng([self.seed, number])
        future = self._run_times.draw_future(random)
        later: Iterator[tuple[float, WorkloadState]] = iter(())
        if self._arrivals is not None and not only_now:
            later = self._arrivals.draw(np.random.default_rng([self.seed, number, 1]), HORIZON_S)
        cluster = VirtualCluster(
            self.state,
            self._table,
            [*self._present, job],
            future.draw_rest,
            random,
            watched=len(self._present),
            later=later,
            explain=name_reason if number < N_EXPLAINED else None,
        )
        return cluster.run(0.0 if only_now else HORIZON_S)

    def starts_now(self, job: WorkloadState) -> bool:
        """Would it start if nothing ended?"""
        return self.play_future(job, 0, only_now=True).starts_s[len(self._present)] is not None

    def _play_futures(self, job: WorkloadState, most: int, least: int, budget_s: float) -> list[Outcome]:
        """As many futures as there is time for."""
        begun, outcomes = time.monotonic(), list[Outcome]()
        while len(outcomes) < most and (len(outcomes) < least or time.monotonic() - begun < budget_s):
            outcomes.append(self.play_future(job, len(outcomes)))
        return outcomes

    def estimate(self) -> StartEstimate:
        """The answer."""
        never = self._find_obstacle(self.job)
        outcomes = [] if never is not None else self._play_futures(self.job, N_FUTURES, MIN_FUTURES, BUDGET_S)
        place = len(self._present)
        starts_s = sorted(_read_start(outcome, place) for outcome in outcomes)
        names = {name for outcome in outcomes for name in outcome.waits}
        waits = {name: sum(outcome.waits.get(name, 0.0) for outcome in outcomes) for name in names}
        replay = replay_day(self.state, packs_gpus=self._table.packs_gpus)
        p10_s, p50_s, p90_s = (_read_level(starts_s, level) for level in _LEVELS)
        firsts_s = sorted(math.inf if one.first_pod_s is None else one.first_pod_s for one in outcomes)
        return StartEstimate(
            job=self.job,
            p10_s=p10_s,
            p50_s=p50_s,
            p90_s=p90_s,
            first_pod_s=_read_level(firsts_s, 0.5),
            starts_s=tuple(starts_s),
            reason=_find_reason(waits),
            reasons=_list_shares(waits),
            never=never,
            overtakers=float(np.median([outcome.overtakers for outcome in outcomes])) if outcomes else 0.0,
            changes=tuple(self._study_changes()) if never is not None or not self.starts_now(self.job) else (),
            replay=replay,
            doubts=tuple(self._list_doubts(replay)) if never is None else (),
        )

    def _study_changes(self) -> Iterator[StartChange]:
        changes = [(name, job) for name, job in list_changes(self.job, self.state) if self._find_obstacle(job) is None]
        for name, job in changes:
            starts_now = self.starts_now(job)
            budget_s = CHANGES_BUDGET_S / len(changes)
            outcomes = [] if starts_now else self._play_futures(job, N_CHANGED_FUTURES, MIN_CHANGED_FUTURES, budget_s)
            starts_s = [0.0] if starts_now else sorted(_read_start(one, len(self._present)) for one in outcomes)
            yield StartChange(name, starts_now, _read_level(starts_s, 0.5))
        if (freed := self._find_node_to_free()) is not None:
            yield StartChange(freed, True, 0.0)

    def _find_node_to_free(self) -> str | None:
        """The node from which the fewest workloads would have to go for a job of one pod; null for other jobs."""
        if len(self.job.pods) > 1 or self.job.queue is not None:
            return None
        cluster = VirtualCluster(self.state, self._table, self._present, lambda *_: math.inf, np.random.default_rng(0))
        pod = self.job.pods[0]
        shape = self._table.find_shape(pod.requests, pod.rules)
        needed, found = self._table.shapes[shape], None
        for node in np.flatnonzero(self._table.masks[needed.mask]):
            freed, gone = np.zeros_like(needed.needs), []
            # Those that hold most of it first.
            for other in sorted(
                cluster.list_running(int(node)),
                key=lambda one: -self._table.shapes[one.shape].needs @ (needed.needs > 0),
            ):
                if cluster.room.fits_on(int(node), shape, freed):
                    break
                freed = freed + self._table.shapes[other.shape].needs
                gone.append(self._present[other.workload].name)
            if cluster.room.fits_on(int(node), shape, freed) and (found is None or len(gone) < len(found[1])):
                found = self.state.nodes[int(node)].name, gone
        if found is None:
            return None
        return f"when {format_items(found[1], 3)} {'ends' if len(found[1]) == 1 else 'end'} on node {found[0]}"

    def _find_obstacle(self, job: WorkloadState) -> str | None:
        """Why a job would not start on the empty cluster; null where it would."""
        if job.queue is not None and (text := self._find_quota_obstacle(job)) is not None:
            return text
        room = NodeRoom(self._table, np.random.default_rng(0))
        shapes = [self._table.find_shape(pod.requests, pod.rules) for pod in job.pods]
        for pod, shape in zip(job.pods, shapes, strict=True):
            if not room.count_fits(shape).sum():
                return describe_misfit(pod, self.state)
        if job.is_gang and room.find_places(shapes) is None:
            return f"all of its {len(shapes)} pods do not fit at once, even on empty nodes"
        return None

    def _find_quota_obstacle(self, job: WorkloadState) -> str | None:
        queue = next((one for one in self.state.queues if one.name == job.queue), None)
        if queue is None:
            return None
        if not queue.is_open:
            return f"queue {queue.name} is stopped"
        ledger = QuotaLedger(self.state.queues)
        requests = sum_requests(job.pods)
        if ledger.find_usage(QuotaClaim(0, queue.name, requests, 0, 0.0)) is not None:
            return None
        for name, amount in requests.items():
            most = ledger.measure_most(queue.name, name)
            if most is not None and amount > most:
                return f"it wants {amount:g} {name}, and queue {queue.name} can have {most:g}"
        return f"queue {queue.name} has no quota for it"

    def _list_doubts(self, replay: DayReplay | None) -> Iterator[str]:
        """What is not known and could have made the figure."""
        if self.job.scheduler != DEFAULT_SCHEDULER:
            yield f"its scheduler, {self.job.scheduler}, is not simulated; the default scheduler and Kueue are"
        if self.job.unread:
            yield f"its {format_items(self.job.unread)} are not simulated"
        waiting = [one for one in self._present if one.started_s is None]
        if (n := sum(bool(one.unread) for one in waiting)) > _UNREAD_SHARE * max(1, len(waiting)):
            yield f"{n} of {len(waiting)} workloads that wait have rules that are not simulated, such as affinity"
        others = {one.scheduler for one in self._present} - {DEFAULT_SCHEDULER}
        if others:
            names = format_items(sorted(others), 3)
            yield f"pods of another scheduler, {names}, share the nodes: its order is not simulated"
        unknown = [one for one in self._present if not one.is_endless and self._run_times.find_source(one) is None]
        if unknown and _count_held(unknown) > MAX_UNKNOWN_SHARE * _count_held(self._present):
            families = format_items(sorted({one.family for one in unknown}), 3)
            yield (
                f"how long {len(unknown)} of {len(self._present)} workloads run is not known ({families}); "
                "record a day, or give --run-time all=MEDIAN..P90"
            )
        if self.state.n_changed_nodes > _CHANGED_NODES_SHARE * len(self.state.nodes):
            yield (
                f"{self.state.n_changed_nodes} nodes came or went during the record, as an autoscaler does; "
                "how many there will be is not known"
            )
        if not self.state.span_s and self._arrivals is not None:
            yield "what comes later is not known; record a day, or say --no-arrivals"
        if replay is not None and not replay.is_true:
            yield (
                f"a replay of the record gives other waits than were recorded (median factor "
                f"{math.exp(replay.log_error):.2g}, {replay.n_compared} workloads that waited)"
            )


def _count_held(workloads: Sequence[WorkloadState]) -> float:
    """GPUs of workloads; or their CPUs where none has a GPU."""
    total = sum_requests(pod for one in workloads for pod in one.pods)
    return total.get(GPU) or total.get("cpu") or float(len(workloads))


def _find_reason(waits: Mapping[str, float]) -> str | None:
    """What holds up for most of the time, whether what is free lies in pieces or not."""
    seconds: dict[str, float] = {}
    for name, waited_s in waits.items():
        whole = name.removesuffix(IN_PIECES)
        seconds[whole] = seconds.get(whole, 0.0) + waited_s
    return max(seconds, key=lambda name: seconds[name]) if any(seconds.values()) else None


def _list_shares(waits: Mapping[str, float]) -> dict[str, float]:
    """Each reason's share of the time, largest first."""
    total_s = sum(waits.values())
    return {name: waits[name] / total_s for name in sorted(waits, key=lambda name: -waits[name]) if waits[name] > 0}


def _read_start(outcome: Outcome, place: int) -> float:
    start_s = outcome.starts_s[place]
    return math.inf if start_s is None else start_s


def _read_level(ordered_s: Sequence[float], level: float) -> float | None:
    """A quantile of times of which some are infinite; null where it is."""
    if not ordered_s:
        return None
    at = ordered_s[min(len(ordered_s) - 1, int(level * len(ordered_s)))]
    return at if math.isfinite(at) else None


def name_reason(room: NodeRoom, shapes: Sequence[int]) -> str:
    """The one thing that, if it were away, would let these pods in; where none alone would, what is scarcest.

    A resource of which enough is free, but not on one node, is `in pieces`.
    """
    counts = Counter(shapes)

    def fits(**without: object) -> bool:
        return all(room.count_fits(shape, **without).sum() >= n for shape, n in counts.items())  # type: ignore[arg-type]

    if fits(anywhere=True):
        return NODE_RULES
    table = room.table
    needs = sum((table.shapes[shape].needs * n for shape, n in counts.items()), np.zeros(len(table.resources)))
    allowed = np.any([table.masks[table.shapes[shape].mask] for shape in counts], axis=0)
    free = room.free[allowed].sum(axis=0)
    for at, name in enumerate(table.resources):
        if fits(ignored=at):
            return name + IN_PIECES if free[at] >= needs[at] else name
    short = np.where(needs > 0, needs / np.maximum(free, 1e-9), 0.0)
    return table.resources[int(short.argmax())]


def describe_misfit(pod: PodState, state: ClusterState) -> str:
    """Why a pod fits on no node, even on an empty one."""
    allowed = [node for node in state.nodes if pod.rules.allow(node)]
    if not allowed:
        is_closed = [node for node in state.nodes if NodeRules(tolerations=pod.rules.tolerations).allow(node)]
        what = "its node rules match none" if is_closed else "it tolerates the taints of none"
        return f"no node is open to it: {what} of {len(state.nodes)} nodes"
    for name, amount in pod.requests.items():
        most = max(node.offers.get(name, 0.0) for node in allowed)
        if amount > most:
            return f"a pod wants {amount:g} {name}, and no node that it may use has more than {most:g}"
    return "no node that it may use has all that a pod wants"


def list_changes(job: WorkloadState, state: ClusterState) -> Iterator[tuple[str, WorkloadState]]:
    """Changes of a job that could start it earlier, each with the job as it would be."""
    gpus = max(int(pod.requests.get(GPU, 0)) for pod in job.pods)
    smaller = gpus // 2
    while smaller >= 1:
        yield (
            f"with {smaller} {'GPU' if smaller == 1 else 'GPUs'} a pod",
            _replace_pods(job, [_limit_gpus(pod, smaller) for pod in job.pods]),
        )
        smaller //= 2
    n_pods = len(job.pods) // 2
    while n_pods >= 1:
        yield f"with {n_pods} {'pod' if n_pods == 1 else 'pods'}", _replace_pods(job, list(job.pods[:n_pods]))
        n_pods //= 2
    if any(pod.rules.selector or pod.rules.terms for pod in job.pods):
        free = [pod.model_copy(update={"rules": NodeRules(tolerations=pod.rules.tolerations)}) for pod in job.pods]
        yield "without its node rules", _replace_pods(job, free)
    if job.queue is not None:
        for queue in state.queues:
            if queue.name != job.queue:
                yield f"in queue {queue.name}", job.model_copy(update={"queue": queue.name})
    for name, known in sorted(state.priority_classes.items(), key=lambda one: one[1].value):
        if known.value > job.priority and not name.startswith("system-"):
            update = {"priority": known.value, "preempts": known.preempts}
            yield f"with priority class {name}", job.model_copy(update=update)


def _limit_gpus(pod: PodState, most: int) -> PodState:
    gpus = min(pod.requests.get(GPU, 0.0), float(most))
    return pod.model_copy(update={"requests": {**pod.requests, GPU: gpus}}) if GPU in pod.requests else pod


def _replace_pods(job: WorkloadState, pods: list[PodState]) -> WorkloadState:
    return job.model_copy(update={"pods": tuple(pods), "is_gang": job.is_gang and len(pods) > 1})
