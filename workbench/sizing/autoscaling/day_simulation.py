"""Replays a day of traffic on the simulated cluster while an autoscaler changes its replicas, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.sizing.autoscaling.day_traffic import HOUR_S, DayTraffic
from workbench.sizing.autoscaling.policies import Policy, Sample
from workbench.sizing.config import Goal
from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.metrics import Floats
from workbench.sizing.simulation.cluster_model import Cluster, Gpu, Marks, Service, Workflow
from workbench.sizing.simulation.virtual_time import read_workflow_columns

ACCOUNT_EVERY_S = 1.0
"""Time between two looks at which replicas work, whose mean an autoscaler sees."""


@dataclass(frozen=True)
class ScalingLimits:
    """What bounds an autoscaler: replicas at least and at most, and how long a new one takes to serve."""

    start_s: float
    min_replicas: int = 1
    max_replicas: int = 64


@dataclass(frozen=True)
class DayResult:
    """What became of a day.

    `sent_s`: When each request was sent. `is_late`: Whether it missed a goal.
    `gpu_hours`: Hours of all replicas: while they start, serve and end what they have.
    `timeline`: Moments, with the replicas that serve and those that start.
    """

    sent_s: Floats
    is_late: Floats
    gpu_hours: float
    timeline: list[tuple[float, int, int]]

    @property
    def late_share(self) -> float:
        """Share of the requests that missed a goal."""
        return float(self.is_late.mean()) if len(self.is_late) else 0.0

    def count_by_block(self, block_s: float) -> list[tuple[int, int]]:
        """Requests and late ones by stretches of this length, those without a request left out."""
        blocks = (self.sent_s // block_s).astype(int)
        counts = np.bincount(blocks)
        late = np.bincount(blocks, weights=self.is_late).astype(int)
        return [pair for pair in zip(counts.tolist(), late.tolist(), strict=True) if pair[0]]


class ScaledCluster:
    """A cluster whose replicas an autoscaler changes: a new one serves after its start, one that goes ends its work."""

    def __init__(self, service: Service, limits: ScalingLimits, marks: Marks, seed: int) -> None:
        self.cluster = Cluster(service.model_copy(update={"gpus": limits.min_replicas}), marks=marks, seed=seed)
        self.limits = limits
        self._orders: list[int] = []  # of replicas that do not serve yet, the oldest first
        self._n_orders = 0
        self.timeline: list[tuple[float, int, int]] = [(0.0, limits.min_replicas, 0)]
        self.gpu_s = 0.0
        self._leaving: list[Gpu] = []
        self._measured_s = 0.0
        self._busy_s = 0.0
        self._n_arrived = 0
        self._looked_s = 0.0

    @property
    def starting(self) -> int:
        """Replicas that do not serve yet."""
        return len(self._orders)

    def count_arrival(self) -> None:
        """Note a request."""
        self._n_arrived += 1

    def advance_accounts(self) -> None:
        """Add the time since the last call to the hours of GPUs and of work."""
        cluster = self.cluster
        span_s = cluster.now_s - self._measured_s
        self._measured_s = cluster.now_s
        self._leaving = [gpu for gpu in self._leaving if gpu.load]
        self.gpu_s += span_s * (len(cluster.gpus) + self.starting + len(self._leaving))
        self._busy_s += span_s * sum(gpu.batch > 0 for gpu in cluster.gpus) / len(cluster.gpus)

    def look(self) -> Sample:
        """What an autoscaler sees now."""
        cluster, span_s = self.cluster, max(self.cluster.now_s - self._looked_s, 1e-9)
        sample = Sample(
            at_s=cluster.now_s,
            ready=len(cluster.gpus),
            starting=self.starting,
            in_flight=sum(gpu.load for gpu in cluster.gpus),
            waiting=sum(len(gpu.waiting) for gpu in cluster.gpus),
            busy=min(1.0, self._busy_s / span_s),
            rate=self._n_arrived / span_s,
        )
        self._busy_s, self._n_arrived, self._looked_s = 0.0, 0, cluster.now_s
        return sample

    def set_replicas(self, wanted: int) -> None:
        """Order replicas, or let some go: first those that do not serve yet, then those with the least work."""
        wanted = min(max(wanted, self.limits.min_replicas), self.limits.max_replicas)
        change = wanted - len(self.cluster.gpus) - self.starting
        for _ in range(change):
            self._n_orders += 1
            self._orders.append(self._n_orders)
            self.cluster.schedule_at(self.cluster.now_s + self.limits.start_s, self._begin_service, self._n_orders)
        cancelled = min(max(0, -change), len(self._orders))
        del self._orders[len(self._orders) - cancelled :]
        if -change > cancelled:
            self._leaving += self.cluster.set_gpus(len(self.cluster.gpus) + change + cancelled)
        if change:
            self.timeline.append((self.cluster.now_s, len(self.cluster.gpus), self.starting))

    def _begin_service(self, order: int) -> None:
        if order not in self._orders:
            return  # it was cancelled
        self.advance_accounts()
        self._orders.remove(order)
        self.cluster.set_gpus(len(self.cluster.gpus) + 1)
        self.timeline.append((self.cluster.now_s, len(self.cluster.gpus), self.starting))


def simulate_day(
    service: Service,
    traffic: DayTraffic,
    policy: Policy,
    goals: Sequence[Goal],
    limits: ScalingLimits,
    *,
    seed: int,
    start_replicas: int,
) -> DayResult:
    """Replay a day: all requests are answered, those of the last minutes too.

    `start_replicas`: Replicas at the begin. The same seed gives the same requests at the same times to each policy.
    """
    policy.restart()
    marks: Marks = "first" if metrics.needs_first_token(goal.metric for goal in goals) else "end"
    scaled = ScaledCluster(service, limits, marks, seed)
    cluster = scaled.cluster
    cluster.set_gpus(min(max(start_replicas, limits.min_replicas), limits.max_replicas))
    scaled.timeline = [(0.0, len(cluster.gpus), 0)]
    flows: list[Workflow] = []

    def start_request() -> None:
        scaled.count_arrival()
        flows.append(cluster.start_workflow(lambda _: None))

    def look_and_scale() -> None:
        scaled.advance_accounts()
        scaled.set_replicas(policy.decide(scaled.look()))
        if cluster.now_s + policy.every_s < traffic.duration_s:
            cluster.schedule_at(cluster.now_s + policy.every_s, look_and_scale)

    def keep_accounts() -> None:
        scaled.advance_accounts()
        if cluster.now_s + ACCOUNT_EVERY_S < traffic.duration_s:
            cluster.schedule_at(cluster.now_s + ACCOUNT_EVERY_S, keep_accounts)

    cluster.schedule_at(0.0, keep_accounts)
    for time_s in traffic.draw_arrivals(seed):
        cluster.schedule_at(time_s, start_request)
    cluster.schedule_at(0.0, look_and_scale)
    cluster.advance_to(traffic.duration_s)
    scaled.advance_accounts()
    gpu_hours = scaled.gpu_s / HOUR_S
    cluster.run_while(lambda: cluster.running > 0)
    names = metrics.list_columns([metrics.DEFAULT_METRIC, *(goal.metric for goal in goals)])
    columns = read_workflow_columns(flows, ["sent_s", *names])
    late = np.zeros(len(flows), dtype=bool)
    for goal in goals:
        with np.errstate(invalid="ignore"):
            late |= (metrics.metric_values(columns, goal.metric) > goal.limit_s).any(axis=1)
    return DayResult(np.array(columns["sent_s"]), late.astype(np.float64), gpu_hours, scaled.timeline)
