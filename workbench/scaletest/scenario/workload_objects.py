"""API objects of each kind of workload, and the requests that create them, encoded once with gaps."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.api_discovery import (
    JOBS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    PYTORCH_JOBS,
    ApiResource,
)
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.scenario_file import (
    DEFAULT_SCHEDULER,
    GANG_SCHEDULING,
    KAI_SCHEDULER,
    Scenario,
)
from workbench.scaletest.scenario.workload_entries import WorkloadEntry


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """One object to be made: `POST path` with this JSON body."""

    path: str  # such as /apis/batch/v1/namespaces/ns/jobs
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """One workload: its due time, and its requests in order (for a gang: PodGroup, then pods).

    The last request is the one whose answer counts as the workload's acknowledgement. `requests` makes the bodies when
    they are needed: 100,000 of them would not fit into memory.
    """

    index: int
    name: str
    namespace: str
    due_s: float
    spec_sha256: str
    requests: Callable[[], tuple[ObjectRequest, ...]]


_GAP = re.compile(rb'"@@workbench#([a-z_]+)@@"|@@workbench:([a-z_]+)@@')
_HASH = "hash"


def text_gap(name: str) -> str:
    """What stands in a text of an object where a workload's own value comes in."""
    return f"@@workbench:{name}@@"


def number_gap(name: str) -> str:
    """The same for a value that is a number: as a whole, without its quotes."""
    return f"@@workbench#{name}@@"


@dataclass(frozen=True)
class Body:
    """An encoded object: texts and the names of the gaps between them, in turns."""

    path: str
    suffix: str
    parts: tuple[bytes, ...]

    def fill_gaps(self, values: Mapping[str, bytes]) -> bytes:
        """The bytes of one workload's object."""
        parts: list[bytes] = list(self.parts)
        for at in range(1, len(parts), 2):
            parts[at] = values[parts[at].decode()]
        return b"".join(parts)


def compile_body(path: str, suffix: str, made: Mapping[str, Any]) -> Body:
    """Encode an object that holds gaps.

    Examples
    --------
    >>> body = compile_body("/x", "", {"metadata": {"name": text_gap("name")}, "spec": {"n": number_gap("index")}})
    >>> body.fill_gaps({"name": b"a-1", "index": b"1"})
    b'{"metadata":{"name":"a-1"},"spec":{"n":1}}'
    """
    import orjson

    parts = _GAP.split(orjson.dumps(made))
    # Two groups a gap: the one that did not match is null.
    texts, names = parts[::3], [first or second for first, second in zip(parts[1::3], parts[2::3], strict=True)]
    turns = [texts[0]]
    for name, text in zip(names, texts[1:], strict=True):
        turns += [name, text]
    return Body(path, suffix, tuple(turns))


def hash_bodies(bodies: tuple[Body, ...], values: Mapping[str, bytes]) -> tuple[str, int]:
    """Hash of what is sent, and its size in bytes.

    The hash itself is in the objects, as an annotation: for the hash that place is empty.
    """
    found, size = hashlib.sha256(), 0
    empty = {**values, _HASH: b""}
    for body in bodies:
        filled = body.fill_gaps(empty)
        found.update(filled)
        size += len(filled) + 64 * body.parts[1::2].count(_HASH.encode())
    return found.hexdigest(), size


def build_requests(
    bodies: tuple[Body, ...], values: Mapping[str, bytes], name: str, spec_sha256: str
) -> tuple[ObjectRequest, ...]:
    """The requests of one workload, in order."""
    full = {**values, _HASH: spec_sha256.encode()}
    return tuple(ObjectRequest(body.path, name + body.suffix, body.fill_gaps(full)) for body in bodies)


KWOK_NODE = "kwok.x-k8s.io/node"
# kwok ends a pod when its stage `pod-complete` says so. Its "general" stages read these two from the pod, and wait a
# random time between them: the same value twice is that value. (kwokctl's default stages read neither.)
DELAY = "pod-complete.stage.kwok.x-k8s.io/delay"
JITTER = "pod-complete.stage.kwok.x-k8s.io/jitter-delay"
GPU = "nvidia.com/gpu"
GPU_FRACTION = "gpu-fraction"
QUEUE = "kai.scheduler/queue"
POD_GROUP = "pod-group-name"
# Cannot be pulled: should such a pod ever reach a node that exists, nothing runs there.
NO_IMAGE = "simulated.invalid/nothing:none"
_GRACE_S = 600
_RETRIES = 3
_PLURALS = {"RayCluster": "rayclusters", "Deployment": "deployments"}
Json = dict[str, Any]


