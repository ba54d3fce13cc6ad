"""A sized service as Kubernetes objects: right by the API's schemas, and with the counts that were planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sizing.conftest import Sizing
from tests.sizing.making import row_of
from workbench.kubernetes.manifests import format_yaml
from workbench.runs import run_folder
from workbench.sizing.deployment.replica_plan import plan_replicas
from workbench.sizing.deployment.service_manifests import (
    ServiceSpec,
    autoscaling_target,
    build_manifests,
)
from workbench.sizing.tables import ESTIMATES, POINTS, VERIFICATION

# Schemas of the oldest, a middle and the newest Kubernetes that the validator brings.
VERSIONS = ("1.25", "1.31", "1.37")


def by_kind(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in found}


def made(**options: Any) -> dict[str, dict[str, Any]]:
    planned = plan_replicas(14, gpus_per_replica=3, gpus_per_node=8, **options)
    return by_kind(build_manifests(planned, ServiceSpec(image="a/b:1"), in_flight=20.0))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gpus_per_replica", [1, 4])
def test_every_object_is_valid_by_the_schemas_of_kubernetes(version: str, gpus_per_replica: int) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    selected = {"nvidia.com/gpu.product": "X"}
    deployed = ServiceSpec(name="chat", namespace="llm", image="a/b:1", args=["--model", "m"], node_selector=selected)
    found = build_manifests(plan_replicas(14, gpus_per_replica=gpus_per_replica), deployed, in_flight=20.0)
    for one in yaml.safe_load_all(format_yaml(found, ["a note"])):
        validator.validate(one, version, strict=True)
    assert [one["kind"] for one in found] == ["Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"]


def test_the_counts_are_those_of_the_plan() -> None:
    found = made(spare=2)
    deployment, budget, scaler = (
        found[kind]["spec"] for kind in ("Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler")
    )
    container = deployment["template"]["spec"]["containers"][0]
    assert "replicas" not in deployment, "the autoscaler sets them"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "3"}
    assert container["resources"]["requests"] == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "3"}
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 2}
    assert budget["maxUnavailable"] == 2
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 7)
    assert scaler["metrics"][0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "16"}


def test_without_an_autoscaler_the_replicas_are_fixed() -> None:
    found = by_kind(build_manifests(plan_replicas(14, gpus_per_replica=3), ServiceSpec(image="a")))
    assert found["Deployment"]["spec"]["replicas"] == 6


def test_secrets_and_caches_are_named_and_never_written() -> None:
    spec = ServiceSpec(image="a", env_secret="model-env", pull_secret="registry", cache_claim="models")
    pod = by_kind(build_manifests(plan_replicas(4), spec))["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "model-env"}}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/dev/shm", "/cache/huggingface"}
    assert container["env"] == [{"name": "HF_HOME", "value": "/cache/huggingface"}]
    assert pod["volumes"][1] == {"name": "cache", "persistentVolumeClaim": {"claimName": "models"}}


def test_everything_selects_the_same_pods() -> None:
    found = made()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert (
        found["Service"]["spec"]["ports"][0]["targetPort"]
        == (found["Deployment"]["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"])
    )


def test_a_node_can_be_drained_even_without_a_spare() -> None:
    assert made(spare=0)["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_nothing_scales_without_knowing_what_a_replica_carries() -> None:
    assert "HorizontalPodAutoscaler" not in by_kind(build_manifests(plan_replicas(4), ServiceSpec(image="a")))
    assert [autoscaling_target(carried) for carried in (0.5, 1.0, 20.0, 21.0)] == [1, 1, 16, 16]


def test_a_quota_covers_the_gpus_of_all_replicas() -> None:
    found = by_kind(build_manifests(plan_replicas(14, gpus_per_replica=3), ServiceSpec(image="a", queue="team")))
    group = found["ClusterQueue"]["spec"]["resourceGroups"][0]
    # Kueue admits no pod that requests a resource which its queue does not cover.
    container = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert set(group["coveredResources"]) == set(container["resources"]["requests"])
    assert group["flavors"][0] == {
        "name": found["ResourceFlavor"]["metadata"]["name"],
        "resources": [
            {"name": "nvidia.com/gpu", "nominalQuota": 18},
            {"name": "cpu", "nominalQuota": "24"},
            {"name": "memory", "nominalQuota": "96Gi"},
        ],
    }
    assert found["LocalQueue"]["spec"]["clusterQueue"] == found["ClusterQueue"]["metadata"]["name"]
    assert found["Deployment"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"


def test_the_command_prints_yaml_that_says_what_it_rests_on(sizing: Sizing) -> None:
    code, out, _ = sizing(
        "manifests", "--gpus", "14", "--gpus-per-replica", "3", "--in-flight", "20", "--image", "a/b:1"
    )
    assert code == 0
    assert out.startswith("# 14 GPUs as given.\n# 14 GPUs -> 5 replicas of 3 and 1 spare: 6 replicas\n")
    assert "placeholder" not in out
    assert "&" not in out
    assert next(one["kind"] for one in yaml.safe_load_all(out)) == "Deployment"
    code, out, _ = sizing("manifests", "--gpus", "4", "--json")
    found = json.loads(out)
    assert (found["plan"]["replicas"], len(found["objects"])) == (5, 3)
    assert any("placeholder" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "--gpus N"),
        (("--gpus", "4", "--gpus-per-replica", "16"), "does not fit on a node"),
        (("--gpus", "4", "--name", "Not_A_Label"), "--name"),
        (("--gpus", "4", "--image", "a b"), "--image"),
        (("--gpus", "4", "--image", "a\nkind: Secret"), "--image"),
        (("--gpus", "4", "--health", "health"), "--health"),
        (("--gpus", "4", "--gpu-resource", "gpu"), "--gpu-resource"),
        (("--gpus", "4", "--node-selector", "zone"), "--node-selector"),
        (("--gpus", "4", "--node-selector", "zone=a b"), "--node-selector"),
        (("--gpus", "4", "--in-flight", "0"), "--in-flight"),
        (("no/such/sweep",), "no/such/sweep"),
    ],
)
def test_a_wrong_option_is_named(sizing: Sizing, options: tuple[str, ...], named: str) -> None:
    code, out, err = sizing("manifests", *options)
    assert (code, out) == (2, "")
    assert named in err


ASKED = {"target": "runtime p95 <= 2 s", "load": 100.0, "load_unit": "users", "test_gpus": 2}
ESTIMATE = ASKED | {"capacity": 30.0, "capacity_low": 25.0, "gpus": 6.7, "recommended": 8}


def sweep(folder: Path, *estimates: dict[str, Any], in_flight: dict[float, float] | None = None) -> Path:
    """A sweep folder with these estimates, and points with so many in flight at each load."""
    run = run_folder.start_run("sizing", folder)
    estimate = row_of(ESTIMATES, **ESTIMATE, verdict="linear scaling assumed")
    run.write_table(ESTIMATES, ESTIMATES.frame([estimate | one for one in estimates]))
    points = [
        row_of(POINTS, step=step, load=load, load_unit="users", in_flight=flying, n_ok=200, gpus=2)
        for step, (load, flying) in enumerate((in_flight or {10.0: 10.0, 40.0: 40.0}).items())
    ]
    run.write_table(POINTS, POINTS.frame(points))
    return run.folder


def test_a_sweep_gives_the_gpus_of_its_largest_estimate(tmp_path: Path, sizing: Sizing) -> None:
    folder = sweep(tmp_path, {"target": "ttft", "gpus": 3.0, "recommended": 4, "binding": False}, {})
    code, out, _ = sizing("manifests", folder, "--gpus-per-replica", "2", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["plan"]["gpus"], found["plan"]["needed"]) == (8, 4)
    assert found["notes"][0] == "runtime p95 <= 2 s for 100 users: 8 GPUs recommended (linear scaling assumed)."
    # 25 users, the cautious end, were in flight on the two GPUs of one replica: 80 % of them.
    assert by_kind(found["objects"])["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["target"] == {
        "type": "AverageValue",
        "averageValue": "20",
    }


def test_what_is_in_flight_is_measured_where_the_load_is_something_else(tmp_path: Path, sizing: Sizing) -> None:
    folder = sweep(tmp_path, {"load_unit": "1/s"}, in_flight={20.0: 4.0, 30.0: 6.0})
    _, out, _ = sizing("manifests", folder, "--json")
    target = by_kind(json.loads(out)["objects"])["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["target"]
    # At 25 arrivals a second 5 are in flight on two GPUs: 2.5 on each, and 80 % of that.
    assert target["averageValue"] == "2"


def test_a_sweep_on_a_part_of_a_replica_is_refused(tmp_path: Path, sizing: Sizing) -> None:
    code, _, err = sizing("manifests", sweep(tmp_path, {}), "--gpus-per-replica", "4")
    assert code == 2
    assert "did not run on whole replicas" in err


def test_a_sweep_without_an_answer_says_why(tmp_path: Path, sizing: Sizing) -> None:
    none = {"recommended": None, "gpus": None, "verdict": "no estimate", "reason": "beyond what was measured"}
    code, _, err = sizing("manifests", sweep(tmp_path, none))
    assert code == 2
    assert "beyond what was measured" in err


def test_a_target_without_an_answer_may_need_more_than_the_others(tmp_path: Path, sizing: Sizing) -> None:
    none = {"target": "ttft", "recommended": None, "gpus": None, "binding": False, "reason": "beyond what was measured"}
    folder = sweep(tmp_path, {}, none)
    code, _, err = sizing("manifests", folder)
    assert code == 2
    assert "ttft: beyond what was measured" in err
    assert sizing("manifests", folder, "--gpus", "12")[0] == 0


def test_a_verification_that_failed_stands_above_the_manifests(tmp_path: Path, sizing: Sizing) -> None:
    folder = sweep(tmp_path, {})
    failed = {"verdict": "failed", "reason": "2.4 s at 8 GPUs", "predicted_gpus": 8}
    row = row_of(VERIFICATION, **ASKED | failed | {"load": 150.0})
    run_folder.load_run(folder).write_table(VERIFICATION, VERIFICATION.frame([row]))
    said = "# Verification of runtime p95 <= 2 s, 8 GPUs for 150 users: failed (2.4 s at 8 GPUs).\n"
    assert said in sizing("manifests", folder)[1]
