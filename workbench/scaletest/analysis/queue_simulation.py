"""Simulated queue of kube-scheduler: how long pods would wait for GPUs if scheduling itself took no time."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.core.formats import format_seconds

# Defaults of kube-scheduler; its backoff queue is ordered by whole seconds.
MIN_BACKOFF_S, MAX_BACKOFF_S = 1.0, 10.0
_END, _ARRIVAL, _RETRY = 0, 1, 2
N_DRAWS = 20
MAX_PODS = 20_000


@dataclass(frozen=True)
class QueuedPods:
    """Pods in order of arrival, as arrays of one length."""

    arrival_s: npt.NDArray[np.float64]
    held_s: npt.NDArray[np.float64]
    gpus: npt.NDArray[np.float64]


@dataclass
class _Cluster:
    """Free GPUs and pods of each node. A pod goes to a node with the fewest pods, as by LeastAllocated."""

    free: list[float]
    random: np.random.Generator
    n_pods: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.n_pods = [0] * len(self.free)

    def find_node(self, gpus: float) -> int | None:
        fits = [at for at, free in enumerate(self.free) if free >= gpus - 1e-9]
        if not fits:
            return None
        fewest = min(self.n_pods[at] for at in fits)
        return int(self.random.choice([at for at in fits if self.n_pods[at] == fewest]))

    def take(self, node: int, gpus: float, sign: int = 1) -> None:
        self.free[node] -= sign * gpus
        self.n_pods[node] += sign


def simulate_queue_waits(
    pods: QueuedPods, node_gpus: Sequence[float], *, seed: int = 0, pops_backoff: bool = True
) -> npt.NDArray[np.float64]:
    """Simulate when each pod would be scheduled, one scheduling decision taking no time.

    `pods`: Pods of equal priority and with equal requests of everything but GPUs.
    `pops_backoff`: The scheduler takes pods whose backoff has not ended when no other waits (Kubernetes 1.33 and
    newer).

    Returns: Wait of each pod in seconds; infinite for one that fits on no node.

    A pod that fits nowhere waits until another one ends. It is then tried again after its backoff, which is 1 s after
    the first attempt and doubles up to 10 s; pods in backoff are tried in order of the whole second in which it ends,
    then of their last attempt.
    Source: kube-scheduler's documentation of its queue, and enhancement 5142. Does not show: preemption, gangs, limits
    of other resources, and the five minutes after which a pod is tried again in any case.

    >>> pods = QueuedPods(np.array([0.0, 1.0, 2.0]), np.array([10.0, 10.0, 10.0]), np.array([1.0, 1.0, 1.0]))
    >>> simulate_queue_waits(pods, [1.0]).tolist()
    [0.0, 9.0, 18.0]
    """
    return _Simulation(pods, _Cluster(list(node_gpus), np.random.default_rng(seed)), pops_backoff).run()


@dataclass(frozen=True)
class QueueComparison:
    """Waits of a run's pods beside those of a simulated queue, in seconds."""

    n_pods: int
    mean_s: float
    p95_s: float
    simulated_mean_s: float
    simulated_p95_s: float
    draws: tuple[float, float]

    @property
    def sentence(self) -> str:
        """Both, and their difference."""
        low, high = self.draws
        return (
            f"pods waited {format_seconds(self.mean_s)} on average to be scheduled (95 % within "
            f"{format_seconds(self.p95_s)}); in a simulated queue of kube-scheduler, with the same pods and nodes, "
            f"{format_seconds(self.simulated_mean_s)} ({format_seconds(self.simulated_p95_s)}; "
            f"means of {N_DRAWS} draws {format_seconds(low)} to {format_seconds(high)}): "
            f"a difference of {self.mean_s - self.simulated_mean_s:+.2g} s"
        )


def takes_pods_in_backoff(server_version: str) -> bool:
    """Does a version of Kubernetes take pods whose backoff has not ended when no other waits? From 1.33 on.

    >>> [takes_pods_in_backoff(version) for version in ("v1.36.3", "v1.31.0-eks", "unknown")]
    [True, False, True]
    """
    match = re.match(r"v?1\.(\d+)", server_version)
    return match is None or int(match[1]) >= 33