@dataclass(frozen=True)
class PlanConditions:
    """What all objects of one plan have in common."""

    scenario: Scenario
    run: str
    scheduler: str

    @property
    def deadline_s(self) -> int:
        """When the cluster itself ends what a dead client left behind."""
        return math.ceil(self.scenario.limits.wall_clock_s) + _GRACE_S

    @property
    def kai(self) -> bool:
        """The pods go to KAI."""
        return self.scheduler == KAI_SCHEDULER

    @property
    def native_gangs(self) -> bool:
        """Gangs get a PodGroup of Kubernetes' own."""
        return self.scheduler == GANG_SCHEDULING

    @property
    def scheduler_name(self) -> str:
        """schedulerName of the pods."""
        return DEFAULT_SCHEDULER if self.native_gangs else self.scheduler


def build_resource_path(api_version: str, plural: str, namespace: str | None = None) -> str:
    """Path of a kind's collection.

    Examples
    --------
    >>> build_resource_path("v1", "pods", "a"), build_resource_path("batch/v1", "jobs", "a")
    ('/api/v1/namespaces/a/pods', '/apis/batch/v1/namespaces/a/jobs')
    """
    group, _, version = api_version.rpartition("/")
    return ApiResource(group, version, plural).path(namespace or "")


def find_plural(kind: str, given: str | None = None) -> str:
    """The API's name of a kind: the given one, or the kind in lower case with an s."""
    return given or _PLURALS.get(kind) or kind.lower() + ("es" if kind.endswith("s") else "s")


def build_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    """Objects of one workload of an entry, in the order of their requests: resource, suffix of the name, object."""
    return _BUILDERS[entry.kind](entry, namespace, conditions)


def build_bodies(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> tuple[Body, ...]:
    """Request bodies for one workload of an entry, in order, with gaps."""
    return tuple(
        compile_body(resource.path(namespace), suffix, made)
        for resource, suffix, made in build_objects(entry, namespace, conditions)
    )


def list_resources(entry: WorkloadEntry, scenario: Scenario) -> set[ApiResource]:
    """Resources that workloads of an entry are made of, on any of the scenario's schedulers."""
    plans = (PlanConditions(scenario, "", scheduler) for scheduler in scenario.schedulers)
    return {resource for plan in plans for resource, _, _ in build_objects(entry, scenario.namespaces[0], plan)}


def _build_labels(entry: WorkloadEntry, conditions: PlanConditions) -> dict[str, str]:
    queue = {QUEUE: entry.queue} if conditions.kai else {}
    own = object_names.build_labels(conditions.run, text_gap("name"), 0) | {object_names.STEP: text_gap("step")}
    return queue | entry.labels | own


def _build_metadata(entry: WorkloadEntry, namespace: str, conditions: PlanConditions, suffix: str = "") -> Json:
    return {
        "name": text_gap("name") + suffix,
        "namespace": namespace,
        "labels": _build_labels(entry, conditions),
        "annotations": {object_names.SPEC_HASH: text_gap("hash")},
    }


def _build_pod_annotations(entry: WorkloadEntry) -> dict[str, str]:
    made = {} if entry.lifetime is None else {DELAY: text_gap("lifetime"), JITTER: text_gap("lifetime")}
    if entry.fraction is not None:
        made[GPU_FRACTION] = f"{entry.fraction:g}"
    return made


def _build_pod_spec(entry: WorkloadEntry, conditions: PlanConditions, *, deadline: bool) -> Json:
    resources: Json = {"requests": {"cpu": f"{round(entry.cpus * 1000)}m", "memory": str(entry.memory)}}
    if entry.fraction is None and entry.gpus:
        resources["limits"] = {GPU: str(entry.gpus)}
    container: Json = {"name": "main", "image": entry.image or NO_IMAGE, "resources": resources}
    if entry.image is not None:
        container["command"] = ["sleep", "infinity" if entry.lifetime is None else text_gap("lifetime_s")]
    # 0 on a real node would forget a container that still runs.
    grace_s = 1 if conditions.scenario.allow_real_nodes else 0
    spec: Json = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": grace_s}
    if deadline:
        spec["activeDeadlineSeconds"] = conditions.deadline_s
    return _complete_pod_spec(spec, entry, conditions)


def _complete_pod_spec(spec: Json, entry: WorkloadEntry, conditions: PlanConditions) -> Json:
    """A pod's specification, given its scheduler, its class, no rights, and the fence around simulated nodes."""
    spec["schedulerName"] = conditions.scheduler_name
    spec["automountServiceAccountToken"] = False
    # The entry alone says who gives way: what a template says itself is not looked at before the test.
    for field in ("priorityClassName", "priority", "preemptionPolicy"):
        spec.pop(field, None)
    if entry.priority is not None:
        spec["priorityClassName"] = entry.priority
    if not conditions.scenario.allow_real_nodes:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), object_names.SIMULATED: "true"}
        toleration = {"key": KWOK_NODE, "operator": "Exists", "effect": "NoSchedule"}
        spec["tolerations"] = [*(spec.get("tolerations") or []), toleration]
    return spec


