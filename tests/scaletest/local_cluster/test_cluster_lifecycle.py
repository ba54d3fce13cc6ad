"""The cluster that the area's tests share: private, at Kubernetes' own limits but where asked, with two identities."""

from __future__ import annotations

import json
from dataclasses import replace

import psutil
import pytest

from tests.scaletest.conftest import QUICK
from tests.scaletest.local_cluster import component_faults
from tests.scaletest.local_cluster.asking import answer, found
from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api.api_discovery import SIMULATED
from workbench.scaletest.local_cluster import component_processes, control_plane, identities
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster

pytestmark = pytest.mark.cluster


def listening(of: LocalCluster) -> set[tuple[str, str, int]]:
    """What the processes of a cluster listen on: process, address, port."""
    alive = component_processes.find_processes(of.folder)
    return {
        (name, at.laddr.ip, at.laddr.port)
        for name, many in alive.items()
        for process in many
        for at in process.net_connections(kind="inet")
        if at.status == psutil.CONN_LISTEN
    }


def commands(of: LocalCluster) -> dict[str, list[str]]:
    return {name: many[0].cmdline() for name, many in component_processes.find_processes(of.folder).items()}


def test_every_part_listens_on_this_machine_only(local_cluster: LocalCluster) -> None:
    at = listening(local_cluster)
    assert {name for name, _, _ in at} == set(control_plane.COMPONENT_NAMES)
    assert {address for _, address, _ in at} == {"127.0.0.1"}
    assert local_cluster.server in {f"https://127.0.0.1:{port}" for _, _, port in at}


def test_what_holds_a_credential_is_its_owners_alone(local_cluster: LocalCluster) -> None:
    assert local_cluster.folder.stat().st_mode & 0o777 == 0o700
    for path in (local_cluster.kubeconfig, local_cluster.measure_kubeconfig):
        assert path.stat().st_mode & 0o777 == 0o600


def test_its_record_holds_no_credential(local_cluster: LocalCluster) -> None:
    token = json.dumps(local_cluster.measure_kubeconfig.read_text()).split("token: ")[1][:40]
    assert token not in (local_cluster.folder / "cluster.json").read_text()
    for lines in commands(local_cluster).values():
        assert token not in " ".join(lines)


def test_its_nodes_are_as_many_as_asked_for_and_take_pods(local_cluster: LocalCluster) -> None:
    items = found(local_cluster, "/api/v1/nodes")["items"]
    assert len(items) == local_cluster.nodes == 50
    for item in items:
        assert item["metadata"]["labels"][SIMULATED] == "true"
        assert item["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert [taint["key"] for taint in item["spec"]["taints"]] == ["kwok.x-k8s.io/node"]
        assert {one["type"]: one["status"] for one in item["status"]["conditions"]}["Ready"] == "True"


def test_limits_that_were_asked_for_are_on_the_command_line_and_recorded(local_cluster: LocalCluster) -> None:
    started = commands(local_cluster)
    known = {one.name: one for one in local_cluster.components}
    for name, limit in QUICK.items():
        assert f"--kube-api-qps={limit.qps:g}" in started[name]
        assert f"--kube-api-burst={limit.burst}" in started[name]
        assert (known[name].client_qps, known[name].client_burst) == (limit.qps, limit.burst)


def test_the_servers_own_limits_and_fairness_are_left_alone(local_cluster: LocalCluster) -> None:
    line = " ".join(commands(local_cluster)["kube-apiserver"])
    for word in ("inflight", "priority-and-fairness", "disable"):
        assert word not in line
    got = answer(local_cluster, "GET", "/api/v1/nodes?limit=1", measuring=True)
    assert any(name.lower() == "x-kubernetes-pf-prioritylevel-uid" for name in got.headers)


def test_each_part_has_a_version_and_its_arguments_without_paths(local_cluster: LocalCluster) -> None:
    known = {one.name: one for one in local_cluster.components}
    assert set(known) == set(control_plane.COMPONENT_NAMES)
    assert all(one.version for one in known.values())
    assert known["kube-apiserver"].arguments["authorization-mode"] == "Node,RBAC"
    for one in local_cluster.components:
        assert str(local_cluster.folder) not in str(one.arguments)


def test_the_measuring_identity_is_no_administrator(local_cluster: LocalCluster) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    got = answer(
        local_cluster, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, measuring=True
    ).json()["status"]["userInfo"]
    assert got["username"] == f"system:serviceaccount:{identities.NAMESPACE}:{identities.ACCOUNT}"
    assert "system:masters" not in got["groups"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nodes", 200),
        ("GET", "/api/v1/pods", 200),
        ("GET", "/api/v1/namespaces/kube-system", 200),
        ("GET", "/api/v1/namespaces/default", 403),
        ("GET", "/api/v1/secrets", 403),
        ("POST", "/api/v1/namespaces", 403),
        ("DELETE", "/api/v1/nodes/sim-00000", 403),
        ("POST", "/api/v1/namespaces/default/pods", 403),
    ],
)
def test_the_measuring_identity_may_look_and_not_touch(
    local_cluster: LocalCluster, method: str, path: str, status: int
) -> None:
    body = {"metadata": {"name": "x"}} if method == "POST" else None
    assert answer(local_cluster, method, path, body, measuring=True).status == status


def test_a_component_that_is_not_there_is_told(local_cluster: LocalCluster) -> None:
    for act in (component_faults.kill_component, component_faults.restart_component):
        with pytest.raises(ConfigError, match="no such component") as caught:
            act(local_cluster, "kai-binder")
        assert "kube-scheduler" in str(caught.value)
    with pytest.raises(ConfigError, match="no such component"):
        component_faults.kill_component(replace(local_cluster, name="other"), "etcd")
