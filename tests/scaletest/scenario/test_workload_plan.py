"""Plans: the same bytes for the same scenario, seed and run; within limits; read again as they were written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaletest.making_scenarios import RUN, scenario
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan, read_plan

MIXED: list[dict[str, Any]] = [
    {"kind": "Job", "weight": 3, "parallelism": 2, "completions": 4, "lifetime": 30},
    {"kind": "Pod", "weight": 2, "lifetime": {"distribution": "lognormal", "median_s": 20, "sigma": 1}},
    {"kind": "Gang", "pods": 3, "delete_after_s": 60},
    {"kind": "PyTorchJob", "pods": 4},
]
WIDE = {"rate_per_s": 1000, "objects": 100_000}


def mixed(**more: Any) -> scenarios.Scenario:
    """Four kinds in two namespaces, at random times."""
    arrival = {"process": "poisson", "rate_per_s": 50, "n": 70}
    return scenario(*MIXED, arrival=arrival, limits=WIDE, **({"namespaces": ["a", "b"]} | more))


def digest(plan: Plan) -> str:
    """Hash of all that is sent, and when."""
    found = hashlib.sha256()
    for one in plan.iterate_workloads():
        found.update(repr((one.index, one.name, one.namespace, one.due_s)).encode())
        for request in one.requests():
            found.update(request.path.encode() + request.name.encode() + request.body)
    return found.hexdigest()


def objects(plan: Plan, index: int = 0) -> list[dict[str, Any]]:
    """What is sent for a workload."""
    return [orjson.loads(request.body) for request in plan.workload_at(index).requests()]


def test_the_same_scenario_seed_and_run_give_the_same_bytes() -> None:
    assert digest(draw_plan(mixed(), RUN)) == digest(draw_plan(mixed(), RUN))


def test_another_seed_or_run_gives_others() -> None:
    first = digest(draw_plan(mixed(), RUN))
    assert digest(draw_plan(mixed(seed=1), RUN)) != first
    assert digest(draw_plan(mixed(), "st-00000000")) != first


def test_a_plan_that_was_written_gives_the_same_bytes_again(tmp_path: Path) -> None:
    made = draw_plan(mixed(), RUN, scheduler="kai-scheduler")
    made.write(tmp_path)
    again = read_plan(tmp_path)
    assert (again.run, again.scheduler, again.scenario) == (RUN, "kai-scheduler", made.scenario)
    assert again.schedule.equals(made.schedule)
    assert digest(again) == digest(made)


def test_a_plan_that_was_changed_on_disk_is_refused(tmp_path: Path) -> None:
    path = draw_plan(mixed(), RUN).write(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"design_sha256": "0" * 64}))
    with pytest.raises(InputError, match="was changed"):
        read_plan(tmp_path)
    path.write_text("[]")
    with pytest.raises(InputError, match="no plan"):
        read_plan(tmp_path)
    with pytest.raises(InputError, match="no plan"):
        read_plan(tmp_path / "nowhere")


def test_objects_that_would_differ_from_the_plan_are_not_sent(tmp_path: Path) -> None:
    draw_plan(mixed(), RUN).write(tmp_path)
    text = (tmp_path / "scenario.yaml").read_text()
    (tmp_path / "scenario.yaml").write_text(text.replace("cpus: 0.1", "cpus: 0.2"))
    changed = read_plan(tmp_path)
    with pytest.raises(InputError, match="another version"):
        changed.workload_at(0).requests()


def test_the_plans_of_an_ab_differ_in_names_and_scheduler_only() -> None:
    first = draw_plan(mixed(), "st-00000001", scheduler="default-scheduler")
    second = draw_plan(mixed(), "st-00000002", scheduler="kai-scheduler")
    assert first.design_sha256 == second.design_sha256
    assert draw_plan(mixed(seed=1), "st-00000001").design_sha256 != first.design_sha256
    one = next(at for at, kind in enumerate(first.schedule.get_column("entry")) if kind == "job-0")
    for plan, scheduler in ((first, "default-scheduler"), (second, "kai-scheduler")):
        assert objects(plan, one)[0]["spec"]["template"]["spec"]["schedulerName"] == scheduler


def test_every_object_is_named_labelled_and_hashed_and_owned_by_none() -> None:
    plan = draw_plan(mixed(), RUN, scheduler="kai-scheduler")
    seen: set[tuple[str, str]] = set()
    for at, one in enumerate(plan.iterate_workloads()):
        assert one.name == api_discovery.build_workload_name(RUN, at)
        assert one.spec_sha256 == plan.schedule.item(at, "spec_sha256")
        assert sum(len(request.body) for request in one.requests()) == plan.schedule.item(at, "object_bytes")
        for request in one.requests():
            head = orjson.loads(request.body)["metadata"]
            assert head["name"] == request.name
            assert (request.path, request.name) not in seen
            seen.add((request.path, request.name))
            assert head["labels"].items() >= api_discovery.build_labels(RUN, one.name, 0).items()
            assert head["annotations"][api_discovery.SPEC_HASH] == one.spec_sha256
            assert "ownerReferences" not in head
            assert len(request.name) <= 63
            assert f"/namespaces/{one.namespace}/" in request.path


def specs(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Pod specifications in an object of a known kind."""
    if body["kind"] == "Pod":
        return [body]
    if body["kind"] == "Job":
        return [body["spec"]["template"]]
    return [one["template"] for one in body["spec"].get("pytorchReplicaSpecs", {}).values()]


