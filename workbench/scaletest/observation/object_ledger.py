"""Transitions of objects, derived from their states, and the ledger that writes each transition once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.decoded_objects import (
    MAX_CONDITIONS,
    Condition,
    Event,
    Meta,
    Pod,
    Thing,
    read_bind_spec,
    read_status,
)

_WORD = re.compile(r"[^a-z0-9]+")
_PREEMPTOR = re.compile(r"(?:preempted|reclaimed) by (?:pod |podgroup )?([\w./-]{1,253})", re.IGNORECASE)
_POD_GROUP = re.compile(r"\bpg-[\w.-]{1,200}")
MAX_REASON_CHARS = 200
# Reasons of a container that waits for its turn.
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})


TRANSITIONS_BY_REASON = {
    "Scheduled": "scheduled",
    "FailedScheduling": "failed-scheduling",
    "Unschedulable": "failed-scheduling",
    "FailedCreate": "failed-create",
    "Failed": "failed-start",
    "BackOff": "failed-start",
    "FailedCreatePodSandBox": "failed-start",
    "FailedMount": "failed-start",
    "FailedAttachVolume": "failed-start",
    "NodeNotReady": "node-lost",
    "Evict": "evicted",
    "Evicted": "evicted",
    "Preempted": "evicted",
    "ExternalProvisioning": "pvc-requested",
    "ProvisioningSucceeded": "pvc-bound",
}
WORKLOAD_LABELS = (
    object_names.WORKLOAD,
    "release",
    "job-name",
    "batch.kubernetes.io/job-name",
    "training.kubeflow.org/job-name",
)
MAX_TRANSITIONS = 256
MAX_BITS_EACH = 32
DELETED = "deleted"


class Transition(NamedTuple):
    """One transition: its name, server timestamp, reason and node."""

    transition: str
    server: str | None = None
    reason: str | None = None
    node: str | None = None


def pod_transitions(pod: Pod) -> Iterator[Transition]:
    """created, scheduled or unschedulable, blocked, running, ready, evicted, succeeded, failed."""
    yield Transition("created", pod.metadata.creationTimestamp)
    status = pod.status
    if status is None:
        return
    node = pod.spec.nodeName if pod.spec is not None else None
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            yield from _scheduling_transitions(condition, node)
        elif condition.type == "Ready" and condition.status == "True":
            yield Transition("ready", condition.lastTransitionTime)
        elif condition.type == "DisruptionTarget" and condition.status == "True":
            yield Transition("evicted", condition.lastTransitionTime, _shorten_text(condition.reason))
    if status.reason in ("Evicted", "Preempting", "Preempted"):
        yield Transition("evicted", None, status.reason)
    yield from _blocked_transitions(pod)
    yield from _phase_transitions(pod, node)


def _blocked_transitions(pod: Pod) -> Iterator[Transition]:
    """A container that waits for something else than its turn: an image, its configuration, after a crash."""
    for container in (pod.status.containerStatuses if pod.status else None) or ():
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and waiting.reason and waiting.reason not in _STARTING:
            yield Transition("blocked", None, _shorten_text(waiting.reason))


def _scheduling_transitions(condition: Condition, node: str | None) -> Iterator[Transition]:
    if condition.status == "True":
        yield Transition("scheduled", condition.lastTransitionTime, None, node)
    elif node is not None:
        # Bound, but the scheduler missed the response (the API server died after the binding): it then reports a
        # scheduling failure with a timestamp unrelated to the binding.
        yield Transition("scheduled", None, _shorten_text(condition.reason), node)
    elif condition.status == "False" and condition.reason != "SchedulingGated":
        # Not final: the scheduler retries the pod.
        yield Transition(
            "unschedulable", condition.lastTransitionTime, _shorten_text(condition.message or condition.reason)
        )
    elif condition.status == "False":
        yield Transition("gated", condition.lastTransitionTime, condition.reason)


def _phase_transitions(pod: Pod, node: str | None) -> Iterator[Transition]:
    status = pod.status
    if status is None or status.phase not in ("Running", "Succeeded", "Failed"):
        return
    states = [container.state for container in status.containerStatuses or () if container.state is not None]
    if status.phase == "Running":
        started = [state.running.startedAt for state in states if state.running and state.running.startedAt]
        # A pod runs once its last container runs. ISO timestamps of one format sort as text.
        yield Transition("running", max(started, default=None), None, node)
        return
    # The pod ran even if that was not observed; its containers have the start time.
    begun = [state.terminated.startedAt for state in states if state.terminated and state.terminated.startedAt]
    if begun:
        yield Transition("running", max(begun), None, node)
    ended = [state.terminated.finishedAt for state in states if state.terminated and state.terminated.finishedAt]
    yield Transition(status.phase.lower(), max(ended, default=None), _shorten_text(status.reason))


def job_transitions(job: Thing) -> Iterator[Transition]:
    """created, suspended, resumed, complete, failed."""
    yield Transition("created", job.metadata.creationTimestamp)
    for condition in read_status(job).conditions or ():
        if condition.type == "Suspended":
            yield Transition(
                "suspended" if condition.status == "True" else "resumed",
                condition.lastTransitionTime,
                _shorten_text(condition.reason),
            )
        elif condition.type in ("Complete", "Failed") and condition.status == "True":
            yield Transition(condition.type.lower(), condition.lastTransitionTime, _shorten_text(condition.reason))


def workload_transitions(thing: Thing) -> Iterator[Transition]:
    """created, then every condition that is True and every phase, in lower case."""
    yield Transition("created", thing.metadata.creationTimestamp)
    status = read_status(thing)
    conditions = [*(status.conditions or ()), *(status.schedulingConditions or ())]
    for condition in conditions[:MAX_CONDITIONS]:
        if condition.status == "True" and (word := _hyphenate_name(condition.type)):
            yield Transition(word, condition.lastTransitionTime, _shorten_text(condition.reason))
    if status.phase and (word := _hyphenate_name(status.phase)):
        yield Transition(word, None, _shorten_text(status.reason))


def bind_request_transitions(thing: Thing) -> Iterator[Transition]:
    """created, bound, failed."""
    node = read_bind_spec(thing).selectedNode
    yield Transition("created", thing.metadata.creationTimestamp, None, node)
    phase = read_status(thing).phase
    if phase == "Succeeded":
        yield Transition("bound", None, None, node)
    elif phase == "Failed":
        yield Transition("failed", None, _shorten_text(read_status(thing).reason), node)


def pvc_transitions(thing: Thing) -> Iterator[Transition]:
    """created, pvc-bound."""
    yield Transition("created", thing.metadata.creationTimestamp)
    if read_status(thing).phase == "Bound":
        yield Transition("pvc-bound")


def event_transitions(event: Event) -> Iterator[Transition]:
    """Transition of the event's object, by the event's reason; none for other reasons."""
    transition = TRANSITIONS_BY_REASON.get(event.reason or "")
    if transition is None:
        return
    server = event.eventTime or event.deprecatedFirstTimestamp or event.metadata.creationTimestamp
    yield Transition(transition, server, _event_reason(event, transition))


def _event_reason(event: Event, transition: str) -> str | None:
    note = (event.note or "")[:4000]
    if transition != "evicted":
        return None if transition == "scheduled" else _shorten_text(note or event.reason)
    match = _POD_GROUP.search(note) or _PREEMPTOR.search(note)
    if match is None:
        return _shorten_text(event.reason)
    return f"{event.reason} by {match.group(match.lastindex or 0)}"[:MAX_REASON_CHARS]


def _hyphenate_name(text: str) -> str:
    """The name in lower case, with hyphens between words."""
    return _WORD.sub("-", text.lower()).strip("-")[:64]


def _shorten_text(text: str | None) -> str | None:
    return " ".join(text.split())[:MAX_REASON_CHARS] if text else None


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of a watch: objects of one kind in one namespace (empty: the whole cluster)."""

    resource: str  # as in run_records.Seen
    kind: str
    namespace: str


