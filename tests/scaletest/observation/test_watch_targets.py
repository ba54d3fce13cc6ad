"""What is watched: what the cluster has of it, selected by the run's labels where those are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.scaletest.observation.scripted import NAMESPACE, ScriptedApi, scripted
from workbench.core.errors import ConfigError
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import ApiError, parse_timestamp
from workbench.scaletest.observation import run_records, watch_targets
from workbench.scaletest.observation.object_ledger import Event, Node, ObjectLedger, Pod, Scope, Sight
from workbench.scaletest.observation.resource_watch import WatchSink
from workbench.scaletest.observation.sampler_process import SamplerOptions
from workbench.scaletest.observation.watch_targets import (
    MAX_LABELS,
    ForeignPods,
    NodeObserver,
    WatchChoice,
    build_node_line,
    parse_quantity,
)

RUN = "st-00000001"
TRAININGS = ApiResource("example.com", "v1", "trainings")


def chosen(change: Callable[[ScriptedApi], Any] = lambda api: None, **options: Any) -> list[WatchChoice]:
    common: dict[str, Any] = {"folder": Path("run"), "run": RUN, "namespaces": (NAMESPACE,)}

    async def ask() -> list[WatchChoice]:
        async with scripted() as (api, connection):
            api.cluster()
            change(api)
            return await watch_targets.list_choices(connection, SamplerOptions(**common, **options))

    return asyncio.run(ask())


def test_jobs_pods_claims_and_events_are_always_watched_and_of_schedulers_what_there_is() -> None:
    found = chosen()
    assert [(one.resource, str(one.kind), one.name) for one in found] == [
        ("pod", "v1/pods", "Pod"),
        ("job", "batch/v1/jobs", "Job"),
        ("pvc", "v1/persistentvolumeclaims", "PersistentVolumeClaim"),
        ("event", "events.k8s.io/v1/events", "Event"),
        ("podgroup", "scheduling.run.ai/v2alpha2/podgroups", "PodGroup"),
    ]


def test_a_workloads_own_kind_is_watched_by_the_runs_labels() -> None:
    found = chosen(kinds=(TRAININGS, api_discovery.PODS, api_discovery.JOBS))
    (training,) = [one for one in found if one.resource == "workload"]
    watched = watch_targets.build_watch_target(training, NAMESPACE, RUN)
    assert watched.path == f"/apis/example.com/v1/namespaces/{NAMESPACE}/trainings"
    assert watched.query == {"labelSelector": f"app.kubernetes.io/managed-by=workbench,workbench.local/run-id={RUN}"}
    assert watched.scope.kind == "Training"


def test_what_controllers_make_is_watched_whatever_its_labels() -> None:
    selectors = {one.resource: watch_targets.build_watch_target(one, NAMESPACE, RUN).query for one in chosen()}
    assert [name for name, query in selectors.items() if not query] == ["pvc", "event", "podgroup"]
    by_namespace = chosen(by_namespace=True, kinds=(TRAININGS,))
    assert not any(watch_targets.build_watch_target(one, NAMESPACE, RUN).query for one in by_namespace)


def test_a_kind_that_the_cluster_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such resource") as told:
        chosen(kinds=(ApiResource("example.com", "v2", "trainings"),))
    assert "example.com/v2/trainings" in str(told.value)


def test_a_cluster_without_such_schedulers_is_watched_without_them() -> None:
    def without(api: ScriptedApi) -> None:
        del api.resources["/apis/scheduling.run.ai"]

    assert [one.resource for one in chosen(without)] == ["pod", "job", "pvc", "event"]


def test_a_cluster_that_does_not_say_is_an_error() -> None:
    def broken(api: ScriptedApi) -> None:
        api.refuse["list /apis/scheduling.run.ai"] = [500]

    with pytest.raises(ApiError):
        chosen(broken)


@pytest.mark.parametrize("text", ["", "jobs", "a/b/c/d", "batch/v1/", "batch//jobs", "a b/v1/jobs", "..//x", "é/v1/x"])
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a resource"):
        api_discovery.parse_resource(text)


def event(name: str, about: str, created: str) -> Event:
    made = {
        "metadata": {"name": name, "uid": name, "namespace": NAMESPACE, "creationTimestamp": created},
        "reason": "Scheduled",
        "regarding": {"uid": about, "kind": "Pod"},
    }
    return msgspec.convert(made, Event)


def test_of_listed_events_those_of_earlier_runs_are_left_out() -> None:
    rows: list[run_records.Seen] = []
    ledger = ObjectLedger(rows.append)
    known = msgspec.convert({"metadata": {"name": "p", "uid": "ours"}}, Pod)
    ledger.record_state(Scope("pod", "Pod", NAMESPACE), known, [], Sight(1))
    began = parse_timestamp("2026-11-22T03:00:00Z")
    assert began is not None
    sink = watch_targets.build_sink(ledger, Scope("event", "Event", NAMESPACE), began.ns)
    old, new = "2026-11-22T02:30:00Z", "2026-11-22T03:00:05Z"
    for name, about, created, gap in (
        ("old-and-theirs", "a", old, True),
        ("old-but-ours", "ours", old, True),
        ("new", "b", new, True),
        ("undated", "c", "", True),
        ("watched", "d", old, False),
    ):
        sink.put(event(name, about, created), Sight(1, 1, gap))
    assert [one.name for one in rows] == ["old-but-ours", "new", "watched"]
    assert sink.gone is None
    assert sink.missing is None


OURS, TORCH = "run.ai/v2alpha1/trainingworkloads", "kubeflow.org/v1/pytorchjobs"


def with_runai(api: ScriptedApi) -> None:
    for group, version, plural, kind in (
        ("run.ai", "v2alpha1", "trainingworkloads", "TrainingWorkload"),
        ("run.ai", "v1", "runaijobs", "RunaiJob"),
        ("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
    ):
        api.resources.setdefault(f"/apis/{group}", {"versions": []})["versions"].append({"version": version})
        api.resources[f"/apis/{group}/{version}"] = {"resources": [{"name": plural, "kind": kind}]}


@pytest.mark.parametrize(
    ("kinds", "jobs"),
    [
        ((OURS,), ["run.ai/v1/runaijobs", TORCH]),
        # The plan's own are watched once, as what they are.
        ((OURS, TORCH), ["run.ai/v1/runaijobs"]),
        ((TORCH,), []),
        (("run.ai/v1/runaijobs",), []),
        ((), []),
    ],
)
def test_jobs_that_runais_operator_makes_are_watched_where_its_workloads_are_ours(
    kinds: tuple[str, ...], jobs: list[str]
) -> None:
    found = chosen(with_runai, kinds=tuple(api_discovery.parse_resource(text) for text in kinds), by_namespace=True)
    assert [str(one.kind) for one in found if one.resource == "job"] == ["batch/v1/jobs", *jobs]


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
    telling = {"topology.kubernetes.io/zone": "z1", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    labels = telling | {"team.example/owner": "somebody", "kubernetes.io/hostname": "host"}
    assert build_node_line(node(labels=labels), 0).labels == telling
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
    sink = nodes.build_sink()
    for ready in ("True", "True", "Unknown", "False", "True"):
        sink.put(node(ready), Sight(1))
    assert [one.ready for one in rows] == [True, False, True]
    assert nodes.not_ready == 0
    sink.put(node("False"), Sight(2))
    assert nodes.not_ready == 1
    assert sink.gone is not None
    sink.gone(node("False"), Sight(3))
    assert nodes.not_ready == 0


@pytest.mark.parametrize(
    ("name", "later"), [("nvidia.com/gpu", "8"), ("cpu", "96"), ("memory", "1Ti"), ("pods", "500")]
)
def test_a_node_is_written_when_what_it_offers_changes(name: str, later: str) -> None:
    rows: list[run_records.NodeSeen] = []
    sink = NodeObserver(rows.append).build_sink()
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    first = {"cpu": "64", "memory": "2Ti", "pods": "250"}
    for offers in (first, first, first | {name: later}, first | {name: later}):
        sink.put(node(status=ready | {"allocatable": offers}), Sight(1))
    assert [one.ready for one in rows] == [True, True]
    assert (rows[0].gpus, rows[1].gpus) == (0, 8 if name.endswith("gpu") else 0)
    assert rows[0] != rows[1]


def test_a_node_that_is_tainted_later_takes_no_pods_and_one_that_was_so_at_first_may() -> None:
    rows: list[run_records.NodeSeen] = []
    sink = NodeObserver(rows.append).build_sink()
    own, more = {"key": "pool", "effect": "NoSchedule"}, {"key": "team", "effect": "NoSchedule"}
    for taints in ([own], [own, more], [own, {"key": "soft", "effect": "PreferNoSchedule"}]):
        sink.put(node(spec={"taints": taints}), Sight(1))
    assert [one.cordoned for one in rows] == [False, True, False]


def test_a_ready_node_that_is_deleted_is_ready_no_more() -> None:
    rows: list[run_records.NodeSeen] = []
    sink = NodeObserver(rows.append).build_sink()
    sink.put(node(), Sight(1))
    assert sink.gone is not None
    sink.gone(node(), Sight(2))
    assert [(one.ready, one.arrival_ns) for one in rows] == [(True, 1), (False, 2)]


NOW = Sight(1)


def pod(name: str, phase: str = "Running", namespace: str = "theirs", *, hit: bool = False) -> Pod:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    status = {"phase": phase, "conditions": [condition] if hit else []}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "uid": name}, "status": status}, Pod)


def watched() -> tuple[ForeignPods, WatchSink, list[str]]:
    notes: list[str] = []
    held: list[run_records.Held] = []
    found = ForeignPods("st-00000001", ("ours",), held.append, notes.append)
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


def test_a_new_node_that_is_not_ready_yet_did_not_stop_being_ready() -> None:
    nodes = NodeObserver(list[run_records.NodeSeen]().append)
    nodes.build_sink().put(node("False"), NOW)
    assert nodes.not_ready == 0


def test_a_node_that_went_while_no_watch_was_there_is_gone() -> None:
    rows: list[run_records.NodeSeen] = []
    sink = NodeObserver(rows.append).build_sink()
    sink.put(node(), Sight(1))
    assert sink.missing is not None
    sink.missing(set(), Sight(2))
    assert [(one.ready, one.arrival_ns) for one in rows] == [(True, 1), (False, 2)]


def test_what_others_hold_is_written_when_it_changes_and_known_again_after_a_restart(tmp_path: Path) -> None:
    file = run_records.open_observations(tmp_path / "observed.jsonl")
    own = ("ours",)
    held = ForeignPods("st-00000001", own, file.put, list[str]().append)
    sink = held.build_sink()
    spec = {
        "nodeName": "n1",
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": 1}}}],
    }
    labels = {"workbench.local/run-id": "st-00000002"}
    meta = {"name": "a", "namespace": "ours", "uid": "a", "labels": labels}
    document = {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}
    bound = msgspec.json.decode(msgspec.json.encode(document), type=Pod)
    for _ in range(2):
        sink.put(bound, Sight(5))
    file.close()
    (line,) = run_records.read_lines(tmp_path / "observed.jsonl", run_records.ObservedLine)
    assert line == run_records.Held("a", "ours", 5, "bound", "cpu=1,nvidia.com/gpu=2", "n1", "st-00000002")
    later: list[run_records.Held] = []
    again = ForeignPods("st-00000001", own, later.append, list[str]().append)
    again.restore(tmp_path / "observed.jsonl")
    drop = again.build_sink().missing
    assert drop is not None
    drop(set(), Sight(9))
    assert [(one.state, one.arrival_ns) for one in later] == [("gone", 9)]


def test_pods_in_the_runs_own_namespaces_neither_wait_nor_are_evicted_as_others() -> None:
    found, sink, _ = watched()
    found.begin()
    sink.put(pod("a", "Pending", "ours", hit=True), NOW)
    assert (found.pending, found.evicted) == (0, 0)
