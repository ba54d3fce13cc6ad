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

    Parameters
    ----------
    facts
        From `workbench.eventlog.reader.read_event_logs`.
    log_id
        Log to read; null: the first.

    Returns
    -------
    ApplicationTime
        With `contradictions`, the wall time must not be used: its end lies before its start, work lies outside of it,
        a task is longer, or the tasks need more slots than there were.
    """
    one = facts.select_log(facts.logs["log_id"][0] if log_id is None else log_id)
    application = one.applications.row(0, named=True)
    start_ms: int | None = application["start_time_ms"]
    last_work_ms = find_extreme_ms(one, WORK_ENDS, latest=True)
    end_ms: int | None = application["end_time_ms"]
    if end_ms is None:
        end_ms = last_work_ms
    if start_ms is None or end_ms is None:
        return ApplicationTime(start_ms, end_ms)
    return ApplicationTime(start_ms, end_ms, tuple(_list_contradictions(one, start_ms, end_ms, last_work_ms)))


def find_extreme_ms(facts: EventLogFacts, columns: tuple[tuple[str, str], ...], *, latest: bool) -> int | None:
    """Latest or earliest of the times in columns of tables; null if none is known."""
    times: list[Any] = []
    for table, column in columns:
        values = getattr(facts, table)[column]
        times.append(values.max() if latest else values.min())
    known = [int(time) for time in times if time is not None]
    return (max(known) if latest else min(known)) if known else None


def _list_contradictions(facts: EventLogFacts, start_ms: int, end_ms: int, last_work_ms: int | None) -> list[str]:
    wall_s = (end_ms - start_ms) / 1e3
    if wall_s < 0:
        return [f"the application ends {-wall_s:,.1f} s before it starts"]
    found = []
    first_work_ms = find_extreme_ms(facts, WORK_STARTS, latest=False)
    if first_work_ms is not None and (early_s := (start_ms - first_work_ms) / 1e3) > CLOCK_TOLERANCE_S:
        found.append(f"work starts {early_s:,.1f} s before the application")
    if last_work_ms is not None and (late_s := (last_work_ms - end_ms) / 1e3) > CLOCK_TOLERANCE_S:
        found.append(f"work ends {late_s:,.1f} s after the application")
    longest_ms, total_ms = facts.stage_tasks.select(
        pl.col("task_duration_max_ms").max(), total=pl.col("task_duration_total_ms").sum()
    ).row(0)
    if (longest_s := (longest_ms or 0) / 1e3) > wall_s + CLOCK_TOLERANCE_S:
        found.append(f"a task takes {longest_s:,.1f} s, the application {wall_s:,.1f} s")
    slot_s = sum_slot_seconds(facts, start_ms, end_ms, log_id=facts.logs["log_id"][0])
    if slot_s and total_ms and total_ms / 1e3 > MAX_SLOT_USE * slot_s + CLOCK_TOLERANCE_S:
        found.append(f"tasks take {total_ms / 1e3:,.1f} s, all task slots together have {slot_s:,.1f} s")
    return found
