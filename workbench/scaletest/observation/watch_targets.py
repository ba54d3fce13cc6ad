"""Watch targets of the sampler: resources of the run, nodes, and pods of other users."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import PODS
from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection, parse_timestamp
from workbench.scaletest.observation import object_ledger, run_records
from workbench.scaletest.observation.object_ledger import (
    Event,
    Node,
    ObjectDecoder,
    ObjectLedger,
    Pod,
    Scope,
    Sight,
    Thing,
    Transition,
    parse_quantity,
    pod_transitions,
)
from workbench.scaletest.observation.resource_watch import WatchSink, WatchTarget
from workbench.scaletest.observation.sampler_process import SamplerOptions

NODE_SCOPE = Scope("node", "Node", "")
KWOK = "kwok.x-k8s.io/node"
# Recorded node labels: topology and hardware. All others may be confidential.
KEPT_LABELS = re.compile(
    r"workbench\.local/.*|topology\.kubernetes\.io/.*|kubernetes\.io/arch|type|.*/(zone|rack|block)"
    r"|nvidia\.com/gpu\.(product|count|memory)|node\.kubernetes\.io/instance-type|run\.ai/.*node-?pool.*"
)
MAX_LABELS = 16
WAITING, BOUND, GONE = "waiting", "bound", "gone"
MAX_NAMES = 20
MIN_GROWTH = 5  # additional pending pods before the first note
TRANSITIONS_BY_RESOURCE: dict[str, Callable[[Any], Iterator[Transition]]] = {
    "pod": object_ledger.pod_transitions,
    "job": object_ledger.job_transitions,
    "workload": object_ledger.workload_transitions,
    "podgroup": object_ledger.workload_transitions,
    "bindrequest": object_ledger.bind_request_transitions,
    "pvc": object_ledger.pvc_transitions,
}
# Resources that may be missing or forbidden without making the run invalid.
OPTIONAL = frozenset({"podgroup", "bindrequest", "pvc", "event"})
MARGIN_NS = 10 * NS_PER_S  # tolerated clock offset
_OWN_DECODERS: dict[str, type[Any]] = {"pod": Pod, "event": Event}


class NodeObserver:
    """Writes a node when it is first seen, and when its readiness, cordon or allocatable resources change."""

    def __init__(self, write: Callable[[run_records.NodeSeen], None]) -> None:
        self._write = write
        self._last: dict[str, run_records.NodeSeen] = {}
        self._names: dict[str, str] = {}  # by uid
        self._were_ready: set[str] = set()
        self._first_taints: dict[str, frozenset[tuple[str, str]]] = {}

    @property
    def not_ready(self) -> int:
        """Number of nodes that were ready and are not; a new one that is not ready yet is none of them."""
        return sum(not node.ready and name in self._were_ready for name, node in self._last.items())

    def build_sink(self) -> WatchSink:
        """Build the sink of the watch."""
        return WatchSink(self._update_node, self._remove_node, self._drop_missing)

    def _update_node(self, thing: Any, sight: Sight) -> int:
        first = self._first_taints.setdefault(thing.metadata.uid, list_closing_taints(thing))
        node_line = build_node_line(thing, sight.arrival_ns, first)
        before = self._last.get(node_line.name)
        self._names[thing.metadata.uid] = node_line.name
        # GPUs may appear after the node is ready, when its device plugin registers.
        if before is not None and _node_state(before) == _node_state(node_line):
            return 0
        if node_line.ready:
            self._were_ready.add(node_line.name)
        self._last[node_line.name] = node_line
        self._write(node_line)
        return 1

    def _remove_node(self, thing: Any, sight: Sight) -> int:
        """A deleted node is written as not ready, and no longer counted."""
        return self._write_absence(thing.metadata.name, sight)

    def _drop_missing(self, present: set[str], sight: Sight) -> int:
        gone = [uid for uid in self._names if uid not in present]
        return sum(self._write_absence(self._names.pop(uid), sight) for uid in gone)

    def _write_absence(self, name: str, sight: Sight) -> int:
        before = self._last.pop(name, None)
        self._were_ready.discard(name)
        if before is not None and before.ready:
            self._write(run_records.NodeSeen(name, sight.arrival_ns, ready=False))
        return 1


def _node_state(node: run_records.NodeSeen) -> tuple[bool, bool, str]:
    return node.ready, node.cordoned, node.offers


def list_closing_taints(node: Node) -> frozenset[tuple[str, str]]:
    """Taints of a node that keep pods off which do not tolerate them."""
    taints = (node.spec.taints if node.spec is not None else None) or []
    return frozenset((taint.key, taint.effect) for taint in taints if taint.effect in ("NoSchedule", "NoExecute"))


def build_node_line(
    node: Node, arrival_ns: int, first_taints: frozenset[tuple[str, str]] | None = None
) -> run_records.NodeSeen:
    """Build the record of a node. One that was tainted since it was first seen, with `first_taints`, takes no pods."""
    status, meta = node.status, node.metadata
    offers = (status.allocatable if status is not None else None) or {}
    conditions = (status.conditions if status is not None else None) or []
    labels = meta.labels or {}
    taints = (node.spec.taints if node.spec is not None else None) or []
    short_labels = {key: value[:100] for key, value in sorted(labels.items()) if KEPT_LABELS.fullmatch(key)}
    gpus = sum(parse_quantity(value) for key, value in offers.items() if key.endswith("/gpu"))
    return run_records.NodeSeen(
        name=meta.name,
        arrival_ns=arrival_ns,
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in conditions),
        gpus=int(gpus),
        cpus=parse_quantity(offers.get("cpu")),
        memory_bytes=int(parse_quantity(offers.get("memory"))),
        pods=int(parse_quantity(offers.get("pods"))),
        cordoned=bool(node.spec is not None and node.spec.unschedulable)
        or any(api_discovery.keeps_pods_off(taint.key, taint.effect) for taint in taints)
        or (first_taints is not None and not list_closing_taints(node) <= first_taints),
        simulated=labels.get(api_discovery.SIMULATED) == "true" or any(taint.key == KWOK for taint in taints),
        labels=dict(list(short_labels.items())[:MAX_LABELS]),
        offers=run_records.format_amounts({name: parse_quantity(value) for name, value in offers.items()}),
    )


class ForeignPods:
    """Pods that are not of this run, in all namespaces: what they hold and wait for, and which were evicted.

    In the run's own namespaces these are pods of other tests, of an earlier run, and those that an operator made
    without the run's label: the analysis tells the last ones from the others.
    """

    def __init__(
        self,
        run: str,
        namespaces: tuple[str, ...],
        write: Callable[[run_records.Held], None],
        note: Callable[[str], None],
    ) -> None:
        self._run, self._own, self._write, self._note = run, frozenset(namespaces), write, note
        self._held: dict[str, run_records.Held] = {}
        self._pending: set[str] = set()
        self._hit: set[str] = set()
        self._told = MIN_GROWTH
        self._begun = False
        self.pending_at_start = 0
        self.evicted = 0

    @property
    def pending(self) -> int:
        """Number of pending pods."""
        return len(self._pending)

    def restore(self, path: Path) -> None:
        """Restore what was held from the file of an earlier process."""
        for line in run_records.read_lines(path, run_records.ObservedLine):
            if isinstance(line, run_records.Held):
                self._held[line.uid] = line
        self._held = {uid: line for uid, line in self._held.items() if line.state != GONE}

    def build_target(self) -> WatchTarget:
        """Build the watch of these pods."""
        # `!=` also selects pods without the label.
        return WatchTarget(
            Scope("foreign", "Pod", ""), PODS.path(""), ObjectDecoder(Pod), labels=f"{api_discovery.RUN}!={self._run}"
        )

    def build_sink(self) -> WatchSink:
        """Build the sink of the watch."""
        return WatchSink(self._update_pod, self._remove_pod, self._drop_missing)

    def begin(self) -> None:
        """Take the current state as the state before the run."""
        self._begun, self.pending_at_start = True, len(self._pending)

    def _update_pod(self, pod: Any, sight: Sight) -> int:
        """Write a pod's state where it changed; returns 0, the number of transitions of the run's objects."""
        meta = pod.metadata
        phase = pod.status.phase if pod.status is not None else None
        node = pod.spec.nodeName if pod.spec is not None else None
        state = GONE if phase in ("Succeeded", "Failed") else BOUND if node else WAITING
        self._record_state(pod, state, node, sight)
        if meta.namespace in self._own:
            return 0
        if phase == "Pending":
            self._pending.add(meta.uid)
            self._note_growth()
        else:
            self._pending.discard(meta.uid)
        reason = next((step.reason or "" for step in pod_transitions(pod) if step.transition == "evicted"), None)
        if reason is not None and meta.uid not in self._hit:
            self._hit.add(meta.uid)
            if self._begun:
                self._note_eviction(f"{meta.namespace}/{meta.name}", reason)
        return 0

    def _record_state(self, pod: Any, state: str, node: str | None, sight: Sight) -> None:
        meta, before = pod.metadata, self._held.get(pod.metadata.uid)
        if (before is None and state == GONE) or (before is not None and before.state == state):
            return
        asks = run_records.format_amounts(object_ledger.read_asks(pod)) if before is None else before.asks
        run = (meta.labels or {}).get(api_discovery.RUN)
        line = run_records.Held(meta.uid, meta.namespace, sight.arrival_ns, state, asks, node, run)
        self._write(line)
        if state == GONE:
            self._held.pop(meta.uid, None)
        else:
            self._held[meta.uid] = line

    def _note_eviction(self, name: str, reason: str) -> None:
        self.evicted += 1
        if self.evicted <= MAX_NAMES:
            more = " (others are only counted)" if self.evicted == MAX_NAMES else ""
            self._note(f"a pod of others was evicted: {name} {reason}".strip() + more)

    def _note_growth(self) -> None:
        growth = len(self._pending) - self.pending_at_start
        if self._begun and growth >= self._told:
            self._told = 2 * growth
            self._note(f"{growth} more pods of others wait than at the start ({self.pending_at_start})")

    def _remove_pod(self, pod: Any, sight: Sight) -> int:
        self._update_pod(pod, sight)
        self._record_state(pod, GONE, None, sight)
        self._pending.discard(pod.metadata.uid)
        self._hit.discard(pod.metadata.uid)
        return 0

    def _drop_missing(self, present: set[str], sight: Sight) -> int:
        self._pending &= present
        self._hit &= present
        for uid in [uid for uid in self._held if uid not in present]:
            line = self._held.pop(uid)
            self._write(run_records.Held(uid, line.namespace, sight.arrival_ns, GONE, line.asks, None, line.run))
        return 0


@dataclass(frozen=True)
class WatchChoice:
    """A resource of the cluster to watch, and the name of its kind."""

    resource: str
    kind: ApiResource
    name: str
    labelled: bool  # selected by the run's labels


async def list_choices(api: Connection, options: SamplerOptions) -> list[WatchChoice]:
    """Resources to watch, as far as the cluster serves them."""
    labelled = not options.by_namespace
    choices = [
        WatchChoice("pod", api_discovery.PODS, "Pod", labelled),
        WatchChoice("job", api_discovery.JOBS, "Job", labelled),
        WatchChoice("pvc", api_discovery.CLAIMS, "PersistentVolumeClaim", False),
        WatchChoice("event", api_discovery.EVENTS, "Event", False),
    ]
    for kind in options.kinds:
        if kind in (api_discovery.PODS, api_discovery.JOBS):
            continue
        name = await api_discovery.find_kind_name(api, kind)
        if name is None:
            raise ConfigError(
                "the cluster has no such resource",
                where="--kind",
                found=str(kind),
                do="install its CRD, or correct group, version and plural name",
            )
        choices.append(WatchChoice("workload", kind, name, labelled))
    for group, plural, resource in api_discovery.list_operator_resources(options.kinds):
        there = await api_discovery.find_newest_resource(api, group, plural)
        if there is not None:
            # Controllers do not copy the run's labels to the objects that they create.
            choices.append(WatchChoice(resource, *there, False))
    return choices


def build_watch_target(choice: WatchChoice, namespace: str, run: str) -> WatchTarget:
    """Build the watch of a resource in a namespace."""
    return WatchTarget(
        Scope(choice.resource, choice.name, namespace),
        choice.kind.path(namespace),
        ObjectDecoder(_OWN_DECODERS.get(choice.resource, Thing)),
        labels=api_discovery.build_run_selector(run) if choice.labelled else "",
    )


def build_sink(ledger: ObjectLedger, scope: Scope, since_ns: int = 0) -> WatchSink:
    """Build the sink that writes the transitions of a scope's objects.

    `since_ns`: Start of the run or of this sampler; older listed events are ignored unless they refer to a known
    object.
    """
    if scope.resource == "event":
        return _build_event_sink(ledger, since_ns - MARGIN_NS)
    steps = TRANSITIONS_BY_RESOURCE[scope.resource]
    return WatchSink(
        put=lambda thing, sight: ledger.record_state(scope, thing, steps(thing), sight),
        gone=lambda thing, sight: ledger.record_deletion(scope, thing, steps(thing), sight),
        missing=lambda present, sight: ledger.record_missing(scope, present, sight),
    )


def _build_event_sink(ledger: ObjectLedger, since_ns: int) -> WatchSink:
    def put(event: Event, sight: Sight) -> int:
        # A list also contains events of earlier runs: events expire after an hour.
        return 0 if sight.gap and not (is_known(event) or is_recent(event)) else ledger.record_event(event, sight)

    def is_known(event: Event) -> bool:
        return event.regarding is not None and ledger.is_known(event.regarding.uid)

    def is_recent(event: Event) -> bool:
        creation = parse_timestamp(event.metadata.creationTimestamp)
        return creation is not None and creation.ns >= since_ns

    # Events expire, so their deletion is not a transition.
    return WatchSink(put)
