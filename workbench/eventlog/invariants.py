"""Books of an event log: attempts, outcomes, task slots and wall time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from workbench.core.books import AT_MOST, Book, build_books
from workbench.eventlog import tables
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.task_slots import TaskSlots
from workbench.eventlog.wall_time import WallTime, account_wall_time

ATTEMPTS, OUTCOMES, RUN_TIME, SLOTS, SLOT_TIME, WALL = (
    "attempts",
    "outcomes",
    "run time",
    "task slots",
    "slot time",
    "wall time",
)
RUN_TIME_ACCUMULATOR = "internal.metrics.executorRunTime"
# A task counts until the driver has its result, and its slot is free before that.
SLOT_DELAY_SHARE, SLOT_DELAY_S = 0.05, 1.0


def list_log_books(facts: EventLogFacts, wall: WallTime | None, start_ms: int | None, end_ms: int | None) -> list[Book]:
    """Books of the application of one log, whose time was from `start_ms` to `end_ms` (null: unknown)."""
    tasks = facts.stage_tasks
    n_tasks, n_succeeded, n_failed, n_killed = (
        int(tasks[name].sum()) for name in ("n_tasks", "n_succeeded", "n_failed", "n_killed")
    )
    log = facts.logs.row(0, named=True)
    books = [
        Book(
            ATTEMPTS,
            ("ends of tasks that the stages count", n_tasks + log["n_late_task_ends"]),
            ("tasks that ended, by their numbers", log["n_tasks_ended"]),
            "task times, rows and shares",
            "lines that are in the log twice, or stages that were closed too early",
        ),
        Book(
            OUTCOMES,
            ("tasks that succeeded, failed or were killed", n_succeeded + n_failed + n_killed),
            ("ends of tasks", n_tasks),
            "failures",
            "an unknown outcome",
        ),
        Book(RUN_TIME, *_sum_run_times(facts), "task times", "tasks that are counted twice or not at all", unit="s"),
    ]
    if wall is not None and start_ms is not None and end_ms is not None:
        slots = TaskSlots(facts, log["log_id"])
        books.append(_book_slots(facts, slots))
        books.append(
            Book(
                WALL,
                ("parts of the wall time", sum(seconds for _, seconds in wall.list_parts())),
                ("end minus start", (end_ms - start_ms) / 1e3),
                "waits, driver time and idle time",
                "a clock that was set",
                unit="s",
                tolerance=0.001,
            )
        )
        slot_s = slots.sum_slot_seconds(start_ms, end_ms)
        # Stages of another profile may have more slots on the same executors, so their share counts.
        stages = facts.join_stage_tasks()
        use = slots.measure_use(stages, start_ms, end_ms) if "executors" not in facts.completeness["kind"] else None
        slot_time = Book(
            SLOT_TIME,
            ("share of the slots' time that tasks took", use),
            ("all of it", 1.0),
            "slot use, wall time and predictions",
            "executors that the log lacks, or a clock that was set",
            AT_MOST,
            tolerance=SLOT_DELAY_SHARE + (SLOT_DELAY_S / slot_s if slot_s else 0.0),
        )
        books.append(slot_time)
    return books


def read_log_books(folder: Path) -> pl.DataFrame:
    """Table BOOKS of the logs whose tables `write_tables` wrote; of several logs, each book with its log's number."""
    kept = (
        tables.LOGS, tables.APPLICATIONS, tables.ENVIRONMENT, tables.EXECUTORS, tables.RESOURCES, tables.SQL_EXECUTIONS,
        tables.JOBS, tables.STAGES, tables.STAGE_TASKS, tables.COMPLETENESS,
    )  # fmt: skip
    frames = {table.name: table.read(folder) for table in kept}
    # Of the largest table a few rows count.
    accumulators = pl.scan_parquet(tables.ACCUMULATORS.path(folder)).filter(pl.col("name") == RUN_TIME_ACCUMULATOR)
    frames[tables.ACCUMULATORS.name] = accumulators.collect()
    empty = {table.name: table.frame([]) for table in tables.ALL_TABLES if table.name not in frames}
    facts = EventLogFacts(**frames, **empty)
    books: list[Book] = []
    for log_id in facts.logs["log_id"]:
        of_log = facts.select_log(log_id)
        start_ms = end_ms = None
        if of_log.applications.height:
            start_ms, end_ms = of_log.applications.select("start_time_ms", "end_time_ms").row(0)
        wall = None if start_ms is None or end_ms is None else account_wall_time(of_log, start_ms, end_ms)
        suffix = f" of log {log_id}" if facts.logs.height > 1 else ""
        books += [replace(book, book=book.book + suffix) for book in list_log_books(of_log, wall, start_ms, end_ms)]
    return build_books(books)


def _book_slots(facts: EventLogFacts, slots: TaskSlots) -> Book:
    """The stage whose tasks ran most beyond the slots of its profile on the executors that lived meanwhile."""
    stages = facts.join_stage_tasks()
    worst: tuple[int, str, int, int] | None = None
    known = "executors" not in facts.completeness["kind"] and bool(slots.executors)
    rows = stages.select("stage_id", "resource_profile_id", "peak_tasks", "first_launch_time_ms", "last_finish_time_ms")
    for stage_id, profile, peak, first, last in rows.iter_rows() if known else ():
        alive = [
            there
            for executor, there in slots.select_stage_executors(profile)
            if first is not None
            and (executor.added_ms is None or executor.added_ms <= last)
            and (executor.removed_ms is None or executor.removed_ms >= first)
        ]
        if peak is None or not alive or None in alive:
            continue
        n_slots = sum(count for count in alive if count is not None)
        if worst is None or peak - n_slots > worst[0]:
            worst = (peak - n_slots, f" of stage {stage_id}", peak, n_slots)
    _, name, peak_tasks, n_alive = worst or (0, "", None, None)
    return Book(
        SLOTS,
        (f"most tasks{name} at one time", peak_tasks),
        ("slots of its profile on the executors that lived", n_alive),
        "slot use, idle time and waits",
        "resources or executors that are missing from the log",
        AT_MOST,
    )


def _sum_run_times(facts: EventLogFacts) -> tuple[tuple[str, float], tuple[str, float]]:
    """Run time in s by task metrics and by accumulators, over stages for which the log has both.

    Where tasks failed they differ: Spark drops accumulators of tasks that end after their stage.
    """
    key = ["stage_id", "stage_attempt_id"]
    complete_stages = facts.stage_tasks.filter(
        pl.col("n_succeeded") == pl.col("n_with_metrics"), pl.col("n_tasks") == pl.col("n_succeeded")
    )
    internal = facts.accumulators.filter(pl.col("name") == RUN_TIME_ACCUMULATOR).select(*key, by_accumulator="total")
    # Stages whose tasks all ran for 0 ms, and logs without internal accumulators, have nothing to compare.
    both = complete_stages.join(internal, on=key)
    return (
        ("run time by task metrics", int(both["executor_run_time_ms"].sum()) / 1e3),
        ("run time by accumulators", int(both["by_accumulator"].sum()) / 1e3),
    )
