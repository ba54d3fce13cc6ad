"""What an object's state says has happened to it: pure functions from an object to its transitions.

Each gives all that can be read from the state; what was seen before is left out by `known`. The server's time is kept
as it was written, and null where the object does not tell it: phases have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from workbench.scaletest.watching.objects import (
    MOST_CONDITIONS,
    Condition,
    Event,
    Pod,
    Thing,
    bind_spec_of,
    status_of,
)

_WORD = re.compile(r"[^a-z0-9]+")
_PREEMPTOR = re.compile(r"(?:preempted|reclaimed) by (?:pod |podgroup )?([\w./-]{1,253})", re.IGNORECASE)
_POD_GROUP = re.compile(r"\bpg-[\w.-]{1,200}")
MOST_REASON = 200


class Step(NamedTuple):
    """One transition: its name, the server's time of it, why, and where to."""

    transition: str
    server: str | None = None
    reason: str | None = None
    node: str | None = None


def of_pod(pod: Pod) -> Iterator[Step]:
    """created, scheduled or unschedulable, running, ready, evicted, succeeded, failed."""
    yield Step("created", pod.metadata.creationTimestamp)
    status = pod.status
    if status is None:
        return
    node = pod.spec.nodeName if pod.spec is not None else None
    for one in status.conditions or ():
        if one.type == "PodScheduled":
            yield from _scheduling(one, node)
        elif one.type == "Ready" and one.status == "True":
            yield Step("ready", one.lastTransitionTime)
        elif one.type == "DisruptionTarget" and one.status == "True":
            yield Step("evicted", one.lastTransitionTime, _short(one.reason))
    if status.reason in ("Evicted", "Preempting", "Preempted"):
        yield Step("evicted", None, status.reason)
    yield from _phase(pod, node)


def _scheduling(one: Condition, node: str | None) -> Iterator[Step]:
    if one.status == "True":
        yield Step("scheduled", one.lastTransitionTime, None, node)
    elif node is not None:
        # Bound, but the scheduler never heard that it was, as when the API server dies after it: it then writes that
        # scheduling failed, at a time that says nothing of the binding.
        yield Step("scheduled", None, _short(one.reason), node)
    elif one.status == "False" and one.reason != "SchedulingGated":
        # Not a scheduling decision: the pod is tried again.
        yield Step("unschedulable", one.lastTransitionTime, _short(one.reason))
    elif one.status == "False":
        yield Step("gated", one.lastTransitionTime, one.reason)


def _phase(pod: Pod, node: str | None) -> Iterator[Step]:
    status = pod.status
    if status is None or status.phase not in ("Running", "Succeeded", "Failed"):
        return
    states = [one.state for one in status.containerStatuses or () if one.state is not None]
    if status.phase == "Running":
        started = [one.running.startedAt for one in states if one.running and one.running.startedAt]
        # A pod runs once the last of its containers does. ISO texts of one form are ordered as times are.
        yield Step("running", max(started, default=None), None, node)
        return
    # It has run, even if nobody saw it: the containers still tell since when.
    begun = [one.terminated.startedAt for one in states if one.terminated and one.terminated.startedAt]
    if begun:
        yield Step("running", max(begun), None, node)
    ended = [one.terminated.finishedAt for one in states if one.terminated and one.terminated.finishedAt]
    yield Step(status.phase.lower(), max(ended, default=None), _short(status.reason))


def of_job(job: Thing) -> Iterator[Step]:
    """created, suspended, resumed, complete, failed."""
    yield Step("created", job.metadata.creationTimestamp)
    for one in status_of(job).conditions or ():
        if one.type == "Suspended":
            yield Step("suspended" if one.status == "True" else "resumed", one.lastTransitionTime, _short(one.reason))
        elif one.type in ("Complete", "Failed") and one.status == "True":
            yield Step(one.type.lower(), one.lastTransitionTime, _short(one.reason))


def of_workload(thing: Thing) -> Iterator[Step]:
    """created, and each condition that is True and each phase, in lower case."""
    yield Step("created", thing.metadata.creationTimestamp)
    status = status_of(thing)
    conditions = [*(status.conditions or ()), *(status.schedulingConditions or ())]
    for one in conditions[:MOST_CONDITIONS]:
        if one.status == "True" and (word := _word(one.type)):
            yield Step(word, one.lastTransitionTime, _short(one.reason))
    if status.phase and (word := _word(status.phase)):
        yield Step(word, None, _short(status.reason))


def of_bind_request(thing: Thing) -> Iterator[Step]:
    """created, bound, failed."""
    node = bind_spec_of(thing).selectedNode
    yield Step("created", thing.metadata.creationTimestamp, None, node)
    phase = status_of(thing).phase
    if phase == "Succeeded":
        yield Step("bound", None, None, node)
    elif phase == "Failed":
        yield Step("failed", None, _short(status_of(thing).reason), node)


def of_claim(thing: Thing) -> Iterator[Step]:
    """created, pvc-bound."""
    yield Step("created", thing.metadata.creationTimestamp)
    if status_of(thing).phase == "Bound":
        yield Step("pvc-bound")


EVENTS = {
    "Scheduled": "scheduled",
    "FailedScheduling": "failed-scheduling",
    "Unschedulable": "failed-scheduling",
    "Evict": "evicted",
    "Evicted": "evicted",
    "Preempted": "evicted",
    "ExternalProvisioning": "pvc-requested",
    "ProvisioningSucceeded": "pvc-bound",
}


def of_event(event: Event) -> Iterator[Step]:
    """What the event's reason says of what it is about; nothing for all other reasons."""
    transition = EVENTS.get(event.reason or "")
    if transition is None:
        return
    server = event.eventTime or event.deprecatedFirstTimestamp or event.metadata.creationTimestamp
    yield Step(transition, server, _reason(event, transition))


def _reason(event: Event, transition: str) -> str | None:
    note = (event.note or "")[:4000]
    if transition != "evicted":
        return None if transition == "scheduled" else _short(note or event.reason)
    found = _POD_GROUP.search(note) or _PREEMPTOR.search(note)
    if found is None:
        return _short(event.reason)
    return f"{event.reason} by {found.group(found.lastindex or 0)}"[:MOST_REASON]


def _word(text: str) -> str:
    """A name in lower case, of letters, digits and hyphens."""
    return _WORD.sub("-", text.lower()).strip("-")[:64]


def _short(text: str | None) -> str | None:
    return " ".join(text.split())[:MOST_REASON] if text else None
