"""What setup makes, as objects and as YAML."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import yaml
from aiohttp import web

from tests.scaletest.making_scenarios import RUN, scenario
from tests.scaletest.serving import served
from workbench.kubernetes.client import Target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.safety.cluster_setup import (
    build_setup_objects,
    format_next_steps,
    format_setup_yaml,
    set_up_cluster,
)
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


class ObjectStore:
    """A scripted server that keeps what is applied."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    async def answer(self, request: web.Request) -> web.Response:
        """One request."""
        if request.path.endswith("/serviceaccounts/default"):
            return web.json_response({})
        if request.method == "PATCH":
            self.objects[request.path] = orjson.loads(await request.read())
        kept = self.objects.get(request.path)
        if request.method == "DELETE":
            self.objects.pop(request.path, None)
        return web.json_response(kept or {"reason": "NotFound"}, status=200 if kept else 404)

    def set_up(self, *plans: Plan) -> list[str]:
        """Set up plans, one after the other; what is told of it."""

        async def work() -> list[str]:
            async with served(self.answer) as url, Connection(Target(url, "scripted", None, dict)) as api:
                return [note for one in plans for note in (await set_up_cluster(api, one)).notes]

        return asyncio.run(work())

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Objects of a kind that are in namespace a, or in none."""
        return [
            one for one in self.objects.values() if one["kind"] == kind and one["metadata"].get("namespace", "a") == "a"
        ]


def test_setup_of_a_second_scenario_keeps_what_the_first_one_needs() -> None:
    large, small = plan(), draw_plan(scenario({"kind": "Pod", "cpus": 2}, namespaces=["a"], schedulers=["kai"]), RUN)
    first, both, again = ObjectStore(), ObjectStore(), ObjectStore()
    assert first.set_up(large) == []
    assert both.set_up(large, small) == []
    again.set_up(large, small, large, small)
    assert again.objects == both.objects
    ((before,), (after,)) = first.of("ResourceQuota"), both.of("ResourceQuota")
    assert after["spec"]["hard"] == before["spec"]["hard"]
    assert both.of("LimitRange")[0]["spec"]["limits"][0]["max"] == {"cpu": "2", "memory": str(1 << 30)}
    for kind in ("Role", "ClusterRole"):
        rules = [rule for one in both.of(kind) for rule in one["rules"]]
        assert all(rule in rules for one in first.of(kind) for rule in one["rules"])
        assert len({orjson.dumps(rule) for rule in rules}) == len(rules)
    (role,) = both.of("Role")
    assert {"jobs", "pods"} <= {
        name for rule in role["rules"] if "create" in rule["verbs"] for name in rule["resources"]
    }


def test_setup_that_takes_away_the_limits_of_containers_says_what_to_run_again() -> None:
    box = {"kind": "Template", "template": {"apiVersion": "x.io/v1", "kind": "Box", "spec": {}}}
    templates = draw_plan(scenario(box, namespaces=["a"]), RUN)
    store = ObjectStore()
    (note,) = store.set_up(plan(), templates)
    assert note.startswith("LimitRange a/workbench-limits is deleted")
    assert "Run setup again before you run a scenario without templates" in note
    assert store.set_up(templates) == []


def test_the_rights_of_another_ones_role_are_not_kept() -> None:
    store, foreign = ObjectStore(), {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    store.set_up(plan())
    for one in store.of("Role"):
        one["rules"].append(foreign)
        one["metadata"]["labels"] = {}
    store.set_up(plan())
    assert all(foreign not in one["rules"] for one in store.of("Role"))


def test_devices_of_any_name_are_in_the_quota() -> None:
    container = {"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/mig-1g.5gb": 2}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": [container]}}}}
    made = build_setup_objects(draw_plan(scenario({"kind": "Template", "template": job}), RUN))
    (quota,) = [one["spec"]["hard"] for one in made if one["kind"] == "ResourceQuota"]
    assert (quota["requests.nvidia.com/gpu"], quota["requests.nvidia.com/mig-1g.5gb"]) == ("0", "40")
