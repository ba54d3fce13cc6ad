"""The objects of each kind of workload, labelled, fenced and bounded in time; gaps where workloads differ."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

from workbench.scaletest import names
from workbench.scaletest.planning.bodies import Body, compiled, gap, number_gap
from workbench.scaletest.scenario import KAI_SCHEDULER, Scenario
from workbench.scaletest.templates import foreign
from workbench.scaletest.templates.entries import Entry

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
class Conditions:
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


def resource_path(api_version: str, plural: str, namespace: str | None = None) -> str:
    """Path of a kind's collection.

    Examples
    --------
    >>> resource_path("v1", "pods", "a"), resource_path("batch/v1", "jobs", "a")
    ('/api/v1/namespaces/a/pods', '/apis/batch/v1/namespaces/a/jobs')
    """
    head = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{head}/namespaces/{namespace}/{plural}" if namespace else f"{head}/{plural}"


def plural_of(kind: str, given: str | None = None) -> str:
    """The API's name of a kind: the given one, or the kind in lower case with an s."""
    return given or _PLURALS.get(kind) or kind.lower() + ("es" if kind.endswith("s") else "s")


def bodies(entry: Entry, namespace: str, conditions: Conditions) -> tuple[Body, ...]:
    """What is sent for one workload of an entry, in order, with gaps."""
    made: list[tuple[str, str, Json]]
    if entry.kind == "Pod":
        made = [("pods", "", _pod(entry, namespace, conditions))]
    elif entry.kind == "Gang":
        made = _gang(entry, namespace, conditions)
    elif entry.kind == "Job":
        made = [("jobs", "", _job(entry, namespace, conditions))]
    elif entry.kind == "PyTorchJob":
        made = [("pytorchjobs", "", _pytorch(entry, namespace, conditions))]
    else:
        template = _template(entry, namespace, conditions)
        made = [(plural_of(template["kind"], entry.plural), "", template)]
    return tuple(
        compiled(resource_path(one["apiVersion"], plural, namespace), suffix, one) for plural, suffix, one in made
    )


def _labels(entry: Entry, conditions: Conditions) -> dict[str, str]:
    queue = {QUEUE: entry.queue} if conditions.kai else {}
    own = names.labels(conditions.run, gap("name"), 0) | {names.STEP: gap("step")}
    return queue | entry.labels | own


def _head(entry: Entry, namespace: str, conditions: Conditions, suffix: str = "") -> Json:
    return {
        "name": gap("name") + suffix,
        "namespace": namespace,
        "labels": _labels(entry, conditions),
        "annotations": {names.SPEC_HASH: gap("hash")},
    }


def _pod_annotations(entry: Entry) -> dict[str, str]:
    made = {} if entry.lifetime is None else {DELAY: gap("lifetime"), JITTER: gap("lifetime")}
    if entry.fraction is not None:
        made[GPU_FRACTION] = f"{entry.fraction:g}"
    return made


def _pod_spec(entry: Entry, conditions: Conditions, *, deadline: bool) -> Json:
    resources: Json = {"requests": {"cpu": f"{round(entry.cpus * 1000)}m", "memory": str(entry.memory)}}
    if entry.fraction is None and entry.gpus:
        resources["limits"] = {GPU: str(entry.gpus)}
    container: Json = {"name": "main", "image": entry.image or NO_IMAGE, "resources": resources}
    if entry.image is not None:
        container["command"] = ["sleep", "infinity" if entry.lifetime is None else gap("lifetime_s")]
    # 0 on a real node would forget a container that still runs.
    grace_s = 1 if conditions.scenario.allow_real_nodes else 0
    spec: Json = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": grace_s}
    if deadline:
        spec["activeDeadlineSeconds"] = conditions.deadline_s
    return _dressed(spec, entry, conditions)


def _dressed(spec: Json, entry: Entry, conditions: Conditions) -> Json:
    """A pod's specification, given its scheduler, its class, no rights, and the fence around simulated nodes."""
    spec["schedulerName"] = conditions.scheduler
    spec["automountServiceAccountToken"] = False
    # The entry alone says who gives way: what a template says itself is not looked at before the test.
    for field in ("priorityClassName", "priority", "preemptionPolicy"):
        spec.pop(field, None)
    if entry.priority is not None:
        spec["priorityClassName"] = entry.priority
    if not conditions.scenario.allow_real_nodes:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), names.SIMULATED: "true"}
        toleration = {"key": KWOK_NODE, "operator": "Exists", "effect": "NoSchedule"}
        spec["tolerations"] = [*(spec.get("tolerations") or []), toleration]
    return spec


