"""Profile of one application: queries, stages, operators, coverage, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from workbench.core.books import AT_MOST, Book, build_books, describe_broken_books
from workbench.core.errors import BrokenInvariantError, InputError
from workbench.core.formats import fit_answer, format_items, format_number
from workbench.eventlog.completeness import CLOCK, NOTED_KINDS, OPEN_END, describe_holes, select_touching
from workbench.eventlog.invariants import SLOT_TIME, SLOTS, list_log_books
from workbench.eventlog.reader import EventLogFacts
from workbench.eventlog.task_slots import TaskSlots
from workbench.eventlog.wall_time import DRIVER, NOTHING, RUNNING, WAITING, WallTime, merge_spans, sum_spans
from workbench.speedup import tables
from workbench.speedup.attribution.application_time import (
    WORK_ENDS,
    WORK_STARTS,
    ApplicationTime,
    find_extreme_ms,
    read_application_time,
)
from workbench.speedup.attribution.executions import TIME_TYPES
from workbench.speedup.attribution.executor_time import ExecutorTime, measure_executors
from workbench.speedup.attribution.profile_findings import MIN_SHARE, OUTSIDE, build_findings, iterate_wordings
from workbench.speedup.attribution.time_pieces import (
    AROUND,
    COUNTS,
    REMAINDER,
    Measured,
    describe_missing_times,
    measure_log_times,
)
from workbench.speedup.attribution.time_pieces import DRIVER as DRIVER_TIME
from workbench.speedup.attribution.time_pieces import UNKNOWN as UNATTRIBUTED
from workbench.speedup.calibration.booked_times import SHARED
from workbench.speedup.calibration.time_split import build_piece_arrays, fit_session_prices, split_times
from workbench.speedup.engines import classify_operator, strip_suffix

CODEGEN = "WholeStageCodegen"
# Where a log does not hold the application's start, its earliest time is the origin.
EVENTS = (("executors", "added_time_ms"), *WORK_STARTS, ("failures", "time_ms"))
MIN_TASKS_FOR_SKEW = 4
MIN_TIMED_SHARE = 0.9
CODEGEN_PART = "inside codegen spans"
TIMED_PART = "other, in stages with operator times"
UNTIMED_PART = "in stages without operator times"
UNKNOWN = pl.lit(None, pl.Float64)
COUNTING = pl.lit(None, pl.String)
NO_SQL_PART = "outside SQL"
NO_START = "The log lacks the application's start"
# A smaller part of the slots came and went with the first and last executors, which start one after the other.
MIN_SLOT_CHANGE = 0.05
MIN_TOLD_SHARE = 0.01
OWN_ERROR = "an error in the workbench"
MEANINGS = {
    RUNNING: "at least one task ran",
    WAITING: "a stage was open and no task ran",
    DRIVER: "driver alone: planning, commit, fetch",
    NOTHING: "no query and no job was open",
}


@dataclass(frozen=True)
class Profile:
    """Tables of a profile (`PROFILE_TABLES`), why its log is invalid, the answer in one sentence, and what it rests on.

    `costliest_query`: The query whose runs together took the most task time: `query`, `sql_ids`, `n`, `task_time_s` and
    `share`; null with fewer than two queries.
    `start_s`, `end_s`: The time that counts, in seconds since the application's start; null if unknown.
    """

    overview: pl.DataFrame
    findings: pl.DataFrame
    wall_parts: pl.DataFrame
    queries: pl.DataFrame
    stage_spans: pl.DataFrame
    exclusive_times: pl.DataFrame
    operator_times: pl.DataFrame
    coverage: pl.DataFrame
    failure_counts: pl.DataFrame
    executor_steps: pl.DataFrame
    executor_shapes: pl.DataFrame
    connect_sessions: pl.DataFrame
    books: pl.DataFrame
    reasons: tuple[str, ...]
    answer: str
    details: tuple[str, ...]
    costliest_query: dict[str, Any] | None
    start_s: float | None
    end_s: float | None

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid if the log is cut, damaged or incomplete."""
        return "invalid" if self.reasons else "valid"

    def list_findings(self) -> pl.DataFrame:
        """Findings for display: what was found and what to try in one column."""
        return self.findings.select(
            "kind",
            "at_stake_s",
            "low_s",
            "high_s",
            "query",
            "stage_id",
            found_and_to_try=pl.format("{} {}", "finding", "what_to_try"),
        )

    def sum_operators(self) -> pl.DataFrame:
        """Exclusive times by operator, for display; the rows add up to the time of the queries."""
        sums = self.exclusive_times.group_by("operator").agg(pl.col("wall_time_s", "task_time_s").sum())
        return sums.select(
            "operator", "wall_time_s", _share_expr("wall_time_s").alias("wall_time_share"), "task_time_s"
        ).sort("wall_time_s", "operator", descending=[True, False])

    def sum_stages(self) -> pl.DataFrame:
        """Stages with exclusive time and skew, all attempts together, most task time first, for display."""
        walls = self.exclusive_times.group_by("stage_id").agg(pl.col("wall_time_s").sum())
        # The skew is that of the attempt with the longest task.
        skewed = self.stage_spans.sort("task_max_s", descending=True, nulls_last=True, maintain_order=True)
        stages = skewed.group_by("sql_id", "query", "stage_id", maintain_order=True).agg(
            pl.col("task_time_s", "n_tasks", "n_failed_tasks").sum(),
            pl.col("task_median_s", "task_max_s", "skew_ratio", "skew_cost_s").first(),
        )
        return (
            stages.join(walls, on="stage_id", how="left")
            .select("sql_id", "query", "stage_id", "wall_time_s", *stages.columns[3:])
            .sort("task_time_s", "stage_id", descending=[True, False])
        )


