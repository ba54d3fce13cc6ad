"""Kinds that simulated-runai installs, and the objects made from a workload: job, pods, claims, pod group."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import ConfigError
from workbench.kubernetes.manifests import Object, build_object
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, Connection
from workbench.scaletest.scenario.workload_objects import KWOK_NODE
from workbench.scaletest.simulated_runai import NAME

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
STORAGE_CLASS = "openebs-lvmpv"  # what the old tool's template asks for
PROVISIONER = "workbench.local/simulated-runai"
OURS = {api_discovery.MANAGED_BY: NAME}
_ESTABLISH_TRIES = 200
MARK = "workbench.local/simulated-runai"
RELEASE = "release"
JOB_NAME = "job-name"
KUBEFLOW_JOB_NAME = "training.kubeflow.org/job-name"
MAX_WORKERS = 512
_NUMBER = re.compile(r"\d{1,4}(?:\.\d{1,3})?")
_QUANTITY = re.compile(r"\d{1,9}(?:\.\d{1,3})?(?:m|[kMGT]i?)?")


@dataclass(frozen=True, slots=True)
class RunaiKind(ApiResource):
    """A kind of the Run:ai platform."""

    name: str

    @property
    def crd(self) -> str:
        """Name of its definition."""
        return f"{self.plural}.{self.group}"

    @property
    def api_version(self) -> str:
        """Group and version, as in objects."""
        return f"{self.group}/{self.version}"


TRAINING = RunaiKind("run.ai", "v2alpha1", "trainingworkloads", "TrainingWorkload")
INTERACTIVE = RunaiKind("run.ai", "v2alpha1", "interactiveworkloads", "InteractiveWorkload")
DISTRIBUTED = RunaiKind("run.ai", "v2alpha1", "distributedworkloads", "DistributedWorkload")
RUNAI_JOB = RunaiKind("run.ai", "v1", "runaijobs", "RunaiJob")
PYTORCH_JOB = RunaiKind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
POD_GROUP = RunaiKind("scheduling.run.ai", "v1", "podgroups", "PodGroup")
WORKLOADS = (TRAINING, INTERACTIVE, DISTRIBUTED)
JOBS = (RUNAI_JOB, PYTORCH_JOB)


async def install_kinds(api: Connection) -> bool:
    """Make the kinds and the storage class, or find them made; wait until they are served.

    False where KAI's own PodGroup is installed: it has another version, and KAI's pod grouper makes them. The old
    tool's sampler asks for version v1, so it cannot run there; ours asks for what there is.
    """
    for kind in (*WORKLOADS, *JOBS):
        if not await _create_definition(api, kind):
            raise ConfigError(
                "this cluster has kinds of the real platform",
                where=kind.crd,
                do="simulated-runai is for local clusters that have none: workbench scaletest cluster up",
            )
    makes_pod_groups = await _create_definition(api, POD_GROUP)
    for kind in (*WORKLOADS, *JOBS, *([POD_GROUP] if makes_pod_groups else [])):
        for _ in range(_ESTABLISH_TRIES):
            answer = await api.request("GET", kind.path(), query={"limit": "1"})
            if answer.status == 200:
                break
            await asyncio.sleep(0.05)
        else:
            raise ConfigError("the kind is not served", where=kind.crd, found=answer.status)
    modes = {"provisioner": PROVISIONER, "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete"}
    storage_class = build_object("storage.k8s.io/v1", "StorageClass", STORAGE_CLASS, labels=OURS, **modes)
    await _create_once(api, CLASSES, storage_class)
    return makes_pod_groups


def build_definition(kind: RunaiKind) -> Object:
    """A CustomResourceDefinition that takes any field."""
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}},
    }
    spec = {
        "group": kind.group,
        "scope": "Namespaced",
        "names": {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name},
        "versions": [version],
    }
    return build_object("apiextensions.k8s.io/v1", "CustomResourceDefinition", kind.crd, labels=OURS, spec=spec)


async def _create_definition(api: Connection, kind: RunaiKind) -> bool:
    """Make its definition; is the one that stands there ours?"""
    await _create_once(api, CRDS, build_definition(kind))
    definition = await api.json("GET", f"{CRDS}/{kind.crd}")
    labels = definition["metadata"].get("labels") or {}
    return bool(labels.get(api_discovery.MANAGED_BY) == NAME)


async def _create_once(api: Connection, path: str, manifest: Object) -> None:
    try:
        await api.json("POST", path, manifest)
    except ApiError as error:
        if error.status != 409:
            raise


class UnfitError(ValueError):
    """The workload's spec is not what simulated-runai understands: its status says why."""


def find_job_kind(workload: Object) -> RunaiKind:
    """PyTorchJob of a distributed workload, RunaiJob of the others."""
    return PYTORCH_JOB if workload.get("kind") == DISTRIBUTED.name else RUNAI_JOB


