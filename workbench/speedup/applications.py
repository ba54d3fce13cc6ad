"""What an application's time went to: SQL, streaming batches, jobs outside SQL; each instant counted once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from workbench.eventlog.reader import Facts
from workbench.tables import Column, Table

APPLICATIONS_MEASURED = Table(
    "applications_measured",
    "Applications, one row a log, with what their wall time went to; a log that cannot be used has the reason. "
    "SQL, streaming and outside never count an instant twice: the first that ran has it, in this order.",
    ("log",),
    (
        Column("log", "str", "Path or URL of the log: `session` in the tables of executions."),
        Column("app_id", "str", "Application id.", nullable=True),
        Column("app_name", "str", "Name.", nullable=True),
        Column("engine", "str", "spark, rapids or comet: the accelerator plugin that was on.", nullable=True),
        Column("spark_version", "str", "Spark's version.", nullable=True),
        Column("start_time_ms", "int", "Start, epoch.", "ms", nullable=True),
        Column("wall_s", "float", "From start to end, or to the last event of an incomplete log.", "s", nullable=True),
        Column("sql_wall_s", "float", "Of that, with a SQL execution at work, streaming apart.", "s", nullable=True),
        Column("streaming_s", "float", "Of that, with streaming batches alone at work.", "s", nullable=True),
        Column("outside_sql_s", "float", "Of that, with jobs outside SQL alone at work.", "s", nullable=True),
        Column("n_queries", "int", "SQL executions, streaming and inner ones apart.", nullable=True),
        Column("n_failed", "int", "Of those, failed.", nullable=True),
        Column("sha256", "str", "Digest of the log's content.", nullable=True),
        Column("status", "str", "complete, incomplete, damaged, duplicate, or unreadable."),
        Column("reason", "str", "What is wrong with it; null when complete.", nullable=True),
    ),
)
# Structured Streaming and DStreams describe the jobs of a batch so.
STREAMING = r"(?s)(id = [0-9a-f-]{36}.{1,20}runId = [0-9a-f-]{36}.{1,20}batch = |^Streaming job from )"
_STREAMING = re.compile(STREAMING)
Spans = list[tuple[float, float]]


def application(facts: Facts, log: str, sha256: str | None) -> dict[str, Any]:
    """The row of `APPLICATIONS_MEASURED` of the first log in `facts`."""
    log_row = facts.logs.row(0, named=True)
    of_log = pl.col("log_id") == log_row["log_id"]
    app = facts.applications.filter(of_log).row(0, named=True)
    start_ms, end_ms = app["start_time_ms"], app["end_time_ms"] or app["last_event_time_ms"]
    streaming = streaming_ids(facts)
    queries = facts.sql_executions.filter(of_log, ~pl.col("sql_id").is_in(streaming))
    roots = queries.filter(pl.col("root_sql_id").is_null() | (pl.col("root_sql_id") == pl.col("sql_id")))
    status, reason = _status(log_row, app)
    row = {
        "log": log,
        **{name: app[name] for name in ("app_id", "app_name", "engine", "spark_version", "start_time_ms")},
        "n_queries": roots.height,
        "n_failed": int((roots["status"] == "failed").sum()),
        "sha256": sha256,
        "status": status,
        "reason": reason,
    }
    if start_ms is None or end_ms is None or end_ms < start_ms:
        return row | dict.fromkeys(("wall_s", "sql_wall_s", "streaming_s", "outside_sql_s"))
    return row | {"wall_s": (end_ms - start_ms) / 1e3} | _times(facts, streaming, start_ms, end_ms)


def unreadable(log: str, reason: str) -> dict[str, Any]:
    """The row of a log of which nothing can be said."""
    blank = dict.fromkeys(APPLICATIONS_MEASURED.schema())
    return blank | {"log": log, "status": "unreadable", "reason": reason[:500]}


def missing_of(app: Mapping[str, Any]) -> str:
    """Which of an application's start and end its log does not hold; empty when it holds both."""
    return " and ".join(name for name in ("start", "end") if app[f"{name}_time_ms"] is None)


def streaming_ids(facts: Facts) -> list[int]:
    """SQL executions that are batches of a stream."""
    described = facts.sql_executions.filter(pl.col("description").fill_null("").str.contains(STREAMING))
    return described["sql_id"].to_list()


def _times(facts: Facts, streaming: list[int], start_ms: int, end_ms: int) -> dict[str, float]:
    of_stream = set(streaming)
    sql: Spans = []
    batches: Spans = []
    outside: Spans = []
    for sql_id, start, end in facts.sql_executions.select("sql_id", "start_time_ms", "end_time_ms").iter_rows():
        (batches if sql_id in of_stream else sql).append((start, end))
    jobs = facts.jobs.filter(pl.col("sql_id").is_null())
    for text, start, end in jobs.select("description", "submission_time_ms", "completion_time_ms").iter_rows():
        (batches if _STREAMING.search(text or "") else outside).append((start, end))
    sql, batches, outside = (_union(_clipped(spans, start_ms, end_ms)) for spans in (sql, batches, outside))
    busy = _union([*sql, *batches])
    sql_s, busy_s, every_s = _length(sql), _length(busy), _length(_union([*busy, *outside]))
    return {"sql_wall_s": sql_s, "streaming_s": busy_s - sql_s, "outside_sql_s": every_s - busy_s}


def _clipped(spans: Iterable[tuple[float | None, float | None]], start_ms: int, end_ms: int) -> Spans:
    """Within the application; what the log does not see end, ran to its end."""
    return [
        (max(start, start_ms), min(end_ms if end is None else end, end_ms)) for start, end in spans if start is not None
    ]


def _union(spans: Spans) -> Spans:
    found: Spans = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _length(spans: Spans) -> float:
    return sum(end - start for start, end in spans) / 1e3


def _status(log: dict[str, Any], app: dict[str, Any]) -> tuple[str, str | None]:
    if log["fault"]:
        return "damaged", str(log["fault"])
    if log["n_bad_lines"]:
        return "damaged", f"{log['n_bad_lines']:,} of {log['n_lines']:,} lines could not be read"
    if app["status"] != "complete":
        return "incomplete", f"the log does not hold the application's {missing_of(app)}"
    return "complete", None
