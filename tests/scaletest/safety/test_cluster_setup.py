"""What setup makes, as objects and as YAML."""

from __future__ import annotations

from typing import Any

import yaml

from tests.scaletest.making_scenarios import RUN, scenario
from workbench.scaletest.safety.cluster_setup import build_setup_objects, format_next_steps, format_setup_yaml
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan


def plan(**more: Any) -> Plan:
    """Of 20 Jobs of 2 pods with 4 GPUs each, in two namespaces."""
    job = {"kind": "Job", "parallelism": 2, "gpus": 4, "cpus": 0.5, "memory": "1Gi"}
    return draw_plan(scenario(job, namespaces=["a", "b"], **more), RUN)


def found(kind: str, **more: Any) -> list[dict[str, Any]]:
    """Objects of a kind."""
    return [one for one in build_setup_objects(plan(**more)) if one["kind"] == kind]


def test_namespaces_are_labelled_and_refuse_pods_that_reach_for_their_node() -> None:
    labels = [one["metadata"]["labels"] for one in found("Namespace") if one["metadata"]["name"] in "ab"]
    assert len(labels) == 2
    assert all(one["workbench.local/allow"] == "true" for one in labels)
    assert all(one["pod-security.kubernetes.io/enforce"] == "baseline" for one in labels)


def test_the_quota_has_room_for_the_plan_and_for_second_attempts_and_ends_there() -> None:
    for one in found("ResourceQuota"):
        hard = one["spec"]["hard"]
        assert hard["count/pods"] == "50"  # 10 Jobs of 2 pods each, twice, and 10
        assert hard["count/jobs.batch"] == "20"
        assert hard["requests.nvidia.com/gpu"] == "80"


def test_one_container_may_ask_for_no_more_than_the_scenario_does() -> None:
    limit = found("LimitRange")[0]["spec"]["limits"][0]
    # Not of GPUs: pods that ask for none would be given as many.
    assert limit["max"] == {"cpu": "1", "memory": str(1 << 30)}


def test_what_containers_of_a_template_ask_for_is_unknown_and_not_limited() -> None:
    box = {"kind": "Template", "template": {"apiVersion": "x.io/v1", "kind": "Box", "spec": {}}}
    made = build_setup_objects(draw_plan(scenario(box), RUN))
    assert [one["kind"] for one in made if one["metadata"]["name"] == "workbench-limits"] == ["ResourceQuota"]


def test_the_class_gives_way_and_pushes_nobody_out() -> None:
    (one,) = found("PriorityClass")
    assert one["value"] < -10  # the cluster autoscaler's cutoff
    assert one["preemptionPolicy"] == "Never"
    assert not one.get("globalDefault")


def test_without_a_quota_only_the_limits_are_left_away() -> None:
    kinds = {one["kind"] for one in build_setup_objects(plan(), quota=False)}
    assert not kinds & {"ResourceQuota", "LimitRange"}
    assert {"Namespace", "Role", "RoleBinding", "ClusterRole", "PriorityClass", "ServiceAccount"} <= kinds


def test_the_yaml_is_those_objects_and_tells_what_each_right_is_for() -> None:
    text = format_setup_yaml(plan())
    documents = list(yaml.safe_load_all(text))
    key = lambda one: (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])  # noqa: E731
    assert sorted(documents, key=key) == sorted(build_setup_objects(plan()), key=key)
    assert "Identity 1, setup" in text
    assert "Identity 2, measure" in text
    assert "list/watch nodes: its nodes" in text
    assert "kubectl create token measure --namespace workbench-system" in text


def test_the_next_steps_name_the_administrators_context() -> None:
    assert "--context admin@lab create token" in format_next_steps("admin@lab")
