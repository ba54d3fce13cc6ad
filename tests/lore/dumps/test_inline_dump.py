"""Which attempt of a partition a dump is made of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.lore.dumps.dump_folder import PartitionPrint
from workbench.lore.dumps.inline_dump import OUTPUT_PLACE, TapRecord, parse_record, pick_records

PRINT = PartitionPrint(n_rows=1, hash_sum=2, hash_xor=3, ordered_sum=4)


def record(place: str, partition: int, attempt: int, **changed: Any) -> TapRecord:
    told = (
        {"print": PRINT}
        if place == OUTPUT_PLACE
        else {"files": (f"{place}-{partition}-{attempt}",), "batch_rows": (1,)}
    )
    return TapRecord(5, place, partition, attempt, exhausted=True, **(told | changed))


def task(partition: int, attempt: int, **changed: Any) -> list[TapRecord]:
    """What one attempt of a join's task reports."""
    return [record(place, partition, attempt, **changed) for place in ("input-0", "input-1", OUTPUT_PLACE)]


def attempts(records: list[TapRecord], *, one_to_one: bool = True) -> dict[str, dict[int, int]]:
    picked = pick_records(records, ["input-0", "input-1"], one_to_one=one_to_one)
    return {place: {number: one.attempt for number, one in found.items()} for place, found in picked.items()}


def test_a_record_is_read_as_the_hooks_write_it() -> None:
    line = {"tap": "loreId-12/output", "partition": 3, "attempt": 40, "stage": 2, "exhausted": True, "fault": None}
    line |= {"rows": 7, "hash_xor": -5, "hash_sum": str(-(2**70)), "ordered_sum": str(2**66)}
    found = parse_record(json.dumps(line))
    assert (found.lore_id, found.place, found.partition, found.attempt) == (12, OUTPUT_PLACE, 3, 40)
    assert found.print == PartitionPrint(n_rows=7, hash_sum=-(2**70), hash_xor=-5, ordered_sum=2**66)
    assert found.is_good


BROKEN = [record("input-0", 0, 2, fault="disk"), record("input-1", 0, 2), record(OUTPUT_PLACE, 0, 2)]
LOST = [record("input-0", 0, 3), record("input-1", 0, 3)]
# A range partitioning samples its child first; what is shuffled comes after.
TWICE = [*task(0, 1), *task(1, 2), *task(0, 3), *task(1, 4)]


@pytest.mark.parametrize(
    ("records", "inputs", "output"),
    [
        pytest.param(TWICE, {0: 3, 1: 4}, {0: 3, 1: 4}, id="the last attempt wins"),
        pytest.param([*task(0, 1), *task(0, 2, error_class="X")], {0: 1}, {0: 1}, id="a failed one gives way"),
        pytest.param([*task(0, 1), *BROKEN], {0: 1}, {0: 1}, id="a fault of one tap rules out the whole attempt"),
        pytest.param([*task(0, 1), *LOST], {0: 3}, {}, id="the output of another attempt is left out"),
    ],
)
def test_of_several_attempts_one_is_picked_for_inputs_and_output_alike(
    records: list[TapRecord], inputs: dict[int, int], output: dict[int, int]
) -> None:
    assert attempts(records) == {"input-0": inputs, "input-1": inputs, OUTPUT_PLACE: output}


def test_inputs_of_different_attempts_are_never_put_together_and_of_nothing_there_are_no_records() -> None:
    assert attempts([record("input-0", 0, 1), record("input-1", 0, 2)]) == {OUTPUT_PLACE: {}}
    assert pick_records([], ["input-0"], one_to_one=True) == {OUTPUT_PLACE: {}}


def test_a_failed_attempt_is_taken_where_there_is_no_other() -> None:
    picked = pick_records(task(0, 9, error_class="X"), ["input-0", "input-1"], one_to_one=True)
    assert picked["input-0"][0].attempt == 9
    assert not picked[OUTPUT_PLACE][0].is_good


def test_where_partitions_mix_each_place_is_taken_by_itself_and_no_output_where_something_ran_twice() -> None:
    # A union: partition 1 of its output is partition 0 of its second input.
    told = [record("input-0", 0, 1), record("input-1", 0, 2), record(OUTPUT_PLACE, 0, 1), record(OUTPUT_PLACE, 1, 2)]
    found = attempts(told, one_to_one=False)
    assert found == {"input-0": {0: 1}, "input-1": {0: 2}, OUTPUT_PLACE: {0: 1, 1: 2}}
    found = attempts([*told[:3], record("input-0", 0, 3)], one_to_one=False)
    assert (found["input-0"], found[OUTPUT_PLACE]) == ({0: 3}, {})


def test_a_broadcast_is_picked_without_regard_to_the_tasks_of_the_join() -> None:
    picked = pick_records([*task(0, 1), record("input-2", 0, 7)], ["input-0", "input-1"], one_to_one=True)
    assert picked["input-2"][0].attempt == 7


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_every_partition_that_was_computed_is_picked_once_and_whole(runs: list[tuple[int, bool]]) -> None:
    told = [
        one
        for attempt, (partition, good) in enumerate(runs)
        for one in task(partition, attempt, error_class=None if good else "X")
    ]
    found = attempts(told)
    assert found.get("input-0", {}) == found.get("input-1", {}) == found[OUTPUT_PLACE]
    assert set(found[OUTPUT_PLACE]) == {partition for partition, _ in runs}
    for partition, attempt in found[OUTPUT_PLACE].items():
        goods = [number for number, (where, good) in enumerate(runs) if where == partition and good]
        assert attempt == max(goods, default=max(n for n, (where, _) in enumerate(runs) if where == partition))