def build_profile(
    facts: EventLogFacts,
    *,
    sql_ids: Sequence[int] = (),
    log_id: int | None = None,
    price_per_executor_h: float | None = None,
) -> Profile:
    """Where did the application's time go: queries, stages, operators?

    Parameters
    ----------
    facts
        From `workbench.eventlog.reader.read_event_logs`.
    sql_ids
        SQL executions to include, with those that they started; when empty, all of them and the stages outside SQL.
        All tables and figures are then of these executions only, from the start of the first to the end of the last.
    log_id
        Log to profile; null: the only one.
    price_per_executor_h
        Of an executor, for the column `cost` of the overview; null: no cost.

    Returns
    -------
    Profile
        Tables as declared in `workbench.speedup.tables`. The verdict is invalid, with reasons, when the log is cut,
        damaged or shows that parts of it are missing: times then cover what is there, and shares are null.

    Raises
    ------
    InputError
        The log is missing, there are several and none is named, or it does not hold one of the SQL executions (those
        that it holds are listed).

    Notes
    -----
    Spark's operator times nest, and a codegen span has one time for all its operators; `exclusive_times` count each
    second once, and split what operators share by fitted prices: an estimate. Task time is not wall time: it counts the
    time of every core, waiting included.
    """
    log_facts = _select_log(facts, log_id)
    all_sql_ids = set(log_facts.sql_executions["sql_id"])
    if unknown := sorted(set(sql_ids) - all_sql_ids):
        raise InputError(
            "no such SQL execution in this log",
            where="sql_ids",
            found=unknown,
            allowed=sorted(all_sql_ids) or "none: no SQL ran",
        )
    application = log_facts.applications.row(0, named=True)
    zero_ms = application["start_time_ms"] or find_extreme_ms(log_facts, EVENTS, latest=False) or 0
    time = read_application_time(log_facts)
    measured = measure_log_times(log_facts, "log", "log", log_id=log_facts.logs["log_id"][0])
    exclusive = build_exclusive_times(log_facts, measured)
    wall = time.account(log_facts)
    log_books = list_log_books(log_facts, wall, time.start_ms, time.end_ms)
    if sql_ids:
        log_facts = _select_queries(log_facts, sql_ids)
        exclusive = _select_exclusive_times(exclusive, log_facts, sql_ids)
        first_ms = find_extreme_ms(log_facts, WORK_STARTS, latest=False)
        time = replace(time, start_ms=first_ms, end_ms=find_extreme_ms(log_facts, WORK_ENDS, latest=True))
        wall = time.account(log_facts)
    spans = _build_stage_spans(log_facts, zero_ms)
    queries = _build_queries(log_facts, spans, zero_ms)
    operators = _build_operator_times(log_facts)
    coverage = _build_coverage(log_facts, spans)
    failures = _count_failures(log_facts, zero_ms)
    books = build_books([*log_books, *_list_time_books(log_facts, spans, exclusive, coverage)])
    there = measure_executors(log_facts, time, books)
    overview = _build_overview(log_facts, application, time, spans, queries, books, there, price_per_executor_h)
    reasons = _list_invalid_reasons(log_facts, application, time, books)
    plans = measured.executions.select("sql_id", "plan")
    findings = tables.FINDINGS.frame([])
    costliest = _find_costliest_query(queries, plans)
    if (missing := select_touching(log_facts.completeness)).height and not time.contradictions:
        overview = _bound_task_time(overview, log_facts, missing)
        queries, coverage = (frame.with_columns(task_time_share=UNKNOWN) for frame in (queries, coverage))
        queries, coverage = tables.QUERIES.check(queries), tables.COVERAGE.check(coverage)
        answer, details = _format_partial_answer(overview, missing)
    else:
        if wall is not None and overview["n_tasks"][0]:
            assert time.start_ms is not None
            assert time.end_ms is not None
            names = log_facts.sql_executions.select("sql_id", query=_query_name_expr())
            span_ms = time.start_ms, time.end_ms
            findings = build_findings(log_facts, exclusive, plans, names, span_ms, is_whole=not sql_ids)
        answer, details = _format_answer(overview, findings, wall, time)
        details += [*_describe_costliest_query(costliest), *_describe_coverage(overview, coverage)]
        details += [] if sql_ids else _describe_hours(overview)
    if sql_ids:
        names_text = format_items(queries.filter(pl.col("sql_id").is_in(list(sql_ids)))["query"], 3)
        details.insert(0, f"Covers only {names_text}.")
        answer = answer.replace("The application ran", "It ran")
        details = [detail.replace("no stage ran", "no stage of theirs ran") for detail in details]
    start_s, end_s = (
        None if wall is None or ms is None else (ms - zero_ms) / 1e3 for ms in (time.start_ms, time.end_ms)
    )
    parts = _build_wall_parts(wall, overview)
    return Profile(
        overview=overview,
        findings=findings,
        wall_parts=parts,
        queries=queries,
        stage_spans=spans,
        exclusive_times=exclusive,
        operator_times=operators,
        coverage=coverage,
        failure_counts=failures,
        executor_steps=there.steps,
        executor_shapes=there.shapes,
        connect_sessions=_sum_connect_sessions(log_facts, zero_ms),
        books=books,
        reasons=reasons,
        answer=answer,
        details=tuple(details),
        costliest_query=costliest,
        start_s=start_s,
        end_s=end_s,
    )


