from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.compat_runai.runai_submission import SubmitFlags, build_scenario
from workbench.scaletest.scenario.workload_plan import draw_plan

# Of the shape of the old tool's templates, with a field of somebody's own.
TEMPLATE = """\
apiVersion: run.ai/v2alpha1
kind: DistributedWorkload
metadata:
  annotations:
    runai-cli-version: 2.11.11
  creationTimestamp: null
  labels:
    PreviousJob: "true"
  name: JOB_NAME_PLACEHOLDER
  namespace: runai-PROJECT_PLACEHOLDER
spec:
  gpu:
    value: "NUM_GPUS"
  name:
    value: JOB_NAME_PLACEHOLDER
  workers:
    value: NUM_WORKERS_PLACEHOLDER
  environment:
    items:
      GREETING:
        value: hello JOB_NAME_PLACEHOLDER
status: {}
"""


def flags(**changed: Any) -> SubmitFlags:
    return SubmitFlags(**{"workload_type": "training", "num_workloads": 10, **changed})


def written(folder: Path, text: str = TEMPLATE) -> Path:
    path = folder / "template.yaml"
    path.write_text(text)
    return path


def bodies(of: SubmitFlags) -> list[Any]:
    plan = draw_plan(build_scenario(of))
    return [orjson.loads(one.requests()[0].body) for one in plan.iterate_workloads()]


@pytest.mark.parametrize(("number", "processes"), [(10, 8), (5, 8), (8, 8), (1, 1), (17, 3)])
def test_exactly_so_many_are_planned_in_bursts(number: int, processes: int) -> None:
    """The old tool submits whole bursts only: 8 of 10, and none of 5."""
    plan = draw_plan(build_scenario(flags(num_workloads=number, num_processes=processes, delay=2.0)))
    due = plan.schedule["due_s"].to_list()
    assert len(due) == number
    assert due == [index // processes * 2.0 for index in range(number)]


def test_without_a_delay_bursts_follow_at_the_highest_rate() -> None:
    plan = draw_plan(build_scenario(flags(num_workloads=20, num_processes=5, max_rate=50)))
    assert sorted(set(plan.schedule["due_s"])) == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_faster_than_allowed_is_refused_before_anything() -> None:
    with pytest.raises(ConfigError, match="faster than is allowed"):
        build_scenario(flags(num_processes=50, delay=1.0))


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"workload_type": None}, "-t"),
        ({"workload_type": "general"}, "-t"),
        ({"num_workloads": None}, "-n"),
        ({"num_workloads": 0}, "-n"),
        ({"num_processes": 0}, "-p"),
        ({"delay": -1.0}, "--delay"),
        ({"project": "a b; rm"}, "--project"),
        ({"num_gpus": "lots"}, "-g"),
        ({"num_workers": 0}, "--num-workers"),
        ({"num_gpus": "0.5"}, "template"),
    ],
)
def test_a_flag_that_cannot_be_is_wrong_use_and_says_what_can(changed: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as told:
        build_scenario(flags(**changed))
    assert told.value.exit_code == 2
    assert where in str(told.value.facts["where"])
    assert told.value.facts["allowed"] or told.value.facts["found"]


def test_workloads_of_our_own_have_the_shape_of_the_platforms() -> None:
    made = bodies(flags(workload_type="distributed", num_workers=4, num_gpus="2", project="a", pvc=True))[3]
    assert (made["apiVersion"], made["kind"]) == ("run.ai/v2alpha1", "DistributedWorkload")
    assert made["metadata"]["namespace"] == "runai-a"
    assert made["spec"]["name"]["value"] == made["metadata"]["name"]
    assert (made["spec"]["gpu"]["value"], made["spec"]["workers"]["value"]) == ("2", 4)
    assert made["spec"]["jobType"] == "PyTorchJob"
    assert made["spec"]["pvcs"]["items"]["pvc-new-0"]["value"]["storageClass"] == "openebs-lvmpv"


def test_the_plan_counts_masters_and_workers() -> None:
    plan = draw_plan(build_scenario(flags(workload_type="distributed", num_workers=4, num_gpus="2")))
    assert set(plan.schedule["pods"]) == {5}
    assert set(plan.schedule["gpus_per_pod"]) == {2.0}


def test_a_template_of_the_old_tool_works_as_it_is(tmp_path: Path) -> None:
    path = written(tmp_path)
    made = bodies(flags(workload_type="distributed", num_workers=4, project="b", template=path))
    name = made[1]["metadata"]["name"]
    assert len({one["metadata"]["name"] for one in made}) == 10
    assert made[1]["metadata"]["namespace"] == "runai-b"
    assert made[1]["metadata"]["labels"]["PreviousJob"] == "true"
    assert made[1]["spec"] == {
        "gpu": {"value": "1"},
        "name": {"value": name},
        "workers": {"value": 4},
        "environment": {"items": {"GREETING": {"value": f"hello {name}"}}},
    }


def test_a_volume_is_added_to_a_template_that_has_none(tmp_path: Path) -> None:
    assert "pvc-new-0" in bodies(flags(template=written(tmp_path), pvc=True))[0]["spec"]["pvcs"]["items"]


def test_pods_of_a_known_kind_are_fenced(tmp_path: Path) -> None:
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: JOB_NAME_PLACEHOLDER}\n"
        "spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}\n"
    )
    pod = bodies(flags(template=written(tmp_path, text)))[0]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"workbench.local/sim": "true"}
    assert [one["key"] for one in pod["tolerations"]] == ["kwok.x-k8s.io/node"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", "not YAML"),
        ("- 1", "not a template"),
        (TEMPLATE.replace("  name: JOB_NAME_PLACEHOLDER\n", "  name: fixed\n"), "one name"),
        (TEMPLATE + "note: ${name}\n", "not the old tool's"),
        ("a: &x [1]\nb: *x\n", "aliases"),
    ],
)
def test_what_is_no_template_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        build_scenario(flags(template=written(tmp_path, text)))


def test_a_template_that_reaches_beyond_a_workload_is_refused(tmp_path: Path) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: JOB_NAME_PLACEHOLDER}\nspec: {}\n"
    with pytest.raises(ConfigError, match="where: the template and the flags"):
        build_scenario(flags(template=written(tmp_path, secret)))
