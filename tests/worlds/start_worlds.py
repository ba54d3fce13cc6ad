"""Timelines on a real control plane in steps of virtual time: when jobs that are asked for then start.

Workloads come, run and end at drawn times; the real scheduler and Kueue place them, and time stands still until both
are done. What an answer may see is the cluster's API, with the timeline's clock in place of the wall clock.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import NodePool
from workbench.scaletest.local_cluster.kueue_queues import create_local_queues
from workbench.scaletest.observation.component_metrics import PENDING, parse_look
from workbench.scaletest.scenario.manifest_rules import QUEUE_LABEL
from workbench.scaletest.scenario.scheduler_recipes import SchedulerRecipe
from workbench.scaletest.scenario.workload_objects import KWOK_NODE
from workbench.scaletest.start_times.cluster_objects import read_job
from workbench.scaletest.start_times.cluster_state import DEFAULT_SCHEDULER, ClusterState, PodState, WorkloadState
from workbench.scaletest.start_times.cluster_watch import look_at_cluster
from workbench.scaletest.start_times.start_estimate import StartEstimate, StartStudy

HOUR_S = 3600.0
KINDS = ("gpu", "cpu", "pool", "gang", "quota", "mixed")
PRODUCT = "nvidia.com/gpu.product"
RECORD_H, ASKED_H, N_QUESTIONS = 16.0, 6.0, 12
# Others come until the last that was asked for has started.
LONGEST_H = 72.0
# Small, so that hours of it are few steps.
POOLS = (NodePool(nodes=2, gpus=8), NodePool(nodes=1, gpus=8, gpu_model="A100"))
QUOTAS = {"red": 10, "blue": 8}
_GROUP = "kueue.x-k8s.io/pod-group-name"
_LEAST_LOOKS, _LOOK_S = 2, 0.02
# A kube-scheduler that tries a pod again after a second at the latest: beside jobs of hours the ten seconds of the
# default are nothing, beside our steps they would decide the order.
PATIENT = SchedulerRecipe(
    name="patient",
    program="kube-scheduler",
    config={
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": "patient"}],
    },
)
_BACKOFF_S = 1.1
# Kueue answers a change after a moment, and its pods only then reach the scheduler; gangs are tried as wholes.
_SLOW_LOOKS, _SLOW_LOOK_S = 4, 0.06


@dataclass(frozen=True)
class Family:
    """Jobs of one kind: how often they come, what they want, how long they run (a draw in seconds)."""

    name: str
    weight: float
    gpus: int
    pods: int
    cpus: int
    lasts: Callable[[np.random.Generator], float]
    selector: str | None = None
    queue: str | None = None


@dataclass(frozen=True)
class Timeline:
    """What is planted: families, arrivals in an hour, and how many come at once."""

    kind: str
    families: tuple[Family, ...]
    per_h: float
    burst: int


def draw_timeline(seed: int, room_gpus: int) -> Timeline:
    """A timeline whose jobs want a little more than there is."""
    draw = np.random.default_rng([seed, 61])
    kind = KINDS[seed % len(KINDS)]
    hours = draw.uniform(1.0, 3.0, 4)
    shapes: tuple[Callable[[np.random.Generator], float], ...] = (
        lambda one: float(np.exp(one.normal(np.log(hours[0]), 0.8))) * HOUR_S,
        lambda one: float(hours[1] * one.weibull(1.4)) * HOUR_S,
        lambda one: float(one.uniform(0.3, 1.2) * hours[2]) * HOUR_S,
        lambda one: float(hours[3] * (3.0 if one.random() < 0.25 else 0.5) * one.uniform(0.8, 1.2)) * HOUR_S,
    )
    sizes = {"gpu": (1, 1, 2, 1), "cpu": (1, 1, 1, 1), "gang": (1, 4, 2, 6), "mixed": (1, 2, 4, 8)}.get(
        kind, (1, 2, 4, 2)
    )
    gangs = (1, 2, 1, 2) if kind == "gang" else (1, 1, 1, 1)
    cpus = (48, 60, 90, 60) if kind == "cpu" else (4, 8, 8, 16)
    queues = ("red", "red", "blue", "red") if kind == "quota" else (None,) * 4
    selectors = ("NVIDIA-H100-80GB-HBM3",) * 4 if kind == "pool" else (None,) * 4
    names, weights = ("train", "tune", "eval", "batch"), draw.dirichlet((4, 4, 4, 2))
    families = tuple(
        Family(name, float(weight), size, pods, cpu, lasts, selector, queue)
        for name, weight, size, pods, cpu, lasts, selector, queue in zip(
            names, weights, sizes, gangs, cpus, shapes, selectors, queues, strict=True
        )
    )
    probe = np.random.default_rng(seed)
    means_s = [np.mean([family.lasts(probe) for _ in range(500)]) for family in families]
    wanted = [
        family.weight * family.pods * mean_s * (family.cpus / 24 if kind == "cpu" else family.gpus)
        for family, mean_s in zip(families, means_s, strict=True)
    ]
    per_h = draw.uniform(1.0, 1.2) * room_gpus / (sum(wanted) / HOUR_S)
    return Timeline(kind, families, float(per_h), int(draw.integers(1, 4)))


@dataclass
class Booked:
    """A workload of the timeline, by its own clock."""

    name: str
    family: Family
    created_s: float
    lasts_s: float
    pods: list[str]
    placed_s: dict[str, float] = field(default_factory=dict)
    ended_s: float | None = None

    @property
    def started_s(self) -> float | None:
        """When its last pod had a node."""
        return max(self.placed_s.values()) if len(self.placed_s) == len(self.pods) else None


@dataclass
class Question:
    """A job that was asked for before it came, the answer, and what held it up in truth, in seconds by reason."""

    name: str
    asked_s: float
    estimate: StartEstimate
    waits: dict[str, float] = field(default_factory=dict)


class SteppedCluster:
    """A local cluster whose time is ours."""

    def __init__(self, cluster: LocalCluster, api: Connection, namespace: str, kind: str) -> None:
        self.cluster, self.api, self.namespace = cluster, api, namespace
        self._has_kueue, self._has_gangs = kind == "quota", kind == "gang"
        self.now_s, self._settled_at_s = 0.0, 0.0
        self.booked: dict[str, Booked] = {}
        self.pods: list[dict[str, Any]] = []
        self._of_pod: dict[str, Booked] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._count = itertools.count()

    async def submit(self, family: Family, name: str, lasts_s: float) -> None:
        """A workload comes now."""
        names = [name] if family.pods == 1 else [f"{name}-w{number}" for number in range(family.pods)]
        booked = Booked(name, family, self.now_s, lasts_s, names)
        self.booked[name] = booked
        is_native = family.pods > 1 and family.queue is None
        if is_native:
            group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}}
            group["spec"] = {"schedulingPolicy": {"gang": {"minCount": family.pods}}}
            await self.api.json(
                "POST", f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{self.namespace}/podgroups", group
            )
        for pod in names:
            self._of_pod[pod] = booked
            body = build_pod(family, pod)
            if is_native:
                body["spec"]["schedulingGroup"] = {"podGroupName": name}
            if family.pods > 1 and family.queue is not None:
                body["metadata"]["labels"][_GROUP] = name
                body["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(family.pods)}
            await self.api.json("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)

    async def settle(self) -> None:
        """Wait until the schedulers are done, and book what they placed."""
        # Of pods that have ended, or came, the schedulers learn a moment later.
        is_quick = not self._has_kueue and not self._has_gangs
        looks, pause_s = (_LEAST_LOOKS, _LOOK_S) if is_quick else (_SLOW_LOOKS, _SLOW_LOOK_S)
        same, before = 0, ""
        while same < looks:
            await asyncio.sleep(pause_s)
            is_idle = await self._is_scheduler_idle()
            query = {"fieldSelector": "status.phase!=Succeeded"}
            path = f"/api/v1/namespaces/{self.namespace}/pods"
            self.pods = [pod async for pod in iterate_items(self.api, path, **query)]
            seen = json.dumps([(pod["metadata"]["name"], _read_state(pod)) for pod in self.pods])
            is_done = is_idle and seen == before and (not self._has_kueue or await self._has_kueue_seen())
            same = same + 1 if is_done else 0
            before = seen
        self._settled_at_s = time.monotonic()
        for pod in self.pods:
            name = pod["metadata"]["name"]
            booked = self._of_pod[name]
            if "nodeName" in pod["spec"] and name not in booked.placed_s:
                booked.placed_s[name] = self.now_s
                heapq.heappush(self._ends, (self.now_s + booked.lasts_s, next(self._count), name))

    async def _is_scheduler_idle(self) -> bool:
        url = self.cluster.metrics[PATIENT.name]
        async with self.api.session.get(url, ssl=False, headers=self.api.target.headers()) as answer:
            look = parse_look((await answer.read()).decode())
        n_active, n_backing_off = (
            look[PENDING, queue].value if (PENDING, queue) in look else 0 for queue in ("active", "backoff")
        )
        # A gang that does not fit never leaves the back-off queue: it is tried again thousands of times a second.
        is_tried = self._has_gangs and all(_read_state(pod)[2] for pod in self.pods)
        return not n_active and (not n_backing_off or is_tried)

    async def _has_kueue_seen(self) -> bool:
        """Does Kueue know each pod that waits? One that is like another without quota gets no condition of its own."""
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{self.namespace}/workloads"
        n_waiting = 0
        async for workload in iterate_items(self.api, path):
            conditions = {one["type"]: one["status"] for one in workload.get("status", {}).get("conditions") or []}
            n_waiting += bool(conditions) and conditions.get("QuotaReserved") != "True"
        return n_waiting >= sum(bool(pod["spec"].get("schedulingGates")) for pod in self.pods)

    def next_end_s(self) -> float:
        """When the next pod ends; infinite where none runs."""
        return self._ends[0][0] if self._ends else np.inf

    async def end_pods(self) -> None:
        """Pods whose time is over end, once what waits may be tried again."""
        if any("nodeName" not in pod["spec"] for pod in self.pods):
            await asyncio.sleep(max(0.0, self._settled_at_s + _BACKOFF_S - time.monotonic()))
        while self._ends and self._ends[0][0] <= self.now_s:
            _, _, name = heapq.heappop(self._ends)
            path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
            done = {"status": {"phase": "Succeeded"}}
            answer = await self.api.request(
                "PATCH", path, body=json.dumps(done).encode(), content_type="application/merge-patch+json"
            )
            assert answer.status == 200, answer.refusal
            booked = self._of_pod[name]
            if (
                booked.placed_s.keys() == set(booked.pods)
                and self.now_s >= max(booked.placed_s.values()) + booked.lasts_s
            ):
                booked.ended_s = self.now_s

    async def read_state(self) -> ClusterState:
        """The cluster as its API shows it, with the timeline's times."""
        seen = await look_at_cluster(self.api.target)
        workloads = [self._set_times(one) for one in seen.workloads if one.name.startswith(f"{self.namespace}/")]
        return seen.model_copy(update={"span_s": self.now_s, "workloads": tuple(workloads)})

    def _set_times(self, workload: WorkloadState) -> WorkloadState:
        booked = self.booked[workload.name.partition("/")[2]]
        placed = [booked.placed_s.get(name) for name in booked.pods]
        pods = [
            _set_pod_times(pod, start_s, booked.lasts_s, self.now_s)
            for pod, start_s in zip(workload.pods, placed, strict=True)
        ]
        # It is the default scheduler's program.
        known = {"scheduler": DEFAULT_SCHEDULER, "pods": tuple(pods)}
        return workload.model_copy(update=known | {"created_s": booked.created_s - self.now_s})


