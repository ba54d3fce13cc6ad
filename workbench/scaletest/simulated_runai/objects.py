"""What follows from what: the job of a workload, the pods and claims of a job, the pod group of its pods. Pure.

Labels and names are those that the old sampler joins by. Labels of the workload go on to all that it makes.
"""

from __future__ import annotations

import re
from typing import Any

from workbench.scaletest import names
from workbench.scaletest.simulated_runai.definitions import DISTRIBUTED, OURS, POD_GROUP, PYTORCH_JOB, RUNAI_JOB, Kind

Json = dict[str, Any]
MARK = "workbench.local/simulated-runai"
RELEASE = "release"
JOB_NAME = "job-name"
KUBEFLOW_JOB_NAME = "training.kubeflow.org/job-name"
MOST_WORKERS = 512
_KWOK = "kwok.x-k8s.io/node"
_NUMBER = re.compile(r"\d{1,4}(?:\.\d{1,3})?")
_QUANTITY = re.compile(r"\d{1,9}(?:\.\d{1,3})?(?:m|[kMGT]i?)?")


class UnfitError(ValueError):
    """The workload's spec is not what simulated-runai understands: its status says why."""


def job_kind(workload: Json) -> Kind:
    """PyTorchJob of a distributed workload, RunaiJob of the others."""
    return PYTORCH_JOB if workload.get("kind") == DISTRIBUTED.name else RUNAI_JOB


def name_of(workload: Json) -> str:
    """spec.name.value, or its own name: old command lines put a date behind the latter."""
    found = _value(workload, "name")
    return str(found) if found else str(workload["metadata"]["name"])


def job_of(workload: Json) -> Json:
    """The job of a workload.

    Raises
    ------
    UnfitError
        A field of its spec is none of Run:ai's shape, or out of bounds.
    """
    kind, name = job_kind(workload), name_of(workload)
    resources = _resources(workload)
    workers = _workers(workload) if kind is PYTORCH_JOB else 0
    volumes = _volumes(workload)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": _metadata(name, workload, {RELEASE: name}),
        # Kept short: everything that the pods need, and nothing that a real one would have besides.
        "spec": {
            "resources": resources,
            "image": str(_value(workload, "image") or "none"),
            "workers": workers,
            "volumes": volumes,
            "fraction": _fraction(workload),
        },
    }


def pods_of(job: Json, *, scheduler: str) -> list[Json]:
    """The pods of a job: one, or a master and its workers. They can go to simulated nodes only."""
    name = str(job["metadata"]["name"])
    if job["kind"] == PYTORCH_JOB.name:
        roles = ["master-0", *(f"worker-{i}" for i in range(int(job["spec"].get("workers", 0))))]
        return [
            _pod(
                job,
                f"{name}-{role}",
                {KUBEFLOW_JOB_NAME: name, "training.kubeflow.org/replica-type": role[:6]},
                scheduler,
            )
            for role in roles
        ]
    return [_pod(job, f"{name}-0-0", {RELEASE: name, JOB_NAME: name}, scheduler)]


def claims_of(job: Json) -> list[Json]:
    """The volumes that its pods share."""
    made = []
    for volume in job["spec"].get("volumes", []):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": volume["size"]}},
            "storageClassName": volume["class"],
        }
        metadata = _metadata(f"{job['metadata']['name']}-{volume['name']}", job, {RELEASE: job["metadata"]["name"]})
        made.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return made


def group_of(pod: Json, job: Json) -> Json:
    """The pod group of a job, made when its first pod is there."""
    name = str(job["metadata"]["name"])
    members = 1 + int(job["spec"].get("workers", 0))
    project = str(pod["metadata"]["namespace"]).removeprefix("runai-")
    metadata = _metadata(f"pg-{name}-{job['metadata']['uid']}"[:253], job, {RELEASE: name, "workloadName": name})
    spec = {"minMember": members, "queue": project}
    return {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.name, "metadata": metadata, "spec": spec}


def _metadata(name: str, owner: Json, labels: dict[str, str]) -> Json:
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
    managed = OURS | {key: value for key, value in marked.items() if key == names.MANAGED_BY}
    return {
        "name": name,
        "namespace": above["namespace"],
        "labels": marked | managed,
        "ownerReferences": [reference],
    }


def _pod(job: Json, name: str, labels: dict[str, str], scheduler: str) -> Json:
    spec = job["spec"]
    container: Json = {"name": "main", "image": spec["image"], "resources": spec["resources"]}
    volumes = []
    for volume in spec.get("volumes", []):
        claim = f"{job['metadata']['name']}-{volume['name']}"
        volumes.append({"name": volume["name"], "persistentVolumeClaim": {"claimName": claim}})
    metadata = _metadata(name, job, {RELEASE: job["metadata"]["name"], **labels})
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
            "nodeSelector": {names.SIMULATED: "true"},
            "tolerations": [{"key": _KWOK, "operator": "Exists", "effect": "NoSchedule"}],
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        },
    }


def _value(workload: Json, field: str) -> Any:
    """`spec.<field>.value`: every field of Run:ai's workloads has this shape."""
    found = (workload.get("spec") or {}).get(field)
    return found.get("value") if isinstance(found, dict) else None


def _resources(workload: Json) -> Json:
    gpus = _gpus(workload)
    requests = {"cpu": _quantity(workload, "cpu", "0.05"), "memory": _quantity(workload, "memory", "1Mi")}
    whole = {"nvidia.com/gpu": str(int(gpus))} if gpus >= 1 else {}
    return {"requests": requests | whole, "limits": whole}


def _gpus(workload: Json) -> float:
    text = str(_value(workload, "gpu") or "0")
    if not _NUMBER.fullmatch(text):
        raise UnfitError(f"spec.gpu.value is no number of GPUs: {text[:40]!r}")
    gpus = float(text)
    if gpus > 1 and gpus != int(gpus):
        raise UnfitError(f"spec.gpu.value is neither whole nor below 1: {text}")
    return gpus


def _fraction(workload: Json) -> str | None:
    """KAI shares GPUs by this annotation; the stock scheduler cannot, and takes such a pod as one without a GPU."""
    gpus = _gpus(workload)
    return f"{gpus:g}" if 0 < gpus < 1 else None


def _quantity(workload: Json, field: str, otherwise: str) -> str:
    text = str(_value(workload, field) or otherwise)
    if not _QUANTITY.fullmatch(text):
        raise UnfitError(f"spec.{field}.value is no quantity: {text[:40]!r}")
    return text


def _workers(workload: Json) -> int:
    text = str(_value(workload, "workers") or "1")
    if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) > MOST_WORKERS:
        raise UnfitError(f"spec.workers.value is no number up to {MOST_WORKERS}: {text[:40]!r}")
    return int(text)


def _volumes(workload: Json) -> list[Json]:
    found = (workload.get("spec") or {}).get("pvcs")
    items = found.get("items") if isinstance(found, dict) else None
    made = []
    for name, item in sorted((items or {}).items() if isinstance(items, dict) else ()):
        value = item.get("value") if isinstance(item, dict) else None
        if not isinstance(value, dict) or not re.fullmatch(r"[a-z0-9-]{1,40}", str(name)):
            raise UnfitError(f"spec.pvcs.items has no value, or a name that is none: {str(name)[:40]!r}")
        size = str(value.get("size") or "1Mi")
        if not _QUANTITY.fullmatch(size):
            raise UnfitError(f"spec.pvcs: size of volume {name} is no quantity: {size[:40]!r}")
        made.append({"name": str(name), "size": size, "class": str(value.get("storageClass") or "")})
    return made
