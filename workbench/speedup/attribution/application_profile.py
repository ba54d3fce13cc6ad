"""Profile of one application: queries, stages, operators, coverage, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from workbench.core.errors import BrokenInvariantError, InputError
from workbench.eventlog.completeness import describe_holes, select_touching
from workbench.eventlog.reader import EventLogFacts
from workbench.speedup import tables
from workbench.speedup.attribution.application_time import (
    WORK_STARTS,
    ApplicationTime,
    find_extreme_ms,
    read_application_time,
    read_session_settings,
    sum_slot_seconds,
)
from workbench.speedup.attribution.executions import TIME_TYPES
from workbench.speedup.attribution.time_pieces import describe_missing_times

CODEGEN = "WholeStageCodegen"
# Where a log does not hold the application's start, its earliest time is the origin.
EVENTS = (("executors", "added_time_ms"), *WORK_STARTS, ("failures", "time_ms"))
MIN_TASKS_FOR_SKEW = 4
MIN_TIMED_SHARE = 0.9
OUTSIDE = "(outside SQL)"
CODEGEN_PART = "inside codegen spans"
TIMED_PART = "other, in stages whose operators report times"
UNTIMED_PART = "in stages whose operators report none"
UNKNOWN = pl.lit(None, pl.Float64)
NO_SQL_PART = "outside SQL"
NO_START = "The log does not hold the application's start"


@dataclass(frozen=True)
class Profile:
    """Tables of a profile (`PROFILE_TABLES`), why its log is invalid, and the answer in one sentence."""

    overview: pl.DataFrame
    queries: pl.DataFrame
    stage_spans: pl.DataFrame
    operator_times: pl.DataFrame
    coverage: pl.DataFrame
    failure_counts: pl.DataFrame
    reasons: tuple[str, ...]
    answer: str

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """Invalid if the log is cut, damaged or incomplete."""
        return "invalid" if self.reasons else "valid"


def build_profile(facts: EventLogFacts, *, sql_ids: Sequence[int] = (), log_id: int | None = None) -> Profile:
    """Where did the application's time go: queries, stages, operators?

    Parameters
    ----------
    facts
        From `workbench.eventlog.reader.read_event_logs`.
    sql_ids
        SQL executions to include; when empty, all of them and the stages outside SQL.
    log_id
        Log to profile; null: the only one.

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
    It does not show the cost of a single operator: Spark's operator times nest, and a codegen span has one time for all
    its operators. Task time is not wall time: it counts the time of every core, waiting included.
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
    spans = _build_stage_spans(log_facts, zero_ms, sql_ids)
    queries = _build_queries(log_facts, spans, zero_ms, sql_ids)
    operators = _build_operator_times(log_facts, sql_ids)
    coverage = _build_coverage(log_facts, spans)
    failures = _count_failures(log_facts, zero_ms)
    time = read_application_time(log_facts)
    overview = _build_overview(log_facts, application, time, spans, queries)
    reasons = _list_invalid_reasons(log_facts, application, time)
    if (missing := select_touching(log_facts.completeness)).height:
        overview = _bound_task_time(overview, log_facts, missing)
        queries, coverage = (frame.with_columns(task_time_share=UNKNOWN) for frame in (queries, coverage))
        queries, coverage = tables.QUERIES.check(queries), tables.COVERAGE.check(coverage)
        answer = _format_partial_answer(overview, missing)
    else:
        answer = _format_answer(overview, queries, coverage, is_contradictory=bool(time.contradictions))
    return Profile(overview, queries, spans, operators, coverage, failures, reasons, answer)


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


def _format_partial_answer(overview: pl.DataFrame, missing: pl.DataFrame) -> str:
    """Answer of a profile with holes. `overview`: Table OVERVIEW. `missing`: The log's holes."""
    row = overview.row(0, named=True)
    first, *more = describe_holes(missing)
    opening = f"{first[0].upper()}{first[1:]}" + (f", and {len(more)} more below" if more else "")
    high = row["task_time_high_s"]
    worked = f"between {row['task_time_s']:,.1f} and {high:,.1f} s" if high else f"at least {row['task_time_s']:,.1f} s"
    return f"{opening}; the {row['n_tasks']:,} tasks that are there and the missing ones worked {worked}."


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


def _build_stage_spans(facts: EventLogFacts, zero_ms: int, sql_ids: Sequence[int]) -> pl.DataFrame:
    """Build table STAGE_SPANS of the given SQL executions, or of all; seconds since `zero_ms`."""
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
    if sql_ids:
        joined = joined.filter(pl.col("sql_id").is_in(list(sql_ids)))
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