def _select_queries(facts: EventLogFacts, sql_ids: Sequence[int]) -> EventLogFacts:
    """The tables of a log with some SQL executions and those that they started; what is missing for all stays."""
    executions = facts.sql_executions
    ids = executions.filter(pl.col("sql_id").is_in(list(sql_ids)) | pl.col("root_sql_id").is_in(list(sql_ids)))[
        "sql_id"
    ]
    wanted = pl.col("sql_id").is_in(ids.implode())
    stages = facts.stages.filter(wanted)
    key = ["stage_id", "stage_attempt_id"]
    return replace(
        facts,
        **{
            name: getattr(facts, name).filter(wanted)
            for name in ("sql_executions", "plan_nodes", "node_metrics", "jobs", "failures")
        },
        stages=stages,
        stage_tasks=facts.stage_tasks.join(stages, on=key, how="semi"),
        accumulators=facts.accumulators.join(stages, on=key, how="semi"),
        completeness=facts.completeness.filter(wanted | pl.col("sql_id").is_null()),
    )


def build_exclusive_times(facts: EventLogFacts, measured_log: Measured) -> pl.DataFrame:
    """Build table EXCLUSIVE_TIMES of all SQL executions of a log."""
    measured = measured_log.include_first_runs()
    # Failed queries have prices of their own, so that the others' are those that `workbench speedup explain` prints.
    failed = measured.select(~COUNTS)
    parts = [measured.select(COUNTS), Measured(failed.executions.with_columns(why_not=COUNTING), failed.pieces)]
    rows = [row for part in parts if part.executions.height for row in _list_exclusive_rows(part)]
    # Without a stage, a query is the driver's; one that another query started is a part of that one.
    is_alone = pl.col("root_sql_id").is_null() | (pl.col("root_sql_id") == pl.col("sql_id"))
    is_measured = pl.col("sql_id").is_in(measured.executions["sql_id"].implode())
    unopened = facts.sql_executions.filter(is_alone, ~is_measured, pl.col("duration_ms") > 0)
    rows += [
        (sql_id, None, DRIVER_TIME, time_ms / 1e3, 0.0, AROUND)
        for sql_id, time_ms in unopened.select("sql_id", "duration_ms").iter_rows()
    ]
    schema = tables.EXCLUSIVE_TIMES.schema()
    del schema["query"], schema["wall_time_share"]
    summed = (
        pl.DataFrame(rows, schema=schema, orient="row")
        .group_by("sql_id", "stage_id", "operator", maintain_order=True)
        .agg(pl.col("basis").unique().sort().str.join("; "), pl.col("wall_time_s", "task_time_s").sum())
        .join(facts.sql_executions.select("sql_id", query=_query_name_expr()), on="sql_id")
        .with_columns(wall_time_share=_share_expr("wall_time_s").over("sql_id"))
    )
    order = ["wall_time_s", "sql_id", "stage_id", "operator"]
    return tables.EXCLUSIVE_TIMES.check(summed).sort(order, descending=[True, False, False, False])


def _list_exclusive_rows(measured: Measured) -> Iterator[tuple[Any, ...]]:
    """SQL execution, stage, operator, wall and task time in s, and basis, of each operator in each piece.

    Pieces are split as `calibration.booked_times` does, all queries at once.

    `measured`: Executions of one log that all count.
    """
    pieces = build_piece_arrays(measured)
    prices = fit_session_prices(pieces, measured.executions["query"].unique().sort().to_list())[pieces.owner]
    alone = replace(pieces, keys=pieces.keys[pieces.owner], owner=np.arange(len(pieces.owner)))
    # In the order of the arrays.
    queries = measured.executions.select("sql_id", "query")
    rows = measured.pieces.filter(pl.col("wall_s") > 0).join(queries, on="sql_id").sort("query", "sql_id", "piece")
    columns = rows.select("sql_id", "stage_id", "wall_s", "task_s", "basis").iter_rows()
    for (sql_id, stage_id, wall_s, task_s, basis), values in zip(columns, split_times(alone, prices), strict=True):
        shares = values / values.sum()
        booked = np.flatnonzero(shares)
        for column in booked:
            wall_and_task_s = float(shares[column] * wall_s), float(shares[column] * task_s)
            yield sql_id, stage_id, pieces.columns[column], *wall_and_task_s, basis if len(booked) == 1 else SHARED
    # Task time of stages that took no time by their stamps.
    timeless = measured.pieces.filter(pl.col("wall_s") <= 0, pl.col("task_s") > 0)
    for sql_id, stage_id, task_s in timeless.select("sql_id", "stage_id", "task_s").iter_rows():
        yield sql_id, stage_id, UNATTRIBUTED, 0.0, task_s, REMAINDER