class ObjectHistory:
    """Known state of one object."""

    __slots__ = ("bits", "kind", "name", "namespace", "owner", "owner_name", "scope", "workload")

    def __init__(self, scope: Scope, name: str) -> None:
        self.scope, self.name, self.bits = scope, name, 0
        self.workload: str | None = None
        self.owner: str | None = None
        self.owner_name: str | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """How an object was observed: arrival time, number of the watch connection, and whether during a gap."""

    arrival_ns: int
    session: int = 0
    gap: bool = False


class ObjectLedger:
    """Known transitions of the run's objects; new ones are passed to `write`."""

    def __init__(self, write: Callable[[run_records.Seen], None]) -> None:
        self._write = write
        self._known: dict[str, ObjectHistory] = {}
        self._events: dict[str, int] = {}
        self._bits: dict[str, int] = {}
        self.left_out = 0  # transitions above the limits

    def __len__(self) -> int:
        return len(self._known)

    def workload_of(self, uid: str | None) -> str | None:
        """Name of the workload that the object with this uid belongs to; None if unknown."""
        history = self._known.get(uid) if uid else None
        return None if history is None else history.workload

    def is_known(self, uid: str) -> bool:
        """Whether an object of the run has this uid."""
        return uid in self._known

    def record_state(self, scope: Scope, thing: Any, steps: Iterable[Transition], sight: Sight) -> int:
        """Write the new transitions of an object's state; returns their number."""
        meta: Meta = thing.metadata
        history = self._known.get(meta.uid)
        if history is None:
            history = self._known[meta.uid] = self._add_object(scope, thing)
        new = 0
        for step in steps:
            if self._is_first(history, step.transition):
                self._write(_build_seen_line(history, meta, step, sight))
                new += 1
        return new

    def record_deletion(self, scope: Scope, thing: Any, steps: Iterable[Transition], sight: Sight) -> int:
        """`record_state` for the final state of a deleted object."""
        last = Transition(DELETED)
        return self.record_state(scope, thing, [*steps, last], sight)

    def record_missing(self, scope: Scope, present: set[str], sight: Sight) -> int:
        """Record known objects that are missing from a list as deleted during the gap."""
        new = 0
        for uid, history in self._known.items():
            if history.scope == scope and uid not in present and self._is_first(history, DELETED):
                meta = Meta(name=history.name, namespace=scope.namespace, uid=uid)
                self._write(_build_seen_line(history, meta, Transition(DELETED), sight))
                new += 1
        return new

    def record_event(self, event: Event, sight: Sight) -> int:
        """Write the first event of each kind about an object; returns the number written."""
        about = event.regarding
        if about is None or not about.uid:
            return 0
        new = 0
        for step in event_transitions(event):
            bit, seen = self._transition_bit(step.transition), self._events.get(about.uid, 0)
            if not bit or seen & bit:
                continue
            self._events[about.uid] = seen | bit
            new += 1
            meta = event.metadata
            self._write(
                run_records.Seen(
                    resource="event",
                    transition=step.transition,
                    uid=meta.uid,
                    name=meta.name,
                    namespace=meta.namespace,
                    arrival_ns=sight.arrival_ns,
                    kind=about.kind or None,
                    workload=self.workload_of(about.uid),
                    owner=about.uid,
                    owner_name=about.name or None,
                    server=step.server,
                    resource_version=meta.resourceVersion or None,
                    session=sight.session,
                    gap=sight.gap,
                    reason=step.reason,
                )
            )
        return new

    def restore(self, path: Path) -> int:
        """Restore the state from the file of an earlier process; returns the client time of its last line, or 0."""
        last = 0
        for line in run_records.read_lines(path, run_records.ObservedLine):
            last = max(last, line.arrival_ns)
            if isinstance(line, run_records.Seen):
                self._restore_line(line)
        return last

    def _restore_line(self, line: run_records.Seen) -> None:
        if line.resource == "event":
            owner = line.owner or ""
            self._events[owner] = self._events.get(owner, 0) | self._transition_bit(line.transition)
            return
        if line.resource == "audit":
            return
        history = self._known.get(line.uid)
        if history is None:
            history = ObjectHistory(Scope(line.resource, line.kind or "", line.namespace), line.name)
            history.workload, history.owner, history.owner_name = line.workload, line.owner, line.owner_name
            self._known[line.uid] = history
        self._is_first(history, line.transition)

    def _add_object(self, scope: Scope, thing: Any) -> ObjectHistory:
        meta: Meta = thing.metadata
        history = ObjectHistory(scope, meta.name)
        owner = meta.owner
        if owner is not None:
            history.owner, history.owner_name = owner.uid or None, owner.name or None
        if scope.resource == "bindrequest" and isinstance(thing, Thing):
            # A BindRequest refers to a pod, whatever its owner.
            history.owner_name = read_bind_spec(thing).podName or history.owner_name
        history.workload = _find_workload_label(meta) or self.workload_of(history.owner)
        if history.workload is None and owner is None and scope.resource in ("workload", "job", "pod"):
            history.workload = meta.name
        return history

    def _transition_bit(self, transition: str) -> int:
        bit = self._bits.get(transition)
        if bit is None:
            if len(self._bits) >= MAX_TRANSITIONS:
                self.left_out += 1
                return 0
            bit = self._bits[transition] = 1 << len(self._bits)
        return bit

    def _is_first(self, history: ObjectHistory, transition: str) -> bool:
        bit = self._transition_bit(transition)
        if not bit or history.bits & bit:
            return False
        if history.bits.bit_count() >= MAX_BITS_EACH and transition != DELETED:
            self.left_out += 1
            return False
        history.bits |= bit
        return True


def _find_workload_label(meta: Meta) -> str | None:
    labels = meta.labels or {}
    return next((labels[name] for name in WORKLOAD_LABELS if labels.get(name)), None)


def _build_seen_line(history: ObjectHistory, meta: Meta, step: Transition, sight: Sight) -> run_records.Seen:
    return run_records.Seen(
        resource=history.scope.resource,
        transition=step.transition,
        uid=meta.uid,
        name=meta.name,
        namespace=meta.namespace,
        arrival_ns=sight.arrival_ns,
        kind=history.scope.kind or None,
        workload=history.workload,
        owner=history.owner,
        owner_name=history.owner_name,
        server=step.server,
        resource_version=meta.resourceVersion or None,
        session=sight.session,
        gap=sight.gap,
        node=step.node,
        reason=step.reason,
    )