def _build_pod(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions, suffix: str = "", **annotations: str
) -> Json:
    head = _build_metadata(entry, namespace, conditions, suffix)
    head["annotations"] |= _build_pod_annotations(entry) | annotations
    spec = _build_pod_spec(entry, conditions, deadline=True)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}


def _build_pod_template(entry: WorkloadEntry, conditions: PlanConditions) -> Json:
    head = {"labels": _build_labels(entry, conditions), "annotations": _build_pod_annotations(entry)}
    return {"metadata": head, "spec": _build_pod_spec(entry, conditions, deadline=False)}


def _build_pod_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    return [(PODS, "", _build_pod(entry, namespace, conditions))]


def _build_gang_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    if conditions.native_gangs and entry.pod_group:
        return _build_native_gang_objects(entry, namespace, conditions)
    has_pod_group = conditions.kai and entry.pod_group
    annotations = {POD_GROUP: text_gap("name")} if has_pod_group else {}
    suffixes = [f"-{number:04d}" for number in range(entry.pods)]
    pods = [(PODS, suffix, _build_pod(entry, namespace, conditions, suffix, **annotations)) for suffix in suffixes]
    if not has_pod_group:
        return pods
    spec: Json = {"minMember": entry.pods, "queue": entry.queue}
    if entry.priority is not None:
        spec["priorityClassName"] = entry.priority
    head = _build_metadata(entry, namespace, conditions)
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": head, "spec": spec}
    return [(POD_GROUPS, "", group), *pods]


def _build_native_gang_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    """A PodGroup that wants all of its pods at once, and pods that name it (Kubernetes 1.36, gate GangScheduling)."""
    head = _build_metadata(entry, namespace, conditions)
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": entry.pods}}}
    if entry.priority is not None:
        spec["priorityClassName"] = entry.priority
    group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": head, "spec": spec}
    made: list[tuple[ApiResource, str, Json]] = [(NATIVE_POD_GROUPS, "", group)]
    for number in range(entry.pods):
        pod = _build_pod(entry, namespace, conditions, f"-{number:04d}")
        pod["spec"]["schedulingGroup"] = {"podGroupName": text_gap("name")}
        made.append((PODS, f"-{number:04d}", pod))
    return made


def _build_job_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    spec = {
        "parallelism": entry.parallelism,
        "completions": entry.all_pods,
        # Evictions are measured as new attempts; with no retries the first one would end the Job.
        "backoffLimit": _RETRIES,
        "ttlSecondsAfterFinished": conditions.deadline_s,
        "activeDeadlineSeconds": conditions.deadline_s,
        "template": _build_pod_template(entry, conditions),
    }
    head = _build_metadata(entry, namespace, conditions)
    return [(JOBS, "", {"apiVersion": "batch/v1", "kind": "Job", "metadata": head, "spec": spec})]


