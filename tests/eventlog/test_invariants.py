"""The books of event logs balance on every sample, and each finds its own fault."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.core.books import build_books, describe_broken_books
from workbench.eventlog.invariants import (
    ATTEMPTS,
    OUTCOMES,
    RUN_TIME,
    SLOT_TIME,
    SLOTS,
    WALL,
    list_log_books,
    read_log_books,
)
from workbench.eventlog.reader import EventLogFacts, read_event_logs, write_tables
from workbench.eventlog.wall_time import account_wall_time

LOGS = SAMPLES / "eventlogs"


@lru_cache(maxsize=1)
def sample() -> EventLogFacts:
    return read_event_logs(LOGS / "tpch_sf0.1.zstd")


def broken(facts: EventLogFacts) -> list[str]:
    start_ms, end_ms = facts.applications.select("start_time_ms", "end_time_ms").row(0)
    books = build_books(list_log_books(facts, account_wall_time(facts, start_ms, end_ms), start_ms, end_ms))
    return books.filter(~pl.col("holds"))["book"].to_list()


@pytest.mark.parametrize(
    ("name", "n_books"),
    # A killed application has no end, so that only its tasks are accounted for.
    [("tpch_sf0.1.zstd", 6), ("failing.zstd", 6), ("rolled", 6), ("small", 7 * 6), ("killed", 3)],
)
def test_the_books_of_every_sample_balance(name: str, n_books: int, tmp_path: Path) -> None:
    write_tables([LOGS / name], tmp_path, jobs=1)
    books = read_log_books(tmp_path)
    assert describe_broken_books(books) == ()
    assert books["holds"].to_list() == [True] * n_books


@pytest.mark.parametrize(
    ("table", "change", "book"),
    [
        ("logs", pl.col("n_tasks_ended") - 1, ATTEMPTS),
        ("stage_tasks", pl.col("n_failed") + 1, OUTCOMES),
        ("stage_tasks", pl.col("executor_run_time_ms") + 1, RUN_TIME),
        ("stage_tasks", pl.col("peak_tasks") + 9, SLOTS),
        ("stage_tasks", pl.col("task_duration_total_ms") * 3, SLOT_TIME),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_fault_makes_its_own_book_fail(table: str, change: pl.Expr, book: str) -> None:
    facts = sample()
    assert broken(facts) == []
    wrong = getattr(facts, table).with_columns(change)
    assert broken(replace(facts, **{table: wrong})) == [book]


def list_books(facts: EventLogFacts, more_waiting_s: float = 0.0) -> dict[str, bool | None]:
    start_ms, end_ms = facts.applications.select("start_time_ms", "end_time_ms").row(0)
    wall = account_wall_time(facts, start_ms, end_ms)
    wall = replace(wall, waiting_s=wall.waiting_s + more_waiting_s)
    return {book.book: book.holds for book in list_log_books(facts, wall, start_ms, end_ms)}


def test_parts_of_the_wall_time_that_do_not_add_up_make_only_its_book_fail() -> None:
    assert [name for name, holds in list_books(sample()).items() if not holds] == []
    assert [name for name, holds in list_books(sample(), 0.5).items() if not holds] == [WALL]


def test_lost_executors_leave_the_books_of_slots_unknown_and_the_others_as_they_are() -> None:
    facts = sample()
    lost = replace(facts, executors=facts.executors.clear())
    assert [name for name, holds in list_books(lost).items() if holds is None] == [SLOTS, SLOT_TIME]
    assert False not in list_books(lost).values()


def test_a_log_without_an_end_has_no_books_of_slots_and_wall_time() -> None:
    names = [book.book for book in list_log_books(sample(), None, None, None)]
    assert names == [ATTEMPTS, OUTCOMES, RUN_TIME]
