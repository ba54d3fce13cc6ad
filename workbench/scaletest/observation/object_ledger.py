"""Transitions of objects, derived from their states, and the ledger that writes each transition once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario.template_pods import sum_requests

MAX_CONDITIONS = 64
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
    api_discovery.WORKLOAD,
    "release",
    "job-name",
    "batch.kubernetes.io/job-name",
    "training.kubeflow.org/job-name",
)
MAX_TRANSITIONS = 256
MAX_QUANTITY = 1e18
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kKMGTPE]i?)?")
_POWERS = {letter: power for power, letter in enumerate("kMGTPE", 1)}
MAX_BITS_EACH = 32
DELETED = "deleted"


class Owner(msgspec.Struct):
    """An entry of metadata.ownerReferences."""

    uid: str = ""
    name: str = ""
    kind: str = ""
    controller: bool | None = None


class Meta(msgspec.Struct):
    """metadata"""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 -- Kubernetes' names, here and below
    creationTimestamp: str | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    ownerReferences: list[Owner] | None = None  # noqa: N815

    @property
    def owner(self) -> Owner | None:
        """The controller, or the first owner if none is marked as controller."""
        owners = self.ownerReferences or []
        return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


class Condition(msgspec.Struct):
    """An entry of status.conditions."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None  # noqa: N815


class _Started(msgspec.Struct):
    startedAt: str | None = None  # noqa: N815
    finishedAt: str | None = None  # noqa: N815


class _Waiting(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    running: _Started | None = None
    terminated: _Started | None = None


class Container(msgspec.Struct):
    """An entry of status.containerStatuses."""

    state: _State | None = None


class PodStatus(msgspec.Struct):
    """status of a pod"""

    phase: str | None = None
    reason: str | None = None
    conditions: list[Condition] | None = None
    containerStatuses: list[Container] | None = None  # noqa: N815


class PodSpec(msgspec.Struct):
    """spec of a pod; what it asks for is read once, by `read_asks`."""

    nodeName: str | None = None  # noqa: N815
    containers: msgspec.Raw = msgspec.Raw()
    initContainers: msgspec.Raw = msgspec.Raw()  # noqa: N815
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()  # of the pod as a whole


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Meta
    spec: PodSpec | None = None
    status: PodStatus | None = None
    kind: str = "Pod"


class Status(msgspec.Struct):
    """status that follows the Kubernetes API conventions"""

    phase: str | None = None
    reason: str | None = None
    conditions: list[Condition] | None = None
    schedulingConditions: list[Condition] | None = None  # noqa: N815 -- of KAI's pod groups


class BindSpec(msgspec.Struct):
    """spec of a BindRequest"""

    podName: str | None = None  # noqa: N815
    selectedNode: str | None = None  # noqa: N815


class Thing(msgspec.Struct):
    """Any other object; see `read_status` and `read_bind_spec`."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()
    kind: str = ""


class Regarding(msgspec.Struct):
    """The object that an event refers to."""

    uid: str = ""
    name: str = ""
    kind: str = ""


class Series(msgspec.Struct):
    """Series of a repeated event."""

    count: int = 0


class Event(msgspec.Struct):
    """An event of events.k8s.io/v1; components with the older recorder leave eventTime null."""

    metadata: Meta
    kind: str = "Event"
    reason: str | None = None
    note: str | None = None
    eventTime: str | None = None  # noqa: N815
    deprecatedFirstTimestamp: str | None = None  # noqa: N815
    regarding: Regarding | None = None


class Taint(msgspec.Struct):
    """An entry of a node's spec.taints."""

    key: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct):
    """spec of a node"""

    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(msgspec.Struct):
    """status of a node"""

    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None


class Node(msgspec.Struct):
    """A node."""

    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
    kind: str = "Node"


class Beating(msgspec.Struct):
    """ConfigMap of the heartbeat."""

    metadata: Meta
    data: dict[str, str] | None = None
    kind: str = "ConfigMap"


Object = Pod | Thing | Event | Node | Beating


class Refusal(msgspec.Struct):
    """A Status object, the content of an ERROR event of a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ListMeta(msgspec.Struct):
    """metadata of a list"""

    resourceVersion: str = ""  # noqa: N815
    continue_: str = msgspec.field(default="", name="continue")


class RawPage(msgspec.Struct):
    """A page of a list whose objects are decoded one by one, because some are invalid."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Envelope(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


# Fields of a pod's spec that say what it asks a node for.
_ASKING = ("containers", "initContainers", "overhead", "resources")
_STATUS = msgspec.json.Decoder(Status)
_BIND = msgspec.json.Decoder(BindSpec)


