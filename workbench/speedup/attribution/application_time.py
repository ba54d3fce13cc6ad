"""Start and end of an application, and figures of its log that contradict them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.attribution.session_settings import sum_slot_seconds

# The driver writes its own times and those of tasks; they differ by the delay of its event queue.
CLOCK_TOLERANCE_S = 1.0
# A task counts until the driver has its result, and its slot is free before that.
MAX_SLOT_USE = 1.05
# No Spark application started before: such a time stamp is none, or was edited. In epoch ms; 2009.
FIRST_SPARK_MS = 1_230_768_000_000
# A query may wait for the driver; a longer time without a stage, many times that of all tasks, is a clock that jumped.
MAX_WAIT_S, MAX_WAIT_SHARE = 6 * 3600.0, 10.0
# Columns that hold ends, and starts, of work. Executors are left out: they outlive the work, and clusters that are
# taken down or logs that are edited leave removals at any time.
WORK_ENDS = (
    ("sql_executions", "end_time_ms"),
    ("jobs", "completion_time_ms"),
    ("stages", "completion_time_ms"),
    ("stage_tasks", "last_finish_time_ms"),
)
WORK_STARTS = (
    ("sql_executions", "start_time_ms"),
    ("jobs", "submission_time_ms"),
    ("stages", "submission_time_ms"),
    ("stage_tasks", "first_launch_time_ms"),
)


@dataclass(frozen=True)
class ApplicationTime:
    """Start and end in epoch ms, null if unknown, and what in the log contradicts them.

    Without an end event, the end is that of the last SQL execution, job, stage or task.
    """

    start_ms: int | None
    end_ms: int | None
    contradictions: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float | None:
        """Time from start to end; null if either is unknown."""
        return None if self.start_ms is None or self.end_ms is None else (self.end_ms - self.start_ms) / 1e3


def read_application_time(facts: EventLogFacts, *, log_id: int | None = None) -> ApplicationTime:
    """Start and end of the application of a log.

    `log_id`: Log to read; null: the first.

    Returns: With `contradictions`, the wall time must not be used: its end lies before its start, work lies outside
    of it, a task is longer, the tasks need more slots than there were, their metrics more time than the tasks had, or
    a query waits for hours without a stage.
    """
    log_facts = facts.select_log(facts.logs["log_id"][0] if log_id is None else log_id)
    application = log_facts.applications.row(0, named=True)
    start_ms: int | None = application["start_time_ms"]
    last_work_ms = find_extreme_ms(log_facts, WORK_ENDS, latest=True)
    end_ms: int | None = application["end_time_ms"]
    if end_ms is None:
        end_ms = last_work_ms
    if start_ms is None or end_ms is None:
        return ApplicationTime(start_ms, end_ms)
    return ApplicationTime(start_ms, end_ms, tuple(_list_contradictions(log_facts, start_ms, end_ms, last_work_ms)))


def find_extreme_ms(facts: EventLogFacts, columns: tuple[tuple[str, str], ...], *, latest: bool) -> int | None:
    """Latest or earliest of the times in columns of tables; null if none is known."""
    times: list[Any] = []
    for table, column in columns:
        values = getattr(facts, table)[column]
        times.append(values.max() if latest else values.min())
    times_ms = [int(time) for time in times if time is not None]
    return (max(times_ms) if latest else min(times_ms)) if times_ms else None


def _list_contradictions(facts: EventLogFacts, start_ms: int, end_ms: int, last_work_ms: int | None) -> list[str]:
    wall_s = (end_ms - start_ms) / 1e3
    if wall_s < 0:
        return [f"the application ends {-wall_s:,.1f} s before it starts"]
    contradictions = []
    first_work_ms = find_extreme_ms(facts, WORK_STARTS, latest=False)
    if first_work_ms is not None and start_ms < FIRST_SPARK_MS <= first_work_ms:
        contradictions.append(
            f"the application starts {(first_work_ms - start_ms) / 1e3:,.1f} s before its work, before Spark existed"
        )
    if first_work_ms is not None and (early_s := (start_ms - first_work_ms) / 1e3) > CLOCK_TOLERANCE_S:
        contradictions.append(f"work starts {early_s:,.1f} s before the application")
    if last_work_ms is not None and (late_s := (last_work_ms - end_ms) / 1e3) > CLOCK_TOLERANCE_S:
        contradictions.append(f"work ends {late_s:,.1f} s after the application")
    longest_ms, total_ms, run_ms = facts.stage_tasks.select(
        pl.col("task_duration_max_ms").max(),
        total=pl.col("task_duration_total_ms").sum(),
        run=pl.col("executor_run_time_ms").sum(),
    ).row(0)
    if run_ms / 1e3 > MAX_SLOT_USE * total_ms / 1e3 + CLOCK_TOLERANCE_S:
        contradictions.append(
            f"tasks ran for {run_ms / 1e3:,.1f} s by their metrics, for {total_ms / 1e3:,.1f} s by their times"
        )
    waiting_s = find_longest_wait(facts)
    if waiting_s > max(MAX_WAIT_S, MAX_WAIT_SHARE * run_ms / 1e3):
        contradictions.append(
            f"a query waits for {waiting_s:,.1f} s without a task at work: a clock jumped, or times were edited"
        )
    if (longest_s := (longest_ms or 0) / 1e3) > wall_s + CLOCK_TOLERANCE_S:
        contradictions.append(f"a task takes {longest_s:,.1f} s, the application {wall_s:,.1f} s")
    slot_s = sum_slot_seconds(facts, start_ms, end_ms, log_id=facts.logs["log_id"][0])
    if slot_s and total_ms and total_ms / 1e3 > MAX_SLOT_USE * slot_s + CLOCK_TOLERANCE_S:
        contradictions.append(f"tasks take {total_ms / 1e3:,.1f} s, all task slots together have {slot_s:,.1f} s")
    return contradictions


def find_longest_wait(facts: EventLogFacts) -> float:
    """Longest time, in s, that a query lasts while its tasks do nothing; 0 where none lasts for hours.

    Either no stage of the query runs, or one runs whose tasks took far less time by their own metrics than by their
    times.
    """
    queries = facts.sql_executions.filter(pl.col("duration_ms") > MAX_WAIT_S * 1e3)
    longest_ms = 0
    for sql_id, start_ms, end_ms in queries.select("sql_id", "start_time_ms", "end_time_ms").iter_rows():
        stages = facts.stages.filter(pl.col("sql_id") == sql_id)
        spans = stages.select("submission_time_ms", "completion_time_ms").drop_nulls().sort("submission_time_ms")
        reached_ms = start_ms
        for begin_ms, stop_ms in (*spans.iter_rows(), (end_ms, end_ms)):
            longest_ms = max(longest_ms, begin_ms - reached_ms)
            reached_ms = max(reached_ms, stop_ms)
        tasks = stages.join(facts.stage_tasks, on=["stage_id", "stage_attempt_id"])
        idle_ms = tasks.select((pl.col("task_duration_max_ms") - pl.col("executor_run_time_ms")).max()).item()
        longest_ms = max(longest_ms, idle_ms or 0)
    return longest_ms / 1e3
