"""Nodes: what they offer, and when they are ready."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.decoded_objects import Node
from workbench.scaletest.observation.object_ledger import Sight
from workbench.scaletest.observation.watch_targets import MAX_LABELS, NodeObserver, build_node_line, parse_quantity


def node(ready: str = "True", **fields: Any) -> Node:
    offers = {"cpu": "191500m", "memory": "2Ti", "pods": "250", "nvidia.com/gpu": "8", "ephemeral-storage": "1Ei"}
    made = {
        "metadata": {"name": "n1", "labels": fields.pop("labels", {})},
        "spec": {"taints": fields.pop("taints", [])},
        "status": {"allocatable": offers, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(made | fields, Node)


def test_what_a_node_offers() -> None:
    found = build_node_line(node(), 7)
    assert (found.cpus, found.memory_bytes, found.pods, found.gpus) == (191.5, 2 << 40, 250, 8)
    assert (found.ready, found.simulated, found.arrival_ns) == (True, False, 7)


def test_a_node_without_a_status_offers_nothing_and_is_not_ready() -> None:
    found = build_node_line(msgspec.convert({"metadata": {"name": "n1"}}, Node), 7)
    assert (found.cpus, found.memory_bytes, found.pods, found.gpus, found.ready) == (0, 0, 0, 0, False)


def test_a_node_that_exists_in_the_api_only_is_known_by_label_or_taint() -> None:
    assert build_node_line(node(labels={"workbench.local/sim": "true"}), 0).simulated
    assert build_node_line(node(taints=[{"key": "kwok.x-k8s.io/node", "value": "fake"}]), 0).simulated
    assert not build_node_line(node(labels={"workbench.local/sim": "false"}, taints=[{"key": "other"}]), 0).simulated


def test_only_labels_that_tell_what_a_node_is_are_kept() -> None:
    labels = {
        "topology.kubernetes.io/zone": "z1",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "team.example/owner": "somebody",
        "kubernetes.io/hostname": "host",
    }
    assert set(build_node_line(node(labels=labels), 0).labels) == {
        "topology.kubernetes.io/zone",
        "nvidia.com/gpu.product",
    }
    many = {f"topology.kubernetes.io/l{number}": "x" * 300 for number in range(100)}
    found = build_node_line(node(labels=many), 0).labels
    assert len(found) == MAX_LABELS
    assert max(map(len, found.values())) == 100


@pytest.mark.parametrize("text", ["", "many", "-1", "1Xi", "1e", None, "nan", "inf", "1e400"])
def test_what_is_no_quantity_is_none(text: str | None) -> None:
    assert parse_quantity(text) == 0.0


def test_a_quantity_is_bounded() -> None:
    assert parse_quantity("9" * 400) == parse_quantity("99999E") == 1e18


def test_a_node_is_written_when_its_readiness_changes() -> None:
    rows: list[run_records.NodeSeen] = []
    nodes = NodeObserver(rows.append)
    for ready in ("True", "True", "Unknown", "False", "True"):
        nodes.put(node(ready), Sight(1))
    assert [one.ready for one in rows] == [True, False, True]
    assert nodes.not_ready == 0
    nodes.put(node("False"), Sight(2))
    assert nodes.not_ready == 1
    nodes.remove(node("False"), Sight(3))
    assert nodes.not_ready == 0


@pytest.mark.parametrize(
    ("name", "later"), [("nvidia.com/gpu", "8"), ("cpu", "96"), ("memory", "1Ti"), ("pods", "500")]
)
def test_a_node_is_written_when_what_it_offers_changes(name: str, later: str) -> None:
    rows: list[run_records.NodeSeen] = []
    nodes = NodeObserver(rows.append)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    first = {"cpu": "64", "memory": "2Ti", "pods": "250"}
    for offers in (first, first, first | {name: later}, first | {name: later}):
        nodes.put(node(status=ready | {"allocatable": offers}), Sight(1))
    assert [one.ready for one in rows] == [True, True]
    assert (rows[0].gpus, rows[1].gpus) == (0, 8 if name.endswith("gpu") else 0)
    assert rows[0] != rows[1]


def test_a_ready_node_that_is_deleted_is_ready_no_more() -> None:
    rows: list[run_records.NodeSeen] = []
    nodes = NodeObserver(rows.append)
    nodes.put(node(), Sight(1))
    nodes.remove(node(), Sight(2))
    assert [(one.ready, one.arrival_ns) for one in rows] == [(True, 1), (False, 2)]
