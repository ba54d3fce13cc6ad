"""What simulated-runai installs: kinds with open schemas, a storage class. Ours are labelled, others are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.errors import ConfigError
from workbench.scaletest import names
from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.simulated_runai import NAME

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
STORAGE_CLASS = "openebs-lvmpv"  # what the old tool's template asks for
PROVISIONER = "workbench.local/simulated-runai"
OURS = {names.MANAGED_BY: NAME}
_ESTABLISH_TRIES = 200


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of the Run:ai platform."""

    group: str
    version: str
    plural: str
    name: str

    @property
    def crd(self) -> str:
        """Name of its definition."""
        return f"{self.plural}.{self.group}"

    @property
    def api_version(self) -> str:
        """As it stands in objects."""
        return f"{self.group}/{self.version}"

    def path(self, namespace: str = "") -> str:
        """Of its objects; of all namespaces without one."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group}/{self.version}{within}/{self.plural}"


TRAINING = Kind("run.ai", "v2alpha1", "trainingworkloads", "TrainingWorkload")
INTERACTIVE = Kind("run.ai", "v2alpha1", "interactiveworkloads", "InteractiveWorkload")
DISTRIBUTED = Kind("run.ai", "v2alpha1", "distributedworkloads", "DistributedWorkload")
RUNAI_JOB = Kind("run.ai", "v1", "runaijobs", "RunaiJob")
PYTORCH_JOB = Kind("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
POD_GROUP = Kind("scheduling.run.ai", "v1", "podgroups", "PodGroup")
WORKLOADS = (TRAINING, INTERACTIVE, DISTRIBUTED)
JOBS = (RUNAI_JOB, PYTORCH_JOB)


@dataclass(frozen=True, slots=True)
class Installed:
    """What stands in the cluster now.

    Attributes
    ----------
    makes_pod_groups
        False where KAI's own PodGroup is installed: it has another version, and KAI's pod grouper makes them. The old
        tool's sampler asks for version v1, so it cannot run there; ours asks for what there is.
    """

    makes_pod_groups: bool


async def install(api: Connection) -> Installed:
    """Make the kinds and the storage class, or find them made; wait until they are served.

    Raises
    ------
    ConfigError
        The kinds are there and not ours: this cluster has the real Run:ai, or a part of it.
    """
    for kind in (*WORKLOADS, *JOBS):
        if not await _made(api, kind):
            raise ConfigError(
                "this cluster has kinds of the real platform",
                where=kind.crd,
                do="simulated-runai is for local clusters that have none: workbench scaletest cluster up",
            )
    own_groups = await _made(api, POD_GROUP)
    for kind in (*WORKLOADS, *JOBS, *([POD_GROUP] if own_groups else [])):
        await _served(api, kind)
    await _storage_class(api)
    return Installed(own_groups)


def definition(kind: Kind) -> dict[str, Any]:
    """A CustomResourceDefinition that takes any field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd, "labels": OURS},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name},
            "versions": [version],
        },
    }


async def _made(api: Connection, kind: Kind) -> bool:
    """Make its definition; is the one that stands there ours?"""
    try:
        await api.json("POST", CRDS, definition(kind))
    except ApiError as error:
        if error.status != 409:
            raise
    found = await api.json("GET", f"{CRDS}/{kind.crd}")
    labels = found["metadata"].get("labels") or {}
    return bool(labels.get(names.MANAGED_BY) == NAME)


async def _served(api: Connection, kind: Kind) -> None:
    import asyncio

    for _ in range(_ESTABLISH_TRIES):
        answer = await api.request("GET", kind.path(), query={"limit": "1"})
        if answer.status == 200:
            return
        await asyncio.sleep(0.05)
    raise ConfigError("the kind is not served", where=kind.crd, found=answer.status)


async def _storage_class(api: Connection) -> None:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "labels": OURS},
        "provisioner": PROVISIONER,
        "volumeBindingMode": "Immediate",
        "reclaimPolicy": "Delete",
    }
    try:
        await api.json("POST", CLASSES, body)
    except ApiError as error:
        if error.status != 409:
            raise
