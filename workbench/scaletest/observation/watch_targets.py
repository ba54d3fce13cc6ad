"""Watch targets of the sampler: resources of the run, nodes, and pods of other users."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import PODS, ApiResource
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
MAX_QUANTITY = 1e18
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kKMGTPE]i?)?")
_POWERS = {letter: power for power, letter in enumerate("kMGTPE", 1)}
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


def parse_quantity(text: str | None) -> float:
    """Parse a Kubernetes quantity into its base unit; 0 if there is none.

    >>> parse_quantity("8"), parse_quantity("250m"), parse_quantity("2Ki"), parse_quantity("1k"), parse_quantity("1e3")
    (8.0, 0.25, 2048.0, 1000.0, 1000.0)
    """
    match = _QUANTITY.fullmatch(text or "")
    if match is None:
        try:
            value = float(text or 0)
        except ValueError:
            return 0.0
        return value if 0 < value < MAX_QUANTITY else 0.0
    value, unit = float(match.group(1)), match.group(2) or ""
    if unit == "m":
        return value / 1000
    if not unit:
        return min(value, MAX_QUANTITY)
    base = 1024 if unit.endswith("i") else 1000
    return min(float(value * base ** _POWERS[unit[0] if unit[0] != "K" else "k"]), MAX_QUANTITY)


class NodeObserver:
    """Sink that writes a node when it is first seen, and when its readiness, cordon or allocatable resources change."""

    def __init__(self, write: Callable[[run_records.NodeSeen], None]) -> None:
        self._write = write
        self._last: dict[str, run_records.NodeSeen] = {}

    @property
    def not_ready(self) -> int:
        """Number of nodes that are not ready."""
        return sum(not node.ready for node in self._last.values())

    def put(self, thing: Any, sight: Sight) -> int:
        """Handle a listed, added or modified node."""
        node_line = build_node_line(thing, sight.arrival_ns)
        before = self._last.get(node_line.name)
        # GPUs may appear after the node is ready, when its device plugin registers.
        if before is not None and _node_state(before) == _node_state(node_line):
            return 0
        self._last[node_line.name] = node_line
        self._write(node_line)
        return 1

    def remove(self, thing: Any, sight: Sight) -> int:
        """Handle a deleted node: it is written as not ready and no longer counted."""
        before = self._last.pop(thing.metadata.name, None)
        if before is not None and before.ready:
            self._write(run_records.NodeSeen(thing.metadata.name, sight.arrival_ns, ready=False))
        return 1


def _node_state(node: run_records.NodeSeen) -> tuple[bool, bool, int, float, int, int]:
    return node.ready, node.cordoned, node.gpus, node.cpus, node.memory_bytes, node.pods


def build_node_line(node: Node, arrival_ns: int) -> run_records.NodeSeen:
    """Build the record of a node."""
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
        or any(api_discovery.keeps_pods_off(taint.key, taint.effect) for taint in taints),
        simulated=labels.get(api_discovery.SIMULATED) == "true" or any(taint.key == KWOK for taint in taints),
        labels=dict(list(short_labels.items())[:MAX_LABELS]),
    )


class ForeignPods:
    """Evictions and pending pods of other users, in all namespaces but the run's."""

    def __init__(self, run: str, namespaces: tuple[str, ...], note: Callable[[str], None]) -> None:
        self._run, self._own, self._note = run, frozenset(namespaces), note
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

    def _update_pod(self, pod: Any, _: Sight) -> int:
        """Count a pod of others as pending or evicted; returns 0, the number of records written."""
        meta = pod.metadata
        if meta.namespace in self._own:
            return 0
        phase = pod.status.phase if pod.status is not None else None
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
        self._pending.discard(pod.metadata.uid)
        self._hit.discard(pod.metadata.uid)
        return 0

    def _drop_missing(self, present: set[str], _: Sight) -> int:
        self._pending &= present
        self._hit &= present
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
        there = await api_discovery.find_group_resource(api, group, plural)
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
