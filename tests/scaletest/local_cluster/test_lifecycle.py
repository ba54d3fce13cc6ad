"""Clusters that come up, break, are killed, and go without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.scaletest import owner_guard
from tests.scaletest.conftest import programs, start_guarded_cluster, unique
from tests.scaletest.local_cluster import component_faults
from tests.scaletest.local_cluster.asking import answer, found, wait_for
from tests.scaletest.local_cluster.test_cluster_lifecycle import listening
from workbench.cli.app import app
from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record, component_processes
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClusterSettings, NodePool

pytestmark = pytest.mark.cluster
SMALL = (NodePool(nodes=1, gpus=4), NodePool(nodes=1, gpus=0))
KWOK_VARIABLES = {
    "ETCD": "etcd",
    "KUBE_APISERVER": "kube-apiserver",
    "KUBE_CONTROLLER_MANAGER": "kube-controller-manager",
    "KUBE_SCHEDULER": "kube-scheduler",
    "CONTROLLER": "kwok",
    "KUBECTL": "kubectl",
}
ARGUMENTS = {"max-mutating-requests-inflight": "150"}
SETTINGS = ClusterSettings(pools=SMALL, api_arguments=ARGUMENTS)


@pytest.fixture
def name() -> Iterator[str]:
    """A name of which nothing is left after the test."""
    programs()
    made = unique("life")
    watcher = owner_guard.start_guard(made)
    yield made
    cluster_lifecycle.stop_cluster(made)
    owner_guard.release_guard(watcher)


@pytest.fixture(scope="module")
def spare() -> Iterator[LocalCluster]:
    """A small cluster that tests may break, as long as they mend it."""
    programs()
    with start_guarded_cluster("spare", pools=SMALL, api_arguments=ARGUMENTS) as cluster:
        yield cluster


def nothing_left(name: str) -> bool:
    home = cluster_record.find_cluster_folder(name).absolute()
    return not home.exists() and not component_processes.find_processes(home)


def test_two_clusters_share_neither_ports_nor_folders(local_cluster: LocalCluster, spare: LocalCluster) -> None:
    first, second = listening(local_cluster), listening(spare)
    assert not {port for _, _, port in first} & {port for _, _, port in second}
    assert {address for _, address, _ in second} == {"127.0.0.1"}
    assert local_cluster.folder != spare.folder
    assert found(local_cluster, "/api/v1/namespaces/kube-system") != found(spare, "/api/v1/namespaces/kube-system")


def test_an_argument_of_the_api_server_arrives_and_is_recorded(spare: LocalCluster) -> None:
    command = component_processes.find_processes(spare.folder)["kube-apiserver"][0].cmdline()
    assert "--max-mutating-requests-inflight=150" in command
    known = {one.name: one for one in spare.components}
    assert known["kube-apiserver"].arguments["max-mutating-requests-inflight"] == "150"
    # Limits that were not said are Kubernetes' own.
    own = {name: (one.client_qps, one.client_burst) for name, one in known.items() if one.client_qps is not None}
    assert own == {"kube-controller-manager": (20, 30), "kube-scheduler": (50, 100)}


def test_one_that_is_up_is_given_back_when_it_is_what_was_asked_for(spare: LocalCluster) -> None:
    said: list[str] = []
    assert cluster_lifecycle.start_cluster(spare.name, SETTINGS, tell=said.append) == spare
    assert said == ["the cluster is already up"]
    with pytest.raises(ConfigError, match="running with other settings") as caught:
        cluster_lifecycle.start_cluster(
            spare.name, ClusterSettings(pools=(NodePool(nodes=3, gpus=4),), api_arguments=ARGUMENTS)
        )
    assert "pools" in str(caught.value)
    assert "api_arguments" not in str(caught.value)


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_a_restart_keeps_what_was_written(spare: LocalCluster, component: str) -> None:
    before = component_processes.find_processes(spare.folder)[component][0].pid
    path = "/api/v1/namespaces/default/configmaps"
    assert answer(spare, "POST", path, {"metadata": {"name": f"kept-{component}"}}).status == 201
    component_faults.restart_component(spare, component)
    wait_for(lambda: answer(spare, "GET", f"{path}/kept-{component}").status == 200)
    assert component_processes.find_processes(spare.folder)[component][0].pid != before
    assert cluster_lifecycle.find_cluster(spare.name) == spare


def test_a_killed_part_is_told_and_comes_back(spare: LocalCluster) -> None:
    component_faults.kill_component(spare, "kwok-controller")
    with pytest.raises(ConfigError, match="components of the local cluster are not running"):
        cluster_lifecycle.find_cluster(spare.name)
    result = CliRunner().invoke(app, ["scaletest", "cluster", "status", "--name", spare.name, "--json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [one["name"] for one in told["processes"] if not one["healthy"]] == ["kwok-controller"]
    assert told["well"] is False
    component_faults.restart_component(spare, "kwok-controller")
    result = CliRunner().invoke(app, ["scaletest", "cluster", "status", "--name", spare.name])
    assert result.exit_code == 0
    assert "2 of 2 simulated nodes ready" in result.stdout


def test_after_everything_was_killed_up_begins_anew_and_down_leaves_nothing(name: str) -> None:
    made = cluster_lifecycle.start_cluster(name, ClusterSettings(pools=SMALL))
    at = {port for _, _, port in listening(made)}
    for component in made.components:
        component_faults.kill_component(made, component.name)
    said: list[str] = []
    again = cluster_lifecycle.start_cluster(name, ClusterSettings(pools=SMALL), tell=said.append)
    assert said[0] == "removing the remains of an earlier cluster of this name"
    component_faults.kill_component(again, "etcd")
    component_faults.kill_component(again, "kube-apiserver")
    at |= {port for _, _, port in listening(again)}
    assert cluster_lifecycle.stop_cluster(name)
    assert nothing_left(name)
    assert all(component_processes.is_port_free(port) for port in at)
    assert not cluster_lifecycle.stop_cluster(name)


def _up_in_a_process(name: str) -> subprocess.Popen[str]:
    """`cluster up`, until its control plane is there and its nodes are being made."""
    command = [sys.executable, "-m", "workbench", "scaletest", "cluster", "up", "--name", name, "--nodes", "2000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "control plane is up" in process.stderr.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(name: str, number: signal.Signals) -> None:
    with _up_in_a_process(name) as process:
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == 130
    assert nothing_left(name)


def test_a_cluster_in_a_folder_of_the_users_is_found_and_goes_with_it_and_a_taken_port_is_no_matter(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: LocalCluster
) -> None:
    free, asked = component_processes.find_free_ports, []
    taken = sorted(port for _, _, port in listening(spare))

    def first_taken(count: int) -> list[int]:
        asked.append(count)
        return taken[:count] if len(asked) == 1 else free(count)

    monkeypatch.setattr(component_processes, "find_free_ports", first_taken)
    place = tmp_path / "here"
    made = cluster_lifecycle.start_cluster(name, ClusterSettings(pools=(NodePool(nodes=0, gpus=0),)), folder=place)
    assert len(asked) == 2
    assert made.kubeconfig.parent == place == made.folder
    assert cluster_lifecycle.find_cluster(name) == made
    assert cluster_lifecycle.stop_cluster(name)
    assert not place.exists()
    assert nothing_left(name)


def test_a_kwokctl_of_the_users_brings_its_programs_and_cannot_lift_limits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = programs()
    for variable, program in KWOK_VARIABLES.items():
        if program in known.programs:
            monkeypatch.setenv(f"KWOK_{variable}_BINARY", str(known.programs[program]))
    monkeypatch.setenv("KWOK_DISABLE_QPS_LIMITS", "true")
    (tmp_path / "kwokctl").symlink_to(known.kwokctl)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = cluster_lifecycle.start_cluster(
        name, ClusterSettings(pools=(NodePool(nodes=1, gpus=8),)), provider="kwokctl"
    )
    assert made.provider == "kwokctl"
    command = " ".join(component_processes.find_processes(made.folder)["kube-apiserver"][0].cmdline())
    assert "inflight" not in command
    assert "fairness" not in command


def test_a_folder_with_something_in_it_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="the folder is not empty"):
        cluster_lifecycle.start_cluster(name, ClusterSettings(pools=SMALL), folder=tmp_path)
    assert (tmp_path / "thesis.txt").exists()
    assert nothing_left(name)


def _broken(folder: Path, name: str, script: str) -> Path:
    """The real programs, but one."""
    known = programs().programs
    if "etcd" not in known:
        pytest.skip("this kwokctl brings its own programs")
    folder.mkdir()
    for one, path in known.items():
        (folder / one).symlink_to(path)
    (folder / name).unlink()
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder


VERSION = '[ "$1" = --version ] && { echo "Kubernetes v1.36.3"; exit 0; }\n'


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (VERSION + "echo this machine is cursed >&2; exit 7", "this machine is cursed"),
        ("echo illegal instruction >&2; exit 7", "illegal instruction"),
    ],
)
def test_a_program_that_does_not_start_is_told_with_the_end_of_its_log(
    name: str, tmp_path: Path, script: str, told: str
) -> None:
    folder = _broken(tmp_path / "bin", "kube-scheduler", script)
    with pytest.raises(RunFailedError, match="the end of its log") as caught:
        cluster_lifecycle.start_cluster(name, ClusterSettings(pools=SMALL), programs=folder)
    assert told in str(caught.value)
    assert "kube-scheduler" in str(caught.value)
    assert nothing_left(name)


def test_a_program_that_hangs_is_given_up(name: str, tmp_path: Path) -> None:
    folder = _broken(
        tmp_path / "bin", "kube-scheduler", VERSION + "echo waiting for godot; while :; do sleep 0.1; done"
    )
    # Which part is told depends on how far the others have come by then.
    with pytest.raises(RunFailedError, match="the end of its log"):
        cluster_lifecycle.start_cluster(name, ClusterSettings(pools=SMALL), programs=folder, timeout_s=10)
    assert nothing_left(name)
