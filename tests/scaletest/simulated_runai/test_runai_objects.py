from __future__ import annotations

from typing import Any

import pytest

from tests.scaletest.simulated_runai.conftest import Json, workload
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.simulated_runai import runai_objects
from workbench.scaletest.simulated_runai.runai_objects import (
    DISTRIBUTED,
    POD_GROUP,
    PYTORCH_JOB,
    TRAINING,
    UnfitError,
    build_definition,
)


def made(name: str = "j-1", kind: str = "TrainingWorkload", **spec: Any) -> Json:
    found = workload(name, "a", kind, **spec)
    found["metadata"] |= {"uid": "uid-of-workload"}
    return found


def job(*given: Any, **spec: Any) -> Json:
    found = runai_objects.build_job(made(*given, **spec))
    found["metadata"] |= {"uid": "uid-of-job"}
    return found


def pods(*given: Any, scheduler: str = "default-scheduler", **spec: Any) -> list[Json]:
    return runai_objects.build_pods(job(*given, **spec), scheduler=scheduler)


def test_owners_follow_one_another() -> None:
    def owner(thing: Json) -> Json:
        found: Json = thing["metadata"]["ownerReferences"][0]
        return found

    assert owner(job())["uid"] == "uid-of-workload"
    assert owner(pods()[0])["uid"] == "uid-of-job"
    assert owner(runai_objects.build_pod_group(pods()[0], job()))["uid"] == "uid-of-job"
    assert all(owner(thing)["controller"] for thing in (job(), pods()[0]))


def test_no_pod_can_go_to_a_node_that_exists() -> None:
    for pod in [*pods(), *pods("j-2", "DistributedWorkload", workers="3")]:
        assert pod["spec"]["nodeSelector"] == {api_discovery.SIMULATED: "true"}
        assert not pod["spec"]["automountServiceAccountToken"]


def test_the_jobs_name_is_the_workloads_short_name() -> None:
    long = made("j-1")
    long["metadata"]["name"] = "j-1-2026-01-01t10-00-00"
    assert runai_objects.build_job(long)["metadata"]["name"] == "j-1"


def test_labels_of_a_run_go_on_to_all_that_it_makes() -> None:
    mine = made()
    mine["metadata"]["labels"] = api_discovery.build_labels("st-00000001", "j-1", 0)
    first = runai_objects.build_job(mine)
    first["metadata"]["uid"] = "u"
    for thing in (first, runai_objects.build_pods(first, scheduler="default-scheduler")[0]):
        assert thing["metadata"]["labels"].items() >= api_discovery.build_labels("st-00000001", "j-1", 0).items()


def test_gpus_are_whole_or_a_share() -> None:
    assert pods(gpu="4")[0]["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    shared = pods(gpu="0.5")[0]
    assert shared["metadata"]["annotations"] == {"gpu-fraction": "0.5"}
    assert shared["spec"]["containers"][0]["resources"]["limits"] == {}
    assert pods(gpu="0")[0]["spec"]["containers"][0]["resources"]["limits"] == {}


def test_with_kai_pods_have_a_queue() -> None:
    pod = pods(scheduler="kai-scheduler")[0]
    assert pod["spec"]["schedulerName"] == "kai-scheduler"
    assert pod["metadata"]["labels"]["kai.scheduler/queue"] == "default"


@pytest.mark.parametrize(
    "spec",
    [
        {"gpu": "1.5"},
        {"gpu": "-1"},
        {"gpu": "many"},
        {"cpu": "a"},
        {"memory": "1; rm"},
        {"pvcs": {"items": {"A_B": {"value": {}}}}},
        {"pvcs": {"items": {"a": 1}}},
        {"pvcs": {"items": {"a": {"value": {"size": "big"}}}}},
    ],
)
def test_a_field_that_cannot_be_understood_is_named(spec: Any) -> None:
    with pytest.raises(UnfitError, match=f"spec.{next(iter(spec))}"):
        runai_objects.build_job(made(**spec))


@pytest.mark.parametrize("workers", ["-1", "513", "one", "1e9", "²"])
def test_workers_are_bounded(workers: str) -> None:
    with pytest.raises(UnfitError, match="workers"):
        runai_objects.build_job(made("j-1", "DistributedWorkload", workers=workers))


def test_kinds_have_open_schemas_and_are_marked_as_simulated() -> None:
    for kind in (TRAINING, DISTRIBUTED, PYTORCH_JOB, POD_GROUP):
        found = build_definition(kind)
        assert found["metadata"]["labels"] == {api_discovery.MANAGED_BY: "simulated-runai"}
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert schema["x-kubernetes-preserve-unknown-fields"] is True