def _select_exclusive_times(exclusive: pl.DataFrame, facts: EventLogFacts, sql_ids: Sequence[int]) -> pl.DataFrame:
    """The rows of chosen executions, whose tables `facts` are. `exclusive`: Table EXCLUSIVE_TIMES of the whole log."""
    chosen = exclusive.filter(pl.col("sql_id").is_in(facts.sql_executions["sql_id"].implode()))
    # What another execution started is a part of that one in the whole log, and is measured alone here.
    if set(sql_ids) <= set(chosen["sql_id"]):
        return chosen
    return build_exclusive_times(facts, measure_log_times(facts, "log", "log", log_id=facts.logs["log_id"][0]))


def _bound_task_time(overview: pl.DataFrame, facts: EventLogFacts, missing: pl.DataFrame) -> pl.DataFrame:
    """Drop the shares from the overview of a partial log, and add the upper bound of the task time where it is known.

    `overview`: Table OVERVIEW. `missing`: `kind, stage_id, stage_attempt_id, n_expected, n_found` of the log's
    completeness.
    """
    high_s, n_missing = None, pl.col("n_expected") - pl.col("n_found")
    of_stages, by_number = (missing.filter(kind=kind) for kind in ("task ends", "tasks"))
    are_all = of_stages.height + by_number.height == missing.height
    if are_all and by_number.select(n_missing.sum()).item() <= of_stages.select(n_missing.sum()).item():
        stages = of_stages.join(facts.stages, on=["stage_id", "stage_attempt_id"])
        high_s = overview["task_time_s"][0] + stages.select((n_missing * pl.col("duration_ms")).sum()).item() / 1e3
    return tables.OVERVIEW.check(
        overview.with_columns(task_time_high_s=pl.lit(high_s, pl.Float64), slot_use_share=UNKNOWN)
    )


def _format_partial_answer(overview: pl.DataFrame, missing: pl.DataFrame) -> tuple[str, list[str]]:
    """Answer of a profile with holes, and the holes. `overview`: Table OVERVIEW. `missing`: The log's holes."""
    row = overview.row(0, named=True)
    first, *more = describe_holes(missing)
    opening = f"{first[0].upper()}{first[1:]}" + (f", and {len(more)} more below" if more else "")
    high = row["task_time_high_s"]
    worked = f"{row['task_time_s']:,.1f} to {high:,.1f} s" if high else f"at least {row['task_time_s']:,.1f} s"
    return f"Tasks worked {worked}; parts of the log are missing.", [f"{opening}."]


def _select_log(facts: EventLogFacts, log_id: int | None) -> EventLogFacts:
    there = facts.applications["log_id"].to_list()
    if log_id is None and len(there) > 1:
        raise InputError(
            "several event logs, but a profile is of one",
            found=f"{len(there)} applications",
            do="give one of the files; `workbench speedup qualify FOLDER` takes all of them",
        )
    wanted = there[0] if log_id is None and there else log_id
    if wanted is None or wanted not in there:
        raise InputError("no application of this number", where="log_id", found=wanted, allowed=there)
    return facts.select_log(wanted)


def _seconds_expr(column: str, zero_ms: int = 0) -> pl.Expr:
    return (pl.col(column) - zero_ms) / 1e3


def _build_stage_spans(facts: EventLogFacts, zero_ms: int) -> pl.DataFrame:
    """Build table STAGE_SPANS; seconds since `zero_ms`."""
    names = facts.sql_executions.select("sql_id", query=_query_name_expr())
    joined = (
        facts.stage_tasks.join(facts.stages, on=["stage_id", "stage_attempt_id"], how="inner")
        .join(names, on="sql_id", how="left")
        .with_columns(
            start_ms=pl.coalesce("submission_time_ms", "first_launch_time_ms"),
            end_ms=pl.coalesce("completion_time_ms", "last_finish_time_ms", "submission_time_ms"),
        )
        .filter(pl.col("start_ms").is_not_null())
    )
    even = (pl.col("n_tasks") >= MIN_TASKS_FOR_SKEW) & (pl.col("task_duration_median_ms") > 0)
    attempt = (
        pl.when(pl.col("stage_attempt_id") > 0)
        .then(pl.format(" (attempt {})", "stage_attempt_id"))
        .otherwise(pl.lit(""))
    )
    spans = joined.select(
        "stage_id",
        "stage_attempt_id",
        "sql_id",
        "status",
        "n_tasks",
        stage=pl.format("stage {}", "stage_id") + attempt,
        query=pl.col("query").fill_null(OUTSIDE),
        start_s=_seconds_expr("start_ms", zero_ms),
        end_s=pl.max_horizontal(_seconds_expr("start_ms", zero_ms), _seconds_expr("end_ms", zero_ms)),
        n_failed_tasks=pl.col("n_failed") + pl.col("n_killed"),
        task_time_s=_seconds_expr("task_duration_total_ms").fill_null(0),
        task_median_s=_seconds_expr("task_duration_median_ms"),
        task_max_s=_seconds_expr("task_duration_max_ms"),
        skew_ratio=pl.when(even).then(pl.col("task_duration_max_ms") / pl.col("task_duration_median_ms")),
        skew_cost_s=pl.when(even).then((pl.col("task_duration_max_ms") - pl.col("task_duration_median_ms")) / 1e3),
    )
    return tables.STAGE_SPANS.check(spans).sort("start_s", "stage_id", "stage_attempt_id")


