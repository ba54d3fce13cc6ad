"""Simulated nodes: what they say of themselves."""

from __future__ import annotations

from collections import Counter

from workbench.scaletest.cluster_api.api_discovery import SIMULATED
from workbench.scaletest.local_cluster import simulated_nodes
from workbench.scaletest.local_cluster.cluster_record import NodePool


def test_a_node_says_that_it_is_simulated_and_keeps_others_away() -> None:
    found = simulated_nodes.build_node(7, 8)
    assert found["metadata"]["labels"][SIMULATED] == "true"
    assert found["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert found["spec"]["taints"] == [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]


def test_a_node_with_gpus_has_the_labels_of_real_ones() -> None:
    labels = simulated_nodes.build_node(0, 8)["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["nvidia.com/gpu.memory"] == "81559"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert simulated_nodes.build_node(0, 8)["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_a_node_without_gpus_has_none_of_them() -> None:
    found = simulated_nodes.build_node(0, 0)
    assert "nvidia.com/gpu" not in found["status"]["capacity"]
    assert not [key for key in found["metadata"]["labels"] if key.startswith("nvidia.com/")]


def test_a_pool_names_its_gpus_model() -> None:
    (found,) = simulated_nodes.build_nodes([NodePool(nodes=1, gpus=4, gpu_model="T4")])
    assert found["metadata"]["labels"]["nvidia.com/gpu.product"] == "Tesla-T4"


def test_pools_are_numbered_through() -> None:
    found = simulated_nodes.build_nodes([NodePool(nodes=2, gpus=4), NodePool(nodes=1, gpus=0)])
    assert [one["metadata"]["name"] for one in found] == ["sim-00000", "sim-00001", "sim-00002"]
    assert [one["status"]["capacity"].get("nvidia.com/gpu") for one in found] == ["4", "4", None]


def test_racks_blocks_and_zones_are_nested() -> None:
    found = [one["metadata"]["labels"] for one in simulated_nodes.build_nodes([NodePool(nodes=256, gpus=8)])]
    racks = Counter(one["topology.kubernetes.io/rack"] for one in found)
    assert set(racks.values()) == {8}
    inside = {
        (one["topology.kubernetes.io/rack"], one["topology.kubernetes.io/block"], one["topology.kubernetes.io/zone"])
        for one in found
    }
    assert len(inside) == len(racks) == 32
    assert len({block for _, block, _ in inside}) == 8
    assert len({zone for _, _, zone in inside}) == 2


def test_gpus_as_devices_are_slices_of_one_class_and_no_extended_resource() -> None:
    pools = [NodePool(nodes=1, gpus=4), NodePool(nodes=1, gpus=2, gpu_model="T4", as_devices=True)]
    assert "nvidia.com/gpu" not in simulated_nodes.build_nodes(pools)[1]["status"]["allocatable"]
    device_class, devices = simulated_nodes.build_devices(pools)
    assert device_class["kind"] == "DeviceClass"
    spec = devices["spec"]
    assert (spec["nodeName"], spec["driver"], len(spec["devices"])) == ("sim-00001", "gpu.workbench.local", 2)
    assert spec["devices"][0]["attributes"]["productName"]["string"] == "Tesla-T4"
    assert simulated_nodes.build_devices(pools[:1]) == []
