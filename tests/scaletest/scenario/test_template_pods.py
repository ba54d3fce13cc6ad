"""A template's own pods, requests and scheduler: read into the plan, or refused beside fields that say otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.scaletest.making_scenarios import RUN, scenario
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.scenario_file import Scenario
from workbench.scaletest.scenario.template_pods import sum_requests
from workbench.scaletest.scenario.workload_plan import (
    draw_plan,
    format_plan,
    read_plan,
    summarize_plan,
)
from workbench.scaletest.test_run.run_lifecycle import replace_schedulers

MIG = "nvidia.com/mig-1g.5gb"
GPU = "nvidia.com/gpu"
ARRIVAL = {"process": "burst", "size": 2, "every_s": 1, "n": 2}


def pod(limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod template."""
    return {"spec": {"containers": [{"name": "a", "image": "b", "resources": {"limits": limits or {}}}], **spec}}


def job(template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {**spec, "template": template}}


def roles(kind: str, field: str, **replicas: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "spec": {field: replicas}}


def made(template: dict[str, Any], **entry: Any) -> Scenario:
    return scenario({"kind": "Template", "template": template, **entry}, arrival=ARRIVAL)


RAY = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "spec": {
        "headGroupSpec": {"template": pod({"cpu": 2})},
        "workerGroupSpecs": [{"replicas": 3, "template": pod({GPU: 2})}],
    },
}
JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"name": "a", "template": {"spec": {"template": pod()}}},
            {"name": "b", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": pod({MIG: 1})}}},
        ]
    },
}
LWS = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": pod({GPU: 1})}},
}
TORCH = roles(
    "PyTorchJob",
    "pytorchReplicaSpecs",
    Master={"template": pod({GPU: 1})},
    Worker={"replicas": 3, "template": pod({GPU: 1})},
)


