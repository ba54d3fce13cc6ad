"""Manifests of people: what is refused, where pods are found, what is put on them in any case."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.scaletest.making_scenarios import RUN, scenario
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.workload_plan import draw_plan

POD = {"containers": [{"name": "main", "image": "x"}]}
PRIVILEGED = {"securityContext": {"privileged": True}}
CAPABLE = {"securityContext": {"capabilities": {"add": ["A"]}}}


def template(kind: str = "Pod", version: str = "v1", **fields: Any) -> dict[str, Any]:
    """A manifest of a Pod, or of another kind."""
    return {"apiVersion": version, "kind": kind, **(fields or {"spec": POD})}


def reaching(spec: dict[str, Any]) -> dict[str, Any]:
    """A Pod with more in its specification."""
    return template(spec=POD | spec)


def job(pod: dict[str, Any]) -> dict[str, Any]:
    return template("Job", "batch/v1", spec={"template": pod})


def sent(entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The first object that is sent for a template."""
    plan = draw_plan(scenario({"kind": "Template", **entry}, **more), RUN)
    found: dict[str, Any] = orjson.loads(plan.workload_at(0).requests()[0].body)
    return found


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"kind": "Pod"}, "template.apiVersion"),
        ({"apiVersion": "v1"}, "template.kind"),
        (template("pod"), "template.kind"),
        (template(version="v1; rm"), "template.apiVersion"),
        (template("Namespace"), "beyond a workload"),
        (template("ClusterRoleBinding", "rbac.authorization.k8s.io/v1"), "beyond a workload"),
        (template("ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1"), "beyond a workload"),
        (template("DaemonSet", "apps/v1"), "beyond a workload"),
        (template("Secret"), "beyond a workload"),
        (template(metadata={"ownerReferences": []}, spec=POD), "ownerReferences: take it out"),
        (template(metadata={"finalizers": ["a"]}, spec=POD), "finalizers: take it out"),
        (template(metadata={"generateName": "a"}, spec=POD), "generateName: take it out"),
        (template(metadata=[], spec=POD), "template.metadata: is no mapping"),
        (template(metadata={"labels": "a"}, spec=POD), "template.metadata.labels: is no mapping"),
        (template(status={"phase": "Running"}, spec=POD), "template.status: take it out"),
        (reaching({"hostNetwork": True}), "template.spec.hostNetwork: pods that reach for their node"),
        (reaching({"nodeName": "a"}), "template.spec.nodeName: take it out"),
        (reaching({"serviceAccountName": "admin"}), "template.spec.serviceAccountName: take it out"),
        (reaching({"volumes": [{"hostPath": {"path": "/"}}]}), r"template.spec.volumes\[0\].hostPath"),
        (reaching({"volumes": [{"secret": {}}]}), r"template.spec.volumes\[0\].secret"),
        (reaching({"volumes": "all"}), "no list of mappings"),
        (reaching({"containers": [PRIVILEGED]}), r"template.spec.containers\[0\].securityContext: privileged"),
        (reaching({"initContainers": [CAPABLE]}), r"initContainers\[0\].securityContext.capabilities.add"),
        (reaching({"containers": [{"ports": [{"hostPort": 1}]}]}), "hostPort"),
        (job({"spec": POD | {"hostPID": True}}), "template.spec.template.spec.hostPID"),
        (template("Job", "batch/v1", spec={}), "no pod template at spec.template"),
        (job({}), "is no pod template"),
        (reaching({"note": "${nane}"}), r"spec.note: there is no placeholder \$\{nane\}; known are name"),
        (reaching({"note": "${gpus|hex}"}), "there is no placeholder"),
        (reaching({"note": "@@workbench:hash@@"}), "the workbench's own"),
        (reaching({"note": "x" * 300_000}), "longer than 256 KiB"),
    ],
)
def test_a_manifest_that_reaches_beyond_a_workload_is_refused_with_its_place(made: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        scenario({"kind": "Template", "template": made})


@pytest.mark.parametrize("path", ["spec.nothing", "spec.template.spec"])
def test_a_path_that_leads_to_no_pod_is_refused(path: str) -> None:
    made = job({"spec": POD})
    with pytest.raises(ValueError, match=r"leads nowhere|no pod template"):
        scenario({"kind": "Template", "template": made, "pods_at": [path]})


def test_pods_are_found_by_paths_through_mappings_and_lists() -> None:
    made = {"kind": "X", "a": [{"b": {"p": {"spec": {}}, "q": {"spec": {}}}}, {"b": {"p": {"spec": {}}}}]}
    found = [place for place, _ in manifest_rules.list_pod_templates(made, ("a.*.b.*",))]
    assert found == ["a.0.b.p", "a.0.b.q", "a.1.b.p"]


def test_a_kind_that_is_unknown_has_no_known_pods() -> None:
    assert manifest_rules.list_pod_templates({"kind": "TrainingWorkload", "spec": {}}) == []


def test_labels_selector_and_toleration_reach_every_pod_whatever_the_manifest_says() -> None:
    pod = {
        "metadata": {"labels": {api_discovery.RUN: "forged", "mine": "kept"}},
        "spec": {**POD, "schedulerName": "other", "nodeSelector": {api_discovery.SIMULATED: "false", "zone": "a"}},
    }
    made = template(
        "RayCluster",
        "ray.io/v1",
        metadata={"name": "fixed", "namespace": "default", "labels": {api_discovery.MANAGED_BY: "me"}},
        spec={"headGroupSpec": {"template": pod}, "workerGroupSpecs": [{"template": pod}, {"template": pod}]},
    )
    found = sent({"template": made, "lifetime": 5})
    assert found["metadata"]["name"] == f"{RUN}-0000000"
    assert found["metadata"]["namespace"] == "workbench-scaletest"
    assert found["metadata"]["labels"][api_discovery.MANAGED_BY] == api_discovery.MANAGER
    placed = [found["spec"]["headGroupSpec"]["template"]]
    placed += [one["template"] for one in found["spec"]["workerGroupSpecs"]]
    assert len(placed) == 3
    for one in placed:
        ours = {api_discovery.RUN: RUN, api_discovery.WORKLOAD: f"{RUN}-0000000", "mine": "kept"}
        assert one["metadata"]["labels"].items() >= ours.items()
        assert one["spec"]["nodeSelector"] == {api_discovery.SIMULATED: "true", "zone": "a"}
        assert one["spec"]["tolerations"][0]["key"] == "kwok.x-k8s.io/node"
        assert one["spec"]["schedulerName"] == "other"
        assert one["spec"]["automountServiceAccountToken"] is False
        assert one["metadata"]["annotations"]["pod-complete.stage.kwok.x-k8s.io/delay"] == "5.000s"


def test_placeholders_are_values_not_text() -> None:
    spec = {
        "gpus": "${gpus}",
        "text": "${gpus|text}",
        "inside": "a-${name}-${index}",
        "index": "${index}",
        "workers": "${workers}",
        "labels": "${labels}",
        "${queue}": "key",
        "lifetime": "${lifetime_s}",
    }
    found = sent({"template": template("Thing", "x.io/v1", spec=spec), "gpus": 4, "pods": 3, "lifetime": 2.5})["spec"]
    assert (found["gpus"], found["text"], found["index"], found["workers"]) == (4, "4", 0, 2)
    assert found["inside"] == f"a-{RUN}-0000000-0"
    assert found["labels"][api_discovery.WORKLOAD] == f"{RUN}-0000000"
    assert found["default"] == "key"
    assert found["lifetime"] == 2.5


def test_a_plural_name_is_the_kinds_with_an_s_or_the_given_one() -> None:
    def path(**entry: Any) -> str:
        made = scenario({"kind": "Template", "template": template("Gateway", "x.io/v1", spec={}), **entry})
        return draw_plan(made, RUN).workload_at(0).requests()[0].path

    assert path() == "/apis/x.io/v1/namespaces/workbench-scaletest/gateways"
    assert path(plural="gatewaysets") == "/apis/x.io/v1/namespaces/workbench-scaletest/gatewaysets"


def test_a_template_is_not_changed_by_planning() -> None:
    made = scenario({"kind": "Template", "template": job({"spec": POD})})
    before = made.model_dump_json()
    draw_plan(made, RUN)
    assert made.model_dump_json() == before


def torch() -> dict[str, Any]:
    """A PyTorchJob of a master and a worker."""
    replicas = {name: {"template": {"spec": {**POD}}} for name in ("Master", "Worker")}
    return template("PyTorchJob", "kubeflow.org/v1", spec={"pytorchReplicaSpecs": replicas})


def test_given_paths_add_to_the_known_ones() -> None:
    """Else the workers would be neither checked nor fenced."""
    path = "spec.pytorchReplicaSpecs.Master.template"
    found = sent({"template": torch(), "pods_at": [path]})["spec"]["pytorchReplicaSpecs"]
    assert [found[name]["template"]["spec"]["nodeSelector"] for name in found] == [
        {api_discovery.SIMULATED: "true"}
    ] * 2
    assert [len(found[name]["template"]["spec"]["tolerations"]) for name in found] == [1, 1]
    reaching = torch()
    reaching["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["hostNetwork"] = True
    with pytest.raises(ValueError, match=r"Worker\.template\.spec\.hostNetwork"):
        scenario({"kind": "Template", "template": reaching, "pods_at": [path]})


def test_a_kind_of_the_same_name_with_its_pods_elsewhere_is_known_by_the_given_path() -> None:
    made = template("Job", "batch.volcano.sh/v1alpha1", spec={"tasks": [{"template": {"spec": POD}}]})
    assert [place for place, _ in manifest_rules.list_pod_templates(made, ("spec.tasks.*.template",))] == [
        "spec.tasks.0.template"
    ]


def ray(**more: Any) -> dict[str, Any]:
    """A RayJob."""
    group = {"template": {"spec": POD}}
    return template("RayJob", "ray.io/v1", spec={"rayClusterSpec": {"headGroupSpec": group}, **more})


def test_a_ray_jobs_submitter_is_fenced_or_there_is_none() -> None:
    with pytest.raises(ValueError, match="submitterPodTemplate: a RayJob makes one pod more"):
        scenario({"kind": "Template", "template": ray()})
    assert sent({"template": ray(submissionMode="HTTPMode")})["spec"]["submissionMode"] == "HTTPMode"
    found = sent({"template": ray(submitterPodTemplate={"spec": POD})})["spec"]
    assert found["submitterPodTemplate"]["spec"]["nodeSelector"] == {api_discovery.SIMULATED: "true"}


@pytest.mark.parametrize(("entry", "wanted"), [({}, "workbench-scaletest"), ({"priority": None}, None)])
def test_who_gives_way_is_said_by_the_entry_alone(entry: dict[str, Any], wanted: str | None) -> None:
    """What a template brings along is not looked at before the test, and could push pods of others out."""
    spec = {**POD, "priorityClassName": "urgent", "priority": 1_000_000, "preemptionPolicy": "PreemptLowerPriority"}
    found = sent({"template": template(spec=spec), **entry})["spec"]
    assert found.get("priorityClassName") == wanted
    assert not {"priority", "preemptionPolicy"} & set(found)


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"spec": {"suspend": True}}, True),
        ({"spec": {"runPolicy": {"suspend": True}}}, True),
        ({"spec": {"suspend": False}}, False),
        ({"spec": {"suspend": True}, "metadata": {"labels": {manifest_rules.QUEUE_LABEL: "all"}}}, False),
    ],
)
def test_what_is_made_suspended_waits_unless_a_queue_lets_it_go(fields: dict[str, Any], waits: bool) -> None:
    assert manifest_rules.waits_for_release(template("Job", "batch/v1", **fields)) is waits
