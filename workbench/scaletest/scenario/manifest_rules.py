"""Rules for users' manifests: which kinds are allowed, where their pod templates are, and what pods may not use.

Refused are kinds that reach beyond their namespace or hand out rights, and pods that reach for their node: a load test
needs none of it, and a manifest that was copied from somewhere may bring it along.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]
_GROUPS = {
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "policy",
    "storage.k8s.io",
    "networking.k8s.io",
}
_KINDS = {"Namespace", "Node", "Secret", "ServiceAccount", "PersistentVolume", "Binding", "DaemonSet", "List", "Event"}
_KINDS |= {
    "Service",
    "Endpoints",
    "ReplicationController",
    "ResourceQuota",
    "LimitRange",
    "CronJob",
    "Lease",
    "PriorityClass",
}
# Where the pod templates of well-known kinds lie; `*` stands for every entry of a mapping or list.
POD_TEMPLATE_PATHS = {
    "Pod": ("",),
    "Job": ("spec.template",),
    "Deployment": ("spec.template",),
    "ReplicaSet": ("spec.template",),
    "StatefulSet": ("spec.template",),
    "PyTorchJob": ("spec.pytorchReplicaSpecs.*.template",),
    "TFJob": ("spec.tfReplicaSpecs.*.template",),
    "MPIJob": ("spec.mpiReplicaSpecs.*.template",),
    "XGBoostJob": ("spec.xgbReplicaSpecs.*.template",),
    "JAXJob": ("spec.jaxReplicaSpecs.*.template",),
    "JobSet": ("spec.replicatedJobs.*.template.spec.template",),
    "RayCluster": ("spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"),
    "RayJob": (
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs.*.template",
        "spec.submitterPodTemplate",
    ),
    "LeaderWorkerSet": ("spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"),
}
PLACEHOLDERS = (
    "name",
    "namespace",
    "run",
    "index",
    "step",
    "gpus",
    "fraction",
    "cpus",
    "memory",
    "pods",
    "workers",
    "queue",
    "priority",
    "scheduler",
    "lifetime_s",
    "deadline_s",
    "labels",
)
PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
# Kueue lets go what bears it.
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_API_VERSION = re.compile(r"([a-z0-9.-]{1,253}/)?v[0-9a-z]{1,40}")
_MAX_BYTES = 256 << 10
# With any other, the operator makes a pod that submits: of its own template where none is given.
WITHOUT_SUBMITTER = ("HTTPMode", "SidecarMode")


def check_manifest(template: Json, plural: str | None, pods_at: tuple[str, ...] | None) -> None:
    """Refuse a manifest that may not be made; see the module's head."""
    kind, version = template.get("kind"), template.get("apiVersion")
    if not isinstance(kind, str) or not re.fullmatch(r"[A-Z][A-Za-z0-9]{0,62}", kind):
        raise ValueError("template.kind: a manifest names its kind, such as PyTorchJob")
    if not isinstance(version, str) or not _API_VERSION.fullmatch(version):
        raise ValueError("template.apiVersion: a manifest names its version, such as kubeflow.org/v1")
    if kind in _KINDS or version.split("/")[0] in _GROUPS:
        raise ValueError(
            f"template.kind: {kind} of {version} is not made by a scale test: it reaches beyond a workload"
        )
    if plural is not None and not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", plural):
        raise ValueError("plural: the API's name of the kind in lower case, such as pytorchjobs")
    if len(repr(template)) > _MAX_BYTES:
        raise ValueError(f"template: longer than {_MAX_BYTES >> 10} KiB")
    _check_head(template)
    for place, text in _iterate_texts(template, "template"):
        for name in PLACEHOLDER.findall(text):
            if name.split("|")[0] not in PLACEHOLDERS or name.partition("|")[2] not in ("", "text"):
                allowed = ", ".join(PLACEHOLDERS)
                raise ValueError(f"{place}: there is no placeholder ${{{name[:40]}}}; known are {allowed}")
        if "@@workbench" in text:
            raise ValueError(f"{place}: '@@workbench' is the workbench's own")
    for place, pod in list_pod_templates(template, pods_at):
        _check_pod(pod, place)
    if kind == "RayJob":
        _check_ray_job(template["spec"])


