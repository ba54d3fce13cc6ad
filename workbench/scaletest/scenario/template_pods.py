"""Pods that a user's manifest makes: how many of each of its pod templates, and what each of them requests."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.quantities import parse_quantity

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
GPU_FRACTION = "gpu-fraction"
# Amounts that every pod has, and that are no devices.
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_POD_LEVEL = ("cpu", "memory")
# All of a pod template's pods, and those that exist at one time.
Counts = tuple[int, int]


@dataclass(frozen=True)
class PodGroup:
    """Pods of one pod template of a manifest.

    `requests`: What the scheduler counts for one pod, by resource, in cores, bytes and pieces.
    `counts`: Its pods in all and at one time; null where the manifest does not say.
    """

    place: str
    pod: Json
    requests: dict[str, float]
    counts: Counts | None


@dataclass(frozen=True)
class TemplateDemand:
    """Demand of one workload that is made of a manifest.

    `scheduler_names`: Names of schedulers in its pods, where they are written out.
    """

    groups: tuple[PodGroup, ...]
    scheduler_names: tuple[str, ...]

    @property
    def counts(self) -> Counts | None:
        """Pods in all and at one time; null where the manifest does not say."""
        counts = [group.counts for group in self.groups if group.counts is not None]
        if not counts or len(counts) < len(self.groups):
            return None
        return sum(made for made, _ in counts), sum(at_once for _, at_once in counts)

    @property
    def largest_requests(self) -> dict[str, float]:
        """Most of each resource that one of its pods requests."""
        largest: dict[str, float] = {}
        for group in self._made_groups():
            for resource, amount in group.requests.items():
                largest[resource] = max(amount, largest.get(resource, 0.0))
        return largest

    @property
    def mean_requests(self) -> dict[str, float]:
        """Requests of a pod on average, so that pods times requests is what a workload requests in all."""
        if (counts := self.counts) is None or not counts[0]:
            return self.largest_requests
        total: Counter[str] = Counter()
        for group in self.groups:
            made = group.counts[0] if group.counts else 0
            total.update({resource: amount * made for resource, amount in group.requests.items()})
        return {resource: amount / counts[0] for resource, amount in total.items()}

    @property
    def fraction(self) -> float | None:
        """Share of a GPU in the annotations of its pods; null without one."""
        for group in self.groups:
            annotations = group.pod.get("metadata", {}).get("annotations")
            if isinstance(annotations, dict) and GPU_FRACTION in annotations:
                return parse_quantity(annotations[GPU_FRACTION]) or None
        return None

    def _made_groups(self) -> list[PodGroup]:
        return [group for group in self.groups if group.counts is None or group.counts[0]]


def read_demand(
    template: Json, pods_at: tuple[str, ...] | None, owned: Iterable[Json], values: Mapping[str, Any]
) -> TemplateDemand:
    """Read a manifest's pods and requests; `values` are those of placeholders that stand for numbers."""
    # Other placeholders stay as they are written: none of them is a number of pods or an amount.
    values = {name: f"${{{name}}}" for name in manifest_rules.PLACEHOLDERS} | dict(values)
    filled = manifest_rules.fill_placeholders(template, values)
    # Count the pods of each pod template, by its place, for kinds whose counts are known.
    spec, group = filled.get("spec"), str(filled.get("apiVersion")).rpartition("/")[0]
    counter = _COUNTERS.get((group, str(filled.get("kind"))))
    if counter is None or not isinstance(spec, dict):
        counts = {}
    else:
        try:
            counts = counter(spec)
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"template.spec: not the fields that a {filled['kind']} has") from None
    groups = tuple(
        PodGroup(place, pod, _read_requests(pod["spec"], place), counts.get(place))
        for place, pod in manifest_rules.list_pod_templates(filled, pods_at)
    )
    pods = [group.pod for group in groups]
    pods += [pod for manifest in owned for _, pod in manifest_rules.list_pod_templates(manifest)]
    named = (pod["spec"].get("schedulerName") for pod in pods)
    return TemplateDemand(groups, tuple(dict.fromkeys(name for name in named if name and name != "${scheduler}")))


def select_devices(requests: Mapping[str, float]) -> dict[str, float]:
    """Select the extended resources of any name, such as MIG slices, other than whole GPUs.

    >>> select_devices({"cpu": 1.0, "nvidia.com/gpu": 1.0, "nvidia.com/mig-1g.5gb": 2.0, "example.com/nic": 0.0})
    {'nvidia.com/mig-1g.5gb': 2.0}
    """
    return {
        resource: amount
        for resource, amount in requests.items()
        if amount and resource not in (*_PLAIN, GPU) and not resource.startswith("hugepages-")
    }


def _read_requests(spec: Json, place: str) -> dict[str, float]:
    where = f"template.{place + '.' if place else ''}spec"
    try:
        return sum_requests(spec)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: resources of a container: {error}") from None


