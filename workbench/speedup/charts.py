"""Charts of a profile, a pair and a fleet: each draws one analysed table and computes nothing new."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench import charts
from workbench.chart_data import sentences
from workbench.stats import Interval

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


TOLD = ["FASTER", "SLOWER", "SAME"]


def chart_factors(factors: pl.DataFrame, *, baseline: str, candidate: str) -> alt.Chart:
    """Which operators gain on the candidate, and which lose? Those on one side only have no ratio to draw."""
    both = factors.filter(~pl.col("quality").is_in(["baseline only", "candidate only"]))
    one_sided = factors.height - both.height
    drawn = both.with_columns(
        factor_ratio=pl.col("factor"),
        weak=pl.col("quality") == "weak",
        told=pl.col("verdict").is_in(TOLD),
        n=_sessions(),
    )
    gain = f"How many times faster is each operator on {candidate} than on {baseline}?"
    return charts.forest(
        drawn,
        title=gain,
        label="operator",
        estimate="factor_ratio",
        low="factor_low",
        high="factor_high",
        told_apart="told",
        category="verdict",
        faint="weak",
        details=("quality", "n", "n_queries", "baseline_s", "baseline_share", "note"),
        subtitle="most time on top" + (f" · {one_sided} on one side only: see the table" if one_sided else ""),
    )


def _sessions() -> pl.Expr:
    """How much stands behind a factor, in words: sessions of each side, and passes where they are known."""
    return pl.format("{} and {} sessions x {} passes", "n_baseline_sessions", "n_candidate_sessions", "n_passes")


def chart_pairs(pairs: pl.DataFrame, overall: Interval, verdict: str, *, baseline: str, candidate: str) -> alt.Chart:
    """Which queries gain on the candidate? The geometric mean of all stands last."""
    row = {"query": "all queries", "ratio": overall.estimate, "ratio_low": overall.low, "ratio_high": overall.high}
    last = pl.DataFrame(
        [row | {"verdict": verdict}], schema_overrides={"ratio_low": pl.Float64, "ratio_high": pl.Float64}
    )
    drawn = pl.concat([pairs, last], how="diagonal_relaxed").with_columns(
        speedup_ratio=pl.col("ratio"), told=pl.col("verdict").is_in(TOLD)
    )
    return charts.forest(
        drawn,
        title=f"How many times faster is each query on {candidate} than on {baseline}?",
        label="query",
        estimate="speedup_ratio",
        low="ratio_low",
        high="ratio_high",
        told_apart="told",
        category="verdict",
        details=("baseline_s", "candidate_s", "n_baseline_sessions", "n_candidate_sessions"),
        subtitle="last row: geometric mean",
    )


def chart_steps(steps: pl.DataFrame, *, query: str = "", changed: int = 0) -> alt.Chart:
    """Where does a query's time go on its way from the baseline to the candidate?

    `query` is shown first; without it, the one that takes longest on the baseline.
    """
    longest = steps.filter(pl.col("kind") == "baseline").sort("time_s", descending=True)["query"].head(1).to_list()
    by_hand = f"{changed} factor{'s' if changed != 1 else ''} set by hand" if changed else ""
    return charts.waterfall(
        steps,
        title="From the baseline's time to the predicted one, operator by operator",
        label="what",
        change="time_s",
        end="end_s",
        category="kind",
        total="total",
        case="query",
        first=query or (longest[0] if longest else None),
        low="low_s",
        high="high_s",
        details=("before_s", "factor"),
        subtitle=by_hand or "this query is among those that the factors come from",
    )


def chart_validation(validation: pl.DataFrame, *, level: float) -> alt.Chart:
    """How far are predictions of left-out queries from what was measured? The worst three are named."""
    worst = pl.col("log_error").abs().rank("ordinal", descending=True).over("predictor") <= 3
    first = validation["predictor"].head(1).to_list()
    others = tuple(name for name in validation["predictor"].unique(maintain_order=True) if name not in first)
    return charts.scatter(
        validation.with_columns(measured_s=pl.col("actual_s"), worst=worst & pl.col("predictor").is_in(first)),
        title="Left-out queries: predicted against measured",
        x="measured_s",
        y="predicted_s",
        label="query",
        low="predicted_low_s",
        high="predicted_high_s",
        group="predictor",
        hidden=others,
        named="worst",
        details=("baseline_s", "absolute_error_share", "covered"),
        subtitle=f"bars: {level:.0%} prediction intervals · above the line: slower predicted than measured",
    )


def chart_applications(applications: pl.DataFrame, *, top: int = 30) -> alt.Chart:
    """Which applications gain most, and how sure is that? Most time saved on top; those not judged are counted."""
    name = pl.col("app_name").fill_null(pl.col("app_id")).fill_null(pl.col("log"))
    judged = applications.filter(pl.col("saved_s").is_not_null())
    drawn = judged.head(top).with_columns(
        label=pl.when(name.is_duplicated()).then(pl.format("{} · {}", name, "log")).otherwise(name),
        told=(pl.col("saved_low_s") > 0) | (pl.col("saved_high_s") < 0),
    )
    not_judged, below = applications.height - judged.height, judged.height - drawn.height
    return charts.forest(
        drawn,
        title="How much time would each application save?",
        label="label",
        estimate="saved_s",
        low="saved_low_s",
        high="saved_high_s",
        told_apart="told",
        category="recommendation",
        reference=0.0,
        log=False,
        details=("baseline_s", "predicted_s", "ratio", "unsupported_share", "reason"),
        subtitle=sentences(
            f"{below} more below these" if below else "",
            f"{not_judged} not judged: see the table" if not_judged else "",
        ),
    )


def chart_at_stake(operators: pl.DataFrame, *, top: int) -> alt.Chart:
    """Which operators that stay on the CPU, or have no factor, hold most time?"""
    return charts.bars(
        operators,
        title="Time in operators that are left on the CPU or have no factor",
        label="operator",
        value="baseline_s",
        category="kind",
        top=top,
    )
