"""What each second of an application was, and when at least one task ran."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.stage_statistics import FEW_TASKS, find_busy_time
from workbench.eventlog.wall_time import account_wall_time, merge_spans, subtract_spans, sum_spans

Span = tuple[int, int]
Spans = list[Span]
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda one: (one[0], one[0] + one[1])), max_size=9
)


def covered(spans: Iterable[tuple[float, float]]) -> set[int]:
    return {second for first, last in spans for second in range(int(first), int(last))}


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
    few, many = find_busy_time(launches, durations), find_busy_time(*more)
    assert many.spans_ms == [*few.spans_ms, 100_000, 100_000]
    assert many.peak_tasks == few.peak_tasks


def stage(times: Spans, submitted: int, completed: int) -> list[dict[str, Any]]:
    start, end = made.stage_submitted(), made.stage_completed()
    start["Stage Info"] |= {"Submission Time": submitted}
    end["Stage Info"] |= {"Submission Time": submitted, "Completion Time": completed}
    ends = [made.task_end(task_id=i, launch_ms=a, finish_ms=b) for i, (a, b) in enumerate(times)]
    return [start, *ends, end]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        # The application is of 1 to 9 s, the query of 2 to 8 s, its stage of 3 to 7 s.
        ([(3000, 7000)], (4.0, 0.0, 2.0, 2.0)),
        ([(5000, 7000)], (2.0, 2.0, 2.0, 2.0)),
        ([(3000, 4000), (6000, 7000)], (2.0, 2.0, 2.0, 2.0)),
        ([(3000, 5000), (5900, 7000)], (4.0, 0.0, 2.0, 2.0)),
        ([(3500, 7000)], (4.0, 0.0, 2.0, 2.0)),
        ([(3000, 4000), (5000, 7000)], (3.0, 1.0, 2.0, 2.0)),
        ([(3000, 6000), (4000, 5000), (5500, 7000)], (4.0, 0.0, 2.0, 2.0)),
    ],
    ids=[
        "always at work",
        "executors come late",
        "executors are lost",
        "a gap below 1 s",
        "a start below 1 s",
        "a gap of 1 s",
        "side by side",
    ],
)
def test_each_second_is_running_waiting_driver_or_nothing(
    tmp_path: Path, tasks: Spans, expected: tuple[float, ...]
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
    assert tuple(seconds for _, seconds in wall.list_parts()) == expected
    assert sum(expected) == 8.0


def read(folder: Path, *events: dict[str, Any]) -> EventLogFacts:
    (folder / "log").write_bytes(made.small(*events))
    return read_event_logs(folder / "log")


def parts(facts: EventLogFacts, start_ms: int = 1000, end_ms: int = 9000) -> tuple[float, ...]:
    return tuple(seconds for _, seconds in account_wall_time(facts, start_ms, end_ms).list_parts())


def test_an_application_without_queries_and_jobs_did_nothing(tmp_path: Path) -> None:
    assert parts(read(tmp_path)) == (0.0, 0.0, 0.0, 8.0)


def test_a_query_without_jobs_is_the_drivers_time(tmp_path: Path) -> None:
    events = (made.sql_start() | {"time": 2000}, made.sql_end() | {"time": 5000})
    assert parts(read(tmp_path, *events)) == (0.0, 0.0, 3.0, 5.0)


def test_a_query_without_an_end_lasts_to_the_end_of_the_application(tmp_path: Path) -> None:
    assert parts(read(tmp_path, made.sql_start() | {"time": 2000})) == (0.0, 0.0, 7.0, 1.0)


def test_a_job_outside_sql_is_the_drivers_time_before_and_behind_its_stages(tmp_path: Path) -> None:
    events = (made.job_start(0, [0]) | {"Submission Time": 2000}, *stage([(3000, 6000)], 3000, 6000))
    facts = read(tmp_path, *events, made.job_end() | {"Completion Time": 7000})
    assert parts(facts) == (3.0, 0.0, 2.0, 3.0)


def test_a_stage_of_one_query_does_not_wait_while_tasks_of_another_run(tmp_path: Path) -> None:
    other = stage([(2000, 6000)], 2000, 6000)
    for event in other:
        event.get("Stage Info", event)["Stage ID"] = 1
    facts = read(tmp_path, *stage([(5000, 8000)], 3000, 8000), *other)
    assert parts(facts) == (6.0, 0.0, 0.0, 2.0)


def test_only_the_time_between_two_instants_counts(tmp_path: Path) -> None:
    facts = read(tmp_path, *stage([(3000, 5000)], 2000, 7000))
    assert parts(facts, 4000, 6000) == (1.0, 1.0, 0.0, 0.0)
    assert parts(facts, 8000, 9000) == (0.0, 0.0, 0.0, 1.0)


SECONDS = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda one: (one[0], one[0] + one[1]))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(SECONDS, max_size=4), st.lists(st.tuples(SECONDS, st.lists(SECONDS, max_size=3)), max_size=3))
def test_the_parts_are_those_of_a_count_second_by_second(queries: Spans, stages: list[tuple[Span, Spans]]) -> None:
    events: list[dict[str, Any]] = []
    for number, (first, last) in enumerate(queries):
        start, end = made.sql_start(number) | {"time": 1000 * first}, made.sql_end(number) | {"time": 1000 * last}
        events += [start, end]
    running: set[int] = set()
    with_stage: set[int] = set()
    task_id = 0
    for number, ((first, last), tasks) in enumerate(stages):
        for event in stage([(1000 * a, 1000 * b) for a, b in tasks], 1000 * first, 1000 * last):
            event.get("Stage Info", event)["Stage ID"] = number
            if "Task Info" in event:
                event["Task Info"]["Task ID"] = task_id
                task_id += 1
            events.append(event)
        running |= covered(tasks)
        # A stage is open from its submission until its last task has ended.
        with_stage |= covered([(first, max([last, *(b for _, b in tasks)]))])
    with_stage |= running
    with TemporaryDirectory() as folder:
        found = parts(read(Path(folder), *events), 0, 60_000)
    driver = covered(queries) - with_stage
    counts = [len(running), len(with_stage - running), len(driver), 60 - len(with_stage) - len(driver)]
    assert found == pytest.approx(counts)