def _set_pod_times(pod: PodState, start_s: float | None, lasts_s: float, now_s: float) -> PodState:
    ended_s = None if pod.ended_s is None or start_s is None else start_s + lasts_s - now_s
    return pod.model_copy(update={"scheduled_s": None if start_s is None else start_s - now_s, "ended_s": ended_s})


def _read_state(pod: dict[str, Any]) -> tuple[object, ...]:
    """What may still change before time goes on."""
    gated = bool(pod["spec"].get("schedulingGates"))
    is_tried = any(one.get("type") == "PodScheduled" for one in pod["status"].get("conditions") or [])
    return pod["spec"].get("nodeName"), gated, is_tried, pod["status"].get("phase")


def build_pod(family: Family, name: str) -> dict[str, Any]:
    """A pod of a family."""
    requests = {"cpu": str(family.cpus), "memory": f"{4 * family.cpus}Gi", "nvidia.com/gpu": str(family.gpus)}
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": str(family.gpus)}}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "schedulerName": PATIENT.name,
        "containers": [{"name": "main", "image": "simulated.invalid/nothing:none", "resources": resources}],
        "tolerations": [{"key": KWOK_NODE, "operator": "Exists"}],
    }
    if family.selector:
        spec["nodeSelector"] = {PRODUCT: family.selector}
    labels = {QUEUE_LABEL: family.queue} if family.queue else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def build_job(family: Family, name: str, namespace: str) -> dict[str, Any]:
    """The manifest that a user would ask for."""
    pod = build_pod(family, name)
    if family.pods > 1 and family.queue is None:
        pod["spec"]["schedulingGroup"] = {"podGroupName": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": pod["metadata"]["labels"]},
        "spec": {
            "parallelism": family.pods,
            "completions": family.pods,
            "template": {"metadata": {}, "spec": pod["spec"]},
        },
    }