def _query_name_expr() -> pl.Expr:
    text = pl.col("description").fill_null("").str.replace_all(r"\s+", " ").str.slice(0, 60)
    return pl.when(text == "").then(pl.format("query {}", "sql_id")).otherwise(pl.format("{} ({})", text, "sql_id"))


def _build_queries(facts: EventLogFacts, spans: pl.DataFrame, zero_ms: int) -> pl.DataFrame:
    """Table QUERIES. `spans`: `sql_id, task_time_s, n_tasks, n_failed_tasks` of table STAGE_SPANS."""
    work = spans.group_by("sql_id").agg(
        pl.col("task_time_s").sum(),
        pl.len().cast(pl.Int64).alias("n_stages"),
        pl.col("n_tasks").sum(),
        pl.col("n_failed_tasks").sum(),
    )
    queries = facts.sql_executions.join(work, on="sql_id", how="left").with_columns(
        pl.col("task_time_s").fill_null(0.0), pl.col("n_stages", "n_tasks", "n_failed_tasks").fill_null(0)
    )
    return tables.QUERIES.check(
        queries.select(
            "sql_id",
            "status",
            "task_time_s",
            "n_stages",
            "n_tasks",
            "n_failed_tasks",
            query=_query_name_expr(),
            start_s=_seconds_expr("start_time_ms", zero_ms),
            end_s=_seconds_expr("end_time_ms", zero_ms),
            duration_s=_seconds_expr("duration_ms"),
            task_time_share=_share_expr("task_time_s"),
        )
    ).sort("task_time_s", "sql_id", descending=[True, False])


def _share_expr(column: str) -> pl.Expr:
    total = pl.col(column).sum()
    return pl.when(total > 0).then(pl.col(column) / total)


def _build_operator_times(facts: EventLogFacts) -> pl.DataFrame:
    """Build table OPERATOR_TIMES."""
    metrics = facts.node_metrics.filter(pl.col("metric_type").is_in(list(TIME_TYPES)))
    divisor = pl.col("metric_type").replace_strict(TIME_TYPES, return_dtype=pl.Float64)
    # Metric without the meaning that some engines append to its name.
    # Operator without its number and brackets: "WholeStageCodegen (3)" is "WholeStageCodegen".
    name = pl.col("node_name").map_elements(strip_suffix, return_dtype=pl.String)
    metrics = metrics.with_columns(
        operator=name.fill_null("(adaptive subplan)"),
        metric=pl.col("metric_name").str.replace(r"\s+total\s*\(.*\)$", ""),
        divisor=divisor,
    )
    keys = ["operator", "metric", "where"]
    counted = {"n_nodes": pl.len().cast(pl.Int64), "n_tasks": pl.col("n").sum()}
    of_tasks = (
        metrics.filter(pl.col("n") > 0)
        .with_columns(where=pl.lit("tasks"))
        .group_by(keys)
        .agg(
            total_s=(pl.col("total") / pl.col("divisor")).sum(),
            max_s=(pl.col("max") / pl.col("divisor")).max(),
            **counted,
        )
    )
    of_driver = (
        metrics.filter(pl.col("driver_value").is_not_null())
        .with_columns(where=pl.lit("driver"))
        .group_by(keys)
        .agg(total_s=(pl.col("driver_value") / pl.col("divisor")).sum(), n_nodes=pl.len().cast(pl.Int64))
        .with_columns(max_s=pl.lit(None, pl.Float64), n_tasks=pl.lit(0, pl.Int64))
    )
    both = pl.concat([of_tasks, of_driver], how="diagonal")
    named = both.select("operator", "metric").iter_rows()
    both = both.with_columns(includes=pl.Series([_describe_nesting(*names) for names in named], dtype=pl.String))
    return tables.OPERATOR_TIMES.check(both).sort("total_s", *keys, descending=[True, False, False, False])


def _describe_nesting(node_name: str, metric: str) -> str | None:
    """What the time that a node reports includes beside the node; null if unknown."""
    operator = classify_operator(node_name)
    if node_name == CODEGEN:
        return "the operators fused in it"
    if metric in (*operator.own_times, *operator.read_times):
        return "no other operator"
    return "its inputs" if metric in operator.span_times else None


def _build_coverage(facts: EventLogFacts, spans: pl.DataFrame) -> pl.DataFrame:
    """Build table COVERAGE: task time by how much of it the log explains.

    Spans of a stage nest, so their sum is capped at the stage's task time.

    `spans`: `stage_id, stage_attempt_id, sql_id, task_time_s` of table STAGE_SPANS.
    """
    key = ["stage_id", "stage_attempt_id"]
    timed = facts.node_metrics.filter(pl.col("metric_type").is_in(list(TIME_TYPES))).select(
        "accumulator_id",
        codegen=pl.col("node_name").fill_null("").str.starts_with(CODEGEN) & (pl.col("metric_type") == "timing"),
    )
    per_stage = (
        facts.accumulators.join(timed.unique("accumulator_id", keep="first", maintain_order=True), on="accumulator_id")
        .group_by(key)
        .agg(
            pl.len().alias("n_timed"),
            codegen_s=(pl.when("codegen").then(pl.col("total")).otherwise(0)).sum() / 1e3,
        )
    )
    stages = spans.join(per_stage, on=key, how="left").with_columns(
        pl.col("n_timed").fill_null(0),
        pl.min_horizontal(pl.col("codegen_s").fill_null(0.0), "task_time_s").alias("codegen_s"),
    )
    in_sql, has_times = pl.col("sql_id").is_not_null(), pl.col("n_timed") > 0
    parts = {
        CODEGEN_PART: (in_sql & has_times & (pl.col("codegen_s") > 0), pl.col("codegen_s")),
        TIMED_PART: (in_sql & has_times, pl.col("task_time_s") - pl.col("codegen_s")),
        UNTIMED_PART: (in_sql & ~has_times, pl.col("task_time_s")),
        NO_SQL_PART: (~in_sql, pl.col("task_time_s")),
    }
    rows = []
    for part, (which, time_s) in parts.items():
        chosen = stages.filter(which)
        rows.append({"part": part, "task_time_s": float(chosen.select(time_s.sum()).item()), "n_stages": chosen.height})
    return tables.COVERAGE.check(pl.DataFrame(rows).with_columns(task_time_share=_share_expr("task_time_s")))


