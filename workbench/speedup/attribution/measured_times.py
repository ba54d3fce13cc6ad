"""Measured times of logs as tables: executions with their pieces, and applications."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.eventlog.completeness import describe_holes, select_harmful, select_touching
from workbench.eventlog.fold import CUT_OFF
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.attribution.application_time import ApplicationTime, read_application_time
from workbench.speedup.attribution.executions import (
    Execution,
    fingerprint_inputs,
    list_inner_ids,
    read_executions,
)
from workbench.speedup.attribution.time_pieces import TimePiece, booked_operator, estimate_work, split_wall_time
from workbench.speedup.tables import APPLICATIONS_MEASURED, EXECUTIONS, PIECES

COLD, FAILED = "cold: first run in its session", "failed"
LATER = "later run in its session: first runs are compared"
UNFINISHED = "no end event: timed until its last stage"
# Applications of these statuses have no time that can be used, or are counted elsewhere.
NOT_COUNTED = ("unreadable", "contradictory", "partial", "duplicate", "superseded")
# Holes that the row of an application tells in its own words, or that change none of its figures.
TOLD_ELSEWHERE = ("query end", "environment", "application start")
REPEATED_TASKS = "tasks failed or were killed"
NO_TIME = "took no time by its own stamps"
# Whether an execution counts.
COUNTS = pl.col("why_not").is_null()


# Descriptions that Structured Streaming and DStreams give to the jobs of a batch.
STREAMING_PATTERN = r"(?s)(id = [0-9a-f-]{36}.{1,20}runId = [0-9a-f-]{36}.{1,20}batch = |^Streaming job from )"
_STREAMING_REGEX = re.compile(STREAMING_PATTERN)
_BATCH = re.compile(r"(?s)id = ([0-9a-f-]{36}).{1,20}runId = ([0-9a-f-]{36}).{1,20}batch = (\w+)")
_IS_BATCH = pl.col("description").fill_null("").str.contains(STREAMING_PATTERN)
Spans = list[tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Measured:
    """`EXECUTIONS` and `PIECES` of any number of logs, under one or several labels."""

    executions: pl.DataFrame
    pieces: pl.DataFrame

    def select(self, *conditions: pl.Expr) -> Measured:
        """The executions that meet all conditions, with their pieces."""
        executions = self.executions.filter(*conditions)
        return Measured(executions, self.pieces.join(executions, on=["label", "session", "sql_id"], how="semi"))

    def exclude_queries(self, queries: Collection[str], reason: str) -> Measured:
        """The same with executions of these queries marked as not counting."""
        excluded = pl.col("query").is_in(sorted(queries)) & COUNTS
        reasons = pl.when(excluded).then(pl.lit(reason)).otherwise(pl.col("why_not"))
        return Measured(self.executions.with_columns(why_not=reasons), self.pieces)

    def select_first_runs(self) -> Measured:
        """The same with first runs counting instead of later ones."""
        reasons = pl.when(COUNTS).then(pl.lit(LATER)).when(pl.col("why_not") != COLD).then(pl.col("why_not"))
        return Measured(self.executions.with_columns(why_not=reasons), self.pieces)

    def include_first_runs(self) -> Measured:
        """The same with all executions counting except failed ones: in production, most runs are first runs."""
        reasons = pl.when(pl.col("why_not") == FAILED).then(pl.col("why_not"))
        return Measured(self.executions.with_columns(why_not=reasons), self.pieces)


def measure_log_times(facts: EventLogFacts, label: str, session: str, *, log_id: int = 0) -> Measured:
    """Wall time of each execution of a log, and its pieces.

    Returns: Executions, including failed ones, those without an end event and those with holes (marked). Inner
    executions (the query of a command that creates or caches a table) are part of the outer one. Executions without a
    stage are left out: they measure the driver.
    """
    rows: list[dict[str, Any]] = []
    cut: list[dict[str, Any]] = []
    holes = select_touching(facts.completeness).filter(pl.col("log_id") == log_id)
    for execution in read_executions(facts):
        if execution.log_id != log_id or not execution.stages:
            continue
        key = {"label": label, "session": session, "sql_id": execution.sql_id}
        execution_holes = holes.filter(pl.col("sql_id").is_in([execution.sql_id, *execution.inner_ids]))
        rows.append(key | _build_execution_row(execution, describe_holes(execution_holes)))
        cut += [
            key | {"piece": number} | _build_piece_row(execution, piece)
            for number, piece in enumerate(split_wall_time(execution))
        ]
    return Measured(EXECUTIONS.frame(rows), PIECES.frame(cut))


def concat_measured_logs(parts: Iterable[Measured]) -> Measured:
    """The tables of several logs together."""
    logs = list(parts)
    return Measured(
        pl.concat([EXECUTIONS.frame([]), *(part.executions for part in logs)]),
        pl.concat([PIECES.frame([]), *(part.pieces for part in logs)]),
    )


def _build_execution_row(execution: Execution, holes: list[str]) -> dict[str, Any]:
    failed_tasks = sum(stage.n_failed for stage in execution.stages)
    cold = execution.number == 0
    why_not: str | None
    if execution.status == "running":
        why_not = UNFINISHED
    elif execution.status != "succeeded":
        why_not = FAILED
    elif holes:
        why_not = "; ".join(holes)
    elif not execution.wall_s > 0:
        why_not = NO_TIME
    elif cold:
        why_not = COLD
    else:
        why_not = REPEATED_TASKS if failed_tasks else None
    return {
        "query": execution.query,
        "number": execution.number,
        "fingerprint": fingerprint_inputs(execution),
        "wall_s": execution.wall_s,
        "task_s": sum(stage.task_s for stage in execution.stages),
        "n_stages": len(execution.stages),
        "n_failed_tasks": failed_tasks,
        "cold": cold,
        "why_not": why_not,
    }


def _build_piece_row(execution: Execution, piece: TimePiece) -> dict[str, Any]:
    nodes = [execution.nodes[node] for node in piece.node_ids]
    return {
        "stage_id": piece.stage_id,
        "term": piece.term,
        "basis": piece.basis,
        "operators": [booked_operator(execution, node) for node in nodes],
        "node_ids": list(piece.node_ids),
        "accelerated": [node.operator.accelerated for node in nodes],
        "work": [estimate_work(execution, node) for node in nodes],
        "task_s": piece.task_s,
        "wall_s": piece.wall_s,
    }


def build_application_row(facts: EventLogFacts, log: str, sha256: str | None) -> dict[str, Any]:
    """The row of `APPLICATIONS_MEASURED` of the first log in `facts`."""
    log_row = facts.logs.row(0, named=True)
    of_log = pl.col("log_id") == log_row["log_id"]
    app = facts.applications.filter(of_log).row(0, named=True)
    time = read_application_time(facts, log_id=log_row["log_id"])
    last_work = _find_last_stage_ends(facts)
    streaming = list_streaming_ids(facts)
    queries = facts.sql_executions.filter(of_log, ~pl.col("sql_id").is_in(streaming))
    roots = queries.filter(~pl.col("sql_id").is_in(list_inner_ids(facts, log_row["log_id"])))
    holes = facts.completeness.filter(of_log)
    n_torn = facts.bad_lines.filter(of_log, pl.col("reason") == CUT_OFF).height
    status, reason = _application_status(log_row, app, time, holes, n_torn)
    n_unfinished = roots.filter(pl.col("status") == "running").join(last_work, on="sql_id").height
    if n_unfinished:
        reason = "; ".join(
            filter(None, [reason, f"{n_unfinished} query(s) without an end: timed until their last stage"])
        )
    if status != "partial":
        reason = (
            "; ".join(filter(None, [reason, *describe_holes(holes.filter(~pl.col("kind").is_in(TOLD_ELSEWHERE)))]))
            or None
        )
    names = ("app_id", "attempt_id", "app_name", "engine", "spark_version", "start_time_ms")
    row = {
        "log": log,
        **{name: app[name] for name in names},
        "n_queries": roots.height,
        "n_failed": int((roots["status"] == "failed").sum()),
        "n_streaming_batches": _count_streaming_batches(facts),
        "sha256": sha256,
        "status": status,
        "reason": reason,
    }
    if time.start_ms is None or time.end_ms is None or time.contradictions:
        return row | dict.fromkeys(("wall_s", "sql_wall_s", "streaming_s", "outside_sql_s"))
    return (
        row
        | {"wall_s": time.wall_s}
        | _measure_application_times(facts, streaming, last_work, time.start_ms, time.end_ms)
    )


def build_unreadable_row(log: str, reason: str) -> dict[str, Any]:
    """The row of `APPLICATIONS_MEASURED` of a log that cannot be read."""
    blank = dict.fromkeys(APPLICATIONS_MEASURED.schema())
    return blank | {"log": log, "status": "unreadable", "reason": reason[:500]}


def describe_missing_times(app: Mapping[str, Any]) -> str:
    """ "start", "end" or both, whichever the application's log does not hold; empty if it holds both."""
    return " and ".join(name for name in ("start", "end") if app[f"{name}_time_ms"] is None)


