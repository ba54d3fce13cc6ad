"""Pods of others: what the run does to them."""

from __future__ import annotations

from typing import Any

import msgspec

from workbench.scaletest.observation import watch_targets
from workbench.scaletest.observation.decoded_objects import Pod
from workbench.scaletest.observation.object_ledger import Sight
from workbench.scaletest.observation.resource_watch import WatchSink
from workbench.scaletest.observation.watch_targets import ForeignPods

NOW = Sight(1)


def pod(name: str, phase: str = "Running", namespace: str = "theirs", *, hit: bool = False) -> Pod:
    conditions: list[dict[str, Any]] = []
    if hit:
        conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": name},
            "status": {"phase": phase, "conditions": conditions},
        },
        Pod,
    )


def watched() -> tuple[ForeignPods, WatchSink, list[str]]:
    notes: list[str] = []
    found = ForeignPods("st-00000001", ("ours",), notes.append)
    return found, found.build_sink(), notes


def test_all_pods_but_the_runs_are_selected() -> None:
    found, _, _ = watched()
    assert found.build_target().query == {"labelSelector": "workbench.local/run-id!=st-00000001"}
    assert found.build_target().path == "/api/v1/pods"


def test_an_eviction_is_counted_once_and_told() -> None:
    found, sink, notes = watched()
    sink.put(pod("early", hit=True), NOW)
    found.begin()
    for _ in range(2):
        sink.put(pod("early", hit=True), NOW)
        sink.put(pod("late", hit=True), NOW)
    assert found.evicted == 1
    assert notes == ["a pod of others was evicted: theirs/late PreemptionByScheduler"]


def test_only_the_first_evictions_are_named() -> None:
    found, sink, notes = watched()
    found.begin()
    for number in range(100):
        sink.put(pod(f"p{number}", hit=True), NOW)
    assert found.evicted == 100
    assert len(notes) == watch_targets.MAX_NAMES
    assert "only counted" in notes[-1]


def test_growth_of_waiting_pods_is_told_when_it_doubles() -> None:
    found, sink, notes = watched()
    sink.put(pod("before", "Pending"), NOW)
    found.begin()
    assert found.pending_at_start == 1
    for number in range(12):
        sink.put(pod(f"p{number}", "Pending"), NOW)
    assert found.pending == 13
    assert [note.split(" ")[0] for note in notes] == ["5", "10"]
    sink.put(pod("p0", "Running"), NOW)
    assert sink.gone is not None
    sink.gone(pod("p1", "Pending"), NOW)
    assert found.pending == 11


def test_what_a_list_lacks_waits_no_more() -> None:
    found, sink, _ = watched()
    sink.put(pod("a", "Pending"), NOW)
    sink.put(pod("b", "Pending"), NOW)
    assert sink.missing is not None
    sink.missing({"b"}, NOW)
    assert found.pending == 1


def test_pods_in_the_runs_own_namespaces_are_no_foreigners() -> None:
    found, sink, _ = watched()
    found.begin()
    sink.put(pod("a", "Pending", "ours", hit=True), NOW)
    assert (found.pending, found.evicted) == (0, 0)
