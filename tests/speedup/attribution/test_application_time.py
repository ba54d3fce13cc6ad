"""When an application ends, and which logs disprove their own times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import eventlogs as made
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.attribution.application_profile import build_profile
from workbench.speedup.attribution.application_time import ApplicationTime, read_application_time

START_MS = 1000
YEARS_MS = 80_374_294_000


def work(*durations_ms: int, launch_ms: int = 2000) -> list[dict[str, Any]]:
    """One query with one stage of tasks that are launched together."""
    tasks = [
        made.task_end(0, 0, number, launch_ms=launch_ms, finish_ms=launch_ms + duration)
        for number, duration in enumerate(durations_ms)
    ]
    return [
        made.sql_start(0, made.plan("Range"), "a query"),
        made.job_start(0, [0], {"spark.sql.execution.id": "0"}),
        made.stage_submitted(0, tasks=len(tasks)),
        *tasks,
        made.stage_completed(0, tasks=len(tasks)),
        made.job_end(0),
        made.sql_end(0),
    ]


def read(path: Path, *events: dict[str, Any], end_ms: int | None, cores: int = 4) -> ApplicationTime:
    start = [made.log_start(), made.application_start(time_ms=START_MS), made.executor_added(cores=cores)]
    end = [made.application_end(end_ms)] if end_ms is not None else []
    path.write_bytes(made.dump(*start, made.environment(), *events, *end))
    return read_application_time(read_event_logs(path, jobs=1))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_log_with_an_end_lasts_until_it(log: Path) -> None:
    found = read(log, *work(3000, 2000), end_ms=9000)
    assert found == ApplicationTime(START_MS, 9000)
    assert found.wall_s == 8.0


def test_without_an_end_the_last_query_ends_it_and_no_executor(log: Path) -> None:
    removed = made.executor_removed() | {"Timestamp": YEARS_MS}
    assert read(log, *work(3000), removed, end_ms=None) == ApplicationTime(START_MS, 7100)


def test_without_any_work_and_end_the_duration_is_unknown(log: Path) -> None:
    found = read(log, made.executor_removed(), end_ms=None)
    assert (found.end_ms, found.wall_s, found.contradictions) == (None, None, ())


@pytest.mark.parametrize(
    ("events", "end_ms", "cores", "said"),
    [
        (work(3000), 500, 4, "the application ends 0.5 s before it starts"),
        (work(3000), 3000, 4, "work ends 4.1 s after the application"),
        (work(10, launch_ms=-5000), 9000, 4, "work starts 6.0 s before the application"),
        (work(60_000), 9000, 4, "a task takes 60.0 s, the application 8.0 s"),
        (work(*[7000] * 20), 9000, 4, "tasks take 140.0 s, all task slots together have 31.6 s"),
    ],
    ids=["ends first", "work after", "work before", "longest task", "slots"],
)
def test_figures_that_contradict_the_duration_are_named(
    log: Path, events: list[dict[str, Any]], end_ms: int, cores: int, said: str
) -> None:
    assert said in read(log, *events, end_ms=end_ms, cores=cores).contradictions


def test_a_start_before_spark_existed_contradicts_the_work(log: Path) -> None:
    now_ms = 1_790_000_000_000
    found = read(log, *made.shift_times(work(3000), now_ms), end_ms=now_ms + 9000)
    assert any("before Spark existed" in reason for reason in found.contradictions)


def test_metrics_of_tasks_contradict_times_that_were_cut_to_seconds(log: Path) -> None:
    metrics = {"Executor Run Time": 3000}
    tasks = [made.task_end(0, 0, i, launch_ms=2000, finish_ms=2003, metrics=metrics) for i in range(4)]
    found = read(log, *(work(3)[:3]), *tasks, *(work(3)[4:]), end_ms=9000)
    assert "tasks ran for 12.0 s by their metrics, for 0.0 s by their times" in found.contradictions


@pytest.mark.parametrize("since", range(1, 7))
def test_a_clock_that_jumps_within_a_job_contradicts_its_tasks(log: Path, since: int) -> None:
    """A query may plan for a day, or be fetched; its jobs begin with their stages, which end with their tasks."""
    day_ms, events = 86_400_000, work(1000)
    events[3]["Task Metrics"]["Executor Run Time"] = 1000
    found = read(log, *events[:since], *made.shift_times(events[since:], day_ms), end_ms=9000 + day_ms)
    assert bool(found.contradictions) == (since in (2, 3, 4, 5))


@pytest.mark.parametrize("stages_of", [(0, 0, 0), (0, 1, 2)], ids=["within a stage", "between stages"])
@pytest.mark.parametrize(("step_ms", "is_told"), [(30_000, True), (4_000, False)])
def test_a_clock_that_is_set_back_between_tasks_shows_in_the_order_of_the_log(
    log: Path, stages_of: tuple[int, ...], step_ms: int, is_told: bool
) -> None:
    """No later query or job starts: ends of tasks and of stages alone are written later with earlier times."""
    events = [made.job_start(0, sorted(set(stages_of)))]
    for number, stage in enumerate(stages_of):
        at_ms = 100_000 + 10_000 * number - (step_ms if number else 0)
        submitted = made.at(at_ms, made.stage_submitted(stage, tasks=1))
        completed = made.at(at_ms + 9000, made.stage_completed(stage, tasks=1))
        task = made.task_end(stage, 0, number, launch_ms=at_ms, finish_ms=at_ms + 9000)
        events += [submitted, task, completed] if len(set(stages_of)) > 1 else [task]
    found = read(log, *events, made.at(140_000, made.job_end(0)), end_ms=150_000)
    assert any("clock was set back" in reason for reason in found.contradictions) == is_told


def test_a_query_whose_plan_took_long_is_written_late_and_no_step_of_the_clock(log: Path) -> None:
    late = made.at(1000, made.sql_start(1, made.plan("Range"), "planned for long"))
    events = [*work(3000), late, made.at(41_000, made.sql_end(1)), made.at(42_000, made.job_start(1, [1]))]
    assert read(log, *events, made.at(43_000, made.job_end(1)), end_ms=50_000).contradictions == ()


def test_a_query_of_a_day_whose_tasks_work_contradicts_nothing(log: Path) -> None:
    day_ms, events = 86_400_000, work(1000)
    events[3] = made.task_end(launch_ms=2000, finish_ms=2000 + day_ms, metrics={"Executor Run Time": day_ms})
    found = read(log, *events[:4], *made.shift_times(events[4:], day_ms), end_ms=9000 + day_ms)
    assert found.contradictions == ()


def test_a_profile_of_contradicting_times_is_invalid_and_has_no_duration(log: Path) -> None:
    read(log, *work(60_000), end_ms=9000)
    profile = build_profile(read_event_logs(log, jobs=1))
    assert profile.verdict == "invalid"
    assert any("a task takes 60.0 s" in reason for reason in profile.reasons)
    assert profile.overview["wall_time_s"].to_list() == [None]


def test_short_tasks_that_fill_all_slots_contradict_nothing(log: Path) -> None:
    # A result on its way to the driver: the slot is free, the task is not done.
    assert read(log, *work(*[8000] * 4, launch_ms=1000), end_ms=9000).contradictions == ()
