"""Charts of a profile: each draws one analysed table and computes nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench import charts

if TYPE_CHECKING:
    import altair as alt


def chart_stage_timeline(stage_spans: pl.DataFrame) -> alt.VConcatChart:
    """Which stages ran when, and which at the same time? One lane per query, coloured by outcome."""
    return charts.timeline(
        stage_spans,
        title="Stages over time; brush the overview to look closer",
        start="start_s",
        end="end_s",
        lane="query",
        category="status",
        details=("stage", "n_tasks", "task_time_s", "task_max_s"),
    )


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
    uneven = stage_spans.filter(pl.col("skew_cost_s").is_not_null()).with_columns(label=pl.format("{} · {}", "stage", "query"))
    return charts.bars(
        uneven,
        title="Longest minus median task, by stage: what an even cut could save at most",
        label="label",
        value="skew_cost_s",
        top=10,
    )
