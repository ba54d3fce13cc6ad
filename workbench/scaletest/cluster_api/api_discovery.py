"""API discovery: which resources a cluster has, of Kubernetes, its scheduler and Run:ai's operators."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from workbench.core.errors import ConfigError
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api.connection import ApiError, Connection

# Groups whose scheduler makes objects of its own: (group, plural, resource as in run_records.Seen).
SCHEDULER_RESOURCES = (
    ("scheduling.run.ai", "podgroups", "podgroup"),
    ("scheduling.run.ai", "bindrequests", "bindrequest"),
    ("scheduling.k8s.io", "podgroups", "podgroup"),
    ("scheduling.x-k8s.io", "podgroups", "podgroup"),
    ("scheduling.volcano.sh", "podgroups", "podgroup"),
    ("kueue.x-k8s.io", "workloads", "podgroup"),
)
# What Run:ai's operator makes of its workloads.
_RUNAI, _RUNAI_JOBS = "run.ai", "runaijobs"
_RUNAI_RESOURCES = ((_RUNAI, _RUNAI_JOBS, "job"), ("kubeflow.org", "pytorchjobs", "job"))
PREFIX = "workbench.local/"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "workbench"
RUN = PREFIX + "run-id"
# Name of the workload: also on the pods of its template, whose own names are the controllers'.
WORKLOAD = PREFIX + "workload"
STEP = PREFIX + "step"
ALLOW = PREFIX + "allow"
SIMULATED = PREFIX + "sim"
SPEC_HASH = PREFIX + "spec-hash"  # an annotation
# Namespace of a local cluster's own accounts: the measuring identity, and one for each added component by its name.
SYSTEM_NAMESPACE, MEASURING_ACCOUNT = "workbench-system", "measure"
RUN_ID = re.compile(r"st-[0-9a-f]{8}")
PODS, JOBS, NODES = ApiResource("", "v1", "pods"), ApiResource("batch", "v1", "jobs"), ApiResource("", "v1", "nodes")
CLAIMS, CONFIG_MAPS = ApiResource("", "v1", "persistentvolumeclaims"), ApiResource("", "v1", "configmaps")
PYTORCH_JOBS = ApiResource("kubeflow.org", "v1", "pytorchjobs")
POD_GROUPS = ApiResource("scheduling.run.ai", "v2alpha2", "podgroups")
NATIVE_POD_GROUPS = ApiResource("scheduling.k8s.io", "v1alpha2", "podgroups")
KUEUE_WORKLOADS = ApiResource("kueue.x-k8s.io", "v1beta2", "workloads")
EVENTS = ApiResource("events.k8s.io", "v1", "events")


def parse_resource(text: str) -> ApiResource:
    """Parse a resource from the command line.

    >>> parse_resource("batch/v1/jobs"), str(parse_resource("v1/pods"))
    (ApiResource(group='batch', version='v1', plural='jobs'), 'v1/pods')
    """
    parts = text.split("/")
    is_valid = len(parts) in (2, 3) and all(part and part.replace("-", "").replace(".", "").isalnum() for part in parts)
    if not is_valid or not text.isascii():
        raise ConfigError(
            "not a resource", where="--kind", found=text[:200], allowed="GROUP/VERSION/PLURAL, such as batch/v1/jobs"
        )
    return ApiResource(*parts) if len(parts) == 3 else ApiResource("", *parts)


def list_operator_resources(resources: Iterable[ApiResource]) -> list[tuple[str, str, str]]:
    """Resources that schedulers make, and Run:ai's operator if `resources` has its workloads; as `SCHEDULER_RESOURCES`.

    >>> own = [parse_resource("run.ai/v2alpha1/trainingworkloads")]
    >>> [plural for _, plural, resource in list_operator_resources(own) if resource == "job"]
    ['runaijobs', 'pytorchjobs']
    """
    kinds = {(resource.group, resource.plural) for resource in resources}
    operated = any(group == _RUNAI and plural != _RUNAI_JOBS for group, plural in kinds)
    wanted = (*SCHEDULER_RESOURCES, *(_RUNAI_RESOURCES if operated else ()))
    return [entry for entry in wanted if entry[:2] not in kinds]


async def find_kind_name(api: Connection, wanted: ApiResource) -> str | None:
    """The kind's name (`Job`) where the cluster has the resource; null where it has not."""
    try:
        document = await api.json("GET", wanted.root)
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    for resource in document.get("resources") or []:
        if resource.get("name") == wanted.plural:
            return str(resource.get("kind", ""))[:100] or None
    return None


async def find_newest_resource(api: Connection, group: str, plural: str) -> tuple[ApiResource, str] | None:
    """A resource of a group in the newest version that has it, and its kind's name; null where there is none."""
    try:
        document = await api.json("GET", f"/apis/{group}")
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    for version in document.get("versions") or []:
        wanted = ApiResource(group, str(version.get("version", "")), plural)
        if name := await find_kind_name(api, wanted):
            return wanted, name
    return None


def keeps_pods_off(taint: str, effect: str) -> bool:
    """Whether Kubernetes itself put this taint on a node: cordoned, not ready, short of memory or disk."""
    return taint.startswith("node.kubernetes.io/") and effect in ("NoSchedule", "NoExecute")


def new_run_id() -> str:
    """A new run's id, such as `st-1f2e3d4c`."""
    return f"st-{secrets.token_hex(4)}"


def build_workload_name(run: str, index: int) -> str:
    """Name of the run's workload of this index: the same after a crash, so that nothing is made twice.

    >>> build_workload_name("st-1f2e3d4c", 42)
    'st-1f2e3d4c-0000042'
    """
    return f"{run}-{index:07d}"


def build_labels(run: str, name: str, step: int) -> dict[str, str]:
    """Labels of a workload, and of the pods that it makes."""
    return {MANAGED_BY: MANAGER, RUN: run, WORKLOAD: name, STEP: str(step)}


def build_run_selector(run: str) -> str:
    """Label selector of all that belongs to a run; never empty."""
    if not RUN_ID.fullmatch(run):
        raise ValueError(f"not a run's id: {run[:40]!r}")
    return f"{MANAGED_BY}={MANAGER},{RUN}={run}"
