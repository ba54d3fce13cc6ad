"""State of a cluster, of its API objects: nodes, pods, priority classes, and Kueue's queues and workloads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.core.errors import InputError
from workbench.scaletest.cluster_api.api_discovery import keeps_pods_off
from workbench.scaletest.cluster_api.connection import NS_PER_S, parse_timestamp
from workbench.scaletest.observation.watch_targets import KEPT_LABELS
from workbench.scaletest.scenario import template_pods
from workbench.scaletest.scenario.manifest_rules import QUEUE_LABEL
from workbench.scaletest.scenario.quantities import parse_quantity
from workbench.scaletest.start_times.cluster_state import (
    DEFAULT_SCHEDULER,
    ClusterState,
    FlavourQuotas,
    NodeRules,
    NodeState,
    PodState,
    PriorityClass,
    QueueState,
    Quota,
    Requirement,
    Taint,
    Toleration,
    WorkloadState,
)

Json = dict[str, Any]
# Kueue holds pods by gates of its own, with this prefix, until they have quota.
_KUEUE_PREFIX = "kueue.x-k8s.io/"
_KUEUE_GROUP = f"{_KUEUE_PREFIX}pod-group-name"
_TOPOLOGIES = tuple(f"{_KUEUE_PREFIX}podset-{kind}-topology" for kind in ("required", "preferred"))
_FORBIDDING = ("NoSchedule", "NoExecute")
_ENDED = ("Succeeded", "Failed")
_SERVICES = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node")
# Where a pod names the group that it is placed with: labels and annotations of several schedulers.
_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name", "pod-group-name")
# Parts of a generated name: numbers, hashes of Kubernetes' alphabet, dates.
_NUMBERS = re.compile(r"[0-9]+")
_HASH = re.compile(r"-(?=[a-z]*[0-9])[bcdfghjklmnpqrstvwxz2456789]{5,10}(?=-|$)")
# What a run records of its nodes, and what else jobs ask for though none does now.
KEPT_LABEL = re.compile(rf"{KEPT_LABELS.pattern}|kubernetes\.io/(hostname|os)|.*/sim|.*pool.*")


@dataclass
class ClusterObjects:
    """Objects of the API as they were last seen, by uid; `gone_s` says when one was deleted, in seconds since 1970."""

    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    priority_classes: dict[str, Json] = field(default_factory=dict)
    cluster_queues: dict[str, Json] = field(default_factory=dict)
    local_queues: dict[str, Json] = field(default_factory=dict)
    flavours: dict[str, Json] = field(default_factory=dict)
    kueue_workloads: dict[str, Json] = field(default_factory=dict)
    gone_s: dict[str, float] = field(default_factory=dict)


def find_family(namespace: str, name: str) -> str:
    """The name without what tells repeated workloads apart.

    >>> find_family("ml", "train-bert-20261130-00017"), find_family("ml", "eval-x7k2p")
    ('ml/train-bert', 'ml/eval')
    """
    stem = _NUMBERS.sub("", _HASH.sub("", name)).strip("-.")
    return f"{namespace}/{re.sub(r'[-.]{2,}', '-', stem) or '*'}"


def build_state(objects: ClusterObjects, *, now_s: float, span_s: float = 0.0, version: str = "") -> ClusterState:
    """The state at `now_s` (seconds since 1970) of these objects."""
    used_keys = {key for pod in objects.pods.values() for key in _list_label_keys(pod.get("spec") or {})}
    local_queues = {
        f"{_read_head(queue)[0]}/{_read_head(queue)[1]}": str((queue.get("spec") or {}).get("clusterQueue"))
        for queue in objects.local_queues.values()
    }
    classes = {_read_head(body)[1]: body for body in objects.priority_classes.values()}
    flavours = {
        _read_head(body)[1]: dict((body.get("spec") or {}).get("nodeLabels") or {})
        for body in objects.flavours.values()
    }
    used_keys |= {key for labels in flavours.values() for key in labels}
    created = [
        _read_time((node.get("metadata") or {}).get("creationTimestamp"), now_s) for node in objects.nodes.values()
    ]
    n_new = sum(at is not None and at > -span_s for at in created) if span_s else 0
    return ClusterState(
        moment=_format_moment(now_s),
        span_s=span_s,
        kubernetes_version=version,
        nodes=tuple(_read_node(node, used_keys) for uid, node in objects.nodes.items() if uid not in objects.gone_s),
        workloads=tuple(_group_pods(objects, local_queues, now_s)),
        queues=tuple(_read_queue(body) for body in objects.cluster_queues.values()),
        local_queues=local_queues,
        flavours=flavours,
        priority_classes={
            name: PriorityClass(value=int(body.get("value", 0)), preempts=body.get("preemptionPolicy") != "Never")
            for name, body in classes.items()
        },
        n_changed_nodes=n_new + len(objects.gone_s.keys() - objects.pods.keys()),
        default_priority=next((int(body["value"]) for body in classes.values() if body.get("globalDefault")), 0),
    )


def read_job(document: Json, state: ClusterState, *, where: str, namespace: str | None = None) -> WorkloadState:
    """The workload that a manifest asks for, as it would wait in this cluster from the state's moment on."""
    if not isinstance(document, dict) or not isinstance(document.get("spec"), dict):
        raise InputError("not a workload's manifest", where=where, allowed="apiVersion, kind, metadata, spec")
    pods: list[PodState] = []
    try:
        demand = template_pods.read_demand(document, None, (), {})
        for group in demand.groups:
            count = group.counts[1] if group.counts else 1
            pods += [PodState(requests=group.requests, rules=_read_rules(group.pod["spec"]))] * count
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found = " ".join(str(error).split())[:200]
        raise InputError("not a workload's manifest", where=where, found=found) from None
    if not pods:
        raise InputError(
            "no pods in the manifest",
            where=where,
            found=str(document.get("kind"))[:60],
            allowed="a Job, Pod, JobSet, …",
        )
    metadata, pod = document.get("metadata") or {}, demand.groups[0].pod
    home, labels, spec = (
        namespace or str(metadata.get("namespace") or "default"),
        metadata.get("labels") or {},
        pod["spec"],
    )
    priority = _find_priority(spec, state, where)
    queue = labels.get(QUEUE_LABEL)
    return WorkloadState(
        name=f"{home}/{metadata.get('name') or metadata.get('generateName') or 'job'}",
        family=find_family(home, str(metadata.get("name") or metadata.get("generateName") or "job")),
        created_s=0.0,
        pods=tuple(pods),
        is_gang=len(pods) > 1 and _find_group(pod) is not None,
        priority=priority.value,
        preempts=priority.preempts and spec.get("preemptionPolicy") != "Never",
        scheduler=str(spec.get("schedulerName") or DEFAULT_SCHEDULER),
        queue=None if queue is None else find_queue(str(queue), home, state),
        unread=_list_unread(spec, pod.get("metadata") or {}),
    )