def _build_queries(facts: EventLogFacts, spans: pl.DataFrame, zero_ms: int, sql_ids: Sequence[int]) -> pl.DataFrame:
    """Table QUERIES. `spans`: `sql_id, task_time_s, n_tasks, n_failed_tasks` of table STAGE_SPANS."""
    work = spans.group_by("sql_id").agg(
        pl.col("task_time_s").sum(),
        pl.len().cast(pl.Int64).alias("n_stages"),
        pl.col("n_tasks").sum(),
        pl.col("n_failed_tasks").sum(),
    )
    chosen = facts.sql_executions.filter(pl.col("sql_id").is_in(list(sql_ids))) if sql_ids else facts.sql_executions
    queries = chosen.join(work, on="sql_id", how="left").with_columns(
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


def _operator_name_expr() -> pl.Expr:
    """Operator without its number: "WholeStageCodegen (3)" is "WholeStageCodegen"."""
    return pl.col("node_name").fill_null("(adaptive subplan)").str.replace(r"\s*\(\d+\)$", "").str.strip_chars()


def _build_operator_times(facts: EventLogFacts, sql_ids: Sequence[int]) -> pl.DataFrame:
    """Build table OPERATOR_TIMES of the given SQL executions, or of all."""
    metrics = facts.node_metrics.filter(pl.col("metric_type").is_in(list(TIME_TYPES)))
    if sql_ids:
        metrics = metrics.filter(pl.col("sql_id").is_in(list(sql_ids)))
    divisor = pl.col("metric_type").replace_strict(TIME_TYPES, return_dtype=pl.Float64)
    metrics = metrics.with_columns(operator=_operator_name_expr(), metric=_metric_name_expr(), divisor=divisor)
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
    return tables.OPERATOR_TIMES.check(both).sort("total_s", *keys, descending=[True, False, False, False])


def _metric_name_expr() -> pl.Expr:
    """Metric without the meaning that some engines append to its name."""
    return pl.col("metric_name").str.replace(r"\s+total\s*\(.*\)$", "")


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
) -> pl.DataFrame:
    """Table OVERVIEW, one row. `spans`, `queries`: Tables STAGE_SPANS and QUERIES."""
    wall_s: float | None = None
    slot_s: float | None = None
    if time.start_ms is not None and time.end_ms is not None and not time.contradictions:
        wall_s = time.wall_s
        if "executors" not in facts.completeness["kind"]:
            slot_s = sum_slot_seconds(facts, time.start_ms, time.end_ms, log_id=facts.logs["log_id"][0])
    busy_s, stage_s = sum_covered_time(spans), float((spans["end_s"] - spans["start_s"]).sum())
    task_s = float(spans["task_time_s"].sum())
    row = {
        "app_id": application["app_id"] or "(unknown)",
        **{name: application[name] for name in ("app_name", "spark_version", "engine", "status")},
        "wall_time_s": wall_s,
        "busy_time_s": busy_s,
        "stage_time_s": stage_s,
        "overlap_ratio": stage_s / busy_s if busy_s else None,
        "task_time_s": task_s,
        "task_time_high_s": None,
        "n_task_slots": read_session_settings(facts, log_id=facts.logs["log_id"][0]).task_slots,
        "slot_use_share": task_s / slot_s if slot_s else None,
        "n_queries": queries.height,
        "n_failed_queries": int((queries["status"] == "failed").sum()),
        "n_stages": spans.height,
        "n_tasks": int(spans["n_tasks"].sum()),
        "n_failed_tasks": int(spans["n_failed_tasks"].sum()),
    }
    return tables.OVERVIEW.frame([row])


def sum_covered_time(spans: pl.DataFrame) -> float:
    """Length of the union of intervals `start_s` to `end_s`, in seconds.

    >>> sum_covered_time(pl.DataFrame({"start_s": [0.0, 1.0, 5.0], "end_s": [2.0, 3.0, 6.0]}))
    4.0
    """
    total, until = 0.0, float("-inf")
    for start, end in spans.select("start_s", "end_s").sort("start_s").iter_rows():
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _list_invalid_reasons(
    facts: EventLogFacts, application: dict[str, object], time: ApplicationTime
) -> tuple[str, ...]:
    """List why an application's figures may be wrong: contradictory times, holes, a damaged or incomplete log."""
    log = facts.logs.row(0, named=True)
    reasons = [f"the log's times contradict each other: {contradiction}" for contradiction in time.contradictions]
    if missing := describe_missing_times(application):
        reasons.append(
            f"the log is incomplete: it does not hold the application's {missing}; figures cover what it holds"
        )
    reasons += describe_holes(facts.completeness.filter(pl.col("kind") != "application start"))
    if log["fault"]:
        reasons.append(f"the log is damaged: {log['fault']}")
    if log["n_bad_lines"]:
        reasons.append(f"{log['n_bad_lines']:,} of {log['n_lines']:,} lines could not be read")
    if log["n_late_task_ends"]:
        reasons.append(f"{log['n_late_task_ends']:,} tasks ended after their stage was closed and are missing")
    return tuple(reasons)


