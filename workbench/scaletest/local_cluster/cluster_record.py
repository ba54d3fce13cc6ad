"""Settings of a local cluster (nodes, schedulers, client limits) and its record on disk (cluster.json)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.core import files
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.core.files import cache_folder
from workbench.core.schema import FiniteModel
from workbench.scaletest.observation.run_records import Component
from workbench.scaletest.scenario.scheduler_recipes import SchedulerRecipe

Scheduler = Literal["default", "kai"]
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
MAX_NODES = 20_000
MAX_GPUS = 64
MAX_START_S = 3600.0
_KEY = re.compile(r"[a-z][a-z0-9-]{0,80}")
_VALUE = re.compile(r"[\x20-\x7e]{0,400}")
_LIMIT = re.compile(r"(?P<component>[a-z-]{1,40})=(?P<qps>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?::(?P<burst>[0-9]{1,7}))?")
# Arguments that keep the cluster local and private, or that other options set.
_OURS = re.compile(
    r"(bind-address|secure-port|etcd-.*|tls-.*|client-ca-.*|service-account-.*|audit-.*|authorization-mode)"
)

# Gates of Kubernetes 1.36's own gang scheduling, and the API that its PodGroups need.
NATIVE_GANGS = ("GenericWorkload", "GangScheduling")
NATIVE_GANGS_API = "scheduling.k8s.io/v1alpha2=true"
_GATE = re.compile(r"[A-Z][A-Za-z0-9]{1,60}")
_SHORT = {"controller-manager": "kube-controller-manager", "scheduler": "kube-scheduler"}
RECORD_FILE = "cluster.json"
_MAX_BYTES = 4 << 20
_POLL_S = 0.05


class ClientLimit(FiniteModel):
    """Client limit of a component: requests per second to the API server, and burst."""

    qps: float = Field(gt=0, le=1_000_000)
    burst: int = Field(ge=1, le=10_000_000)


class GpuModel(NamedTuple):
    """GPU facts that NVIDIA's feature discovery writes on a node: product, and driver-reported memory in MiB."""

    product: str
    memory_mib: int


GPU_MODELS = {
    "H100": GpuModel("NVIDIA-H100-80GB-HBM3", 81_559),
    "H200": GpuModel("NVIDIA-H200", 143_771),
    "A100": GpuModel("NVIDIA-A100-SXM4-80GB", 81_920),
    "L40S": GpuModel("NVIDIA-L40S", 46_068),
    "T4": GpuModel("Tesla-T4", 15_360),
}


class NodePool(FiniteModel):
    """A pool of identical nodes.

    `as_devices`: Its GPUs are devices that resource claims ask for, in place of `nvidia.com/gpu`.
    """

    nodes: int = Field(ge=0, le=MAX_NODES)
    gpus: int = Field(ge=0, le=MAX_GPUS)
    gpu_model: Literal["H100", "H200", "A100", "L40S", "T4"] = "H100"
    as_devices: bool = False


class StartDelay(FiniteModel):
    """How long simulated nodes take to start a pod: evenly between two bounds, in seconds."""

    least_s: float = Field(ge=0, le=MAX_START_S)
    most_s: float = Field(ge=0, le=MAX_START_S)


# Default client limits. Kubernetes 1.36: defaults of clientConnection; KAI 0.12: defaults of the flags; Kueue 0.19: its
# shipped configuration. etcd, kwok and the API server have no client limit.
DEFAULT_LIMITS = {
    "kube-controller-manager": ClientLimit(qps=20, burst=30),
    "kube-scheduler": ClientLimit(qps=50, burst=100),
    "kai-scheduler": ClientLimit(qps=50, burst=300),
    "kai-podgrouper": ClientLimit(qps=50, burst=300),
    "kai-binder": ClientLimit(qps=50, burst=300),
    "kai-podgroupcontroller": ClientLimit(qps=50, burst=300),
    "kai-queuecontroller": ClientLimit(qps=50, burst=300),
    "kueue": ClientLimit(qps=300, burst=500),
}