def _sum_connect_sessions(facts: EventLogFacts, zero_ms: int) -> pl.DataFrame:
    """Table CONNECT_SESSIONS; seconds from `zero_ms` on."""
    asked = facts.sql_executions.filter(
        pl.col("connect_session").is_not_null(),
        pl.col("root_sql_id").is_null() | (pl.col("root_sql_id") == pl.col("sql_id")),
    )
    sums = asked.group_by("connect_session").agg(
        pl.col("connect_user").first(),
        n_queries=pl.len().cast(pl.Int64),
        n_failed=(pl.col("status") == "failed").sum().cast(pl.Int64),
        sql_s=pl.col("duration_ms").sum() / 1e3,
        first_s=_seconds_expr("start_time_ms", zero_ms).min(),
        last_s=_seconds_expr("end_time_ms", zero_ms).max(),
    )
    return tables.CONNECT_SESSIONS.check(sums).sort("sql_s", "connect_session", descending=[True, False])


def _count_failures(facts: EventLogFacts, zero_ms: int) -> pl.DataFrame:
    """Table FAILURE_COUNTS; seconds from `zero_ms` on."""
    first_line = pl.col("message").fill_null("").str.split("\n").list.first().fill_null("").str.slice(0, 200)
    counted = (
        facts.failures.with_columns(message=first_line, reason=pl.col("reason").fill_null("unknown"))
        .group_by("kind", "reason", "message")
        .agg(pl.len().cast(pl.Int64).alias("n"), first_s=_seconds_expr("time_ms", zero_ms).min())
    )
    return tables.FAILURE_COUNTS.check(counted).sort(
        "n", "kind", "reason", "message", descending=[True, False, False, False]
    )


def _build_overview(
    facts: EventLogFacts,
    application: dict[str, object],
    time: ApplicationTime,
    spans: pl.DataFrame,
    queries: pl.DataFrame,
    books: pl.DataFrame,
    there: ExecutorTime,
    price_per_executor_h: float | None,
) -> pl.DataFrame:
    """Table OVERVIEW, one row. `spans`, `queries`, `books`: Tables STAGE_SPANS, QUERIES and BOOKS."""
    wall_s = slot_s = slot_use = None
    slots = TaskSlots(facts, facts.logs["log_id"][0])
    if time.start_ms is not None and time.end_ms is not None and not time.contradictions:
        wall_s = time.wall_s
        if "executors" not in facts.completeness["kind"]:
            slot_s = slots.sum_slot_seconds(time.start_ms, time.end_ms)
            stages = facts.join_stage_tasks()
            slot_use = slots.measure_use(stages, time.start_ms, time.end_ms)
        if describe_broken_books(books, (SLOTS, SLOT_TIME)):
            slot_s = slot_use = None
    executor_h, core_h = (there.executor_h, there.core_h) if there.shapes.height else (None, None)
    busy_s, stage_s = sum_covered_time(spans), float((spans["end_s"] - spans["start_s"]).sum())
    row = {
        "app_id": application["app_id"] or "(unknown)",
        **{name: application[name] for name in ("app_name", "spark_version", "engine", "status")},
        "wall_time_s": wall_s,
        "busy_time_s": busy_s,
        "stage_time_s": stage_s,
        "overlap_ratio": stage_s / busy_s if busy_s else None,
        "task_time_s": float(spans["task_time_s"].sum()),
        "task_time_high_s": None,
        "n_task_slots": slots.find_peak()[1],
        "mean_task_slots": slot_s / wall_s if slot_s and wall_s else None,
        "slot_use_share": slot_use,
        "executor_h": executor_h,
        "core_h": core_h,
        "idle_core_h": None if core_h is None or slot_use is None else core_h * max(0.0, 1 - slot_use),
        "cost": None if executor_h is None or price_per_executor_h is None else executor_h * price_per_executor_h,
        "n_queries": queries.height,
        "n_failed_queries": int((queries["status"] == "failed").sum()),
        "n_stages": spans.height,
        "n_tasks": int(spans["n_tasks"].sum()),
        "n_failed_tasks": int(spans["n_failed_tasks"].sum()),
    }
    return tables.OVERVIEW.frame([row])