def fill_placeholders(value: Any, values: Mapping[str, Any]) -> Any:
    """Fill the placeholders in a parsed manifest, where no value can become a key or a second object."""
    if isinstance(value, dict):
        return {_fill_text(key, values): fill_placeholders(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_placeholders(item, values) for item in value]
    if not isinstance(value, str):
        return value
    match = PLACEHOLDER.fullmatch(value)
    if match and "|" not in match[1]:
        return copy.deepcopy(values[match[1]])
    return _fill_text(value, values)


def _fill_text(text: str, values: Mapping[str, Any]) -> str:
    """Inside a text, a number's gap keeps the quotes around it."""
    return PLACEHOLDER.sub(lambda match: str(values[match[1].split("|")[0]]).replace("#", ":"), text)


def list_used_placeholders(value: Any) -> set[str]:
    """Names of the placeholders in a parsed manifest.

    >>> sorted(list_used_placeholders({"a": ["${gpus|text}", "x-${index}"]}))
    ['gpus', 'index']
    """
    return {name.split("|")[0] for _, text in _iterate_texts(value, "") for name in PLACEHOLDER.findall(text)}


def waits_for_release(template: Json) -> bool:
    """Whether an object is made suspended, without the label of a queue that would let it go."""
    spec, head = template.get("spec"), template.get("metadata") or {}
    if not isinstance(spec, dict) or QUEUE_LABEL in (head.get("labels") or {}):
        return False
    policy = spec.get("runPolicy")
    return spec.get("suspend") is True or (isinstance(policy, dict) and policy.get("suspend") is True)


def _check_ray_job(spec: Json) -> None:
    if spec.get("submissionMode") in WITHOUT_SUBMITTER or "submitterPodTemplate" in spec:
        return
    raise ValueError(
        "template.spec.submitterPodTemplate: a RayJob makes one pod more, which submits; give its template, so that it "
        f"can be fenced, or submissionMode: {WITHOUT_SUBMITTER[0]}"
    )


def _check_head(template: Json) -> None:
    head = template.get("metadata", {})
    if not isinstance(head, dict):
        raise ValueError("template.metadata: is no mapping")
    for field in ("ownerReferences", "finalizers", "generateName", "resourceVersion", "uid"):
        if field in head:
            raise ValueError(
                f"template.metadata.{field}: take it out; objects must be found, and deleted, by their run"
            )
    for field in ("labels", "annotations"):
        if not isinstance(head.get(field, {}), dict):
            raise ValueError(f"template.metadata.{field}: is no mapping (labels are added by the workbench itself)")
    if template.get("status"):
        raise ValueError("template.status: take it out; the cluster writes it")


def list_pod_templates(template: Json, pods_at: tuple[str, ...] | None = None) -> list[tuple[str, Json]]:
    """The pod templates in a manifest, each with its place: by those known for its kind, and by the given paths.

    Given paths add to the known ones, so that every pod is checked and fenced.

    >>> job = {"kind": "Job", "spec": {"template": {"spec": {"containers": []}}}}
    >>> [place for place, pod in list_pod_templates(job)]
    ['spec.template']
    """
    kind_paths, extra_paths = POD_TEMPLATE_PATHS.get(str(template.get("kind")), ()), pods_at or ()
    paths = tuple(dict.fromkeys((*kind_paths, *extra_paths)))
    pod_templates: dict[str, Json] = {}
    for path in paths:
        parts = [part for part in path.split(".") if part]
        reached = list(_find_at_path(template, parts, ""))
        # A given path must lead somewhere; a known kind may leave a part out.
        if not reached and path in extra_paths:
            raise ValueError(f"pods_at: {path[:200]!r} leads nowhere in the template")
        pod_templates.update(reached)
    if paths and not pod_templates:
        raise ValueError(f"template: no pod template at {' or '.join(paths)}")
    for place, pod in pod_templates.items():
        if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict):
            raise ValueError(f"template.{place}: is no pod template (it has no `spec`)")
        if not isinstance(pod.get("metadata", {}), dict):
            raise ValueError(f"template.{place}.metadata: is no mapping")
    return list(pod_templates.items())


