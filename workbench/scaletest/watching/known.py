"""What has been seen of each object: first transitions only, and who belongs to whom.

One small record per uid; a restarted sampler fills it from what is on disk, so that nothing is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.scaletest import names, records
from workbench.scaletest.watching.objects import Event, Meta, Thing, bind_spec_of
from workbench.scaletest.watching.transitions import Step, of_event

LABELS = (
    names.WORKLOAD,
    "release",
    "job-name",
    "batch.kubernetes.io/job-name",
    "training.kubeflow.org/job-name",
)
MOST_TRANSITIONS = 256
MOST_BITS_EACH = 32
DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Scope:
    """What one watch is about: objects of one kind in one namespace (empty: all of the cluster)."""

    resource: str  # as in records.Seen
    kind: str
    namespace: str


class Known:
    """One object."""

    __slots__ = ("bits", "kind", "name", "namespace", "owner", "owner_name", "scope", "workload")

    def __init__(self, scope: Scope, name: str) -> None:
        self.scope, self.name, self.bits = scope, name, 0
        self.workload: str | None = None
        self.owner: str | None = None
        self.owner_name: str | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """How something was seen."""

    arrival_ns: int
    session: int = 0
    gap: bool = False


class Ledger:
    """All that is known of the run's objects; new transitions go to `write`."""

    def __init__(self, write: Callable[[records.Seen], None]) -> None:
        self._write = write
        self._known: dict[str, Known] = {}
        self._events: dict[str, int] = {}
        self._bits: dict[str, int] = {}
        self.left_out = 0  # transitions above the bounds

    def __len__(self) -> int:
        return len(self._known)

    def workload_of(self, uid: str | None) -> str | None:
        """The workload that the object with this uid belongs to, as far as it is known."""
        found = self._known.get(uid) if uid else None
        return None if found is None else found.workload

    def is_known(self, uid: str) -> bool:
        """One of the run's objects has this uid."""
        return uid in self._known

    def see(self, scope: Scope, thing: Any, steps: Iterable[Step], sight: Sight) -> int:
        """Write down what is new in an object's state; how many transitions that were."""
        meta: Meta = thing.metadata
        known = self._known.get(meta.uid)
        if known is None:
            known = self._known[meta.uid] = self._made(scope, thing)
        new = 0
        for step in steps:
            if self._first(known, step.transition):
                self._write(_row(known, meta, step, sight))
                new += 1
        return new

    def gone(self, scope: Scope, thing: Any, steps: Iterable[Step], sight: Sight) -> int:
        """The same for the last state of an object that was deleted."""
        last = Step(DELETED)
        return self.see(scope, thing, [*steps, last], sight)

    def missing(self, scope: Scope, present: set[str], sight: Sight) -> int:
        """Objects that a list does not hold any more were deleted while nobody watched."""
        new = 0
        for uid, known in self._known.items():
            if known.scope == scope and uid not in present and self._first(known, DELETED):
                meta = Meta(name=known.name, namespace=scope.namespace, uid=uid)
                self._write(_row(known, meta, Step(DELETED), sight))
                new += 1
        return new

    def event(self, event: Event, sight: Sight) -> int:
        """Write down what an event tells of the object that it is about, the first of each kind."""
        about = event.regarding
        if about is None or not about.uid:
            return 0
        new = 0
        for step in of_event(event):
            bit, seen = self._bit(step.transition), self._events.get(about.uid, 0)
            if not bit or seen & bit:
                continue
            self._events[about.uid] = seen | bit
            new += 1
            meta = event.metadata
            self._write(
                records.Seen(
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
        """Take up what an earlier process wrote; the client's time of its last line, 0 where there is none."""
        last = 0
        for one in records.read(path, records.ObservedLine):
            last = max(last, one.arrival_ns)
            if isinstance(one, records.Seen):
                self._restore(one)
        return last

    def _restore(self, one: records.Seen) -> None:
        if one.resource == "event":
            owner = one.owner or ""
            self._events[owner] = self._events.get(owner, 0) | self._bit(one.transition)
            return
        if one.resource == "audit":
            return
        known = self._known.get(one.uid)
        if known is None:
            known = Known(Scope(one.resource, one.kind or "", one.namespace), one.name)
            known.workload, known.owner, known.owner_name = one.workload, one.owner, one.owner_name
            self._known[one.uid] = known
        self._first(known, one.transition)

    def _made(self, scope: Scope, thing: Any) -> Known:
        meta: Meta = thing.metadata
        known = Known(scope, meta.name)
        owner = meta.owner
        if owner is not None:
            known.owner, known.owner_name = owner.uid or None, owner.name or None
        if scope.resource == "bindrequest" and isinstance(thing, Thing):
            # It is about a pod, whoever owns it.
            known.owner_name = bind_spec_of(thing).podName or known.owner_name
        known.workload = _labelled(meta) or self.workload_of(known.owner)
        if known.workload is None and owner is None and scope.resource in ("workload", "job", "pod"):
            known.workload = meta.name
        return known

    def _bit(self, transition: str) -> int:
        bit = self._bits.get(transition)
        if bit is None:
            if len(self._bits) >= MOST_TRANSITIONS:
                self.left_out += 1
                return 0
            bit = self._bits[transition] = 1 << len(self._bits)
        return bit

    def _first(self, known: Known, transition: str) -> bool:
        bit = self._bit(transition)
        if not bit or known.bits & bit:
            return False
        if known.bits.bit_count() >= MOST_BITS_EACH and transition != DELETED:
            self.left_out += 1
            return False
        known.bits |= bit
        return True


def _labelled(meta: Meta) -> str | None:
    labels = meta.labels or {}
    return next((labels[name] for name in LABELS if labels.get(name)), None)


def _row(known: Known, meta: Meta, step: Step, sight: Sight) -> records.Seen:
    return records.Seen(
        resource=known.scope.resource,
        transition=step.transition,
        uid=meta.uid,
        name=meta.name,
        namespace=meta.namespace,
        arrival_ns=sight.arrival_ns,
        kind=known.scope.kind or None,
        workload=known.workload,
        owner=known.owner,
        owner_name=known.owner_name,
        server=step.server,
        resource_version=meta.resourceVersion or None,
        session=sight.session,
        gap=sight.gap,
        node=step.node,
        reason=step.reason,
    )


def steps_of(maker: Callable[[Any], Iterator[Step]], thing: Any) -> list[Step]:
    """All steps of an object, in order."""
    return list(maker(thing))
