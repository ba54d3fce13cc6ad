"""Kueue beside the default scheduler: its resources, webhooks on loopback, one queue by default with all GPUs.

Its webhooks are called by URL, with the local cluster's own certificate. What needs other operators' kinds is left out,
and so is its metrics server, which asks for credentials.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from workbench.kubernetes.manifests import build_object
from workbench.scaletest.cluster_api.api_discovery import SIMULATED
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import component_processes, control_plane
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, ClusterPart, ClusterSettings
from workbench.scaletest.local_cluster.custom_resources import create_definitions
from workbench.scaletest.local_cluster.program_builds import KUEUE_CERTIFICATES
from workbench.scaletest.local_cluster.simulated_nodes import TAINT

NAME, NAMESPACE, GPU = "kueue", "kueue-system", "nvidia.com/gpu"
TOPOLOGY_LABELS = ("topology.kubernetes.io/block", "topology.kubernetes.io/rack", "kubernetes.io/hostname")
_API = "kueue.x-k8s.io/v1beta2"
_REFUSAL = "Kueue could not be furnished"
# Of its webhooks those for its own kinds, jobs and pods.
_KEPT = ("-kueue-x-k8s-io-", "-batch-v1-job", "--v1-pod")
_OTHERS = ["kube-system", "kueue-system", "workbench-system"]
_IN_QUEUE = {"matchExpressions": [{"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}]}


async def create_resources(api: Connection, programs: Path, *, timeout_s: float) -> None:
    """Make its custom resources and its namespace, and wait until they are taken up."""
    await create_definitions(api, programs / "crds", "Kueue", timeout_s=timeout_s)
    await api.create_object(build_object("v1", "Namespace", NAMESPACE), refusal=_REFUSAL)


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
    return component_processes.start_part(
        folder,
        NAME,
        programs / NAME,
        place / NAME,
        [f"--config={config}"],
        health=f"http://{component_processes.LOOPBACK}:{probe_port}/healthz",
        environment={"KUBECONFIG": str(place / "kubeconfig"), KUEUE_CERTIFICATES: str(certificates)},
    )


async def register(
    api: Connection, folder: Path, name: str, settings: ClusterSettings, programs: Path, *, timeout_s: float
) -> None:
    """Make its webhooks known, then its flavour and queues: all GPUs for `default` unless the settings say else."""
    place = component_processes.find_scheduler_folder(folder, NAME)
    port = yaml.safe_load((place / "config.yaml").read_text(encoding="utf-8"))["webhook"]["port"]
    authority = base64.b64encode((control_plane.find_workdir(folder, name) / "pki" / "ca.crt").read_bytes()).decode()
    for document in yaml.safe_load_all((programs / "webhooks.yaml").read_text(encoding="utf-8")):
        if document:
            body = build_webhooks(document, f"https://{component_processes.LOOPBACK}:{port}", authority)
            await api.create_object(body, refusal=_REFUSAL)
    total = sum(pool.nodes * pool.gpus for pool in settings.pools)
    queues = [build_cluster_queue(queue, gpus) for queue, gpus in (settings.queue_quotas or {"default": total}).items()]
    # Its webhooks may not answer yet.
    for manifest in (*build_flavour(by_topology=settings.queue_topology), *queues):
        await api.create_object(manifest, refusal=_REFUSAL, retry_s=timeout_s)


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


def build_flavour(*, by_topology: bool) -> list[dict[str, Any]]:
    """Build the flavour of all nodes; by topology with the levels that it places pods by, widest first."""
    if not by_topology:
        return [build_object(_API, "ResourceFlavor", "default")]
    levels = [{"nodeLabel": label} for label in TOPOLOGY_LABELS]
    spec = {
        "nodeLabels": {SIMULATED: "true"},
        "tolerations": [TAINT | {"operator": "Equal"}],
        "topologyName": "default",
    }
    return [
        build_object(_API, "Topology", "default", spec={"levels": levels}),
        build_object(_API, "ResourceFlavor", "default", spec=spec),
    ]


def build_cluster_queue(queue: str, gpus: int) -> dict[str, Any]:
    """Build a Kueue queue with a quota of GPUs, first come first served; workloads without GPUs never wait."""
    flavour = {"name": "default", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [flavour]}]
    spec = {"namespaceSelector": {}, "queueingStrategy": "BestEffortFIFO", "resourceGroups": groups}
    return build_object(_API, "ClusterQueue", queue, spec=spec)


async def create_local_queues(api: Connection, namespace: str, queues: set[str]) -> None:
    """Make the queues of a namespace known to Kueue; those that are there stay."""
    for queue in sorted(queues):
        manifest = build_object(_API, "LocalQueue", queue, namespace, spec={"clusterQueue": queue})
        await api.create_object(manifest, refusal=_REFUSAL, retry_s=10.0)


def _build_selector() -> dict[str, Any]:
    return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": _OTHERS}]}