def has_sequential_pods(template: Json) -> bool:
    """Whether it is a Job whose later pods are made when its earlier ones have ended.

    >>> has_sequential_pods({"kind": "Job", "spec": {"completions": 3}})
    True
    >>> has_sequential_pods({"kind": "Job", "spec": {"parallelism": 3}})
    False
    >>> has_sequential_pods({"kind": "Job", "spec": {"completions": "${pods}", "parallelism": "${pods}"}})
    False
    """
    spec = template.get("spec")
    if template.get("kind") != "Job" or not isinstance(spec, dict) or spec.get("completions") is None:
        return False
    completions, parallelism = spec["completions"], spec.get("parallelism", 1)
    if isinstance(completions, int) and isinstance(parallelism, int):
        return completions > parallelism
    return bool(completions != parallelism)


def _find_at_path(value: Any, parts: list[str], place: str) -> Iterator[tuple[str, Any]]:
    """Yield each value at a path inside a manifest, with its full path; the part `*` matches every key or index.

    >>> list(_find_at_path({"a": [{"n": 1}, {"n": 2}]}, ["a", "*", "n"], ""))
    [('a.0.n', 1), ('a.1.n', 2)]
    """
    if not parts:
        yield place, value
        return
    head, tail = parts[0], parts[1:]
    if head == "*":
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            yield from _find_at_path(item, tail, f"{place}.{key}".lstrip("."))
    elif isinstance(value, dict) and head in value:
        yield from _find_at_path(value[head], tail, f"{place}.{head}".lstrip("."))


def _check_pod(pod: Json, place: str) -> None:
    """No pod may reach for its node: the host's files, network, processes or devices."""
    spec, where = pod["spec"], f"template.{place + '.' if place else ''}spec"
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            raise ValueError(f"{where}.{field}: pods that reach for their node are not made")
    for field in ("nodeName", "serviceAccountName", "serviceAccount"):
        if spec.get(field):
            raise ValueError(
                f"{where}.{field}: take it out (a node's name passes the scheduler by; no rights are lent)"
            )
    for index, volume in enumerate(_require_mappings(spec.get("volumes"), f"{where}.volumes")):
        for field in ("hostPath", "secret", "csi", "nfs", "iscsi"):
            if field in volume:
                raise ValueError(f"{where}.volumes[{index}].{field}: is not taken; use emptyDir or a claim")
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(_require_mappings(spec.get(group), f"{where}.{group}")):
            _check_container(container, f"{where}.{group}[{index}]")


def _check_container(container: Json, where: str) -> None:
    context = container.get("securityContext") or {}
    if not isinstance(context, dict):
        raise ValueError(f"{where}.securityContext: is no mapping")
    if context.get("privileged") or context.get("allowPrivilegeEscalation") is True:
        raise ValueError(f"{where}.securityContext: privileged containers are not made")
    if (context.get("capabilities") or {}).get("add"):
        raise ValueError(f"{where}.securityContext.capabilities.add: is not taken")
    for port in _require_mappings(container.get("ports"), f"{where}.ports"):
        if port.get("hostPort"):
            raise ValueError(f"{where}.ports: hostPort is not taken")


def _require_mappings(value: Any, where: str) -> list[Json]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
        raise ValueError(f"{where}: is no list of mappings")
    return value


def _iterate_texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a manifest, keys included, with the path at which it is."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield place, str(key)
            yield from _iterate_texts(item, f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _iterate_texts(item, f"{place}[{index}]")