def _build_pytorch_job_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    def build_replicas(count: int) -> Json:
        template = _build_pod_template(entry, conditions)
        template["spec"]["containers"][0]["name"] = "pytorch"  # required by the operator
        template["spec"].pop("restartPolicy")
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    kinds = {"Master": build_replicas(1)} | ({"Worker": build_replicas(entry.pods - 1)} if entry.pods > 1 else {})
    policy = {
        "cleanPodPolicy": "None",
        "backoffLimit": _RETRIES,
        "activeDeadlineSeconds": conditions.deadline_s,
        "ttlSecondsAfterFinished": conditions.deadline_s,
    }
    head = _build_metadata(entry, namespace, conditions)
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": kinds}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": head, "spec": spec}
    return [(PYTORCH_JOBS, "", job)]


def _build_template_objects(
    entry: WorkloadEntry, namespace: str, conditions: PlanConditions
) -> list[tuple[ApiResource, str, Json]]:
    """The user's manifest with its placeholders filled, and with our labels on it and on its pods."""
    made: Json = _fill_placeholders(
        copy.deepcopy(entry.template or {}), _placeholder_values(entry, namespace, conditions)
    )
    head = made.setdefault("metadata", {})
    own = _build_metadata(entry, namespace, conditions)
    for field in ("labels", "annotations"):
        head[field] = {**(head.get(field) or {}), **own[field]}
    head["name"], head["namespace"] = own["name"], own["namespace"]
    made.pop("status", None)
    for _, pod in manifest_rules.list_pod_templates(made, entry.pods_at):
        about = pod.setdefault("metadata", {})
        about["labels"] = {**(about.get("labels") or {}), **_build_labels(entry, conditions)}
        about["annotations"] = {**(about.get("annotations") or {}), **_build_pod_annotations(entry)}
        _complete_pod_spec(pod["spec"], entry, conditions)
    if made["kind"] == "Job":
        for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
            made["spec"].setdefault(field, conditions.deadline_s)
    if made["kind"] == "Pod":
        made["spec"].setdefault("activeDeadlineSeconds", conditions.deadline_s)
    group, _, version = str(made["apiVersion"]).rpartition("/")
    return [(ApiResource(group, version, find_plural(str(made["kind"]), entry.plural)), "", made)]


# One entry per kind: a new kind needs its builder here, and its fields in `workload_entries`.
_BUILDERS: dict[str, Callable[[WorkloadEntry, str, PlanConditions], list[tuple[ApiResource, str, Json]]]] = {
    "Pod": _build_pod_objects,
    "Gang": _build_gang_objects,
    "Job": _build_job_objects,
    "PyTorchJob": _build_pytorch_job_objects,
    "Template": _build_template_objects,
}


def _placeholder_values(entry: WorkloadEntry, namespace: str, conditions: PlanConditions) -> Json:
    lives = entry.lifetime is not None
    return {
        "name": text_gap("name"),
        "namespace": namespace,
        "run": conditions.run,
        "index": number_gap("index"),
        "step": number_gap("step"),
        "gpus": entry.gpus if entry.fraction is None else 0,
        "fraction": entry.fraction or 0,
        "cpus": entry.cpus,
        "memory": entry.memory,
        "pods": entry.pods,
        "workers": max(entry.pods - 1, 0),
        "queue": entry.queue,
        "priority": entry.priority or "",
        "scheduler": conditions.scheduler_name,
        "lifetime_s": number_gap("lifetime_s") if lives else conditions.deadline_s,
        "deadline_s": conditions.deadline_s,
        "labels": _build_labels(entry, conditions),
    }


def _fill_placeholders(value: Any, values: Json) -> Any:
    """Placeholders are filled in the parsed manifest: no value can become a key or a second object."""
    if isinstance(value, dict):
        return {_fill_text(key, values): _fill_placeholders(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_placeholders(item, values) for item in value]
    if not isinstance(value, str):
        return value
    whole = manifest_rules.PLACEHOLDER.fullmatch(value)
    if whole and "|" not in whole[1]:
        return copy.deepcopy(values[whole[1]])
    return _fill_text(value, values)


def _fill_text(text: str, values: Json) -> str:
    """Inside a text, a number's gap keeps the quotes around it."""
    return manifest_rules.PLACEHOLDER.sub(lambda found: str(values[found[1].split("|")[0]]).replace("#", ":"), text)
