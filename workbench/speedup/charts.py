"""Charts of a profile: each draws one analysed table and computes nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench import charts

if TYPE_CHECKING:
    import altair as alt


def chart_timeline(queries: pl.DataFrame, stage_spans: pl.DataFrame) -> alt.VConcatChart:
    """Which queries and stages ran when, and which at the same time? Those that overlap are stacked."""
    columns = ("lane", "what", "start_s", "end_s", "outcome", "task_time_s", "n_tasks")
    of_queries = queries.with_columns(lane=pl.lit("queries"), what="query", outcome=_outcome("query"))
    of_stages = stage_spans.with_columns(
        lane=pl.lit("stages"), what=pl.format("{}, {}", "stage", "query"), outcome=_outcome("stage")
    )
    return charts.timeline(
        pl.concat([of_queries.select(columns), of_stages.select(columns)]),
        title="Queries and stages over time; brush the overview to look closer",
        start="start_s",
        end="end_s",
        lane="lane",
        category="outcome",
        details=("what", "task_time_s", "n_tasks"),
    )


def _outcome(kind: str) -> pl.Expr:
    return pl.when(pl.col("status") == "failed").then(pl.lit("failed")).otherwise(pl.lit(kind))


def chart_operator_times(operator_times: pl.DataFrame, *, top: int) -> alt.Chart:
    """Which operator times are largest? Bars by operator and metric; they nest and must not be added."""
    labelled = operator_times.with_columns(label=pl.format("{} · {}", "operator", "metric") + _where())
    return charts.bars(
        labelled,
        title="Time that operators report, summed over tasks",
        label="label",
        value="total_s",
        category="where",
        top=top,
        subtitle="times nest: a codegen span holds its operators",
    )


def _where() -> pl.Expr:
    return pl.when(pl.col("where") == "driver").then(pl.lit(" (driver)")).otherwise(pl.lit(""))


def chart_coverage(coverage: pl.DataFrame) -> alt.Chart:
    """How much of the task time can the log explain?"""
    return charts.bars(
        coverage, title="What the log says about the task time", label="part", value="task_time_s", top=coverage.height
    )


def chart_skew(stage_spans: pl.DataFrame) -> alt.Chart:
    """In which stages did one task take much longer than the others?"""
    uneven = stage_spans.filter(pl.col("skew_cost_s").is_not_null()).with_columns(
        label=pl.format("{} · {}", "stage", "query")
    )
    return charts.bars(
        uneven,
        title="Longest minus median task, by stage: what an even cut could save at most",
        label="label",
        value="skew_cost_s",
        top=10,
    )