class ClusterSettings(FiniteModel):
    """Settings of a cluster.

    `scheduler`: `kai`: KAI runs beside the default scheduler, and pods choose by their schedulerName.
    `client_limits`: Requests per second (and burst) of components; Kubernetes' defaults for the others.
    `feature_gates`, `scheduler_arguments`: Gates of API server, controller-manager and scheduler; other arguments of
    the default scheduler.
    `start_delay`: How long simulated nodes take to start a pod; no time without it.
    `recipes`: Schedulers of program `kube-scheduler` that run beside the control plane's own.
    `kueue`, `queue_quotas`: Kueue runs, with these queues and their GPUs; one queue `default` with all GPUs without
    them. `queue_topology`: It places pods by block, rack and host.
    """

    pools: tuple[NodePool, ...] = (NodePool(nodes=200, gpus=8),)
    scheduler: Scheduler = "default"
    client_limits: dict[str, ClientLimit] = Field(default={})
    api_arguments: dict[str, str] = Field(default={})
    feature_gates: dict[str, bool] = Field(default={})
    scheduler_arguments: dict[str, str] = Field(default={})
    start_delay: StartDelay | None = None
    recipes: tuple[SchedulerRecipe, ...] = ()
    kueue: bool = False
    queue_quotas: dict[str, int] = Field(default={})
    queue_topology: bool = False

    @property
    def native_gangs(self) -> bool:
        """Kubernetes' own gang scheduling is on."""
        return all(self.feature_gates.get(gate) for gate in NATIVE_GANGS)

    @property
    def nodes(self) -> int:
        """Number of nodes in all pools."""
        return sum(pool.nodes for pool in self.pools)


def parse_feature_gates(texts: Iterable[str]) -> dict[str, bool]:
    """Read the values of --feature-gate.

    >>> parse_feature_gates(["GangScheduling=true"])
    {'GangScheduling': True}
    """
    gates = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not _GATE.fullmatch(name) or value not in ("true", "false"):
            allowed = "NAME=true or NAME=false, such as GangScheduling=true"
            raise ConfigError("not a feature gate", where="--feature-gate", found=text[:80], allowed=allowed)
        gates[name] = value == "true"
    return gates


def parse_start_delay(text: str) -> StartDelay:
    """Parse a start delay `SECONDS` or `LEAST:MOST`.

    >>> parse_start_delay("3"), parse_start_delay("0.5:4").most_s
    (StartDelay(least_s=3.0, most_s=3.0), 4.0)
    """
    try:
        bounds = [float(part) for part in text.split(":")]
        least_s, most_s = bounds * 2 if len(bounds) == 1 else bounds
        if not 0 <= least_s <= most_s <= MAX_START_S:
            raise ValueError
    except ValueError:
        allowed = f"SECONDS or LEAST:MOST, 0 to {MAX_START_S:g}, such as 3 or 0.5:4"
        raise ConfigError("not a start delay", where="--start-delay", found=text[:60], allowed=allowed) from None
    return StartDelay(least_s=least_s, most_s=most_s)


def parse_queue_quotas(texts: Iterable[str]) -> dict[str, int]:
    """Parse queues `NAME=GPUS`.

    >>> parse_queue_quotas(["default=6", "team-b=2"])
    {'default': 6, 'team-b': 2}
    """
    quotas = {}
    for text in texts:
        name, _, gpus = text.partition("=")
        if not NAME.fullmatch(name) or not (gpus.isascii() and gpus.isdigit() and len(gpus) <= 7):
            raise ConfigError("not a queue", where="--queue", found=text[:80], allowed="NAME=GPUS, such as default=64")
        quotas[name] = int(gpus)
    return quotas


