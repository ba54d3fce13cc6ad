"""The KAI scheduler beside the stock one: its resources, queues and five processes, without its operator.

Pods choose it by `schedulerName: kai-scheduler` and a queue by the label `kai.scheduler/queue`. What its chart also
brings is left out: admission webhooks (they need certificates and change pods that ask for fractions of a GPU) and the
node scale adjuster.
"""

from __future__ import annotations

from pathlib import Path

from workbench.kubernetes.manifests import build_object
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import component_processes
from workbench.scaletest.local_cluster.cluster_record import DEFAULT_LIMITS, ClusterPart, ClusterSettings
from workbench.scaletest.local_cluster.custom_resources import create_definitions

SCHEDULER_NAME = "kai-scheduler"
NAMESPACE, RESERVATION = "kai-scheduler", "kai-resource-reservation"
QUEUE, PARENT_QUEUE = "default", "default-parent"
# As in its chart: what a pod without a priority class of KAI's gets is `train`, whose pods may be preempted.
PRIORITIES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
KAI_PROCESSES = tuple(name for name in DEFAULT_LIMITS if name.startswith("kai-"))


def start_kai(folder: Path, settings: ClusterSettings, programs: Path, kubeconfig: Path) -> tuple[ClusterPart, ...]:
    """Start its five processes. They are not waited for."""
    numbers = component_processes.find_free_ports(2 * len(KAI_PROCESSES))
    environment = {"KUBECONFIG": str(kubeconfig), "POD_NAMESPACE": NAMESPACE}
    parts = []
    for index, name in enumerate(KAI_PROCESSES):
        program, link = programs / name.removeprefix("kai-"), folder / "kai" / name
        limit = settings.client_limits.get(name, DEFAULT_LIMITS[name])
        arguments, health = _build_arguments(name, *numbers[2 * index : 2 * index + 2])
        arguments += (f"--qps={limit.qps:.0f}", f"--burst={limit.burst}")
        parts.append(
            component_processes.start_part(
                folder, name, program, link, arguments, health=health, environment=environment
            )
        )
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
    await create_definitions(api, programs / "crds", "KAI", timeout_s=timeout_s)
    objects = [build_object("v1", "Namespace", name) for name in (NAMESPACE, RESERVATION)]
    for name, value in PRIORITIES.items():
        policy = "PreemptLowerPriority"
        priority = build_object("scheduling.k8s.io/v1", "PriorityClass", name, value=value, preemptionPolicy=policy)
        objects.append(priority)
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "gpu", "memory"), unlimited)
    for name, more in ((PARENT_QUEUE, {}), (QUEUE, {"parentQueue": PARENT_QUEUE})):
        objects.append(build_object("scheduling.run.ai/v2", "Queue", name, spec={"resources": resources, **more}))
    for manifest in objects:
        await api.create_object(manifest, refusal="KAI could not be furnished")
