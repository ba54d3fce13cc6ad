"""Wall time of an application: what each second of it was, by tasks, stages, queries and jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.stage_statistics import MIN_GAP_MS

Spans = list[tuple[float, float]]
RUNNING, WAITING, DRIVER, NOTHING = "running", "waiting", "driver", "nothing"


@dataclass(frozen=True)
class WallTime:
    """Each second of an application is exactly one of these, in s.

    `running_s`: at least one task ran, or was to run within a second. `waiting_s`: a stage was open and no task ran for
    longer, as without executors.
    `driver_s`: a query or a job was open and no stage: planning, listing, commit, fetching by the client.
    `nothing_s`: the rest.
    """

    running_s: float
    waiting_s: float
    driver_s: float
    nothing_s: float

    def list_parts(self) -> list[tuple[str, float]]:
        """Names and times of the parts."""
        return [
            (RUNNING, self.running_s),
            (WAITING, self.waiting_s),
            (DRIVER, self.driver_s),
            (NOTHING, self.nothing_s),
        ]


def account_wall_time(facts: EventLogFacts, start_ms: int, end_ms: int) -> WallTime:
    """What the time between two instants of the log was. `facts`: Of one log."""
    spans = split_wall_time_spans(facts, start_ms, end_ms)
    waiting_s, driver_s, nothing_s = (sum_spans(spans[name]) / 1e3 for name in (WAITING, DRIVER, NOTHING))
    wall_s = max(0.0, (end_ms - start_ms) / 1e3)
    return WallTime(wall_s - waiting_s - driver_s - nothing_s, waiting_s, driver_s, nothing_s)


def split_wall_time_spans(facts: EventLogFacts, start_ms: int, end_ms: int) -> dict[str, Spans]:
    """The spans of each part of the wall time, in epoch ms; together they cover it. `facts`: Of one log."""
    running = merge_spans(clip_spans(list_running_spans(facts), start_ms, end_ms))
    stages = facts.stages.join(facts.stage_tasks, on=["stage_id", "stage_attempt_id"], how="left")
    open_stages = stages.select(
        pl.coalesce("submission_time_ms", "first_launch_time_ms"),
        pl.max_horizontal("completion_time_ms", pl.coalesce("last_finish_time_ms", "submission_time_ms")),
    )
    queries = facts.sql_executions.select("start_time_ms", "end_time_ms")
    jobs = facts.jobs.select("submission_time_ms", "completion_time_ms")
    with_stage, with_query = (
        merge_spans(clip_spans(spans, start_ms, end_ms))
        for spans in (
            [*running, *open_stages.iter_rows()],
            [*running, *open_stages.iter_rows(), *queries.iter_rows(), *jobs.iter_rows()],
        )
    )
    waiting = [(first, last) for first, last in subtract_spans(with_stage, running) if last - first >= MIN_GAP_MS]
    return {
        RUNNING: subtract_spans(with_stage, waiting),
        WAITING: waiting,
        DRIVER: subtract_spans(with_query, with_stage),
        NOTHING: subtract_spans(merge_spans([(start_ms, end_ms)]), with_query),
    }


def list_running_spans(facts: EventLogFacts) -> Spans:
    """When at least one task of a stage ran, in epoch ms, stage by stage."""
    spans: Spans = []
    rows = facts.stage_tasks.select("busy_spans_ms", "first_launch_time_ms", "last_finish_time_ms").iter_rows()
    for told, first, last in rows:
        spans += pair_spans(told) if told else [] if first is None else [(first, max(first, last))]
    return spans


def pair_spans(instants: list[int]) -> Spans:
    """Spans of starts and ends in turn."""
    return list(zip(instants[::2], instants[1::2], strict=True))


def clip_spans(spans: Iterable[tuple[float | None, float | None]], start: float, end: float) -> Spans:
    """Spans cut to two instants; one without an end lasts to the last of them, one without a start is left out."""
    return [(max(first, start), min(end if last is None else last, end)) for first, last in spans if first is not None]


def merge_spans(spans: Iterable[tuple[float, float]]) -> Spans:
    """Spans without overlap, in order; empty ones are dropped.

    >>> merge_spans([(3, 5), (0, 2), (1, 4), (7, 7)])
    [(0, 5)]
    """
    merged: Spans = []
    for first, last in sorted(spans):
        if last <= first:
            continue
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def subtract_spans(spans: Spans, others: Spans) -> Spans:
    """What of some spans none of the others covers; both without overlap, in order.

    >>> subtract_spans([(0, 10)], [(2, 3), (5, 20)])
    [(0, 2), (3, 5)]
    """
    rest: Spans = []
    at = 0
    for first, last in spans:
        while at < len(others) and others[at][1] <= first:
            at += 1
        reached, place = first, at
        while place < len(others) and others[place][0] < last:
            if others[place][0] > reached:
                rest.append((reached, others[place][0]))
            reached = max(reached, others[place][1])
            place += 1
        if reached < last:
            rest.append((reached, last))
    return rest


def sum_spans(spans: Spans) -> float:
    """Length of spans together."""
    return sum(last - first for first, last in spans)