def _format_answer(
    overview: pl.DataFrame, queries: pl.DataFrame, coverage: pl.DataFrame, *, is_contradictory: bool
) -> str:
    """Answer of a whole log. `overview`, `queries`, `coverage`: Tables of these names."""
    row = overview.row(0, named=True)
    wall_s, busy_s, slots = row["wall_time_s"], row["busy_time_s"], row["n_task_slots"]
    if not row["n_tasks"]:
        start = _name_unknown_start(is_contradictory)
        ran = f"{start}," if wall_s is None else f"The application ran for {wall_s:,.1f} s"
        return f"{ran} and no task ended in it."
    worked = f"{row['n_tasks']:,} tasks worked {row['task_time_s']:,.1f} s"
    if wall_s is None:
        sentence = f"{_name_unknown_start(is_contradictory)}; its {worked} in {busy_s:,.1f} s with a stage running"
    else:
        idle = max(0.0, 1 - busy_s / wall_s) if wall_s else 0.0
        sentence = f"In {wall_s:,.1f} s {worked}"
        if row["slot_use_share"]:
            use = f"{100 * row['slot_use_share']:.0f} % of {wall_s:,.1f} s"
            sentence = f"The {slots:,} task slots were busy {use}" if slots > 1 else f"The task slot was busy {use}"
        sentence += f"; in {100 * idle:.0f} % of it no stage ran"
    if queries.height > 1 and queries["task_time_s"][0]:
        top = queries.row(0, named=True)
        sentence += f". Costliest of {queries.height:,} queries: {top['query']}, {100 * top['task_time_share']:.0f} %"
        sentence += " of their task time"
    timed = coverage.filter(pl.col("part").is_in([CODEGEN_PART, TIMED_PART]))["task_time_s"].sum()
    share = timed / row["task_time_s"]
    # Nearly always near 100 %, and then nothing that the reader would act on; the table of the coverage has it.
    timed_text = f"{100 * share:.0f} % of the task time"
    hint = "" if share >= MIN_TIMED_SHARE else f"; operators report times in stages with only {timed_text}"
    return f"{sentence}{hint}."


def _name_unknown_start(is_contradictory: bool) -> str:
    return "The log's times contradict each other" if is_contradictory else NO_START


def check_profile(result: Profile, facts: EventLogFacts, *, log_id: int | None = None) -> pl.DataFrame:
    """Check that the tables agree with each other and with the log.

    Returns
    -------
    DataFrame
        One row per invariant: `check`, `found`, `expected`, `holds`.

    Raises
    ------
    BrokenInvariantError
        An invariant does not hold; the message names it with both figures.
    """
    log_facts = _select_log(facts, log_id)
    outcomes = log_facts.stage_tasks.select(pl.sum("n_succeeded", "n_failed", "n_killed")).sum_horizontal().sum()
    busy_s = sum_covered_time(result.stage_spans)
    rows = [
        (
            "parts of the coverage add up to the task time, in s",
            result.coverage["task_time_s"].sum(),
            result.stage_spans["task_time_s"].sum(),
        ),
        ("tasks by outcome add up to all tasks", outcomes, log_facts.stage_tasks["n_tasks"].sum()),
        ("busy time is at most the stages' time, in s", min(busy_s, result.overview["stage_time_s"][0]), busy_s),
        ("run time by task metrics equals that by accumulators, in ms", *_sum_run_times(log_facts)),
    ]
    rows = [(name, float(actual), float(expected)) for name, actual, expected in rows]
    checks = pl.DataFrame(rows, schema=["check", "found", "expected"], orient="row").with_columns(
        holds=(pl.col("found") - pl.col("expected")).abs()
        <= 1e-9 * pl.max_horizontal(pl.lit(1.0), pl.col("expected").abs())
    )
    if (broken := checks.filter(~pl.col("holds"))).height:
        row = broken.row(0, named=True)
        raise BrokenInvariantError(
            "an invariant does not hold", where=row["check"], found=row["found"], allowed=row["expected"]
        )
    return checks


def _sum_run_times(facts: EventLogFacts) -> tuple[int, int]:
    """Executor run time in ms by task metrics and by accumulators, over stages for which the log has both.

    Where tasks failed they differ: Spark drops accumulators of tasks that end after their stage.
    """
    key = ["stage_id", "stage_attempt_id"]
    complete_stages = facts.stage_tasks.filter(
        pl.col("n_succeeded") == pl.col("n_with_metrics"), pl.col("n_tasks") == pl.col("n_succeeded")
    )
    internal = facts.accumulators.filter(pl.col("name") == "internal.metrics.executorRunTime").select(
        *key, by_accumulator="total"
    )
    # Stages whose tasks all ran for 0 ms, and logs without internal accumulators, have nothing to compare.
    both = complete_stages.join(internal, on=key)
    return int(both["executor_run_time_ms"].sum()), int(both["by_accumulator"].sum())
