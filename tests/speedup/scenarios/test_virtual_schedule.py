"""Replays of small graphs whose times are known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from workbench.speedup.scenarios.task_graph import (
    END,
    QUERY,
    START,
    ExecutorLife,
    StageTasks,
    Step,
    estimate_first_ms,
    find_first_tasks,
)
from workbench.speedup.scenarios.virtual_schedule import replay_steps


def stage(number: int, times: Sequence[float], after: tuple[int, ...], *, delay: float = 0, first: float = 0) -> Step:
    tasks = StageTasks(number, 0, number, tuple(times), (-1,) * len(times), first)
    return Step("stage", "q", 0, after, delay, tasks)


def replay(stages: Sequence[Step], lives: Sequence[ExecutorLife]) -> float | None:
    """Wall time of stages between a start and an end."""
    steps = [Step(START, "", None, (), 0.0), *stages, Step(END, "", None, tuple(range(1, len(stages) + 1)), 0.0)]
    schedule = replay_steps(steps, lives)
    return None if schedule is None else schedule.wall_ms


def executors(*slots: int, added: float = 0.0) -> list[ExecutorLife]:
    return [ExecutorLife(added, count) for count in slots]


@pytest.mark.parametrize(
    ("lives", "wall"),
    [
        (executors(1), 100),
        (executors(2), 60),
        (executors(1, 1), 60),
        (executors(4), 40),
        (executors(2, added=500), 560),
        # The second executor comes when 10 and 20 are over and 30 has begun.
        ([ExecutorLife(0, 1), ExecutorLife(30, 1)], 70),
        # An executor that goes ends its task, and takes no other.
        ([ExecutorLife(0, 1), ExecutorLife(0, 1, removed_ms=5)], 80),
    ],
)
def test_tasks_take_the_slots_that_are_free(lives: list[ExecutorLife], wall: float) -> None:
    assert replay([stage(0, [10, 20, 30, 40], (0,))], lives) == wall


def test_work_without_executors_does_not_end() -> None:
    assert replay([stage(0, [10], (0,))], [ExecutorLife(0, 1, removed_ms=0)]) is None
    assert replay([stage(0, [10, 10], (0,))], []) is None


def test_a_stage_waits_for_what_it_reads_and_the_driver() -> None:
    chain = [stage(0, [10, 10], (0,)), stage(1, [5], (1,), delay=7)]
    assert replay(chain, executors(2)) == 22


def test_the_oldest_job_has_the_slots_first() -> None:
    both = [stage(0, [10] * 4, (0,)), stage(1, [10] * 2, (0,))]
    steps = [Step(START, "", None, (), 0.0), *both, Step(END, "", None, (1, 2), 0.0)]
    schedule = replay_steps(steps, executors(2))
    assert schedule is not None
    assert schedule.ends_ms == (0, 20, 30, 30)
    assert schedule.released == (-1, 0, 0, 2)


def test_the_first_task_on_each_executor_takes_longer() -> None:
    assert replay([stage(0, [10] * 4, (0,), first=100)], executors(1)) == 140
    assert replay([stage(0, [10] * 4, (0,), first=100)], executors(1, 1, 1, 1)) == 110
    # All slots of an executor begin cold.
    assert replay([stage(0, [10] * 4, (0,), first=100)], executors(2)) == 120


def test_what_a_first_task_takes_longer_is_told_from_the_others() -> None:
    first = find_first_tasks([0, 1, 0, 1, 0], 1)
    assert estimate_first_ms([500, 520, 100, 100, 100], [1] * 5, first) == 410
    # One with three times the rows would take three times as long anyway.
    assert estimate_first_ms([500, 520, 100, 100, 100], [3, 3, 1, 1, 1], first) == 210
    assert estimate_first_ms([90, 80, 100, 100, 100], [1] * 5, first) == 0
    assert estimate_first_ms([500, 520, 100], [1] * 3, {0, 1}) is None


def test_queries_are_steps_without_tasks() -> None:
    steps = [Step(START, "", None, (), 3.0), Step(QUERY, "q", 0, (0,), 4.0), Step(END, "", None, (1,), 5.0)]
    schedule = replay_steps(steps, [])
    assert schedule is not None
    assert schedule.wall_ms == 12
