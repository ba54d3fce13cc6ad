"""Snapshot of workloads joined from a cluster's lists as Run:ai's sampler joins them, and its observations."""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from workbench.scaletest.cluster_api import connection
from workbench.scaletest.compat_runai.delta_chain import FALLBACKS, FIELDS, REQUIRED, Milestone
from workbench.scaletest.observation import object_ledger, run_records
from workbench.scaletest.observation.object_ledger import TRANSITIONS_BY_REASON, Pod

Json = dict[str, Any]
# Objects of one namespace as the API gives them, by list: workloads, jobs, pods, groups (Run:ai's pod groups) and
# events, the last of which may be missing.
Lists = dict[str, list[Json]]
POD_LABELS = ("release", "job-name", "training.kubeflow.org/job-name")
_GROUP_LABELS = ("release", "workloadName")
_EVICTED = ("preempted", "reclaim")
_GROUP = re.compile(r"\bpg-[\w.-]{1,250}")
_PVC_EVENTS: dict[str, Milestone] = {"ExternalProvisioning": "pvc_request", "ProvisioningSucceeded": "pvc_bind"}

# List -> resource of its observations.
_RESOURCES = {"workloads": "workload", "jobs": "job", "pods": "pod", "groups": "podgroup"}


@dataclass
class Snapshot:
    """Lists of one namespace, put together by workload.

    `milestones`: Per workload: seconds since 1970 of each milestone that was found.
    `foreign`: Number of objects by kind that belong to no workload of the namespace.
    `counts`: Length of each list.
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
        return [
            name for name, reached in self.milestones.items() if all(milestone in reached for milestone in REQUIRED)
        ]

    @property
    def lacking(self) -> dict[str, int]:
        """Number of workloads that lack each milestone."""
        counts = Counter(
            FIELDS[milestone]
            for reached in self.milestones.values()
            for milestone in REQUIRED
            if milestone not in reached
        )
        return dict(counts)

    @property
    def measured(self) -> dict[str, int]:
        """Number of workloads for which each milestone was measured, and not filled in from another one."""
        return {
            FIELDS[milestone]: sum(milestone in reached for reached in self.milestones.values())
            for milestone in FALLBACKS
        }

    def build_rows(self) -> list[dict[str, Any]]:
        """Complete workloads as rows of `upstream_jobs` without their submission."""
        return [
            {
                "name": name,
                "namespace": self.namespace,
                **{f"{milestone}_at_s": self.milestones[name].get(milestone) for milestone in FIELDS},
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
    snapshot = Snapshot(namespace)
    lists = {"workloads": list(workloads), "jobs": list(jobs), "pods": list(pods), "pod groups": list(groups)}
    lists["events"] = list(events)
    snapshot.counts = {kind: len(items) for kind, items in lists.items()}
    for manifest in lists["workloads"]:
        second = _creation_second(manifest)
        _keep_earliest(snapshot.milestones.setdefault(_workload_name(manifest), {}), "workload", second)
    for manifest in lists["jobs"]:
        _add_milestones(snapshot, "job", _read_name(manifest), {"job": _creation_second(manifest)})
    by_workload: dict[str, list[Json]] = defaultdict(list)
    for pod in lists["pods"]:
        by_workload[_find_label(pod, POD_LABELS) or ""].append(pod)
    for name, workload_pods in by_workload.items():
        if name not in snapshot.milestones:
            snapshot.foreign["pod"] += len(workload_pods)
            continue
        seconds = [second for second in map(_creation_second, workload_pods) if second is not None]
        milestones: dict[Milestone, int | None] = {
            "first_pod": min(seconds, default=None),
            "last_pod": max(seconds, default=None),
            "decision": _find_decision_second(min(workload_pods, key=_read_name)),
        }
        _add_milestones(snapshot, "pod", name, milestones)
    owners_by_group = {}
    for manifest in lists["pod groups"]:
        owners_by_group[_read_name(manifest)] = owner = _find_label(manifest, _GROUP_LABELS) or ""
        _add_milestones(snapshot, "pod group", owner, {"podgroup": _creation_second(manifest)})
        # The pods that the group waits for, where it says so.
        wanted = (manifest.get("spec") or {}).get("minMember")
        if owner in snapshot.milestones and len(by_workload.get(owner, ())) < (
            wanted if isinstance(wanted, int) else 0
        ):
            snapshot.short.append(owner)
    claims = _workloads_by_claim(lists["pods"])
    for event in lists["events"]:
        reason, message = str(event.get("reason")), str(event.get("message"))[:4000]
        second = _parse_second(event.get("firstTimestamp")) or _parse_second(event.get("eventTime"))
        if reason == "Evict" and any(word in message for word in _EVICTED):
            owner = owners_by_group.get(find_pod_group(message) or "", "")
            _add_milestones(snapshot, "eviction", owner, {"eviction": second})
        elif reason in _PVC_EVENTS:
            claim = str((event.get("involvedObject") or {}).get("name"))
            _add_milestones(snapshot, "volume", claims.get(claim, ""), {_PVC_EVENTS[reason]: second})
    return snapshot


def find_pod_group(message: str) -> str | None:
    """The pod group that an eviction was for: the last one named, for the first may be whose pod it was.

    >>> find_pod_group("Pod runai-a/pg-0 was preempted by higher priority job runai-a/pg-j-1.")
    'pg-j-1'
    """
    named = _GROUP.findall(message[:4000])
    return named[-1].rstrip(".") if named else None


def map_owner_names(snapshot: Snapshot, lists: Lists) -> dict[str, str]:
    """uid of each object of a known workload -> the workload's name; of a claim `claim/NAME`, for events name it so."""
    named = [
        *((manifest, _workload_name(manifest)) for manifest in lists["workloads"]),
        *((manifest, _read_name(manifest)) for manifest in lists["jobs"]),
        *((manifest, _find_label(manifest, POD_LABELS) or "") for manifest in lists["pods"]),
        *((manifest, _find_label(manifest, _GROUP_LABELS) or "") for manifest in lists["groups"]),
    ]
    names_by_uid = {
        str((manifest.get("metadata") or {}).get("uid")): name
        for manifest, name in named
        if name in snapshot.milestones
    }
    claims = _workloads_by_claim(lists["pods"])
    return names_by_uid | {f"claim/{claim}": name for claim, name in claims.items() if name in snapshot.milestones}