def compare_queue_waits(
    pods: pl.DataFrame, nodes: pl.DataFrame, *, pops_backoff: bool = True
) -> QueueComparison | None:
    """Compare a run's waits with those of a simulated queue.

    `pods`, `nodes`: Tables PODS and NODES of a run of pods that are scheduled one by one.

    Returns: None where a pod was not scheduled or did not end, was evicted, would fit on no node, or there are too
    many.
    """
    complete_pods = pods.drop_nulls(["created_s", "scheduled_s", "ended_s"]).sort("created_s")
    if not 0 < complete_pods.height == pods.height <= MAX_PODS or pods["evicted"].any():
        return None
    durations_s = (complete_pods["ended_s"] - complete_pods["scheduled_s"]).to_numpy()
    queued = QueuedPods(complete_pods["created_s"].to_numpy(), durations_s, complete_pods["gpus"].to_numpy())
    gpus = nodes.filter("ready")["gpus"].cast(pl.Float64).to_list()
    draws = [simulate_queue_waits(queued, gpus, seed=seed, pops_backoff=pops_backoff) for seed in range(N_DRAWS)]
    if not all(np.isfinite(waits).all() for waits in draws):
        return None
    means, waited = (
        [float(waits.mean()) for waits in draws],
        (complete_pods["scheduled_s"] - complete_pods["created_s"]).to_numpy(),
    )
    return QueueComparison(
        n_pods=complete_pods.height,
        mean_s=float(waited.mean()),
        p95_s=float(np.quantile(waited, 0.95)),
        simulated_mean_s=float(np.median(means)),
        simulated_p95_s=float(np.median([np.quantile(waits, 0.95) for waits in draws])),
        draws=(min(means), max(means)),
    )


class _Simulation:
    def __init__(self, pods: QueuedPods, cluster: _Cluster, pops_backoff: bool) -> None:
        self._pods, self._cluster, self._pops_backoff = pods, cluster, pops_backoff
        self._count = itertools.count()
        self._events = [(float(at), _ARRIVAL, next(self._count), pod, -1) for pod, at in enumerate(pods.arrival_s)]
        heapq.heapify(self._events)
        self._waits = np.full(len(pods.arrival_s), np.inf)
        self._attempts = [0] * len(self._waits)
        self._tried_s = [0.0] * len(self._waits)
        self._unschedulable: set[int] = set()
        self._backoff: list[tuple[int, float, int]] = []

    def run(self) -> npt.NDArray[np.float64]:
        while self._events:
            at_s, kind, _, pod, node = heapq.heappop(self._events)
            if kind == _ARRIVAL:
                self._try_pod(pod, at_s)
            elif kind == _END:
                self._cluster.take(node, self._pods.gpus[pod], -1)
                self._wake_all(at_s)
            if self._pops_backoff or kind == _RETRY:
                self._try_backoff(at_s)
        return self._waits

    def _wake_all(self, at_s: float) -> None:
        """Pods that fit nowhere are tried again, each after its backoff."""
        for pod in sorted(self._unschedulable):
            ready_s = max(at_s, self._tried_s[pod] + min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2 ** (self._attempts[pod] - 1)))
            # Those whose backoff is over come first; among equals, the one that was tried longest ago.
            window = math.floor(ready_s) if ready_s > at_s else -1
            heapq.heappush(self._backoff, (window, self._tried_s[pod], pod))
            heapq.heappush(self._events, (ready_s, _RETRY, next(self._count), pod, -1))
        self._unschedulable.clear()

    def _try_backoff(self, at_s: float) -> None:
        while self._backoff and (self._pops_backoff or self._backoff[0][0] <= math.floor(at_s)):
            self._try_pod(heapq.heappop(self._backoff)[2], at_s)

    def _try_pod(self, pod: int, at_s: float) -> None:
        self._attempts[pod] += 1
        self._tried_s[pod] = at_s
        node = self._cluster.find_node(self._pods.gpus[pod])
        if node is None:
            self._unschedulable.add(pod)
            return
        self._cluster.take(node, self._pods.gpus[pod])
        self._waits[pod] = at_s - self._pods.arrival_s[pod]
        heapq.heappush(self._events, (at_s + self._pods.held_s[pod], _END, next(self._count), pod, node))
