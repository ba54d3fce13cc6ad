"""A cluster's schedulers in virtual time: kube-scheduler by pods or gangs, and Kueue before it.

Waiting pods are tried in order of priority, then of their arrival, whenever something ends or comes; what does not fit
is passed over. What has a higher priority takes the place of what has a lower one where that makes room. A gang that
did not fit when it came stays in the back-off queue, where it is tried again and again once no other pod is left to
try: so gangs come after single pods, and one of them is as likely as another. Scheduling itself takes no time: beside
jobs of minutes it is little.

Source: kube-scheduler's documentation of its queue and of preemption; gangs as Kubernetes 1.36 was seen to place them
(tests/worlds/start_worlds.py). Not simulated: backoff of single pods, affinity between pods, topology spread, volumes,
claims of devices, disruption budgets; gangs do not preempt.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.scaletest.start_times.cluster_state import ClusterState, NodeRules, WorkloadState, sum_requests
from workbench.scaletest.start_times.kueue_quotas import QuotaClaim, QuotaLedger
from workbench.scaletest.start_times.node_room import NodeRoom, NodeTable

_END, _ARRIVAL = 0, 1
QUOTA = "quota"
MAX_EVENTS = 2_000_000
# What holds up a workload is looked for again after so large a share of the time since the beginning.
LOOK_SHARE = 0.02


@dataclass(eq=False)
class VirtualPod:
    """A pod of one future. `run`: Its start, by number: the end of an earlier one is not taken for its own."""

    workload: int
    shape: int
    priority: int
    node: int | None = None
    placed_s: float = -math.inf
    run: int = 0
    wished: int | None = None


@dataclass(eq=False)
class _Unit:
    """What is placed at once: one pod, or all pods of a gang.

    `key`: Its place in the scheduler's queue: whether it is a gang that waited, its place among those (else its
    priority, negated), when it came to the queue, and a number.
    """

    pods: list[VirtualPod]
    key: tuple[int, float, float, int]


@dataclass(frozen=True)
class _Need:
    """What units have in common that fit wherever one of them fits: shapes, priority, and whether they preempt."""

    shapes: tuple[int, ...]
    priority: int
    preempts: bool


@dataclass
class Outcome:
    """What became of one future.

    `starts_s`: When the last pod of each workload had a node; null where one had none.
    `waits`: What held the watched workload up, and for how many seconds.
    `overtakers`: Workloads that came after the watched one and started before it.
    """

    starts_s: list[float | None]
    first_pod_s: float | None = None
    waits: dict[str, float] = field(default_factory=dict)
    overtakers: int = 0
    evicted: list[int] = field(default_factory=list)


class VirtualCluster:
    """One future of a cluster.

    `rest_s`: How much longer a workload of this index and age runs, in seconds.
    `later`: Workloads that come besides with their times, in order.
    `watched`: Index of the workload whose start is asked for; the future ends when it has started.
    `keeps_nodes`: Pods go to their recorded nodes, if they fit there.
    `explain`: What holds up pods of the watched workload that wait for a node, as a name.
    """

    def __init__(
        self,
        state: ClusterState,
        table: NodeTable,
        workloads: Sequence[WorkloadState],
        rest_s: Callable[[WorkloadState, float], float],
        random: np.random.Generator,
        *,
        now_s: float = 0.0,
        watched: int | None = None,
        later: Iterator[tuple[float, WorkloadState]] | None = None,
        keeps_nodes: bool = False,
        explain: Callable[[NodeRoom, Sequence[int]], str] | None = None,
    ) -> None:
        self.table, self.room, self._random = table, NodeRoom(table, random), random
        self._state, self._workloads, self._rest_s = state, list(workloads), rest_s
        self._created_s = [workload.created_s for workload in workloads]
        self._keeps_nodes = keeps_nodes
        self._watched, self._explain, self._now_s = watched, explain, now_s
        self._later = later or iter(())
        self._count = itertools.count()
        self._events: list[tuple[float, int, int, VirtualPod | WorkloadState, int]] = []
        # By need, each in order: of those of one need, the first fits if any does.
        self._waiting: dict[_Need, list[_Unit]] = {}
        self._unplaced: Counter[int] = Counter()
        # Shapes that fit nowhere, until something ends where they would.
        self._stuck: set[tuple[int, ...]] = set()
        self._on_node: list[set[VirtualPod]] = [set() for _ in table.nodes]
        self._priorities: Counter[int] = Counter()
        self._open: Counter[int] = Counter()
        self._ledger = QuotaLedger(state.queues)
        self._claims: dict[int, QuotaClaim] = {}
        self._asking: list[QuotaClaim] = []
        self._is_quota_new = True
        self._reason: tuple[float, str] | None = None
        self._look_s = now_s
        self.outcome = Outcome([None] * len(workloads))
        self._settle()

    def run(self, until_s: float = math.inf) -> Outcome:
        """Let time pass until the watched workload has started, nothing is left to happen, or `until_s`."""
        self._schedule(self._now_s)
        for _ in range(MAX_EVENTS):
            if self._has_watched_started() or not self._events or self._events[0][0] > until_s:
                break
            self._now_s = self._events[0][0]
            # All that happens at one time, before anything is placed.
            while self._events and self._events[0][0] <= self._now_s:
                _, kind, _, subject, mark = heapq.heappop(self._events)
                if isinstance(subject, VirtualPod):
                    if subject.run == mark:
                        self._end_pod(subject)
                elif kind == _ARRIVAL:
                    self._take_arrival(subject, mark)
            self._schedule(self._now_s)
        self._book_wait(min(self._now_s, until_s), None)
        return self.outcome

    def list_running(self, node: int) -> list[VirtualPod]:
        """Pods on a node."""
        return sorted(self._on_node[node], key=lambda pod: (pod.priority, -pod.placed_s))

    # What is there at the beginning, and what comes.

    def _settle(self) -> None:
        for index, workload in enumerate(self._workloads):
            if workload.created_s > self._now_s:
                self._push(workload.created_s, _ARRIVAL, workload, index)
                continue
            running, waiting = [], []
            for pod, state in zip(self._build_pods(index), workload.pods, strict=True):
                if state.scheduled_s is None or state.scheduled_s > self._now_s:
                    waiting.append(pod)
                elif state.ended_s is None or state.ended_s > self._now_s:
                    pod.placed_s = state.scheduled_s
                    pod.node = self.table.index.get(state.node or "")
                    running.append(pod)
            self._open[index] = len(running) + len(waiting)
            if not waiting:
                self.outcome.starts_s[index] = workload.started_s
            has_quota = len(waiting) < len(workload.pods)
            if has_quota and (claim := self._build_claim(index)) is not None:
                self._ledger.take(claim, self._ledger.assume_usage(claim), workload.started_s or workload.created_s)
            self._keep_running(workload, running)
            if waiting and (has_quota or not self._ask_for_quota(index)):
                self._queue_pods(index, waiting, workload.created_s)
        self._draw_arrival()

    def _keep_running(self, workload: WorkloadState, running: list[VirtualPod]) -> None:
        if not running:
            return
        rest_s = self._rest_s(workload, self._now_s - min(pod.placed_s for pod in running))
        for pod in running:
            # A node that is gone takes nothing, but its pods still end.
            if pod.node is not None:
                self._occupy(pod, pod.node)
            self._push(self._now_s + rest_s, _END, pod, pod.run)

    def _build_pods(self, index: int, rules: NodeRules | None = None) -> list[VirtualPod]:
        workload = self._workloads[index]
        pods = []
        for pod in workload.pods:
            shape = self.table.find_shape(pod.requests, _join_rules(pod.rules, rules))
            wished = self.table.index.get(pod.node or "") if self._keeps_nodes else None
            pods.append(VirtualPod(index, shape, workload.priority, wished=wished))
        return pods

    def _draw_arrival(self) -> None:
        coming = next(self._later, None)
        if coming is not None:
            created_s, workload = coming
            self._workloads.append(workload)
            self._created_s.append(created_s)
            self.outcome.starts_s.append(None)
            self._push(created_s, _ARRIVAL, workload, len(self._workloads) - 1)

    def _take_arrival(self, workload: WorkloadState, index: int) -> None:
        self._open[index] = len(workload.pods)
        if not self._ask_for_quota(index):
            self._queue_pods(index, self._build_pods(index), self._now_s)
        if index == len(self._workloads) - 1:
            self._draw_arrival()

    def _push(self, at_s: float, kind: int, subject: VirtualPod | WorkloadState, mark: int) -> None:
        if math.isfinite(at_s):
            heapq.heappush(self._events, (at_s, kind, next(self._count), subject, mark))

    def _end_pod(self, pod: VirtualPod) -> None:
        self._release(pod)
        self._open[pod.workload] -= 1
        if not self._open[pod.workload] and (claim := self._claims.get(pod.workload)) is not None:
            self._ledger.give_back(claim)
            self._is_quota_new = True

    # Quotas.

    def _build_claim(self, index: int) -> QuotaClaim | None:
        workload = self._workloads[index]
        if workload.queue is None or workload.queue not in self._ledger.queues:
            return None
        requests = sum_requests(workload.pods)
        claim = QuotaClaim(index, workload.queue, requests, workload.priority, self._created_s[index])
        self._claims[index] = claim
        return claim

    def _ask_for_quota(self, index: int) -> bool:
        """Whether a workload waits for quota before its pods may be placed."""
        claim = self._build_claim(index)
        if claim is None:
            return False
        self._asking.append(claim)
        self._is_quota_new = True
        return True

    def _admit_claims(self, at_s: float) -> None:
        """Let in what has quota: of each queue the first, in cycles, until none is let in."""
        if not self._is_quota_new:
            return
        self._is_quota_new = False
        self._asking.sort(key=lambda claim: (-claim.priority, claim.order_s))
        left = {name: [claim for claim in self._asking if claim.queue == name] for name in self._ledger.queues}
        refused: set[tuple[str, tuple[tuple[str, float], ...]]] = set()
        while any(left.values()):
            heads = [(claims[0], self._ledger.find_usage(claims[0])) for claims in left.values() if claims]
            heads.sort(
                key=lambda head: (self._ledger.borrows(head[0], head[1] or {}), -head[0].priority, head[0].order_s)
            )
            for claim, fitted in heads:
                usage = self._ledger.find_usage(claim)
                if usage is None and fitted is not None:
                    continue
                if usage is None and (victims := self._ledger.choose_victims(claim, self._claims.values())):
                    for victim in victims:
                        self._evict_workload(victim)
                    usage = self._ledger.find_usage(claim)
                queue = left[claim.queue]
                if usage is not None:
                    queue.remove(claim)
                    self._let_in(claim, usage, at_s)
                elif self._ledger.queues[claim.queue].is_strict:
                    queue.clear()
                else:
                    refused.add((claim.queue, tuple(claim.requests.items())))
                    left[claim.queue] = [
                        one for one in queue if (one.queue, tuple(one.requests.items())) not in refused
                    ]

    def _let_in(self, claim: QuotaClaim, usage: dict[tuple[str, str], float], at_s: float) -> None:
        self._asking.remove(claim)
        self._ledger.take(claim, usage, at_s)
        labels = {key: value for flavour, _ in usage for key, value in self._state.flavours.get(flavour, {}).items()}
        self._queue_pods(claim.index, self._build_pods(claim.index, NodeRules(selector=labels)), at_s)

    def _evict_workload(self, claim: QuotaClaim) -> None:
        """A workload that lost its quota waits again, and runs from its beginning."""
        for pods in self._on_node:
            for pod in [one for one in pods if one.workload == claim.index]:
                self._evict_pod(pod)
        for need, units in self._waiting.items():
            self._waiting[need] = [unit for unit in units if unit.pods[0].workload != claim.index]
        self._unplaced[claim.index] = 0
        self._open[claim.index] = len(self._workloads[claim.index].pods)
        self.outcome.evicted.append(claim.index)
        self._asking.append(claim)
        self._is_quota_new = True

    # Nodes.

    def _queue_pods(self, index: int, pods: list[VirtualPod], order_s: float) -> None:
        workload = self._workloads[index]
        self._unplaced[index] += len(pods)
        for group in [pods] if workload.is_gang else [[pod] for pod in pods]:
            shapes = tuple(pod.shape for pod in group)
            need = _Need(shapes, workload.priority, workload.preempts and len(group) == 1)
            unit = _Unit(group, (0, -workload.priority, order_s, next(self._count)))
            bisect.insort(self._waiting.setdefault(need, []), unit, key=lambda one: one.key)

    def _schedule(self, at_s: float) -> None:
        """Let in and place what can be; what was evicted for it is tried after it."""
        self._admit_claims(at_s)
        self._mix_gangs(at_s)
        refused: set[_Need] = set()
        while (need := self._find_next(refused)) is not None:
            unit = self._waiting[need][0]
            nodes = None if need.shapes in self._stuck else self._find_places(unit)
            if nodes is None:
                self._stuck.add(need.shapes)
                if need.preempts and need.priority > self._find_lowest_priority():
                    nodes = self._preempt(unit, at_s)
            if nodes is None:
                refused.add(need)
            else:
                del self._waiting[need][0]
                self._start_unit(unit, nodes, at_s)
        if self._is_quota_new:
            self._schedule(at_s)
        elif self._explain is not None and at_s >= self._look_s:
            self._book_wait(at_s, self._find_reason())
            self._look_s = at_s + LOOK_SHARE * max(0.0, at_s)

    def _mix_gangs(self, at_s: float) -> None:
        """Gangs that waited are tried last, and in any order; in a replay, in that of their recorded starts."""
        for need, units in self._waiting.items():
            if len(need.shapes) == 1 or need.shapes in self._stuck:
                continue
            for unit in units:
                _, _, order_s, number = unit.key
                if order_s < at_s:
                    started_s = self._workloads[unit.pods[0].workload].started_s
                    recorded_s = math.inf if started_s is None else started_s
                    unit.key = (1, recorded_s if self._keeps_nodes else self._random.random(), order_s, number)
            units.sort(key=lambda unit: unit.key)

    def _find_next(self, refused: set[_Need]) -> _Need | None:
        """Of the needs that may be met, that whose first unit is first in the queue."""
        lowest = self._find_lowest_priority()
        open_needs = [
            need
            for need, units in self._waiting.items()
            if units
            and need not in refused
            and (need.shapes not in self._stuck or (need.preempts and need.priority > lowest))
        ]
        return min(open_needs, key=lambda need: self._waiting[need][0].key, default=None)

    def _start_unit(self, unit: _Unit, nodes: list[int], at_s: float) -> None:
        index = unit.pods[0].workload
        rest_s = self._rest_s(self._workloads[index], 0.0)
        for pod, node in zip(unit.pods, nodes, strict=True):
            self._occupy(pod, node)
            pod.placed_s = at_s
            pod.run += 1
            self._push(at_s + rest_s, _END, pod, pod.run)
        if index == self._watched and self.outcome.first_pod_s is None:
            self.outcome.first_pod_s = at_s
        self._unplaced[index] -= len(unit.pods)
        if not self._unplaced[index]:
            self.outcome.starts_s[index] = at_s
            if self._watched is not None and self._created_s[index] > self._created_s[self._watched]:
                self.outcome.overtakers += 1

    def _find_lowest_priority(self) -> float:
        """Of what runs; infinite where nothing does."""
        return min((priority for priority, count in self._priorities.items() if count), default=math.inf)

    def _occupy(self, pod: VirtualPod, node: int) -> None:
        pod.node = node
        self.room.occupy(node, pod.shape)
        self._on_node[node].add(pod)
        self._priorities[pod.priority] += 1

    def _release(self, pod: VirtualPod) -> None:
        if pod.node is None:
            return
        node, pod.node = pod.node, None
        self.room.occupy(node, pod.shape, -1)
        self._on_node[node].discard(pod)
        self._priorities[pod.priority] -= 1
        fitting = [shapes for shapes in self._stuck if any(self.room.fits_on(node, shape) for shape in set(shapes))]
        self._stuck.difference_update(fitting)

    def _evict_pod(self, pod: VirtualPod) -> None:
        """Take a pod off its node before its end, which then is none."""
        self._release(pod)
        pod.run += 1

    def _preempt(self, unit: _Unit, at_s: float) -> list[int] | None:
        """Evict pods of lower priority where that makes room for this one; null where nothing does."""
        pod = unit.pods[0]
        found = [
            (rank_victims(victims), node, victims)
            for node in np.flatnonzero(self.table.masks[self.table.shapes[pod.shape].mask])
            if (victims := self.choose_victims(int(node), pod)) is not None
        ]
        if not found:
            return None
        _, _, victims = min(found, key=lambda one: one[:2])
        for victim in victims:
            self._evict_pod(victim)
            self.outcome.evicted.append(victim.workload)
            # Its controller makes another one.
            self._queue_pods(victim.workload, [VirtualPod(victim.workload, victim.shape, victim.priority)], at_s)
        return self._find_places(unit)

    def _find_places(self, unit: _Unit) -> list[int] | None:
        return self.room.find_places(
            [pod.shape for pod in unit.pods], [pod.wished for pod in unit.pods] if self._keeps_nodes else ()
        )

    def choose_victims(self, node: int, pod: VirtualPod) -> list[VirtualPod] | None:
        """Pods of lower priority that must go from a node so that a pod fits there; null where that is not enough."""
        lower = [one for one in self._on_node[node] if one.priority < pod.priority]
        freed = sum((self.table.shapes[one.shape].needs for one in lower), np.zeros(len(self.table.resources)))
        if not lower or not self.room.fits_on(node, pod.shape, freed):
            return None
        victims = []
        # The most important stay, if they can.
        for one in sorted(lower, key=lambda one: (-one.priority, one.placed_s)):
            needs = self.table.shapes[one.shape].needs
            if self.room.fits_on(node, pod.shape, freed - needs):
                freed = freed - needs
            else:
                victims.append(one)
        return victims

    # What holds the watched workload up.

    def _has_watched_started(self) -> bool:
        return self._watched is not None and self.outcome.starts_s[self._watched] is not None

    def _find_reason(self) -> str | None:
        if self._explain is None or self._watched is None or self._has_watched_started():
            return None
        if any(claim.index == self._watched for claim in self._asking):
            return QUOTA
        units = (unit for units in self._waiting.values() for unit in units if unit.pods[0].workload == self._watched)
        unit = min(units, key=lambda one: one.key, default=None)
        return None if unit is None else self._explain(self.room, [pod.shape for pod in unit.pods])

    def _book_wait(self, at_s: float, reason: str | None) -> None:
        if self._reason is not None:
            since_s, before = self._reason
            self.outcome.waits[before] = self.outcome.waits.get(before, 0.0) + at_s - since_s
        self._reason = None if reason is None else (at_s, reason)


def rank_victims(victims: Sequence[VirtualPod]) -> tuple[float, ...]:
    """Order of nodes whose pods would go: lowest priorities first, then fewest, then those that began last."""
    highest = max(pod.priority for pod in victims)
    first_s = min(pod.placed_s for pod in victims if pod.priority == highest)
    return highest, sum(pod.priority for pod in victims), len(victims), -first_s


def _join_rules(rules: NodeRules, more: NodeRules | None) -> NodeRules:
    if more is None or not more.selector:
        return rules
    return rules.model_copy(update={"selector": {**rules.selector, **more.selector}})