def test_every_pod_is_fenced_bounded_and_of_low_priority() -> None:
    plan = draw_plan(mixed(), RUN)
    found = [pod for at in range(len(plan)) for body in objects(plan, at) for pod in specs(body)]
    assert len(found) > 70
    for pod in found:
        spec = pod["spec"]
        assert spec["nodeSelector"] == {"workbench.local/sim": "true"}
        assert {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
        assert spec["priorityClassName"] == "workbench-scaletest"
        assert spec["containers"][0]["image"].startswith("simulated.invalid/")
        assert spec["automountServiceAccountToken"] is False
        assert pod["metadata"]["labels"][api_discovery.RUN] == RUN


def test_a_job_ends_and_goes_by_itself_when_the_client_dies() -> None:
    body = objects(draw_plan(scenario(limits={"wall_clock_s": 100}), RUN))[0]["spec"]
    assert body["activeDeadlineSeconds"] == body["ttlSecondsAfterFinished"] == 700
    assert body["backoffLimit"] == 3
    pod = objects(draw_plan(scenario({"kind": "Pod"}, limits={"wall_clock_s": 100}), RUN))[0]
    assert pod["spec"]["activeDeadlineSeconds"] == 700


def test_a_gang_on_kai_is_a_pod_group_and_its_pods_and_else_just_pods() -> None:
    made = scenario({"kind": "Gang", "pods": 3, "queue": "q"}, schedulers=["default", "kai"], limits=WIDE)
    group, *pods = objects(draw_plan(made, RUN, scheduler="kai-scheduler"))
    assert (group["kind"], group["apiVersion"]) == ("PodGroup", "scheduling.run.ai/v2alpha2")
    assert group["spec"] == {"minMember": 3, "queue": "q", "priorityClassName": "workbench-scaletest"}
    assert [pod["metadata"]["annotations"]["pod-group-name"] for pod in pods] == [group["metadata"]["name"]] * 3
    assert {pod["metadata"]["labels"]["kai.scheduler/queue"] for pod in pods} == {"q"}
    stock = objects(draw_plan(made, RUN, scheduler="default-scheduler"))
    assert [one["kind"] for one in stock] == ["Pod"] * 3
    assert "pod-group-name" not in stock[0]["metadata"]["annotations"]
    assert "kai.scheduler/queue" not in stock[0]["metadata"]["labels"]


def test_a_fraction_of_a_gpu_is_an_annotation_and_no_limit() -> None:
    pod = objects(draw_plan(scenario({"kind": "Pod", "fraction": 0.25}, scheduler="kai"), RUN))[0]
    assert pod["metadata"]["annotations"]["gpu-fraction"] == "0.25"
    assert "limits" not in pod["spec"]["containers"][0]["resources"]


def test_lifetimes_are_told_to_the_simulator_as_they_stand_in_the_plan() -> None:
    plan = draw_plan(mixed(), RUN)
    for row in plan.schedule.iter_rows(named=True):
        for body in objects(plan, row["index"]):
            for pod in specs(body):
                told = pod["metadata"]["annotations"].get("pod-complete.stage.kwok.x-k8s.io/delay")
                assert told == (None if row["lifetime_s"] is None else f"{row['lifetime_s']:.3f}s")


def test_real_nodes_get_an_image_that_sleeps_and_no_fence() -> None:
    entry = {"kind": "Pod", "image": "registry.example.org/sleeper:1", "lifetime": 9}
    spec = objects(draw_plan(scenario(entry, allow_real_nodes=True), RUN))[0]["spec"]
    assert "nodeSelector" not in spec
    assert "tolerations" not in spec
    assert spec["containers"][0]["command"] == ["sleep", "9.000"]
    assert spec["terminationGracePeriodSeconds"] == 1


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 200))
def test_the_mix_has_the_shares_that_the_weights_ask_for_to_the_nearest_whole(weights: list[float], n: int) -> None:
    entries = [{"kind": "Pod", "weight": weight, "name": f"e{at}"} for at, weight in enumerate(weights)]
    made = scenario(*entries, arrival={"process": "constant", "rate_per_s": 1, "n": n})
    counts = draw_plan(made, RUN).schedule.get_column("entry").value_counts()
    found = dict(counts.iter_rows())
    assert sum(found.values()) == n
    for at, weight in enumerate(weights):
        assert abs(found.get(f"e{at}", 0) - n * weight / sum(weights)) < 1


