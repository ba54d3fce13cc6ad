"""What is watched: what the cluster has of it, selected by the run's labels where those are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.scaletest.observation.scripted import NAMESPACE, ScriptedApi, scripted
from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.api_discovery import ApiResource
from workbench.scaletest.cluster_api.clock import parse_timestamp
from workbench.scaletest.cluster_api.connection import ApiError
from workbench.scaletest.observation import run_records, watch_targets
from workbench.scaletest.observation.decoded_objects import Event, Pod
from workbench.scaletest.observation.object_ledger import ObjectLedger, Scope, Sight
from workbench.scaletest.observation.watch_targets import SamplerOptions, WatchChoice

RUN = "st-00000001"
TRAININGS = ApiResource("example.com", "v1", "trainings")


def chosen(change: Callable[[ScriptedApi], Any] = lambda api: None, **options: Any) -> list[WatchChoice]:
    async def ask() -> list[WatchChoice]:
        async with scripted() as (api, connection):
            api.cluster()
            change(api)
            return await watch_targets.list_choices(connection, SamplerOptions(RUN, (NAMESPACE,), **options))

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
        (
            ("run.ai/v2alpha1/trainingworkloads",),
            ["batch/v1/jobs", "run.ai/v1/runaijobs", "kubeflow.org/v1/pytorchjobs"],
        ),
        # The plan's own are watched once, as what they are.
        (
            ("run.ai/v2alpha1/trainingworkloads", "kubeflow.org/v1/pytorchjobs"),
            ["batch/v1/jobs", "run.ai/v1/runaijobs"],
        ),
        (("kubeflow.org/v1/pytorchjobs",), ["batch/v1/jobs"]),
        (("run.ai/v1/runaijobs",), ["batch/v1/jobs"]),
        ((), ["batch/v1/jobs"]),
    ],
)
def test_jobs_that_runais_operator_makes_are_watched_where_its_workloads_are_ours(
    kinds: tuple[str, ...], jobs: list[str]
) -> None:
    found = chosen(with_runai, kinds=tuple(api_discovery.parse_resource(text) for text in kinds), by_namespace=True)
    assert [str(one.kind) for one in found if one.resource == "job"] == jobs
