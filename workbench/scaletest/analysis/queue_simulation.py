"""Simulated queue of kube-scheduler: how long pods would wait for GPUs if scheduling itself took no time."""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.core.formats import format_seconds
from workbench.scaletest.analysis.gpu_saturation import count_gpus_between

# Defaults of kube-scheduler; its backoff queue is ordered by whole seconds.
MIN_BACKOFF_S, MAX_BACKOFF_S = 1.0, 10.0
_END, _ARRIVAL, _RETRY = 0, 1, 2
N_DRAWS = 20
MAX_PODS = 20_000
N_MOMENTS = 2000
MAX_EXCESS_FRACTION = 0.05


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
        """Process all events in the order of time; returns the wait of each pod in seconds."""
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


@dataclass(frozen=True)
class QueueShares:
    """Queues while pods of each one waited.

    `fair_shares`: By queue: its quota's share of all quotas; equal ones without quotas.
    `unfairness`: Share of the GPUs that was held by other queues than the quotas say: half of the summed distances,
    averaged over that time. 0 is fair; 1 - 1/n means that one of n equal queues had all.
    """

    contended_s: float
    shares: dict[str, float]
    fair_shares: dict[str, float]
    unfairness: float


def measure_queue_shares(
    schedule: pl.DataFrame, pods: pl.DataFrame, end_s: float, quotas: Mapping[str, float] | None = None
) -> QueueShares | None:
    """How do the queues share the GPUs while all of them want more?

    `quotas`: GPUs of each queue; all of the run's queues, or they count as equal.

    `schedule`: `index, queue`. `pods`: `index, gpus, created_s, scheduled_s, ended_s`.

    Returns: None for a run with one queue, or whose queues never waited together.

    The distance of two divisions is the total variation distance. Only GPUs are looked at, and only times in which
    every queue waited: a queue without work is not treated unfairly. Does not show whether a queue waited for its
    quota or for room.
    """
    queues = sorted(schedule["queue"].drop_nulls().unique().to_list())
    if len(queues) < 2:
        return None
    gpu_pods = pods.filter((pl.col("gpus") > 0) & pl.col("created_s").is_not_null())
    gpu_pods = gpu_pods.join(schedule.select("index", "queue"), on="index")
    at = np.linspace(0.0, max(end_s, 1e-3), N_MOMENTS)
    queue_pods = {queue: gpu_pods.filter(pl.col("queue") == queue) for queue in queues}
    waiting = np.array(
        [count_gpus_between(queue_pods[queue], at, "created_s", "scheduled_s", "ended_s") for queue in queues]
    )
    running = np.array(
        [count_gpus_between(queue_pods[queue], at, "scheduled_s", "ended_s", "ended_s") for queue in queues]
    )
    contended = (waiting > 0).all(axis=0) & (running.sum(axis=0) > 0)
    if not contended.any():
        return None
    has_quotas = quotas is not None and set(queues) <= quotas.keys() and sum(quotas[queue] for queue in queues) > 0
    fair = np.array([float(quotas[queue]) if has_quotas and quotas else 1.0 for queue in queues])
    fair /= fair.sum()
    shares = running[:, contended] / running[:, contended].sum(axis=0)
    distances = np.abs(shares - fair[:, None]).sum(axis=0) / 2
    return QueueShares(
        contended_s=float(contended.mean() * at[-1]),
        shares=dict(zip(queues, shares.mean(axis=1).tolist(), strict=True)),
        fair_shares=dict(zip(queues, fair.tolist(), strict=True)),
        unfairness=float(distances.mean()),
    )


@dataclass(frozen=True)
class TraceFidelity:
    """Pods of a replay that ended, beside the trace; null where none did.

    `n_pods`, `n_ended`: Pods of the plan, and those that were seen from their node to their end.
    `excess_s`: Median time that a pod held its GPUs beyond its lifetime, in seconds of the test.
    `trace_gpu_s`, `held_gpu_s`: Of the pods that ended, in seconds of the trace: as planned, and from their
    scheduling to their end.
    """

    speed: float
    n_pods: int
    n_ended: int
    median_run_s: float | None
    excess_s: float | None
    trace_gpu_s: float
    held_gpu_s: float

    @property
    def excess_fraction(self) -> float | None:
        """Time that the control plane adds to a job, as a share of the median lifetime."""
        if self.excess_s is None or not self.median_run_s:
            return None
        return max(0.0, self.excess_s) / self.median_run_s

    @property
    def sentence(self) -> str:
        """Sentence on what the replay kept of the trace."""
        if self.excess_s is None:
            return f"replay of a trace, {self.speed:g} seconds in one: no pod of {self.n_pods:,} ended"
        share_text = (
            f"{100 * self.held_gpu_s / self.trace_gpu_s:.4g} % of the trace's"
            if self.trace_gpu_s
            else "the trace has none"
        )
        return (
            f"replay of a trace, {self.speed:g} seconds in one: {self.n_ended:,} of {self.n_pods:,} pods ended "
            f"and held {self.held_gpu_s:,.0f} GPU-seconds of its time, {share_text}; "
            f"a pod holds its GPUs {1000 * self.excess_s:.3g} ms longer than it runs (median)"
        )

    @property
    def reason(self) -> str:
        """Reason why the replay is not true to its trace: time was compressed too far."""
        share = self.excess_fraction or 0.0
        slower = self.speed * MAX_EXCESS_FRACTION / share if share else self.speed
        return (
            f"time was compressed too far: the control plane adds {100 * share:.2g} % to the median job "
            f"(limit {100 * MAX_EXCESS_FRACTION:g} %); use a speed of at most {slower:.2g}"
        )


def measure_trace_fidelity(schedule: pl.DataFrame, pods: pl.DataFrame, speed: float) -> TraceFidelity:
    """Compare what the pods of a replay held with what the trace says.

    Evicted pods are left out: they end before their time. Does not show whether pods wait as they did in the trace,
    which is what a scheduler is tested for.

    `schedule`: `index, pods, lifetime_s`. `pods`: `index, gpus, scheduled_s, ended_s, evicted`.
    `speed`: Seconds of the trace in one of the test.
    """
    ended = (
        pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("ended_s").is_not_null() & ~pl.col("evicted"))
        .join(schedule.select("index", "lifetime_s"), on="index")
        .drop_nulls("lifetime_s")
        .with_columns(held_s=pl.col("ended_s") - pl.col("scheduled_s"))
    )
    gpus = pl.col("gpus")
    trace_s, held_s = ended.select(
        (gpus * pl.col("lifetime_s")).sum(), (gpus * pl.col("held_s")).sum().alias("held")
    ).row(0)
    excess = ended.select((pl.col("held_s") - pl.col("lifetime_s")).median()).item()
    return TraceFidelity(
        speed=speed,
        n_pods=int(schedule["pods"].sum()),
        n_ended=ended.height,
        median_run_s=schedule.select(pl.col("lifetime_s").median()).item(),
        excess_s=excess,
        trace_gpu_s=speed * trace_s,
        held_gpu_s=speed * held_s,
    )