def build_job(workload: Object) -> Object:
    """The job of a workload: everything that the pods need, and nothing that a real one would have besides."""
    kind = find_job_kind(workload)
    # Old command lines put a date behind metadata.name.
    name = str(_read_field(workload, "name") or workload["metadata"]["name"])
    gpu_text = str(_read_field(workload, "gpu") or "0")
    if not _NUMBER.fullmatch(gpu_text):
        raise UnfitError(f"spec.gpu.value is no number of GPUs: {gpu_text[:40]!r}")
    gpus = float(gpu_text)
    if gpus > 1 and gpus != int(gpus):
        raise UnfitError(f"spec.gpu.value is neither whole nor below 1: {gpu_text}")
    requests = {}
    for field, otherwise in (("cpu", "0.05"), ("memory", "1Mi")):
        requests[field] = str(_read_field(workload, field) or otherwise)
        if not _QUANTITY.fullmatch(requests[field]):
            raise UnfitError(f"spec.{field}.value is no quantity: {requests[field][:40]!r}")
    workers = str(_read_field(workload, "workers") or "1") if kind is PYTORCH_JOB else "0"
    if not workers.isascii() or not workers.isdigit() or len(workers) > 4 or int(workers) > MAX_WORKERS:
        raise UnfitError(f"spec.workers.value is no number up to {MAX_WORKERS}: {workers[:40]!r}")
    limits = {"nvidia.com/gpu": str(int(gpus))} if gpus >= 1 else {}
    spec = {
        "resources": {"requests": requests | limits, "limits": limits},
        "image": str(_read_field(workload, "image") or "none"),
        "workers": int(workers),
        "volumes": _list_volumes(workload),
        # KAI shares GPUs by an annotation; the stock scheduler cannot, and takes such a pod as one without a GPU.
        "fraction": f"{gpus:g}" if 0 < gpus < 1 else None,
    }
    metadata = _build_metadata(name, workload, {RELEASE: name})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


def build_pods(job: Object, *, scheduler: str) -> list[Object]:
    """The pods of a job: one, or a master and its workers. They can go to simulated nodes only."""
    name = str(job["metadata"]["name"])
    if job["kind"] == PYTORCH_JOB.name:
        roles = ["master-0", *(f"worker-{i}" for i in range(int(job["spec"].get("workers", 0))))]
        return [
            _build_pod(
                job,
                f"{name}-{role}",
                {KUBEFLOW_JOB_NAME: name, "training.kubeflow.org/replica-type": role[:6]},
                scheduler,
            )
            for role in roles
        ]
    return [_build_pod(job, f"{name}-0-0", {RELEASE: name, JOB_NAME: name}, scheduler)]


def build_claims(job: Object) -> list[Object]:
    """The volumes that its pods share."""
    claims = []
    for volume in job["spec"].get("volumes", []):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": volume["size"]}},
            "storageClassName": volume["class"],
        }
        metadata = _build_metadata(
            f"{job['metadata']['name']}-{volume['name']}", job, {RELEASE: job["metadata"]["name"]}
        )
        claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return claims


def build_pod_group(pod: Object, job: Object) -> Object:
    """The pod group of a job, made when its first pod is there."""
    name = str(job["metadata"]["name"])
    members = 1 + int(job["spec"].get("workers", 0))
    project = str(pod["metadata"]["namespace"]).removeprefix("runai-")
    metadata = _build_metadata(f"pg-{name}-{job['metadata']['uid']}"[:253], job, {RELEASE: name, "workloadName": name})
    spec = {"minMember": members, "queue": project}
    return {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.name, "metadata": metadata, "spec": spec}


def _build_metadata(name: str, owner: Object, labels: dict[str, str]) -> Object:
    """Metadata of an object that `owner` controls: its namespace, its labels and those given."""
    above = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": above["name"],
        "uid": above["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    handed_on = above.get("labels") or {}
    marked = handed_on | labels | {MARK: "true"}
    # Whose pods they are stays what the workload says: a run's own cleanup must find them.
    managed = OURS | {key: value for key, value in marked.items() if key == api_discovery.MANAGED_BY}
    return {
        "name": name,
        "namespace": above["namespace"],
        "labels": marked | managed,
        "ownerReferences": [reference],
    }


def _build_pod(job: Object, name: str, labels: dict[str, str], scheduler: str) -> Object:
    """Pod of a simulated Run:ai job, which can only run on simulated nodes."""
    spec = job["spec"]
    container: Object = {"name": "main", "image": spec["image"], "resources": spec["resources"]}
    volumes = []
    for volume in spec.get("volumes", []):
        claim = f"{job['metadata']['name']}-{volume['name']}"
        volumes.append({"name": volume["name"], "persistentVolumeClaim": {"claimName": claim}})
    metadata = _build_metadata(name, job, {RELEASE: job["metadata"]["name"], **labels})
    if spec.get("fraction"):
        metadata["annotations"] = {"gpu-fraction": spec["fraction"]}
    if scheduler != "default-scheduler":
        metadata["labels"] |= {"kai.scheduler/queue": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": volumes,
            # Nothing of a simulation may run anywhere.
            "nodeSelector": {api_discovery.SIMULATED: "true"},
            "tolerations": [{"key": KWOK_NODE, "operator": "Exists", "effect": "NoSchedule"}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        },
    }


def _read_field(workload: Object, field: str) -> Any:
    """`spec.<field>.value`: every field of Run:ai's workloads has this shape."""
    entry = (workload.get("spec") or {}).get(field)
    return entry.get("value") if isinstance(entry, dict) else None


def _list_volumes(workload: Object) -> list[Object]:
    """List the volumes that a workload claims: name, size as a Kubernetes quantity, storage class (empty: default)."""
    pvcs = (workload.get("spec") or {}).get("pvcs")
    items = pvcs.get("items") if isinstance(pvcs, dict) else None
    volumes = []
    for name, item in sorted((items or {}).items() if isinstance(items, dict) else ()):
        value = item.get("value") if isinstance(item, dict) else None
        if not isinstance(value, dict) or not re.fullmatch(r"[a-z0-9-]{1,40}", str(name)):
            raise UnfitError(f"spec.pvcs.items has no value, or an invalid name: {str(name)[:40]!r}")
        size = str(value.get("size") or "1Mi")
        if not _QUANTITY.fullmatch(size):
            raise UnfitError(f"spec.pvcs: size of volume {name} is no quantity: {size[:40]!r}")
        volumes.append({"name": str(name), "size": size, "class": str(value.get("storageClass") or "")})
    return volumes