def list_streaming_ids(facts: EventLogFacts) -> list[int]:
    """Ids of SQL executions that are streaming batches, and of those that ran inside one.

    What a foreachBatch runs has a description of its own. Before Spark 3.4 it names no root either: then it is known by
    its time, within a batch that ran no stage itself.
    """
    ids = facts.sql_executions.filter(_IS_BATCH)["sql_id"].to_list()
    while True:
        inner = facts.sql_executions.filter(
            pl.col("root_sql_id").is_in(ids), ~pl.col("sql_id").is_in(ids), pl.col("root_sql_id") != pl.col("sql_id")
        )
        if not inner.height:
            break
        ids += inner["sql_id"].to_list()
    at_work = facts.stages["sql_id"].drop_nulls().unique().to_list()
    idle = facts.sql_executions.filter(_IS_BATCH, ~pl.col("sql_id").is_in(at_work)).select(
        first_ms="start_time_ms", last_ms="end_time_ms"
    )
    rootless = facts.sql_executions.filter(pl.col("root_sql_id").is_null(), ~pl.col("sql_id").is_in(ids))
    inside = rootless.join(idle, how="cross").filter(
        pl.col("start_time_ms") >= pl.col("first_ms"), pl.col("end_time_ms") <= pl.col("last_ms")
    )
    return [*ids, *inside["sql_id"].unique().sort()]


