"""The side of a shuffled join that could be broadcast: its size, and which side the join's type allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.advice.join_sides import list_small_sides

LEFT, RIGHT = 1000, 5000


def exchange(key: int, child: dict[str, Any]) -> dict[str, Any]:
    return made.plan("Exchange", children=[child], metrics={key: "data size"}, metric_type="size")


def list_sizes(tmp_path: Path, tree: dict[str, Any], sizes: dict[int, int]) -> list[int]:
    log = tmp_path / "log"
    log.write_bytes(
        made.small(
            made.sql_start(0, tree, "q"),
            made.job_start(0, [0], {"spark.sql.execution.id": "0"}),
            made.stage_submitted(0),
            made.task_end(0, 0, 0, updates=sizes),
            made.stage_completed(0),
            made.job_end(0),
            made.sql_end(0),
        )
    )
    return [side.size_bytes for side in list_small_sides(read_event_logs(log))]


def join(kind: str, *, left: dict[str, Any] | None = None) -> dict[str, Any]:
    sides = [
        made.plan("Sort", children=[left or exchange(10, made.plan("Scan a"))]),
        made.plan("Sort", children=[made.plan("AQEShuffleRead", children=[exchange(11, made.plan("Scan b"))])]),
    ]
    return made.plan("SortMergeJoin(skew=true)", f"SortMergeJoin [k#1], [k#2], {kind}", sides)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("Inner", [LEFT]),
        ("LeftOuter", [RIGHT]),
        ("LeftSemi", [RIGHT]),
        ("LeftAnti", [RIGHT]),
        ("RightOuter", [LEFT]),
        ("FullOuter", []),
    ],
)
def test_the_type_of_the_join_decides_which_side_it_may_be(kind: str, size: list[int], tmp_path: Path) -> None:
    assert list_sizes(tmp_path, join(kind), {10: LEFT, 11: RIGHT}) == size


def test_a_side_that_is_joined_before_is_not_a_side_of_one_exchange(tmp_path: Path) -> None:
    nested = made.plan(
        "BroadcastHashJoin", children=[exchange(10, made.plan("Scan a")), made.plan("BroadcastExchange")]
    )
    assert list_sizes(tmp_path, join("Inner", left=nested), {10: LEFT, 11: RIGHT}) == [RIGHT]


def test_a_join_without_sizes_is_left_out(tmp_path: Path) -> None:
    assert list_sizes(tmp_path, join("Inner"), {99: 1}) == []
