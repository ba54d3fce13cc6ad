"""Looks at a cluster as observations of ours: the run folder of `submit` and `sample` can be analysed as any other.

What a list shows has happened at some time before it: each observation says so (`gap`), and its times are the server's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from workbench.scaletest import records
from workbench.scaletest.upstream.snapshot import Snapshot, group_named, owner_names
from workbench.scaletest.watching import transitions
from workbench.scaletest.watching.objects import Pod
from workbench.scaletest.watching.transitions import EVENTS

Json = dict[str, Any]
Lists = dict[str, list[Json]]
_RESOURCES = {"workloads": "workload", "jobs": "job", "pods": "pod", "groups": "podgroup"}


def append(folder: Path, lists: Lists, shot: Snapshot, arrival_ns: int) -> int:
    """Write what is new to observed.jsonl; how many lines that were.

    Parameters
    ----------
    lists
        Objects by what they are: workloads, jobs, pods, groups, events.
    arrival_ns
        Client's time of the look.
    """
    path = folder / records.OBSERVED
    known = {
        (one.resource, one.uid, one.transition)
        for one in records.read(path, records.ObservedLine)
        if isinstance(one, records.Seen)
    }
    new = [one for one in _seen(lists, shot, arrival_ns) if (one.resource, one.uid, one.transition) not in known]
    with path.open("ab") as file:
        file.write(b"".join(map(records.line, new)))
    return len(new)


def _seen(lists: Lists, shot: Snapshot, arrival_ns: int) -> Iterator[records.Seen]:
    owners = owner_names(shot, **lists)
    for what, resource in _RESOURCES.items():
        for thing in lists[what]:
            yield from _of(thing, resource, owners, arrival_ns)
    for event in lists.get("events", ()):
        yield from _of_event(event, owners, arrival_ns)


def _of(thing: Json, resource: str, owners: dict[str, str], arrival_ns: int) -> Iterator[records.Seen]:
    about = thing.get("metadata") or {}
    uid = str(about.get("uid", ""))
    if uid not in owners:
        return
    references = about.get("ownerReferences") or [{}]
    for step in _steps(thing, resource):
        yield records.Seen(
            resource=resource,
            transition=step.transition,
            uid=uid,
            name=str(about.get("name", "")),
            namespace=str(about.get("namespace", "")),
            arrival_ns=arrival_ns,
            workload=owners[uid],
            owner=references[0].get("uid"),
            owner_name=references[0].get("name"),
            server=step.server,
            gap=True,
            node=step.node,
            reason=step.reason,
        )


def _steps(thing: Json, resource: str) -> Iterable[transitions.Step]:
    if resource != "pod":
        return [transitions.Step("created", thing["metadata"].get("creationTimestamp"))]
    try:
        return transitions.of_pod(msgspec.convert(thing, Pod))
    except msgspec.ValidationError:
        return []


def _of_event(event: Json, owners: dict[str, str], arrival_ns: int) -> Iterator[records.Seen]:
    transition = EVENTS.get(str(event.get("reason")))
    about, metadata = event.get("involvedObject") or {}, event.get("metadata") or {}
    workload = owners.get(str(about.get("uid"))) or owners.get(f"claim/{about.get('name')}")
    if transition is None or workload is None:
        return
    named = group_named(str(event.get("message"))) if transition == "evicted" else None
    yield records.Seen(
        resource="event",
        transition=transition,
        uid=str(metadata.get("uid", "")),
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        arrival_ns=arrival_ns,
        workload=workload,
        owner=about.get("uid"),
        owner_name=about.get("name"),
        server=event.get("eventTime") or event.get("firstTimestamp"),
        gap=True,
        reason=f"{event.get('reason')} by {named}" if named else None,
    )
