"""What a plan will cost, by hand-made plans whose figures are known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scaletest.making_scenarios import RUN, scenario
from workbench.scaletest.scenario.workload_objects import (
    list_kinds,
    list_rules,
    select_cluster_rules,
    select_namespace_rules,
)
from workbench.scaletest.scenario.workload_plan import (
    PlanSummary,
    draw_plan,
    format_plan,
    format_rights,
    format_schedule,
    summarize_plan,
)

WIDE = {"rate_per_s": 1000, "objects": 100_000}


def summary(*entries: dict[str, Any], scheduler: str | None = None, **more: Any) -> PlanSummary:
    """Of a plan."""
    return summarize_plan(draw_plan(scenario(*entries, **more), RUN, scheduler=scheduler))


def test_objects_are_counted_by_kind_as_they_are_sent() -> None:
    entries = [{"kind": "Gang", "pods": 4}, {"kind": "Job", "parallelism": 2, "completions": 6}]
    found = summary(*entries, schedulers=["kai", "default"], limits=WIDE)
    assert found.objects == {"Job": 10, "Pod": 40, "PodGroup": 10}
    assert found.requests == 60
    assert found.pods == 10 * 4 + 10 * 6
    assert found.gangs == 10
    assert summary(*entries, schedulers=["default"], limits=WIDE).objects == {"Job": 10, "Pod": 40}


def test_bytes_are_those_that_are_sent() -> None:
    plan = draw_plan(scenario(), RUN)
    sent = sum(len(request.body) for one in plan.iterate_workloads() for request in one.requests())
    assert summarize_plan(plan).sent_bytes == sent
    assert summarize_plan(plan).etcd_bytes > sent


def test_the_peak_is_by_lifetimes_and_what_ends_makes_room_at_once() -> None:
    # One a second, each 2 GPUs for 3 s: three at a time.
    arrival = {"process": "constant", "rate_per_s": 1, "n": 10}
    found = summary({"kind": "Pod", "gpus": 2, "lifetime": 3}, arrival=arrival)
    assert (found.peak_gpus, found.peak_pods, found.ends_s) == (6, 3, 12)
    for_ever = summary({"kind": "Pod", "gpus": 2}, arrival=arrival)
    assert (for_ever.peak_gpus, for_ever.peak_pods, for_ever.ends_s) == (20, 10, None)
    deleted = summary({"kind": "Pod", "gpus": 2, "delete_after_s": 3}, arrival=arrival)
    assert (deleted.peak_gpus, deleted.ends_s) == (6, 12)


def test_a_jobs_completions_run_in_waves() -> None:
    arrival = {"process": "constant", "rate_per_s": 1, "n": 1}
    found = summary({"kind": "Job", "parallelism": 2, "completions": 5, "lifetime": 10}, arrival=arrival)
    assert (found.pods, found.peak_pods, found.ends_s) == (5, 2, 30)


def test_one_moment_has_no_rate() -> None:
    found = summary(arrival={"process": "burst", "size": 20, "every_s": 1, "n": 20})
    assert (found.submission_s, found.mean_rate_per_s) == (0, None)
    assert summary().mean_rate_per_s == pytest.approx(10)


def test_the_words_tell_what_the_figures_say() -> None:
    plan = draw_plan(scenario(limits=WIDE, arrival={"process": "constant", "rate_per_s": 10, "n": 50}), RUN)
    told = "\n".join([*format_plan(plan, summarize_plan(plan)), *format_schedule(plan), *format_rights(plan)])
    for part in ("50 made by us: 50 Job", "default-scheduler", "simulated ones only", f"{RUN}-0000049", "…", "nodes"):
        assert part in told
    assert f"{RUN}-0000025" not in told


def test_the_kinds_of_a_scenario_are_those_of_all_its_schedulers() -> None:
    box = {"kind": "Template", "template": {"apiVersion": "x.io/v1", "kind": "Box", "spec": {}}, "plural": "boxes"}
    entries = [{"kind": "Gang", "pods": 2}, {"kind": "PyTorchJob"}, box]
    found = [str(kind) for kind in list_kinds(scenario(*entries, schedulers=["default", "kai"]))]
    expected = ["v1/pods", "kubeflow.org/v1/pytorchjobs", "scheduling.run.ai/v2alpha2/podgroups", "x.io/v1/boxes"]
    assert found == expected


def test_the_rights_are_minimal() -> None:
    found = list_rules(scenario({"kind": "Job"}))
    writing = {"create", "delete", "deletecollection", "patch", "update"}
    written = {name for rule in found for name in rule.resources if writing & set(rule.verbs)}
    assert written == {"jobs", "configmaps"}
    assert all(not writing & set(rule.verbs) for rule in select_cluster_rules(found))
    assert not any(name == "*" for rule in found for name in (*rule.resources, *rule.verbs, rule.group))
    assert not any("secrets" in rule.resources for rule in found)
    assert {rule.group for rule in select_namespace_rules(found)} == {"", "batch", "events.k8s.io"}


def test_only_gangs_of_kueue_need_its_workloads_deleted() -> None:
    def deleting(entry: dict[str, object]) -> list[tuple[tuple[str, ...], bool]]:
        found = list_rules(scenario(entry, schedulers=["kueue"]))
        return [(rule.verbs, rule.optional) for rule in found if "workloads" in rule.resources]

    assert deleting({"kind": "Job"}) == [(("get", "list", "watch"), False)]
    assert deleting({"kind": "Gang", "pods": 2}) == [(("get", "list", "watch"), False), (("delete",), True)]


@pytest.mark.parametrize("schedulers", [["default"], ["kai"], ["default", "kai"]])
def test_what_runais_operator_makes_may_be_watched(schedulers: list[str]) -> None:
    training = {"apiVersion": "run.ai/v2alpha1", "kind": "TrainingWorkload", "spec": {}}
    entry = {"kind": "Template", "template": training}
    rules = list_rules(scenario(entry, schedulers=schedulers))
    found = {(rule.group, one): rule.verbs for rule in rules for one in rule.resources}
    assert "create" in found["run.ai", "trainingworkloads"]
    for wanted in (("run.ai", "runaijobs"), ("kubeflow.org", "pytorchjobs"), ("scheduling.run.ai", "podgroups")):
        assert found[wanted] == ("get", "list", "watch")
    both = list_rules(scenario(entry, {"kind": "PyTorchJob"}, schedulers=schedulers))
    assert [rule.verbs[0] for rule in both if "pytorchjobs" in rule.resources] == ["create"]