def _build_wall_parts(wall: WallTime | None, overview: pl.DataFrame) -> pl.DataFrame:
    """Table WALL_PARTS; empty where the times are not known. `overview`: Table OVERVIEW."""
    parts = [] if wall is None else wall.list_parts()
    total_s = sum(seconds for _, seconds in parts)
    row = overview.row(0, named=True)
    slots = row["n_task_slots"] if row["slot_use_share"] is not None else None
    slot_times: dict[str, float | None] = dict.fromkeys(MEANINGS)
    if slots:
        slot_times = {name: slots * seconds for name, seconds in parts}
        with_stage_s = slots * (total_s - sum(seconds for name, seconds in parts if name in (DRIVER, NOTHING)))
        # A task counts until the driver has its result, and may so count beyond its stage.
        slot_times[RUNNING] = min(row["task_time_s"], with_stage_s)
        slot_times[WAITING] = with_stage_s - slot_times[RUNNING]
    return tables.WALL_PARTS.frame(
        [
            {
                "part": name,
                "wall_s": seconds,
                "wall_share": seconds / total_s if total_s else None,
                "meaning": MEANINGS[name],
                "slot_s": slot_times[name],
                "slot_share": slot_times[name] / (slots * total_s) if slots and total_s else None,
            }
            for name, seconds in parts
        ]
    )


def sum_covered_time(spans: pl.DataFrame) -> float:
    """Length of the union of intervals `start_s` to `end_s`, in seconds.

    >>> sum_covered_time(pl.DataFrame({"start_s": [0.0, 1.0, 5.0], "end_s": [2.0, 3.0, 6.0]}))
    4.0
    """
    return float(sum_spans(merge_spans(spans.select("start_s", "end_s").iter_rows())))


def _list_invalid_reasons(
    facts: EventLogFacts, application: dict[str, object], time: ApplicationTime, books: pl.DataFrame
) -> tuple[str, ...]:
    """List why an application's figures may be wrong: contradictory times, holes, damage, books out of balance."""
    log = facts.logs.row(0, named=True)
    reasons = [f"the log's times contradict each other: {contradiction}" for contradiction in time.contradictions]
    missing = describe_missing_times(application)
    if missing and not (missing == "end" and OPEN_END in facts.completeness["kind"]):
        reasons.append(f"the log is incomplete: it lacks the application's {missing}; figures cover the rest")
    told = pl.col("kind").is_in(["application start", CLOCK, *NOTED_KINDS])
    reasons += describe_holes(facts.completeness.filter(~told))
    if log["fault"]:
        reasons.append(f"the log is damaged: {log['fault']}")
    if log["n_bad_lines"]:
        reasons.append(f"{log['n_bad_lines']:,} of {log['n_lines']:,} lines could not be read")
    if log["n_late_task_ends"]:
        reasons.append(f"{log['n_late_task_ends']:,} tasks ended after their stage was closed and are missing")
    return (*reasons, *describe_broken_books(books))


def _format_answer(
    overview: pl.DataFrame, findings: pl.DataFrame, wall: WallTime | None, time: ApplicationTime
) -> tuple[str, list[str]]:
    """Answer of a whole log, and sentences below it. `overview`, `findings`: Tables of these names."""
    row = overview.row(0, named=True)
    wall_s = row["wall_time_s"]
    unknown = "The log's times contradict each other" if time.contradictions else NO_START
    if not row["n_tasks"]:
        ran = f"{unknown}," if wall_s is None else f"The application ran for {wall_s:,.1f} s"
        return f"{ran} and no task ended in it.", []
    if row["task_time_s"] < 0:
        return f"{unknown}: no duration of its {row['n_tasks']:,} tasks is known.", []
    worked = f"{row['n_tasks']:,} tasks worked {row['task_time_s']:,.1f} s"
    if wall_s is None or wall is None:
        return f"{unknown}.", [f"Its {worked} in {row['busy_time_s']:,.1f} s with a stage running."]
    # The parts of the wall time in which no task ran.
    idle_s = wall.driver_s + wall.nothing_s
    text = f"; in {100 * idle_s / wall_s if wall_s else 0:.0f} % of it no stage ran"
    if wall.waiting_s >= MIN_TOLD_SHARE * wall_s:
        text += f", and in {100 * wall.waiting_s / wall_s:.0f} % a stage waited for executors"
    use = f"{_format_slot_use(row) or f'In {wall_s:,.1f} s {worked}'}{text}."
    if not findings.height:
        return fit_answer(use, f"No loss above {MIN_SHARE:.0%} of {wall_s:,.1f} s was found."), [use]
    top = findings.row(0, named=True)
    where = f" Query: {top['query']}." if top["query"] else ""
    stage = f" Stage {top['stage_id']}." if top["stage_id"] is not None else ""
    return fit_answer(*iterate_wordings(findings, wall_s)), [f"{top['finding']}{where}{stage}", use]


def _describe_costliest_query(costliest: dict[str, Any] | None) -> list[str]:
    if costliest is None or costliest["share"] is None:
        return []
    runs = "" if costliest["n"] == 1 else f"{costliest['n']:,} runs, "
    return [f"Most expensive query: {costliest['query']}, {runs}{100 * costliest['share']:.0f} % of task time."]