def test_namespaces_are_used_in_turns_and_an_entrys_own_one_always() -> None:
    made = scenario({"kind": "Pod"}, {"kind": "Job", "namespace": "c", "weight": 1e-6}, namespaces=["a", "b"])
    plan = draw_plan(made, RUN)
    assert plan.schedule.get_column("namespace").to_list() == ["a", "b"] * 10
    assert plan.namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("more", "where", "found"),
    [
        ({"limits": {"objects": 19}}, "limits.objects", "20 objects"),
        ({"limits": {"rate_per_s": 9.9}}, "limits.rate_per_s", "10 objects/s"),
    ],
)
def test_a_plan_beyond_its_own_limits_is_refused_with_what_to_set(more: dict[str, Any], where: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        draw_plan(scenario(**more), RUN)
    assert caught.value.facts["where"] == where
    assert found in str(caught.value.facts["found"])
    assert "set limits: {" in str(caught.value.facts["do"])


def test_the_rate_limit_counts_every_object_of_a_gang() -> None:
    arrival = {"process": "constant", "rate_per_s": 5, "n": 5}
    with pytest.raises(ConfigError, match="more than its own limit"):
        draw_plan(scenario({"kind": "Gang", "pods": 8}, arrival=arrival), RUN)


def test_more_than_a_million_workloads_are_refused_before_they_are_drawn() -> None:
    arrival = {"process": "constant", "rate_per_s": 10_000, "duration_s": 604_800}
    with pytest.raises(ConfigError, match="too many workloads"):
        draw_plan(scenario(arrival=arrival, limits={"rate_per_s": 10_000, "objects": 2_000_000}), RUN)


def test_a_plan_without_workloads_is_refused() -> None:
    arrival = {"process": "poisson", "rate_per_s": 0.001, "duration_s": 0.001}
    with pytest.raises(ConfigError, match="the plan is empty"):
        draw_plan(scenario(arrival=arrival), RUN)


@pytest.mark.parametrize("run", ["", "st-xyz", "st-0123abcd;", "*"])
def test_a_run_id_that_is_none_is_refused(run: str) -> None:
    with pytest.raises(ConfigError, match="not a run's id"):
        draw_plan(scenario(), run)


@pytest.mark.parametrize("index", [-1, 20])
def test_there_is_no_workload_outside_the_plan(index: int) -> None:
    with pytest.raises(InputError, match="no such workload"):
        draw_plan(scenario(), RUN).workload_at(index)


def test_a_hundred_thousand_workloads_are_planned_without_their_bodies() -> None:
    arrival = {"process": "poisson", "rate_per_s": 1000, "n": 100_000}
    plan = draw_plan(scenario(*MIXED[:2], arrival=arrival, limits=WIDE), RUN)
    assert len(plan) == 100_000
    assert plan.schedule.estimated_size() < 64 << 20
    assert plan.schedule.get_column("spec_sha256").n_unique() == 100_000
    assert orjson.loads(plan.workload_at(99_999).requests()[0].body)["metadata"]["name"] == f"{RUN}-0099999"
