"""Simulated GPU nodes: API objects labelled as simulated, kept Ready by kwok; their GPUs as devices where asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any

import orjson

from workbench.core.errors import RunFailedError
from workbench.kubernetes.manifests import build_object
from workbench.scaletest.cluster_api.api_discovery import SIMULATED
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster.cluster_record import GPU_MODELS, GpuModel, NodePool
from workbench.scaletest.scenario.workload_objects import KWOK_NODE

TAINT = {"key": KWOK_NODE, "value": "fake", "effect": "NoSchedule"}
RACK_NODES, BLOCK_RACKS, ZONE_BLOCKS = 8, 4, 4
_AT_ONCE = 64
# Driver and class of the GPUs that resource claims ask for.
DEVICE_CLASS = "gpu.workbench.local"
_DEVICE_API = "resource.k8s.io/v1"


def build_node(index: int, gpus: int, model: GpuModel = GPU_MODELS["H100"]) -> dict[str, Any]:
    """Build a simulated node: as large as an eight-GPU server, with the labels that schedulers read.

    The taint keeps others' pods away, the label `workbench.local/sim` is what our own select. Rack, block and zone
    follow from the index: 8 nodes, 4 racks, 4 blocks.
    """
    rack, block = index // RACK_NODES, index // (RACK_NODES * BLOCK_RACKS)
    zone = block // ZONE_BLOCKS
    name = _name_node(index)
    room = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "7Ti", "pods": "250"}
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        SIMULATED: "true",
        "topology.kubernetes.io/zone": f"zone-{zone}",
        "topology.kubernetes.io/block": f"block-{block}",
        "topology.kubernetes.io/rack": f"rack-{rack}",
    }
    if gpus:
        room["nvidia.com/gpu"] = str(gpus)
        labels |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": model.product,
            "nvidia.com/gpu.memory": str(model.memory_mib),
            "nvidia.com/gpu.count": str(gpus),
        }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {KWOK_NODE: "fake"}},
        "spec": {"taints": [TAINT]},
        "status": {"capacity": room, "allocatable": room},
    }


def _name_node(index: int) -> str:
    return f"sim-{index:05d}"


def build_nodes(pools: Iterable[NodePool]) -> list[dict[str, Any]]:
    """The nodes of all pools, numbered through."""
    each = [pool for pool in pools for _ in range(pool.nodes)]
    return [
        build_node(index, 0 if pool.as_devices else pool.gpus, GPU_MODELS[pool.gpu_model])
        for index, pool in enumerate(each)
    ]


def build_devices(pools: Iterable[NodePool]) -> list[dict[str, Any]]:
    """The class of devices and each node's slice of them, for pools whose GPUs are devices."""
    each = [pool for pool in pools for _ in range(pool.nodes)]
    slices = [_build_slice(index, pool) for index, pool in enumerate(each) if pool.as_devices and pool.gpus]
    is_ours = {"cel": {"expression": f'device.driver == "{DEVICE_CLASS}"'}}
    device_class = build_object(_DEVICE_API, "DeviceClass", DEVICE_CLASS, spec={"selectors": [is_ours]})
    return [device_class, *slices] if slices else []


def _build_slice(index: int, pool: NodePool) -> dict[str, Any]:
    name, model = _name_node(index), GPU_MODELS[pool.gpu_model]
    facts = {
        "attributes": {"productName": {"string": model.product}},
        "capacity": {"memory": {"value": f"{model.memory_mib}Mi"}},
    }
    spec = {
        "driver": DEVICE_CLASS,
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", **facts} for number in range(pool.gpus)],
    }
    return build_object(_DEVICE_API, "ResourceSlice", f"{name}-gpus", spec=spec)


async def create_nodes(api: Connection, pools: Iterable[NodePool], only: Collection[str] | None = None) -> int:
    """Make the nodes, or some by name, many at a time; those that are there stay. How many there should be."""
    wanted = [node for node in build_nodes(pools) if only is None or node["metadata"]["name"] in only]
    await _create_objects(api, wanted)
    return len(wanted)


async def create_devices(api: Connection, pools: Iterable[NodePool]) -> None:
    """Make the devices of pools whose GPUs are devices."""
    await _create_objects(api, build_devices(pools))


async def _create_objects(api: Connection, manifests: Iterable[dict[str, Any]]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def create_object(manifest: dict[str, Any]) -> None:
        async with gate:
            await api.create_object(manifest, refusal=f"a {manifest['kind']} was refused")

    async with asyncio.TaskGroup() as group:
        for manifest in manifests:
            group.create_task(create_object(manifest))


async def count_ready_nodes(api: Connection) -> tuple[int, int]:
    """Nodes that are Ready and take pods, of all there are."""
    items = await list_nodes(api)
    return sum(_is_ready(item) and not _list_foreign_taints(item) for item in items), len(items)


async def wait_for_nodes(api: Connection, count: int, *, timeout_s: float) -> None:
    """Wait until `count` nodes are ready.

    Kubernetes puts a taint on each new node, and its controller takes it off once the node is Ready: at its default
    client limit that is 20 nodes a second. We take it off ourselves as soon as a node is Ready, so that 200 nodes need
    no ten seconds, and the controller finds nothing left to do.
    """
    if count == 0:
        return
    ready_names: set[str] = set()
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            gate = asyncio.Semaphore(_AT_ONCE)
            # By a watch: asking again and again would cost the server what the nodes wait for.
            async for item in _watch_nodes(api):
                name = item["metadata"]["name"]
                if not _is_ready(item):
                    ready_names.discard(name)
                elif _list_foreign_taints(item):
                    ready_names.discard(name)
                    group.create_task(_remove_taints(api, name, gate))
                else:
                    ready_names.add(name)
                if len(ready_names) >= count:
                    break
    except TimeoutError:
        raise RunFailedError(
            "the nodes did not become Ready",
            found=f"{len(ready_names)} of {count} after {timeout_s:g} s",
            do="look at the logs of kwok-controller",
        ) from None


async def _watch_nodes(api: Connection) -> AsyncIterator[dict[str, Any]]:
    """States of the simulated nodes: existing ones first, then changes."""
    query = {"labelSelector": f"{SIMULATED}=true", "watch": "1", "timeoutSeconds": "60"}
    while True:
        async with contextlib.aclosing(api.stream("/api/v1/nodes", query)) as lines:
            async for _, line in lines:
                event = orjson.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]


async def list_nodes(api: Connection) -> list[dict[str, Any]]:
    """The simulated nodes, as the API server has them."""
    document = await api.json("GET", "/api/v1/nodes", query={"labelSelector": f"{SIMULATED}=true"})
    return list(document["items"])


def _is_ready(item: dict[str, Any]) -> bool:
    conditions = item.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _list_foreign_taints(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [taint for taint in item["spec"].get("taints") or [] if taint["key"] != KWOK_NODE]


async def _remove_taints(api: Connection, name: str, gate: asyncio.Semaphore) -> None:
    async with gate:
        await api.request(
            "PATCH",
            f"/api/v1/nodes/{name}",
            body=orjson.dumps({"spec": {"taints": [TAINT]}}),
            content_type="application/merge-patch+json",
        )