def _describe_hours(overview: pl.DataFrame) -> list[str]:
    """Executor hours and their cost, where they are known. `overview`: Table OVERVIEW."""
    row = overview.row(0, named=True)
    if not row["core_h"] or row["idle_core_h"] is None:
        return []
    scale, unit = (1, "hours") if row["core_h"] >= 0.1 else (60, "minutes")
    executors, cores = (format_number(scale * row[name]) for name in ("executor_h", "core_h"))
    cost = "" if row["cost"] is None else f"; the executors cost {format_number(row['cost'])}"
    idle = f"{100 * row['idle_core_h'] / row['core_h']:.0f} % of these without a task"
    return [f"It took {executors} executor {unit} and {cores} core {unit}, {idle}{cost}."]


def _find_costliest_query(queries: pl.DataFrame, plans: pl.DataFrame) -> dict[str, Any] | None:
    """The query whose runs together took the most task time; null with fewer than two queries, or without tasks.

    `queries`: Table QUERIES. `plans`: `sql_id, plan`, equal for runs of one query.
    """
    by_query = (
        queries.join(plans, on="sql_id", how="left")
        .sort("task_time_s", "sql_id", descending=[True, False])
        .group_by(runs_of=pl.coalesce("plan", pl.format("sql {}", "sql_id")), maintain_order=True)
        .agg(
            pl.col("query").first(),
            pl.col("task_time_s").sum(),
            n=pl.len(),
            sql_ids=pl.col("sql_id").sort(),
            share=pl.when(pl.col("task_time_share").count() > 0).then(pl.col("task_time_share").sum()),
        )
        .sort("task_time_s", descending=True, maintain_order=True)
    )
    if queries.height < 2 or not by_query["task_time_s"][0]:
        return None
    return by_query.row(0, named=True)


def _describe_coverage(overview: pl.DataFrame, coverage: pl.DataFrame) -> list[str]:
    """How much of the task time operators explain, where it is little. `overview`, `coverage`: Tables of this name."""
    task_s = overview["task_time_s"][0]
    timed_s = coverage.filter(pl.col("part").is_in([CODEGEN_PART, TIMED_PART]))["task_time_s"].sum()
    # Nearly always near 100 %, and then nothing that the reader would act on; the table of the coverage has it.
    if task_s <= 0 or timed_s / task_s >= MIN_TIMED_SHARE:
        return []
    return [f"Operators report times in stages with only {100 * timed_s / task_s:.0f} % of the task time."]


def _format_slot_use(row: Mapping[str, Any]) -> str | None:
    """How busy the slots were; null if unknown. `row`: Of table OVERVIEW."""
    wall_s, slots, mean, use = row["wall_time_s"], row["n_task_slots"], row["mean_task_slots"], row["slot_use_share"]
    if not use or not slots or not mean:
        return None
    if mean >= (1 - MIN_SLOT_CHANGE) * slots:
        busy = f"busy {100 * use:.0f} % of {wall_s:,.1f} s"
        return f"The {slots:,} task slots were {busy}" if slots > 1 else f"The task slot was {busy}"
    return (
        f"Up to {slots:,} task slots, {mean:,.1f} on average over {wall_s:,.1f} s, were busy {100 * use:.0f} % of their"
        " time"
    )


def _list_time_books(
    facts: EventLogFacts, spans: pl.DataFrame, exclusive: pl.DataFrame, coverage: pl.DataFrame
) -> list[Book]:
    """Books of the task time. `spans`, `exclusive`, `coverage`: Tables STAGE_SPANS, EXCLUSIVE_TIMES and COVERAGE."""
    spoils, stage_s = "shares and times of operators", float(spans["task_time_s"].sum())
    tolerance = 1e-6 * max(1.0, stage_s)
    return [
        Book(
            "task time by stage",
            ("task time of queries, and outside SQL", stage_s),
            ("task time of all tasks", float(facts.stage_tasks["task_duration_total_ms"].sum()) / 1e3),
            spoils,
            "tasks of stages without any other event in the log",
            unit="s",
            tolerance=tolerance,
        ),
        Book(
            "task time by coverage",
            ("parts of the coverage", float(coverage["task_time_s"].sum())),
            ("task time of the stages", stage_s),
            spoils,
            OWN_ERROR,
            unit="s",
            tolerance=tolerance,
        ),
        Book(
            "task time by operator",
            ("exclusive times of operators", float(exclusive["task_time_s"].sum())),
            ("task time of the queries", float(spans.filter(pl.col("sql_id").is_not_null())["task_time_s"].sum())),
            spoils,
            OWN_ERROR,
            AT_MOST,
            unit="s",
            tolerance=tolerance,
        ),
    ]


def check_profile(result: Profile) -> pl.DataFrame:
    """Check that the tables of a profile agree with each other.

    Returns
    -------
    DataFrame
        The books, without those that the log cannot tell: `check`, `found`, `expected`, `holds`.

    Raises
    ------
    BrokenInvariantError
        A book of the profile's own tables does not balance; the message names it with both figures.
    """
    own = result.books.filter(pl.col("cause") == OWN_ERROR, ~pl.col("holds"))
    if own.height:
        row = own.row(0, named=True)
        raise BrokenInvariantError(
            "an invariant does not hold", where=row["book"], found=row["left_value"], allowed=row["right_value"]
        )
    known = result.books.filter(pl.col("holds").is_not_null())
    return known.select(check="book", found="left_value", expected="right_value", holds="holds")
