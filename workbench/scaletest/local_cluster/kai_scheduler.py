"""The KAI scheduler beside the stock one: its resources, queues and five processes, without its operator.

Pods choose it by `schedulerName: kai-scheduler` and a queue by the label `kai.scheduler/queue`. What its chart also
brings is left out: admission webhooks (they need certificates and change pods that ask for fractions of a GPU) and the
node scale adjuster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from workbench.core.errors import RunFailedError
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import component_processes
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, ClusterPart, ClusterSettings

SCHEDULER_NAME = "kai-scheduler"
NAMESPACE, RESERVATION = "kai-scheduler", "kai-resource-reservation"
QUEUE, PARENT_QUEUE = "default", "default-parent"
# As in its chart: what a pod without a priority class of KAI's gets is `train`, whose pods may be preempted.
PRIORITIES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
KAI_PROCESSES = tuple(name for name in DEFAULT_LIMITS if name.startswith("kai-"))
_POLL_S = 0.05


def start_kai(folder: Path, settings: ClusterSettings, programs: Path, kubeconfig: Path) -> tuple[ClusterPart, ...]:
    """Start its five processes. They are not waited for."""
    numbers = component_processes.find_free_ports(2 * len(KAI_PROCESSES))
    environment = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": NAMESPACE}
    parts = []
    for index, name in enumerate(KAI_PROCESSES):
        link = folder / "kai" / name
        link.parent.mkdir(exist_ok=True, mode=0o700)
        link.symlink_to(programs / name.removeprefix("kai-"))
        limit = settings.client_limits.get(name, DEFAULT_LIMITS[name])
        arguments, health = _build_arguments(name, *numbers[2 * index : 2 * index + 2])
        command = (str(link), *arguments, f"--qps={limit.qps:.0f}", f"--burst={limit.burst}")
        component_processes.start_component(folder, command, folder / "logs" / f"{name}.log", environment=environment)
        parts.append(ClusterPart(name=name, command=command, health=health, environment=environment))
    return tuple(parts)


def _build_arguments(name: str, port: int, probe_port: int) -> tuple[tuple[str, ...], str]:
    """Arguments of a KAI process without its client limits, and the URL at which its health is checked."""
    at, probe = f"{component_processes.LOOPBACK}:{port}", f"{component_processes.LOOPBACK}:{probe_port}"
    metrics, healthz = f"http://{at}/metrics", f"http://{probe}/healthz"
    both = (f"--metrics-bind-address={at}", f"--health-probe-bind-address={probe}")
    skip = "--skip-controller-name-validation"
    return {
        # Its plugin server would listen on all addresses and cannot be told otherwise. A port that no server can have
        # leaves it out: what it serves is a snapshot for debugging.
        "kai-scheduler": ((f"--listen-address={at}", "--plugin-server-port=-1"), metrics),
        "kai-podgrouper": (both, healthz),
        # Its probe has nothing to tell.
        "kai-binder": ((*both, "--fake-gpu-nodes"), metrics),
        "kai-podgroupcontroller": ((*both, skip, "--enable-podgroup-webhook=false"), healthz),
        "kai-queuecontroller": ((f"--metrics-listen-address={at}", skip, "--enable-webhook=false"), metrics),
    }[name]


async def create_kai_objects(api: Connection, programs: Path | None, *, timeout_s: float) -> None:
    """Make what its processes want to find: custom resources, namespaces, priority classes, two queues."""
    if programs is None:
        return
    resource_names = [await _create_resource(api, file) for file in sorted((programs / "crds").glob("*.yaml"))]
    for name in (NAMESPACE, RESERVATION):
        await _create_object(api, "/api/v1/namespaces", {"metadata": {"name": name}})
    for name, value in PRIORITIES.items():
        await _create_object(
            api,
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"},
        )
    deadline = time.monotonic() + timeout_s
    for name in resource_names:
        while not await _is_established(api, name):
            if time.monotonic() > deadline:
                raise RunFailedError("a resource of KAI was not taken up", where=name)
            await asyncio.sleep(_POLL_S)
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: dict[str, Any] = {"resources": dict.fromkeys(("cpu", "gpu", "memory"), unlimited)}
    for name, more in ((PARENT_QUEUE, {}), (QUEUE, {"parentQueue": PARENT_QUEUE})):
        body = {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {**spec, **more},
        }
        await _create_object(api, "/apis/scheduling.run.ai/v2/queues", body)


async def _create_resource(api: Connection, file: Path) -> str:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = await api.request("POST", path, body=file.read_bytes(), content_type="application/yaml")
    if answer.status not in (201, 409):
        raise RunFailedError("a resource of KAI was refused", where=file.name, found=answer.refusal)
    # File names are GROUP_PLURAL.yaml, resources are called PLURAL.GROUP.
    group, plural = file.stem.split("_", 1)
    return f"{plural}.{group}"


async def _create_object(api: Connection, path: str, body: Mapping[str, Any]) -> None:
    answer = await api.request("POST", path, body=orjson.dumps(body))
    if answer.status not in (201, 409):
        raise RunFailedError("KAI could not be furnished", where=path, found=answer.refusal)


async def _is_established(api: Connection, name: str) -> bool:
    definition = await api.json("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    conditions = definition.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