def find_queue(queue: str, namespace: str, state: ClusterState) -> str:
    """ClusterQueue of a LocalQueue, or the one of this name."""
    if (found := state.local_queues.get(f"{namespace}/{queue}")) is not None:
        return found
    names = [known.name for known in state.queues]
    if queue in names:
        return queue
    allowed = [*state.local_queues, *names]
    raise InputError("no such queue", where="queue", found=f"{namespace}/{queue}", allowed=allowed or "none: no Kueue")


def _find_priority(spec: Json, state: ClusterState, where: str) -> PriorityClass:
    name = spec.get("priorityClassName")
    if name is None:
        return PriorityClass(value=int(spec.get("priority") or state.default_priority))
    if str(name) not in state.priority_classes:
        allowed = list(state.priority_classes) or "none is known"
        raise InputError(
            "no such priority class", where=f"{where}, priorityClassName", found=str(name), allowed=allowed
        )
    return state.priority_classes[str(name)]


def _read_head(body: Json) -> tuple[str, str]:
    metadata = body.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _format_moment(now_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds")


def _read_time(text: object, now_s: float) -> float | None:
    """A time in seconds from now; null where it is none."""
    time = parse_timestamp(text)
    return None if time is None else time.ns / NS_PER_S - now_s


def _read_amounts(amounts: Any) -> dict[str, float]:
    return {str(name): parse_quantity(amount) for name, amount in (amounts or {}).items()}


def _read_node(node: Json, used_keys: set[str]) -> NodeState:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = {condition.get("type"): condition.get("status") for condition in status.get("conditions") or []}
    taints = [taint for taint in spec.get("taints") or [] if taint.get("effect") in _FORBIDDING]
    labels = (node.get("metadata") or {}).get("labels") or {}
    return NodeState(
        name=_read_head(node)[1],
        offers=_read_amounts(status.get("allocatable")),
        labels={key: value for key, value in labels.items() if key in used_keys or KEPT_LABEL.fullmatch(key)},
        taints=tuple(
            Taint(key=str(taint.get("key")), value=str(taint.get("value") or ""))
            for taint in taints
            if not keeps_pods_off(str(taint.get("key")), str(taint.get("effect")))
        ),
        is_open=conditions.get("Ready") == "True"
        and not spec.get("unschedulable")
        and not any(keeps_pods_off(str(taint.get("key")), str(taint.get("effect"))) for taint in taints),
    )


def _list_terms(spec: Json) -> list[Json]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return list((affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or [])


def _list_label_keys(spec: Json) -> list[str]:
    """Keys of node labels that a pod asks for."""
    terms = _list_terms(spec)
    return [
        *(spec.get("nodeSelector") or {}),
        *(part["key"] for term in terms for part in term.get("matchExpressions") or []),
    ]


def _read_rules(spec: Json) -> NodeRules:
    tolerations = [one for one in spec.get("tolerations") or [] if one.get("effect") in (None, "", *_FORBIDDING)]
    return NodeRules(
        selector=dict(spec.get("nodeSelector") or {}),
        terms=tuple(
            tuple(
                Requirement(
                    key=part["key"], operator=part["operator"], values=tuple(map(str, part.get("values") or ()))
                )
                for part in term.get("matchExpressions") or []
            )
            for term in _list_terms(spec)
        ),
        tolerations=tuple(
            Toleration(
                key=str(one.get("key") or ""),
                value=None if one.get("operator") == "Exists" else str(one.get("value") or ""),
            )
            for one in tolerations
        ),
    )


def _list_unread(spec: Json, metadata: Json) -> tuple[str, ...]:
    """Rules of a pod that narrow where it may go and are not simulated."""
    affinity = spec.get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found = {
        "affinity to other pods": any(
            (affinity.get(kind) or {}).get(required) for kind in ("podAffinity", "podAntiAffinity")
        ),
        "topology spread": any(
            one.get("whenUnsatisfiable") == "DoNotSchedule" for one in spec.get("topologySpreadConstraints") or []
        ),
        "resource claims": bool(spec.get("resourceClaims")),
        "volume claims": any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or []),
        "fields of nodes": any(term.get("matchFields") for term in _list_terms(spec)),
        "scheduling gates": any(
            not str(gate.get("name")).startswith(_KUEUE_PREFIX) for gate in spec.get("schedulingGates") or []
        ),
        "Kueue's topology": any(name in (metadata.get("annotations") or {}) for name in _TOPOLOGIES),
    }
    return tuple(name for name, is_there in found.items() if is_there)


def _find_group(pod: Json) -> str | None:
    """Name of the group that a pod is placed with; null for one that is placed alone."""
    metadata = pod.get("metadata") or {}
    named = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    own = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return next((str(name) for name in (own, *(named.get(label) for label in _GROUP_LABELS)) if name), None)


def _find_owner(pod: Json) -> tuple[str, str]:
    """Kind and name of what controls a pod, or Pod and its own."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or []
    owner = next((one for one in owners if one.get("controller")), None)
    return (str(owner["kind"]), str(owner["name"])) if owner else ("Pod", _read_head(pod)[1])


def _find_workload(pod: Json) -> str:
    """Name of a pod's workload: its group, its group of Kueue, or its owner."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return _find_group(pod) or labels.get(_KUEUE_GROUP) or _find_owner(pod)[1]


def _group_pods(objects: ClusterObjects, local_queues: Mapping[str, str], now_s: float) -> Iterable[WorkloadState]:
    """Workloads of pods; of what waits for Kueue, which may have no pods yet, by Kueue's own workloads."""
    groups: dict[tuple[str, str], list[tuple[str, Json]]] = defaultdict(list)
    for uid, pod in objects.pods.items():
        groups[_read_head(pod)[0], _find_workload(pod)].append((uid, pod))
    for body in objects.kueue_workloads.values():
        namespace, name = _read_head(body)
        owners = (body.get("metadata") or {}).get("ownerReferences") or []
        key = namespace, name if len(owners) != 1 else str(owners[0]["name"])
        conditions = {one.get("type"): one.get("status") for one in (body.get("status") or {}).get("conditions") or []}
        if conditions.get("Finished") == "True" or conditions.get("QuotaReserved") == "True":
            continue
        groups.pop(key, None)
        queue = local_queues.get(f"{namespace}/{(body.get('spec') or {}).get('queueName')}")
        if queue is not None and (body.get("spec") or {}).get("active", True):
            yield _read_waiting(body, key, queue, now_s)
    for (namespace, name), pods in groups.items():
        states = [state for uid, pod in pods if (state := _read_pod(pod, objects.gone_s.get(uid), now_s))]
        if states:
            yield _build_workload(namespace, name, pods[0][1], states, local_queues, now_s)


def _read_waiting(body: Json, key: tuple[str, str], queue: str, now_s: float) -> WorkloadState:
    """A workload that Kueue has not let in."""
    spec = body.get("spec") or {}
    pods: list[PodState] = []
    unread: tuple[str, ...] = ()
    for part in spec.get("podSets") or []:
        template = part.get("template") or {}
        pod_spec = template.get("spec") or {}
        pods += [PodState(requests=template_pods.sum_requests(pod_spec), rules=_read_rules(pod_spec))] * int(
            part.get("count", 1)
        )
        unread += _list_unread(pod_spec, template.get("metadata") or {})
    return WorkloadState(
        name="/".join(key),
        family=find_family(*key),
        created_s=_read_time((body.get("metadata") or {}).get("creationTimestamp"), now_s) or 0.0,
        pods=tuple(pods),
        priority=int(spec.get("priority") or 0),
        queue=queue,
        unread=tuple(dict.fromkeys(unread)),
    )


def _read_pod(pod: Json, gone_s: float | None, now_s: float) -> PodState | None:
    """A pod; null for one that was deleted before it had a node."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    scheduled = next(
        (
            one
            for one in status.get("conditions") or []
            if one.get("type") == "PodScheduled" and one.get("status") == "True"
        ),
        None,
    )
    node = spec.get("nodeName")
    begun_s = None
    if node is not None:
        stamps = (
            (scheduled or {}).get("lastTransitionTime"),
            status.get("startTime"),
            (pod["metadata"]).get("creationTimestamp"),
        )
        begun_s = next((at for at in (_read_time(stamp, now_s) for stamp in stamps) if at is not None), None)
    ended_s = None if gone_s is None else gone_s - now_s
    if status.get("phase") in _ENDED:
        stops = [
            _read_time(((one.get("state") or {}).get("terminated") or {}).get("finishedAt"), now_s)
            for one in status.get("containerStatuses") or []
        ]
        known = [stop for stop in stops if stop is not None]
        ended_s = max(known) if known else ended_s if ended_s is not None else begun_s
    if ended_s is not None and begun_s is None:
        return None
    return PodState(
        requests=template_pods.sum_requests(spec),
        rules=_read_rules(spec),
        node=node,
        scheduled_s=begun_s,
        ended_s=ended_s if begun_s is None or ended_s is None else max(ended_s, begun_s),
    )


def _build_workload(
    namespace: str, name: str, pod: Json, states: list[PodState], local_queues: Mapping[str, str], now_s: float
) -> WorkloadState:
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    queue = (metadata.get("labels") or {}).get(QUEUE_LABEL)
    return WorkloadState(
        name=f"{namespace}/{name}",
        family=find_family(namespace, name),
        created_s=_read_time(metadata.get("creationTimestamp"), now_s) or 0.0,
        pods=tuple(states),
        is_gang=_find_group(pod) is not None and len(states) > 1,
        priority=int(spec.get("priority") or 0),
        preempts=spec.get("preemptionPolicy") != "Never",
        scheduler=str(spec.get("schedulerName") or DEFAULT_SCHEDULER),
        queue=None if queue is None else local_queues.get(f"{namespace}/{queue}"),
        limit_s=spec.get("activeDeadlineSeconds"),
        is_endless=_find_owner(pod)[0] in _SERVICES,
        unread=_list_unread(spec, metadata),
    )


def _read_queue(body: Json) -> QueueState:
    spec = body.get("spec") or {}
    preemption = spec.get("preemption") or {}
    return QueueState(
        name=_read_head(body)[1],
        cohort=spec.get("cohortName") or spec.get("cohort"),
        is_strict=spec.get("queueingStrategy") == "StrictFIFO",
        groups=tuple(
            tuple(
                FlavourQuotas(
                    flavour=str(flavour.get("name")),
                    quotas={
                        str(one.get("name")): Quota(
                            nominal=parse_quantity(one.get("nominalQuota", 0)),
                            borrowing=None
                            if one.get("borrowingLimit") is None
                            else parse_quantity(one["borrowingLimit"]),
                            lending=None if one.get("lendingLimit") is None else parse_quantity(one["lendingLimit"]),
                        )
                        for one in flavour.get("resources") or []
                    },
                )
                for flavour in group.get("flavors") or []
            )
            for group in spec.get("resourceGroups") or []
        ),
        within=preemption.get("withinClusterQueue") or "Never",
        reclaim=preemption.get("reclaimWithinCohort") or "Never",
        is_open=spec.get("stopPolicy", "None") == "None",
    )
