"""What a cluster may be asked for, and what is refused before anything starts."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record, component_processes
from workbench.scaletest.local_cluster.cluster_record import (
    ClientLimit,
    ClusterPart,
    ClusterRecord,
    ClusterSettings,
    NodePool,
    check_api_arguments,
    check_client_limits,
    check_cluster_name,
    parse_api_arguments,
    parse_client_limits,
    parse_pools,
)

HOSTILE = ["", "../x", "a b", "A", "-a", "a-", "a\n", "a\x00", "ä", "a" * 41, "$(id)"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_be_anything_else_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a cluster name"):
        check_cluster_name(name)


@pytest.mark.parametrize("name", ["a", "local", "test-1", "9", "a" * 40])
def test_plain_names_are_taken(name: str) -> None:
    assert check_cluster_name(name) == name


def test_two_kinds_of_nodes_are_pairs_of_options() -> None:
    assert parse_pools([3, 2], [4, 0]) == (NodePool(nodes=3, gpus=4), NodePool(nodes=2, gpus=0))


@pytest.mark.parametrize(
    ("nodes", "gpus", "what"),
    [
        ([1, 2], [8], "differ in number"),
        ([-1], [8], "out of range"),
        ([20_001], [8], "out of range"),
        ([1], [65], "out of range"),
        ([15_000, 15_000], [8, 8], "too many nodes"),
    ],
)
def test_nodes_that_cannot_be_are_refused(nodes: list[int], gpus: list[int], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_pools(nodes, gpus)


@pytest.mark.parametrize(("models", "what"), [(["T4"], "differ in number"), (["T4", "H900"], "unknown GPU model")])
def test_models_of_gpus_that_cannot_be_are_refused(models: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_pools([1, 2], [4, 8], models)


def test_a_limit_without_a_burst_gets_twice_its_rate() -> None:
    assert parse_client_limits(["kube-scheduler=2.5", "controller-manager=200:400"]) == {
        "kube-scheduler": ClientLimit(qps=2.5, burst=5),
        "kube-controller-manager": ClientLimit(qps=200, burst=400),
    }


@pytest.mark.parametrize(
    "text", ["scheduler", "scheduler=", "scheduler=0", "scheduler=-1", "scheduler=1:0", "scheduler=1:00", "=1", "a=nan"]
)
def test_a_limit_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a client limit"):
        parse_client_limits([text])


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver", "kai-binder", "nobody"])
def test_a_component_without_such_a_limit_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no component with a client limit") as caught:
        check_client_limits(ClusterSettings(client_limits={name: ClientLimit(qps=1, burst=1)}))
    assert "kube-scheduler" in str(caught.value)


def test_a_component_of_kai_has_a_limit_where_kai_runs() -> None:
    limits = {"kai-binder": ClientLimit(qps=1, burst=1)}
    check_client_limits(ClusterSettings(client_limits=limits, scheduler="kai"))


def test_further_arguments_are_keys_and_values() -> None:
    assert parse_api_arguments(["--max-requests-inflight=4", "v=2"]) == {"max-requests-inflight": "4", "v": "2"}


@pytest.mark.parametrize("text", ["x", "=1", "A=1", "a b=1", "a=\x07", "a=" + "x" * 401])
def test_an_argument_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an argument"):
        parse_api_arguments([text])


@pytest.mark.parametrize(
    "key", ["bind-address", "secure-port", "etcd-servers", "tls-cert-file", "authorization-mode", "audit-log-path"]
)
def test_an_argument_that_would_open_the_cluster_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="set by the workbench"):
        check_api_arguments({key: "0.0.0.0"})


def _record(folder: Path) -> ClusterRecord:
    settings = ClusterSettings(pools=(NodePool(nodes=1, gpus=8),))
    part = ClusterPart(name="etcd", command=("etcd",), health="http://x")
    return ClusterRecord(name="one", state="up", folder=folder, settings=settings, provider="folder", parts=(part,))


def test_a_record_is_read_as_it_was_written_and_private(cache: Path) -> None:
    kept = _record(cluster_record.find_cluster_folder("one"))
    cluster_record.write_record(kept)
    assert cluster_record.read_record("one") == kept
    assert cluster_record.list_cluster_names() == ["one"]
    assert (cluster_record.find_cluster_folder("one") / cluster_record.RECORD_FILE).stat().st_mode & 0o777 == 0o600


def test_no_record_is_no_cluster(cache: Path) -> None:
    assert cluster_record.read_record("one") is None
    with pytest.raises(ConfigError, match="no such local cluster") as caught:
        cluster_lifecycle.find_cluster("one")
    assert "workbench scaletest cluster up --name one" in str(caught.value)


def test_a_record_that_is_none_is_told_and_can_be_taken_down(cache: Path) -> None:
    home = cluster_record.find_cluster_folder("one")
    home.mkdir(parents=True)
    (home / cluster_record.RECORD_FILE).write_text('{"format_version": 9}')
    with pytest.raises(ConfigError, match="not the record of a cluster"):
        cluster_lifecycle.find_cluster("one")
    assert cluster_lifecycle.stop_cluster("one")
    assert not home.exists()
    assert not cluster_lifecycle.stop_cluster("one")


def test_a_cluster_whose_processes_are_gone_is_not_found(cache: Path) -> None:
    cluster_record.write_record(_record(cluster_record.find_cluster_folder("one")))
    with pytest.raises(ConfigError, match="components of the local cluster are not running") as caught:
        cluster_lifecycle.find_cluster("one")
    assert "etcd" in str(caught.value)


def test_down_ends_what_runs_from_its_folder_and_nothing_else(cache: Path, tmp_path: Path) -> None:
    home, other = cluster_record.find_cluster_folder("one"), cluster_record.find_cluster_folder("two")
    for place in (home, other):
        place.mkdir(parents=True)
        (place / "sleeper").symlink_to(shutil.which("sleep") or "/bin/sleep")
        component_processes.start_component(place.absolute(), [str(place / "sleeper"), "600"], tmp_path / "log")
    # A shell starts it, and is seen under its own name until it has become the component.
    deadline = time.monotonic() + 60
    while "sleeper" not in component_processes.find_processes(other) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cluster_lifecycle.stop_cluster("one")
    assert not home.exists()
    assert component_processes.find_processes(home) == {}
    assert "sleeper" in component_processes.find_processes(other)
    assert cluster_lifecycle.stop_cluster("two")


def test_a_record_cannot_make_us_remove_a_folder_that_is_not_a_clusters(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    cluster_record.write_record(_record(precious))
    assert cluster_lifecycle.stop_cluster("one")
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_a_second_holder_waits_for_the_first_and_leaves_no_file(cache: Path) -> None:
    entered, order = threading.Event(), []

    def second() -> None:
        entered.set()
        with cluster_record.lock_cluster("one"):
            order.append("second")

    with cluster_record.lock_cluster("one"):
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(60)
        with pytest.raises(RunFailedError, match="another process"), cluster_record.lock_cluster("one", timeout_s=0.2):
            raise AssertionError("it is held")
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
    assert list(cluster_record.find_clusters_folder().iterdir()) == []


def test_a_hostile_name_touches_nothing(cache: Path) -> None:
    for ask in (cluster_lifecycle.start_cluster, cluster_lifecycle.find_cluster, cluster_lifecycle.stop_cluster):
        with pytest.raises(ConfigError, match="not a cluster name"):
            ask("../x")
    assert not cache.exists()
