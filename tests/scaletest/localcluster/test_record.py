"""What is kept of a cluster, one holder at a time, and taking away what is left of one."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from workbench.errors import ConfigError, RunFailedError
from workbench.scaletest.localcluster import cluster, processes, record
from workbench.scaletest.localcluster.record import Part, Record
from workbench.scaletest.localcluster.settings import Pool, Settings


def _record(name: str, folder: Path, **more: object) -> Record:
    return Record(
        name=name,
        state="up",
        folder=folder,
        settings=Settings(pools=(Pool(nodes=1, gpus=8),)),
        provider="folder",
        **more,  # type: ignore[arg-type]
    )


def test_a_record_is_read_as_it_was_written_and_private(cache: Path) -> None:
    kept = _record("one", record.home("one"), parts=(Part(name="etcd", command=("etcd",), health="http://x"),))
    record.write(kept)
    assert record.read("one") == kept
    assert record.names() == ["one"]
    assert (record.home("one") / record.FILE).stat().st_mode & 0o777 == 0o600


def test_no_record_is_no_cluster(cache: Path) -> None:
    assert record.read("one") is None
    with pytest.raises(ConfigError, match="no such local cluster") as caught:
        cluster.find("one")
    assert "workbench scaletest cluster up --name one" in str(caught.value)


def test_a_record_that_is_none_is_told_and_can_be_taken_down(cache: Path) -> None:
    home = record.home("one")
    home.mkdir(parents=True)
    (home / record.FILE).write_text('{"format_version": 9}')
    with pytest.raises(ConfigError, match="not the record of a cluster"):
        cluster.find("one")
    assert cluster.down("one")
    assert not home.exists()
    assert not cluster.down("one")


def test_a_cluster_whose_processes_are_gone_is_not_found(cache: Path) -> None:
    home = record.home("one")
    record.write(_record("one", home, parts=(Part(name="etcd", command=("etcd",), health="http://x"),)))
    with pytest.raises(ConfigError, match="parts of the local cluster are gone") as caught:
        cluster.find("one")
    assert "etcd" in str(caught.value)


def test_down_ends_what_runs_from_its_folder_and_nothing_else(cache: Path, tmp_path: Path) -> None:
    home, other = record.home("one"), record.home("two")
    for place in (home, other):
        place.mkdir(parents=True)
        (place / "sleeper").symlink_to(shutil.which("sleep") or "/bin/sleep")
        processes.start(place.absolute(), [str(place / "sleeper"), "600"], tmp_path / "log")
    assert cluster.down("one")
    assert not home.exists()
    assert processes.running(home) == {}
    assert "sleeper" in processes.running(other)
    assert cluster.down("two")


def test_a_record_cannot_make_us_remove_a_folder_that_is_not_a_clusters(cache: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    record.write(_record("one", precious))
    assert cluster.down("one")
    assert (precious / "thesis.txt").read_text() == "years of work"


def test_a_second_holder_waits_for_the_first_and_leaves_no_file(cache: Path) -> None:
    entered, order = threading.Event(), []

    def second() -> None:
        entered.set()
        with record.locked("one"):
            order.append("second")

    with record.locked("one"):
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(60)
        with pytest.raises(RunFailedError, match="another process"), record.locked("one", timeout_s=0.2):
            raise AssertionError("it is held")
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
    assert list(record.root().iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "", "A"])
def test_a_hostile_name_touches_nothing(cache: Path, name: str) -> None:
    for ask in (cluster.up, cluster.find, cluster.down):
        with pytest.raises(ConfigError, match="not a name for a cluster"):
            ask(name)
    assert not cache.exists()