def sum_requests(spec: Json) -> dict[str, float]:
    """Requests of a pod as the scheduler counts them, by resource.

    Containers and sidecars together, or its largest init container with the sidecars before it, whichever is more;
    then its overhead. A limit without a request is the request.

    >>> sum_requests({"containers": [{"resources": {"limits": {"cpu": "500m", "nvidia.com/gpu": "1"}}}] * 2})
    {'cpu': 1.0, 'nvidia.com/gpu': 2.0}
    """
    total: Counter[str] = Counter()
    for container in spec.get("containers") or []:
        total.update(_read_amounts(container.get("resources")))
    sidecars: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for container in spec.get("initContainers") or []:
        amounts = Counter(_read_amounts(container.get("resources")))
        if container.get("restartPolicy") == "Always":
            sidecars.update(amounts)
            starting |= sidecars
        else:
            amounts.update(sidecars)
            starting |= amounts
    total.update(sidecars)
    total |= starting
    # Kubernetes counts what the pod itself requests in place of the sum over its containers.
    own = _read_amounts(spec.get("resources"))
    total.update({name: own[name] - total[name] for name in _POD_LEVEL if name in own})
    total.update({name: parse_quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return dict(total)


def _read_amounts(resources: Any) -> dict[str, Any]:
    """Requests of a container by resource."""
    if resources is None:
        return {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse_quantity(amount) for name, amount in amounts.items()}


def _as_count(value: Any, default: int | None) -> int | None:
    """Number of pods in a field; null where it is no number."""
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _multiply(*counts: int | None) -> Counts | None:
    numbers = [count for count in counts if count is not None]
    return (math.prod(numbers),) * 2 if len(numbers) == len(counts) else None


def _count_job(spec: Json) -> Counts | None:
    parallelism = _as_count(spec.get("parallelism"), 1)
    completions = _as_count(spec.get("completions"), parallelism)
    return None if parallelism is None or completions is None else (completions, min(parallelism, completions))


def _count_single(_: Json) -> dict[str, Counts | None]:
    return {"": (1, 1)}


def _count_job_pods(spec: Json) -> dict[str, Counts | None]:
    return {"spec.template": _count_job(spec)}


def _count_replicas(spec: Json) -> dict[str, Counts | None]:
    return {"spec.template": _multiply(_as_count(spec.get("replicas"), 1))}


def _build_role_counter(field: str) -> Callable[[Json], dict[str, Counts | None]]:
    """Counter of a training operator's kind, whose replicas have roles."""

    def count(spec: Json) -> dict[str, Counts | None]:
        roles = spec.get(field)
        if not isinstance(roles, dict) or spec.get("elasticPolicy"):
            return {}
        return {
            f"spec.{field}.{role}.template": _multiply(_as_count(part.get("replicas"), 1))
            for role, part in roles.items()
            if isinstance(part, dict)
        }

    return count


def _count_job_set(spec: Json) -> dict[str, Counts | None]:
    counts: dict[str, Counts | None] = {}
    for at, part in enumerate(spec.get("replicatedJobs") or []):
        job = _count_job(((part.get("template") or {}).get("spec")) or {})
        replicas = _as_count(part.get("replicas"), 1)
        place = f"spec.replicatedJobs.{at}.template.spec.template"
        counts[place] = None if job is None or replicas is None else (job[0] * replicas, job[1] * replicas)
    return counts


def _count_ray_cluster(spec: Json, place: str = "spec") -> dict[str, Counts | None]:
    if spec.get("enableInTreeAutoscaling"):
        return {}
    counts: dict[str, Counts | None] = {f"{place}.headGroupSpec.template": (1, 1)}
    for at, part in enumerate(spec.get("workerGroupSpecs") or []):
        replicas, hosts = _as_count(part.get("replicas"), None), _as_count(part.get("numOfHosts"), 1)
        counts[f"{place}.workerGroupSpecs.{at}.template"] = _multiply(replicas, hosts)
    return counts


def _count_ray_job(spec: Json) -> dict[str, Counts | None]:
    n_submitters = 0 if spec.get("submissionMode") in manifest_rules.WITHOUT_SUBMITTER else 1
    cluster = _count_ray_cluster(spec.get("rayClusterSpec") or {}, "spec.rayClusterSpec")
    return cluster | {"spec.submitterPodTemplate": (n_submitters,) * 2}


def _count_leader_worker_set(spec: Json) -> dict[str, Counts | None]:
    template = spec.get("leaderWorkerTemplate") or {}
    replicas, size = _as_count(spec.get("replicas"), 1), _as_count(template.get("size"), 1)
    n_leaders = 1 if template.get("leaderTemplate") else 0
    n_workers = None if size is None else max(size - n_leaders, 0)
    return {
        "spec.leaderWorkerTemplate.leaderTemplate": _multiply(replicas, n_leaders),
        "spec.leaderWorkerTemplate.workerTemplate": _multiply(replicas, n_workers),
    }


_ROLES = {"PyTorchJob": "pytorch", "TFJob": "tf", "MPIJob": "mpi", "XGBoostJob": "xgb", "JAXJob": "jax"}
_COUNTERS: dict[tuple[str, str], Callable[[Json], dict[str, Counts | None]]] = {
    ("", "Pod"): _count_single,
    ("batch", "Job"): _count_job_pods,
    ("apps", "Deployment"): _count_replicas,
    ("apps", "ReplicaSet"): _count_replicas,
    ("apps", "StatefulSet"): _count_replicas,
    ("jobset.x-k8s.io", "JobSet"): _count_job_set,
    ("ray.io", "RayCluster"): _count_ray_cluster,
    ("ray.io", "RayJob"): _count_ray_job,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _count_leader_worker_set,
} | {("kubeflow.org", kind): _build_role_counter(f"{short}ReplicaSpecs") for kind, short in _ROLES.items()}
