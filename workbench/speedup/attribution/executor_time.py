"""Executors over the time of an application, and the hours that they were there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from workbench.core.books import describe_broken_books
from workbench.eventlog.invariants import SLOT_TIME, SLOTS
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.task_slots import TaskSlots
from workbench.speedup.attribution.application_time import ApplicationTime, read_session_settings
from workbench.speedup.tables import EXECUTOR_SHAPES, EXECUTOR_STEPS

MS_PER_H = 3.6e6


@dataclass(frozen=True)
class ExecutorTime:
    """Tables EXECUTOR_STEPS and EXECUTOR_SHAPES; hours are null where cores of an executor are not known."""

    steps: pl.DataFrame
    shapes: pl.DataFrame

    @property
    def executor_h(self) -> float:
        """Time of all executors."""
        return float(self.shapes["executor_h"].sum())

    @property
    def core_h(self) -> float | None:
        """Time of all their cores; null where those of one are not known."""
        return None if self.shapes["core_h"].null_count() else float(self.shapes["core_h"].sum())


_NO_EXECUTOR_TIME = ExecutorTime(EXECUTOR_STEPS.frame([]), EXECUTOR_SHAPES.frame([]))


def measure_executors(facts: EventLogFacts, time: ApplicationTime, books: pl.DataFrame) -> ExecutorTime:
    """Executors of one log; none where they, or the times, are not known. `books`: Table BOOKS."""
    is_known = "executors" not in facts.completeness["kind"] and not describe_broken_books(books, (SLOTS, SLOT_TIME))
    if time.start_ms is None or time.end_ms is None or time.contradictions or not is_known:
        return _NO_EXECUTOR_TIME
    log_id = facts.logs["log_id"][0]
    memory = read_session_settings(facts, log_id=log_id).executor_memory
    return measure_executor_time(TaskSlots(facts, log_id), memory, time.start_ms, time.end_ms)


def measure_executor_time(slots: TaskSlots, memory: str, start_ms: int, end_ms: int) -> ExecutorTime:
    """Executors of a log between two instants, each from its registration to its removal.

    `memory`: Of an executor of the settings' own resource profile, as text; those of others are not told.
    """
    moves: Counter[int] = Counter()
    cores: Counter[int] = Counter()
    hours: dict[tuple[int, int | None], list[float]] = {}
    for executor in slots.executors:
        first, last = executor.clip_life(start_ms, end_ms)
        for time_ms, sign in ((first, 1), (last, -1)):
            moves[time_ms] += sign
            cores[time_ms] += sign * (executor.cores or 0)
        hours.setdefault((executor.profile_id, executor.cores), []).append((last - first) / MS_PER_H)
    times = sorted({start_ms, end_ms, *moves})
    changes = pl.DataFrame(
        {
            "time_s": [(time_ms - start_ms) / 1e3 for time_ms in times],
            "n_executors": [moves[time_ms] for time_ms in times],
            "n_cores": [cores[time_ms] for time_ms in times],
        },
        schema=EXECUTOR_STEPS.schema(),
    ).with_columns(pl.col("n_executors", "n_cores").cum_sum())
    shapes = [
        {
            "resource_profile_id": profile,
            "executor_cores": its_cores,
            "executor_memory": memory if profile == 0 else None,
            "n_executors": len(lives),
            "executor_h": sum(lives),
            "core_h": None if its_cores is None else its_cores * sum(lives),
        }
        for (profile, its_cores), lives in sorted(hours.items(), key=lambda item: (item[0][0], item[0][1] or 0))
    ]
    # The last row is that of the end, when all are gone.
    return ExecutorTime(
        EXECUTOR_STEPS.check(changes.filter(pl.col("time_s") < pl.col("time_s").max())), EXECUTOR_SHAPES.frame(shapes)
    )