@pytest.mark.parametrize(
    ("template", "pods", "at_once", "gpus", "devices"),
    [
        (job(pod({GPU: "2"})), 1, 1, 2, {}),
        (job(pod({GPU: "1"}), parallelism=2, completions=5), 5, 2, 1, {}),
        (job(pod({GPU: "1"}), parallelism=3), 3, 3, 1, {}),
        (job(pod({MIG: "2"})), 1, 1, 0, {MIG: 2}),
        (TORCH, 4, 4, 1, {}),
        (RAY, 4, 4, 1.5, {}),
        (JOB_SET, 7, 7, 0, {MIG: 6 / 7}),
        (LWS, 8, 8, 1, {}),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3, "template": pod()}}, 3, 3, 0, {}),
    ],
)
def test_what_a_template_makes_and_requests_is_in_the_plan(
    template: dict[str, Any], pods: int, at_once: int, gpus: float, devices: dict[str, float]
) -> None:
    found = made(template, lifetime=10)
    entry, plan = found.workloads[0], draw_plan(found, RUN)
    assert (entry.all_pods, entry.pods_at_once) == (pods, at_once)
    assert plan.schedule.select("pods", "gpus_per_pod").row(0) == pytest.approx((pods, gpus))
    size = summarize_plan(plan)
    assert size.peak_gpus == pytest.approx(2 * at_once * gpus)
    assert size.peak_devices == pytest.approx({name: 2 * at_once * amount for name, amount in devices.items()})


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"template": job(pod({GPU: "2"})), "gpus": 1}, r"gpus: 1, but a pod of the template requests 2 of nvidia"),
        ({"template": job(pod()), "gpus": 1}, r"gpus: 1, but .* requests 0 .*write \$\{gpus\} into its resources"),
        ({"template": job(pod({"cpu": "500m"})), "cpus": 4}, "cpus: 4, but a pod of the template requests 0.5 of cpu"),
        ({"template": job(pod({"memory": "1Gi"})), "memory": "2Gi"}, "memory: .* requests 1.07374e.09 of memory"),
        ({"template": job(pod()), "pods": 4}, r"pods: 4, but the template makes 1; write \$\{pods\} there"),
        ({"template": TORCH, "pods": 2}, "pods: 2, but the template makes 4"),
        ({"template": job(pod(), parallelism=0)}, "makes no pod"),
        (
            {"template": job(pod({GPU: "1"})), "fraction": 0.5},
            "fraction: 0.5, but the template requests nvidia.com/gpu",
        ),
        (
            {"template": JOB_SET | {"spec": {"replicatedJobs": {"a": {"template": {"spec": {"template": pod()}}}}}}},
            "template.spec: not the fields that a JobSet has",
        ),
        ({"template": job(pod()), "image": "x"}, "image: write it into the template"),
        (
            {"template": job(pod(nodeSelector={"zone": "a"})), "node_labels": {"zone": "b"}},
            "node_labels: zone is b, and the template's nodeSelector says a",
        ),
        (
            {"template": job(pod({GPU: "one"}))},
            r"template.spec.template.spec: resources of a container: not a quantity",
        ),
        (
            {
                "template": roles(
                    "TFJob",
                    "tfReplicaSpecs",
                    A={"template": pod(schedulerName="a")},
                    B={"template": pod(schedulerName="b")},
                )
            },
            "name two schedulers: a and b",
        ),
    ],
)
def test_a_field_that_says_something_else_than_the_template_is_refused(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        scenario({"kind": "Template", **entry}, schedulers=["kai"])


def test_a_field_that_the_template_uses_is_its_value() -> None:
    limits = {GPU: "${gpus|text}", "cpu": "${cpus}", "memory": "${memory}"}
    template = job(pod(limits), parallelism="${pods}", completions="${pods}")
    entry = made(template, gpus=2, cpus=0.5, memory="1Gi", pods=3).workloads[0]
    assert (entry.all_pods, entry.pods_at_once) == (3, 3)
    assert entry.requests_per_pod == {GPU: 2, "cpu": 0.5, "memory": 2**30}


def test_a_template_of_an_unknown_kind_is_described_by_the_fields() -> None:
    box = {"apiVersion": "x.io/v1", "kind": "Box", "spec": {"tasks": [{"template": pod({GPU: 4})}]}}
    entry = made({**box, "spec": {}}, gpus=2, pods=3).workloads[0]
    assert (entry.all_pods, entry.gpus_per_pod, entry.largest_requests[GPU]) == (3, 2, 2)
    entry = made(box, pods=3, pods_at=["spec.tasks.*.template"]).workloads[0]
    assert (entry.all_pods, entry.gpus_per_pod) == (3, 4)


def test_the_largest_pod_is_known_where_pods_differ() -> None:
    assert made(RAY).workloads[0].largest_requests == {"cpu": 2, GPU: 2}


def test_a_share_of_a_gpu_is_read_from_the_templates_annotation() -> None:
    template = pod() | {"metadata": {"annotations": {"gpu-fraction": "0.25"}}}
    assert made(job(template)).workloads[0].gpus_per_pod == 0.25


def test_a_field_without_effect_is_told_with_the_plan() -> None:
    template = job(pod({MIG: "1"}, priorityClassName="urgent")) | {"metadata": {"namespace": "theirs"}}
    plan = draw_plan(made(template, gpus=1), RUN)
    told = "\n".join(format_plan(plan, summarize_plan(plan)))
    assert f"0 GPUs, 2 {MIG} and 2 pods at once" in told
    assert f"each 1 {MIG}" in told
    assert f"gpus: 1 has no effect, since the template requests no {GPU}" in told
    assert "priorityClassName: urgent is replaced by workbench-scaletest" in told
    assert "metadata.namespace: theirs is replaced" in told


GHOST = {"kind": "Template", "template": job(pod(schedulerName="ghost"))}


def scheduler_of(made: Scenario, index: int = 0, scheduler: str | None = None) -> str:
    body = orjson.loads(draw_plan(made, RUN, scheduler=scheduler).workload_at(index).requests()[0].body)
    return str(body["spec"]["template"]["spec"]["schedulerName"])


def test_a_templates_own_scheduler_is_used_and_told() -> None:
    mixed = scenario(GHOST, {"kind": "Job"}, arrival=ARRIVAL)
    plan = draw_plan(mixed, RUN)
    names = {scheduler_of(mixed, index) for index in range(2)}
    assert names == set(plan.pod_schedulers) == {"ghost", "default-scheduler"}
    assert "scheduler ghost" in "\n".join(format_plan(plan, summarize_plan(plan)))


def test_a_templates_own_scheduler_is_refused_beside_another_one() -> None:
    with pytest.raises(ValueError, match="its pods name the scheduler ghost, and the scenario names default-scheduler"):
        scenario(GHOST, schedulers=["default"])
    with pytest.raises(ValueError, match="the scenario names default-scheduler, ghost"):
        scenario(GHOST, schedulers=["default", "ghost"])
    assert scheduler_of(scenario(GHOST, schedulers=["ghost"])) == "ghost"
    unnamed = scenario(GHOST)
    with pytest.raises(ConfigError, match="a template names another scheduler"):
        draw_plan(unnamed, RUN, scheduler="kai-scheduler")
    with pytest.raises(ConfigError, match="not a scenario for these schedulers"):
        replace_schedulers(unnamed, ("kai-scheduler",))


def test_a_template_that_leaves_its_scheduler_open_has_the_scenarios() -> None:
    open_template = {"kind": "Template", "template": job(pod(schedulerName="${scheduler}"))}
    both = scenario(open_template, schedulers=["default", "kai"])
    assert scheduler_of(both) == "default-scheduler"
    assert scheduler_of(both, scheduler="kai-scheduler") == "kai-scheduler"


@pytest.mark.parametrize("entry", [GHOST, {"kind": "Template", "template": job(pod({MIG: "1"})), "gpus": 1}])
def test_a_kept_scenario_is_the_same_plan_and_can_be_run_again(entry: dict[str, Any], tmp_path: Path) -> None:
    plan = draw_plan(scenario(entry), RUN)
    plan.write(tmp_path)
    assert read_plan(tmp_path).workload_at(0).requests() == plan.workload_at(0).requests()
    again = scenarios.load_scenario(tmp_path / "scenario.yaml")
    assert scenarios.hash_scenario(again) == scenarios.hash_scenario(plan.scenario)


def test_a_kept_scenario_with_every_default_written_out_is_read(tmp_path: Path) -> None:
    """As earlier versions kept them."""
    text = scenarios.format_canonical(scenario(GHOST))
    written = text.replace("- kind: Template", "- gpus: 1\n  cpus: 0.1\n  kind: Template") + "schedulers: [default]\n"
    (tmp_path / "scenario.yaml").write_text(written)
    with pytest.raises(InputError, match="gpus: 1, but"):
        scenarios.load_scenario(tmp_path / "scenario.yaml")
    assert scenarios.load_scenario(tmp_path / "scenario.yaml", kept=True).workloads[0].scheduler_name == "ghost"


def test_a_label_that_the_template_and_the_entry_give_differently_is_refused() -> None:
    labelled = pod() | {"metadata": {"labels": {"kai.scheduler/queue": "theirs"}}}
    entry = {"kind": "Template", "template": job(labelled)}
    with pytest.raises(ConfigError, match=r"kai.scheduler/queue.*\n.*found: theirs"):
        draw_plan(scenario(entry, schedulers=["kai"]), RUN)
    assert draw_plan(scenario({**entry, "queue": "theirs"}, schedulers=["kai"]), RUN)


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"containers": [{"resources": {"limits": {"cpu": 2}, "requests": {"cpu": 1}}}]}, {"cpu": 1}),
        ({"containers": [{}], "initContainers": [{"resources": {"requests": {"cpu": 3}}}]}, {"cpu": 3}),
        (
            {
                "containers": [{"resources": {"requests": {"cpu": 1}}}],
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}},
                    {"resources": {"requests": {"cpu": "1500m"}}},
                ],
            },
            {"cpu": 2.5},
        ),
        ({"containers": [{"resources": {"requests": {"cpu": 1}}}], "overhead": {"cpu": "250m"}}, {"cpu": 1.25}),
        (
            {"containers": [{"resources": {"requests": {"cpu": 1}}}], "resources": {"requests": {"cpu": 4}}},
            {"cpu": 4},
        ),
        ({}, {}),
    ],
)
def test_the_requests_of_a_pod_are_counted_as_the_scheduler_counts_them(
    spec: dict[str, Any], requests: dict[str, float]
) -> None:
    assert sum_requests(spec) == requests
