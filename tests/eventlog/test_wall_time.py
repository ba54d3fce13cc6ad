"""What each second of an application was, and when at least one task ran."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import read_event_logs
from workbench.eventlog.stage_statistics import FEW_TASKS, find_busy_time
from workbench.eventlog.wall_time import account_wall_time, merge_spans, subtract_spans, sum_spans

Spans = list[tuple[int, int]]
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda one: (one[0], one[0] + one[1])), max_size=9
)


def covered(spans: Spans) -> set[int]:
    return {second for first, last in spans for second in range(first, last)}


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(SPANS, SPANS)
def test_merged_and_subtracted_spans_cover_the_seconds_that_they_should(one: Spans, other: Spans) -> None:
    merged, rest = merge_spans(one), subtract_spans(merge_spans(one), merge_spans(other))
    assert covered(merged) == covered(one)
    assert sum_spans(merged) == len(covered(one))
    assert covered(rest) == covered(one) - covered(other)
    assert all(before[1] < after[0] for before, after in pairwise(merged))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 6000)), min_size=1, max_size=FEW_TASKS))
def test_few_and_many_tasks_have_the_same_busy_time(tasks: Spans) -> None:
    launches, durations = ([task[part] for task in tasks] for part in (0, 1))
    more = launches + [100_000] * FEW_TASKS, durations + [0] * FEW_TASKS
    few, many = find_busy_time(launches, durations), find_busy_time(*map(np.array, more))
    assert many.spans_ms == [*few.spans_ms, 100_000, 100_000]
    assert many.peak_tasks == few.peak_tasks


def stage(times: list[tuple[int, int]], submitted: int, completed: int) -> list[dict[str, Any]]:
    start, end = made.stage_submitted(), made.stage_completed()
    start["Stage Info"] |= {"Submission Time": submitted}
    end["Stage Info"] |= {"Submission Time": submitted, "Completion Time": completed}
    ends = [made.task_end(task_id=i, launch_ms=a, finish_ms=b) for i, (a, b) in enumerate(times)]
    return [start, *ends, end]


@pytest.mark.parametrize(
    ("tasks", "parts"),
    [
        # The application is of 1 to 9 s, the query of 2 to 8 s, its stage of 3 to 7 s.
        ([(3000, 7000)], (4.0, 0.0, 2.0, 2.0)),
        ([(5000, 7000)], (2.0, 2.0, 2.0, 2.0)),
        ([(3000, 4000), (6000, 7000)], (2.0, 2.0, 2.0, 2.0)),
        ([(3000, 5000), (5900, 7000)], (4.0, 0.0, 2.0, 2.0)),
        ([(3500, 7000)], (4.0, 0.0, 2.0, 2.0)),
    ],
    ids=["always at work", "executors come late", "executors are lost", "a gap below 1 s", "a start below 1 s"],
)
def test_each_second_is_running_waiting_driver_or_nothing(
    tmp_path: Path, tasks: list[tuple[int, int]], parts: tuple[float, ...]
) -> None:
    log = made.small(
        made.sql_start() | {"time": 2000},
        made.job_start(0, [0], {"spark.sql.execution.id": "0"}) | {"Submission Time": 2500},
        *stage(tasks, 3000, 7000),
        made.job_end() | {"Completion Time": 7500},
        made.sql_end() | {"time": 8000},
    )
    (tmp_path / "log").write_bytes(log)
    wall = account_wall_time(read_event_logs(tmp_path / "log"), 1000, 9000)
    assert tuple(seconds for _, seconds in wall.list_parts()) == parts
    assert sum(parts) == 8.0
