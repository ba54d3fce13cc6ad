"""What a cluster's lists say of workloads now, joined as the old sampler joins, but for its traps. Pure.

Kept: whose an object is (labels `release`, `job-name`, `training.kubeflow.org/job-name`), and which times count.
Otherwise: objects that are nobody's are counted and left alone; a list that the cluster lacks is no error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from workbench.scaletest import times
from workbench.scaletest.upstream.chain import FALLBACKS, FIELDS, REQUIRED, Milestone

Json = dict[str, Any]
POD_LABELS = ("release", "job-name", "training.kubeflow.org/job-name")
_GROUP_LABELS = ("release", "workloadName")
_EVICTED = ("preempted", "reclaim")
_GROUP = re.compile(r"\bpg-[\w.-]{1,250}")
_PVC_EVENTS: dict[str, Milestone] = {"ExternalProvisioning": "pvc_request", "ProvisioningSucceeded": "pvc_bind"}


@dataclass
class Snapshot:
    """Lists of one namespace, put together by workload.

    Attributes
    ----------
    milestones
        Per workload: seconds since 1970 of each milestone that was found.
    foreign
        Objects that no workload can be found for, by what they are.
    short
        Workloads with fewer pods than their pod group wants: their last pod is still to come.
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

    def rows(self) -> list[dict[str, Any]]:
        """Complete workloads as rows of `upstream_jobs` without their submission."""
        return [
            {
                "name": name,
                "namespace": self.namespace,
                **{f"{one}_at_s": self.milestones[name].get(one) for one in FIELDS},
            }
            for name in self.complete
        ]


def joined(
    namespace: str,
    *,
    workloads: Iterable[Json],
    jobs: Iterable[Json],
    pods: Iterable[Json],
    groups: Iterable[Json],
    events: Iterable[Json] = (),
) -> Snapshot:
    """Put the lists together.

    Parameters
    ----------
    workloads, jobs, pods, groups, events
        Objects as the API gives them; anything odd in them is passed over.
    """
    found = Snapshot(namespace)
    lists = {"workloads": list(workloads), "jobs": list(jobs), "pods": list(pods), "pod groups": list(groups)}
    found.counts = {what: len(items) for what, items in lists.items()}
    for one in lists["workloads"]:
        _put(found.milestones.setdefault(_workload_name(one), {}), "workload", _created(one))
    for one in lists["jobs"]:
        _add(found, "job", _name(one), {"job": _created(one)})
    _add_pods(found, lists["pods"])
    by_group = {}
    made = Counter(_label(one, POD_LABELS) or "" for one in lists["pods"])
    for one in lists["pod groups"]:
        by_group[_name(one)] = owner = _label(one, _GROUP_LABELS) or ""
        _add(found, "pod group", owner, {"podgroup": _created(one)})
        if owner in found.milestones and made[owner] < _wanted(one):
            found.short.append(owner)
    _add_events(found, events, by_group, _claims(lists["pods"]))
    return found


def group_named(message: str) -> str | None:
    """The pod group that an eviction was for: the last one named, for the first may be whose pod it was.

    Examples
    --------
    >>> group_named("Pod runai-a/pg-0 was preempted by higher priority job runai-a/pg-j-1.")
    'pg-j-1'
    """
    named = _GROUP.findall(message[:4000])
    return named[-1].rstrip(".") if named else None


def owner_names(
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
        *((one, _name(one)) for one in jobs),
        *((one, _label(one, POD_LABELS) or "") for one in pods),
        *((one, _label(one, _GROUP_LABELS) or "") for one in groups),
    ]
    found = {str((one.get("metadata") or {}).get("uid")): name for one, name in named if name in shot.milestones}
    claims = {f"claim/{claim}": name for claim, name in _claims(pods).items() if name in shot.milestones}
    return found | claims


def _add_pods(found: Snapshot, pods: list[Json]) -> None:
    by_workload: dict[str, list[Json]] = defaultdict(list)
    for one in pods:
        by_workload[_label(one, POD_LABELS) or ""].append(one)
    for name, mine in by_workload.items():
        if name not in found.milestones:
            found.foreign["pod"] += len(mine)
            continue
        made = [at for at in map(_created, mine) if at is not None]
        first = min(mine, key=_name)
        at = {"first_pod": min(made, default=None), "last_pod": max(made, default=None), "decision": _decided(first)}
        _add(found, "pod", name, at)  # type: ignore[arg-type]


def _wanted(group: Json) -> int:
    """The pods that a group waits for; 0 where it does not say."""
    wanted = (group.get("spec") or {}).get("minMember")
    return wanted if isinstance(wanted, int) else 0


def _decided(pod: Json) -> int | None:
    """Scheduled, or found unschedulable: as far as the old sampler tells."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and (one.get("status") == "True" or one.get("reason")):
            return _second(one.get("lastTransitionTime"))
    return None


def _claims(pods: list[Json]) -> dict[str, str]:
    """Name of a claim -> workload whose pods mount it."""
    found = {}
    for pod in pods:
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
                found[str(claim)] = _label(pod, POD_LABELS) or ""
    return found


def _add_events(found: Snapshot, events: Iterable[Json], groups: dict[str, str], claims: dict[str, str]) -> None:
    count = 0
    for one in events:
        count += 1
        reason, message = str(one.get("reason")), str(one.get("message"))[:4000]
        at = _second(one.get("firstTimestamp")) or _second(one.get("eventTime"))
        if reason == "Evict" and any(word in message for word in _EVICTED):
            _add(found, "eviction", groups.get(group_named(message) or "", ""), {"eviction": at})
        elif reason in _PVC_EVENTS:
            claim = str((one.get("involvedObject") or {}).get("name"))
            _add(found, "volume", claims.get(claim, ""), {_PVC_EVENTS[reason]: at})
    found.counts["events"] = count


def _add(found: Snapshot, what: str, workload: str, at: dict[Milestone, int | None]) -> None:
    mine = found.milestones.get(workload)
    if mine is None:
        found.foreign[what] += 1
        return
    for milestone, second in at.items():
        _put(mine, milestone, second)


def _put(at: dict[Milestone, int], milestone: Milestone, second: int | None) -> None:
    if second is not None:
        at[milestone] = min(second, at.get(milestone, second))


def _workload_name(one: Json) -> str:
    """spec.name.value: old command lines put a date behind metadata.name."""
    given = (one.get("spec") or {}).get("name")
    value = given.get("value") if isinstance(given, dict) else None
    return str(value) if value else _name(one)


def _name(one: Json) -> str:
    return str((one.get("metadata") or {}).get("name", ""))


def _created(one: Json) -> int | None:
    return _second((one.get("metadata") or {}).get("creationTimestamp"))


def _label(one: Json, keys: tuple[str, ...]) -> str | None:
    labels = (one.get("metadata") or {}).get("labels") or {}
    return next((str(labels[key]) for key in keys if labels.get(key)), None)


def _second(text: object) -> int | None:
    found = times.stamp(text)
    return None if found is None else found.ns // times.NS