def list_arrivals(
    timeline: Timeline, draw: np.random.Generator, until_s: float
) -> Iterator[tuple[float, Family, float]]:
    """Time, family and run time of all that comes."""
    at_s, pause_s = 0.0, 2.0 * timeline.burst
    shares = np.array([family.weight for family in timeline.families])
    while True:
        at_s += pause_s + float(draw.exponential(HOUR_S * timeline.burst / timeline.per_h))
        if at_s > until_s:
            return
        for number in range(timeline.burst):
            family = timeline.families[int(draw.choice(len(shares), p=shares / shares.sum()))]
            # The API's times are whole seconds: of one second nobody could tell the order.
            yield at_s + 2 * number, family, max(30.0, family.lasts(draw))


async def play_timeline(
    cluster: LocalCluster, namespace: str, seed: int
) -> tuple[list[dict[str, Any]], SteppedCluster]:
    """Play a timeline; a row for each question, with the start that came true."""
    timeline = draw_timeline(seed, _count_room(cluster, seed))
    draw = np.random.default_rng([seed, 62])
    arrivals = list(list_arrivals(timeline, draw, LONGEST_H * HOUR_S))
    late = [number for number, (at_s, _, _) in enumerate(arrivals) if RECORD_H < at_s / HOUR_S < RECORD_H + ASKED_H]
    asked = set(draw.choice(late, min(N_QUESTIONS, len(late)), replace=False).tolist())
    questions: list[Question] = []
    async with Connection(load_target(cluster.kubeconfig, cluster.context), max_connections=8) as api:
        if timeline.kind == "quota":
            await create_local_queues(api, namespace, {"red", "blue"})
            await wait_for_queues(api, namespace)
        stepped = SteppedCluster(cluster, api, namespace, timeline.kind)
        position = 0
        while position < len(arrivals):
            if len(questions) == len(asked) and all(
                stepped.booked[one.name].started_s is not None for one in questions
            ):
                break
            coming_s = arrivals[position][0]
            _book_waits(stepped, questions, min(coming_s, stepped.next_end_s()))
            stepped.now_s = min(coming_s, stepped.next_end_s())
            await stepped.end_pods()
            if coming_s == stepped.now_s:
                _, family, lasts_s = arrivals[position]
                name = f"{family.name}-{position:04d}"
                if position in asked:
                    await stepped.settle()
                    questions.append(await ask(stepped, family, name))
                await stepped.submit(family, name, lasts_s)
                position += 1
            await stepped.settle()
    rows = [_build_row(seed, timeline.kind, one, stepped.booked[one.name]) for one in questions]
    return rows, stepped


