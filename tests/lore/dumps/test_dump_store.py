"""Files that Spark wrote become the batches of a dump's partitions."""

from __future__ import annotations

from typing import Any, cast

from workbench.lore.dumps.dump_store import SCRATCH_FOLDER, _move_parts


class Files:
    """What a store does, on a list of names."""

    def __init__(self, *names: str) -> None:
        self.names, self.moved, self.removed = names, dict[str, str](), list[str]()

    def list_names(self, folder: str) -> tuple[str, ...]:
        return self.names

    def make_folder(self, folder: str) -> None:
        assert folder.startswith("dump/partition-")

    def move(self, old: str, new: str) -> None:
        self.moved[old.removeprefix(f"dump/{SCRATCH_FOLDER}/")] = new.removeprefix("dump/")

    def remove(self, folder: str) -> None:
        self.removed.append(folder)


def moved(files: Files, keep: list[int]) -> dict[int, int]:
    return _move_parts(cast(Any, files), "dump", keep)


def test_batches_are_in_the_order_of_their_numbers_and_partitions_those_that_were_chosen() -> None:
    names = ("part-00000-ab-c1000.parquet", "part-00000-ab-c999.parquet", "part-00001-ab-c000.parquet", "_SUCCESS")
    files = Files(*names)
    assert moved(files, [4, 9]) == {4: 2, 9: 1}
    assert files.moved == {
        names[1]: "partition-4/batch-0.parquet",
        names[0]: "partition-4/batch-1.parquet",
        names[2]: "partition-9/batch-0.parquet",
    }
    assert files.removed == [f"dump/{SCRATCH_FOLDER}"]


def test_of_no_partitions_the_empty_file_is_left_out() -> None:
    files = Files("part-00000-ab-c000.parquet")
    assert moved(files, []) == {}
    assert files.moved == {}
