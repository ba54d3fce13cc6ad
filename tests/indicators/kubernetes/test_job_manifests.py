"""A session as Kubernetes objects: right by the API's schemas and models, closed in every field, and within limits."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.indicators.kubernetes.making import KEY, PYTHON, STACKS, Good, indicator, planned, stack
from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.kubernetes import job_submission
from workbench.indicators.kubernetes.job_manifests import (
    MAX_BYTES,
    ClusterOptions,
    build_label_selector,
    build_manifests,
    build_object_name,
    build_pod_files,
    cluster_options,
    list_notes,
    list_pod_rounds,
    pack_config_maps,
    pod_user_id,
)
from workbench.indicators.kubernetes.job_submission import load_signing_key
from workbench.indicators.measurement.session_plan import order_runs
from workbench.indicators.store.archive import Session
from workbench.kubernetes.manifests import format_yaml

CASES = [Case.from_parameters(Good)]
# The oldest Kubernetes that knows all fields, a middle and the newest that the validator brings.
VERSIONS = ("1.29", "1.31", "1.37")
DIGEST = "registry.example/python@sha256:" + 64 * "b"
Objects = dict[str, dict[str, Any]]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return planned(tmp_path, CASES, rounds=(2, 3))


def made(session: Session, options: ClusterOptions | None = None, **more: Any) -> list[dict[str, Any]]:
    return build_manifests(session, STACKS, CASES, options or cluster_options(), key=KEY, **more)


def by_kind(found: list[dict[str, Any]]) -> Objects:
    return {one["kind"]: one for one in found}


def pod_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = by_kind(found)["Job"]["spec"]["template"]["spec"]
    return spec


FULL = {
    "image": DIGEST,
    "namespace": "measuring",
    "node_selector": {"nvidia.com/gpu.product": "NVIDIA-A100"},
    "tolerations": ("dedicated=bench:NoSchedule", "spot"),
    "gpus": 2,
    "cpus": 8,
    "runtime_class": "gvisor",
    "pull_policy": "IfNotPresent",
    "pull_secret": "registry",
    "egress": ("443", "10.0.0.0/8:3141", "[fd00::/8]:443"),
    "index_secret": "index/url",
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("given", [{}, FULL], ids=["plain", "full"])
def test_every_object_is_valid_by_the_schemas_of_kubernetes(
    session: Session, version: str, given: dict[str, Any]
) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    found = made(session, cluster_options(**given))
    for one in yaml.safe_load_all(format_yaml(found, ["a note"])):
        validator.validate(one, version, strict=True)
    assert [one["kind"] for one in found] == ["ConfigMap", "Secret", "NetworkPolicy", "Job"]


def test_a_round_is_one_pod_and_rounds_come_one_after_the_other(session: Session) -> None:
    job = by_kind(made(session))["Job"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 1)
    assert (job["backoffLimitPerIndex"], job["podReplacementPolicy"]) == (0, "Failed")
    assert "backoffLimit" not in job
    assert job["ttlSecondsAfterFinished"] == 86_400
    # 1,800 s to install, three runs of 60 s and 2 s to end each, 30 s to begin and end.
    assert job["template"]["spec"]["activeDeadlineSeconds"] == 1800 + 3 * 62 + 30
    assert job["activeDeadlineSeconds"] == 3 * job["template"]["spec"]["activeDeadlineSeconds"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    # Only some can be made.
    job = by_kind(made(session, rounds=[2, 0]))["Job"]["spec"]
    assert (job["completions"], list_pod_rounds(job["template"])) == (2, [2, 0])
    with pytest.raises(ConfigError, match="not rounds of this session"):
        made(session, rounds=[3])


def test_the_pod_and_every_container_are_closed(session: Session) -> None:
    pod = pod_of(made(session))
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for which in ("initContainers", "containers"):
        (container,) = pod[which]
        assert container["securityContext"].items() >= closed.items()
    # The user is a number of the session alone, and never root.
    context = pod["securityContext"]
    assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == pod_user_id(session.session_id)
    assert all(20_000 <= pod_user_id(name) < 60_000 for name in ("a", "b", "c"))
    assert pod_user_id("a") != pod_user_id("b")


def test_nothing_of_the_host_is_mounted_and_environments_cannot_be_changed_by_scripts(session: Session) -> None:
    pod = pod_of(made(session))
    assert {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]} == {"projected", "emptyDir"}
    (measure,) = pod["containers"]
    writable = {one["name"]: not one["readOnly"] for one in measure["volumeMounts"]}
    assert writable == {"bundle": False, "environments": False, "scratch": True}
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)
    assert measure["workingDir"] == "/scratch"
    assert {"name": "HOME", "value": "/scratch"} in measure["env"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys()


@pytest.mark.parametrize("given", [{}, FULL], ids=["plain", "full"])
def test_requests_are_limits_in_whole_cores_so_that_a_pod_is_guaranteed(
    session: Session, given: dict[str, Any]
) -> None:
    pod = pod_of(made(session, cluster_options(**given)))
    for container in (*pod["initContainers"], *pod["containers"]):
        amounts = container["resources"]
        assert amounts["requests"] == amounts["limits"]
        assert amounts["limits"]["cpu"] == ("8" if given else "2")
        assert amounts["limits"]["memory"] == f"{1024 + 256}Mi"


def test_gpus_go_to_the_measuring_container_alone(session: Session) -> None:
    pod = pod_of(made(session, cluster_options(**FULL)))
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in pod["initContainers"][0]["resources"]["limits"]
    selected = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": "NVIDIA-A100"}
    assert pod["nodeSelector"] == selected
    assert pod["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "bench", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert (pod["runtimeClassName"], pod["imagePullSecrets"]) == ("gvisor", [{"name": "registry"}])
    assert {one["imagePullPolicy"] for one in (*pod["initContainers"], *pod["containers"])} == {"IfNotPresent"}


def test_the_key_is_in_the_secret_and_never_the_installers_who_alone_knows_the_index(session: Session) -> None:
    found = made(session, cluster_options(index_url="https://index.example/simple"))
    texts = {one["kind"]: json.dumps(one) for one in found}
    assert [kind for kind, text in texts.items() if KEY in text] == ["Secret"]
    pod = pod_of(found)
    variables = {one["name"]: one["value"] for one in pod["initContainers"][0]["env"]}
    assert variables.keys() == {"HOME", "PIP_INDEX_URL", "UV_DEFAULT_INDEX"}
    assert variables["PIP_INDEX_URL"] == "https://index.example/simple"
    assert "index.example" not in json.dumps(pod["containers"])
    assert [one["name"] for one in pod_of(made(session))["initContainers"][0]["env"]] == ["HOME"]
    assert pod["containers"][0]["env"][1]["valueFrom"]["secretKeyRef"]["name"] == build_object_name(session.session_id)


def test_the_network_is_dns_and_the_asked_ports(session: Session) -> None:
    policy = by_kind(made(session, cluster_options(egress=("10.0.0.0/8:3141",))))["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert policy["egress"] == [
        {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        {"ports": [{"protocol": "TCP", "port": 3141}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    ]
    labels = by_kind(made(session))["Job"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_names_and_labels_are_allowed_whatever_the_session_is_called(session: Session) -> None:
    for name in ("20260102T030405Z-a1b2c3", "Ünïcode / weird", "-" * 40, "x" * 300):
        label = build_object_name(name)
        # With an index of four digits and a pod's suffix it must still be a name.
        assert len(label) <= 63 - len("-9999-abcde")
        assert label.strip("-") == label
        assert re.fullmatch("[a-z0-9-]+", label)
    assert build_object_name("a b") != build_object_name("a-b")
    selected = dict(pair.split("=") for pair in build_label_selector(session.session_id).split(","))
    for one in made(session):
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "workbench-indicators"
        assert selected.items() <= one["metadata"]["labels"].items()


def test_the_plan_has_every_run_of_every_round_in_the_sessions_order(session: Session) -> None:
    files = build_pod_files(session, STACKS, CASES, cluster_options(), rounds=[0, 1, 2])
    plan = json.loads(files["plan.json"])
    orders = json.loads(files["order-0.json"])
    told = [
        (position, int(number), plan["cases"][case]["label"], plan["arms"][arm]["name"])
        for number, runs in orders.items()
        for position, case, arm in runs
    ]
    assert told == [(slot.position, slot.round, slot.case, slot.arm) for slot in order_runs(session)]
    assert [one["stack"] for one in plan["environments"]] == ["six-1.17.0", "six-1.16.0", "control"]
    assert plan["environments"][0]["lock"] == plan["environments"][2]["lock"]
    assert files[plan["environments"][0]["lock"]] == STACKS[0].lock
    assert files[plan["cases"][0]["sources"]["script.py"]] == Good.script
    assert plan["cases"][0]["environment"]["PI_N"] == "3"


def test_files_are_spread_over_configmaps_that_kubernetes_takes() -> None:
    texts = {f"{number}.txt": chr(97 + number) * 400_000 for number in range(7)}
    maps = pack_config_maps(texts)
    assert len(maps) == 4
    assert {name: text for one in maps for name, text in one.items()} == texts
    assert all(sum(len(name) + len(text.encode()) for name, text in one.items()) < MAX_BYTES for one in maps)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"large.txt": "ä" * 600_000, "small.txt": "a"}, "large.txt: 1.14 MiB"),
        ({f"{number}.txt": "a" * 900_000 for number in range(17)}, "14.6 MiB in all"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_sizes(texts: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        pack_config_maps(texts)


def test_scripts_of_several_mebibytes_become_several_configmaps(tmp_path: Path) -> None:
    noise = base64.b64encode(os.urandom(450_000)).decode()
    large = indicator("Large", "print(1)", **{f"data{at}.txt": f"{at}{noise}" for at in range(3)})
    cases = [Case.from_parameters(large)]
    found = build_manifests(planned(tmp_path, cases), STACKS, cases, cluster_options(), key=KEY)
    names = [one["metadata"]["name"] for one in found if one["kind"] == "ConfigMap"]
    assert len(names) == 3
    assert [one["configMap"]["name"] for one in pod_of(found)["volumes"][0]["projected"]["sources"]] == names


def test_a_person_is_told_what_a_tag_and_a_shared_kernel_mean(session: Session) -> None:
    told = " ".join(list_notes(session, cluster_options()))
    assert f"image python:{PYTHON}-slim has a tag" in told
    assert "RuntimeClass" in told
    careful = " ".join(list_notes(session, cluster_options(image=DIGEST, runtime_class="kata")))
    assert "tag" not in careful
    assert "RuntimeClass" not in careful


@pytest.mark.parametrize(
    ("changed", "config", "told"),
    [
        ({"platform": "macosx_arm64"}, {}, "does not support this platform"),
        ({"python": "3.9"}, {}, "several Python versions"),
        ({}, {"design": "blocks"}, "only the design rounds"),
    ],
)
def test_what_one_pod_cannot_do_is_refused(
    tmp_path: Path, changed: dict[str, str], config: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        planned(tmp_path, CASES, stacks=[stack(), stack(version="1.16.0", **changed)], **config)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"image": "a b"}, "image"),
        ({"namespace": "Not_A_Label"}, "namespace"),
        ({"node_selector": {"zone": "a b"}}, "node_selector"),
        ({"tolerations": ("a=b:Sometimes",)}, "tolerations"),
        ({"egress": ("0",)}, "egress"),
        ({"egress": ("host.example:443",)}, "egress"),
        ({"gpus": -1}, "gpus"),
        ({"runtime_class": "g visor"}, "runtime_class"),
        ({"index_secret": "name"}, "index_secret"),
        ({"index_url": "https://index.example/a", "index_secret": "a/b"}, "one of them"),
        ({"nodes": 3}, "nodes"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        cluster_options(**given)
    with pytest.raises(ConfigError, match="index_secret") as refused:
        cluster_options(index_url="https://ann:hunter22@index.example/simple")
    assert "hunter22" not in str(refused.value)


def test_only_the_owner_may_read_the_key(tmp_path: Path) -> None:
    key = load_signing_key(tmp_path, create=True)
    assert len(bytes.fromhex(key)) == 32
    assert load_signing_key(tmp_path) == key
    assert (tmp_path / "kubernetes" / "key").stat().st_mode & 0o077 == 0
    session = planned(tmp_path / "session", threads=1000)
    # The cores of this machine say nothing of a cluster.
    assert (session.threads, [note for note in session.notes if "core" in note]) == (1000, [])
    assert (tmp_path / "session" / "kubernetes" / "manifests.yaml").stat().st_mode & 0o077 == 0


def test_a_private_file_is_private_though_a_part_of_it_was_left_open_to_all(tmp_path: Path) -> None:
    part = tmp_path / "cluster" / ".key.part"
    part.parent.mkdir()
    part.touch(mode=0o644)
    job_submission._write_private_file(tmp_path / "cluster" / "key", "secret")
    assert (tmp_path / "cluster" / "key").stat().st_mode & 0o777 == 0o600
