"""Dumps are found by their names alone; links, pipes and strange files lead nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.lore.dumps import dump_folder


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_a_folder_of_dumps_gives_them_by_number(tmp_path: Path) -> None:
    touch(tmp_path, "loreId-10/plan.meta", "loreId-9/plan.meta", ".loreId-8-abc/plan.meta", "notes.txt", "loreId-x/a")
    (tmp_path / "loreId-11").write_bytes(b"a file")
    assert [path.name for path in dump_folder.list_dump_folders(tmp_path)] == ["loreId-9", "loreId-10"]


@pytest.mark.parametrize("inside", ["plan.meta", "input-0/rdd.meta"])
def test_one_dump_is_taken_under_any_name(inside: str, tmp_path: Path) -> None:
    touch(tmp_path, f"copied/{inside}")
    assert dump_folder.list_dump_folders(tmp_path / "copied") == [tmp_path / "copied"]
    assert not dump_folder.is_dump_folder_name(tmp_path / "copied")


@pytest.mark.parametrize("path", ["s3a://bucket/dump", "hdfs:///dump", "file:/dump"])
def test_a_url_is_refused_with_what_to_do(path: str) -> None:
    with pytest.raises(InputError, match="folders of this machine"):
        dump_folder.list_dump_folders(Path(path))


def test_no_folder_a_file_and_a_folder_without_dumps_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "file", "other/thing")
    for path, message in (("nowhere", "no such folder"), ("file", "not a folder"), ("other", "no dump here")):
        with pytest.raises(InputError, match=message):
            dump_folder.list_dump_folders(tmp_path / path)


def test_inputs_partitions_and_batches_come_by_number(tmp_path: Path) -> None:
    touch(tmp_path, "input-10/rdd.meta", "input-9/rdd.meta", "output/partition-0/batch-0.parquet")
    touch(tmp_path, "input-9/partition-2/batch-0.parquet", "input-9/partition-2/partition.meta", "input-9/_temporary/x")
    found = dump_folder.read_layout(tmp_path)
    assert [one.name for one in found.inputs] == ["input-9", "input-10", "output"]
    partition = found.inputs[0].partitions[2]
    assert (sorted(partition.batches), partition.meta is not None, partition.strange) == ([0], True, [])
    assert found.inputs[2].meta is None


def test_links_pipes_and_other_names_are_no_batches(tmp_path: Path) -> None:
    touch(tmp_path, "real.parquet", "input-0/partition-0/batch-0.parquet.crc")
    folder = tmp_path / "input-0" / "partition-0"
    (folder / "batch-0.parquet").symlink_to(tmp_path / "real.parquet")
    os.mkfifo(folder / "batch-1.parquet")
    (tmp_path / "input-0" / "partition-1").symlink_to(folder)
    found = dump_folder.read_layout(tmp_path).inputs[0].partitions
    assert list(found) == [0]
    assert found[0].batches == {}
    assert found[0].strange == ["batch-0.parquet", "batch-0.parquet.crc", "batch-1.parquet"]


def test_more_files_than_can_be_inspected_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump_folder, "MAX_FILES", 3)
    touch(tmp_path, *(f"input-0/partition-{number}/batch-0.parquet" for number in range(3)))
    with pytest.raises(InputError, match="more files"):
        dump_folder.read_layout(tmp_path)
