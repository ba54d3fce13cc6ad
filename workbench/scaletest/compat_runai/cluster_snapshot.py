"""Snapshot of workloads joined from a cluster's lists as Run:ai's sampler joins them, and its observations."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from workbench.scaletest.cluster_api import clock
from workbench.scaletest.compat_runai.delta_chain import FALLBACKS, FIELDS, REQUIRED, Milestone
from workbench.scaletest.observation import object_ledger, run_records
from workbench.scaletest.observation.decoded_objects import Pod
from workbench.scaletest.observation.object_ledger import TRANSITIONS_BY_REASON

Json = dict[str, Any]
POD_LABELS = ("release", "job-name", "training.kubeflow.org/job-name")
_GROUP_LABELS = ("release", "workloadName")
_EVICTED = ("preempted", "reclaim")
_GROUP = re.compile(r"\bpg-[\w.-]{1,250}")
_PVC_EVENTS: dict[str, Milestone] = {"ExternalProvisioning": "pvc_request", "ProvisioningSucceeded": "pvc_bind"}


JsonObject = dict[str, Any]
Lists = dict[str, list[JsonObject]]
_RESOURCES = {"workloads": "workload", "jobs": "job", "pods": "pod", "groups": "podgroup"}


@dataclass
class Snapshot:
    """Lists of one namespace, put together by workload.

    `milestones`: Per workload: seconds since 1970 of each milestone that was found.
    `short`: Workloads with fewer pods than their pod group wants: their last pod is still to come.
    """

    namespace: str
    milestones: dict[str, dict[Milestone, int]] = field(default_factory=dict)
    foreign: Counter[str] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)
    short: list[str] = field(default_factory=list)

    @property
    def complete(self) -> list[str]:
        """Workloads with all times that sampled.json must have."""
        return [name for name, at in self.milestones.items() if all(one in at for one in REQUIRED)]

    @property
    def lacking(self) -> dict[str, int]:
        """How many workloads lack a milestone, by its key."""
        found = Counter(FIELDS[one] for at in self.milestones.values() for one in REQUIRED if one not in at)
        return dict(found)

    @property
    def measured(self) -> dict[str, int]:
        """How many workloads have a milestone of their own, not sampled.json's fallback for it, by its key."""
        return {FIELDS[one]: sum(one in at for at in self.milestones.values()) for one in FALLBACKS}

    def build_rows(self) -> list[dict[str, Any]]:
        """Complete workloads as rows of `upstream_jobs` without their submission."""
        return [
            {
                "name": name,
                "namespace": self.namespace,
                **{f"{one}_at_s": self.milestones[name].get(one) for one in FIELDS},
            }
            for name in self.complete
        ]


def join_lists(
    namespace: str,
    *,
    workloads: Iterable[Json],
    jobs: Iterable[Json],
    pods: Iterable[Json],
    groups: Iterable[Json],
    events: Iterable[Json] = (),
) -> Snapshot:
    """Put the lists together.

    `workloads`, `jobs`, `pods`, `groups`, `events`: Objects as the API gives them; anything odd in them is passed
    over.
    """
    found = Snapshot(namespace)
    lists = {"workloads": list(workloads), "jobs": list(jobs), "pods": list(pods), "pod groups": list(groups)}
    found.counts = {what: len(items) for what, items in lists.items()}
    for one in lists["workloads"]:
        _keep_earliest(found.milestones.setdefault(_workload_name(one), {}), "workload", _creation_second(one))
    for one in lists["jobs"]:
        _add_milestones(found, "job", _read_name(one), {"job": _creation_second(one)})
    _add_pods(found, lists["pods"])
    by_group = {}
    made = Counter(_find_label(one, POD_LABELS) or "" for one in lists["pods"])
    for one in lists["pod groups"]:
        by_group[_read_name(one)] = owner = _find_label(one, _GROUP_LABELS) or ""
        _add_milestones(found, "pod group", owner, {"podgroup": _creation_second(one)})
        if owner in found.milestones and made[owner] < _min_pods(one):
            found.short.append(owner)
    _add_events(found, events, by_group, _workloads_by_claim(lists["pods"]))
    return found


def find_pod_group(message: str) -> str | None:
    """The pod group that an eviction was for: the last one named, for the first may be whose pod it was.

    >>> find_pod_group("Pod runai-a/pg-0 was preempted by higher priority job runai-a/pg-j-1.")
    'pg-j-1'
    """
    named = _GROUP.findall(message[:4000])
    return named[-1].rstrip(".") if named else None


def map_owner_names(
    shot: Snapshot,
    *,
    workloads: Iterable[Json],
    jobs: Iterable[Json],
    pods: Iterable[Json],
    groups: Iterable[Json],
    events: Iterable[Json] = (),
) -> dict[str, str]:
    """uid of each object of a known workload -> the workload's name; of a claim `claim/NAME`, for events name it so."""
    del events
    pods = list(pods)
    named = [
        *((one, _workload_name(one)) for one in workloads),
        *((one, _read_name(one)) for one in jobs),
        *((one, _find_label(one, POD_LABELS) or "") for one in pods),
        *((one, _find_label(one, _GROUP_LABELS) or "") for one in groups),
    ]
    found = {str((one.get("metadata") or {}).get("uid")): name for one, name in named if name in shot.milestones}
    claims = {f"claim/{claim}": name for claim, name in _workloads_by_claim(pods).items() if name in shot.milestones}
    return found | claims


