"""Statistics of a stage: worked by hand, and equal to numpy's in every case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.eventlog.column_slices import join_slices
from workbench.eventlog.listener_events import TaskEnd, TaskInfo, Update
from workbench.eventlog.stage_statistics import (
    MAX_FAILURES_PER_STAGE,
    Ints,
    StageTasks,
    Summaries,
    Summary,
    compact_samples,
    summarize_samples,
    summarize_stages,
)

LOW, HIGH = -(2**63), 2**63 - 1


def joined(samples: list[list[int]]) -> tuple[Ints, Ints]:
    """Samples as they are given: one after the other, and their sizes."""
    values = [value for sample in samples for value in sample]
    return np.array(values, dtype=np.int64), np.array([len(sample) for sample in samples], dtype=np.int64)


def of(*values: int) -> Summary:
    return summarize_samples(*joined([list(values)])).rows()[0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), (0, None, None, None, None, 0)),
        ((7,), (1, 7, 7.0, 7.0, 7, 7)),
        ((3, 1), (2, 1, 2.0, 2.9, 3, 4)),
        ((5, 1, 3), (3, 1, 3.0, 4.8, 5, 9)),
        ((4, 1, 3, 2), (4, 1, 2.5, 3.85, 4, 10)),
        ((-5, -1), (2, -5, -3.0, -1.2, -1, -6)),
        ((HIGH,), (1, HIGH, float(HIGH), float(HIGH), HIGH, HIGH)),
        ((HIGH, LOW), (2, LOW, 0.0, pytest.approx(0.9 * 2**63), HIGH, -1)),
    ],
)
def test_known_samples_give_known_answers(values: tuple[int, ...], expected: tuple[object, ...]) -> None:
    assert of(*values) == pytest.approx(expected, nan_ok=True)


def test_a_total_that_64_bits_cannot_hold_is_null() -> None:
    assert of(HIGH, 1)[-1] is None
    assert of(LOW, -1)[-1] is None
    assert of(HIGH, 1, -1)[-1] == HIGH


def test_several_samples_keep_their_order_whatever_their_sizes() -> None:
    summaries = summarize_samples(*joined([[3, 1], [], [9], [2, 8], [5, 5, 5]])).rows()
    assert [found[0] for found in summaries] == [2, 0, 1, 2, 3]
    assert [found[4] for found in summaries] == [3, None, 9, 8, 5]
    assert [found[5] for found in summaries] == [4, 0, 9, 10, 15]
    assert summarize_samples(*joined([])).rows() == []


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.integers(LOW, HIGH), max_size=12), max_size=6))
def test_statistics_equal_numpys_totals_are_exact_and_compact_values_are_the_same(samples: list[list[int]]) -> None:
    summaries, compact = summarize_samples(*joined(samples)).rows(), compact_samples(*joined(samples))
    assert [compact.sample(place).tolist() for place in range(len(samples))] == samples
    for (_, low, median, p95, high, found_total), sample in zip(summaries, samples, strict=True):
        total = sum(sample)
        assert found_total == (total if abs(total) <= HIGH else None)
        if not sample:
            continue
        assert (low, high) == (min(sample), max(sample))
        assert median == np.median(np.array(sample, dtype=np.float64))
        expected = np.percentile(np.array(sample, dtype=np.float64), 95)
        # Rounding is that of the larger end, where a gap spans all 64 bits.
        assert p95 == pytest.approx(expected, rel=1e-12, abs=1e-12 * max(map(abs, sample)))


def test_compact_values_take_no_more_room_than_they_need() -> None:
    samples = [[-128, 127], [128], [], [-(2**15), 2**15 - 1], [2**15], [2**31]]
    compact = compact_samples(*joined(samples))
    assert [compact.sample(place).itemsize for place in range(len(samples))] == [1, 2, 1, 2, 4, 8]


def updates(**values: int | None) -> list[Update]:
    return [Update(int(name[1:]), value) for name, value in values.items()]


@pytest.mark.parametrize("max_task_kinds", [1, 2, 256])
def test_updates_of_all_kinds_of_tasks_come_back_by_accumulator(
    max_task_kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.eventlog.stage_statistics.MAX_TASK_KINDS", max_task_kinds)
    tasks = StageTasks((0, 0), names={number: str(number) for number in range(1, 6)})
    given = [updates(a1=5, a2=6), updates(a2=7), updates(a1=8, a2=9), updates(a3=1, a1=2), updates(a2=None, a4=2**63)]
    for own in given:
        tasks.add_updates(tuple(update.id for update in own), own)
    facts = summarize_stages([StageTasks((1, 0)), tasks])[1]
    for stage in (facts, facts.copy()):
        numbers = join_slices([stage.accumulators]).numbers
        found = {i: sorted(stage.sample(place).tolist()) for place, i in enumerate(numbers["id"].tolist())}
        assert found == {1: [2, 5, 8], 2: [6, 7, 9], 3: [1], 4: [], 5: []}
        assert [summary[5] for summary in Summaries.of(numbers).rows()] == [15, 22, 1, 0, 0]
        assert numbers["not_integer"].tolist() == [0, 0, 0, 1, 0]


def test_an_accumulator_that_a_task_updates_twice_has_both_updates() -> None:
    tasks = StageTasks((0, 0), names={1: "x"})
    tasks.add_updates((1, 1), [Update(1, 3), Update(1, 4)])
    assert Summaries.of(summarize_stages([tasks])[0].accumulators.rows.numbers).rows() == [(2, 3, 3.5, 3.95, 4, 7)]


def test_accumulators_of_stages_that_were_summarized_apart_are_joined_in_the_order_of_the_stages() -> None:
    stages = [StageTasks((number, 0), names={number: f"name {number}", 9: "both"}) for number in range(3)]
    for number, tasks in enumerate(stages):
        tasks.add_updates((number, 9), [Update(number, 10 + number), Update(9, 20 + number)])
        tasks.values_at_end = {9: 90 + number}
    (first, second), (third,) = summarize_stages(stages[:2]), summarize_stages(stages[2:])
    rows = join_slices([facts.accumulators for facts in (third, first, second.copy())])
    assert rows.numbers["id"].tolist() == [2, 9, 0, 9, 1, 9]
    names = rows.coded["name"]
    assert [names.values[code] for code in names.codes] == ["name 2", "both", "name 0", "both", "name 1", "both"]
    assert rows.numbers["total"].tolist() == [12, 22, 10, 20, 11, 21]
    assert rows.numbers["has_end"].tolist() == [False, True] * 3
    assert rows.numbers["value_at_end"].tolist() == [0, 92, 0, 90, 0, 91]


def test_a_copy_of_a_stage_holds_nothing_of_the_others() -> None:
    stages = [StageTasks((number, 0), names={number: f"name {number}"}) for number in range(2)]
    for number, tasks in enumerate(stages):
        tasks.add_updates((number,), [Update(number, 10 + number)])
    copy = summarize_stages(stages)[1].copy()
    assert (copy.accumulators.first, copy.accumulators.count) == (0, 1)
    assert list(copy.accumulators.rows.coded["name"].values) == ["name 1"]
    assert copy.sample(0).tolist() == [11]
    assert sum(map(len, copy.samples.values)) == 1


def task(launch_ms: int = 100, finish_ms: int = 150, **info: bool) -> TaskEnd:
    return TaskEnd(0, TaskInfo(launch_ms, finish_ms, **info))


def test_outcomes_and_durations_of_tasks_are_counted_apart() -> None:
    tasks = StageTasks((0, 0))
    for ended in (task(), task(finish_ms=170, failed=True), task(finish_ms=130, killed=True, speculative=True)):
        tasks.add_task(ended)
    assert (tasks.ended, tasks.succeeded, tasks.failed, tasks.killed, tasks.speculative) == (3, 1, 1, 1, 1)
    assert tasks.failed_duration_ms == 100
    assert tasks.with_metrics == 0
    facts = summarize_stages([tasks])[0]
    assert facts.duration == (3, 30, 50.0, pytest.approx(68), 70, 150)
    assert tasks.ended == 3, "counts outlive the raw values"


def test_merging_two_parts_equals_one_whole() -> None:
    whole, first, second = (StageTasks((0, 0)) for _ in range(3))
    for number in range(6):
        ended = task(100 + number, 200 + 3 * number, failed=number == 4)
        whole.add_task(ended)
        (first if number < 2 else second).add_task(ended)
    first.merge_later(second)
    for name in ("failed", "totals", "durations_ms", "first_launch_ms", "last_finish_ms", "failed_duration_ms"):
        assert getattr(first, name) == getattr(whole, name), name
    empty = StageTasks((0, 0))
    empty.merge_later(StageTasks((0, 0)))
    assert empty.first_launch_ms is None


def test_a_stage_is_finished_when_no_further_task_can_end() -> None:
    tasks = StageTasks((0, 0), planned_tasks=2)
    tasks.add_task(task())
    assert not tasks.finished, "not completed"
    tasks.completed = True
    assert not tasks.finished, "one partition is open, and its start may have been dropped"
    tasks.add_task(task())
    assert tasks.finished
    tasks.started = 3
    assert not tasks.finished, "a copy is running"


def test_failures_are_kept_up_to_a_limit_when_parts_are_merged() -> None:
    first, second = StageTasks((0, 0)), StageTasks((0, 0))
    first.failures = second.failures = [(1, 2, "1", "x", "y")] * MAX_FAILURES_PER_STAGE
    first.merge_later(second)
    assert len(first.failures) == MAX_FAILURES_PER_STAGE
