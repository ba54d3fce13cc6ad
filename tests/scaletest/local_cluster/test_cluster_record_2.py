"""What is kept of a cluster, one holder at a time, and taking away what is left of one."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError, RunFailedError
from workbench.scaletest.local_cluster import cluster_lifecycle, cluster_record, component_processes
from workbench.scaletest.local_cluster.cluster_record import ClusterPart, ClusterRecord, ClusterSettings, NodePool


def _record(name: str, folder: Path, **more: object) -> ClusterRecord:
    return ClusterRecord(
        name=name,
        state="up",
        folder=folder,
        settings=ClusterSettings(pools=(NodePool(nodes=1, gpus=8),)),
        provider="folder",
        **more,  # type: ignore[arg-type]
    )


def test_a_record_is_read_as_it_was_written_and_private(cache: Path) -> None:
    kept = _record(
        "one",
        cluster_record.find_cluster_folder("one"),
        parts=(ClusterPart(name="etcd", command=("etcd",), health="http://x"),),
    )
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
    home = cluster_record.find_cluster_folder("one")
    cluster_record.write_record(
        _record("one", home, parts=(ClusterPart(name="etcd", command=("etcd",), health="http://x"),))
    )
    with pytest.raises(ConfigError, match="components of the local cluster are not running") as caught:
        cluster_lifecycle.find_cluster("one")
    assert "etcd" in str(caught.value)


def test_down_ends_what_runs_from_its_folder_and_nothing_else(cache: Path, tmp_path: Path) -> None:
    home, other = cluster_record.find_cluster_folder("one"), cluster_record.find_cluster_folder("two")
    for place in (home, other):
        place.mkdir(parents=True)
        (place / "sleeper").symlink_to(shutil.which("sleep") or "/bin/sleep")
        component_processes.start_component(place.absolute(), [str(place / "sleeper"), "600"], tmp_path / "log")
    assert cluster_lifecycle.stop_cluster("one")
    assert not home.exists()
    assert component_processes.find_processes(home) == {}
    assert "sleeper" in component_processes.find_processes(other)
    assert cluster_lifecycle.stop_cluster("two")


def test_a_record_cannot_make_us_remove_a_folder_that_is_not_a_clusters(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    cluster_record.write_record(_record("one", precious))
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


@pytest.mark.parametrize("name", ["../x", "", "A"])
def test_a_hostile_name_touches_nothing(cache: Path, name: str) -> None:
    for ask in (cluster_lifecycle.start_cluster, cluster_lifecycle.find_cluster, cluster_lifecycle.stop_cluster):
        with pytest.raises(ConfigError, match="not a cluster name"):
            ask(name)
    assert not cache.exists()
