"""Kueue beside the default scheduler: its resources, webhooks on loopback, one queue by default with all GPUs.

Its webhooks are called by URL, with the local cluster's own certificate. What needs other operators' kinds is left out,
and so is its metrics server, which asks for credentials.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml

from workbench.core.errors import RunFailedError
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import component_processes, control_plane
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, ClusterPart, ClusterSettings
from workbench.scaletest.local_cluster.program_builds import KUEUE_CERTIFICATES

NAME, NAMESPACE, GPU = "kueue", "kueue-system", "nvidia.com/gpu"
_API = "/apis/kueue.x-k8s.io/v1beta2"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
# Of its webhooks those for its own kinds, jobs and pods.
_KEPT = ("-kueue-x-k8s-io-", "-batch-v1-job", "--v1-pod")
_OTHERS = ["kube-system", "kueue-system", "workbench-system"]
_IN_QUEUE = {"matchExpressions": [{"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}]}
_POLL_S = 0.2


async def create_resources(api: Connection, programs: Path, *, timeout_s: float) -> None:
    """Make its custom resources and its namespace, and wait until they are taken up."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted((programs / "crds").glob("*.yaml")):
        await _create(api, path, file.read_bytes(), "application/yaml")
    await _create(api, "/api/v1/namespaces", orjson.dumps({"metadata": {"name": NAMESPACE}}))
    deadline = time.monotonic() + timeout_s
    wanted = {file.stem.partition("_")[2] for file in (programs / "crds").glob("*.yaml")}
    while missing := wanted - await _list_served(api):
        if time.monotonic() > deadline:
            raise RunFailedError("Kueue's resources were not taken up", where=path, found=sorted(missing))
        await asyncio.sleep(_POLL_S)


async def _list_served(api: Connection) -> set[str]:
    resources = (await api.request("GET", _API)).json().get("resources") or []
    return {str(resource.get("name")) for resource in resources}


def start_kueue(folder: Path, name: str, settings: ClusterSettings, programs: Path) -> ClusterPart:
    """Start its process; it is not waited for. Its account's kubeconfig is there."""
    place = component_processes.find_scheduler_folder(folder, NAME)
    keys = control_plane.find_workdir(folder, name) / "pki"
    certificates = place / "certificates"
    certificates.mkdir(parents=True, exist_ok=True, mode=0o700)
    for source, target in (("admin.crt", "tls.crt"), ("admin.key", "tls.key")):
        shutil.copyfile(keys / source, certificates / target)
        (certificates / target).chmod(0o600)
    port, probe_port = component_processes.find_free_ports(2)
    limit = settings.client_limits.get(NAME, DEFAULT_LIMITS[NAME])
    config = place / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": NAMESPACE,
                "health": {"healthProbeBindAddress": f"{component_processes.LOOPBACK}:{probe_port}"},
                "metrics": {"bindAddress": "0"},
                "webhook": {"host": component_processes.LOOPBACK, "port": port, "certDir": str(certificates)},
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {"enable": False},
                "clientConnection": {"qps": limit.qps, "burst": limit.burst},
                "integrations": {"frameworks": ["batch/job", "pod"]},
                "managedJobsNamespaceSelector": _build_selector(),
                "resources": {"excludeResourcePrefixes": ["cpu", "memory"]},
                "featureGates": {"VisibilityOnDemand": False},
            }
        ),
        encoding="utf-8",
    )
    link = place / NAME
    link.unlink(missing_ok=True)
    link.symlink_to(programs / NAME)
    command = (str(link), f"--config={config}")
    environment = {"KUBECONFIG": str(place / "kubeconfig"), KUEUE_CERTIFICATES: str(certificates)}
    log = folder / "logs" / f"{NAME}.log"
    component_processes.start_component(folder, command, log, environment=environment)
    health = f"http://{component_processes.LOOPBACK}:{probe_port}/healthz"
    return ClusterPart(name=NAME, command=command, health=health, environment=environment)


async def register(
    api: Connection, folder: Path, name: str, settings: ClusterSettings, programs: Path, *, timeout_s: float
) -> None:
    """Make its webhooks known, then its flavour and queues: all GPUs for `default` unless the settings say else."""
    place = component_processes.find_scheduler_folder(folder, NAME)
    port = yaml.safe_load((place / "config.yaml").read_text(encoding="utf-8"))["webhook"]["port"]
    authority = base64.b64encode((control_plane.find_workdir(folder, name) / "pki" / "ca.crt").read_bytes()).decode()
    for document in yaml.safe_load_all((programs / "webhooks.yaml").read_text(encoding="utf-8")):
        if document:
            plural = f"{document['kind'].lower()}s"
            body = build_webhooks(document, f"https://{component_processes.LOOPBACK}:{port}", authority)
            await _create(api, f"{_REGISTRATION}/{plural}", orjson.dumps(body))
    total = sum(pool.nodes * pool.gpus for pool in settings.pools)
    flavour = _build_object("ResourceFlavor", "default")
    await _create_soon(api, f"{_API}/resourceflavors", flavour, timeout_s)
    for queue, gpus in (settings.queue_quotas or {"default": total}).items():
        await _create_soon(api, f"{_API}/clusterqueues", build_cluster_queue(queue, gpus), timeout_s)


def build_webhooks(document: Mapping[str, Any], address: str, authority: str) -> dict[str, Any]:
    """Its registration with addresses of this machine, without the webhooks of kinds that are not here."""
    hooks = []
    for hook in document["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        if any(part in path for part in _KEPT):
            local_hook = {**hook, "clientConfig": {"url": address + path, "caBundle": authority}}
            # Workloads of other schedulers never wait for it, and are made while it does not run.
            ours = {"namespaceSelector": _build_selector(), "objectSelector": _IN_QUEUE}
            hooks.append(local_hook if "-kueue-x-k8s-io-" in path else local_hook | ours)
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {"name": f"{NAME}-{document['metadata']['name']}"},
        "webhooks": hooks,
    }


def build_cluster_queue(queue: str, gpus: int) -> dict[str, Any]:
    """Build a Kueue queue with a quota of GPUs, first come first served; workloads without GPUs never wait."""
    flavour = {"name": "default", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [flavour]}]
    spec = {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": groups}
    return _build_object("ClusterQueue", queue, spec)


def _build_object(kind: str, name: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
    return head if spec is None else head | {"spec": spec}


async def create_local_queues(api: Connection, namespace: str, queues: set[str]) -> None:
    """Make the queues of a namespace known to Kueue; those that are there stay."""
    path = f"{_API}/namespaces/{namespace}/localqueues"
    for queue in sorted(queues):
        await _create_soon(api, path, _build_object("LocalQueue", queue, {"clusterQueue": queue}), 10.0)


def _build_selector() -> dict[str, Any]:
    return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": _OTHERS}]}


async def _create_soon(api: Connection, path: str, body: Mapping[str, Any], timeout_s: float) -> None:
    """Its webhooks may not answer yet."""
    deadline = time.monotonic() + timeout_s
    while not await _create(api, path, orjson.dumps(body), waits=time.monotonic() < deadline):
        await asyncio.sleep(_POLL_S)


async def _create(
    api: Connection, path: str, body: bytes, content_type: str = "application/json", *, waits: bool = False
) -> bool:
    """Whether it is there now; with `waits`, a server's or webhook's own failure is no error yet."""
    answer = await api.request("POST", path, body=body, content_type=content_type)
    if answer.status in (201, 409):
        return True
    if waits and answer.status >= 500:
        return False
    raise RunFailedError("Kueue could not be furnished", where=path, found=answer.refusal)