class ObjectDecoder:
    """Decoders of one kind of object: pages of a list, and lines of a watch."""

    def __init__(self, kind: type[Any]) -> None:
        # A page type per kind: a page is decoded in one pass.
        items: Any = list[kind] | None  # type: ignore[valid-type]
        page = msgspec.defstruct("Page", [("metadata", ListMeta), ("items", items, None), ("kind", str, "")])
        self._page: Any = msgspec.json.Decoder(page)
        self._raw_page = msgspec.json.Decoder(RawPage)
        self._object: Any = msgspec.json.Decoder(kind)
        self._line = msgspec.json.Decoder(Envelope)
        self._refusal = msgspec.json.Decoder(Refusal)

    def decode_page(self, body: bytes) -> tuple[list[Any], ListMeta, int]:
        """Objects of a page, the list's metadata, and the number of invalid objects."""
        try:
            page = _decode_json(self._page, body)
            return page.items or [], page.metadata, 0
        except msgspec.ValidationError:
            pages = _decode_json(self._raw_page, body)
        objects = []
        for raw in pages.items or []:
            with contextlib.suppress(msgspec.MsgspecError):
                objects.append(_decode_json(self._object, raw))
        return objects, pages.metadata, len(pages.items or []) - len(objects)

    def decode_line(self, text: bytes) -> tuple[str, Any]:
        """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object (a Refusal for ERROR)."""
        line = _decode_json(self._line, text)
        decoder = self._refusal if line.type == "ERROR" else self._object
        return line.type, _decode_json(decoder, line.object)


def _decode_json(decoder: Any, text: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(text)
    except (RecursionError, UnicodeDecodeError) as error:
        # Callers handle one kind of error.
        raise msgspec.DecodeError(type(error).__name__) from None


def read_status(thing: Thing) -> Status:
    """Status of an object, as far as it follows the API conventions."""
    return _decode_leniently(_STATUS, thing.status) or Status()


def read_bind_spec(thing: Thing) -> BindSpec:
    """spec of a BindRequest; empty fields for other objects."""
    return _decode_leniently(_BIND, thing.spec) or BindSpec()


def _decode_leniently(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw) -> Any:
    """Decode a JSON object, without the fields of a wrong type; null if nothing can be read."""
    if not bytes(raw):
        return None
    try:
        return _decode_json(decoder, raw)
    except msgspec.MsgspecError:
        pass
    # One field has another type: keep the others.
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict):
        return None
    fields = {}
    for field in msgspec.structs.fields(decoder.type):
        try:
            fields[field.name] = msgspec.convert(document.get(field.name), field.type)
        except msgspec.ValidationError:
            continue
    return decoder.type(**fields)


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


def read_asks(pod: Pod) -> dict[str, float]:
    """Amounts that a pod asks a node for, as the scheduler counts them; empty if they cannot be read."""
    try:
        parts = {name: msgspec.json.decode(raw) for name in _ASKING if bytes(raw := getattr(pod.spec, name, b""))}
        return sum_requests(parts)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


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
            if self._note_first(history, step.transition):
                line = _build_seen_line(history, meta, step, sight)
                if step.transition == "created" and isinstance(thing, Pod):
                    line.asks = run_records.format_amounts(read_asks(thing)) or None
                self._write(line)
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
            if history.scope == scope and uid not in present and self._note_first(history, DELETED):
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
        self._note_first(history, line.transition)

    def _add_object(self, scope: Scope, thing: Any) -> ObjectHistory:
        """Begin the history of an object that is seen for the first time, with its owner and workload."""
        meta: Meta = thing.metadata
        history = ObjectHistory(scope, meta.name)
        owner = meta.owner
        if owner is not None:
            history.owner, history.owner_name = owner.uid or None, owner.name or None
        if scope.resource == "bindrequest" and isinstance(thing, Thing):
            # A BindRequest refers to a pod, whatever its owner.
            history.owner_name = read_bind_spec(thing).podName or history.owner_name
        labels = meta.labels or {}
        workload_label = next((labels[name] for name in WORKLOAD_LABELS if labels.get(name)), None)
        history.workload = workload_label or self.workload_of(history.owner)
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

    def _note_first(self, history: ObjectHistory, transition: str) -> bool:
        """Note a transition of an object; returns whether it is the first of its kind and within the limits."""
        bit = self._transition_bit(transition)
        if not bit or history.bits & bit:
            return False
        if history.bits.bit_count() >= MAX_BITS_EACH and transition != DELETED:
            self.left_out += 1
            return False
        history.bits |= bit
        return True


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