def _find_decision_second(pod: Json) -> int | None:
    """Scheduled, or found unschedulable: as far as the old sampler tells."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and (condition.get("status") == "True" or condition.get("reason")):
            return _parse_second(condition.get("lastTransitionTime"))
    return None


def _workloads_by_claim(pods: list[Json]) -> dict[str, str]:
    """Map each volume claim to the workload whose pods mount it."""
    workloads = {}
    for pod in pods:
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                workloads[str(claim)] = _find_label(pod, POD_LABELS) or ""
    return workloads


def _add_milestones(snapshot: Snapshot, kind: str, workload: str, milestones: dict[Milestone, int | None]) -> None:
    """Add to a workload the milestones that an object of a kind shows; unknown workloads are counted as foreign."""
    reached = snapshot.milestones.get(workload)
    if reached is None:
        snapshot.foreign[kind] += 1
        return
    for milestone, second in milestones.items():
        _keep_earliest(reached, milestone, second)


def _keep_earliest(reached: dict[Milestone, int], milestone: Milestone, second: int | None) -> None:
    if second is not None:
        reached[milestone] = min(second, reached.get(milestone, second))


def _workload_name(manifest: Json) -> str:
    """spec.name.value: old command lines put a date behind metadata.name."""
    name = (manifest.get("spec") or {}).get("name")
    value = name.get("value") if isinstance(name, dict) else None
    return str(value) if value else _read_name(manifest)


def _read_name(manifest: Json) -> str:
    return str((manifest.get("metadata") or {}).get("name", ""))


def _creation_second(manifest: Json) -> int | None:
    return _parse_second((manifest.get("metadata") or {}).get("creationTimestamp"))


def _find_label(manifest: Json, keys: tuple[str, ...]) -> str | None:
    labels = (manifest.get("metadata") or {}).get("labels") or {}
    return next((str(labels[key]) for key in keys if labels.get(key)), None)


def _parse_second(text: object) -> int | None:
    timestamp = connection.parse_timestamp(text)
    return None if timestamp is None else timestamp.ns // connection.NS_PER_S


def append_observations(folder: Path, lists: Lists, snapshot: Snapshot, arrival_ns: int) -> int:
    """Write the transitions that are new to observed.jsonl; how many lines that were.

    All have `gap=True`: a look shows that a transition has happened, and not when, so `arrival_ns` is an upper bound.
    """
    path = folder / run_records.OBSERVED
    keys = {
        (line.resource, line.uid, line.transition)
        for line in run_records.read_lines(path, run_records.ObservedLine)
        if isinstance(line, run_records.Seen)
    }
    owners = map_owner_names(snapshot, lists)
    found = [
        observation
        for kind, resource in _RESOURCES.items()
        for manifest in lists[kind]
        for observation in _object_observations(manifest, resource, owners, arrival_ns)
    ]
    for event in lists.get("events", ()):
        found += _event_observations(event, owners, arrival_ns)
    new = [seen for seen in found if (seen.resource, seen.uid, seen.transition) not in keys]
    with run_records.open_observations(path) as file:
        for line in new:
            file.put(line)
    return len(new)


def _object_observations(
    manifest: Json, resource: str, owners: dict[str, str], arrival_ns: int
) -> Iterator[run_records.Seen]:
    """Yield a record for each transition that an object's manifest shows; `owners` maps the uid to its workload."""
    metadata = manifest.get("metadata") or {}
    uid = str(metadata.get("uid", ""))
    if uid not in owners:
        return
    references = metadata.get("ownerReferences") or [{}]
    steps: Iterable[object_ledger.Transition] = ()
    if resource == "pod":
        with contextlib.suppress(msgspec.ValidationError):
            # Through JSON: parts of a pod are kept undecoded.
            steps = object_ledger.pod_transitions(msgspec.json.decode(msgspec.json.encode(manifest), type=Pod))
    else:
        steps = [object_ledger.Transition("created", metadata.get("creationTimestamp"))]
    for step in steps:
        yield run_records.Seen(
            resource=resource,
            transition=step.transition,
            uid=uid,
            name=str(metadata.get("name", "")),
            namespace=str(metadata.get("namespace", "")),
            arrival_ns=arrival_ns,
            workload=owners[uid],
            owner=references[0].get("uid"),
            owner_name=references[0].get("name"),
            server=step.server,
            gap=True,
            node=step.node,
            reason=step.reason,
        )


def _event_observations(event: Json, owners: dict[str, str], arrival_ns: int) -> Iterator[run_records.Seen]:
    """Yield the record of an event, if its reason is known and its object belongs to a workload of the run."""
    transition = TRANSITIONS_BY_REASON.get(str(event.get("reason")))
    subject, metadata = event.get("involvedObject") or {}, event.get("metadata") or {}
    workload = owners.get(str(subject.get("uid"))) or owners.get(f"claim/{subject.get('name')}")
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
        owner=subject.get("uid"),
        owner_name=subject.get("name"),
        server=event.get("eventTime") or event.get("firstTimestamp"),
        gap=True,
        reason=f"{event.get('reason')} by {named}" if named else None,
    )