def _pod(entry: Entry, namespace: str, conditions: Conditions, suffix: str = "", **annotations: str) -> Json:
    head = _head(entry, namespace, conditions, suffix)
    head["annotations"] |= _pod_annotations(entry) | annotations
    spec = _pod_spec(entry, conditions, deadline=True)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}


def _pod_template(entry: Entry, conditions: Conditions) -> Json:
    head = {"labels": _labels(entry, conditions), "annotations": _pod_annotations(entry)}
    return {"metadata": head, "spec": _pod_spec(entry, conditions, deadline=False)}


def _gang(entry: Entry, namespace: str, conditions: Conditions) -> list[tuple[str, str, Json]]:
    grouped = conditions.kai and entry.pod_group
    named = {POD_GROUP: gap("name")} if grouped else {}
    pods = [
        ("pods", f"-{at:04d}", _pod(entry, namespace, conditions, f"-{at:04d}", **named)) for at in range(entry.pods)
    ]
    if not grouped:
        return pods
    spec: Json = {"minMember": entry.pods, "queue": entry.queue}
    if entry.priority is not None:
        spec["priorityClassName"] = entry.priority
    head = _head(entry, namespace, conditions)
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": head, "spec": spec}
    return [("podgroups", "", group), *pods]


def _job(entry: Entry, namespace: str, conditions: Conditions) -> Json:
    spec = {
        "parallelism": entry.parallelism,
        "completions": entry.all_pods,
        # Evictions are measured as new attempts: none would end the Job at the first.
        "backoffLimit": _RETRIES,
        "ttlSecondsAfterFinished": conditions.deadline_s,
        "activeDeadlineSeconds": conditions.deadline_s,
        "template": _pod_template(entry, conditions),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _head(entry, namespace, conditions), "spec": spec}


def _pytorch(entry: Entry, namespace: str, conditions: Conditions) -> Json:
    def replicas(count: int) -> Json:
        template = _pod_template(entry, conditions)
        template["spec"]["containers"][0]["name"] = "pytorch"  # the name that the operator looks for
        template["spec"].pop("restartPolicy")
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    kinds = {"Master": replicas(1)} | ({"Worker": replicas(entry.pods - 1)} if entry.pods > 1 else {})
    policy = {
        "cleanPodPolicy": "None",
        "backoffLimit": _RETRIES,
        "activeDeadlineSeconds": conditions.deadline_s,
        "ttlSecondsAfterFinished": conditions.deadline_s,
    }
    head = _head(entry, namespace, conditions)
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": kinds}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": head, "spec": spec}


def _template(entry: Entry, namespace: str, conditions: Conditions) -> Json:
    """A manifest of the user's: placeholders filled, our labels on it and on its pods, whatever it says itself."""
    made: Json = _filled(copy.deepcopy(entry.template or {}), _values(entry, namespace, conditions))
    head = made.setdefault("metadata", {})
    own = _head(entry, namespace, conditions)
    for field in ("labels", "annotations"):
        head[field] = {**(head.get(field) or {}), **own[field]}
    head["name"], head["namespace"] = own["name"], own["namespace"]
    made.pop("status", None)
    for _, pod in foreign.pods(made, entry.pods_at):
        about = pod.setdefault("metadata", {})
        about["labels"] = {**(about.get("labels") or {}), **_labels(entry, conditions)}
        about["annotations"] = {**(about.get("annotations") or {}), **_pod_annotations(entry)}
        _dressed(pod["spec"], entry, conditions)
    if made["kind"] == "Job":
        for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds"):
            made["spec"].setdefault(field, conditions.deadline_s)
    if made["kind"] == "Pod":
        made["spec"].setdefault("activeDeadlineSeconds", conditions.deadline_s)
    return made


def _values(entry: Entry, namespace: str, conditions: Conditions) -> Json:
    lives = entry.lifetime is not None
    return {
        "name": gap("name"),
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
        "scheduler": conditions.scheduler,
        "lifetime_s": number_gap("lifetime_s") if lives else conditions.deadline_s,
        "deadline_s": conditions.deadline_s,
        "labels": _labels(entry, conditions),
    }


def _filled(value: Any, values: Json) -> Any:
    """Placeholders are filled in the parsed manifest: no value can become a key or a second object."""
    if isinstance(value, dict):
        return {_text(key, values): _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if not isinstance(value, str):
        return value
    whole = foreign.PLACEHOLDER.fullmatch(value)
    if whole and "|" not in whole[1]:
        return copy.deepcopy(values[whole[1]])
    return _text(value, values)


def _text(text: str, values: Json) -> str:
    """Inside a text, a number's gap keeps the quotes around it."""
    return foreign.PLACEHOLDER.sub(lambda found: str(values[found[1].split("|")[0]]).replace("#", ":"), text)