def check_cluster_name(name: str) -> str:
    """Validate a cluster name, which is used for a folder and a context.

    >>> check_cluster_name("local")
    'local'
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            "not a cluster name",
            where="--name",
            found=repr(name[:60]),
            allowed="up to 40 lower-case letters, digits and dashes, such as local",
        )
    return name


def parse_pools(
    nodes: Sequence[int], gpus: Sequence[int], models: Sequence[str] = (), *, as_devices: bool = False
) -> tuple[NodePool, ...]:
    """Build node pools from the values of --nodes, --gpus and --gpu-model, in turn; without models all are H100.

    >>> [(pool.gpus, pool.gpu_model) for pool in parse_pools([3, 2], [4, 8], ["T4", "H100"])]
    [(4, 'T4'), (8, 'H100')]
    """
    if models and len(models) != len(nodes):
        raise ConfigError(
            "--gpu-model and --nodes differ in number",
            where="--gpu-model",
            found=f"{len(models)} and {len(nodes)}",
            do="for two pools: --nodes 3 --gpus 4 --gpu-model T4 --nodes 2 --gpus 8 --gpu-model H100",
        )
    if unknown := [model for model in models if model not in GPU_MODELS]:
        raise ConfigError("unknown GPU model", where="--gpu-model", found=unknown[0][:80], allowed=list(GPU_MODELS))
    if len(nodes) != len(gpus):
        raise ConfigError(
            "--nodes and --gpus differ in number",
            where="--nodes, --gpus",
            found=f"{len(nodes)} and {len(gpus)}",
            do="for two pools: --nodes 3 --gpus 4 --nodes 2 --gpus 8",
        )
    for option, values, maximum in (("--nodes", nodes, MAX_NODES), ("--gpus", gpus, MAX_GPUS)):
        for value in values:
            if not 0 <= value <= maximum:
                raise ConfigError("out of range", where=option, found=value, allowed=f"0 to {maximum}")
    if sum(nodes) > MAX_NODES:
        raise ConfigError("too many nodes", where="--nodes", found=sum(nodes), allowed=f"at most {MAX_NODES} in all")
    return tuple(
        NodePool.model_validate({"nodes": n, "gpus": g, "gpu_model": model, "as_devices": as_devices})
        for n, g, model in zip(nodes, gpus, models or ["H100"] * len(nodes), strict=True)
    )


def parse_client_limits(texts: Iterable[str]) -> dict[str, ClientLimit]:
    """Parse client limits `COMPONENT=QPS[:BURST]`; the default burst is twice the rate.

    >>> parse_client_limits(["controller-manager=200:400"])
    {'kube-controller-manager': ClientLimit(qps=200.0, burst=400)}
    """
    limits = {}
    for text in texts:
        match = _LIMIT.fullmatch(text)
        if match is None or float(match["qps"]) <= 0 or match["burst"] in ("0", "00"):
            raise ConfigError(
                "not a client limit", where="--client-limit", found=text[:100], allowed="COMPONENT=QPS[:BURST]"
            )
        qps = float(match["qps"])
        burst = int(match["burst"]) if match["burst"] else max(1, round(2 * qps))
        limits[_SHORT.get(match["component"], match["component"])] = ClientLimit(qps=qps, burst=max(1, burst))
    return limits


def check_client_limits(settings: ClusterSettings) -> None:
    """Refuse client limits of components that this cluster does not have."""
    components = [
        name
        for name in DEFAULT_LIMITS
        if name != "kueue" and (settings.scheduler == "kai" or not name.startswith("kai-"))
    ]
    components += [*(recipe.name for recipe in settings.recipes), *(["kueue"] if settings.kueue else [])]
    for name in settings.client_limits:
        if name not in components:
            raise ConfigError(
                "no component with a client limit", where="--client-limit", found=name, allowed=components
            )


def parse_api_arguments(texts: Iterable[str]) -> dict[str, str]:
    """Parse arguments of the API server from `KEY=VALUE`.

    >>> parse_api_arguments(["max-mutating-requests-inflight=2"])
    {'max-mutating-requests-inflight': '2'}
    """
    arguments = {}
    for text in texts:
        key, equals, value = text.removeprefix("--").partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigError("not an argument", where="--api-arg", found=text[:100], allowed="KEY=VALUE")
        arguments[key] = value
    return check_api_arguments(arguments)


def check_api_arguments(arguments: Mapping[str, str]) -> dict[str, str]:
    """Refuse arguments of the API server that would expose the cluster."""
    for key, value in arguments.items():
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigError("not an argument", where="--api-arg", found=f"{key}={value}"[:100], allowed="KEY=VALUE")
        if _OURS.fullmatch(key):
            raise ConfigError(
                "this argument is set by the workbench",
                where="--api-arg",
                found=key,
                do="remove it: the cluster listens on the loopback interface and writes its audit log",
            )
    return dict(arguments)


class ClusterPart(BaseModel):
    """A process of a cluster: its command line and health endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    command: tuple[str, ...]
    health: str
    environment: dict[str, str] = {}


