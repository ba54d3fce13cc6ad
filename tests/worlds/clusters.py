"""Drawn clusters whose limit is known, and the watch streams that a sampler would get of them (SIMULATED).

A world is a scenario, nodes, what other people hold, a quota, a scheduler and its troubles. It is played in steps of
50 ms, in the order of Kubernetes' own filters; what binds is found by asking at each step which single constraint, if
it were away, would let the waiting pod in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson

from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan

RUN, OTHER_RUN = "st-0123abcd", "st-0ther0ne"
SPACE, STRANGE_SPACE = "workbench-scaletest", "team-a"
START = datetime(2026, 11, 1, 10, tzinfo=UTC)
TICK_S = 0.05
MAKE_S = 0.02
GPU, MIG, FPGA = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "example.com/fpga"
AFFINITY, OTHERS, QUOTA, SCHEDULER = "anti-affinity", "others", "quota", "scheduler"
# Devices by claims: neither a pod's requests nor a node's offers show them.
CLAIMS = "claims"
# Told only of objects of others: no sentence about this run may hold it.
STRANGE = "example.com/stranger"
BOUNDS = (None, GPU, "cpu", "memory", "pods", MIG, FPGA, AFFINITY, OTHERS, QUOTA, SCHEDULER, CLAIMS)
TRAITS = (
    "others_elsewhere",
    "others_come",
    "other_run",
    "leftovers",
    "old_events",
    "late_node",
    "node_leaves",
    "allocatable",
    "gap",
    "server_away",
    "never_fit",
    "stood_still",
    "two_sizes",
    "cordoned",
    "asks_nothing",
)


@dataclass
class Node:
    """A node: what it offers from which time on, and when it is there."""

    name: str
    offers: list[tuple[float, dict[str, float]]]
    from_s: float = -1.0
    until_s: float = np.inf
    cordoned: bool = False

    def offered(self, at_s: float) -> dict[str, float]:
        return [offers for since_s, offers in self.offers if since_s <= at_s][-1]

    def is_there(self, at_s: float) -> bool:
        return self.from_s <= at_s < self.until_s


@dataclass
class Pod:
    """A pod of the run, or of others (`run` is then theirs or null)."""

    uid: str
    name: str
    space: str
    asks: dict[str, float]
    created_s: float
    run: str | None = None
    workload: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    lifetime_s: float = np.inf
    is_spread: bool = False
    node: str | None = None
    bound_s: float = np.inf
    ended_s: float = np.inf
    message: str | None = None

    def holds(self, at_s: float) -> bool:
        return self.bound_s <= at_s < self.ended_s


@dataclass
class World:
    """A drawn cluster, and what it knows of itself."""

    seed: int
    planted: str | None
    traits: tuple[str, ...]
    scenario: Scenario
    plan: Plan
    nodes: list[Node]
    others: list[Pod] = field(default_factory=list)
    quota: int | None = None
    per_s: float = np.inf
    still_s: tuple[float, float] | None = None
    gap_s: tuple[float, float] | None = None
    gap_of: tuple[str, ...] = ()
    is_beside: bool = False


@dataclass
class Played:
    """What became of a world: its pods, its watch lines by time, and which constraint kept pods waiting how long."""

    own: list[Pod]
    lines: list[tuple[float, str, str, dict[str, Any]]]
    accepted_s: dict[int, float]
    blocked_s: Counter[str]
    waited_s: float
    end_s: float


def draw_world(seed: int) -> World:
    """Draw what binds, up to three traits, and a cluster of which it is true."""
    rng = np.random.default_rng([seed, 55])
    planted = BOUNDS[int(rng.integers(len(BOUNDS)))]
    n_traits = int(rng.choice([0, 1, 2, 3], p=[0.35, 0.35, 0.2, 0.1]))
    traits = tuple(str(trait) for trait in rng.choice(TRAITS, n_traits, replace=False))
    n_nodes = int(rng.integers(2, 7))
    gpus, cpus, memory, slots = int(rng.choice([2, 4, 8])), 192.0, float(2 << 40), 250.0
    lifetime = float(rng.integers(4, 11))
    offers = {"cpu": cpus, "memory": memory, "pods": slots, GPU: float(gpus)}
    entry: dict[str, Any] = {"name": "plain", "kind": "Job", "gpus": 1, "lifetime": lifetime}
    per_node = float(gpus)
    if planted in (MIG, FPGA):
        per_node = float(rng.integers(1, 4))
        offers[planted] = per_node
        entry |= {"kind": "Template", "gpus": 0, "pods": 1, "template": build_template({planted: "1"})}
    elif planted == "cpu":
        per_node = float(rng.integers(1, max(2, gpus // 2 + 1)))
        entry["cpus"] = float(int(cpus / per_node) - 1)
    elif planted == "memory":
        per_node = float(rng.integers(1, max(2, gpus // 2 + 1)))
        entry["memory"] = int(memory / per_node) - (1 << 30)
    elif planted == "pods":
        per_node = float(rng.integers(1, max(2, gpus // 2 + 1)))
        offers["pods"] = per_node
    elif planted == AFFINITY:
        per_node = 1.0
        offers[GPU] = float(max(gpus, 4))
        entry |= {"kind": "Template", "gpus": 1, "pods": 1, "template": build_template({GPU: "1"}, is_spread=True)}
    elif planted == CLAIMS:
        per_node = offers[CLAIMS] = float(rng.integers(1, 4))
        entry |= {"kind": "Template", "gpus": 0, "pods": 1, "template": build_template({}, n_claims=1)}
    elif planted == GPU and gpus > 2 and rng.random() < 0.3:
        entry["gpus"] = 2
        per_node = gpus / 2
    if "asks_nothing" in traits and planted in (None, "pods", QUOTA, AFFINITY, SCHEDULER):
        template = build_template({}, is_spread=planted == AFFINITY)
        entry |= {"kind": "Template", "gpus": 0, "pods": 1, "template": template}
    held = int(np.ceil(gpus * rng.uniform(0.5, 0.9))) if planted == OTHERS else 0
    room = n_nodes * (per_node - min(held, gpus - 1))
    most_per_s = room / (lifetime + 0.1)
    is_bound = planted not in (None, QUOTA, SCHEDULER)
    rate = float(np.clip(most_per_s * (rng.uniform(1.6, 3.0) if is_bound else rng.uniform(0.3, 0.55)), 0.5, 20.0))
    if is_bound and rate < 1.4 * most_per_s:
        rate = 1.4 * most_per_s
    n = int(np.clip(rate * rng.uniform(25, 45), 30, 400))
    world_quota = None
    if planted == QUOTA:
        world_quota = max(1, int(rate * lifetime * 0.5))
    entries = [entry]
    if "two_sizes" in traits and planted in (None, GPU, OTHERS) and gpus >= 4 and entry["kind"] == "Job":
        entries.append(entry | {"name": "large", "gpus": 2, "weight": 0.3})
    if "never_fit" in traits and planted not in (MIG, FPGA, AFFINITY) and entry["kind"] == "Job":
        entries.append({**entry, "name": "huge", "gpus": gpus + 1, "weight": 0.15})
    scenario = Scenario.model_validate(
        {
            "name": f"world-{seed}",
            "seed": seed % 1000,
            "arrival": {"process": str(rng.choice(["constant", "poisson"])), "rate_per_s": rate, "n": n},
            "workloads": entries,
            "namespace": SPACE,
        }
    )
    nodes = [Node(f"sim-{number:05d}", [(-1.0, dict(offers))]) for number in range(n_nodes)]
    world = World(seed, planted, traits, scenario, draw_plan(scenario, RUN), nodes, quota=world_quota)
    if planted == SCHEDULER:
        world.per_s = rate / float(rng.uniform(1.5, 3.0))
    length_s = n / rate
    _apply_traits(world, rng, gpus, held, length_s)
    return world


def build_template(limits: dict[str, str], *, is_spread: bool = False, n_claims: int = 0) -> dict[str, Any]:
    """A Job whose pods ask for these devices, or claim some; spread over the nodes, one on each, if that is wanted."""
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
    }
    template: dict[str, Any] = {"spec": spec}
    if n_claims:
        spec["resourceClaims"] = [
            {"name": f"claim-{number}", "resourceClaimName": f"${{name}}-{number}"} for number in range(n_claims)
        ]
    if is_spread:
        term = {"labelSelector": {"matchLabels": {"app": "spread"}}, "topologyKey": "kubernetes.io/hostname"}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        template["metadata"] = {"labels": {"app": "spread"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "${name}"}, "spec": {"template": template}}


def _apply_traits(world: World, rng: np.random.Generator, gpus: int, held: int, length_s: float) -> None:
    """Other people's pods, changes of nodes, lost watches and a scheduler that stands still."""
    nodes, traits = world.nodes, set(world.traits)
    serial = iter(range(10_000))

    def hold(node: Node, asks: dict[str, float], begin_s: float, end_s: float, **more: Any) -> None:
        number = next(serial)
        pod = Pod(f"other-{number}", f"stranger-{number}", STRANGE_SPACE, asks, begin_s - 1.0, **more)
        pod.node, pod.bound_s, pod.ended_s = node.name, begin_s, end_s
        world.others.append(pod)

    for node in nodes:
        for _ in range(min(held, gpus - 1)):
            hold(node, {GPU: 1.0, "cpu": 1.0}, -30.0, np.inf)
    if "others_elsewhere" in traits:
        # What every cluster has: daemons that ask little, on each node.
        for node in nodes:
            hold(node, {"cpu": 0.2, "memory": float(64 << 20)}, -600.0, np.inf)
    if "others_come" in traits:
        for node in nodes:
            hold(node, {GPU: float(max(1, gpus // 4))}, length_s * 0.4, length_s * 0.8)
    if traits & {"other_run", "leftovers"}:
        world.others += _draw_other_run(nodes, begun_s=-60.0 if "leftovers" in traits else 1.0)
    _change_nodes(world, rng, traits, length_s)
    if "stood_still" in traits:
        begin_s = length_s * float(rng.uniform(0.3, 0.5))
        world.still_s = (begin_s, begin_s + float(rng.uniform(10, 14)))
    if traits & {"gap", "server_away"}:
        begin_s = length_s * float(rng.uniform(0.2, 0.6))
        world.gap_s = (begin_s, begin_s + float(rng.uniform(2, 5)))
        world.gap_of = ("pod", "job", "event", "node", "foreign") if "server_away" in traits else ("pod",)
    world.is_beside = bool(rng.random() < 0.7)


def _draw_other_run(nodes: list[Node], *, begun_s: float) -> list[Pod]:
    """Two pods of another test in the same namespace: one holds a GPU, one waits, and the cluster says so."""
    pods = []
    for number in range(2):
        pod = Pod(f"run-{number}", f"{OTHER_RUN}-{number}", SPACE, {GPU: 1.0}, begun_s, OTHER_RUN)
        pod.workload, pod.labels = f"{OTHER_RUN}-{number}", {"workbench.local/run-id": OTHER_RUN}
        pods.append(pod)
    pods[0].node, pods[0].bound_s = nodes[0].name, begun_s + 1.0
    pods[1].message = f"0/{len(nodes)} nodes are available: {len(nodes)} Insufficient {STRANGE}."
    return pods


def _change_nodes(world: World, rng: np.random.Generator, traits: set[str], length_s: float) -> None:
    """Nodes that join, leave, are cordoned, or offer no GPUs for a time."""
    nodes = world.nodes
    if "late_node" in traits:
        nodes.append(Node("sim-late", list(nodes[0].offers), from_s=length_s * float(rng.uniform(0.3, 0.6))))
    if "node_leaves" in traits and len(nodes) > 2:
        nodes[-1].until_s = length_s * float(rng.uniform(0.4, 0.7)) if nodes[-1].from_s < 0 else np.inf
    if "allocatable" in traits:
        back_s = length_s * float(rng.uniform(0.4, 0.8))
        for node in nodes[1 : 1 + max(1, len(nodes) // 2)]:
            if node.from_s < 0:
                whole = node.offers[0][1]
                node.offers = [(-1.0, whole | {GPU: 0.0}), (back_s, whole)]
    if "cordoned" in traits and len(nodes) > 2:
        nodes[0].cordoned = True


_WORDS = {"pods": "Too many pods", CLAIMS: "cannot allocate all claims"}


class _Cluster:
    """The state while a world is played."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.free: dict[str, dict[str, float]] = {}
        self.spread: set[str] = set()
        self.at_s = 0.0
        self.own: list[Pod] = []

    def look(self, at_s: float, *, without: Pod | None = None) -> None:
        """Work out what is free on each node, and which nodes hold a spread pod."""
        self.at_s = at_s
        self.free = {
            node.name: dict(node.offered(at_s))
            for node in self.world.nodes
            if node.is_there(at_s) and not node.cordoned
        }
        self.spread = set()
        for pod in (*self.own, *self.world.others):
            if pod.node in self.free and pod.holds(at_s):
                self.take(pod)

    def take(self, pod: Pod) -> None:
        room = self.free[str(pod.node)]
        for resource, amount in {"pods": 1.0, **pod.asks}.items():
            room[resource] = room.get(resource, 0.0) - amount
        if pod.is_spread:
            self.spread.add(str(pod.node))

    def find_node(self, pod: Pod, *, without: str | None = None) -> str | None:
        """The first node that takes the pod; `without`: a constraint that is not looked at."""
        for name, room in self.free.items():
            offered = next(node for node in self.world.nodes if node.name == name).offered(self.at_s)
            free = room
            if without == OTHERS:
                free = dict(room)
                for other in self.world.others:
                    if other.node == name and other.holds(self.at_s):
                        for resource, amount in {"pods": 1.0, **other.asks}.items():
                            free[resource] = free.get(resource, 0.0) + amount
            lacks = [
                resource
                for resource, amount in {"pods": 1.0, **pod.asks}.items()
                if resource != without and free.get(resource, 0.0) < amount - 1e-9
            ]
            if without in offered or without not in (None, OTHERS, AFFINITY):
                lacks = [resource for resource in lacks if resource != without]
            if not lacks and (without == AFFINITY or not (pod.is_spread and name in self.spread)):
                return name
        return None

    def explain(self, pod: Pod) -> str:
        """The scheduler's own words, in the order of its filters."""
        reasons: Counter[str] = Counter()
        total = 0
        for node in self.world.nodes:
            if not node.is_there(self.at_s):
                continue
            total += 1
            if node.cordoned:
                reasons["node(s) were unschedulable"] += 1
                continue
            room = self.free[node.name]
            lacks = [
                resource
                for resource, amount in {"pods": 1.0, **pod.asks}.items()
                if room.get(resource, 0.0) < amount - 1e-9
            ]
            for resource in lacks:
                reasons[_WORDS.get(resource, f"Insufficient {resource}")] += 1
            if not lacks and pod.is_spread and node.name in self.spread:
                reasons["node(s) didn't match pod anti-affinity rules"] += 1
        text = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        return (
            f"0/{total} nodes are available: {text}. no new claims to deallocate, preemption: 0/{total} nodes are "
            f"available: {total} No preemption victims found for incoming pod."
        )


class _Play:
    """One play of a world, tick by tick."""

    def __init__(self, world: World) -> None:
        self.world, self.cluster = world, _Cluster(world)
        self.lines = _list_start(world)
        self.blocked: Counter[str] = Counter()
        self.waited_s = self.budget = self.last_change_s = 0.0
        self.arriving = [(row["due_s"] + 0.004, row) for row in world.plan.schedule.to_dicts()]
        self.accepted_s: dict[int, float] = {}
        self.unmade: list[tuple[float, Pod, str]] = []
        self.refused: set[str] = set()
        self.pending: list[Pod] = []
        self.hopeless: set[str] = set()

    def accept(self, at_s: float) -> None:
        """Take the workloads that are due, and write their Jobs."""
        while self.arriving and self.arriving[0][0] <= at_s:
            due_s, row = self.arriving.pop(0)
            self.accepted_s[row["index"]] = self.last_change_s = due_s
            job_uid = f"job-{row['index']}"
            pod, job = _build_own(self.world, row, due_s, job_uid)
            self.lines.append((due_s + 0.001, "job", "ADDED", job))
            self.unmade.append((due_s + MAKE_S, pod, job_uid))

    def make_pods(self, at_s: float) -> None:
        """Make the pods of the Jobs, as far as the quota lets them."""
        active = sum(pod.ended_s > at_s and pod.created_s <= at_s for pod in self.cluster.own)
        for item in [item for item in self.unmade if item[0] <= at_s]:
            ready_s, pod, job_uid = item
            if self.world.quota is not None and active >= self.world.quota:
                if job_uid not in self.refused:
                    self.refused.add(job_uid)
                    self.lines.append((at_s, "event", "ADDED", _build_refusal(self.world, pod, job_uid, at_s, active)))
                continue
            self.unmade.remove(item)
            pod.created_s = max(ready_s, at_s)
            self.cluster.own.append(pod)
            pod.uid = f"pod-{len(self.cluster.own)}"
            self.pending.append(pod)
            self.lines.append((pod.created_s, "pod", "ADDED", build_pod(pod, at_s)))
            active += 1

    def is_still(self, at_s: float) -> bool:
        """Whether the scheduler stands still."""
        return self.world.still_s is not None and self.world.still_s[0] <= at_s < self.world.still_s[1]

    def schedule(self, at_s: float) -> None:
        """Bind what fits, in turn and no faster than the scheduler can; say why the others do not fit."""
        per_tick = self.world.per_s * TICK_S
        self.budget = min(self.budget + per_tick, max(1.0, per_tick))
        self.cluster.look(at_s)
        for pod in list(self.pending):
            if self.is_still(at_s) or self.budget < 1.0:
                break
            node = self.cluster.find_node(pod)
            if node is not None:
                self.budget -= 1.0
                self.bind(pod, node, at_s)
                continue
            message = self.cluster.explain(pod)
            if message != pod.message:
                pod.message = message
                self.lines.append((at_s, "pod", "MODIFIED", build_pod(pod, at_s)))
                self.lines.append((at_s, "event", "ADDED", build_event(pod, "FailedScheduling", message, at_s)))

    def bind(self, pod: Pod, node: str, at_s: float) -> None:
        """Bind a pod, and write all that follows of it."""
        self.pending.remove(pod)
        pod.node, pod.bound_s = node, at_s + 0.003
        pod.ended_s = self.last_change_s = pod.bound_s + 0.1 + pod.lifetime_s
        self.cluster.take(pod)
        for moment_s in (pod.bound_s, pod.bound_s + 0.1, pod.ended_s):
            self.lines.append((moment_s, "pod", "MODIFIED", build_pod(pod, moment_s)))
        self.lines.append((pod.ended_s + 0.01, "job", "MODIFIED", _build_job(pod, ended=True)))

    def lose_nodes(self, at_s: float) -> None:
        """Delete the pods of nodes that went."""
        there = {node.name for node in self.world.nodes if node.is_there(at_s)}
        for pod in self.cluster.own:
            if pod.node is not None and pod.holds(at_s) and pod.node not in there and pod.bound_s < at_s - 0.2:
                pod.ended_s = at_s
                self.lines = [
                    line
                    for line in self.lines
                    if line[1] != "pod" or line[3]["metadata"]["uid"] != pod.uid or line[0] <= at_s
                ]
                self.lines.append((at_s, "pod", "DELETED", build_pod(pod, at_s)))

    def count_blocked(self, at_s: float) -> bool:
        """Ask which single constraint keeps the first pod out that could ever fit; whether anything waits."""
        waiting = [pod for pod in self.pending if pod.uid not in self.hopeless and pod.created_s < at_s - 0.1]
        self.hopeless |= {pod.uid for pod in waiting if not any(_could_fit(pod, node) for node in self.world.nodes)}
        fits = [pod for pod in waiting if pod.uid not in self.hopeless]
        if not fits and not any(ready_s < at_s - 0.2 for ready_s, _, _ in self.unmade):
            return False
        self.waited_s += TICK_S
        if not fits:
            self.blocked[QUOTA] += 1
        elif self.is_still(at_s):
            self.blocked["still"] += 1
        elif self.cluster.find_node(fits[0]) is not None:
            self.blocked[SCHEDULER] += 1
        else:
            for factor in (*sorted({"pods", *fits[0].asks}), AFFINITY, OTHERS):
                if self.cluster.find_node(fits[0], without=factor) is not None:
                    self.blocked[factor] += 1
        return True


def play(world: World) -> Played:
    """Play a world until 8 s after the last change, or 90 s after the last arrival."""
    played, last_due_s = _Play(world), float(world.plan.schedule["due_s"].max() or 0.0)  # type: ignore[arg-type]
    at_s = 0.0
    for tick in range(int((last_due_s + 90) / TICK_S)):
        at_s = tick * TICK_S
        played.accept(at_s)
        played.make_pods(at_s)
        played.schedule(at_s)
        played.lose_nodes(at_s)
        is_waiting = played.count_blocked(at_s)
        idle = not (is_waiting or played.arriving or played.pending or played.unmade)
        if idle and at_s > played.last_change_s + 8:
            break
    lines = [*(line for line in played.lines if line[0] <= at_s), *_list_changes(world, at_s)]
    lines.sort(key=lambda line: line[0])
    return Played(played.cluster.own, lines, played.accepted_s, played.blocked, played.waited_s, at_s)


def _could_fit(pod: Pod, node: Node) -> bool:
    """Whether the node, empty, would ever take the pod."""
    return any(
        all(offers.get(resource, 0.0) >= amount for resource, amount in {"pods": 1.0, **pod.asks}.items())
        for _, offers in node.offers
    )


def _build_own(world: World, row: dict[str, Any], at_s: float, job_uid: str) -> tuple[Pod, dict[str, Any]]:
    """The pod of a planned workload as its own manifest asks for it, and its Job."""
    from workbench.scaletest.scenario.workload_entries import parse_quantity

    body = orjson.loads(world.plan.workload_at(row["index"]).requests()[0].body)
    template = body["spec"]["template"]
    asks: dict[str, float] = {}
    for container in template["spec"]["containers"]:
        resources = container.get("resources") or {}
        for resource, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            asks[resource] = asks.get(resource, 0.0) + float(parse_quantity(amount))
    if claims := template["spec"].get("resourceClaims"):
        asks[CLAIMS] = float(len(claims))
    labels = {**(template.get("metadata", {}).get("labels") or {}), "job": job_uid}
    pod = Pod("", f"{row['name']}-x", SPACE, asks, at_s, RUN, row["name"], labels, float(row["lifetime_s"]))
    pod.is_spread = "affinity" in template["spec"]
    return pod, _build_job(pod, ended=False)


def _stamp(at_s: float, *, micro: bool = False) -> str:
    moment = START + timedelta(seconds=at_s)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _build_job(pod: Pod, *, ended: bool) -> dict[str, Any]:
    labels = {name: value for name, value in pod.labels.items() if name != "job"}
    meta = {"name": pod.workload, "namespace": SPACE, "uid": pod.labels["job"], "labels": labels}
    status = {"conditions": [{"type": "Complete", "status": "True"}]} if ended else {}
    return {"kind": "Job", "metadata": meta | {"creationTimestamp": _stamp(pod.created_s)}, "status": status}


def build_pod(pod: Pod, at_s: float) -> dict[str, Any]:
    """The pod's object as it is at a time."""
    labels = {name: value for name, value in pod.labels.items() if name != "job"}
    meta: dict[str, Any] = {
        "name": pod.name,
        "namespace": pod.space,
        "uid": pod.uid,
        "labels": labels,
        "creationTimestamp": _stamp(pod.created_s),
    }
    if pod.labels.get("job"):
        owner = {"uid": pod.labels["job"], "name": pod.workload, "kind": "Job", "controller": True}
        meta["ownerReferences"] = [owner]
    requests = {
        resource: f"{amount:g}" if resource != "memory" else str(int(amount))
        for resource, amount in pod.asks.items()
        if resource != CLAIMS
    }
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": requests} if requests else {}}]}
    status: dict[str, Any] = {"phase": "Pending"}
    if at_s >= pod.bound_s:
        spec["nodeName"] = pod.node
        status["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _stamp(pod.bound_s)}]
        if at_s >= pod.bound_s + 0.1:
            state = {"running": {"startedAt": _stamp(pod.bound_s + 0.1)}}
            status |= {"phase": "Running", "containerStatuses": [{"state": state}]}
        if at_s >= pod.ended_s:
            ended = {"startedAt": _stamp(pod.bound_s + 0.1), "finishedAt": _stamp(pod.ended_s)}
            status |= {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": ended}}]}
    elif pod.message:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": pod.message}
        status["conditions"] = [condition | {"lastTransitionTime": _stamp(at_s)}]
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def build_event(
    about: Pod, reason: str, note: str, at_s: float, kind: str = "Pod", uid: str | None = None
) -> dict[str, Any]:
    """An event about a pod, or about its Job."""
    name = f"{about.name}.{abs(hash((reason, note, at_s))) % 10**8:08x}"
    meta = {"name": name, "namespace": about.space, "uid": f"ev-{name}", "creationTimestamp": _stamp(at_s)}
    regarding = {"uid": uid or about.uid, "name": about.name, "kind": kind}
    return {
        "kind": "Event",
        "metadata": meta,
        "reason": reason,
        "note": note,
        "eventTime": _stamp(at_s, micro=True),
        "regarding": regarding,
    }


def _build_refusal(world: World, pod: Pod, job_uid: str, at_s: float, active: int) -> dict[str, Any]:
    note = (
        f'Error creating: pods "{pod.name}" is forbidden: exceeded quota: team-limit, requested: pods=1, '
        f"used: pods={active}, limited: pods={world.quota}"
    )
    return build_event(pod, "FailedCreate", note, at_s, "Job", job_uid)


def build_node(node: Node, at_s: float) -> dict[str, Any]:
    """The node's object as it is at a time."""
    offers = {
        name: f"{amount:g}" if name != "memory" else str(int(amount))
        for name, amount in node.offered(at_s).items()
        if name != CLAIMS
    }
    return {
        "kind": "Node",
        "metadata": {"name": node.name, "uid": f"node-{node.name}", "labels": {"workbench.local/sim": "true"}},
        "spec": {"unschedulable": True} if node.cordoned else {},
        "status": {"allocatable": offers, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _list_start(world: World) -> list[tuple[float, str, str, dict[str, Any]]]:
    """What the first lists hold, before the run: nodes, others' pods, and events of an earlier run."""
    at_s = -0.5
    lines = [(at_s, "node", "LISTED", build_node(node, at_s)) for node in world.nodes if node.is_there(at_s)]
    lines += [(at_s, "foreign", "LISTED", build_pod(pod, at_s)) for pod in world.others if pod.created_s <= at_s]
    if "old_events" in world.traits:
        for number in range(12):
            gone = Pod(f"gone-{number}", f"st-0ldrun00-{number}", SPACE, {}, -620.0)
            note = f"0/4 nodes are available: 4 Insufficient {STRANGE}."
            event = build_event(gone, "FailedScheduling", note, -600.0 + number)
            lines.append((at_s, "event", "LISTED", event))
    return lines


def _list_changes(world: World, end_s: float) -> Iterator[tuple[float, str, str, dict[str, Any]]]:
    """Changes of nodes and of others' pods during the run."""
    for node in world.nodes:
        if 0 < node.from_s <= end_s:
            yield node.from_s, "node", "ADDED", build_node(node, node.from_s)
        for since_s, _ in node.offers[1:]:
            if since_s <= end_s:
                yield since_s, "node", "MODIFIED", build_node(node, since_s)
        if node.until_s <= end_s:
            yield node.until_s, "node", "DELETED", build_node(node, node.until_s)
    for pod in world.others:
        if pod.created_s > -0.5:
            yield pod.created_s, "foreign", "ADDED", build_pod(pod, pod.created_s)
        if -0.5 < pod.bound_s <= end_s:
            yield pod.bound_s, "foreign", "MODIFIED", build_pod(pod, pod.bound_s)
        if -0.5 < pod.ended_s <= end_s:
            yield pod.ended_s, "foreign", "MODIFIED", build_pod(pod, pod.ended_s)
        if pod.message:
            at_s = max(2.0, pod.created_s + 1.0)
            event = build_event(pod, "FailedScheduling", pod.message, at_s)
            yield at_s, "event", "ADDED", event