def _add_pods(found: Snapshot, pods: list[Json]) -> None:
    by_workload: dict[str, list[Json]] = defaultdict(list)
    for one in pods:
        by_workload[_find_label(one, POD_LABELS) or ""].append(one)
    for name, mine in by_workload.items():
        if name not in found.milestones:
            found.foreign["pod"] += len(mine)
            continue
        made = [at for at in map(_creation_second, mine) if at is not None]
        first = min(mine, key=_read_name)
        at = {
            "first_pod": min(made, default=None),
            "last_pod": max(made, default=None),
            "decision": _find_decision_second(first),
        }
        _add_milestones(found, "pod", name, at)  # type: ignore[arg-type]


def _min_pods(group: Json) -> int:
    """The pods that a group waits for; 0 where it does not say."""
    wanted = (group.get("spec") or {}).get("minMember")
    return wanted if isinstance(wanted, int) else 0


def _find_decision_second(pod: Json) -> int | None:
    """Scheduled, or found unschedulable: as far as the old sampler tells."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and (one.get("status") == "True" or one.get("reason")):
            return _parse_second(one.get("lastTransitionTime"))
    return None


def _workloads_by_claim(pods: list[Json]) -> dict[str, str]:
    """Name of a claim -> workload whose pods mount it."""
    found = {}
    for pod in pods:
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                found[str(claim)] = _find_label(pod, POD_LABELS) or ""
    return found


def _add_events(found: Snapshot, events: Iterable[Json], groups: dict[str, str], claims: dict[str, str]) -> None:
    count = 0
    for one in events:
        count += 1
        reason, message = str(one.get("reason")), str(one.get("message"))[:4000]
        at = _parse_second(one.get("firstTimestamp")) or _parse_second(one.get("eventTime"))
        if reason == "Evict" and any(word in message for word in _EVICTED):
            _add_milestones(found, "eviction", groups.get(find_pod_group(message) or "", ""), {"eviction": at})
        elif reason in _PVC_EVENTS:
            claim = str((one.get("involvedObject") or {}).get("name"))
            _add_milestones(found, "volume", claims.get(claim, ""), {_PVC_EVENTS[reason]: at})
    found.counts["events"] = count


def _add_milestones(found: Snapshot, what: str, workload: str, at: dict[Milestone, int | None]) -> None:
    mine = found.milestones.get(workload)
    if mine is None:
        found.foreign[what] += 1
        return
    for milestone, second in at.items():
        _keep_earliest(mine, milestone, second)


def _keep_earliest(at: dict[Milestone, int], milestone: Milestone, second: int | None) -> None:
    if second is not None:
        at[milestone] = min(second, at.get(milestone, second))


def _workload_name(one: Json) -> str:
    """spec.name.value: old command lines put a date behind metadata.name."""
    given = (one.get("spec") or {}).get("name")
    value = given.get("value") if isinstance(given, dict) else None
    return str(value) if value else _read_name(one)


def _read_name(one: Json) -> str:
    return str((one.get("metadata") or {}).get("name", ""))


def _creation_second(one: Json) -> int | None:
    return _parse_second((one.get("metadata") or {}).get("creationTimestamp"))


def _find_label(one: Json, keys: tuple[str, ...]) -> str | None:
    labels = (one.get("metadata") or {}).get("labels") or {}
    return next((str(labels[key]) for key in keys if labels.get(key)), None)


def _parse_second(text: object) -> int | None:
    found = clock.parse_timestamp(text)
    return None if found is None else found.ns // clock.NS_PER_S


def append_observations(folder: Path, lists: Lists, shot: Snapshot, arrival_ns: int) -> int:
    """Write what is new to observed.jsonl; how many lines that were."""
    path = folder / run_records.OBSERVED
    known = {
        (one.resource, one.uid, one.transition)
        for one in run_records.read_lines(path, run_records.ObservedLine)
        if isinstance(one, run_records.Seen)
    }
    new = [
        one
        for one in _iterate_observations(lists, shot, arrival_ns)
        if (one.resource, one.uid, one.transition) not in known
    ]
    with path.open("ab") as file:
        file.write(b"".join(map(run_records.encode_line, new)))
    return len(new)


def _iterate_observations(lists: Lists, shot: Snapshot, arrival_ns: int) -> Iterator[run_records.Seen]:
    owners = map_owner_names(shot, **lists)
    for what, resource in _RESOURCES.items():
        for thing in lists[what]:
            yield from _object_observations(thing, resource, owners, arrival_ns)
    for event in lists.get("events", ()):
        yield from _event_observations(event, owners, arrival_ns)


def _object_observations(
    thing: JsonObject, resource: str, owners: dict[str, str], arrival_ns: int
) -> Iterator[run_records.Seen]:
    about = thing.get("metadata") or {}
    uid = str(about.get("uid", ""))
    if uid not in owners:
        return
    references = about.get("ownerReferences") or [{}]
    for step in _object_transitions(thing, resource):
        yield run_records.Seen(
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


def _object_transitions(thing: JsonObject, resource: str) -> Iterable[object_ledger.Transition]:
    if resource != "pod":
        return [object_ledger.Transition("created", thing["metadata"].get("creationTimestamp"))]
    try:
        return object_ledger.pod_transitions(msgspec.convert(thing, Pod))
    except msgspec.ValidationError:
        return []


def _event_observations(event: JsonObject, owners: dict[str, str], arrival_ns: int) -> Iterator[run_records.Seen]:
    transition = TRANSITIONS_BY_REASON.get(str(event.get("reason")))
    about, metadata = event.get("involvedObject") or {}, event.get("metadata") or {}
    workload = owners.get(str(about.get("uid"))) or owners.get(f"claim/{about.get('name')}")
    if transition is None or workload is None:
        return
    named = find_pod_group(str(event.get("message"))) if transition == "evicted" else None
    yield run_records.Seen(
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