async def wait_for_queues(api: Connection, namespace: str) -> None:
    """Wait until Kueue takes workloads for the queues of a namespace."""
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues"
    while True:
        active = [
            any(
                one["type"] == "Active" and one["status"] == "True"
                for one in queue.get("status", {}).get("conditions", [])
            )
            async for queue in iterate_items(api, path)
        ]
        if len(active) == len(QUOTAS) and all(active):
            return
        await asyncio.sleep(0.1)


def _count_room(cluster: LocalCluster, seed: int) -> int:
    kind = KINDS[seed % len(KINDS)]
    if kind == "quota":
        return sum(cluster.queue_quotas.values())
    pools = [pool for pool in cluster.pools if kind != "pool" or pool.gpu_model == "H100"]
    return sum(pool.nodes * pool.gpus for pool in pools)


async def ask(stepped: SteppedCluster, family: Family, name: str) -> Question:
    """Ask when a job would start that comes now."""
    state = await stepped.read_state()
    job = read_job(build_job(family, name, stepped.namespace), state, where="job.yaml")
    job = job.model_copy(update={"scheduler": DEFAULT_SCHEDULER})
    estimate = StartStudy(state, job, run_times={}).estimate()
    return Question(name, stepped.now_s, estimate)


def _book_waits(stepped: SteppedCluster, questions: list[Question], until_s: float) -> None:
    """What holds up the questions' jobs until the next step, by the real scheduler's own words."""
    conditions = {pod["metadata"]["name"]: pod["status"].get("conditions") or [] for pod in stepped.pods}
    for question in questions:
        booked = stepped.booked[question.name]
        if booked.started_s is None:
            pod = next(name for name in booked.pods if name not in booked.placed_s)
            reason = _find_true_reason(stepped, booked, conditions.get(pod, []))
            question.waits[reason] = question.waits.get(reason, 0.0) + until_s - stepped.now_s