class ClusterRecord(BaseModel):
    """A cluster: its settings and processes. Contains no secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format_version: Literal[1] = 1
    name: str
    state: Literal["starting", "up"]
    folder: Path
    settings: ClusterSettings
    provider: str
    kubectl: Path | None = None
    kubernetes_version: str | None = None
    server: str = ""
    audited: bool = False
    parts: tuple[ClusterPart, ...] = ()
    components: tuple[Component, ...] = ()
    owner_pid: int = 0  # of earlier records, as the next field
    owner_started: float = 0.0


def find_clusters_folder() -> Path:
    """Folder of this user's local clusters on this machine.

    Machines and containers may share a home folder without seeing each other's processes: each has its own folder, so
    that none takes another's cluster for a dead one.
    """
    return cache_folder().absolute() / "scaletest" / "clusters" / hash_machine()


def hash_machine() -> str:
    """Short hash that identifies this machine, in place of its name."""
    try:
        machine_id = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        machine_id = ""
    return hashlib.sha256(f"{socket.gethostname()} {machine_id}".encode()).hexdigest()[:8]


def find_cluster_folder(name: str) -> Path:
    """Folder of a cluster in the cache; its data may be elsewhere."""
    return find_clusters_folder() / check_cluster_name(name)


def write_record(record: ClusterRecord) -> None:
    """Write the record atomically."""
    path = files.write_text(find_cluster_folder(record.name) / RECORD_FILE, record.model_dump_json(indent=1) + "\n")
    path.chmod(0o600)


def read_record(name: str) -> ClusterRecord | None:
    """Read the record of a cluster; None if there is none of this name."""
    path = find_cluster_folder(name) / RECORD_FILE
    if not path.is_file():
        return None
    try:
        return ClusterRecord.model_validate_json(files.read_up_to(path, _MAX_BYTES))
    except ValidationError as error:
        raise ConfigError(
            "not the record of a cluster",
            where=path,
            found=str(error.errors()[0]["msg"])[:200],
            do=f"workbench scaletest cluster down --name {name}",
        ) from None


def list_cluster_names() -> list[str]:
    """Names of all recorded clusters, running or not."""
    return sorted(path.parent.name for path in find_clusters_folder().glob(f"*/{RECORD_FILE}"))


def require_posix() -> None:
    """Refuse platforms without control-plane programs."""
    if os.name != "posix":
        raise MissingToolError("a local cluster needs Linux or macOS", do="use the Windows subsystem for Linux")


@contextlib.contextmanager
def lock_cluster(name: str, *, timeout_s: float = 120) -> Iterator[None]:
    """Lock on starting and stopping this cluster, released when the process exits."""
    require_posix()
    import fcntl

    find_clusters_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = find_clusters_folder() / f".{check_cluster_name(name)}.lock"
    deadline = time.monotonic() + timeout_s
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder removes the file: the locked file may no longer be the one that others open.
            if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                break
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(handle)
        if time.monotonic() > deadline:
            raise RunFailedError("another process is starting or stopping this cluster", where=name, do="try again")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)
