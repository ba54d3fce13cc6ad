"""Scheduler recipes: shipped ones, a user's own in a scenario, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.scenario.scheduler_recipes import (
    find_recipe,
    list_shipped_recipes,
    read_recipe,
    resolve_schedulers,
)
from workbench.scaletest.scenario.workload_objects import list_kinds, list_rules
from workbench.scaletest.scenario.workload_plan import draw_plan, read_plan

OWN = """
name: mine
about: One of ours.
program: cluster
pods: {labels: {team/queue: "${queue}"}}
gang_objects:
- apiVersion: scheduling.example.org/v1
  kind: Group
  plural: groupings
  spec: {size: "${pods}", class: "${priority}"}
gang_pods:
  annotations: {group: "${name}"}
steps: [podgroup]
"""
SCENARIO = """
name: own
schedulers: [default, mine.yaml]
arrival: {process: constant, rate_per_s: 1, n: 2}
workloads: [{kind: Gang, pods: 3, queue: a}]
"""


def bodies(text: str, folder: Path | None = None, scheduler: str | None = None) -> list[dict[str, Any]]:
    plan = draw_plan(scenario_file.parse_scenario(text, folder=folder), "st-00000001", scheduler=scheduler)
    return [json.loads(one.body) for one in plan.workload_at(0).requests()]


def gang(scheduler: str, more: str = "") -> list[dict[str, Any]]:
    text = f"name: g\narrival: {{process: constant, rate_per_s: 1, n: 1}}\nworkloads: [{{kind: Gang, pods: 2{more}}}]\n"
    return bodies(text + f"scheduler: {scheduler}\n")


def test_every_shipped_recipe_says_what_it_is_and_makes_a_gang() -> None:
    for recipe in list_shipped_recipes():
        assert recipe.about
        *objects, first, second = gang(recipe.name)
        assert [one["kind"] for one in objects] == [one["kind"] for one in recipe.gang_objects]
        assert {first["spec"]["schedulerName"], second["spec"]["schedulerName"]} == {recipe.pods_scheduler}
        assert "${" not in json.dumps([*objects, first, second])


def test_a_gang_of_volcano_and_of_coscheduling_is_told_apart_by_what_these_read() -> None:
    group, pod, _ = gang("volcano")
    assert group["spec"] == {"minMember": 2, "queue": "default", "priorityClassName": "workbench-scaletest"}
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
    group, pod, _ = gang("coscheduling")
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == group["metadata"]["name"]


def test_an_entry_without_a_priority_leaves_it_out_of_its_group() -> None:
    group, *_ = gang("gang", ", priority: null")
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}


def test_a_recipe_of_a_users_own_becomes_part_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN, encoding="utf-8")
    made = scenario_file.parse_scenario(SCENARIO, folder=tmp_path)
    assert made.schedulers == ("default-scheduler", "mine")
    group, pod, *_ = bodies(SCENARIO, tmp_path, "mine")
    assert group["spec"] == {"size": 3, "class": "workbench-scaletest"}
    assert pod["metadata"]["labels"]["team/queue"] == "a"
    assert pod["metadata"]["annotations"]["group"] == group["metadata"]["name"]
    # Kept, and read again without the file.
    draw_plan(made, "st-00000001", scheduler="mine").write(tmp_path / "run")
    (tmp_path / "mine.yaml").unlink()
    assert json.loads(read_plan(tmp_path / "run").workload_at(0).requests()[0].body) == group
    assert "scheduling.example.org/v1/groupings" in map(str, list_kinds(made))
    assert any(rule.group == "scheduling.example.org" for rule in list_rules(made))


def test_scenarios_without_one_keep_their_hash() -> None:
    assert "recipes" not in scenario_file.format_canonical(scenario_file.parse_scenario(scenario_file.read_example()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("name: mine", "name: Mine!"), "must be 1 to 63"),
        (("program: cluster", "program: docker"), "program"),
        (("kind: Group\n", "kind: Secret\n"), "not made by a scale test"),
        (("  spec: {size", "  metadata: {name: x}\n  spec: {size"), "its head is ours"),
        (('"${pods}"', '"${gpu}"'), "no placeholder"),
        (("steps: [podgroup]", "gang_pods: {spec: {hostNetwork: true}}"), "schedulingGroup"),
        (("steps: [podgroup]", "reads: [batch/v1/jobs]"), "is not watched"),
        (("steps: [podgroup]", "feature_gates: {gang: true}"), "no feature gate"),
        (("program: cluster", "program: kube-scheduler"), "config belongs to"),
        (("steps: [podgroup]", "surprise: 1"), "surprise"),
    ],
)
def test_a_wrong_recipe_is_refused_with_its_field(change: tuple[str, str], told: str, tmp_path: Path) -> None:
    text = OWN.replace(*change)
    if change[1].startswith("gang_pods"):
        text = OWN.replace('gang_pods:\n  annotations: {group: "${name}"}\n', "").replace(*change)
    (tmp_path / "scheduler.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="not a scheduler recipe") as caught:
        read_recipe(tmp_path / "scheduler.yaml")
    assert told in str(caught.value)


def test_a_second_kube_scheduler_needs_a_profile_of_its_name(tmp_path: Path) -> None:
    shipped = find_recipe("second")
    assert shipped.config is not None
    assert shipped.config["percentageOfNodesToScore"] == 10
    (tmp_path / "s.yaml").write_text(
        "name: s\nprogram: kube-scheduler\nconfig: {profiles: [{schedulerName: other}]}\n", encoding="utf-8"
    )
    with pytest.raises(InputError, match="none has the schedulerName s"):
        read_recipe(tmp_path / "s.yaml")


def test_names_and_paths_are_resolved_and_shipped_names_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN, encoding="utf-8")
    names, own = resolve_schedulers(["gang", str(tmp_path / "mine.yaml"), "yunikorn"])
    assert names == ("gang-scheduling", "mine", "yunikorn")
    assert [one.name for one in own] == ["mine"]
    (tmp_path / "mine.yaml").write_text(OWN.replace("name: mine", "name: volcano"), encoding="utf-8")
    with pytest.raises(ConfigError, match="a shipped recipe has this name"):
        resolve_schedulers([str(tmp_path / "mine.yaml")])
    with pytest.raises(InputError):
        resolve_schedulers([str(tmp_path / "none.yaml")])
