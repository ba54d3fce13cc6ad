"""Statistics of a stage: worked by hand, and equal to numpy's in every case."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.eventlog.listener_events import TaskEnd, TaskInfo
from workbench.eventlog.stage_statistics import (
    MAX_FAILURES_PER_STAGE,
    StageTasks,
    compact_values,
    summarize_samples,
    summarize_stage,
)

LOW, HIGH = -(2**63), 2**63 - 1


def of(*values: int) -> tuple[object, ...]:
    summary = summarize_samples([np.array(values, dtype=np.int64)])
    return tuple(getattr(summary, name)[0] for name in ("n", "min", "median", "p95", "max", "total"))


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
    samples = [np.array(values, dtype=np.int64) for values in ([3, 1], [], [9], [2, 8], [5, 5, 5])]
    summary = summarize_samples(samples)
    assert summary.n == [2, 0, 1, 2, 3]
    assert summary.max == [3, None, 9, 8, 5]
    assert summary.total == [4, 0, 9, 10, 15]
    assert summarize_samples([]).n == []


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.lists(st.integers(LOW, HIGH), max_size=12), max_size=6))
def test_statistics_equal_numpys_and_totals_are_exact(samples: list[list[int]]) -> None:
    summary = summarize_samples([np.array(sample, dtype=np.int64) for sample in samples])
    for position, sample in enumerate(samples):
        total = sum(sample)
        assert summary.total[position] == (total if abs(total) <= HIGH else None)
        if not sample:
            continue
        assert (summary.min[position], summary.max[position]) == (min(sample), max(sample))
        assert summary.median[position] == np.median(np.array(sample, dtype=np.float64))
        expected = np.percentile(np.array(sample, dtype=np.float64), 95)
        # Rounding is that of the larger end, where a gap spans all 64 bits.
        assert summary.p95[position] == pytest.approx(expected, rel=1e-12, abs=1e-12 * max(map(abs, sample)))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(LOW, HIGH), max_size=20))
def test_compact_values_are_the_same_values(values: list[int]) -> None:
    assert compact_values(array("q", values)).tolist() == values


@pytest.mark.parametrize("copies", [1, 9])
def test_compact_values_take_no_more_room_than_they_need(copies: int) -> None:
    kinds = {(-128, 127): "b", (128,): "h", (-(2**15), 2**15 - 1): "h", (2**15,): "i", (2**31,): "q", (): "q"}
    assert {values: compact_values(array("q", values * copies)).typecode for values in kinds} == kinds


def task(launch_ms: int = 100, finish_ms: int = 150, **info: bool) -> TaskEnd:
    return TaskEnd(0, TaskInfo(launch_ms, finish_ms, **info))


def test_outcomes_and_durations_of_tasks_are_counted_apart() -> None:
    tasks = StageTasks((0, 0))
    for ended in (task(), task(finish_ms=170, failed=True), task(finish_ms=130, killed=True, speculative=True)):
        tasks.add_task(ended)
    assert (tasks.ended, tasks.succeeded, tasks.failed, tasks.killed, tasks.speculative) == (3, 1, 1, 1, 1)
    assert tasks.failed_duration_ms == 100
    assert tasks.with_metrics == 0
    facts = summarize_stage(tasks)
    assert (facts.duration.min, facts.duration.median, facts.duration.total) == ([30], [50.0], [150])
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