def _find_true_reason(stepped: SteppedCluster, booked: Booked, conditions: list[dict[str, Any]]) -> str:
    family = booked.family
    if family.queue is not None:
        return "quota"
    if family.selector is not None:
        return "node rules"
    message = next((str(one.get("message")) for one in conditions if one.get("type") == "PodScheduled"), "")
    if "Insufficient cpu" in message:
        return "cpu"
    return "nvidia.com/gpu" if "Insufficient nvidia.com/gpu" in message or family.pods > 1 else message


def _build_row(seed: int, kind: str, question: Question, booked: Booked) -> dict[str, Any]:
    estimate, waits = question.estimate, question.waits
    return {
        "seed": seed,
        "kind": kind,
        "family": booked.family.name,
        "gpus": booked.family.gpus,
        "pods": booked.family.pods,
        "true_s": None if booked.started_s is None else booked.started_s - question.asked_s,
        "p10_s": estimate.p10_s,
        "p50_s": estimate.p50_s,
        "p90_s": estimate.p90_s,
        "reason": estimate.reason,
        "true_reason": max(waits, key=lambda name: waits[name]) if waits else None,
        "doubts": list(estimate.doubts),
        "replayed": None if estimate.replay is None else estimate.replay.log_error,
        "n_replayed": None if estimate.replay is None else estimate.replay.n_compared,
    }
