"""Manifests against the schemas of the API: what is right passes, what is wrong is named, Kueue's by its CRDs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sizing.conftest import Sizing
from workbench.core.errors import InputError, MissingToolError
from workbench.sizing.deployment.replica_plan import plan_replicas
from workbench.sizing.deployment.service_manifests import (
    PROFILES,
    ServiceSpec,
    build_manifests,
    check_manifests,
    read_crd_schemas,
)

pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")

ASKED = ("manifests", "--gpus", "4", "--image", "a:1")
TEXT = {"type": "string"}
QUOTA = {"type": "object", "properties": {"name": TEXT, "nominalQuota": {"x-kubernetes-int-or-string": True}}}
FLAVOR = {"type": "object", "properties": {"name": TEXT, "resources": {"type": "array", "items": QUOTA}}}
GROUP = {
    "type": "object",
    "required": ["coveredResources", "flavors"],
    "properties": {"coveredResources": {"type": "array", "items": TEXT}, "flavors": {"type": "array", "items": FLAVOR}},
}
SPECS = {
    "ResourceFlavor": {"nodeLabels": {"type": "object", "additionalProperties": TEXT}},
    "LocalQueue": {"clusterQueue": TEXT},
    "ClusterQueue": {
        "namespaceSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "resourceGroups": {"type": "array", "items": GROUP},
    },
}


def crd(kind: str, version: str = "v1beta2") -> dict[str, Any]:
    """A definition as the API server prints it, with the fields that a quota needs."""
    properties = {"apiVersion": TEXT, "kind": TEXT, "metadata": {"type": "object"}}
    properties |= {"spec": {"type": "object", "properties": SPECS[kind]}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    old = served | {"name": "v1alpha1", "served": False, "schema": None}
    spec = {"group": "kueue.x-k8s.io", "names": {"kind": kind}, "versions": [old, served]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}


@pytest.fixture
def crds(tmp_path: Path) -> Path:
    path = tmp_path / "crds.yaml"
    path.write_text(json.dumps({"kind": "List", "items": [crd(kind) for kind in SPECS]}))
    return path


def made(**changed: Any) -> list[dict[str, Any]]:
    spec = ServiceSpec(
        image="a/b:1", queue="team", env_secret="env", pull_secret="pull", cache_claim="models", **changed
    )
    return build_manifests(plan_replicas(14, gpus_per_replica=2), spec, in_flight=20.0)


@pytest.mark.parametrize("version", ["1.25", "1.31", None])
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_valid(profile: str, version: str | None, crds: Path) -> None:
    assert check_manifests(made(profile=profile, shared_memory="8Gi"), version, read_crd_schemas([crds])) == []


def test_a_profile_has_its_servers_probes_cache_and_arguments() -> None:
    pods = {}
    for profile in PROFILES:
        objects = {one["kind"]: one for one in made(profile=profile)}
        pods[profile] = objects["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    nim, vllm = pods["nim"], pods["vllm"]
    assert nim["readinessProbe"]["httpGet"]["path"] == "/v1/health/ready"
    assert nim["livenessProbe"]["httpGet"]["path"] == "/v1/health/live"
    assert nim["env"] == [{"name": "NIM_CACHE_PATH", "value": "/opt/nim/.cache"}]
    assert vllm["args"] == ["--tensor-parallel-size", "2"]
    assert (vllm["livenessProbe"]["httpGet"]["path"], vllm["env"][0]["name"]) == ("/health", "HF_HOME")
    assert "args" not in pods["plain"]
    assert "args" not in nim


def test_what_is_given_stands_above_the_profile() -> None:
    spec = ServiceSpec(profile="nim", health="/up", args=["--tensor-parallel-size=4"])
    assert (spec.health, spec.liveness) == ("/up", "/v1/health/live")
    objects = build_manifests(plan_replicas(8, gpus_per_replica=4), spec.model_copy(update={"profile": "vllm"}))
    assert objects[0]["spec"]["template"]["spec"]["containers"][0]["args"] == ["--tensor-parallel-size=4"]


@pytest.mark.parametrize(
    ("kind", "path", "value", "named"),
    [
        ("Deployment", ("spec", "template", "spec", "container"), [], "container"),
        ("HorizontalPodAutoscaler", ("spec", "maxReplicas"), "six", "spec.maxReplicas"),
        ("ClusterQueue", ("spec", "resourceGroups"), [{"flavors": []}], "coveredResources"),
        ("ClusterQueue", ("spec", "cohort"), "old", "cohort"),
        ("LocalQueue", ("spec", "clusterQueue"), 3, "spec.clusterQueue"),
    ],
)
def test_what_is_wrong_is_named(kind: str, path: tuple[str, ...], value: Any, named: str, crds: Path) -> None:
    objects = made()
    place = next(one for one in objects if one["kind"] == kind)
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (fault,) = check_manifests(objects, None, read_crd_schemas([crds]))
    assert fault.startswith(kind)
    assert named in fault


def test_an_api_without_a_schema_is_a_fault_and_an_old_version_another(tmp_path: Path) -> None:
    assert sum("--crd" in fault for fault in check_manifests(made(), None, {})) == 3
    old = tmp_path / "old.yaml"
    old.write_text(json.dumps(crd("LocalQueue", "v1beta1")))
    assert any("v1beta2" in fault for fault in check_manifests(made(), None, read_crd_schemas([old])))


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "",
        "kind: Pod",
        "kind: List\nitems: 3",
        "kind: CustomResourceDefinition\nspec: {versions: []}",
        "- 1",
        "&a [*a]",
    ],
)
def test_a_file_that_is_no_definition_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "crd.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        read_crd_schemas([path])


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ({"type": 3}, "cannot be used"),
        ({"properties": {"apiVersion": {"pattern": "("}}}, "cannot be used"),
        ({"properties": {"apiVersion": {"type": "integer"}}}, "integer"),
        # No reference is followed: it could lead to a file of this machine.
        ({"$ref": "file:///etc/passwd"}, None),
    ],
)
def test_a_broken_schema_is_a_fault_and_no_crash(broken: dict[str, Any], fault: str | None, tmp_path: Path) -> None:
    item = crd("LocalQueue")
    item["spec"]["versions"][1]["schema"]["openAPIV3Schema"] = broken
    path = tmp_path / "crd.yaml"
    path.write_text(json.dumps(item))
    queue = [one for one in made() if one["kind"] == "LocalQueue"]
    faults = check_manifests(queue, None, read_crd_schemas([path]))
    assert any(fault in one for one in faults) if fault else faults == []


def test_the_command_says_what_was_checked(sizing: Sizing, crds: Path) -> None:
    code, out, _ = sizing(*ASKED, "--validate", "--queue", "team", "--crd", crds, "--kubernetes", "1.31")
    assert code == 0
    assert "# Checked by the schemas of Kubernetes 1.31: valid." in out
    code, out, _ = sizing(*ASKED, "--validate", "--queue", "team", "--json")
    assert code == 1
    assert len(json.loads(out)["faults"]) == 3
    assert sizing(*ASKED).code == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--kubernetes", "../x"), "--kubernetes"),
        (("--crd", "no/such.yaml"), "no/such.yaml"),
        (("--profile", "tgi"), "--profile"),
        (("--cache-variable", "a b"), "--cache-variable"),
        (("--shared-memory", "much"), "--shared-memory"),
    ],
)
def test_a_wrong_option_is_named(sizing: Sizing, options: tuple[str, ...], named: str) -> None:
    code, out, err = sizing(*ASKED, "--validate", *options)
    assert (code, out) == (2, "")
    assert named in err


def test_without_the_validator_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_validate", None)
    with pytest.raises(MissingToolError, match="kubernetes-validate"):
        check_manifests([], None, {})