def _count_streaming_batches(facts: EventLogFacts) -> int:
    """Batches, of which one may be several executions."""
    texts = facts.sql_executions.filter(_IS_BATCH)["description"].to_list()
    texts += [text for text in facts.jobs["description"].drop_nulls() if _STREAMING_REGEX.search(text)]
    return len({tuple(_BATCH.findall(text)[-1:]) or text for text in texts})


def _measure_application_times(
    facts: EventLogFacts, streaming: list[int], last_work: pl.DataFrame, start_ms: int, end_ms: int
) -> dict[str, float]:
    of_stream = set(streaming)
    sql: Spans = []
    batches: Spans = []
    outside: Spans = []
    executions = facts.sql_executions.join(last_work, on="sql_id", how="left").select(
        "sql_id", "start_time_ms", pl.coalesce("end_time_ms", "last_finish_time_ms")
    )
    for sql_id, start, end in executions.iter_rows():
        (batches if sql_id in of_stream else sql).append((start, end))
    jobs = facts.jobs.filter(pl.col("sql_id").is_null())
    for text, start, end in jobs.select("description", "submission_time_ms", "completion_time_ms").iter_rows():
        (batches if _STREAMING_REGEX.search(text or "") else outside).append((start, end))
    sql, batches, outside = (_merge_spans(_clip_spans(spans, start_ms, end_ms)) for spans in (sql, batches, outside))
    busy = _merge_spans([*sql, *batches])
    sql_s, busy_s, every_s = (
        _sum_span_lengths(sql),
        _sum_span_lengths(busy),
        _sum_span_lengths(_merge_spans([*busy, *outside])),
    )
    return {"sql_wall_s": sql_s, "streaming_s": busy_s - sql_s, "outside_sql_s": every_s - busy_s}


def _find_last_stage_ends(facts: EventLogFacts) -> pl.DataFrame:
    """End of the last stage of each SQL execution: its end, where the log does not hold one."""
    keys = ["stage_id", "stage_attempt_id"]
    stages = facts.stages.filter(pl.col("sql_id").is_not_null()).select("sql_id", *keys)
    return stages.join(facts.stage_tasks, on=keys).group_by("sql_id").agg(pl.col("last_finish_time_ms").max())


def _clip_spans(spans: Iterable[tuple[float | None, float | None]], start_ms: int, end_ms: int) -> Spans:
    """Spans cut to the application's time; a span without an end lasts to the application's end."""
    return [
        (max(start, start_ms), min(end_ms if end is None else end, end_ms)) for start, end in spans if start is not None
    ]


def _merge_spans(spans: Spans) -> Spans:
    merged_spans: Spans = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if merged_spans and start <= merged_spans[-1][1]:
            merged_spans[-1] = (merged_spans[-1][0], max(end, merged_spans[-1][1]))
        else:
            merged_spans.append((start, end))
    return merged_spans


def _sum_span_lengths(spans: Spans) -> float:
    return sum(end - start for start, end in spans) / 1e3


def _application_status(
    log: dict[str, Any], app: dict[str, Any], time: ApplicationTime, holes: pl.DataFrame, n_torn: int
) -> tuple[str, str | None]:
    if touching := describe_holes(select_touching(holes)):
        return "partial", "; ".join(touching)
    if time.contradictions:
        return "contradictory", f"its times contradict each other: {'; '.join(time.contradictions)}"
    if log["fault"]:
        return "damaged", str(log["fault"])
    line_fault = f"{log['n_bad_lines']:,} of {log['n_lines']:,} lines could not be read" if log["n_bad_lines"] else None
    # A log that is being written ends anywhere.
    if line_fault and not (app["status"] != "complete" and n_torn == log["n_bad_lines"]):
        return "damaged", line_fault
    if select_harmful(holes).height:
        return "damaged", None
    if app["status"] != "complete":
        return "incomplete", line_fault or f"the log does not hold the application's {describe_missing_times(app)}"
    return "complete", None
